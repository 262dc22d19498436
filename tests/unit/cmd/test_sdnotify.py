# SPDX-License-Identifier: Apache-2.0
"""nodepool.cmd.daemon: the protocol of sd_notify(3)."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodepool.cmd.daemon import Notifier


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(30)
        yield sock


def test_messages(systemd: socket.socket) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": systemd.getsockname()})
    notifier.ready()
    notifier.watchdog()
    notifier.ready("busy")
    notifier.stopping()
    received = [systemd.recv(1000).decode().splitlines() for _ in range(4)]
    assert received == [
        ["READY=1", "STATUS=serving"],
        ["WATCHDOG=1"],
        ["READY=1", "STATUS=busy"],
        ["STOPPING=1", "STATUS=stopping"],
    ]


def test_reloading_has_a_time(systemd: socket.socket) -> None:
    Notifier({"NOTIFY_SOCKET": systemd.getsockname()}).reloading()
    first, second = systemd.recv(1000).decode().splitlines()
    assert first == "RELOADING=1"
    assert int(second.removeprefix("MONOTONIC_USEC=")) > 0


def test_abstract_socket() -> None:
    name = f"nodepool-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("\0" + name)
        sock.settimeout(30)
        Notifier({"NOTIFY_SOCKET": "@" + name}).watchdog()
        assert sock.recv(100) == b"WATCHDOG=1"


def test_without_systemd_nothing_happens() -> None:
    notifier = Notifier({"WATCHDOG_USEC": "1000000"})
    notifier.ready()
    assert notifier.watchdog_seconds is None


def test_gone_socket_is_no_error(tmp_path: Path) -> None:
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({"WATCHDOG_USEC": "3000000"}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "often"}, None),
        ({}, None),
    ],
)
def test_watchdog_time(environment: dict[str, str], seconds: float | None) -> None:
    assert Notifier({"NOTIFY_SOCKET": "/x", **environment}).watchdog_seconds == seconds
