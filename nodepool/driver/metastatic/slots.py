# SPDX-License-Identifier: Apache-2.0
"""Slots of backing nodes: what launches want of the `SlotAllocator`, then what the driver writes into nodes."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable, Collection
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from nodepool.model.event import BACKING_OWNER
from nodepool.model.record import InvalidRecord, is_finite
from nodepool.zk import paths

if TYPE_CHECKING:
    from nodepool.driver.statemachine.instance import Log
    from nodepool.model.node import Node
    from nodepool.plan.backing import BackingKind


class SlotRequest:
    """One node that waits for a slot.

    :param wake: makes its launch look at ``place`` and ``error``; any thread, does not block.
    """

    def __init__(self, node_id: str, kind: BackingKind, wake: Callable[[], None], log: Log) -> None:
        self.node_id = node_id
        self.kind = kind
        self.wake = wake
        self.log = log
        #: The backing request that it waits for.
        self.request_id: str | None = None
        #: Backing node and slot.
        self.place: tuple[Node, int] | None = None
        self.error: Exception | None = None


#: Those who wait, by kind and node, in the order in which they came.
Waiting = dict["BackingKind", dict[str, SlotRequest]]


class SlotRequests:
    """What launches and deletions want. Any thread; ``_lock`` guards everything and is not held across calls to others.

    :param on_change: called when there is something to do; must not block.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._lock = threading.Lock()
        self._waiting: dict[str, SlotRequest] = {}
        #: Those who wait no longer if nobody has begun to make their backing node.
        self._stopped: set[str] = set()
        self._given_back: dict[str, Callable[[], None]] = {}
        #: node -> backing node, as long as its launch goes on.
        self._placed: dict[str, str] = {}
        #: node -> backing node, if its launch went on when its scan failed.
        self._failed_scans: dict[str, str | None] = {}

    @property
    def busy(self) -> bool:
        """Does anybody want anything?"""
        with self._lock:
            return bool(self._waiting or self._given_back or self._failed_scans)

    # -- waiting for a slot --

    def add(self, slot_request: SlotRequest) -> None:
        """A node waits; what it waited for before is forgotten."""
        with self._lock:
            self._waiting[slot_request.node_id] = slot_request
        self._on_change()

    def waiting(self) -> Waiting:
        """Those who wait now."""
        found: Waiting = {}
        with self._lock:
            for node_id, slot_request in self._waiting.items():
                found.setdefault(slot_request.kind, {})[node_id] = slot_request
        return found

    def first(self, kind: BackingKind, count: int) -> list[SlotRequest]:
        """At most so many of those who wait, in their order."""
        with self._lock:
            return list(islice((waiting for waiting in self._waiting.values() if waiting.kind == kind), count))

    def place(self, slot_request: SlotRequest, backing: Node, slot: int) -> None:
        """The node of a slot request has a slot."""
        slot_request.log.info("Slot %d of backing node %s", slot, backing.id)
        slot_request.place = (backing, slot)
        with self._lock:
            # Not of a launch that has ended meanwhile: nobody would take it out again.
            if self._waiting.get(slot_request.node_id) is slot_request:
                self._placed[slot_request.node_id] = backing.key
        self._answer(slot_request)

    def fail(self, slot_request: SlotRequest, error: Exception) -> None:
        """The node of a slot request will not get a slot now."""
        slot_request.error = error
        self._answer(slot_request)

    def fail_request(self, request_id: str, make_error: Callable[[], Exception]) -> None:
        """T-4: those who wait for a backing request will not get a slot now."""
        with self._lock:
            found = [waiting for waiting in self._waiting.values() if waiting.request_id == request_id]
        for slot_request in found:
            self.fail(slot_request, make_error())

    def _answer(self, slot_request: SlotRequest) -> None:
        self._remove(slot_request)
        slot_request.wake()

    def _remove(self, slot_request: SlotRequest) -> None:
        with self._lock:
            if self._waiting.get(slot_request.node_id) is slot_request:
                del self._waiting[slot_request.node_id]

    def stop_waiting(self, node_ids: Collection[str]) -> None:
        """These nodes shall not go on waiting for a backing node that nobody has begun to make."""
        with self._lock:
            self._stopped.update(node_ids)
        self._on_change()

    def take_stopped(self) -> set[str]:
        """Nodes of which this was said since the last time."""
        with self._lock:
            stopped, self._stopped = self._stopped, set()
        return stopped

    def drop(self, node_id: str) -> None:
        """A node does not wait any more: its launch has ended."""
        with self._lock:
            self._waiting.pop(node_id, None)
            self._placed.pop(node_id, None)
        self._on_change()

    # -- giving a slot back --

    def give_back(self, node_id: str, wake: Callable[[], None]) -> None:
        """A node needs its slot no more, although its znode stays.

        :param wake: called when `is_given_back` is true.
        """
        with self._lock:
            self._waiting.pop(node_id, None)
            self._given_back[node_id] = wake
        self._on_change()

    def given_back(self) -> list[str]:
        with self._lock:
            return list(self._given_back)

    def is_given_back(self, node_id: str) -> bool:
        """Is nothing left to be done after `give_back`?"""
        with self._lock:
            return node_id not in self._given_back

    def taken_back(self, node_id: str) -> None:
        """The slot is free, if there was one."""
        with self._lock:
            wake = self._given_back.pop(node_id, None)
        if wake is not None:
            wake()

    # -- failed scans --

    def note_failed_scan(self, node_id: str) -> None:
        """T-11: nobody answers on the backing node where this node has its slot."""
        with self._lock:
            self._failed_scans[node_id] = self._placed.get(node_id)
        self._on_change()

    def failed_scans(self) -> dict[str, str | None]:
        """Nodes, and the backing node of each. None = it is where it has its slot now."""
        with self._lock:
            return dict(self._failed_scans)

    def failed_scan_noted(self, node_id: str) -> None:
        with self._lock:
            self._failed_scans.pop(node_id, None)


# What the driver writes into nodes: ``user_data`` and ``driver_data`` (reference/zookeeper 5.6).

#: More would not be one machine.
MAX_SLOTS: Final = 10_000


def owner_of(provider_name: str) -> str:
    """The name under which a provider locks backing nodes and requests them."""
    return f"{BACKING_OWNER}{provider_name}"


@dataclasses.dataclass(frozen=True)
class BackingData:
    """``user_data`` of a backing node, a JSON text.

    :param launched: seconds since the epoch.
    :param nodes: by slot: the node that has it, or had it until its znode went; None = free. Older launchers do not
        have this key: what they know is in the ``driver_data`` of the nodes.
    :param idle_since: nobody has been on it since then, in seconds since the epoch; None = somebody is, or nobody has
        noted it yet.
    :param lost: code and text, if its instance is lost: the provider that made it writes them (D-9).
    :param extra: keys that we do not know.
    """

    owner: str
    label: str
    slots: int
    failed: bool
    launched: float
    nodes: tuple[str | None, ...]
    idle_since: float | None = None
    lost: tuple[str, str] | None = None
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)

    def encode(self) -> str:
        known = {name: getattr(self, name) for name in _KEYS}
        lost = {} if self.lost is None else {"lost": list(self.lost)}
        return json.dumps({**self.extra, **known, **lost, "nodes": list(self.nodes)})

    def with_node(self, slot: int, node_id: str | None) -> BackingData:
        """The same with another holder of a slot."""
        nodes = (*self.nodes[:slot], node_id, *self.nodes[slot + 1 :])
        return dataclasses.replace(self, nodes=nodes, idle_since=None)

    def as_failed(self) -> BackingData:
        """The same, but no new nodes may be put on it."""
        return dataclasses.replace(self, failed=True)

    @classmethod
    def decode(cls, value: Any) -> BackingData | None:
        """Read it; None = no data of a backing node. Bad values become harmless ones: such a node only empties."""
        if not isinstance(value, str):
            return None
        try:
            data = paths.decode_text(value)
        except InvalidRecord:
            return None
        if not isinstance(data.get("owner"), str):
            return None
        label, slots = data.get("label"), data.get("slots")
        fine = isinstance(label, str)
        if not _is_int(slots) or not 1 <= slots <= MAX_SLOTS:
            fine, slots = False, 1
        return cls(
            owner=data["owner"],
            label=label if isinstance(label, str) else "",
            slots=slots,
            failed=not fine or data.get("failed") is True,
            launched=_time(data.get("launched")) or 0.0,
            nodes=_by_slot(data.get("nodes"), slots),
            idle_since=_time(data.get("idle_since")),
            lost=_loss(data.get("lost")),
            extra={key: item for key, item in data.items() if key not in (*_KEYS, "lost", "nodes")},
        )


_KEYS: Final = ("owner", "label", "slots", "failed", "launched", "idle_since")


def driver_data(metadata: dict[str, str], backing_id: str, slot: int, node_id: str) -> dict[str, Any]:
    """What a requested node remembers."""
    return {"metadata": metadata, "backing_node": backing_id, "slot": slot, "node": node_id}


def place_of(node: Node) -> tuple[str, int] | None:
    """Backing node and slot that a requested node says it has."""
    data = node.driver_data
    if not isinstance(data, dict):
        return None
    backing, slot = data.get("backing_node"), data.get("slot")
    if isinstance(backing, str) and _is_int(slot):
        return backing, slot
    return None


def _by_slot(value: Any, slots: int) -> tuple[str | None, ...]:
    found = [item if isinstance(item, str) and item else None for item in value] if isinstance(value, list) else []
    return tuple((found + [None] * slots)[:slots])


def _loss(value: Any) -> tuple[str, str] | None:
    return (str(value[0]), str(value[1])) if isinstance(value, list) and len(value) == 2 else None


def _is_int(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _time(value: Any) -> float | None:
    fine = isinstance(value, (int, float)) and not isinstance(value, bool) and is_finite(value)
    return float(value) if fine else None
