# SPDX-License-Identifier: Apache-2.0
"""Profiler and growth of objects at SIGUSR2 (reference/commands 4)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from nodepool import log_names
from nodepool.cmd import daemon
from nodepool.cmd.daemon import DebugTools, load_package


class Packages:
    """Stand-ins for yappi and objgraph; ``calls`` are those of yappi."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        statistics = SimpleNamespace(print_all=lambda out: out.write("fulfil 3 0.1 s\n"))
        self.packages: dict[str, Any] = {
            "yappi": SimpleNamespace(
                start=lambda: self.calls.append("start"),
                stop=lambda: self.calls.append("stop"),
                clear_stats=lambda: self.calls.append("clear"),
                get_func_stats=lambda: statistics,
                get_thread_stats=lambda: statistics,
            ),
            "objgraph": SimpleNamespace(show_growth=lambda limit, file: file.write("dict 7 +7\n")),
        }
        self.tools = DebugTools(self.packages.get)

    def signal(self) -> None:
        self.tools.begin()
        self.tools.join()


@pytest.fixture
def packages() -> Packages:
    return Packages()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """First lines of what was logged since the last call."""
    caplog.set_level(logging.DEBUG, log_names.STACK_DUMP)

    def taken() -> list[str]:
        assert {record.name for record in caplog.records} <= {log_names.STACK_DUMP}
        found = caplog.messages[:]
        caplog.clear()
        return found

    return taken


def test_profiler(packages: Packages, lines: Callable[[], list[str]]) -> None:
    """The first signal starts it; the second one prints what it found, and forgets that; and so on."""
    packages.packages["objgraph"] = None
    packages.signal()
    assert packages.calls == ["start"]
    assert [line.partition(";")[0] for line in lines()] == ["Started the profiler (yappi)"]
    packages.signal()
    assert packages.calls == ["start", "stop", "clear"]
    assert lines() == ["Stopped the profiler (yappi):\nfulfil 3 0.1 s\nfulfil 3 0.1 s\n"]
    packages.signal()
    assert packages.calls[3:] == ["start"]


def test_growth(packages: Packages, lines: Callable[[], list[str]]) -> None:
    packages.packages["yappi"] = None
    packages.signal()
    assert lines() == ["Types with more objects than at the last signal:\ndict 7 +7\n"]


def test_not_installed(packages: Packages, lines: Callable[[], list[str]]) -> None:
    packages.packages.clear()
    packages.signal()
    assert lines() == []
    assert load_package("nodepool.no_such_package") is None
    assert load_package("nodepool.cmd.daemon") is daemon


def test_an_error_is_logged(packages: Packages, lines: Callable[[], list[str]]) -> None:
    """The next signal is served."""
    del packages.packages["yappi"].start
    packages.signal()
    assert lines() == ["Profiler and growth of objects: error"]
    packages.packages["yappi"] = None
    packages.signal()
    assert len(lines()) == 1


def test_slow(packages: Packages, lines: Callable[[], list[str]]) -> None:
    """Who handles signals does not wait; a signal that comes meanwhile is ignored."""
    going_on = threading.Event()
    packages.packages["objgraph"].show_growth = lambda limit, file: going_on.wait()
    packages.tools.begin()
    packages.tools.begin()
    going_on.set()
    packages.tools.join()
    assert packages.calls == ["start"]
    assert any("ignored" in line for line in lines())


def test_no_more_threads(packages: Packages, lines: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks what the many threads of a daemon do must not end it."""

    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", no_thread)
        packages.signal()
    assert (packages.calls, lines()) == ([], ["Profiler and growth of objects: can't start new thread"])
    packages.signal()
    assert packages.calls == ["start"]
