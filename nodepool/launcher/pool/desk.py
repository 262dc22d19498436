# SPDX-License-Identifier: Apache-2.0
"""The requests that a pool works on or has deferred, the stage of each, and the reason for the stage (`Desk`).

A request that only waits in the queue has no case here: its kind has one explanation for all of its requests, so work
and memory follow what the pool does, not the length of the backlog. After the desk come these explanations, how the
latest launches ended, and what is noted of requests that ended.
"""

from __future__ import annotations

import heapq
import re
import statistics
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from nodepool.clock import monotonic, wall_time
from nodepool.metrics import reports
from nodepool.model import reasons, states
from nodepool.model.event import clipped
from nodepool.model.reasons import NEXT_PASS, Reason, ReasonCode
from nodepool.model.request import NodeRequest, parent_of
from nodepool.model.status import FailedLaunch, LaunchesStatus
from nodepool.plan.triage import MIN_READY_REQUESTOR, Progress, RequestKind, RequestQueue, Stage
from nodepool.tracing.spans import ServiceSpans, enabled, ended

if TYPE_CHECKING:
    from nodepool.driver.handler import NodeRequestHandler

#: Seconds after which a request is looked at again whose lock another held.
LOCKED_RETRY_SECONDS: Final = 0.25

#: What is stated of a request in a stage without a reason of its own.
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


@dataclass(slots=True, eq=False)
class Case:
    """What a pool does with one request.

    :param progress: that of the handler, where there is one.
    """

    progress: Progress
    handler: NodeRequestHandler | None = None
    #: Deferred: when to look again (monotonic seconds), and how long that was from the deferral.
    look_again_at: float = 0.0
    delay_seconds: float = 0.0
    #: Deferred: is another look worth nothing even then? Must not block.
    pointless: Callable[[], bool] | None = None
    #: Deferred for another pool: a change of the request is looked at all the same.
    others_turn: bool = False
    #: Of the service, if traces are recorded.
    spans: ServiceSpans | None = None

    @property
    def stage(self) -> Stage:
        return self.progress.stage

    @property
    def reason(self) -> Reason:
        return self.progress.reason or STAGE_REASONS[self.stage]


class Snapshot(NamedTuple):
    """All that a pool can say at one moment.

    :param kinds: requests that wait in the queue: kind, how many, and why.
    :param requests: those that the pool does something with.
    :param declined: the last ones that it declined.
    """

    kinds: list[tuple[RequestKind, int, WaitingKind]]
    requests: list[Explanation]
    declined: list[Explanation]


class Desk:
    """Only the desk writes stages, and the handlers whose `Progress` it shares.

    Owned by the pool worker's thread. Any thread may call `explain` and `snapshot`, whose answers may be old by a pass,
    and `handlers`.

    :param queue: requests that wait.
    """

    def __init__(self, queue: RequestQueue) -> None:
        self._queue = queue
        #: On the fast path, or being locked.
        self._begun: dict[str, Case] = {}
        #: Requests whose lock this pool holds. Apart from the others: each pass goes through these.
        self._locked: dict[str, Case] = {}
        #: Requests that wait for room, kept with each move.
        self._paused: set[str] = set()
        self._deferred: dict[str, Case] = {}
        #: (when, number of the deferral, request id); entries that are not up to date any more are passed over.
        self._due: list[tuple[float, int, str]] = []
        self._deferrals = 0
        #: Why requests wait in the queue, or were declined.
        self.explanations = Explanations()

    # -- requests that are served --

    def open(self, handler: NodeRequestHandler, stage: Stage) -> Case:
        """A request leaves the queue and goes to its first stage.

        :param handler: of a request that the pool may take.
        """
        request_id = handler.request.key
        reason = self._why_it_waited(request_id) if enabled() else None
        self._queue.discard(request_id)
        self._deferred.pop(request_id, None)
        case = self._begun[request_id] = Case(handler.progress, handler)
        case.progress.on_move = self._moved
        if enabled():
            case.spans = ServiceSpans(handler.request, handler.launcher_id, handler.pool.name, reason)
            case.progress.on_move = partial(self._moved_traced, case.spans)
        case.progress.move(stage, wall_time())
        return case

    def move(self, request_id: str, stage: Stage) -> None:
        """Move a request of the fast path, or one that was being locked, to another stage. Raises ImpossibleMove."""
        case = self._begun[request_id]
        if case.progress.stage is stage:
            return
        case.progress.move(stage, wall_time())
        if stage is Stage.GATHERING:
            self._locked[request_id] = case
            del self._begun[request_id]

    def close(self, request_id: str, stage: Stage | None = None) -> None:
        """The handler of a request has ended, or its locks went with the session.

        :param stage: where the request goes at last; None = it is there.
        """
        if stage is not None:
            self.move(request_id, stage)
        self._pop(request_id)

    def _pop(self, request_id: str) -> Case | None:
        case = self._begun.pop(request_id, None) or self._locked.pop(request_id, None)
        if case is not None:
            case.progress.on_move = None
            if case.spans is not None:
                case.spans.end(case.stage)
            self._paused.discard(request_id)
        return case

    def _moved(self, progress: Progress) -> None:
        if progress.stage is Stage.PAUSED:
            self._paused.add(progress.request_id)
        else:
            self._paused.discard(progress.request_id)

    def _moved_traced(self, spans: ServiceSpans, progress: Progress) -> None:
        self._moved(progress)
        spans.moved(progress)

    def _why_it_waited(self, request_id: str) -> Reason | None:
        deferred = self._deferred.get(request_id)
        if deferred is not None:
            return deferred.reason
        bucket = self._queue.bucket_of(request_id)
        return None if bucket is None else self.explanations.of_kind(bucket.kind).reason

    def handlers(self) -> list[NodeRequestHandler]:
        """Handlers of requests whose lock this pool holds, in the order in which they were taken. Any thread."""
        return [case.handler for case in list(self._locked.values()) if case.handler is not None]

    def handler(self, request_id: str) -> NodeRequestHandler | None:
        """The handler of a request whose lock this pool holds. Any thread."""
        case = self._locked.get(request_id)
        return None if case is None else case.handler

    @property
    def paused(self) -> bool:
        """Does a request wait for room? Then no new one is accepted (A-9)."""
        return bool(self._paused)

    def waiting_for_room(self) -> list[NodeRequestHandler]:
        """Handlers of the requests that wait for room."""
        return [handler for handler in map(self.handler, sorted(self._paused)) if handler is not None]

    @property
    def why_paused(self) -> Reason:
        """What the first of the requests that wait for room waits for."""
        # By another thread's look some may have been deleted meanwhile.
        cases = [self._locked[request_id] for request_id in sorted(self._paused)[:1] if request_id in self._locked]
        return reasons.pool_paused(cases[0].progress.request_id, cases[0].reason) if cases else reasons.POOL_PAUSED

    def serves(self, request_id: str) -> bool:
        """Does the pool hold the lock of a request, or is it about to take or fulfil it?"""
        return request_id in self._begun or request_id in self._locked

    def on_fast_path(self, request_id: str) -> bool:
        """Is the pool about to fulfil a request with ready nodes? Any thread."""
        case = self._begun.get(request_id)
        return case is not None and case.progress.stage is not Stage.LOCKING

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
        served = self._pop(request_id)
        progress = None if served is None else served.progress
        if progress is None or progress.stage is Stage.DONE:
            # New to the desk, or ended by a driver in a way of its own.
            progress = Progress(request_id, wall_time())
        case = self._deferred.get(request_id) or Case(progress)
        if case.stage is not Stage.DEFERRED:
            case.progress.move(Stage.DEFERRED, wall_time())
        case.progress.reason = reason
        case.delay_seconds = delay_seconds
        case.look_again_at = monotonic() + delay_seconds
        case.pointless = pointless
        case.others_turn = others_turn
        self._deferred[request_id] = case
        self._deferrals += 1
        heapq.heappush(self._due, (case.look_again_at, self._deferrals, request_id))

    def keeps(self, request_id: str) -> bool:
        """Must a request stay out of the queue, even if it changes?"""
        if self.serves(request_id):
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
        while self._due:
            when, _, request_id = self._due[0]
            case = self._deferred.get(request_id)
            if case is not None and case.look_again_at == when:
                return max(0.0, when - monotonic())
            heapq.heappop(self._due)
        return None

    def take_due(self) -> Iterator[tuple[str, Case, Reason]]:
        """Deferred requests whose time has come, and why. Each is let go alone: an error loses no other one."""
        now, last = monotonic(), self._deferrals
        # What is deferred meanwhile comes after all that were due, and waits for the next time.
        while self._due and self._due[0][0] <= now and self._due[0][1] <= last:
            when, _, request_id = heapq.heappop(self._due)
            case = self._deferred.get(request_id)
            if case is not None and case.look_again_at == when:
                reason = case.reason
                self.wake(request_id)
                yield request_id, case, reason

    # -- why --

    def gone(self, request_id: str) -> None:
        """A request does not exist any more. What its handler holds it lets go of by itself."""
        case = self._deferred.pop(request_id, None)
        if case is not None:
            case.progress.move(Stage.DONE, wall_time())
        self.explanations.of_declined.pop(request_id, None)

    def explain(self, request_id: str) -> Explanation | None:
        """Why a request is where it is; None = the pool knows nothing of it. Any thread."""
        case = self._begun.get(request_id) or self._locked.get(request_id) or self._deferred.get(request_id)
        if case is not None:
            return _explained(case)
        bucket = self._queue.bucket_of(request_id)
        if bucket is None:
            return self.explanations.of_declined.get(request_id)
        waiting = self.explanations.of_kind(bucket.kind)
        ahead = self._queue.place_of(request_id)
        reason = waiting.reason if not ahead else reasons.in_order(ahead + 1, len(bucket), waiting.reason)
        return Explanation(request_id, Stage.WAITING, reason, waiting.since)

    def snapshot(self) -> Snapshot:
        """All that can be stated now. Any thread."""
        buckets = self._queue.buckets()
        kinds = [(bucket.kind, len(bucket), self.explanations.of_kind(bucket.kind)) for bucket in buckets]
        cases = [*self._begun.values(), *self._locked.values(), *self._deferred.values()]
        return Snapshot(kinds, list(map(_explained, cases)), list(self.explanations.of_declined.values()))


def _explained(case: Case) -> Explanation:
    progress = case.progress
    return Explanation(progress.request_id, progress.stage, case.reason, progress.since)


# `Explanations`: why requests wait in the queue, one answer for each kind, and why the last ones were declined.

#: Reasons to wait that are logged. With the others a request is for another pool, or looked at again in a moment.
TOLD: Final = frozenset(
    code
    for code in ReasonCode
    if not code.value.startswith(("turn.", "declined.", "request.", "served.")) and code is not ReasonCode.WAIT_ORDER
)
#: Requests that the pool declined and whose reason it remembers.
MAX_DECLINED: Final = 1000


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

    :param since: when it was stated for the first time, seconds since the epoch.
    """

    reason: Reason
    since: float


class Explanations:
    """Owned by the pool worker's thread. Any thread may read. What it reads may be one pass old."""

    def __init__(self) -> None:
        self._kinds: dict[RequestKind, WaitingKind] = {}
        #: Of the pass before.
        self._said: dict[RequestKind, WaitingKind] = {}
        #: Has something begun to wait, or to wait for something else, since `told` was asked?
        self.fresh = False
        #: The last requests that the pool declined, oldest first, and why.
        self.of_declined: dict[str, Explanation] = {}

    def begin_pass(self) -> None:
        """Forget why the kinds wait; all are judged again."""
        self._said, self._kinds = self._kinds, {}

    def waits(self, kind: RequestKind, reason: Reason) -> None:
        """The requests of a kind wait."""
        before = self._said.get(kind)
        if before is not None and before.reason == reason:
            self._kinds[kind] = before
        else:
            self.fresh = self.fresh or reason.code in TOLD
            same = before is not None and before.reason.code is reason.code
            self._kinds[kind] = WaitingKind(reason, before.since if before is not None and same else wall_time())

    def told(self) -> dict[RequestKind, Reason]:
        """Kinds that wait for something that is worth a line in the log, as the last pass judged them."""
        self.fresh = False
        return {kind: waiting.reason for kind, waiting in self._kinds.items() if waiting.reason.code in TOLD}

    def of_kind(self, kind: RequestKind) -> WaitingKind:
        """Why the requests of a kind wait; the next pass looks at one that was not judged yet."""
        return self._kinds.get(kind) or self._said.get(kind) or WaitingKind(NEXT_PASS, wall_time())

    def declined(self, request_id: str, reason: Reason) -> None:
        """The pool declined a request."""
        self.of_declined.pop(request_id, None)
        while len(self.of_declined) >= MAX_DECLINED:
            del self.of_declined[next(iter(self.of_declined))]
        self.of_declined[request_id] = Explanation(request_id, Stage.DONE, reason, wall_time())


# `LaunchLog`: how the latest launches of a pool ended.

#: Launches that ended longer ago are not counted.
AGE_SECONDS: Final = 900.0
#: Nodes whose errors are remembered.
MAX_ERRORS: Final = 1000
#: Nodes whose consoles are, and bytes of the end of each: they are in the status of the pool.
MAX_CONSOLES: Final = 3
MAX_CONSOLE_BYTES: Final = 4096
#: What a console sends to a terminal beside text (ECMA-48).
_ESCAPES: Final = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|.)")
#: Ready launches of a label of which the usual time follows, and how many it takes at least.
USUAL_OF: Final = 20
USUAL_LEAST: Final = 3


class LaunchLog:
    """Any thread; nothing blocks. ``_lock`` guards all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: When attempts ended, and whether a node was ready.
        self._ended: deque[tuple[float, bool]] = deque()
        self._last_error: FailedLaunch | None = None
        #: Node -> why its last attempt failed, of the last nodes.
        self._errors: dict[str, str] = {}
        self._consoles: dict[str, str] = {}
        #: Label -> seconds that its last launches took.
        self._seconds: dict[str, deque[float]] = {}

    def ready(self, label: str | None = None, begun: float | None = None) -> None:
        """A node is ready.

        :param begun: when its launch began, in seconds since the epoch; None = not known.
        """
        with self._lock:
            now = wall_time()
            self._ended.append((now, True))
            if label is not None and begun is not None:
                self._seconds.setdefault(label, deque(maxlen=USUAL_OF)).append(max(0.0, now - begun))

    def usual(self, label: str) -> float | None:
        """How long a launch of a label takes, in seconds; None = too few were ready since the start."""
        with self._lock:
            known = self._seconds.get(label, ())
            return round(statistics.median(known), 1) if len(known) >= USUAL_LEAST else None

    def failed(self, node_id: str | None, label: str | None, result: str, text: str) -> None:
        """An attempt failed.

        :param result: as in metrics, e.g. ``error.quota``.
        """
        with self._lock:
            now = wall_time()
            self._ended.append((now, False))
            self._last_error = FailedLaunch(result, clipped(text), now, node_id, label)
            self._errors.pop(node_id or "", None)
            while len(self._errors) >= MAX_ERRORS:
                del self._errors[next(iter(self._errors))]
            self._errors[node_id or ""] = clipped(text)

    def keep_console(self, node_id: str, text: str) -> None:
        """Keep the end of the console of a node that failed, without colours and moves of the cursor."""
        plain = "\n".join(_ESCAPES.sub("", text[-4 * MAX_CONSOLE_BYTES :]).splitlines())
        shown = "".join(char if char.isprintable() or char == "\n" else " " for char in plain).strip()
        with self._lock:
            self._consoles.pop(node_id, None)
            self._consoles[node_id] = shown.encode()[-MAX_CONSOLE_BYTES:].decode(errors="ignore")
            while len(self._consoles) > MAX_CONSOLES:
                del self._consoles[next(iter(self._consoles))]

    def consoles(self) -> dict[str, str]:
        """Node -> what is kept of its console."""
        with self._lock:
            return dict(self._consoles)

    def error_of(self, node_id: str) -> str:
        """Why the last attempt to launch a node failed; empty = that is not known, or long ago."""
        with self._lock:
            return self._errors.get(node_id, "")

    def status(self, running: int) -> LaunchesStatus:
        """What is counted now; the last error is shown as long as it is counted.

        :param running: launches in progress.
        """
        with self._lock:
            oldest = wall_time() - AGE_SECONDS
            while self._ended and self._ended[0][0] < oldest:
                self._ended.popleft()
            if self._last_error is not None and self._last_error.at < oldest:
                self._last_error = None
            ready = sum(ready for _, ready in self._ended)
            return LaunchesStatus(running, ready, len(self._ended) - ready, self._last_error)


#: Each request is declined by all pools that do not have its labels: that is no event. These reasons are.
TROUBLE: Final = frozenset(
    {
        ReasonCode.LABEL_BROKEN,
        ReasonCode.IMAGE_MISSING,
        ReasonCode.LAUNCH_FAILED,
        ReasonCode.DRIVER_ERROR,
        ReasonCode.QUOTA_TOO_SMALL,
    }
)


# Requests that this launcher fulfilled or failed, for metrics and traces.

_ENDS: Final = frozenset({states.FULFILLED, states.FAILED})


def note(request: NodeRequest) -> None:
    """Note how long a request waited, if it has ended. No job waits for one of ``min-ready``, or for a part alone.

    Does not block.

    :param request: as it was stored just now, or as it was before it was withdrawn.
    """
    if request.state in _ENDS:
        ended(request, str(request.state))
    elif request.state == states.PENDING:
        # It was withdrawn while it was served.
        ended(request, "cancelled")
    for_itself = request.requestor != MIN_READY_REQUESTOR and parent_of(request) is None
    if request.state in _ENDS and request.created_time is not None and for_itself:
        reports.report_wait(request.node_types, str(request.state), wall_time() - request.created_time)
