# SPDX-License-Identifier: Apache-2.0
"""nodepool.driver.framework.quota_support: limits, and a cloud that does not answer (rules Q; reference/driver 12)."""

from __future__ import annotations

import math
import threading

import pytest

from nodepool.driver.framework import quota_support
from nodepool.model.quota import QuotaInformation
from tests.support.manual_clock import ManualClock, monotonic_clock
from tests.support.wait import wait_for
from tests.unit.driver.framework.quota_manager import Manager, compute, make_pool


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The clock of the limits' cache."""
    return monotonic_clock(monkeypatch, quota_support)


# -- limits --


def test_limits_without_what_others_use() -> None:
    """Q-4"""
    manager = Manager()
    manager.unmanaged = QuotaInformation(cores=5, instances=3, ram=1024)
    assert compute(manager.estimatedNodepoolQuota()) == {"cores": 15, "instances": 7, "ram": 19456}


def test_limits_are_kept_for_300_seconds(clock: ManualClock) -> None:
    """Q-5"""
    manager = Manager()
    manager.estimatedNodepoolQuota()
    clock.pass_seconds(299.9)
    manager.estimatedNodepoolQuota()
    assert manager.asked == 1
    clock.pass_seconds(0.1)
    manager.estimatedNodepoolQuota()
    assert manager.asked == 2


def test_quota_error_drops_the_limits(clock: ManualClock) -> None:
    """Q-5"""
    manager = Manager()
    manager.estimatedNodepoolQuota()
    manager.limits = QuotaInformation(cores=1, default=math.inf)
    manager.invalidateQuotaCache()
    assert compute(manager.estimatedNodepoolQuota())["cores"] == 1


def test_error_of_the_cloud_uses_old_limits(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """Q-5"""
    manager = Manager()
    manager.estimatedNodepoolQuota()
    manager.error = OSError("cloud is down")
    clock.pass_seconds(300)
    assert compute(manager.estimatedNodepoolQuota())["cores"] == 20
    assert "cloud is down" in caplog.text
    manager.error = None
    manager.limits = QuotaInformation(cores=2, default=math.inf)
    assert compute(manager.estimatedNodepoolQuota())["cores"] == 20, "a cloud that is down is not asked at every node"
    assert manager.asked == 2
    clock.pass_seconds(quota_support.ERROR_AGE_SECONDS)
    assert compute(manager.estimatedNodepoolQuota())["cores"] == 2


def test_error_without_old_limits() -> None:
    manager = Manager()
    manager.error = OSError("cloud is down")
    with pytest.raises(OSError):
        manager.estimatedNodepoolQuota()


def test_exit_of_a_library(clock: ManualClock) -> None:
    """sys.exit() in a driver's library is an error of the cloud, and it is asked again."""
    manager = Manager()
    manager.error = SystemExit(3)
    with pytest.raises(RuntimeError, match=r"sys.exit\(3\)"):
        manager.estimatedNodepoolQuota()
    manager.error = None
    clock.pass_seconds(quota_support.ERROR_AGE_SECONDS)
    assert compute(manager.estimatedNodepoolQuota())["cores"] == 20


def test_no_thread_to_ask_for_the_limits(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Q-5: the next one asks."""

    def no_thread(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    manager = Manager(make_pool())
    manager.estimatedNodepoolQuota()
    clock.pass_seconds(quota_support.LIMITS_AGE_SECONDS)
    manager.limits = QuotaInformation(cores=40)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        assert manager.estimatedNodepoolQuota().quota["compute"]["cores"] == 20, "the old ones"
    assert "limits not read: can't start new thread" in caplog.text
    assert manager.estimatedNodepoolQuota().quota["compute"]["cores"] == 40


def test_caller_may_change_the_limits() -> None:
    manager = Manager()
    manager.estimatedNodepoolQuota().subtract(QuotaInformation(cores=19))
    assert compute(manager.estimatedNodepoolQuota())["cores"] == 20


# -- a cloud that does not answer --


def test_cloud_that_never_answered(clock: ManualClock) -> None:
    """F-5, Q-1: no reason to refuse a request for ever; there is no room either, and it is not asked all the time."""
    pool = make_pool()
    manager = Manager(pool)
    manager.error = OSError("cloud is down")
    for _ in range(3):
        assert manager.canEverFit(pool, ["small"])
        assert not manager.roomForOne(pool, "small")
    assert manager.asked == 1
    assert not manager.canEverFit(make_pool(max_servers=0), ["small"]), "the limits of the configuration are known"
    manager.error = None
    clock.pass_seconds(quota_support.ERROR_AGE_SECONDS)
    assert manager.roomForOne(pool, "small")


def test_error_is_the_same_for_all(clock: ManualClock) -> None:
    """Whoever asks soon after an error gets it too."""
    manager = Manager()
    manager.error = OSError("cloud is down")
    for _ in range(2):
        with pytest.raises(OSError, match="cloud is down"):
            manager.estimatedNodepoolQuota()
    assert manager.asked == 1


def test_cloud_that_hangs(monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> None:
    """F-5: it is asked once, and waited for only a while; the old limits serve until it answers."""
    monkeypatch.setattr(quota_support, "ANSWER_SECONDS", 0.01)
    pool = make_pool()
    manager = Manager(pool)
    manager.answers.clear()
    for _ in range(3):
        assert manager.canEverFit(pool, ["small"])
        assert not manager.roomForOne(pool, "small")
    manager.answers.set()
    wait_for("there is an answer", lambda: manager.roomForOne(pool, "small"))
    manager.answers.clear()
    clock.pass_seconds(300)
    manager.limits = QuotaInformation(cores=1, default=math.inf)
    for _ in range(3):
        assert manager.roomForOne(pool, "small")
    manager.answers.set()
    wait_for("the new limits count", lambda: not manager.roomForOne(pool, "small"))
    assert manager.asked == 2


def test_quota_error_while_the_cloud_is_asked(monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> None:
    """Q-5: the answer that was under way may be too old."""
    monkeypatch.setattr(quota_support, "ANSWER_SECONDS", 0.01)
    manager = Manager()
    manager.answers.clear()
    with pytest.raises(RuntimeError, match="not told its limits yet"):
        manager.estimatedNodepoolQuota()
    manager.invalidateQuotaCache()
    manager.answers.set()

    def asked_again() -> bool:
        try:
            manager.estimatedNodepoolQuota()
        except RuntimeError:
            return False
        return manager.asked == 2

    wait_for("it is asked again", asked_again)
