# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging

import pytest

from nodepool.metrics.catalog import WEB_CLOSED
from nodepool.metrics.statsd import REGISTRY
from nodepool.web.server import TELL_SECONDS, ClosedConnections, ClosedFor
from tests.support.manual_clock import ManualClock


def test_many_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """WP-66: an attack is seen in the log, and does not fill it; the metric has all of them."""
    clock = ManualClock()
    closed = ClosedConnections(clock)
    series = WEB_CLOSED.series(ClosedFor.HANDSHAKE)
    before = REGISTRY.snapshot().get(series, 0)
    assert isinstance(before, (int, float))
    with caplog.at_level(logging.WARNING, "nodepool.web"):
        for _ in range(500):
            closed.note(ClosedFor.HANDSHAKE)
        closed.note(ClosedFor.CLIENT)
        assert [record.getMessage() for record in caplog.records] == [
            "Connections of web clients were closed since the last message: 1 (handshake)"
        ]
        clock.pass_seconds(TELL_SECONDS)
        closed.note(ClosedFor.HANDSHAKE)
    assert caplog.records[-1].getMessage().endswith(": 500 (handshake), 1 (too many of one client)")
    assert len(caplog.records) == 2
    assert REGISTRY.snapshot()[series] == before + 501
