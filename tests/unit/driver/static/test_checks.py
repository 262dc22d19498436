# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.static.checks`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from nodepool.driver.framework.keyscan import ScanFailed
from nodepool.driver.static import checks
from nodepool.driver.static.checks import HostChecker
from nodepool.plan.static import HostFacts, HostId, HostSpec

HOSTS = [HostSpec(HostId(f"127.0.0.{number}", "zuul", 22), "main", ("small",)) for number in range(1, 9)]


class Gate:
    """Stands for `check_host`: each check waits for its turn; ``started`` has the hosts in order."""

    def __init__(self) -> None:
        self.open = threading.Semaphore(0)
        self.entered = threading.Semaphore(0)
        self.started: list[HostSpec] = []

    def __call__(self, spec: HostSpec, cancelled: threading.Event | None = None) -> HostFacts:
        self.started.append(spec)
        self.entered.release()
        assert self.open.acquire(timeout=30)
        return HostFacts((f"check {len(self.started)}",))

    def wait_entered(self) -> None:
        assert self.entered.acquire(timeout=30)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    made = Gate()
    monkeypatch.setattr(checks, "check_host", made)
    return made


@pytest.fixture
def checker(gate: Gate) -> Iterator[HostChecker]:
    made = HostChecker("test", 8)
    yield made
    made.stop()
    gate.open.release(100)
    made.join()


def test_hosts_are_checked_in_parallel(gate: Gate, checker: HostChecker) -> None:
    """S-1: one slow host does not delay another."""
    futures = [checker.check(spec) for spec in HOSTS]
    for _ in HOSTS:
        gate.wait_entered()
    gate.open.release(len(HOSTS))
    assert all(future.result(30).host_keys for future in futures)


def test_checks_of_a_host_are_joined(gate: Gate, checker: HostChecker) -> None:
    """S-8: slots that are released together cost one check, which began after each of them was released."""
    first = checker.check(HOSTS[0])
    gate.wait_entered()
    later = [checker.check(HOSTS[0]) for _ in range(5)]
    assert len(gate.started) == 1
    gate.open.release(2)
    assert first.result(30).host_keys == ("check 1",)
    assert {future.result(30).host_keys for future in later} == {("check 2",)}
    assert len(gate.started) == 2


def test_error_of_a_check_goes_to_all_who_asked(checker: HostChecker, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-4: and the host can be checked again afterwards."""
    answers: list[Exception | HostFacts] = [ScanFailed("down"), HostFacts()]

    def check_host(spec: HostSpec, cancelled: threading.Event | None = None) -> HostFacts:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(checks, "check_host", check_host)
    with pytest.raises(ScanFailed, match="down"):
        checker.check(HOSTS[0]).result(30)
    assert checker.check(HOSTS[0]).result(30) == HostFacts()


def test_stop_ends_every_future(gate: Gate, checker: HostChecker) -> None:
    """S-13: what runs ends, what waits is cancelled; nobody waits for ever."""
    running = checker.check(HOSTS[0])
    gate.wait_entered()
    waiting = checker.check(HOSTS[0])
    checker.stop()
    assert waiting.cancelled()
    assert checker.check(HOSTS[1]).cancelled()
    gate.open.release(1)
    assert running.result(30).host_keys == ("check 1",)


def test_submitted_work_always_has_a_result(gate: Gate, checker: HostChecker, caplog: pytest.LogCaptureFixture) -> None:
    """S-9: an error or a stop counts as `otherwise`, so that a request is not lost with it."""

    def broken() -> bool:
        raise ValueError("odd")

    assert checker.submit(lambda: True, False).result(30) is True
    assert checker.submit(broken, False).result(30) is False
    assert "ValueError: odd" in caplog.text
    occupied = [checker.check(spec) for spec in HOSTS]
    for _ in HOSTS:
        gate.wait_entered()
    queued: Future[bool] = checker.submit(lambda: True, False)
    checker.stop()
    assert queued.result(30) is False
    assert checker.submit(lambda: True, False).result(30) is False
    gate.open.release(len(occupied))
