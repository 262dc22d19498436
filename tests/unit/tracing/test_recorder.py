# SPDX-License-Identifier: Apache-2.0
"""Where spans go."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nodepool.tracing import spans
from nodepool.tracing.spans import Span, Trace
from tests.unit.tracing.test_span import SPAN_INFO, request


class Kept:
    """A sink."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def record(self, span: Span) -> None:
        self.spans.append(span)


@pytest.fixture
def kept() -> Iterator[Kept]:
    sink = Kept()
    spans.use(sink)
    yield sink
    spans.stop_using(sink)


def test_nothing_without_a_sink() -> None:
    """TR-1: and nothing is computed for the log."""
    assert not spans.enabled()
    assert spans.log_id(request(SPAN_INFO)) is None


def test_records(kept: Kept) -> None:
    trace = Trace(5, 7)
    span_id = spans.record(trace, "a", (1,), 10.0, 11.0, error="e", attributes={"x": 1})
    assert kept.spans == [Span("a", 5, span_id, 7, 10.0, 11.0, {"x": 1}, "e")]
    assert span_id == spans.span_id_of(trace, "a", 1)


def test_a_clock_that_went_back(kept: Kept) -> None:
    spans.record(Trace(5), "a", (), 10.0, 9.0)
    assert (kept.spans[0].begin, kept.spans[0].end) == (10.0, 10.0)


def test_not_sampled(kept: Kept) -> None:
    """TR-2."""
    spans.record(Trace(5, 7, sampled=False), "a", (), 1.0, 2.0)
    assert kept.spans == []
    assert spans.log_id(request({**SPAN_INFO, "trace_flags": 0})) is None


def test_id_for_the_log(kept: Kept) -> None:
    """TR-5."""
    assert spans.log_id(request(SPAN_INFO)) == f"{SPAN_INFO['trace_id']:032x}"


def test_another_sink_stays(kept: Kept) -> None:
    spans.stop_using(Kept())
    assert spans.enabled()
