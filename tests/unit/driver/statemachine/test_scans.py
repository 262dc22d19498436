# SPDX-License-Identifier: Apache-2.0
"""Connection checks (rules K, L-16)."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nodepool.clock import monotonic
from nodepool.driver.framework.keyscan import CONNECT_SECONDS, ScanFailed, Scans, scan
from tests.support.odd_hosts import OddHost, closes
from tests.support.ports import free_ports


@pytest.fixture
def scans() -> Iterator[Scans]:
    made = Scans(ThreadPoolExecutor(1, thread_name_prefix="test"))
    yield made
    made.stop()
    made.join()


def test_queue(scans: Scans) -> None:
    """K-4: those for which there is no thread wait for their turn, and their time begins with it."""
    (port,) = free_ports(1)
    first = scans.scan("127.0.0.1", port, 0.3, "winrm")
    with OddHost(closes) as host:
        second = scans.scan("127.0.0.1", host.port, 30.0, "winrm")
        with pytest.raises(ScanFailed):
            first.result(60)
        assert second.result(60) == ()
    left = [scans.scan("127.0.0.1", port, 60.0, "winrm") for _ in range(2)]
    scans.stop()
    left.append(scans.scan("127.0.0.1", port, 60.0, "winrm"))
    for future in left:
        with pytest.raises(ScanFailed, match="stops"):
            future.result(60)


def test_stop_while_a_host_boots(scans: Scans) -> None:
    """One that swallows packets: its queue is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, contextlib.ExitStack() as clients:
        place = full.getsockname()
        for _ in range(4):
            client = clients.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(place)
        future = scans.scan("127.0.0.1", place[1], 60.0, "ssh")
        with pytest.raises(TimeoutError):
            future.result(0.1)
        begun = monotonic()
        scans.stop()
        with pytest.raises(ScanFailed, match="stops"):
            future.result(60)
        assert monotonic() - begun < CONNECT_SECONDS / 2


def test_turns() -> None:
    """A host that waits for its turn loses no time by it, and no connection when it is stopped."""
    turns, cancelled = threading.Semaphore(0), threading.Event()
    given: dict[str, Any] = {"timeout": 1.0, "cancelled": cancelled, "turns": turns}
    with OddHost(closes) as host, ThreadPoolExecutor(1) as executor:
        future = executor.submit(scan, "127.0.0.1", host.port, **given)
        with pytest.raises(TimeoutError):
            future.result(1.2)
        turns.release()
        with pytest.raises(ScanFailed, match=r"SSH negotiation failed.*gave up"):
            future.result(60)
        assert turns.acquire(blocking=False)
        cancelled.set()
        with pytest.raises(ScanFailed, match="the scan was cancelled"):
            scan("127.0.0.1", host.port, **given)


def test_descriptors_that_are_short(scans: Scans, monkeypatch: pytest.MonkeyPatch) -> None:
    """K-3: an attempt without a socket is followed by another one: it is no failure of the cloud."""
    made, lacks = socket.socket, [OSError(errno.EMFILE, "Too many open files")]

    def make(*arguments: object, **more: object) -> socket.socket:
        if lacks and threading.current_thread().name.startswith("test"):
            raise lacks.pop()
        return made(*arguments, **more)  # type: ignore[arg-type]

    with OddHost(closes) as host:
        monkeypatch.setattr(socket, "socket", make)
        assert scans.scan("127.0.0.1", host.port, 30.0, "winrm").result(60) == ()
    assert not lacks
