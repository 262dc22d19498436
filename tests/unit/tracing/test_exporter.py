# SPDX-License-Identifier: Apache-2.0
"""Spans are sent by a thread of its own; who records one never waits."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

import pytest

from nodepool.metrics.catalog import SPANS
from nodepool.metrics.statsd import REGISTRY
from nodepool.tracing import sending as module
from nodepool.tracing.sending import Exporter
from nodepool.tracing.spans import Span
from tests.support.wait import wait_for

SPAN = Span("a", 1, 2, 0, 1.0, 2.0)


class Collector:
    """:param why: it refuses everything."""

    def __init__(self, why: str = "") -> None:
        self.why = why
        self.got: list[Span] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.asked = threading.Event()

    def send(self, spans: Sequence[Span]) -> str:
        self.asked.set()
        self.may_answer.wait(60)
        if not self.why:
            self.got += spans
        return self.why

    def close(self) -> None:
        self.may_answer.set()


def counted(outcome: str) -> float:
    found = REGISTRY.snapshot().get(SPANS.series(outcome), 0.0)
    assert isinstance(found, float | int)
    return found


def test_all_are_sent() -> None:
    """TR-6."""
    before = counted("sent")
    collector = Collector()
    exporter = Exporter(collector, "there")
    exporter.start()
    for _ in range(1200):
        exporter.record(SPAN)
    wait_for("all are sent", lambda: len(collector.got) == 1200)
    exporter.record(SPAN)
    assert exporter.stop(60)
    assert len(collector.got) == 1201
    assert counted("sent") - before == 1201


def test_what_is_too_much_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """TR-6: a collector that does not answer costs spans, and nobody's time."""
    monkeypatch.setattr(module, "MAX_WAITING", 10)
    before = counted("dropped")
    collector = Collector()
    collector.may_answer.clear()
    exporter = Exporter(collector, "there")
    exporter.start()
    exporter.record(SPAN)
    assert collector.asked.wait(60)
    for _ in range(25):
        exporter.record(SPAN)
    assert counted("dropped") - before == 15
    collector.may_answer.set()
    assert exporter.stop(60)
    assert len(collector.got) == 11


def test_the_end_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """TR-7: what waits is lost then, and told."""
    collector = Collector()
    collector.may_answer.clear()
    exporter = Exporter(collector, "there")
    exporter.start()
    exporter.record(SPAN)
    assert collector.asked.wait(60)
    collector.why = "closed"
    exporter.record(SPAN)
    assert not exporter.stop(0.1)
    assert "Spans that were not sent to there before the end" in caplog.text or "Spans cannot be sent" in caplog.text


def test_refused_spans_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    collector = Collector("no")
    exporter = Exporter(collector, "there")
    with caplog.at_level(logging.WARNING):
        exporter.start()
        for number in range(2):
            before = counted("dropped")
            exporter.record(SPAN)
            wait_for(f"span {number} is lost", lambda before=before: counted("dropped") > before)  # type: ignore[misc]
        exporter.stop(60)
    assert caplog.text.count("Spans cannot be sent to there, 1 are lost: no") == 1


def test_an_error_of_the_library_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    collector = Collector()
    exporter = Exporter(collector, "there")
    collector.send = lambda spans: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    exporter.start()
    before = counted("dropped")
    exporter.record(SPAN)
    wait_for("it is lost", lambda: counted("dropped") > before)
    del collector.send
    exporter.record(SPAN)
    wait_for("the next one is sent", lambda: collector.got)
    exporter.stop(60)
    assert "ZeroDivisionError" in caplog.text
