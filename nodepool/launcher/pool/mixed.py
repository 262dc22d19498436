# SPDX-License-Identifier: Apache-2.0
"""Requests whose nodes come from several pools (rules MN, ADR 36).

A launcher holds such a request, the whole, and submits a request for each part of its nodes. Any pool of any launcher
serves a part like every other request. When all parts are fulfilled, one transaction gives their nodes to the whole and
fulfils it. Requests for parts are ephemeral: they end with the lock of the whole, and their nodes are free then. Which
parts there are is in `nodepool.plan.triage.split`. First which whole gives way to another one, then the thread that
holds them.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from nodepool import log_names
from nodepool.clock import monotonic
from nodepool.driver.handler import allocate
from nodepool.exceptions import ZKConflict, ZKConnectionError, ZKTooLarge
from nodepool.guard import Guard
from nodepool.launcher.pool import desk
from nodepool.logconfig import get_annotated_logger
from nodepool.model import states
from nodepool.model.event import What, grouped
from nodepool.model.reasons import REQUEST_TOO_LARGE, Reason, ReasonCode
from nodepool.model.request import PART_REQUESTOR, NodeRequest, described, origin_of, parent_of
from nodepool.plan import triage
from nodepool.plan.launch import PATIENCE_SECONDS, stands_before
from nodepool.plan.triage import parts_for
from nodepool.runtime.worker import Worker
from nodepool.tracing import spans
from nodepool.zk import paths
from nodepool.zk.transactions import TransactionFailed, sync

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.launcher.shared import EventRing, MaintenanceState, PoolRegistry
    from nodepool.model.node import Node
    from nodepool.plan.triage import PoolInfo, RequestKind
    from nodepool.zk.nodes import NodepoolCache
    from nodepool.zk.zookeeper import ZooKeeper


def pending_of(tenant_name: str, requests: Iterable[NodeRequest]) -> list[NodeRequest]:
    """Requests of a tenant that some launcher serves, without those whose parts are requests of their own."""
    theirs = [request for request in requests if request.tenant_name == tenant_name]
    wholes = {parent_of(request) for request in theirs}
    return [request for request in theirs if request.state == states.PENDING and request.id not in wholes]


@dataclass(slots=True, eq=False)
class _Whole:
    """A request that we hold locked.

    :param parts: positions -> the request for their nodes, as it was seen last; None = there is none.
    :param since: since when it waits with nodes in its hands, and ``look_at``: the next look whether it is in the way
        of others (monotonic seconds). ``yields``: how often it gave them back because that took too long.
    """

    request: NodeRequest
    parts: dict[tuple[int, ...], NodeRequest | None]
    since: float = math.inf
    look_at: float = math.inf
    yields: int = 0

    @property
    def asked(self) -> list[NodeRequest]:
        return [part for part in self.parts.values() if part is not None]


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
        wants = same_tenant or any(pool.labels.issuperset(part.node_types) for part in waiting for pool in near)
        if waiting and wants and len(waiting) < len(parts):
            found.append(other)
    return min(found, key=lambda request: request.order_key, default=None)


#: A look at all requests at least this often, in case an event was missed.
IDLE_SECONDS: Final = 30.0
#: Between two looks at what is held, or could not be taken.
LOOK_SECONDS: Final = 1.0
#: Requests that are taken in one pass.
MAX_TAKEN: Final = 50
#: How long a whole waits with nodes in its hands, at first; twice as long each time after that. A whole that is larger
#: than a quota would keep others waiting for ever.
HOLD_SECONDS: Final = 600.0
#: Seconds from the end of a part until its request is deleted (as those of min-ready).
LINGER_SECONDS: Final = 1.0
#: Longest wait for the cache to have read what has changed.
SETTLE_SECONDS: Final = 5.0
#: After everything else, for `stands_before`: a handler that gathers in one pool does not look at wholes.
_LAST: Final = NodeRequest("999-9999999999")


class MixedWorker(Worker):
    """One thread per launcher."""

    def __init__(
        self,
        zk: ZooKeeper,
        cache: NodepoolCache,
        pools: PoolRegistry,
        config: Callable[[], Config],
        maintenance: MaintenanceState,
        events: EventRing,
        excess: Callable[[RequestKind], Reason | None],
    ) -> None:
        super().__init__("MixedWorker", zk.client, logging.getLogger(log_names.MIXED_WORKER), IDLE_SECONDS)
        self._zk, self._cache, self._pools = zk, cache, pools
        self._config, self._maintenance, self._events, self._excess = config, maintenance, events, excess
        self._wholes: dict[str, _Whole] = {}
        #: Left by the cache thread; '' = any may have changed. Deque operations are atomic.
        self._changed: deque[str] = deque([""])
        #: Requests that may have to be split, and those of them that are to be looked at.
        self._candidates: set[str] = set()
        self._new: set[str] = set()
        #: On what it depends which of them are split, and when all are looked at again (monotonic seconds).
        self._depends: object = None
        self._all_due = 0.0
        #: Requests for parts that are to be deleted, and when (monotonic seconds).
        self._doomed: list[tuple[float, NodeRequest]] = []
        #: Did the creation of a part give no answer? It may be there.
        self._unsure = False

    # -- the cache thread --

    def changed(self, request_id: str) -> None:
        """A request changed; '' = any may have. Does not block."""
        wholes = self._wholes
        if request_id and not wholes and not self._config().mixed_labels:
            return
        request = self._cache.requests.get(request_id)
        concerned = not request_id or request_id in wholes
        if concerned or (request is not None and (parent_of(request) in wholes or self._may_split(request))):
            self._changed.append(request_id)
            self.wake()

    def _may_split(self, request: NodeRequest) -> bool:
        mixed = self._config().mixed_labels
        if not mixed or request.state != states.REQUESTED or request.requestor == PART_REQUESTOR:
            return False
        return not mixed.isdisjoint(request.node_types) and len(set(request.node_types)) > 1

    # -- the pass --

    def run_once(self) -> float | None:
        if not self._cache.ready:
            return LOOK_SECONDS
        # With a session its locks went, and the requests for parts.
        epoch, wholes = self._client.session_epoch, self._wholes.items()
        self._wholes = {key: one for key, one in wholes if (lock := one.request.lock) and lock.epoch == epoch}
        self._find_unsure()
        while self._changed:
            changed = self._changed.popleft()
            self._new.update([changed] if changed else self._cache.requests.ids())
        for whole in list(self._wholes.values()):
            with Guard(self.log, "Request %s is looked at again", whole.request.id, but=ZKConnectionError):
                try:
                    self._look(whole)
                except ZKTooLarge as error:
                    self._fail_too_large(whole.request, error, partial(self._end, whole))
        more = self._take_some()
        while self._doomed and self._doomed[0][0] <= monotonic():
            self._zk.requests.delete(self._doomed[0][1])
            self._doomed.pop(0)
        return 0.0 if more else LOOK_SECONDS if self._wholes or self._candidates or self._doomed else None

    def _find_unsure(self) -> None:
        """Delete requests for parts that no whole knows: their creation gave no answer."""
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
        mixed, pools = self._config().mixed_labels, (*self._pools.registered(), *self._pools.absent())
        held, no_more = self._maintenance.of_labels().keys(), self._maintenance.launcher is not None
        # Others change the registry often. A backlog of requests that one pool can serve is not looked at for that.
        depends = (self._config(), {*held}, no_more, [(pool.id, pool.labels, pool.access) for pool in pools])
        if depends != self._depends or monotonic() >= self._all_due:
            self._depends, self._all_due = depends, monotonic() + IDLE_SECONDS
            self._new |= self._candidates
        found: list[tuple[NodeRequest, tuple[tuple[int, ...], ...]]] = []
        known: dict[tuple[RequestKind, tuple[str, ...]], tuple[tuple[int, ...], ...] | None] = {}
        for request_id in self._new:
            request = self._cache.requests.get(request_id)
            if request is None or not self._may_split(request):
                self._candidates.discard(request_id)
                continue
            self._candidates.add(request_id)
            kind = triage.RequestKind.of(request), tuple(request.node_types)
            if kind not in known:
                parts = parts_for(*kind, mixed, pools) if held.isdisjoint(kind[1]) else None
                # Parts of what never fits the limits of its tenant would hold nodes in vain.
                known[kind] = None if parts is None or self._excess(kind[0]) is not None else parts
            if (parts := known[kind]) is not None:
                found.append((request, parts))
        # Until it is seen that they are taken.
        self._new = {request.key for request, _ in found}
        if no_more:
            return False
        found.sort(key=lambda each: each[0].order_key)
        for request, parts in found[:MAX_TAKEN]:
            self._take(request.copy(), parts)
        return len(found) > MAX_TAKEN

    def _take(self, request: NodeRequest, parts: Sequence[tuple[int, ...]]) -> None:
        log = self._log(request)
        request.state = states.PENDING
        request.nodes = []
        try:
            try:
                self._zk.requests.send_lock(request)()
            except ZKTooLarge as error:
                self._fail_too_large(request, error, partial(self._zk.requests.save_unlocked, request))
                return
        except ZKConflict as conflict:
            # Another launcher was faster, or Zuul changes it.
            log.debug("Not taken: %s", conflict)
            return
        whole = self._wholes[request.key] = _Whole(request, dict.fromkeys(parts))
        log.info("Its nodes come from several pools (%s)", described(request), extra=origin_of(request))
        self._ask(whole)

    def _fail_too_large(self, request: NodeRequest, error: ZKTooLarge, store: Callable[[], None]) -> None:
        self._log(request).warning("It cannot be served: %s", error)
        request.fail_in_short()
        store()
        text, code = REQUEST_TOO_LARGE.text, REQUEST_TOO_LARGE.code.value
        self._events.add(f"request {request.id}", What.FAILED, text, code)

    def _ask(self, whole: _Whole) -> None:
        """Submit requests for all parts that have none."""
        request = whole.request
        origin = request.requestor_data if isinstance(request.requestor_data, dict) else {}
        for positions in [positions for positions, part in whole.parts.items() if part is None]:
            part = NodeRequest()
            part.state = states.REQUESTED
            part.node_types = [request.node_types[position] for position in positions]
            part.requestor = PART_REQUESTOR
            part.requestor_data = {**origin, "build_set_uuid": None, "parent": request.id}
            for name in ("event_id", "tenant_name", "provider", "reuse", "relative_priority"):
                setattr(part, name, getattr(request, name))
            self._unsure = True
            try:
                self._zk.requests.create(part, request.priority, under=request.lock)
            except ZKConflict as conflict:
                self._drop(whole, f"its lock was lost ({conflict})")
                return
            whole.parts[positions] = part
            self._unsure = False

    # -- while it is held --

    def _look(self, whole: _Whole) -> None:
        requests = self._cache.requests
        if requests.get(whole.request.key) is None:
            desk.note(whole.request)
            self._drop(whole, "it does not exist any more")
            return
        if whole.request.state == states.FAILED:
            # To store that gave no answer.
            self._end(whole)
            return
        for positions, part in whole.parts.items():
            if part is not None:
                whole.parts[positions] = requests.get(part.key) or self._zk.requests.get(part.key)
        found = grouped(whole.asked, lambda part: part.state)
        if states.FAILED in found:
            self._fail(whole, found[states.FAILED][0])
        elif not found.keys() <= {states.FULFILLED}:
            self._wait(whole, found.get(states.FULFILLED, []))
        elif None in whole.parts.values():
            self._ask(whole)
        else:
            self._fulfil(whole)

    def _delete_later(self, parts: Iterable[NodeRequest], seconds: float = 0.0) -> None:
        """Parts that are deleted before they are used give their nodes back."""
        self._doomed += [(monotonic() + seconds, part) for part in parts]
        self._doomed.sort(key=lambda entry: entry[0])

    def _give_back(self, whole: _Whole, parts: Sequence[NodeRequest], why: str) -> None:
        """They are asked for again when no other part waits."""
        ids = ", ".join(part.key for part in parts)
        self._log(whole.request).info("Giving back the nodes of request(s) %s for now: %s", ids, why)
        self._delete_later(parts)
        for positions, part in whole.parts.items():
            if part in parts:
                whole.parts[positions] = None

    def _drop(self, whole: _Whole, why: str) -> None:
        request = whole.request
        self._log(request).info("Dropping node request: %s", why)
        del self._wholes[request.key]
        self._delete_later(whole.asked)
        try:
            if request.lock is not None:
                self._zk.unlockNodeRequest(request)
        except ZKConflict as conflict:
            self.log.debug("Unlocking request %s: %s", request.id, conflict)

    def _end(self, whole: _Whole, nodes: Sequence[Node] = ()) -> None:
        """Store the request as it is now, with the nodes, and let go of it. Raises ZKConflict: of a node."""
        request = whole.request
        if request.state != states.FULFILLED:
            # It may have had nodes that were not given to it after all.
            request.nodes = []
        try:
            self._zk.requests.finish(request, nodes, unlocked=True)
        except ZKConflict as conflict:
            if isinstance(conflict, TransactionFailed) and conflict.path.startswith(f"{paths.NODES}/"):
                raise
            self._drop(whole, f"it was changed by another process ({conflict})")
            return
        del self._wholes[request.key]
        self._delete_later(whole.asked, LINGER_SECONDS if request.state == states.FULFILLED else 0.0)
        desk.note(request)

    def _fail(self, whole: _Whole, part: NodeRequest) -> None:
        """What every pool has declined a part of fails as a whole (A-15)."""
        request = whole.request
        registered = [pool.id for pool in self._pools.registered()]
        for pool_id in registered:
            triage.decline(request, pool_id, registered)
        request.state = states.FAILED
        text = f"every pool declined its part of {', '.join(part.node_types)}, request {part.id}"
        kind, code = triage.RequestKind.of(part), ReasonCode.LAUNCH_FAILED
        denied = [pool.no_access(kind) for pool in self._pools.registered() if pool.labels.issuperset(kind.labels)]
        if denied and denied[0] is not None and None not in denied:
            text, code = f"{text}: {denied[0].text}", denied[0].code
        self._log(request).info("Failing node request: %s (%s)", text, described(request), extra=origin_of(request))
        self._events.add(f"request {request.id}", What.FAILED, text, code.value)
        self._end(whole)

    def _fulfil(self, whole: _Whole) -> None:
        request = whole.request
        found: dict[int, Node] = {}
        for positions, part in zip(whole.parts, whole.asked, strict=True):
            # The cache of nodes may be behind that of requests.
            nodes = list(self._zk.nodes.read_some(part.nodes))
            good = [node.id for node in nodes if node.state == states.READY and node.allocated_to == part.id]
            if good != part.nodes:
                self._give_back(whole, [part], "one of its nodes does not exist any more")
                return
            found.update(zip(positions, nodes, strict=True))
        chosen = [found[position] for position in range(len(request.node_types))]
        for node in chosen:
            allocate(node, request)
        request.nodes = [node.key for node in chosen]
        request.state = states.FULFILLED
        log = self._log(request)
        try:
            self._end(whole, chosen)
            log.info("Fulfilled node request with nodes %s", ", ".join(request.nodes))
        except ZKConflict as conflict:
            log.debug("Not fulfilled now: %s", conflict)

    def _wait(self, whole: _Whole, held: Sequence[NodeRequest]) -> None:
        """Let go of the parts that are there, if those that are not may wait for that (MN-5)."""
        now = monotonic()
        if not held:
            whole.since = whole.look_at = math.inf
        elif whole.since == math.inf:
            whole.since, whole.look_at = now, now + PATIENCE_SECONDS
        if now < whole.look_at:
            return
        whole.look_at = now + PATIENCE_SECONDS
        of_parts = grouped(self._cache.nodes.values(), lambda node: node.allocated_to or "")
        if any(node.state == states.BUILDING for part in whole.asked for node in of_parts.get(part.key, ())):
            whole.since = now
        elif excess := self._excess(triage.RequestKind.of(whole.request)):
            # Not known when it was taken, or the limit was lowered: its parts would hold nodes in vain (MN-7).
            self._log(whole.request).info("Giving the request back for now: %s", excess.text)
            whole.request.state = states.REQUESTED
            self._end(whole)
        elif first := self._waits_for(whole, [node for part in held for node in of_parts.get(part.key, ())]):
            self._give_back(whole, held, f"request {first.id} comes first, and each may wait for the other")
        elif now >= whole.since + HOLD_SECONDS * 2**whole.yields:
            whole.yields = min(whole.yields + 1, 6)
            self._give_back(whole, held, f"the other parts are waited for since {now - whole.since:.0f} s")

    def _waits_for(self, whole: _Whole, held: Sequence[Node]) -> NodeRequest | None:
        """A request that waits for the room of the nodes that a whole has; None = none is known to."""
        requests, own = self._cache.requests, {part.id for part in whole.asked}
        first = waits_in_front(whole.request, held, self._pools.registered(), requests.values())
        for provider in {node.provider for node in held if node.provider is not None}:
            others = (node for node in self._cache.nodes.values() if node.allocated_to not in own)
            first = first or stands_before(_LAST, provider, None, others, requests.get)
        return first

    def on_stop(self) -> None:
        """Let others serve what is not finished."""
        if not self._client.connected:
            return
        for whole in list(self._wholes.values()):
            whole.request.state = states.REQUESTED
            self._end(whole)
        for _, request in self._doomed:
            self._zk.requests.delete(request)
