# SPDX-License-Identifier: Apache-2.0
"""Applies the decisions of `triage` to the waiting requests, in one pass through the queue (rules A-1 to A-18).

All kinds are judged. The first requests of the kinds that can be served are taken in service order. A kind whose first
request cannot be taken is skipped in this pass. First the pass (`Intake`), then what becomes of a request: it is locked
for a handler (`Batch`), fulfilled with ready nodes (`FastPath`), or declined (`Declines`). Last the handlers.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import heapq
import math
import zlib
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from functools import partial
from logging import DEBUG
from typing import Final

from nodepool.clock import monotonic, wall_time
from nodepool.driver import gateway
from nodepool.driver.framework.handler_hooks import log_declined
from nodepool.driver.handler import NodeRequestHandler, allocate
from nodepool.exceptions import ZKConflict, ZKConnectionError, ZKException, ZKTooLarge
from nodepool.guard import Guard
from nodepool.launcher.pool import desk
from nodepool.launcher.pool.fair import YIELD_SECONDS
from nodepool.launcher.pool.view import Pool, PoolView, RequestView
from nodepool.launcher.shared import GRACE_SECONDS
from nodepool.logconfig import get_annotated_logger
from nodepool.model import reasons, states
from nodepool.model.node import Node
from nodepool.model.reasons import Reason, ReasonCode
from nodepool.model.request import NodeRequest
from nodepool.model.status import POOL_MARK
from nodepool.plan import triage
from nodepool.plan.shares import FairKey
from nodepool.plan.triage import Bucket, Stage
from nodepool.tracing import spans
from nodepool.zk import paths
from nodepool.zk.connection import Reply
from nodepool.zk.transactions import TransactionFailed, result

#: Requests taken in one pass; then handlers are polled and changes are seen (A-18).
MAX_FULFILLED: Final = 100
MAX_LAUNCHED: Final = 20
#: From an attempt to go on with the launches of a request that was locked to the next one.
RESUME_RETRY_SECONDS: Final = 2.0


class Intake:
    """Owned by the pool worker's thread."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._view = PoolView(pool)
        self.handlers = Handlers(pool)
        self.fast_path = FastPath(pool)
        self._declines = Declines(pool)
        self._batch = Batch(self._view, self.handlers, self._declines)
        self.log = pool.log
        self._fulfilled = 0
        self._launched = 0
        self._more = False

    def serve(self, labels: frozenset[str], priority: int) -> bool:
        """Go once through the queue; True = there is more to do at once. Blocks for ZooKeeper and for slow drivers.

        :param labels: that this pool says it has. ``priority``: that it says it has.
        """
        self._view.begin_pass(labels, priority)
        self._fulfilled = self._launched = 0
        self._more = False
        self._put_back()
        self._launched += self._batch.resume_launches()
        self._pool.desk.explanations.begin_pass()
        candidates: list[Bucket] = []
        for bucket in self._pool.queue.buckets():
            verdict = triage.triage_kind(bucket.kind, self._view)
            if isinstance(verdict, triage.Consider):
                candidates.append(bucket)
            elif isinstance(verdict, triage.Decline):
                self._more |= self._declines.decline_all(bucket, verdict.reason)
            else:
                self._pool.desk.explanations.waits(bucket.kind, verdict.reason)
        self._take(candidates)
        self._take_passed_over()
        return self._more

    def _put_back(self) -> None:
        """Deferred requests whose time has come wait again, unless that is pointless."""
        for request_id, case, reason in self._pool.desk.take_due():
            request = self._pool.open_request(request_id)
            if request is None:
                continue
            held = self._pool.held(request.node_types) is not None
            if not held and case.pointless is not None and self._is_pointless(request_id, case.pointless):
                self._pool.desk.defer(request_id, reason, case.delay_seconds, case.pointless)
                # What it let go of may be nothing that the other one can use, but room.
                self._pool.evict()
            else:
                self._pool.queue.put(request)

    def _is_pointless(self, request_id: str, pointless: Callable[[], bool]) -> bool:
        # A driver is asked for room and may raise anything: then the request is tried.
        with Guard(self.log, "Request %s is looked at again", request_id):
            return pointless()
        return False

    def _take(self, candidates: list[Bucket]) -> None:
        """Take heads in service order until no bucket can go on."""
        order = self._pool.order
        heap = [(order.key(bucket.kind, bucket.head_key), number, bucket) for number, bucket in enumerate(candidates)]
        heapq.heapify(heap)
        while heap:
            if self._fulfilled >= MAX_FULFILLED or self._launched >= MAX_LAUNCHED:
                self._more = True
                return
            if not (self._view.launches or len(self._view.ready)):
                # Nothing is left to hand out: the order of the others does not matter.
                if not (self._take_head(heap[-1][2], None) and len(heap[-1][2])):
                    heap.pop()
                continue
            known, number, bucket = heap[0]
            # What was served meanwhile may have made the share of its tenant larger.
            if order.moved(bucket.kind) and (key := order.key(bucket.kind, bucket.head_key)) > known:
                heapq.heapreplace(heap, (key, number, bucket))
                continue
            until = min((key for key, _, _ in heap[1:3]), default=None)
            if self._take_head(bucket, until) and len(bucket):
                heapq.heapreplace(heap, (order.key(bucket.kind, bucket.head_key), number, bucket))
            else:
                heapq.heappop(heap)

    def _take_head(self, bucket: Bucket, until: FairKey | None) -> bool:
        """Judge and serve the first request of a bucket; False = nothing more of this bucket in this pass.

        :param until: with it more may be taken, as long as their keys are not above this one; None = all.
        """
        kind, request_id = bucket.kind, bucket.head
        # Ready nodes may have been deleted since the pass began.
        again = triage.triage_kind(kind, self._view)
        if isinstance(again, triage.Wait):
            self._pool.desk.explanations.waits(kind, again.reason)
            return False
        request = self._pool.open_request(request_id)
        if request is None:
            # Taken, finished or deleted since the pass began; the record is newer than the queue.
            self._pool.queue.discard(request_id)
            return True
        try:
            view = RequestView(self._view, kind, request)
            verdict = triage.triage(kind, request, view)
            # It is the driver that makes it, and may raise.
            handler = view.handler if isinstance(verdict, triage.Fulfil | triage.Launch) else None
        except ZKConnectionError:
            raise
        except Exception:
            if self._pool.provider_replaced():
                # It was stopped in the middle of this pass: its successor judges in the next one.
                self._pool.wake()
                return False
            # whatever a driver raised, the requests behind this one have their turn.
            self.log.exception("Declining request %s because of an error", request_id)
            self._declines.decline([request_id], reasons.ERROR_JUDGING)
            self._launched += 1
            return True
        if handler is not None:
            return self._serve(bucket, handler, verdict, until)
        if isinstance(verdict, triage.Leave):
            # It is another pool's turn, or its work already; the bucket goes on.
            if verdict.reason is reasons.FIRST_CHOICE:
                self._view.turns.pass_over(request, view.turns)
            self._pool.desk.defer(request.key, verdict.reason, GRACE_SECONDS, others_turn=True)
            return True
        if isinstance(verdict, triage.Decline):
            self._more |= self._declines.decline_all(bucket, verdict.reason)
        elif isinstance(verdict, triage.Wait):
            if verdict.first_of_tenant:
                self._view.tenants.reserve(kind, verdict.reason)
            self._pool.desk.explanations.waits(kind, verdict.reason)
        return False

    def _serve(
        self, bucket: Bucket, handler: NodeRequestHandler, verdict: triage.HeadVerdict, until: FairKey | None
    ) -> bool:
        if isinstance(verdict, triage.Fulfil) and self.fast_path.takes(handler.request.key):
            self.fast_path.start(handler, verdict.nodes)
            self._view.accepted(bucket.kind)
            self._fulfilled += 1
            return True
        # Beside those that wait for room only the one that goes before them is taken.
        at_most = 1 if self._pool.desk.paused else MAX_LAUNCHED - self._launched
        self._launched += self._batch.launch(bucket, handler, until, at_most)
        return not self._pool.desk.paused

    def _take_passed_over(self) -> None:
        """Nodes were left over: requests of others that they can serve are next."""
        for request_id in self._view.turns.end_pass():
            request = self._pool.open_request(request_id)
            if request is not None and self._view.ready.could_serve(request.node_types):
                self._pool.desk.wake(request_id)
                self._pool.queue.put(request)
                self._more = True


# `Batch`: locks a request and makes it `pending`, together with later requests that certainly have room.
#
# It takes all their locks and makes all their new nodes in the same round trips. If it took one request after the
# other, a burst would spend most of its time waiting for answers.


class Batch:
    """Owned by the pool worker's thread."""

    def __init__(self, view: PoolView, handlers: Handlers, declines: Declines) -> None:
        self._view = view
        self._pool = view.pool
        self._handlers = handlers
        self._declines = declines

    def launch(self, bucket: Bucket, handler: NodeRequestHandler, until: FairKey | None, at_most: int) -> int:
        """Lock requests together and let their handlers gather. Blocks for some round trips.

        :param bucket: whose first request is the handler's.
        :param until: more are taken as long as their keys are not above this one; None = all.
        :param at_most: so many in all.
        :return: how many were taken.
        :raises ZKConnectionError: what is locked goes on in the next pass.
        """
        kind = bucket.kind
        room: float = 1
        followers: list[NodeRequestHandler] = []
        # It is met again, and judged, when each is taken for itself.
        with Guard(handler.log, "Taken without those behind it", but=ZKConnectionError, level=DEBUG, traceback=False):
            room = self._view.ahead(kind, handler)
            if room > 1 and self._view.objection(kind, handler) is not None:
                room = 1
            followers = self._followers(bucket, until, min(at_most, room))
        handlers = [handler, *followers]
        try:
            locked = self._lock(handlers, with_nodes=room > 1)
        finally:
            self._let_go_unlocked(handlers)
        for _ in locked:
            self._view.accepted(kind)
        self._run(locked)
        return len(locked)

    def resume_launches(self) -> int:
        """Take the requests whose launches another launcher has left unfinished: they have their room already.

        Blocks for some round trips. Returns how many were taken.
        """
        handlers: list[NodeRequestHandler] = []
        for cached, nodes in self._pool.take_interrupted():
            # It is deleted, and the request served anew, as if nothing could be continued.
            with Guard(self._pool.log, "Launches of request %s are not continued", cached.id, but=ZKConnectionError):
                handler = self._pool.make_handler(cached.copy())
                handler.node_set.interrupted = nodes
                handlers.append(handler)
        try:
            locked = self._lock(handlers, with_nodes=False)
        finally:
            self._let_go_unlocked(handlers)
            for each in handlers:
                if each.progress.stage is not Stage.GATHERING:
                    # Zuul may hold the lock for a moment. If another launcher has it, its nodes are deleted soon.
                    self._pool.desk.defer(each.request.key, reasons.REQUEST_LOCKED, RESUME_RETRY_SECONDS)
                    self._pool.interrupted.add(each.request.key)
        self._run(locked)
        return len(locked)

    def _followers(self, bucket: Bucket, until: FairKey | None, at_most: float) -> list[NodeRequestHandler]:
        """Handlers of the requests behind the head."""
        followers: list[NodeRequestHandler] = []
        for request_id in bucket.first(int(at_most))[1:]:
            cached = self._pool.open_request(request_id)
            if cached is None:
                break
            key = self._pool.order.key(bucket.kind, cached.order_key, len(followers) + 1)
            if until is not None and key > until:
                break
            turns = self._view.turns.of_others(bucket.kind, cached)
            if turns:
                self._view.turns.pass_over(cached, turns)
                self._pool.desk.defer(request_id, reasons.FIRST_CHOICE, GRACE_SECONDS, others_turn=True)
                continue
            followers.append(self._pool.make_handler(cached.copy()))
        return followers

    def _lock(self, handlers: Sequence[NodeRequestHandler], *, with_nodes: bool) -> list[NodeRequestHandler]:
        """Lock requests together; those that are locked. An error is raised when all answers are there.

        :param with_nodes: each is certain to get a new node, which is stored with its lock.
        """
        sent: list[tuple[NodeRequestHandler, Callable[[], None]]] = []
        too_large: list[NodeRequestHandler] = []
        failed: Exception | None = None
        for each in handlers:
            try:
                sent.append((each, self._send_lock(each, with_node=with_nodes)))
            except ZKTooLarge as error:
                each.log.warning("It cannot be served: %s", error)
                too_large.append(each)
            except Exception as error:  # noqa: BLE001 - raised below: what is sent already may be locked, and is ours
                failed = error
                break
        locked: list[NodeRequestHandler] = []
        # The last answer is waited for first: then the others are there, and this thread was woken once.
        for each, end in reversed(sent):
            try:
                if self._is_locked(each, end):
                    locked.insert(0, each)
            except Exception as error:  # noqa: BLE001 - as above
                failed = error
        if failed is not None:
            raise failed
        for each in too_large:
            self._pool.desk.close(each.request.key, Stage.WAITING)
            self._declines.fail_too_large(each.request.key)
        return locked

    def _send_lock(self, handler: NodeRequestHandler, *, with_node: bool) -> Callable[[], None]:
        request = handler.request
        self._pool.desk.open(handler, Stage.LOCKING)
        request.state = states.PENDING
        request.nodes = []
        self._pool.order.begin(request)
        node = handler.node_set.begin_ahead() if with_node else None
        return self._pool.zk.requests.send_lock(request, node)

    def _is_locked(self, handler: NodeRequestHandler, end: Callable[[], None]) -> bool:
        request_id = handler.request.key
        try:
            end()
        except ZKConflict as conflict:
            handler.log.debug("Not taken: %s", conflict)
            if isinstance(conflict, TransactionFailed) and conflict.path.startswith(f"{paths.REQUEST_LOCKS}/"):
                self._pool.desk.defer(request_id, reasons.REQUEST_LOCKED)
            else:
                self._pool.desk.close(request_id, Stage.WAITING)
            return False
        # What is locked is ours from here on, whatever happens.
        self._pool.desk.move(request_id, Stage.GATHERING)
        return True

    def _let_go_unlocked(self, handlers: Sequence[NodeRequestHandler]) -> None:
        """After an error no one knows whether a request is locked: it is judged again by what the cache says."""
        for handler in handlers:
            if handler.progress.stage is Stage.LOCKING:
                self._pool.desk.close(handler.request.key, Stage.WAITING)
                self._pool.request_changed(handler.request.key)

    def _run(self, handlers: Sequence[NodeRequestHandler]) -> None:
        """Let handlers gather."""
        # Backwards: then the first answer that is waited for is the last one to come.
        for handler in reversed(handlers):
            handler.node_set.lock_ahead()
        for handler in handlers:
            handler.log.info("Assigning node request for %s", ", ".join(handler.request.node_types))
            self._handlers.run(handler)


# The fast path, requests that ready nodes can serve at once: `requested` to `fulfilled` in a single transaction.
#
# The nodes are reserved first, so that no other request of this pool picks them; then the driver checks them (static
# hosts: do they answer?), which may take time and delays no other request; then one write does it all, fenced by the
# versions of request and nodes and by all their locks (ADR 2). Many such writes are under way together.


@dataclasses.dataclass(slots=True, eq=False)
class _Service:
    """One request on its way.

    :param request: as it is being written.
    """

    handler: NodeRequestHandler
    nodes: list[Node]
    checks: list[concurrent.futures.Future[bool]] = dataclasses.field(default_factory=list)
    reply: Reply | None = None
    lock_dir_exists: bool = False
    request: NodeRequest | None = None

    @property
    def checked(self) -> bool:
        return all(check.done() for check in self.checks)


class FastPath:
    """Owned by the pool worker's thread; a finished check only wakes it."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._services: dict[str, _Service] = {}
        #: Requests that met a conflict -> when.
        self._conflicts: dict[str, float] = {}
        #: Requests that are too large to be written together with their nodes.
        self._too_large: set[str] = set()

    @property
    def busy(self) -> bool:
        """Is any request on its way?"""
        return bool(self._services)

    def takes(self, request_id: str) -> bool:
        """Can a request be written together with its nodes, as far as known? Else its nodes are taken one by one."""
        return request_id not in self._too_large

    def start(self, handler: NodeRequestHandler, nodes: Sequence[Node]) -> None:
        """Reserve the nodes, begin their checks, and send the write as soon as all are good.

        :param handler: of a request that is neither locked nor changed.
        :param nodes: a free one for each position of ``request.node_types``.
        """
        request_id = handler.request.key
        service = _Service(handler, list(nodes))
        self._services[request_id] = service
        self._pool.desk.open(handler, Stage.CHECKING)
        for node in service.nodes:
            self._pool.free.reserve(node.key)
        for node in service.nodes:
            check = gateway.start_reusable_node_check(handler, node)
            service.checks.append(check)
            if not check.done():
                check.add_done_callback(lambda _: self._pool.wake())
        if service.checked:
            self._send(request_id, service)

    def _send(self, request_id: str, service: _Service) -> None:
        refused = [
            node
            for node, check in zip(service.nodes, service.checks, strict=True)
            if check.cancelled() or check.exception() is not None or not check.result()
        ]
        if refused:
            for node in refused:
                self._pool.free.set_aside(node)
            self._abandon(request_id, service)
            return
        handler = service.handler
        request = handler.request.copy()
        nodes = [node.copy() for node in service.nodes]
        for node in nodes:
            allocate(node, handler.request)
        request.nodes = [node.key for node in nodes]
        request.state = states.FULFILLED
        zk = self._pool.zk
        self._pool.desk.move(request_id, Stage.FULFILLING)
        service.request = request
        service.reply = zk.requests.send_unlocked(request, nodes, lock_dir_exists=service.lock_dir_exists)

    def collect(self) -> None:
        """Go on with what checks and ZooKeeper answered. Blocks for the answers that are under way."""
        for request_id, service in list(self._services.items()):
            if service.reply is None and service.checked:
                self._send(request_id, service)
        while waiting := [(i, s, s.reply) for i, s in self._services.items() if s.reply is not None]:
            # Answers come in order: to wait for each would wake this thread as often.
            waiting[-1][2].wait()
            for request_id, service, reply in waiting:
                self._finish(request_id, service, reply)

    def _finish(self, request_id: str, service: _Service, reply: Reply) -> None:
        service.reply = None
        try:
            result(reply)
        except ZKException as problem:
            self._failed(request_id, service, problem)
            return
        self._release(request_id, service, Stage.DONE)
        handler = service.handler
        self._conflicts.pop(request_id, None)
        if service.request is not None:
            desk.note(service.request)
        for node in service.nodes:
            gateway.node_reused_notification(handler, node)
        handler.log.info("Fulfilled node request with ready nodes %s", ", ".join(n.key for n in service.nodes))

    def _failed(self, request_id: str, service: _Service, problem: ZKException) -> None:
        requests = self._pool.zk.requests
        if (
            not service.lock_dir_exists
            and isinstance(problem, TransactionFailed)
            and requests.lock_dir_was_there(service.handler.request, problem)
        ):
            # Left by someone who had the lock before: the same again, with the directory.
            service.lock_dir_exists = True
            self._pool.launcher.lock_dir_lingers(request_id)
            self._send(request_id, service)
            return
        if isinstance(problem, ZKConflict):
            service.handler.log.debug("Not fulfilled at once: %s", problem)
            path = problem.path if isinstance(problem, TransactionFailed) else ""
            lock_held = path.startswith(f"{paths.REQUEST_LOCKS}/")
            again = self._conflicted_before(request_id)
            changed = reasons.REQUEST_CHANGED if again else None
            self._abandon(request_id, service, reasons.REQUEST_LOCKED if lock_held else changed)
            return
        if isinstance(problem, ZKTooLarge):
            if len(self._too_large) > 10_000:
                self._too_large.clear()
            self._too_large.add(request_id)
            service.handler.log.debug("Not fulfilled at once: %s", problem)
            self._abandon(request_id, service)
            return
        # The answer was lost. What was written comes back through the cache.
        service.handler.log.warning("No answer whether the request was fulfilled: %s", problem)
        self._abandon(request_id, service)
        if isinstance(problem, ZKConnectionError):
            raise problem

    def _conflicted_before(self, request_id: str) -> bool:
        """Did a request meet a conflict just before this one? Then it waits: it may go on for a while."""
        now = monotonic()
        if len(self._conflicts) > 10_000:
            self._conflicts.clear()
        before = self._conflicts.get(request_id, -math.inf)
        self._conflicts[request_id] = now
        return now - before < 1.0

    def _abandon(self, request_id: str, service: _Service, deferred: Reason | None = None) -> None:
        """Let go of the nodes and of the request, which waits again.

        :param deferred: why it is not looked at again at once; None = it is.

        What conflicted has changed, and the cache has had its event. What it is reading now it will tell us of;
        taking the old record again would only fail again.
        """
        cache = self._pool.cache
        self._release(request_id, service, Stage.WAITING if deferred is None else None)
        for node in service.nodes:
            if not cache.nodes.is_reading(node.key):
                self._pool.free.consider(node.key)
        if deferred is not None:
            self._pool.desk.defer(request_id, deferred)
            # The nodes are for those behind it: in the pass in which its time has come, it is first again.
            self._pool.wake()
        elif not cache.requests.is_reading(request_id):
            self._pool.request_changed(request_id)

    def _release(self, request_id: str, service: _Service, stage: Stage | None) -> None:
        """Forget a request. :param stage: where it goes; None = the caller defers it."""
        del self._services[request_id]
        if stage is not None:
            self._pool.desk.close(request_id, stage)
        for node in service.nodes:
            self._pool.free.release(node.key)


# Declining requests that a pool has not locked, many at a time (rules ).

#: Requests of one kind declined in one pass.
BATCH: Final = 200
#: How long after its start a launcher declines nothing that others may serve who are not back yet, after an outage of
#: several launchers: no request that is older than it is, and none while nodes tell of launchers that are away.
START_SECONDS: Final = 30.0
#: Pause between two looks at such a request.
OLD_REQUEST_SECONDS: Final = 2.0


class Declines:
    """Owned by the pool worker's thread."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.log = pool.log
        self._begun = wall_time()
        self._begun_monotonic = monotonic()

    def decline_all(self, bucket: Bucket, reason: Reason) -> bool:
        """Decline the requests of a kind, each in one write; blocks until all are answered.

        A request that another holds or changed meanwhile is left; it comes back as an event.

        :return: are there more than fit in one pass?
        """
        more = len(bucket) > BATCH
        self.decline(bucket.first(BATCH), reason)
        return more

    def decline(self, request_ids: Sequence[str], reason: Reason) -> None:
        """Decline some requests with the same labels; see `decline_all`."""
        pool = self._pool
        requests = pool.zk.requests
        registered, absent = [other.id for other in pool.registered_pools()], pool.absent_pools()
        just_started = monotonic() - self._begun_monotonic <= START_SECONDS
        others_away = just_started and self._others_are_away(registered)
        sent: list[tuple[NodeRequest, Reply]] = []
        for request_id in request_ids:
            self._pool.queue.discard(request_id)
            cached = pool.open_request(request_id)
            if cached is None:
                continue
            # What was submitted before we came may be for those who are on their way back.
            older = cached.created_time is not None and cached.created_time < self._begun
            if others_away or (just_started and older):
                self._pool.desk.defer(request_id, reasons.OTHER_LAUNCHERS, OLD_REQUEST_SECONDS)
                continue
            request = cached.copy()
            triage.decline(request, pool.launcher_id, registered, absent)
            sent.append((request, requests.send_unlocked(request)))
        if sent and reason.code is ReasonCode.LABEL_UNKNOWN:
            configured = {name: bool(label.pools) for name, label in pool.launcher.config().labels.items()}
            hint = triage.label_hint(sent[0][0].node_types, pool.registered_pools(), configured)
            reason = dataclasses.replace(reason, text=f"{reason.text}{hint}")
        for request, reply in sent:
            self._finish(request, reply, reason)

    def fail_too_large(self, request_id: str) -> None:
        """Let a request fail that cannot be written as it is: no pool can serve it. Blocks until it is answered."""
        self._pool.queue.discard(request_id)
        cached = self._pool.open_request(request_id)
        if cached is not None:
            request = cached.copy()
            request.fail_in_short()
            self._finish(request, self._pool.zk.requests.send_unlocked(request), reasons.REQUEST_TOO_LARGE)

    def _others_are_away(self, registered: Collection[str]) -> bool:
        """Are there nodes of launchers that are not there? They may serve what we do not. Static nodes name no pool."""
        return any(
            POOL_MARK in (node.launcher or "") and node.launcher not in registered
            for node in self._pool.cache.nodes.values()
        )

    def _finish(self, request: NodeRequest, reply: Reply, reason: Reason) -> None:
        log = get_annotated_logger(
            self.log, event_id=request.event_id, node_request_id=request.id, trace_id=spans.log_id(request)
        )
        try:
            self._wait_written(request, reply)
        except ZKConnectionError:
            raise
        except ZKTooLarge as problem:
            if reason is not reasons.REQUEST_TOO_LARGE:
                self.fail_too_large(request.key)
                return
            self.log.error("Request %s cannot even be failed: %s", request.id, problem)
            self._pool.desk.defer(request.key, reason)
            return
        except ZKException as problem:
            self.log.debug("Request %s was not declined: %s", request.id, problem)
            # Held by someone for a moment: looked at again like one whose lock was taken.
            self._pool.desk.defer(request.key, reasons.REQUEST_LOCKED)
            return
        self._pool.note_declined(request, reason)
        desk.note(request)
        pool = self._pool
        log_declined(log, request, reason, pool.place, lambda: pool.declines_of_others(request.key))

    def _wait_written(self, request: NodeRequest, reply: Reply) -> None:
        try:
            result(reply)
        except TransactionFailed as failed:
            requests = self._pool.zk.requests
            if not requests.lock_dir_was_there(request, failed):
                raise
            # Left by someone who had the lock before: the same again, with the directory.
            result(requests.send_unlocked(request, lock_dir_exists=True))


# `Handlers`: the handlers of the requests that a pool holds locked: run, polled and ended.

#: A pass at least this often while there are handlers: some wait for room, and some drivers do not call ``pw.wake()``.
POLL_SECONDS: Final = 1.0
#: The same while all of them wait for nothing but launches that wake the pool when they end.
LAUNCHES_SECONDS: Final = 10.0
#: Seconds after which a request that was given back is taken again (Q-12).
GIVEN_BACK_SECONDS: Final = 1.0


class Handlers:
    """Owned by the pool worker's thread."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._desk = pool.desk
        #: Factor of pauses, from 1 to 1.5. It differs between pools: pools that collided do not collide again.
        self._slowness = 1.0 + zlib.crc32(pool.launcher_id.encode()) % 256 / 512
        self.log = pool.log

    def poll(self) -> None:
        """Ask each whether its request is finished. One error affects no other (A-19).

        Requests are fulfilled together: the writes of all are sent before any answer is waited for.
        """
        with ExitStack() as ends:
            for handler in self._desk.handlers():
                # Equal to a poll, which would find that launches run.
                if handler.awaits_launches and not handler.done:
                    continue
                with self._polling(handler):
                    end = handler.begin_poll()
                    if end is not None:
                        # Called in any case.
                        ends.callback(self._end_poll, handler, end)
                    elif handler.done:
                        self._ended(handler)

    def _end_poll(self, handler: NodeRequestHandler, end: Callable[[], None]) -> None:
        with self._polling(handler):
            end()
            if handler.done:
                self._ended(handler)

    def _polling(self, handler: NodeRequestHandler) -> Guard:
        """Whatever a driver raises, the other requests go on."""
        return Guard(self.log, "Error while polling %s, trying again", handler.request, but=ZKConnectionError)

    def next_look(self, *, held: bool) -> float | None:
        """Seconds until the next pass at the latest. None = there are no handlers.

        :param held: is anything not to be served here? See `give_back_held`, which is to be called in each pass.
        """
        handlers = self._desk.handlers()
        if not handlers:
            return None
        if not held and all(handler.launching and handler.awaits_launches for handler in handlers):
            return LAUNCHES_SECONDS
        return YIELD_SECONDS if self._pool.order.yielding else POLL_SECONDS

    def run_unfinished(self) -> None:
        """Requests that wait for room try again, in order; each unpauses alone (Q-10)."""
        order = self._pool.order
        for handler in sorted(self._unfinished(), key=lambda handler: order.of_request(handler.request)):
            if not handler.paused or not order.yields(handler.request):
                self.run(handler)

    def run(self, handler: NodeRequestHandler) -> None:
        """Let a handler gather; forget it when it is done with its request."""
        self._serve(handler, handler.run)

    def give_back_unfinished(self) -> None:
        """Give back what waits for room, for a pool that goes (G-6)."""
        for handler in self._unfinished():
            self._serve(handler, handler.give_back_when_launched)

    def give_back_held(self, held: Callable[[Collection[str]], Reason | None]) -> None:
        """Give back what waits for room and is not to be served here any more (MT-6).

        :param held: why requests for some labels are not; None = they are.
        """
        for handler in self._desk.handlers():
            reason = held(handler.request.node_types)
            if reason is None:
                continue
            if handler.unfinished:
                handler.log.info("Giving the request back: %s", reason.text)
                self._serve(handler, partial(handler.give_back_when_launched, reason))
            # It may have launches all the same: they are ended first.
            if not handler.unfinished and not handler.done:
                self._serve(handler, handler.stop_waiting)

    def _serve(self, handler: NodeRequestHandler, call: Callable[[], None]) -> None:
        """Call a method of a handler. One error affects no other request. Raises ZKConnectionError."""
        # A driver may raise where the request cannot even be declined for it, e.g. in launchesComplete().
        with Guard(self.log, "Error while serving %s, trying again", handler.request, but=ZKConnectionError) as guard:
            try:
                call()
            except ZKConflict as conflict:
                self.log.warning("%s: %s", handler.request, conflict)
                return
        if guard.error is None and handler.done:
            self._ended(handler)

    def release_all(self) -> None:
        """The session was lost, and with it the right to serve (A-19, L-9). Raises ZKConnectionError: call again."""
        for handler in self._desk.handlers():
            # Forgotten only when it holds nothing any more; else the next pass goes on here.
            handler.release_locks()
            handler.move(Stage.DONE)
            self._desk.close(handler.request.key)

    def hand_over(self) -> None:
        """The launcher ends: let others serve what is not finished; nodes in launch are swept later (G-14)."""
        for handler in self._desk.handlers():
            # A driver may raise anything; the other requests need not wait for the end of the session.
            with Guard(self.log, "%s is left as it is", handler.request, but=ZKConnectionError):
                handler.hand_over()
                if handler.done:
                    # Some are fulfilled just now: metrics, traces and events tell of them as of all others.
                    self._ended(handler)

    def _unfinished(self) -> list[NodeRequestHandler]:
        return [handler for handler in self._desk.handlers() if handler.unfinished]

    def _ended(self, handler: NodeRequestHandler) -> None:
        """A handler is done with its request, whatever became of that."""
        request, reason = handler.request, handler.progress.reason
        desk.note(request)
        if request.state == states.REQUESTED and self._pool.launcher_id not in request.declined_by:
            delay = GIVEN_BACK_SECONDS * self._slowness
            self._desk.defer(request.key, reason or reasons.REQUEST_CHANGED, delay, handler.yields)
        else:
            self._desk.close(request.key)
            if self._pool.launcher_id in request.declined_by and reason is not None:
                self._pool.note_declined(request, reason)
        if request.state != states.FULFILLED:
            # What it let go of may serve others. A request that is fulfilled lets go of nothing that others could use.
            self._pool.request_changed(request.key)
