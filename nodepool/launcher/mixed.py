# SPDX-License-Identifier: Apache-2.0
"""Requests whose nodes come from several pools (rules MN, ADR 36).

A launcher holds such a request, the whole, and submits a request for each part of its nodes. Any pool of any launcher
serves a part like every other request. When all parts are fulfilled, one transaction gives their nodes to the whole and
fulfils it. Requests for parts are ephemeral: they end with the lock of the whole, and their nodes are free then. First
which parts there are (`split`), then which whole gives way to another one, then the thread that holds them.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nodepool import log_names
from nodepool.clock import monotonic, wall_time
from nodepool.driver.handler import allocate
from nodepool.exceptions import ZKConflict, ZKConnectionError, ZKTooLarge
from nodepool.guard import Guard
from nodepool.launcher.pool import desk
from nodepool.logconfig import get_annotated_logger
from nodepool.model import states
from nodepool.model.event import What, grouped
from nodepool.model.reasons import ReasonCode
from nodepool.model.request import PART_REQUESTOR, NodeRequest, described, origin_of, parent_of
from nodepool.plan import triage
from nodepool.plan.launch import PATIENCE_SECONDS, stands_before
from nodepool.runtime.worker import Worker
from nodepool.tracing import spans
from nodepool.zk import paths
from nodepool.zk.transactions import TransactionFailed, sync

if TYPE_CHECKING:
    from nodepool.launcher.pool.view import Launcher
    from nodepool.model.node import Node
    from nodepool.plan.triage import PoolInfo


def split(
    node_types: Sequence[str], mixed: Collection[str], pools: Collection[PoolInfo]
) -> tuple[tuple[int, ...], ...] | None:
    """The parts of a request that no pool can serve alone: positions in ``node_types``. None = it is not split.

    The pool that has most of its labels is to serve the first part; each label that it lacks is a part of its own.

    :param mixed: labels with ``mixed-nodesets``.
    :param pools: all that are registered, and those that may come back.
    """
    wanted = set(node_types)
    if wanted.isdisjoint(mixed) or any(pool.supports(wanted) for pool in pools):
        return None
    able = [pool for pool in pools if wanted & pool.labels and wanted - pool.labels <= set(mixed)]
    if not able or not wanted <= {label for pool in pools for label in pool.labels}:
        return None
    first = max(able, key=lambda pool: (sum(label in pool.labels for label in node_types), -pool.priority, pool.id))
    parts = grouped(range(len(node_types)), lambda at: "" if node_types[at] in first.labels else node_types[at])
    return tuple(map(tuple, parts.values()))


@dataclass(slots=True, eq=False)
class _Part:
    """Some positions of a whole.

    :param request: for their nodes, as it was seen last; None = there is none.
    """

    positions: tuple[int, ...]
    request: NodeRequest | None = None

    @property
    def ready(self) -> bool:
        return self.request is not None and self.request.state == states.FULFILLED


@dataclass(slots=True, eq=False)
class _Whole:
    """A request that we hold locked.

    :param since: since when it waits with nodes in its hands, and ``look_at``: the next look whether it is in the way
        of others (monotonic seconds). ``yields``: how often it was.
    """

    request: NodeRequest
    parts: list[_Part]
    since: float = math.inf
    look_at: float = math.inf
    yields: int = 0

    @property
    def asked(self) -> list[NodeRequest]:
        return [part.request for part in self.parts if part.request is not None]

    @property
    def waiting(self) -> list[NodeRequest]:
        return [request for request in self.asked if request.state != states.FULFILLED]


def waits_in_front(
    mine: NodeRequest, held: Collection[Node], pools: Iterable[PoolInfo], requests: Iterable[NodeRequest]
) -> NodeRequest | None:
    """A whole that comes before this one, has nodes too, and may wait for the room of this one's; None = there is none.

    Of several that wait for each other all but the first give way, so one of them goes on.

    :param held: nodes of the parts of this one that are fulfilled.
    :param requests: all, of every launcher.
    """
    by_id = {request.key: request for request in requests}
    providers = {node.provider for node in held}
    near = [pool for pool in pools if pool.provider_name in providers]
    found: list[NodeRequest] = []
    for whole_id, parts in grouped(by_id.values(), parent_of).items():
        other = by_id.get(whole_id or "")
        if other is None or other.order_key >= mine.order_key or other.state != states.PENDING:
            continue
        waiting = [part for part in parts if part.state != states.FULFILLED]
        same_tenant = bool(mine.tenant_name) and mine.tenant_name == other.tenant_name
        wants = same_tenant or any(pool.supports(part.node_types) for part in waiting for pool in near)
        if waiting and wants and len(waiting) < len(parts):
            found.append(other)
    return min(found, key=lambda request: request.order_key, default=None)


#: A look at all requests at least this often, in case an event was missed.
IDLE_SECONDS: Final = 30.0
#: Between two looks at what is held, or could not be taken.
LOOK_SECONDS: Final = 1.0
#: So long another launcher, that has the first choice, is left a request.
CHOICE_SECONDS: Final = 2.0
#: Requests that are taken in one pass.
MAX_TAKEN: Final = 50
#: How long a whole waits with nodes in its hands, at first; twice as long each time after that. A whole that is larger
#: than a quota would keep others waiting for ever.
HOLD_SECONDS: Final = 600.0
#: Seconds from the end of a part until its request is deleted (as those of min-ready).
LINGER_SECONDS: Final = 1.0
#: Longest wait for the cache to have read what it was told of.
SETTLE_SECONDS: Final = 5.0
#: After everything else, for `stands_before`: whoever gathers in one pool does not look at wholes.
_LAST: Final = NodeRequest("999-9999999999")


class MixedWorker(Worker):
    """One thread per launcher."""

    def __init__(self, launcher: Launcher) -> None:
        log = logging.getLogger(log_names.MIXED_WORKER)
        super().__init__("MixedWorker", launcher.zk.client, log, IDLE_SECONDS)
        self._launcher = launcher
        self._zk, self._cache = launcher.zk, launcher.cache
        self._wholes: dict[str, _Whole] = {}
        #: Left by the cache thread; '' = any may have changed. Deque operations are atomic.
        self._changed: deque[str] = deque([""])
        #: Requests that wait, and may have to be split.
        self._candidates: set[str] = set()
        #: Labels of a request -> its parts, for these pools and labels of the configuration.
        self._splits: dict[tuple[str, ...], tuple[tuple[int, ...], ...] | None] = {}
        self._split_for: tuple[object, ...] = ()
        #: Requests for parts that are to be deleted, and when (monotonic seconds).
        self._doomed: list[tuple[float, NodeRequest]] = []
        #: Did the creation of a part give no answer? It may be there.
        self._unsure = False
        self._epoch = -1

    # -- the cache thread --

    def changed(self, request_id: str) -> None:
        """A request changed; '' = any may have. Does not block."""
        request = self._cache.requests.get(request_id) if request_id else None
        if not request_id or request_id in self._wholes or (request is not None and self._concerns(request)):
            self._changed.append(request_id)
            self.wake()

    def _concerns(self, request: NodeRequest) -> bool:
        if request.requestor == PART_REQUESTOR:
            return parent_of(request) in self._wholes
        return self._may_split(request)

    def _may_split(self, request: NodeRequest) -> bool:
        mixed = self._launcher.config().mixed_labels
        return bool(mixed) and request.state == states.REQUESTED and not mixed.isdisjoint(request.node_types)

    # -- the pass --

    def run_once(self) -> float | None:
        if not self._cache.ready:
            return LOOK_SECONDS
        self._check_session()
        self._find_unsure()
        requests = self._cache.requests
        while self._changed:
            changed = self._changed.popleft()
            self._candidates.update([changed] if changed else requests.ids())
        for whole in list(self._wholes.values()):
            with Guard(self.log, "Request %s is looked at again", whole.request.id, but=ZKConnectionError):
                self._look(whole)
        more = self._take_some()
        now = monotonic()
        while self._doomed and self._doomed[0][0] <= now:
            self._zk.requests.delete(self._doomed[0][1])
            self._doomed.pop(0)
        return 0.0 if more else LOOK_SECONDS if self._wholes or self._candidates or self._doomed else None

    def _check_session(self) -> None:
        """With a session its locks went, and the requests for parts."""
        if self._epoch != self._client.session_epoch:
            self._epoch = self._client.session_epoch
            self._wholes.clear()
            self._doomed.clear()
            self._unsure = False
            self._changed.append("")

    def _find_unsure(self) -> None:
        """Delete requests for parts that nobody knows: their creation gave no answer."""
        if not self._unsure:
            return
        sync(self._client, paths.REQUESTS)
        if not self._cache.wait_settled(SETTLE_SECONDS):
            raise ZKConnectionError("requests are not read in time")
        known = {part.id for whole in self._wholes.values() for part in whole.asked}
        for request in self._cache.requests.values():
            if parent_of(request) in self._wholes and request.id not in known:
                self._zk.requests.delete(request)
        self._unsure = False

    def _log(self, request: NodeRequest) -> logging.LoggerAdapter[logging.Logger]:
        trace_id = spans.log_id(request)
        return get_annotated_logger(self.log, event_id=request.event_id, node_request_id=request.id, trace_id=trace_id)

    # -- taking --

    def _take_some(self) -> bool:
        """Take requests that are to be split, in order; True = there are more."""
        found: list[NodeRequest] = []
        pools = self._launcher.pools
        registered, absent = pools.registered(), pools.absent()
        mixed = self._launcher.config().mixed_labels
        if self._split_for != (split_for := (registered, tuple(absent), mixed)):
            self._split_for = split_for
            self._splits.clear()
        own = {pool.launcher_id for pool in self._launcher.siblings()}
        for request_id in list(self._candidates):
            request = self._cache.requests.get(request_id)
            if request is None or not self._may_split(request):
                self._candidates.discard(request_id)
                continue
            labels = tuple(request.node_types)
            if labels not in self._splits:
                self._splits[labels] = split(labels, mixed, [*registered, *absent])
            if self._splits[labels] is None:
                continue
            chosen = triage.first_choice(request_id, registered)
            late = request.state_time is None or wall_time() - request.state_time > CHOICE_SECONDS
            if late or (chosen is not None and chosen.id in own):
                found.append(request)
        if self._launcher.maintenance.launcher is not None:
            return False
        found.sort(key=lambda request: request.order_key)
        for request in found[:MAX_TAKEN]:
            self._take(request.copy(), self._splits[tuple(request.node_types)] or ())
        return len(found) > MAX_TAKEN

    def _take(self, request: NodeRequest, parts: Sequence[tuple[int, ...]]) -> None:
        if self._never_fits(request):
            return
        request.state = states.PENDING
        request.nodes = []
        try:
            self._zk.requests.send_lock(request)()
        except ZKTooLarge as error:
            self._log(request).warning("It cannot be served: %s", error)
            request.fail_in_short()
            self._zk.requests.save_unlocked(request)
            return
        except ZKConflict as conflict:
            # Another launcher was faster, or Zuul changes it.
            self._log(request).debug("Not taken: %s", conflict)
            return
        self._candidates.discard(request.key)
        whole = self._wholes[request.key] = _Whole(request, [_Part(positions) for positions in parts])
        self._log(request).info(
            "Taking the nodes from several pools (%s)", described(request), extra=origin_of(request)
        )
        self._ask(whole)

    def _never_fits(self, request: NodeRequest) -> bool:
        """Is it larger than what its tenant may have? Then it waits, as in a pool."""
        limits = self._launcher.config().tenant_resource_limits.get(request.tenant_name or "", {})
        return limits.get("instances", math.inf) < len(request.node_types)

    def _ask(self, whole: _Whole) -> None:
        """Submit requests for all parts that have none."""
        request = whole.request
        origin = request.requestor_data if isinstance(request.requestor_data, dict) else {}
        for part in whole.parts:
            if part.request is not None:
                continue
            asked = NodeRequest()
            asked.state = states.REQUESTED
            asked.node_types = [request.node_types[position] for position in part.positions]
            asked.requestor = PART_REQUESTOR
            asked.requestor_data = {**origin, "build_set_uuid": None, "parent": request.id}
            asked.event_id, asked.tenant_name = request.event_id, request.tenant_name
            asked.provider, asked.reuse = request.provider, request.reuse
            asked.relative_priority = request.relative_priority
            self._unsure = True
            try:
                self._zk.requests.create(asked, request.priority, under=request.lock)
            except ZKConflict as conflict:
                self._unsure = False
                self._drop(whole, f"its lock was lost ({conflict})")
                return
            self._unsure = False
            part.request = asked

    # -- while it is held --

    def _look(self, whole: _Whole) -> None:
        if self._cache.requests.get(whole.request.key) is None:
            self._drop(whole, "it is gone")
            return
        for part in whole.parts:
            if part.request is not None:
                key = part.request.key
                part.request = self._cache.requests.get(key) or self._zk.requests.get(key)
        failed = next((request for request in whole.asked if request.state == states.FAILED), None)
        if failed is not None:
            self._fail(whole, failed)
        elif whole.waiting:
            self._wait(whole)
        elif len(whole.asked) < len(whole.parts):
            self._ask(whole)
        else:
            self._fulfil(whole)

    def _forget(self, whole: _Whole, *, linger: float = 0.0) -> None:
        """:param linger: seconds until the requests for its parts are deleted."""
        del self._wholes[whole.request.key]
        self._doom(whole.asked, linger)
        desk.note(whole.request)

    def _doom(self, requests: Iterable[NodeRequest], linger: float = 0.0) -> None:
        self._doomed += [(monotonic() + linger, request) for request in requests]
        self._doomed.sort(key=lambda entry: entry[0])

    def _drop(self, whole: _Whole, why: str) -> None:
        self._log(whole.request).info("Dropping node request: %s", why)
        self._forget(whole)
        try:
            if whole.request.lock is not None:
                self._zk.unlockNodeRequest(whole.request)
        except ZKConflict as conflict:
            self.log.debug("Unlocking request %s: %s", whole.request.id, conflict)

    def _end(self, whole: _Whole, *, linger: float = 0.0, nodes: Sequence[Node] = ()) -> bool:
        """Store the request as it is now, with the nodes, and let go of it; False = that could not be stored."""
        request = whole.request
        try:
            self._zk.requests.finish(request, nodes, nodes_too=True)
        except ZKConflict as conflict:
            if isinstance(conflict, TransactionFailed) and conflict.path.startswith(f"{paths.NODES}/"):
                self._log(request).debug("Not fulfilled now: %s", conflict)
                return False
            self._drop(whole, f"it was changed by another process ({conflict})")
            return True
        self._forget(whole, linger=linger)
        return True

    def _fail(self, whole: _Whole, part: NodeRequest) -> None:
        """What every pool has declined a part of fails as a whole (A-15)."""
        request = whole.request
        registered = [pool.id for pool in self._launcher.pools.registered()]
        for pool_id in registered:
            triage.decline(request, pool_id, registered)
        request.state = states.FAILED
        text = f"no pool could make its part of {', '.join(part.node_types)}, see request {part.id}"
        self._log(request).info("Failing node request: %s (%s)", text, described(request), extra=origin_of(request))
        self._launcher.events.add(f"request {request.id}", What.FAILED, text, ReasonCode.LAUNCH_FAILED.value)
        self._end(whole, linger=LINGER_SECONDS)

    def _fulfil(self, whole: _Whole) -> None:
        request = whole.request
        found: dict[int, Node] = {}
        for part in whole.parts:
            asked = part.request
            assert asked is not None
            nodes = [self._cache.nodes.get(node_id) for node_id in asked.nodes]
            if not all(node is not None and _is_of(node, asked) for node in nodes):
                # The cache of nodes may be behind that of requests.
                nodes = [self._zk.nodes.get(node_id) for node_id in asked.nodes]
            if len(nodes) != len(part.positions) or not all(node and _is_of(node, asked) for node in nodes):
                self._log(request).info("Request %s is submitted again: a node of it is gone", asked.id)
                part.request = None
                self._doom([asked])
            found.update(zip(part.positions, (node.copy() for node in nodes if node is not None), strict=False))
        if whole.waiting or len(whole.asked) < len(whole.parts):
            return
        chosen = [found[position] for position in range(len(request.node_types))]
        for node in chosen:
            # The cache may have the record of one of our pools that had locked it.
            node.lock = None
            allocate(node, request)
        request.nodes = [node.key for node in chosen]
        request.state = states.FULFILLED
        if self._end(whole, linger=LINGER_SECONDS, nodes=chosen):
            self._log(request).info("Fulfilled node request with nodes %s", ", ".join(request.nodes))

    def _wait(self, whole: _Whole) -> None:
        """Let go of the parts that are there, if those that are not may wait for that (MN-5)."""
        now = monotonic()
        held = [part for part in whole.parts if part.ready]
        if not held:
            whole.since = whole.look_at = math.inf
        elif whole.since == math.inf:
            whole.since, whole.look_at = now, now + PATIENCE_SECONDS
        if now < whole.look_at:
            return
        whole.look_at = now + PATIENCE_SECONDS
        cache, waiting = self._cache, {request.id for request in whole.waiting}
        nodes = cache.nodes.values()
        if any(node.allocated_to in waiting and node.state == states.BUILDING for node in nodes):
            whole.since = now
            return
        ids = {part.request.id for part in held if part.request is not None}
        why = self._in_the_way(whole, [node for node in nodes if node.allocated_to in ids], nodes)
        if why is None and now >= whole.since + HOLD_SECONDS * 2**whole.yields:
            why = f"it has waited for {now - whole.since:.0f} s with nodes of its other parts"
            whole.yields = min(whole.yields + 1, 6)
        if why is None:
            return
        self._log(whole.request).info("Giving back the nodes of %d part(s) for now: %s", len(held), why)
        self._doom([part.request for part in held if part.request is not None])
        for part in held:
            part.request = None

    def _in_the_way(self, whole: _Whole, held: Sequence[Node], nodes: Sequence[Node]) -> str | None:
        """What waits for the room of the nodes that a whole has; None = nothing is known to."""
        requests, own = self._cache.requests, {request.id for request in whole.asked}
        first = waits_in_front(whole.request, held, self._launcher.pools.registered(), requests.values())
        for provider in {node.provider for node in held if node.provider is not None}:
            others = (node for node in nodes if node.allocated_to not in own)
            first = first or stands_before(_LAST, provider, None, others, requests.get)
        return None if first is None else f"request {first.id} comes first, and each may wait for the other"

    def on_stop(self) -> None:
        """Let others serve what is not finished."""
        if not self._client.connected:
            return
        for whole in list(self._wholes.values()):
            whole.request.state = states.REQUESTED
            self._end(whole)
        for _, request in self._doomed:
            self._zk.requests.delete(request)


def _is_of(node: Node, request: NodeRequest) -> bool:
    return node.state == states.READY and node.allocated_to == request.id
