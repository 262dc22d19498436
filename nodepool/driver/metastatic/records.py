# SPDX-License-Identifier: Apache-2.0
"""What the driver writes into nodes: ``user_data`` and ``driver_data`` (reference/zookeeper 5.6)."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from nodepool.model.lost_instance import BACKING_OWNER
from nodepool.model.record import InvalidRecord, is_finite
from nodepool.zk import codec

if TYPE_CHECKING:
    from nodepool.model.node import Node

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
            data = codec.decode_text(value)
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
