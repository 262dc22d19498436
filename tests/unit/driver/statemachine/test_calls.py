# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.statemachine.calls`: which answers open the circuit breaker."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from nodepool.driver.statemachine import calls as calls_module
from nodepool.driver.statemachine.calls import CloudCalls, said_by
from nodepool.exceptions import CloudUnavailableException, QuotaException, RuntimeConfigurationException
from nodepool.model.quota import QuotaInformation
from nodepool.plan.circuit_breaker import TRIP_FAILURES, TRIP_SECONDS
from tests.support.manual_clock import ManualClock

LOG: Any = logging.LoggerAdapter(logging.getLogger("test"), {})
LABEL: Any = object()


class Cloud:
    """An adapter; ``error`` is raised by everything."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def __getattr__(self, name: str) -> Callable[..., list[Any]]:
        def call(*_: object) -> list[Any]:
            if self.error is not None:
                raise self.error
            return []

        return call


class Calls(CloudCalls):
    """Time passes with each call."""

    def __init__(self) -> None:
        self.cloud = Cloud()
        self.now = 0.0
        self.changes: list[bool] = []
        cloud: Any = self.cloud
        super().__init__("cloud-a", cloud, LOG, self.changes.append, lambda: self.now)

    def ask(self, question: str, error: Exception | None) -> None:
        self.cloud.error = error
        self.now += TRIP_SECONDS
        asks: dict[str, Callable[[], object]] = {
            "instances": self.list_instances,
            "resources": self.list_resources,
            "limits": self.get_quota_limits,
            "need": lambda: self.get_quota_for_label(LABEL),
            "zones": self.get_azs,
            "ready": lambda: self.label_ready(LABEL),
        }
        if error is None:
            asks[question]()
        else:
            with pytest.raises(type(error)):
                asks[question]()


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.mark.parametrize("question", ["instances", "resources", "limits", "need", "zones", "ready"])
def test_every_question_can_begin_a_rest(calls: Calls, question: str, caplog: pytest.LogCaptureFixture) -> None:
    """A cloud that does not answer from the beginning is never listed; other questions show it, too."""
    for _ in range(TRIP_FAILURES):
        calls.ask(question, CloudUnavailableException("the cloud refuses the login"))
    assert calls.circuit_open
    assert calls.changes == [True]
    assert "Provider cloud-a keeps failing" in caplog.text
    assert "refuses the login" in calls.circuit_reason


@pytest.mark.parametrize("question", ["limits", "need", "zones", "ready"])
def test_what_is_remembered_proves_nothing(calls: Calls, question: str) -> None:
    """Only a call that was made now shows that the cloud is back."""
    for _ in range(TRIP_FAILURES):
        calls.ask("limits", CloudUnavailableException("away"))
        calls.ask(question, None)
    assert calls.changes == [True]
    calls.ask("instances", None)
    assert calls.changes == [True, False]


@pytest.mark.parametrize(
    "error", [RuntimeConfigurationException("no such flavor"), QuotaException("full"), KeyError("a mistake")], ids=repr
)
def test_a_label_does_not_stop_the_others(calls: Calls, error: Exception) -> None:
    """Bad input: what is wrong with a label is no reason to leave the whole cloud alone."""
    for _ in range(2 * TRIP_FAILURES):
        calls.ask("need", error)
    assert not calls.circuit_open


@pytest.mark.parametrize("question", ["list_instances", "list_resources", "get_quota_limits", "get_azs"])
def test_driver_that_exits(calls: Calls, question: str) -> None:
    """sys.exit() in a library is an error of the driver; it ends neither the thread nor the asking."""
    calls.cloud.error = SystemExit(3)
    with pytest.raises(RuntimeError, match=r"the driver called sys\.exit\(3\)"):
        getattr(calls, question)()


def test_driver_without_quota(calls: Calls) -> None:
    """Q-2, reference/driver 9: NotImplementedError means unlimited, and says nothing about the cloud."""
    calls.cloud.error = NotImplementedError()
    for _ in range(2 * TRIP_FAILURES):
        calls.now += TRIP_SECONDS
        limits = calls.get_quota_limits()
        limits.subtract(QuotaInformation(cores=10**6, instances=10**6, ram=10**9, gpus=10**6))
        assert limits.non_negative()
        assert calls.get_quota_for_label(LABEL).get_resources() == {"cores": 0, "instances": 1, "ram": 0}
        assert calls.get_azs() == [None]
        assert calls.label_ready(LABEL)
    assert not calls.circuit_open


def test_times_of_the_circuit_breaker(monkeypatch: pytest.MonkeyPatch) -> None:
    """W-2: when it opened, and the next probe, which each failed probe puts off."""
    wall = ManualClock(5000.0)
    monkeypatch.setattr(calls_module, "wall_time", wall)
    calls, error = Calls(), CloudUnavailableException("HTTP 503")
    times = [calls.circuit_times]
    for _ in range(TRIP_FAILURES):
        wall.pass_seconds(TRIP_SECONDS)
        calls.ask("instances", error)
    opened, probe = calls.circuit_times
    assert times == [(None, None)]
    assert opened == wall()
    assert probe is not None
    assert probe > wall()
    wall.pass_seconds(30)
    calls.now += 30
    calls.ask("instances", error)
    still, later = calls.circuit_times
    assert still == opened
    assert later is not None
    assert later > wall() > probe
    calls.ask("instances", None)
    times.append(calls.circuit_times)
    assert times[1] == (None, None)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RuntimeError("Provider cloud-1: listing servers failed: no answer"), "listing servers failed: no answer"),
        (RuntimeError("Provider cloud-2: no answer"), "RuntimeError: Provider cloud-2: no answer"),
        (KeyError("x\ny"), "KeyError: 'x\\ny'"),
        (ValueError("first\nsecond"), "ValueError: first"),
        (ValueError(), "ValueError: "),
    ],
)
def test_what_an_error_says(error: Exception, text: str) -> None:
    """J-7: the provider is not named twice, and the type only where the text may not say enough."""
    assert said_by("cloud-1", error) == text
