# SPDX-License-Identifier: Apache-2.0
"""Nodes whose instance ended although it was not deleted here, such as spot instances that the cloud took away (D-9).

What each look at a complete list says of a node that was ready, in use or on hold before the list began:

====================================  ==========================================================================
listed                                nothing
listed as one that ends               lost
missing for the first time            in doubt: not handed out; another look soon
missing in two lists, ``lag`` apart   the cloud is asked for it alone: none = lost; there = not in doubt any more
the same, and it cannot be asked      lost after `UNPROVED_SECONDS`; nothing at all if no earlier list has shown it
missing with all that are as old      the same, but lost after `HELD_SECONDS` only: see `LostInstances.held`
====================================  ==========================================================================

A watch, or a list that a launch needs, may show the end of an instance before: then it is lost at once. A lost instance
is one event. Its node is deleted if it is ready and unallocated. One that is in use is left to its owner. One on which
another provider has its nodes is marked, and that provider does the same with each of these (T-15).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Set
from logging import DEBUG, WARNING
from typing import TYPE_CHECKING, Any, Final

from nodepool.clock import monotonic, wall_time
from nodepool.driver import gateway
from nodepool.driver.framework.fact import Repeats
from nodepool.driver.statemachine import instance
from nodepool.driver.statemachine.adapter import Adapter
from nodepool.driver.statemachine.instance_cloud import GONE
from nodepool.exceptions import ZKConflict, ZKException
from nodepool.guard import Guard
from nodepool.metrics import reports as metrics
from nodepool.model import states
from nodepool.model.event import LostInstance, named, with_loss
from nodepool.plan.retries import SeenTwice

if TYPE_CHECKING:
    from collections.abc import Callable

    from nodepool.driver.statemachine.cloud_quota import StateMachineQuota
    from nodepool.driver.statemachine.instance import Instance, Log
    from nodepool.model.node import Node
    from nodepool.zk.zookeeper import ZooKeeper

#: States of nodes that have an instance, which nobody deletes.
ALIVE: Final = frozenset((states.READY, states.IN_USE, states.HOLD))
#: What nobody takes is forgotten.
_MOST: Final = 1000
#: How long an instance must be missing that the cloud cannot be asked for, in seconds: three lists at least.
UNPROVED_SECONDS: Final = 120.0
#: Instances that are asked for one by one in one look; the others stay in doubt until the next.
MOST_LOOKS: Final = 20
#: How long an instance is not asked for again that was there, although lists lack it, in seconds.
THERE_SECONDS: Final = 600.0
#: Instances of which none is listed any more: so many are no accident of each, but perhaps another project or region.
MANY: Final = 3
#: How long the loss of so many is held, in seconds: an operator has time to correct the configuration.
HELD_SECONDS: Final = 900.0


class LostInstances:
    """Compares lists of instances with the nodes.

    `look` is called by one thread at a time. ``_lock`` guards what is found, and which nodes are in doubt.

    :param lag_seconds: of lists, see `Adapter`.
    """

    def __init__(
        self, provider: StateMachineQuota, log: Log, lag_seconds: float, clock: Callable[[], float] = monotonic
    ) -> None:
        self._provider = provider
        self._log = log
        self._clock = clock
        adapter = provider.adapter
        #: Can the cloud be asked for one instance? Drivers written for 11.0.0 cannot.
        self._can_ask = getattr(adapter, "instance_cloud", None) is not None or _overrides(adapter)
        self._counts_ends = getattr(adapter, "counts_ends", False)
        self._repeats = Repeats()
        self._absent: SeenTwice[str] = SeenTwice(lag_seconds)
        #: Nodes whose instances lists have shown here.
        self._shown: set[str] = set()
        #: When an instance was there that lists lack, by node id.
        self._there: dict[str, float] = {}
        #: Of nodes that are lost: code and text.
        self._told: dict[str, tuple[str, str]] = {}
        self._doubtful: frozenset[str] = frozenset()
        #: Nodes that may be lost only because another place is looked at -> when their loss is believed all the same,
        #: in seconds since the epoch. Replaced as a whole; any thread may read it.
        self.held: Mapping[str, float] = {}
        #: Nodes whose end a thread sees to.
        self._in_hand: set[str] = set()
        self._lock = threading.Lock()
        self._found: deque[LostInstance] = deque(maxlen=_MOST)

    def in_doubt(self, node_id: str) -> bool:
        """May the instance of a node be lost? Any thread."""
        return node_id in self._doubtful

    def alive(self) -> dict[str, Any]:
        """External ids of this provider's nodes that should have an instance, by node id. Before a list begins."""
        zk = self._provider.zk
        return {
            node.key: node.external_id
            for node in (() if zk is None else zk.nodeIterator())
            if node.provider == self._provider.name and node.state in ALIVE and node.external_id is not None
        }

    def look(self, alive: dict[str, Any], listed: Iterable[Instance]) -> bool:
        """A complete list came. Is another look, soon, worth while? Blocks if an instance has to be asked for.

        :param alive: see `alive`, before the list began.
        """
        there, ends = self._compare(alive, listed)
        now = self._clock()
        absent = alive.keys() - there - ends.keys()
        if not self._can_ask:
            absent &= self._shown
        certain = self._absent.look(absent, now)
        self._shown = (self._shown | there) & alive.keys()
        self._there = {node_id: when for node_id, when in self._there.items() if node_id in absent}
        with self._lock:
            self._told = {key: why for key, why in self._told.items() if key in alive and key not in there}
            # They may have been in use then.
            lost = {key: why for key, why in self._told.items() if key in absent} | ends
        held = self._hold(absent - lost.keys(), there, now)
        ask_for = self._to_ask_for(certain - lost.keys() - held, now)
        # If one of them is there when it is asked for alone, the place is right.
        for node_id in [*ask_for[:MOST_LOOKS], *self._to_ask_for(certain & held, now)[:1]]:
            if self._provider.calls.circuit_open:
                # The cloud is away: the others stay in doubt.
                break
            if self._is_gone(node_id, alive[node_id], now) and node_id not in held:
                lost[node_id] = self._why(alive[node_id])
        with self._lock:
            self._doubtful = frozenset(absent - self._there.keys()) | lost.keys() | self._told.keys()
        for node_id in sorted(lost):
            self.ended(node_id, *lost[node_id], counted=node_id in ends and self._counts_ends)
        return self._absent.new or len(ask_for) > MOST_LOOKS

    def _compare(
        self, alive: dict[str, Any], listed: Iterable[Instance]
    ) -> tuple[set[str], dict[str, tuple[str, str]]]:
        """Nodes whose instance is there, and those whose instance is listed as one that ends: code and text."""
        by_instance = {_comparable(external_id): node_id for node_id, external_id in alive.items()}
        there: set[str] = set()
        ends: dict[str, tuple[str, str]] = {}
        for found in listed:
            mine = by_instance.get(_comparable(found.external_id))
            if found.ends is not None or found.deleted:
                if mine is not None:
                    text = f"the cloud shows instance {found.external_id} as deleted"
                    ends[mine] = found.ends or (GONE, text)
                continue
            node_id = instance.node_id_of(found.metadata, self._provider.name)
            there |= {known for known in (mine, node_id) if known is not None and known in alive}
        return there, {node_id: why for node_id, why in ends.items() if node_id not in there}

    def missing(self, alive: dict[str, Any], listed: Iterable[Instance]) -> set[str]:
        """For one list alone: the nodes whose loss would be held. For ``nodepool check``."""
        there, ends = self._compare(alive, listed)
        found = missing_together(alive.keys() - there - ends.keys(), there)
        return found if self._can_ask and len(found) >= MANY else set()

    def _hold(self, absent: set[str], there: set[str], now: float) -> set[str]:
        """Which of the missing ones are not lost yet, because all of their age are missing; see `held`."""
        missing = missing_together(absent, there | self._there.keys())
        if len(missing) < MANY and not missing & self.held.keys():
            missing = set()
        left = {node_id: HELD_SECONDS - self._absent.seen_for(node_id, now) for node_id in missing}
        before, present = self.held, wall_time()
        self.held = {node_id: before.get(node_id, present + left[node_id]) for node_id in left if left[node_id] > 0}
        if self.held and not before:
            self._log.warning(
                "The cloud of provider %s shows no instance of %d nodes any more (%s). "
                "They are not used, and are lost in %g s",
                *(self._provider.name, len(self.held), named(sorted(self.held)), HELD_SECONDS),
            )
        return set(self.held)

    def _to_ask_for(self, certain: set[str], now: float) -> list[str]:
        """Those that were missing for longest come first."""
        asked = [node_id for node_id in certain if now - self._there.get(node_id, -THERE_SECONDS) >= THERE_SECONDS]
        return sorted(asked, key=lambda node_id: (-self._absent.seen_for(node_id, now), node_id))

    def _is_gone(self, node_id: str, external_id: Any, now: float) -> bool:
        """Ask the cloud for one instance; blocks. What cannot be found out now stays in doubt."""
        provider, gone = self._provider, False
        level = WARNING if self._repeats.worth_saying(node_id) else DEBUG
        with Guard(
            self._log,
            "Instance %s of node %s is in no list; whether it still exists is not known",
            *(external_id, node_id),
            level=level,
            traceback=False,
        ) as guard:
            answer = gateway.instance_is_gone(provider.name, provider.adapter, external_id)
            unproved = answer is None and self._absent.seen_for(node_id, now) >= UNPROVED_SECONDS
            gone = answer is True or unproved
            if answer is False:
                self._there[node_id] = now
        if guard.error is not None:
            provider.calls.judge(guard.error)
        return gone

    def _why(self, external_id: Any) -> tuple[str, str]:
        name = self._provider.name
        said = gateway.why_lost(name, self._provider.adapter, external_id)
        return said or (GONE, f"instance {external_id} does not exist any more, and was not deleted here")

    def ended(self, node_id: str, code: str, text: str, *, counted: bool = False) -> None:
        """An instance is lost. Blocks for ZooKeeper. Any thread; does not raise.

        :param counted: the driver has counted it.
        """
        zk = self._provider.zk
        with self._lock:
            if zk is None or node_id in self._in_hand:
                return
            self._in_hand.add(node_id)
        try:
            self._end(zk, node_id, code, text, counted)
        finally:
            with self._lock:
                self._in_hand.discard(node_id)

    def _end(self, zk: ZooKeeper, node_id: str, code: str, text: str, counted: bool) -> None:
        node = zk.getNode(node_id, only_cached=True)
        if node is None or node.state not in ALIVE:
            return
        with self._lock:
            new = node_id not in self._told
            self._told[node_id] = (code, text)
            self._doubtful |= {node_id}
        before = node.state
        self._mark_backing(zk, node, code, text)
        goes = before == states.READY and node.allocated_to is None and self._delete(zk, node)
        if not new:
            return
        text = f"{text}; the node is {'deleted' if goes else before}"
        self._log.warning("Instance %s of node %s is lost: %s: %s", node.external_id, node_id, code, text)
        if not counted:
            metrics.report_instance_end(self._provider.name, code)
        with self._lock:
            self._found.append(LostInstance(node_id, code, text))

    def _mark_backing(self, zk: ZooKeeper, node: Node, code: str, text: str) -> None:
        """Its owner takes this in although it holds the lock: each of its writes is fenced by the version."""
        marked = with_loss(node.user_data, code, text)
        if marked is None:
            return
        changed = node.copy()
        changed.user_data = marked
        try:
            zk.nodes.save(changed)
        except ZKException as error:
            # The next list comes to it again.
            self._log.info("Backing node %s is not marked as lost yet: %s", node.key, error)

    def _delete(self, zk: ZooKeeper, node: Node) -> bool:
        """Mark a node that is not in use: its launcher deletes it at once. Was it so?"""
        node.state = states.DELETING
        try:
            zk.nodes.save_unlocked(node)
        except ZKConflict as conflict:
            # It was taken just now, or is being deleted.
            self._log.debug("Node %s is not deleted: %s", node.key, conflict)
            return False
        except ZKException as error:
            self._log.warning("Node %s is not deleted yet: %s", node.key, error)
            return False
        return True

    def take(self) -> list[LostInstance]:
        """What was found since the last call. Any thread."""
        with self._lock:
            found = list(self._found)
            self._found.clear()
        return found


def missing_together(absent: Set[str], there: Set[str]) -> set[str]:
    """Nodes that are missing, if no other of their age is there: perhaps another project, region or account is listed.

    What was launched since then is there, but is younger.
    """

    def age(node_id: str) -> tuple[int, str]:
        return len(node_id), node_id

    if there:
        oldest = min(map(age, there))
        return set(absent) if all(age(node_id) < oldest for node_id in absent) else set()
    return set(absent)


def _overrides(adapter: Any) -> bool:
    """Does a driver say itself how the cloud is asked for one instance?"""
    return any("isGone" in vars(cls) for cls in type(adapter).__mro__ if cls is not Adapter)


def _comparable(external_id: Any) -> str:
    """An external id, which may be a dict."""
    return str(sorted(external_id.items(), key=str)) if isinstance(external_id, dict) else str(external_id)
