# SPDX-License-Identifier: Apache-2.0
"""nodepool.cmd.session: a command does not wait for ZooKeeper for ever."""

from __future__ import annotations

import io
import signal
import threading
from collections.abc import Callable

import pytest

from nodepool.cmd.session import give_up_without_connection, say_what_is_waited_for
from nodepool.exceptions import ZKConnectionError


def test_lost_connection_ends_the_work() -> None:
    """Also while the main thread waits for an answer that will not come."""
    listeners: list[Callable[[str], None]] = []

    def wait_for_an_answer() -> None:
        listeners[0]("suspended")
        threading.Event().wait(60)

    reasons = ["ZooKeeper zk1:2281 (zookeeper-servers[0]): connection refused"]
    bounded = give_up_without_connection(listeners.append, "zk1:2281", seconds=0.01, why=lambda: reasons)
    with pytest.raises(ZKConnectionError, match=r"ZooKeeper at zk1:2281 was lost\n.*connection refused"), bounded:
        wait_for_an_answer()


def test_command_in_the_background_ends_too() -> None:
    """A shell that starts it with ``&`` has SIGINT ignored."""
    listeners: list[Callable[[str], None]] = []

    def wait_for_an_answer() -> None:
        listeners[0]("lost")
        threading.Event().wait(60)

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        bounded = give_up_without_connection(listeners.append, "zk1:2281", seconds=0.01)
        with pytest.raises(ZKConnectionError), bounded:
            wait_for_an_answer()
    finally:
        signal.signal(signal.SIGINT, before)


def test_connection_that_comes_back_is_fine() -> None:
    listeners: list[Callable[[str], None]] = []
    with give_up_without_connection(listeners.append, "zk1:2281", seconds=60):
        listeners[0]("suspended")
        listeners[0]("lost")
        listeners[0]("connected")
    listeners[0]("suspended")


def test_users_interrupt_stays_one() -> None:
    with pytest.raises(KeyboardInterrupt), give_up_without_connection(lambda listener: None, "zk1:2281"):
        raise KeyboardInterrupt


class Terminal(io.StringIO):
    """Knows when something was written."""

    def __init__(self, terminal: bool = True) -> None:
        super().__init__()
        self.terminal = terminal
        self.told = threading.Event()

    def isatty(self) -> bool:
        return self.terminal

    def flush(self) -> None:
        self.told.set()


def test_terminal_is_told_what_is_waited_for() -> None:
    """And the line is taken back."""
    terminal = Terminal()
    with say_what_is_waited_for("ZooKeeper at zk1:2281", terminal, seconds=0.01):
        assert terminal.told.wait(60)
        assert terminal.getvalue() == "waiting for ZooKeeper at zk1:2281, up to 10 s ..."
    assert terminal.getvalue().endswith("...\r\x1b[2K")


def test_short_wait_is_not_told() -> None:
    terminal = Terminal()
    with say_what_is_waited_for("ZooKeeper", terminal, seconds=3600):
        pass
    assert terminal.getvalue() == ""


def test_file_is_not_told() -> None:
    file = Terminal(terminal=False)
    before = threading.active_count()
    with say_what_is_waited_for("ZooKeeper", file, seconds=0):
        assert threading.active_count() == before
    assert file.getvalue() == ""
