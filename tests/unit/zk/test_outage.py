# SPDX-License-Identifier: Apache-2.0
"""What is logged of a connection that is not there (rule J-4)."""

from __future__ import annotations

import pytest

from nodepool.zk.client import CAUSE_SECONDS, REMIND_SECONDS, Outage

HOSTS = "zk1:2281,zk2:2281"
REFUSED = "ZooKeeper zk1:2281 (zookeeper-servers[0]): connection refused"


@pytest.fixture
def outage() -> Outage:
    made = Outage()
    made.begin(100.0)
    return made


def test_once_and_then_once_a_minute(outage: Outage) -> None:
    """J-4: at once when the cause is known."""
    times = range(100, 100 + 2 * int(REMIND_SECONDS) + 5)
    lines = [(now - 100, line) for now in times if (line := outage.line(float(now), [REFUSED], HOSTS))]
    assert lines == [
        (0, f"No connection to ZooKeeper: {REFUSED}"),
        (60, f"No connection to ZooKeeper for 60 s: {REFUSED}"),
        (120, f"No connection to ZooKeeper for 120 s: {REFUSED}"),
    ]


def test_each_server_has_its_line(outage: Outage) -> None:
    """J-4."""
    assert outage.line(101.0, [REFUSED, "ZooKeeper zk2:2281 (...): no answer"], HOSTS) == (
        f"No connection to ZooKeeper:\n{REFUSED}\nZooKeeper zk2:2281 (...): no answer"
    )


def test_cause_is_waited_for(outage: Outage) -> None:
    """J-4."""
    assert outage.line(100.0 + CAUSE_SECONDS - 1, [], HOSTS) is None
    assert outage.line(100.0 + CAUSE_SECONDS, [], HOSTS) == f"No connection to ZooKeeper: no answer from {HOSTS} yet"


def test_end(outage: Outage) -> None:
    """J-4: what was told is told to be over; what was too short to be told is not."""
    assert outage.end(101.0) is None
    assert outage.line(200.0, [REFUSED], HOSTS) is None
    outage.begin(200.0)
    outage.begin(230.0)
    assert outage.line(231.0, [REFUSED], HOSTS) is not None
    assert outage.end(275.0) == 75.0
    assert outage.end(276.0) is None
