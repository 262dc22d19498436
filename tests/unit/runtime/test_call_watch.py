# SPDX-License-Identifier: Apache-2.0
"""Calls of drivers that hang are in the log and in the metrics, while they do."""

from __future__ import annotations

import logging
import socket
import threading
from types import SimpleNamespace

import pytest

from nodepool.driver import gateway
from nodepool.driver.framework.running_calls import LateCall
from nodepool.metrics.catalog import LATE_CALLS
from nodepool.metrics.registry import Registry
from nodepool.runtime.call_watch import MAX_TOLD, CallWatch
from tests.support.wait import DEADLINE_SECONDS, wait_for


def late(seconds: float, about: str = "node-1", *, blocks: bool = True, tell: bool = True) -> LateCall:
    return LateCall("cloud", "launch", about, seconds, "worker", blocks, tell)


@pytest.mark.parametrize(
    ("call", "level"), [(late(1.2), "INFO"), (late(1.2, blocks=False), "WARNING"), (late(10.2), "WARNING")]
)
def test_named(caplog: pytest.LogCaptureFixture, call: LateCall, level: str) -> None:
    caplog.set_level(logging.INFO)
    CallWatch(Registry(), lambda: [call]).run_once()
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("nodepool.driver.gateway", level)
    assert record.getMessage() == (
        f"Provider cloud: launch() has not returned after {call.seconds:.0f} s: node-1, thread worker"
    )


def test_many_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    calls = [late(10.0 + number, f"node-{number}") for number in range(MAX_TOLD + 2)]
    CallWatch(Registry(), lambda: [*calls, late(99.0, tell=False)]).run_once()
    (message,) = caplog.messages
    assert message.startswith("Provider cloud: launch() has not returned after 16 s: node-0, thread worker; node-1,")
    assert message.endswith("; and 2 more")


def test_metrics() -> None:
    """G-16: counted as long as it hangs."""
    registry = Registry()
    calls = [late(5.0), late(6.0, tell=False)]
    watch = CallWatch(registry, lambda: calls)
    watch.run_once()
    series = LATE_CALLS.series(socket.gethostname(), "cloud", "launch")
    assert registry.snapshot() == {series: 2}
    calls.clear()
    watch.run_once()
    assert registry.snapshot() == {}


def test_driver_that_hangs(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """G-16: the call is named before it returns."""
    monkeypatch.setattr(gateway.error_labels, "bound", gateway.error_labels.bound._replace(late_seconds=0.0))
    release, entered = threading.Event(), threading.Event()

    def hang() -> list[str]:
        entered.set()
        release.wait(DEADLINE_SECONDS)
        return []

    provider = SimpleNamespace(name="cloud", errorLabels=hang)
    thread = threading.Thread(target=gateway.error_labels, args=(provider,), name="pool")
    thread.start()
    assert entered.wait(DEADLINE_SECONDS)
    CallWatch(Registry()).run_once()
    release.set()
    thread.join(DEADLINE_SECONDS)
    assert "Provider cloud: errorLabels() has not returned after 0 s: no id, thread pool" in caplog.messages


def test_thread() -> None:
    """It looks once a second, whatever happens."""
    looks: list[int] = []

    def fail() -> list[LateCall]:
        looks.append(1)
        raise SystemExit(3)

    watch = CallWatch(Registry(), fail)
    watch.start()
    wait_for("a look", lambda: looks)
    watch.stop()
    watch.join(DEADLINE_SECONDS)
    assert not watch.is_alive()
