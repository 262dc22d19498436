# SPDX-License-Identifier: Apache-2.0
"""`WaitingLines`: logs which requests wait, and for what (rule J-6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nodepool.clock import monotonic, wall_time
from nodepool.logconfig import get_annotated_logger
from nodepool.model.request_origin import described, origin_of
from nodepool.plan.reminders import STEPS, Reminders
from nodepool.tracing import recorder

if TYPE_CHECKING:
    import logging

    from nodepool.launcher.pool.desk import Desk
    from nodepool.launcher.pool.pass_context import PassContext
    from nodepool.model.reasons import Reason
    from nodepool.plan.queue import RequestKind, RequestQueue

#: Requests that wait for a shorter time are not logged, in seconds.
FIRST_SECONDS: Final = 2.0
#: Seconds between two looks at the waiting requests.
LOOK_SECONDS: Final = 1.0
#: The most lines that one look logs.
MAX_LINES: Final = 20


class WaitingLines:
    """Owned by the pool worker's thread. There is one line for all requests of a kind."""

    def __init__(self, pool: PassContext, desk: Desk, queue: RequestQueue, log: logging.Logger) -> None:
        self._pool = pool
        self._desk = desk
        self._queue = queue
        self.log = log
        self._kinds: Reminders[RequestKind] = Reminders(FIRST_SECONDS)
        # That they wait for room was logged when that began.
        self._paused: Reminders[str] = Reminders(STEPS[0])
        self._next_look = 0.0

    def tell(self) -> None:
        """Log what is due. For the end of a pass; does not block."""
        now = monotonic()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        reasons = self._desk.explanations.told()
        due = self._kinds.due(reasons, now)
        for kind in due[:MAX_LINES]:
            self._tell_kind(kind, reasons[kind])
        if len(due) > MAX_LINES:
            self.log.info("Waiting: requests of %d more kinds", len(due) - MAX_LINES)
        paused = self._desk.paused_handlers()
        for request_id in self._paused.due(paused, now):
            handler = paused[request_id]
            reason, since = handler.progress.reason, wall_time() - handler.progress.since
            text = "" if reason is None else f": {reason.text}"
            extra = {} if reason is None else {"code": reason.code.value}
            handler.log.info("Pausing for %.0f s already%s", since, text, extra=extra)

    def next_look(self) -> float | None:
        """Seconds until `tell` may have something to log; None = no request waits."""
        # While a request is paused there is a pass each second.
        due = self._next_look if self._desk.explanations.fresh else self._kinds.next_due
        return None if due is None else max(0.0, max(due, self._next_look) - monotonic())

    def _tell_kind(self, kind: RequestKind, reason: Reason) -> None:
        bucket_size = self._queue.count(kind)
        request = self._pool.cache.requests.get(self._queue.oldest(kind) or "")
        if request is None:
            # Taken or gone since the pass.
            return
        log = get_annotated_logger(
            self.log, event_id=request.event_id, node_request_id=request.id, trace_id=recorder.log_id(request)
        )
        waited = "" if request.created_time is None else f" for {max(0.0, wall_time() - request.created_time):.0f} s"
        others = f" with {bucket_size - 1} later ones" if bucket_size > 1 else ""
        extra = {"code": reason.code.value, **origin_of(request)}
        log.info("Waiting%s%s: %s (%s)", waited, others, reason.text, described(request), extra=extra)
