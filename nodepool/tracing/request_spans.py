# SPDX-License-Identifier: Apache-2.0
"""Spans of a request: the whole of it, and what pools do with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nodepool.clock import wall_time
from nodepool.model import states
from nodepool.model.request_origin import origin_of
from nodepool.plan.request_stage import Progress, Stage
from nodepool.tracing import recorder
from nodepool.tracing.span import AttributeValue, Trace, trace_of

if TYPE_CHECKING:
    from nodepool.model.reasons import Reason
    from nodepool.model.request import NodeRequest

REQUEST: Final = "nodepool.request"
QUEUE: Final = "nodepool.queue"
SERVICE: Final = "nodepool.service"
FULFILMENT: Final = "nodepool.fulfilment"
DECLINE: Final = "nodepool.decline"
#: Stages of a pool that have a span each.
_STAGES: Final = {
    Stage.CHECKING: "nodepool.check",
    Stage.FULFILLING: FULFILMENT,
    Stage.LOCKING: "nodepool.lock",
    Stage.PAUSED: "nodepool.wait",
}


def request_span(request: NodeRequest, trace: Trace) -> int:
    """The id of the span of the whole request, the parent of all others."""
    return recorder.span_id_of(trace, REQUEST, request.id)


def ended(request: NodeRequest, outcome: str) -> None:
    """A request has ended: the span of the whole. Does not block.

    :param outcome: ``fulfilled``, ``failed`` or ``cancelled``.
    """
    if not recorder.enabled():
        return
    now = wall_time()
    begin = now if request.created_time is None else min(request.created_time, now)
    attributes: dict[str, AttributeValue] = {
        "nodepool.request": request.key,
        "nodepool.labels": tuple(request.node_types),
        "nodepool.nodes": tuple(request.nodes),
        "nodepool.outcome": outcome,
        "nodepool.requestor": request.requestor or "",
        "nodepool.event": request.event_id or "",
        **{f"nodepool.{name}": value for name, value in origin_of(request).items()},
    }
    error = "every pool declined it" if outcome == states.FAILED else ""
    recorder.record(trace_of(request), REQUEST, (request.id,), begin, now, error=error, attributes=attributes)


def declined(request: NodeRequest, reason: Reason, pool: str) -> None:
    """A pool has declined a request: a span without length. Does not block.

    :param pool: such as ``cloud-1/main``.
    """
    if not recorder.enabled():
        return
    trace, now = trace_of(request), wall_time()
    recorder.record(
        trace,
        DECLINE,
        (request.id, pool, now),
        now,
        now,
        parent=request_span(request, trace),
        attributes={"nodepool.pool": pool, "nodepool.reason": reason.code.value, "nodepool.text": reason.text},
    )


def fulfilment(request: NodeRequest, begin: float) -> None:
    """A request was fulfilled with nodes that were launched: how long its write took. Does not block.

    :param begin: seconds since the epoch.
    """
    if recorder.enabled():
        trace = trace_of(request)
        parent = request_span(request, trace)
        recorder.record(trace, FULFILMENT, (request.id, begin), begin, wall_time(), parent=parent)


class ServiceSpans:
    """Spans of one pool that serves a request, from the queue on. For the thread of the pool.

    :param launcher_id: of the pool.
    :param reason: why it waited in the queue.
    """

    def __init__(self, request: NodeRequest, launcher_id: str, pool: str, reason: Reason | None) -> None:
        self._trace = trace_of(request)
        self._begin = wall_time()
        self._parent = request_span(request, self._trace)
        self._key = (request.id, launcher_id, self._begin)
        self._id = recorder.span_id_of(self._trace, SERVICE, *self._key)
        self._pool = pool
        self._since = self._begin
        self._reason: Reason | None = None
        #: Of a request that was given back: since then.
        waits_since = request.state_time if request.state == states.REQUESTED else None
        waits_since = waits_since or request.created_time or self._begin
        self._record(QUEUE, min(waits_since, self._begin), self._begin, self._parent, reason)

    def moved(self, progress: Progress) -> None:
        """The request went to another stage. Does not block."""
        now, left = progress.since, progress.moves[-1].origin
        if left in _STAGES:
            self._record(_STAGES[left], self._since, now, self._id, self._reason)
        self._since, self._reason = now, progress.reason

    def end(self, stage: Stage) -> None:
        """The pool has let go of the request. Does not block."""
        recorder.record(
            self._trace,
            SERVICE,
            self._key,
            self._begin,
            wall_time(),
            parent=self._parent,
            attributes={"nodepool.pool": self._pool, "nodepool.stage": stage.value},
        )

    def _record(self, name: str, begin: float, end: float, parent: int, reason: Reason | None) -> None:
        attributes: dict[str, AttributeValue] = {"nodepool.pool": self._pool}
        if reason is not None:
            attributes |= {"nodepool.reason": reason.code.value, "nodepool.text": reason.text}
        recorder.record(self._trace, name, (*self._key, begin), begin, end, parent=parent, attributes=attributes)
