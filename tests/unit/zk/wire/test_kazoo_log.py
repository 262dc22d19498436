# SPDX-License-Identifier: Apache-2.0
"""What Kazoo says of each attempt to connect is no warning (rule J-4)."""

from __future__ import annotations

import logging

import pytest

from nodepool.zk.wire.watched_client import KazooLog


@pytest.mark.parametrize(
    ("connected", "text", "level"),
    [
        (False, "Connection dropped: %s", logging.DEBUG),
        (False, "Connection time-out: %s", logging.DEBUG),
        (False, "Cannot resolve %s", logging.DEBUG),
        (True, "Connection dropped: %s", logging.WARNING),
        (False, "Session has expired%s", logging.WARNING),
    ],
)
def test_level(connected: bool, text: str, level: int, caplog: pytest.LogCaptureFixture) -> None:
    """J-4: why a connection that was there broke, and what has another cause, stays a warning."""
    caplog.set_level(logging.DEBUG, "test.kazoo")
    log = KazooLog(logging.getLogger("test.kazoo"), lambda: connected)
    log.warning(text, "refused")
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (level, text % "refused")


def test_other_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "test.kazoo")
    KazooLog(logging.getLogger("test.kazoo"), lambda: False).info("Connection dropped: but not as a warning")
    assert [record.levelname for record in caplog.records] == ["INFO"]
