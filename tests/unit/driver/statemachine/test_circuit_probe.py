# SPDX-License-Identifier: Apache-2.0
"""The question whether a cloud is back holds up nothing else."""

from __future__ import annotations

import logging
import threading

import pytest

from nodepool.driver.framework.repeats import Repeats
from nodepool.driver.statemachine import circuit_probe
from nodepool.driver.statemachine.instance import Instance
from nodepool.exceptions import CloudUnavailableException
from nodepool.plan.backoff import Backoff
from nodepool.plan.circuit_breaker import TRIP_FAILURES
from tests.support.machine_driver import MachineAdapter
from tests.support.manual_clock import ManualClock
from tests.support.wait import DEADLINE_SECONDS, wait_for
from tests.unit.driver.statemachine.conftest import MakeSite


def test_probe_that_takes_long(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deletions go on, also where these have one thread (reference/driver 9, ``advance_threads``)."""
    monkeypatch.setattr("nodepool.plan.circuit_breaker.TRIP_SECONDS", 0.0)
    monkeypatch.setattr(MachineAdapter, "advance_threads", 1)
    site = make_site()
    (node,) = site.serve("small")
    begun, go_on = threading.Event(), threading.Event()
    in_time: list[bool] = []
    plain = site.adapter.listInstances

    def listed() -> list[Instance]:
        if not begun.is_set():
            begun.set()
            in_time.append(go_on.wait(DEADLINE_SECONDS))
        return list(plain())

    monkeypatch.setattr(site.adapter, "listInstances", listed)
    for _ in range(TRIP_FAILURES):
        site.provider.calls.failed(CloudUnavailableException("down"))
    assert begun.wait(DEADLINE_SECONDS)
    try:
        site.delete(node)
        assert site.zk.getNodes() == []
    finally:
        go_on.set()
    wait_for("the probe is over", lambda: not site.provider.calls.circuit_open and not len(site.provider.scheduler))
    assert in_time == [True], "the deletion waited for the probe"


def test_reminders(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A cloud that stays away is asked often, and the log says so when it begins and then once a minute."""
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    monkeypatch.setattr(circuit_probe, "Repeats", lambda: Repeats(clock=clock))
    monkeypatch.setattr("nodepool.plan.circuit_breaker.TRIP_SECONDS", 0.0)
    monkeypatch.setattr("nodepool.plan.circuit_breaker.PROBE", Backoff(0.01, 0.01))
    site = make_site()
    asked = threading.Semaphore(0)
    back = threading.Event()
    plain = site.adapter.listInstances

    def listed() -> list[Instance]:
        asked.release()
        if not back.is_set():
            raise CloudUnavailableException("down")
        return list(plain())

    monkeypatch.setattr(site.adapter, "listInstances", listed)
    for _ in range(TRIP_FAILURES):
        site.provider.calls.failed(CloudUnavailableException("down"))
    try:
        for _ in range(3):
            assert asked.acquire(timeout=DEADLINE_SECONDS)
        assert "still fails" not in caplog.text
        clock.pass_seconds(61)
        wait_for("a reminder", lambda: "Provider nowhere still fails" in caplog.text)
        for _ in range(3):
            assert asked.acquire(timeout=DEADLINE_SECONDS)
        assert caplog.text.count("still fails") == 1
    finally:
        back.set()
    wait_for("the cloud is back", lambda: not site.provider.calls.circuit_open)
