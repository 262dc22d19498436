# SPDX-License-Identifier: Apache-2.0
"""The main loop of a daemon (rules G-1, G-3)."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from nodepool.exceptions import ZKConnectionError
from nodepool.runtime import daemon as runtime_daemon
from nodepool.runtime.daemon import MainLoop


class Waits:
    """Waits that end at once, as if a file had changed."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def open(self) -> None:
        self.calls.append("open")

    def close(self) -> None:
        self.calls.append("close")

    def wait(self, seconds: float) -> None:
        assert seconds <= runtime_daemon.LOOP_SECONDS

    def wake(self) -> None:
        self.calls.append("wake")


class Daemon:
    def __init__(self) -> None:
        self.waits = Waits()
        self.connected = True
        self.error: Exception | None = None
        self.changes: Iterator[bool] = iter([])
        self.turns = 0
        self.loop = MainLoop(
            self.turn, lambda: self.connected, self.changed, self.waits, logging.getLogger("test.loop")
        )

    def turn(self) -> None:
        self.turns += 1
        if self.turns == 3:
            self.loop.stop()
        if self.error is not None:
            raise self.error

    def changed(self) -> bool:
        return bool(next(self.changes, True))


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


@pytest.mark.parametrize("error", [None, ZKConnectionError("away"), RuntimeError("no way")])
def test_turns_before_the_daemon_serves(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """G-1, G-3: without a connection it is not ready, and trouble does not make a busy loop."""
    waits: list[float | None] = []
    monkeypatch.setattr(daemon.loop.stopping, "wait", waits.append)
    daemon.error = error
    daemon.connected = False
    before = daemon.loop.last_turn
    daemon.loop.guarded_turn()
    assert not daemon.loop.ready.is_set()
    assert waits == [runtime_daemon.LOOP_SECONDS]
    assert daemon.loop.last_turn >= before
    if error is None:
        daemon.connected = True
        daemon.loop.guarded_turn()
        assert daemon.loop.ready.is_set()
        assert waits == [runtime_daemon.LOOP_SECONDS]


@pytest.mark.parametrize("error", [None, ZKConnectionError("away"), RuntimeError("no way")])
def test_turns_until_it_is_stopped(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception | None
) -> None:
    """G-1: whatever a turn raises, the next one comes."""
    monkeypatch.setattr(runtime_daemon, "LOOP_SECONDS", 0.0)
    daemon.error = error
    daemon.loop.run()
    assert daemon.turns == 3
    assert daemon.waits.calls == ["open", "wake", "close"]
    assert ("going on" in caplog.text) == isinstance(error, RuntimeError)
    assert ("Main loop interrupted: away" in caplog.text) == isinstance(error, ZKConnectionError)


def test_pause_ends_when_the_configuration_changes(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """G-1: asked for after each wait; and a stop ends it, too."""
    daemon.loop.ready.set()
    daemon.changes = iter([False, False, True])
    monkeypatch.setattr(runtime_daemon, "LOOP_SECONDS", 3600.0)
    assert not daemon.loop.pause()
    assert next(daemon.changes, "all looked at") == "all looked at"
    daemon.loop.stop()
    assert daemon.loop.pause()
