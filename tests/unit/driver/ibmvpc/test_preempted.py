# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.ibmvpc.machines`."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.ibmvpc.machines import StoppedInstances
from tests.unit.driver.ibmvpc.test_types import record

PREEMPTED: dict[str, Any] = {
    "status": "stopping",
    "status_reasons": [{"code": "stopped_by_preemption", "message": "IBM needs the capacity"}],
    "availability": {"class": "spot"},
}


def test_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """An instance that IBM took away is named, with the reason, once."""
    stopped = StoppedInstances("south")
    stopped.seen([record()])
    for status in ("stopping", "stopped"):
        stopped.seen([record(**{**PREEMPTED, "status": status})])
    (line,) = caplog.messages
    assert "np0000000042 (spot) of node 0000000042 stopped: stopped_by_preemption: IBM needs the capacity" in line


def test_not_told(caplog: pytest.LogCaptureFixture) -> None:
    """What stopped before the start, and what is somebody else's."""
    stopped = StoppedInstances("south")
    stopped.seen([record(**PREEMPTED)])
    stopped.seen([record(**PREEMPTED), record(**PREEMPTED, id="2", resource_group={"name": "Default"})])
    assert caplog.messages == []
