# SPDX-License-Identifier: Apache-2.0
"""The loop around the passes of a worker (rules G-3, A-19)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from nodepool.exceptions import ZKConnectionError
from nodepool.runtime.worker import Worker
from nodepool.zk.client import ZooKeeperClient
from tests.support.wait import DEADLINE_SECONDS, wait_for


class Passes(Worker):
    """Does what it is told in each pass; None = the last one."""

    error_wait_seconds = 0.01

    def __init__(self, *script: Callable[[], float | None], connected: bool = True) -> None:
        self.link = SimpleNamespace(connected=connected, asked=0)
        self.link.wait_connected = self._answer
        super().__init__("Passes", cast(ZooKeeperClient, self.link), logging.getLogger("test.worker"), 1000.0)
        self.script = list(script)
        self.passes = 0
        self.stopped: Callable[[], object] = lambda: None

    def _answer(self, timeout: float) -> bool:
        self.link.asked += 1
        return bool(self.link.connected)

    def run_once(self) -> float | None:
        self.passes += 1
        if not self.script:
            self.stop()
            return None
        return self.script.pop(0)()

    def on_stop(self) -> None:
        self.stopped()

    def finish(self) -> None:
        self.start()
        self.join(DEADLINE_SECONDS)
        assert not self.is_alive()


def throw(error: BaseException) -> Callable[[], float | None]:
    def step() -> float | None:
        raise error

    return step


@pytest.mark.parametrize("error", [RuntimeError("no way"), SystemExit(3), ZKConnectionError("away")])
def test_no_exception_ends_the_thread(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    """Every thread survives every exception, also a driver's sys.exit()."""
    worker = Passes(throw(error))
    worker.finish()
    assert worker.passes == 2
    assert (
        "Pass interrupted" in caplog.text if isinstance(error, ZKConnectionError) else "Error in a pass" in caplog.text
    )


def test_wake_during_a_pass_is_not_lost() -> None:
    """G-2: what happens during a pass causes another one."""
    worker = Passes()
    worker.script.append(lambda: worker.wake())
    worker.finish()
    assert worker.passes == 2


def test_pass_that_is_due() -> None:
    """G-2: the result of a pass says when the next one is due even if nothing happens."""
    worker = Passes(lambda: 0.0, lambda: -5.0)
    worker.finish()
    assert worker.passes == 3


def test_nothing_is_done_without_a_connection() -> None:
    """G-3: no pass while ZooKeeper is away; then it goes on by itself."""
    worker = Passes(connected=False)
    worker.start()
    wait_for("it looks at the connection", lambda: worker.link.asked > 1)
    assert worker.passes == 0
    worker.link.connected = True
    worker.join(DEADLINE_SECONDS)
    assert worker.passes == 1


def test_closed_connection_is_no_hot_loop() -> None:
    """A client that is being closed does not wait; the worker does."""
    worker = Passes(connected=False)
    begin = time.monotonic()
    worker.start()
    wait_for("it looks several times", lambda: worker.link.asked >= 4)
    assert time.monotonic() - begin > 0.2
    worker.stop()
    worker.join(DEADLINE_SECONDS)


def test_error_in_the_last_words(caplog: pytest.LogCaptureFixture) -> None:
    worker = Passes()
    worker.stopped = throw(RuntimeError("no way"))
    worker.finish()
    assert "Error while stopping" in caplog.text


def test_connection_lost_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    """The session ends anyway: that is no error."""
    worker = Passes()
    worker.stopped = throw(ZKConnectionError("gone"))
    worker.finish()
    assert "Unfinished work was dropped with the ZooKeeper session: gone" in caplog.text
    assert "Traceback" not in caplog.text


def test_stop_between_two_looks() -> None:
    """A thread that is told to end just before a pass ends after it: it does not wait for what is due next."""
    worker = Passes(lambda: None)

    class Link:
        wait_connected = worker.link.wait_connected

        @property
        def connected(self) -> bool:
            worker.stop()
            return True

    worker._client = cast(ZooKeeperClient, Link())
    worker.finish()
    assert worker.passes == 1
