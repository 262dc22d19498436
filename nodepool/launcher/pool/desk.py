# SPDX-License-Identifier: Apache-2.0
"""`Desk`: the requests that a pool has something to do with, the stage of each, and why it is there.

A request that only waits in the queue has no case here: its kind has one explanation for all of its requests, so work
and memory follow what the pool does, not the length of the backlog.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from nodepool.clock import monotonic, wall_time
from nodepool.model import reasons
from nodepool.model.reasons import Reason, ReasonCode
from nodepool.plan.request_stage import LOCKED, Progress, Stage

if TYPE_CHECKING:
    from nodepool.driver.handler import NodeRequestHandler
    from nodepool.plan.queue import RequestKind, RequestQueue

#: Seconds after which a request is looked at again whose lock somebody else held.
LOCKED_RETRY_SECONDS: Final = 0.25
#: Requests that the pool declined and whose reason it remembers.
MAX_DECLINED: Final = 1000

#: What is said of a request in a stage without a reason of its own.
STAGE_REASONS: Final = {
    Stage.WAITING: reasons.NEXT_PASS,
    Stage.DEFERRED: reasons.REQUEST_LOCKED,
    Stage.CHECKING: Reason(ReasonCode.SERVED_CHECKING, "the driver checks its ready nodes"),
    Stage.FULFILLING: Reason(ReasonCode.SERVED_FULFILLING, "it is being fulfilled with ready nodes"),
    Stage.LOCKING: Reason(ReasonCode.SERVED_LOCKING, "it is being locked"),
    Stage.GATHERING: Reason(ReasonCode.SERVED_GATHERING, "its nodes are taken or created"),
    Stage.PAUSED: reasons.NO_ROOM,
    Stage.LAUNCHING: Reason(ReasonCode.SERVED_LAUNCHING, "its nodes are being launched"),
    Stage.ENDING: Reason(ReasonCode.SERVED_ENDING, "it ends when its launches have ended"),
    Stage.DONE: Reason(ReasonCode.SERVED_OVER, "the pool has nothing to do with it any more"),
}


class Case:
    """What a pool does with one request.

    :param progress: that of the handler, where there is one.
    """

    __slots__ = ("delay_seconds", "handler", "look_again_at", "others_turn", "pointless", "progress")

    def __init__(self, progress: Progress, handler: NodeRequestHandler | None = None) -> None:
        self.progress = progress
        self.handler = handler
        #: Deferred: when to look again (monotonic seconds), and how long that was from the deferral.
        self.look_again_at = 0.0
        self.delay_seconds = 0.0
        #: Deferred: is another look worth nothing even then? Must not block.
        self.pointless: Callable[[], bool] | None = None
        #: Deferred for another pool: a change of the request is looked at all the same.
        self.others_turn = False

    @property
    def stage(self) -> Stage:
        return self.progress.stage

    @property
    def reason(self) -> Reason:
        return self.progress.reason or STAGE_REASONS[self.stage]


class DueRequest(NamedTuple):
    """A request that was deferred until now; see `Case`."""

    request_id: str
    reason: Reason
    delay_seconds: float
    pointless: Callable[[], bool] | None


class Explanation(NamedTuple):
    """Why a request is where it is.

    :param since: seconds since the epoch.
    """

    request_id: str
    stage: Stage
    reason: Reason
    since: float


class WaitingKind(NamedTuple):
    """Why the requests of a kind wait.

    :param since: when it was said for the first time, seconds since the epoch.
    """

    reason: Reason
    since: float


class Snapshot(NamedTuple):
    """All that a pool can say at one moment.

    :param counts: number of requests by stage.
    :param kinds: requests that wait in the queue: kind, how many, and why.
    :param requests: those that the pool does something with.
    :param declined: the last ones that it declined.
    """

    counts: dict[Stage, int]
    kinds: list[tuple[RequestKind, int, WaitingKind]]
    requests: list[Explanation]
    declined: list[Explanation]


class Desk:
    """The only writer of stages, together with the handlers whose `Progress` it shares.

    Owned by the pool worker's thread. Any thread may call `counts`, `explain` and `snapshot`, whose answers may be old
    by a pass, and `handlers`.

    :param queue: requests that wait.
    :param clock: monotonic seconds.
    """

    def __init__(self, queue: RequestQueue, clock: Callable[[], float] = monotonic) -> None:
        self._queue = queue
        self._clock = clock
        #: Requests with a handler that has not ended.
        self._served: dict[str, Case] = {}
        self._deferred: dict[str, Case] = {}
        #: (when, number of the deferral, request id); entries that are not up to date any more are passed over.
        self._due: list[tuple[float, int, str]] = []
        self._deferrals = 0
        self._kinds: dict[RequestKind, WaitingKind] = {}
        self._said: dict[RequestKind, WaitingKind] = {}
        self._declined: dict[str, Explanation] = {}

    # -- requests that are served --

    def open(self, handler: NodeRequestHandler, stage: Stage) -> Case:
        """A request leaves the queue and goes to its first stage.

        :param handler: of a request that the pool may take.
        """
        request_id = handler.request.key
        self._queue.discard(request_id)
        self._deferred.pop(request_id, None)
        case = self._served[request_id] = Case(handler.progress, handler)
        case.progress.move(stage, wall_time())
        return case

    def move(self, request_id: str, stage: Stage) -> None:
        """Move a request that is served to another stage in which it is. Raises ImpossibleMove."""
        progress = self._served[request_id].progress
        if progress.stage is not stage:
            progress.move(stage, wall_time())

    def close(self, request_id: str) -> None:
        """The handler of a request has ended, or its locks went with the session."""
        self._served.pop(request_id, None)

    def handlers(self) -> list[NodeRequestHandler]:
        """Handlers of requests whose lock this pool holds, in the order in which they were taken. Any thread."""
        cases = list(self._served.values())
        return [case.handler for case in cases if case.progress.stage in LOCKED and case.handler is not None]

    @property
    def paused(self) -> bool:
        """Does a request wait for room? Then no new one is accepted (A-9)."""
        return any(case.progress.stage is Stage.PAUSED for case in list(self._served.values()))

    def on_fast_path(self, request_id: str) -> bool:
        """Is the pool about to fulfil a request with ready nodes? Any thread."""
        case = self._served.get(request_id)
        return case is not None and case.progress.stage in (Stage.CHECKING, Stage.FULFILLING)

    # -- requests that are deferred --

    def defer(
        self,
        request_id: str,
        reason: Reason,
        delay_seconds: float = LOCKED_RETRY_SECONDS,
        pointless: Callable[[], bool] | None = None,
        *,
        others_turn: bool = False,
    ) -> None:
        """Do not look at a request for a while.

        :param pointless: asked after the delay; true = defer it for as long again. Must not block.
        :param others_turn: another pool is to serve it; a change of the request is looked at all the same.
        """
        self._queue.discard(request_id)
        served = self._served.pop(request_id, None)
        progress = None if served is None else served.progress
        if progress is None or progress.stage is Stage.DONE:
            # New to the desk, or ended by a driver in a way of its own.
            progress = Progress(request_id, wall_time())
        case = self._deferred.get(request_id) or Case(progress)
        if case.stage is not Stage.DEFERRED:
            case.progress.move(Stage.DEFERRED, wall_time())
        case.progress.reason = reason
        case.delay_seconds = delay_seconds
        case.look_again_at = self._clock() + delay_seconds
        case.pointless = pointless
        case.others_turn = others_turn
        self._deferred[request_id] = case
        self._deferrals += 1
        heapq.heappush(self._due, (case.look_again_at, self._deferrals, request_id))

    def keeps(self, request_id: str) -> bool:
        """Must a request stay out of the queue, even if it changes?"""
        if request_id in self._served:
            return True
        case = self._deferred.get(request_id)
        return case is not None and not case.others_turn

    def wake(self, request_id: str) -> None:
        """A deferred request is looked at now."""
        case = self._deferred.pop(request_id, None)
        if case is not None:
            case.progress.move(Stage.WAITING, wall_time())

    def next_look(self) -> float | None:
        """Seconds until a deferred request must be looked at again, or None."""
        self._drop_outdated()
        return max(0.0, self._due[0][0] - self._clock()) if self._due else None

    def take_due(self) -> Iterator[DueRequest]:
        """Deferred requests whose time has come. Each is let go when it is handed out: an error loses no other one."""
        now, last = self._clock(), self._deferrals
        # What is deferred meanwhile comes after all that were due, and waits for the next time.
        while self._due and self._due[0][0] <= now and self._due[0][1] <= last:
            when, _, request_id = heapq.heappop(self._due)
            case = self._deferred.get(request_id)
            if case is not None and case.look_again_at == when:
                due = DueRequest(request_id, case.reason, case.delay_seconds, case.pointless)
                self.wake(request_id)
                yield due

    def _drop_outdated(self) -> None:
        while self._due:
            when, _, request_id = self._due[0]
            case = self._deferred.get(request_id)
            if case is not None and case.look_again_at == when:
                return
            heapq.heappop(self._due)

    # -- why --

    def begin_pass(self) -> None:
        """Forget why the kinds wait; all are judged again."""
        self._said, self._kinds = self._kinds, {}

    def waits(self, kind: RequestKind, reason: Reason) -> None:
        """The requests of a kind wait."""
        before = self._said.get(kind)
        if before is not None and before.reason == reason:
            self._kinds[kind] = before
        else:
            same = before is not None and before.reason.code is reason.code
            self._kinds[kind] = WaitingKind(reason, before.since if before is not None and same else wall_time())

    def news(self) -> Iterator[tuple[RequestKind, Reason]]:
        """Kinds that wait for another reason than in the pass before."""
        for kind, waiting in self._kinds.items():
            if self._said.get(kind) is not waiting:
                yield kind, waiting.reason

    def declined(self, request_id: str, reason: Reason) -> None:
        """The pool declined a request."""
        self._declined.pop(request_id, None)
        while len(self._declined) >= MAX_DECLINED:
            del self._declined[next(iter(self._declined))]
        self._declined[request_id] = Explanation(request_id, Stage.DONE, reason, wall_time())

    def gone(self, request_id: str) -> None:
        """A request does not exist any more. What its handler holds it lets go of by itself."""
        case = self._deferred.pop(request_id, None)
        if case is not None:
            case.progress.move(Stage.DONE, wall_time())
        self._declined.pop(request_id, None)

    def explain(self, request_id: str) -> Explanation | None:
        """Why a request is where it is; None = the pool knows nothing of it. Any thread."""
        case = self._served.get(request_id) or self._deferred.get(request_id)
        if case is not None:
            return _explained(case)
        bucket = self._queue.bucket_of(request_id)
        if bucket is None:
            return self._declined.get(request_id)
        kind = self._kinds.get(bucket.kind) or self._said.get(bucket.kind)
        ahead = self._queue.place_of(request_id)
        if not ahead:
            reason = reasons.NEXT_PASS if kind is None else kind.reason
        else:
            reason = reasons.in_order(ahead + 1, len(bucket), None if kind is None else kind.reason)
        return Explanation(request_id, Stage.WAITING, reason, wall_time() if kind is None else kind.since)

    def counts(self) -> dict[Stage, int]:
        """How many requests are in each stage that has any. Any thread."""
        found = Counter(case.progress.stage for case in [*self._served.values(), *self._deferred.values()])
        if len(self._queue):
            found[Stage.WAITING] += len(self._queue)
        return dict(found)

    def snapshot(self) -> Snapshot:
        """All that can be said now. Any thread."""
        kinds = []
        for bucket in self._queue.buckets():
            waiting = self._kinds.get(bucket.kind) or WaitingKind(reasons.NEXT_PASS, wall_time())
            kinds.append((bucket.kind, len(bucket), waiting))
        cases: Sequence[Case] = [*self._served.values(), *self._deferred.values()]
        return Snapshot(self.counts(), kinds, [_explained(case) for case in cases], list(self._declined.values()))


def _explained(case: Case) -> Explanation:
    progress = case.progress
    return Explanation(progress.request_id, progress.stage, case.reason, progress.since)
