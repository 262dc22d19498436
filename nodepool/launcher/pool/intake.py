# SPDX-License-Identifier: Apache-2.0
"""`Intake`: applies the decisions of `plan.triage` to the waiting requests, in one pass through the queue (rules A-1 to
A-18). All kinds are judged. The first requests of the kinds that can be served are taken in service order. A kind whose
first request cannot be taken is skipped in this pass.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from nodepool.exceptions import ZKConnectionError
from nodepool.guard import Guard
from nodepool.launcher.pool.turns import GRACE_SECONDS
from nodepool.launcher.pool.view import PoolView, RequestView
from nodepool.model.reasons import ERROR_JUDGING, FIRST_CHOICE
from nodepool.plan.assignment import Consider, Decline, Leave
from nodepool.plan.queue import Bucket, RequestQueue
from nodepool.plan.triage import Fulfil, HeadVerdict, Launch, Wait, triage, triage_kind

if TYPE_CHECKING:
    import logging

    from nodepool.driver.handler import NodeRequestHandler
    from nodepool.launcher.pool.batch import Batch
    from nodepool.launcher.pool.decline import Declines
    from nodepool.launcher.pool.desk import Desk
    from nodepool.launcher.pool.eviction import Eviction
    from nodepool.launcher.pool.fulfil import FastPath
    from nodepool.model.request import NodeRequest, OrderKey

#: Requests taken in one pass; then handlers are polled and changes are seen (A-18).
MAX_FULFILLED: Final = 100
MAX_LAUNCHED: Final = 20


class Intake:
    """Owned by the pool worker's thread.

    :param wake: asks for another pass.
    """

    def __init__(
        self,
        view: PoolView,
        queue: RequestQueue,
        desk: Desk,
        fast_path: FastPath,
        declines: Declines,
        batch: Batch,
        eviction: Eviction,
        wake: Callable[[], None],
        log: logging.Logger,
    ) -> None:
        self._view = view
        self._pool = view.pool
        self._queue = queue
        self._desk = desk
        self._fast_path = fast_path
        self._declines = declines
        self._batch = batch
        self._eviction = eviction
        self._wake = wake
        self.log = log
        self._fulfilled = 0
        self._launched = 0
        self._more = False

    def serve(self) -> bool:
        """Go once through the queue; True = there is more to do at once. Blocks for ZooKeeper and for slow drivers."""
        self._fulfilled = self._launched = 0
        self._more = False
        self._put_back()
        self._desk.explanations.begin_pass()
        candidates: list[Bucket] = []
        for bucket in self._queue.buckets():
            verdict = triage_kind(bucket.kind, self._view)
            if isinstance(verdict, Consider):
                candidates.append(bucket)
            elif isinstance(verdict, Decline):
                self._decline(bucket, verdict)
            else:
                self._desk.explanations.waits(bucket.kind, verdict.reason)
        self._take(candidates)
        self._take_passed_over()
        for kind, reason in self._desk.explanations.news():
            self.log.debug("Requests for %s wait: %s", ", ".join(kind.labels), reason.text)
        return self._more

    def _put_back(self) -> None:
        """Deferred requests whose time has come wait again, unless that is pointless."""
        for due in self._desk.take_due():
            request = self._pool.open_request(due.request_id)
            if request is None:
                continue
            held = self._pool.held(request.node_types) is not None
            if not held and due.pointless is not None and self._is_pointless(due.request_id, due.pointless):
                self._desk.defer(due.request_id, due.reason, due.delay_seconds, due.pointless)
                # What it let go of may be nothing that the other one can use, but room.
                self._eviction.evict()
            else:
                self._queue.put(request)

    def _is_pointless(self, request_id: str, pointless: Callable[[], bool]) -> bool:
        # A driver is asked for room and may raise anything: then the request is tried.
        with Guard(self.log, "Request %s is looked at again", request_id):
            return pointless()
        return False

    def _decline(self, bucket: Bucket, verdict: Decline) -> None:
        if self._declines.decline_all(bucket, verdict.reason):
            self._more = True

    def _take(self, candidates: list[Bucket]) -> None:
        """Take heads in service order until no bucket can go on."""
        heap = [(bucket.head_key, number, bucket) for number, bucket in enumerate(candidates)]
        heapq.heapify(heap)
        while heap:
            if self._fulfilled >= MAX_FULFILLED or self._launched >= MAX_LAUNCHED:
                self._more = True
                return
            _, number, bucket = heap[0]
            until = min((key for key, _, _ in heap[1:3]), default=None)
            if self._take_head(bucket, until) and len(bucket):
                heapq.heapreplace(heap, (bucket.head_key, number, bucket))
            else:
                heapq.heappop(heap)

    def _take_head(self, bucket: Bucket, until: OrderKey | None) -> bool:
        """Judge and serve the first request of a bucket; False = nothing more of this bucket in this pass.

        :param until: with it more may be taken, as long as their keys are not above this one; None = all.
        """
        kind, request_id = bucket.kind, bucket.head
        # Ready nodes may have gone since the pass began.
        again = triage_kind(kind, self._view)
        if isinstance(again, Wait):
            self._desk.explanations.waits(kind, again.reason)
            return False
        request = self._pool.open_request(request_id)
        if request is None:
            # Taken, finished or gone since the pass began; the record is newer than the queue.
            self._queue.discard(request_id)
            return True
        view = RequestView(self._view, kind, request)
        try:
            verdict = triage(kind, request, view)
            # It is the driver that makes it, and may raise.
            handler = view.handler if isinstance(verdict, Fulfil | Launch) else None
        except ZKConnectionError:
            raise
        except Exception:
            if self._pool.provider_replaced():
                # It was stopped in the middle of this pass: its successor judges in the next one.
                self._wake()
                return False
            # whatever a driver raised, the requests behind this one have their turn.
            self.log.exception("Declining request %s because of an error", request_id)
            self._declines.decline([request_id], ERROR_JUDGING)
            self._launched += 1
            return True
        if handler is not None:
            return self._serve(bucket, handler, verdict, until)
        if isinstance(verdict, Leave):
            self._leave(request, verdict, view)
            return True
        if isinstance(verdict, Decline):
            self._decline(bucket, verdict)
        elif isinstance(verdict, Wait):
            if verdict.first_of_tenant:
                self._view.room.keep_for_tenant(kind, verdict.reason)
            self._desk.explanations.waits(kind, verdict.reason)
        return False

    def _serve(self, bucket: Bucket, handler: NodeRequestHandler, verdict: HeadVerdict, until: OrderKey | None) -> bool:
        if isinstance(verdict, Fulfil) and self._fast_path.takes(handler.request.key):
            self._fast_path.start(handler, verdict.nodes)
            self._view.room.taken(bucket.kind)
            self._fulfilled += 1
            return True
        self._launched += self._batch.launch(bucket, handler, until, MAX_LAUNCHED - self._launched)
        return not self._view.room.paused

    def _leave(self, request: NodeRequest, verdict: Leave, view: RequestView) -> None:
        """It is another pool's turn, or its work already; the bucket goes on."""
        if verdict.reason is FIRST_CHOICE:
            self._view.turns.pass_over(request, view.turns)
        self._desk.defer(request.key, verdict.reason, GRACE_SECONDS, others_turn=True)

    def _take_passed_over(self) -> None:
        """Nodes were left over: requests of others that they can serve are next."""
        for request_id in self._view.turns.end_pass():
            request = self._pool.open_request(request_id)
            if request is not None and self._view.ready.could_serve(request.node_types):
                self._desk.wake(request_id)
                self._queue.put(request)
                self._more = True
