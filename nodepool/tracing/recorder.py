# SPDX-License-Identifier: Apache-2.0
"""Where spans go, of the whole process: nowhere, until something takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from nodepool.tracing.span import SPAN_ID_BITS, AttributeValue, Span, Trace, derived_id, trace_of

if TYPE_CHECKING:
    from nodepool.model.request import NodeRequest


class SpanSink(Protocol):
    """Takes spans. Must neither block nor raise. Called by any thread."""

    def record(self, span: Span) -> None: ...


_sink: SpanSink | None = None


def use(sink: SpanSink) -> None:
    """Give all spans of this process to a sink from now on."""
    global _sink
    _sink = sink


def stop_using(sink: SpanSink) -> None:
    """Record nothing from now on, unless another sink took its place."""
    global _sink
    if _sink is sink:
        _sink = None


def enabled() -> bool:
    """Are spans recorded? Whoever makes one asks this first: nothing is computed for nobody."""
    return _sink is not None


def record(
    trace: Trace,
    name: str,
    key: tuple[object, ...],
    begin: float,
    end: float,
    *,
    parent: int | None = None,
    error: str = "",
    attributes: Mapping[str, AttributeValue] | None = None,
) -> int:
    """Record a span that has ended. Neither blocks nor raises.

    :param key: makes it differ from others of that name in its trace, such as the id of the node: its id is made of it.
    :param begin, end: seconds since the epoch.
    :param parent: id of the parent span; None = that of the trace.
    :param error: why it failed; empty = it did not.
    :return: the id of the span.
    """
    span_id = span_id_of(trace, name, *key)
    sink = _sink
    if sink is not None and trace.sampled:
        parent_id = trace.parent_id if parent is None else parent
        sink.record(
            Span(name, trace.trace_id, span_id, parent_id, begin, max(begin, end), dict(attributes or {}), error)
        )
    return span_id


def span_id_of(trace: Trace, name: str, *key: object) -> int:
    """The id of a span, also of one that has not ended yet."""
    return derived_id(SPAN_ID_BITS, trace.trace_id, name, *key)


def log_id(request: NodeRequest) -> str | None:
    """The id of a request's trace, for the log; None = nothing is recorded."""
    if _sink is None:
        return None
    trace = trace_of(request)
    return trace.text if trace.sampled else None
