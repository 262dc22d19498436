# SPDX-License-Identifier: Apache-2.0
"""Searches for leaked resources in the cloud, and deletes them (rules D-2 to D-5); and for lost instances (D-9)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Set
from functools import cache
from logging import DEBUG, WARNING
from typing import Any, Final

from nodepool.clock import monotonic, wall_time
from nodepool.driver import gateway
from nodepool.driver.framework.fact import Repeats
from nodepool.driver.interface import CleanupTask
from nodepool.driver.statemachine.adapter import Adapter, Instance, Log, Resource
from nodepool.driver.statemachine.deletion import DeletingProvider
from nodepool.driver.statemachine.instance import GONE, INSTALLATION_KEY, node_id_of, of_installation, others, upload_of
from nodepool.exceptions import NotFound, ZKConflict, ZKException
from nodepool.guard import Guard
from nodepool.metrics import reports
from nodepool.model import states
from nodepool.model.event import LostInstance, named, with_loss
from nodepool.model.node import Node
from nodepool.plan.launch import meaning
from nodepool.plan.retries import SeenTwice
from nodepool.zk.zookeeper import ZooKeeper

#: Seconds until another look where something seems to be left over, or may be soon.
LOOK_AGAIN_SECONDS: Final = 10.0


class LeakSweep:
    """A resource is leaked if two consecutive sweeps find it without a node. ``_busy`` is held during a sweep."""

    def __init__(self, provider: DeletingProvider, log: Log, lost: Callable[[], LostInstances]) -> None:
        self._provider = provider
        self.log = log
        self._lost = lost
        self._left_over: SeenTwice[Hashable] = SeenTwice()
        self._extra: SeenTwice[Hashable] = SeenTwice()
        #: Leaked resources that were deleted, and counted, but are still listed.
        self._counted: set[Hashable] = set()
        #: Deletions of second instances that are still listed.
        self._removals: dict[Hashable, CleanupTask] = {}
        #: Other installation -> things that it made for a provider of our name. Replaced as a whole.
        self.others: Mapping[str, int] = {}
        #: Those that were logged.
        self._logged: set[str] = set()
        #: Is a node's instance missing that was there before?
        self._missed = False
        self._busy = threading.Lock()

    def sweep(self) -> bool:
        """One sweep, unless one runs. Blocks; raises what the driver raises when it cannot list.

        :return: something seems to be left over that did not before: another sweep, soon, will tell.
        """
        if not self._busy.acquire(blocking=False):
            return False
        try:
            self._sweep()
            return (
                self._left_over.new
                or self._extra.new
                or self._missed
                or gateway.suspects_leaks(self._provider.name, self._provider.adapter)
            )
        finally:
            self._busy.release()

    def _sweep(self) -> None:
        # First the cloud, then ZooKeeper: a node or upload is stored before anything is made for it. In this order both
        # lists cost one: drivers may take the instances among the resources from the list before.
        alive = self._lost().alive()
        instances = self._provider.calls.list_instances()
        resources = self._provider.calls.list_resources()
        self._tell_foreign(resources)
        leaked = self._unknown(resources)
        certain = self._left_over.look(key for _, key in leaked)
        self._counted &= {_identity(resource) for resource, _ in leaked}
        deleted = 0
        for resource, key in leaked:
            if key in certain and not self._provider.idle_now:
                deleted += self._delete(resource)
        self._sweep_extra(instances)
        self._missed = self._lost().look(alive, instances)
        if deleted:
            # They counted as used by others.
            self._provider.invalidateQuotaCache()

    def _tell_foreign(self, resources: list[Resource]) -> None:
        """D-10: what another installation made is left to it, and reported once for each."""
        name = self._provider.name
        self.others = found = others((resource.metadata for resource in resources), name)
        ours = of_installation().get(INSTALLATION_KEY)
        for other in sorted(found.keys() - self._logged):
            self.log.warning(
                "Provider %s: %d thing(s) in its cloud belong to installation %s, not to this one (%s): they are left",
                *(name, found[other], other, ours),
            )
        self._logged |= found.keys()

    def _unknown(self, resources: list[Resource]) -> list[tuple[Resource, Hashable]]:
        """Resources of this provider whose node or upload is not in ZooKeeper, and a key to know them again."""
        name = self._provider.name
        # Asked for only if there is something to compare.
        nodes, uploads = cache(self._provider.node_ids), cache(self._provider.upload_ids)
        found: list[tuple[Resource, Hashable]] = []
        for resource in resources:
            node_id, upload = node_id_of(resource.metadata, name), upload_of(resource.metadata, name)
            if node_id is not None:
                if node_id not in nodes():
                    found.append((resource, (resource.type, node_id)))
            elif upload is not None and self._may_go(resource) and upload not in uploads():
                found.append((resource, (resource.type, *upload)))
        return found

    def _may_go(self, resource: Resource) -> bool:
        """D-3: records of images may be lost, and imported again; then the images are wanted."""
        wanted = getattr(self._provider.provider, "clean_leaked_images", False)
        # Drivers written for 11.0.0 need not have called the constructor of the base.
        return wanted is True or not getattr(resource, "usable", True)

    def _delete(self, resource: Resource) -> int:
        """Delete one; returns how many went."""
        self.log.warning("Deleting leaked %s, its metadata is %s", resource.type, resource.metadata)
        try:
            gateway.delete_resource(self._provider.name, self._provider.adapter, resource)
        except NotFound:
            return 0
        except Exception as error:
            # The others are deleted all the same.
            self.log.warning(
                "Leaked %s could not be deleted, trying again at the next sweep: %s",
                *(resource.type, error),
                exc_info=None if meaning(error).expected else error,
            )
            return 0
        if _identity(resource) not in self._counted:
            self._counted.add(_identity(resource))
            reports.report_leaks(self._provider.name, resource.plural_metric_name)
        return 1

    def _sweep_extra(self, listed: list[Instance]) -> None:
        """Second instances of a node: both creations worked, and one answer was lost."""
        by_node: dict[str, list[Instance]] = {}
        for instance in listed:
            node_id = node_id_of(instance.metadata, self._provider.name)
            if node_id is not None and not instance.deleted:
                by_node.setdefault(node_id, []).append(instance)
        extra: dict[Hashable, Any] = {}
        for node_id, instances in by_node.items():
            if len(instances) > 1:
                used = self._provider.external_id_of(node_id)
                ids = [instance.external_id for instance in instances]
                if used is not None and used in ids:
                    extra.update({(node_id, str(found)): found for found in ids if found != used})
        self._removals = {key: removal for key, removal in self._removals.items() if key in extra}
        for key in self._extra.look(extra):
            if not self._provider.idle_now:
                self._delete_extra(key, extra[key])

    def _delete_extra(self, key: Hashable, external_id: Any) -> None:
        """Delete a second instance, unless that is under way; counted once."""
        removal = self._removals.get(key)
        if removal is not None and removal.is_alive():
            return
        self.log.warning("Deleting instance %s: it is a second one of its node", external_id)
        self._removals[key] = self._provider.delete_orphan(external_id, self._provider.log)
        if removal is None:
            reports.report_leaks(self._provider.name, "instances")


def _identity(resource: Resource) -> Hashable:
    """To know a resource again in the next list; adapters have a name for it, mostly ``id``."""
    told = getattr(resource, "id", None) or getattr(resource, "name", None)
    return resource.type, str(told), str(sorted(resource.metadata.items(), key=str))


# `LostInstances`: nodes whose instance ended although it was not deleted here, such as spot instances that the cloud
# took away (D-9). What each look at a complete list says of a node that should have one:
#
# ====================================  ========================================================================
# listed                                nothing
# listed as one that ends               lost
# missing for the first time            in doubt: not handed out; another look soon
# missing in two lists, ``lag`` apart   the cloud is asked for it alone: none = lost; there = not in doubt
# the same, and it cannot be asked      lost after `UNPROVED_SECONDS`; nothing if no earlier list has shown it
# missing with all that are as old      the same, but lost after `HELD_SECONDS` only: see `LostInstances.held`
# ====================================  ========================================================================
#
# A watch, or a list that a launch needs, may show the end of an instance before: then it is lost at once. A lost
# instance is one event. Its node is deleted if it is ready and unallocated. One that is in use is left to its owner.
# One on which another provider has its nodes is marked, and that provider does the same with each of these (T-15).

#: States of nodes that have an instance, which no one deletes.
ALIVE: Final = frozenset((states.READY, states.IN_USE, states.HOLD))
#: What no one takes is forgotten.
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

    :param lag_seconds: of lists, see `InstanceCloud`.
    """

    def __init__(self, provider: DeletingProvider, log: Log, lag_seconds: float) -> None:
        self._provider = provider
        self._log = log
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
        now = monotonic()
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
            node_id = node_id_of(found.metadata, self._provider.name)
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
            reports.report_instance_end(self._provider.name, code)
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
