# SPDX-License-Identifier: Apache-2.0
"""Which waiting requests does a pool take now, and in which order? (rules A-1 to A-16)

Buckets are screened by `plan.assignment`; heads of the buckets that pass are taken in service order, each at once
when ready nodes are there, else through a handler. A bucket whose head cannot be taken is set aside for this pass.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from nodepool.clock import monotonic
from nodepool.exceptions import ZKConflict, ZKConnectionError
from nodepool.launcher.pool.decline import Declines
from nodepool.launcher.pool.deferred import DeferredRequest, DeferredRequests
from nodepool.launcher.pool.screening import Screening
from nodepool.launcher.pool.spread import GRACE_SECONDS, Spread
from nodepool.launcher.pool.tenants import TenantCheck
from nodepool.model import states
from nodepool.plan.assignment import Consider, Decline, PoolInfo
from nodepool.plan.queue import Bucket, RequestKind
from nodepool.zk import paths
from nodepool.zk.transactions import TransactionFailed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nodepool.driver.handler import NodeRequestHandler
    from nodepool.launcher.pool.worker import PoolWorker
    from nodepool.model.request import NodeRequest, OrderKey

#: Requests taken in one pass; then handlers are polled and changes are seen (A-18).
MAX_INSTANT: Final = 100
MAX_LAUNCHED: Final = 20
#: Seconds for which the reasons of a driver to decline a kind of request are not asked for again.
REASONS_AGE_SECONDS: Final = 5.0
NO_READY_NODES: Final = "waits until a node of each label is ready"
#: Seconds after which a request that was given back is taken again (Q-12).
GIVEN_BACK_SECONDS: Final = 1.0


class Intake:
    """Owned by the pool worker's thread."""

    def __init__(self, worker: PoolWorker) -> None:
        self._worker = worker
        self._refusals = Declines(worker)
        self._tenants = TenantCheck(worker)
        self._screening = Screening()
        self._spread = Spread(worker.free_counts)
        self._reasons: dict[RequestKind, tuple[float, object, list[str]]] = {}
        self.left_alone = DeferredRequests()
        #: Why the requests of a kind wait, or were refused: the last answer for each kind that is waiting.
        self.explanations: dict[RequestKind, str] = {}
        self._instant = 0
        self._launched = 0
        self._more = False

    def serve(self) -> bool:
        """One round; True = there is more to do at once. Blocks for ZooKeeper and for drivers that block."""
        self._instant = self._launched = 0
        self._more = False
        self._tenants.begin_pass()
        self._put_back()
        worker = self._worker
        registered, absent = worker.registered_pools(), worker.absent_pools()
        self._spread.begin_pass(worker.launcher_id, registered)
        me = PoolInfo(worker.launcher_id, worker.provider_name, worker.labels, worker.entry.priority, worker.paused)
        self._screening.begin_pass(me, registered, absent)
        candidates: list[Bucket] = []
        told, self.explanations = self.explanations, {}
        for bucket in worker.queue.buckets():
            verdict = self._screening.verdict(bucket.kind)
            if isinstance(verdict, Consider):
                if self._waits_for_nodes(bucket.kind):
                    self.explanations[bucket.kind] = NO_READY_NODES
                else:
                    candidates.append(bucket)
            elif isinstance(verdict, Decline):
                self._decline(bucket, verdict)
            else:
                self.explanations[bucket.kind] = verdict.reason
        self._take(candidates)
        self._take_left()
        self._tell(told)
        return self._more

    def _tell(self, told: Mapping[RequestKind, str]) -> None:
        """Log why requests wait, once for each kind and reason."""
        for kind, reason in self.explanations.items():
            if told.get(kind) != reason:
                self._worker.log.debug("Requests for %s wait: %s", ", ".join(kind.labels), reason)

    def _put_back(self) -> None:
        for left in self.left_alone.take_due():
            request = self._cached(left.request_id)
            if request is None or not self._worker.is_open(request):
                continue
            if self._is_pointless(left):
                self.left_alone.add(left.request_id, left.delay_seconds, left.pointless)
                # What it let go of may be nothing that the other one can use, but room.
                self._worker.relieve()
            else:
                self._worker.queue.put(request)

    def _is_pointless(self, left: DeferredRequest) -> bool:
        try:
            return left.pointless()
        except Exception:
            # A driver is asked for room and may raise anything: then the request is tried.
            self._worker.log.exception("Request %s is looked at again", left.request_id)
            return False

    def _cached(self, request_id: str) -> NodeRequest | None:
        cache = self._worker.getZK().cache
        return None if cache is None else cache.requests.get(request_id)

    def _decline(self, bucket: Bucket, verdict: Decline) -> None:
        if self._refusals.decline_all(bucket, verdict.reason):
            self._more = True

    def _take(self, candidates: list[Bucket]) -> None:
        """Take heads in service order until no bucket can go on."""
        heap = [(bucket.head_key, number, bucket) for number, bucket in enumerate(candidates)]
        heapq.heapify(heap)
        while heap:
            if self._instant >= MAX_INSTANT or self._launched >= MAX_LAUNCHED:
                self._more = True
                return
            _, number, bucket = heap[0]
            until = min((key for key, _, _ in heap[1:3]), default=None)
            if self._take_head(bucket, until) and len(bucket):
                heapq.heapreplace(heap, (bucket.head_key, number, bucket))
            else:
                heapq.heappop(heap)

    def _take_head(self, bucket: Bucket, until: OrderKey | None) -> bool:
        """Serve the first request of a bucket; False = nothing more of this bucket in this pass.

        :param until: with it more may be taken, as long as their keys are not above this one; None = all.
        """
        worker = self._worker
        if self._waits_for_nodes(bucket.kind):
            self.explanations[bucket.kind] = NO_READY_NODES
            return False
        request_id = bucket.head
        cached = self._cached(request_id)
        if cached is None or not worker.is_open(cached):
            # Taken, finished or gone since this pass began; the record is newer than the queue.
            worker.queue.discard(request_id)
            return True
        if worker.sibling_serves(request_id):
            return self._leave(request_id)
        if self._has_room(cached) and self._spread.leaves(bucket.kind, cached):
            return self._leave(request_id)
        request = cached.copy()
        manager = worker.getProviderManager()
        try:
            handler = manager.getRequestHandler(worker, request)
            blocked = self._blocked(bucket, handler)
        except ZKConnectionError:
            raise
        except Exception:
            # whatever a driver raises, the requests behind this one have their turn.
            if worker.provider_replaced():
                # It was stopped in the middle of this pass: its successor judges in the next one.
                worker.wake()
                return False
            worker.log.exception("Declining request %s because of an error", request_id)
            self._refusals.decline([request_id], "an error while judging it")
            self._launched += 1
            return True
        if blocked is not None:
            return self._handle_blocked(bucket, blocked)
        if not request.node_types:
            worker.instant.start(handler, {})
            self._instant += 1
            return True
        if request.reuse and worker.ready_nodes.could_serve(request.node_types):
            chosen = worker.ready_nodes.choose(request.node_types)
            if len(chosen) == len(request.node_types):
                if not manager.LAUNCHES or not self._tenants.limits(bucket.kind):
                    worker.instant.start(handler, chosen)
                    self._tenants.add(bucket.kind)
                    self._instant += 1
                    return True
                if self._tenants.allows(bucket.kind, chosen.values()):
                    # What is fulfilled in one write cannot be taken back when others filled the limit at the same time.
                    return self._launch(bucket, handler, until)
        waits = manager.pausedReason() if manager.LAUNCHES else NO_READY_NODES
        if waits is not None:
            self.explanations[bucket.kind] = waits
            return False
        return self._launch(bucket, handler, until)

    def _waits_for_nodes(self, kind: RequestKind) -> bool:
        """A quick answer for pools that launch nothing: there is nothing to refuse, and no node for it now."""
        worker = self._worker
        if worker.getProviderManager().LAUNCHES or worker.ready_nodes.could_serve(kind.labels):
            return False
        known = self._reasons.get(kind)
        if known is None or known[1] is not worker.getProviderConfig() or monotonic() >= known[0]:
            return False
        return not known[2]

    def _has_room(self, request: NodeRequest) -> bool:
        """Could this pool do something for a request now? A quick first look."""
        worker = self._worker
        if request.reuse and worker.ready_nodes.could_serve(request.node_types):
            return True
        manager = worker.getProviderManager()
        return manager.LAUNCHES and not worker.paused and manager.pausedReason() is None

    def _take_left(self) -> None:
        """Nodes were left over: requests of others that they can serve are next."""
        worker = self._worker
        for request_id in self._spread.end_pass():
            request = self._cached(request_id)
            if request is not None and worker.is_open(request) and worker.ready_nodes.could_serve(request.node_types):
                self.left_alone.discard(request_id)
                worker.queue.put(request)
                self._more = True

    def _leave(self, request_id: str) -> bool:
        """It is another pool's turn, or its work already; the bucket goes on."""
        self._worker.queue.discard(request_id)
        self.left_alone.add_turn_of_another(request_id, GRACE_SECONDS)
        return True

    def _handle_blocked(self, bucket: Bucket, blocked: Decline | str) -> bool:
        if isinstance(blocked, Decline):
            self._decline(bucket, blocked)
        else:
            self.explanations[bucket.kind] = blocked
        return False

    def _blocked(self, bucket: Bucket, handler: NodeRequestHandler) -> Decline | str | None:
        """Why the head of a bucket cannot be taken now: refuse it, wait (text), or None."""
        worker = self._worker
        provider = worker.getProviderConfig()
        if provider.max_concurrency == 0:
            return Decline("max-concurrency is 0, nothing is ever launched here")
        manager = worker.getProviderManager()
        paused = worker.paused
        full = provider.max_concurrency > 0 and worker.launches_running() >= provider.max_concurrency
        # A launching handler asks for all reasons itself; here only where it will not be run.
        if paused or full or not manager.LAUNCHES or manager.pausedReason() is not None:
            reasons = self._decline_reasons(bucket.kind, handler)
        else:
            reasons = handler.basic_decline_reasons()
        if reasons:
            return Decline("; ".join(reasons))
        if paused:
            return "the pool is paused: another request waits for room"
        if full:
            return f"max-concurrency of {provider.max_concurrency} launches is reached"
        if self._tenants.is_reserved(bucket.kind):
            return f"another request of tenant {bucket.kind.tenant_name} comes first, and waits for room in its limits"
        if not self._tenants.allows(bucket.kind):
            self._tenants.reserve(bucket.kind)
            return f"resource limits of tenant {bucket.kind.tenant_name} are reached"
        return None

    def _decline_reasons(self, kind: RequestKind, handler: NodeRequestHandler) -> list[str]:
        now = monotonic()
        known = self._reasons.get(kind)
        if known is not None and now < known[0] and known[1] is handler.provider:
            return known[2]
        if len(self._reasons) > 10_000:
            self._reasons.clear()
        reasons = handler.getDeclinedReasons()
        self._reasons[kind] = (now + REASONS_AGE_SECONDS, handler.provider, reasons)
        return reasons

    def _launch(self, bucket: Bucket, handler: NodeRequestHandler, until: OrderKey | None) -> bool:
        """Lock the request, make it `pending` and let its handler gather; with it those behind it that have room, too.

        Their locks are taken together, and their new nodes made with them: one after the other, the round trips would
        be most of the time of a burst.
        """
        worker = self._worker
        followers: list[NodeRequestHandler] = []
        try:
            followers = self._followers(bucket, handler, until)
        except ZKConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - it is met again, and judged, when each is taken for itself
            handler.log.debug("Taken without those behind it: %s", error)
        handlers = [handler, *followers]
        ends = [self._send_lock(each, with_node=len(handlers) > 1) for each in handlers]
        locked: list[NodeRequestHandler] = []
        lost: ZKConnectionError | None = None
        # The last answer is waited for first: then the others are there, and this thread was woken once.
        for each, end in zip(reversed(handlers), reversed(ends), strict=True):
            try:
                if self._is_locked(each, end):
                    locked.insert(0, each)
            except ZKConnectionError as error:
                lost = error
        # What is locked is ours from here on, whatever happens.
        worker.handlers += locked
        self._launched += len(locked)
        for _ in locked:
            self._tenants.add(bucket.kind)
        if lost is not None:
            raise lost
        self._run(locked)
        return not worker.paused

    def _run(self, handlers: Sequence[NodeRequestHandler]) -> None:
        """Let handlers gather."""
        # Backwards: then the first answer that is waited for is the last one to come.
        for handler in reversed(handlers):
            handler.node_set.lock_ahead()
        for handler in handlers:
            handler.log.info("Assigning node request for %s", ", ".join(handler.request.node_types))
            self._worker.run_handler(handler)

    def _followers(
        self, bucket: Bucket, handler: NodeRequestHandler, until: OrderKey | None
    ) -> list[NodeRequestHandler]:
        """Handlers of the requests behind the head that can be launched for sure.

        :param until: whose turn it is before that of another bucket.
        """
        worker = self._worker
        room = min(float(MAX_LAUNCHED - self._launched), handler.room_ahead())
        concurrency = worker.getProviderConfig().max_concurrency
        if concurrency > 0:
            room = min(room, concurrency - worker.launches_running())
        if room <= 1 or self._tenants.limits(bucket.kind) or self._decline_reasons(bucket.kind, handler):
            return []
        manager = worker.getProviderManager()
        followers: list[NodeRequestHandler] = []
        for request_id in bucket.first(int(room))[1:]:
            cached = self._cached(request_id)
            if cached is None or not worker.is_open(cached) or (until is not None and cached.order_key > until):
                break
            if self._spread.leaves(bucket.kind, cached):
                self._leave(request_id)
                continue
            followers.append(manager.getRequestHandler(worker, cached.copy()))
        return followers

    def _send_lock(self, handler: NodeRequestHandler, *, with_node: bool) -> Callable[[], None]:
        request = handler.request
        self._worker.queue.discard(request.key)
        request.state = states.PENDING
        request.nodes = []
        node = handler.node_set.begin_ahead() if with_node else None
        return self._worker.getZK().requests.send_lock(request, node)

    def _is_locked(self, handler: NodeRequestHandler, end: Callable[[], None]) -> bool:
        try:
            end()
        except ZKConflict as conflict:
            handler.log.debug("Not taken: %s", conflict)
            if isinstance(conflict, TransactionFailed) and conflict.path.startswith(f"{paths.REQUEST_LOCKS}/"):
                self.left_alone.add(handler.request.key)
            return False
        return True
