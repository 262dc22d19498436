# SPDX-License-Identifier: Apache-2.0
"""Connection checks (rules K, L-16)."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nodepool.driver.framework.keyscan import ScanFailed
from nodepool.driver.statemachine.scans import EXCHANGE_THREADS, Scans
from nodepool.metrics.catalog import BOOT, SCAN
from tests.support.counted import Counted
from tests.support.odd_hosts import closes, is_silent, odd_host
from tests.support.ports import free_ports
from tests.support.sshd import SshServer
from tests.support.wait import wait_for
from tests.unit.driver.statemachine.conftest import MakeSite, home


@pytest.fixture
def scans() -> Iterator[Scans]:
    made = Scans("test", ThreadPoolExecutor(EXCHANGE_THREADS))
    yield made
    made.stop()
    made.join()


def test_many_hosts(scans: Scans, sshd: SshServer) -> None:
    """K-2, K-4, K-6: all keys of all hosts, in a handful of threads."""
    before = set(threading.enumerate())
    futures = [scans.scan(f"127.2.0.{number}", sshd.port, 120.0, "ssh") for number in range(1, 61)]
    # Each key exchange has a thread of paramiko's own beside that of the pool.
    assert len(set(threading.enumerate()) - before) <= 2 * EXCHANGE_THREADS + 1
    for future in futures:
        assert sorted(future.result(120)) == sorted(sshd.host_keys)


def test_system_that_is_short_of_something(scans: Scans, monkeypatch: pytest.MonkeyPatch) -> None:
    """K-4: who asks is answered with the error, and the next one is served."""
    before = set(os.listdir("/proc/self/fd"))

    def none_left(_: object = None) -> None:
        raise OSError(errno.EMFILE, "none left")

    for owner, name in ((asyncio, "SelectorEventLoop"), (threading.Thread, "start")):
        with monkeypatch.context() as full:
            full.setattr(owner, name, none_left)
            with pytest.raises(OSError, match="none left"):
                scans.scan("127.0.0.1", 1, 30.0, "winrm")
    assert set(os.listdir("/proc/self/fd")) == before
    with odd_host(closes, "127.0.0.1") as host:
        assert scans.scan("127.0.0.1", host.port, 30.0, "winrm").result(60) == ()


@pytest.mark.parametrize(("address", "listens"), [("127.0.0.1", ""), ("::1", "::1"), ("localhost", "")])
def test_other_connection_types(scans: Scans, address: str, listens: str) -> None:
    """K-2: a TCP connect is enough, also over IPv6, and by name."""
    with odd_host(closes, *([listens] if listens else [])) as host:
        assert scans.scan(address, host.port, 30.0, "winrm").result(60) == ()


def test_host_that_comes_later(scans: Scans) -> None:
    """K-3: refused connections are tried again."""
    (port,) = free_ports(1)
    future = scans.scan("127.0.0.1", port, 60.0, "winrm")
    wait_for("the first attempt was refused", lambda: not future.done())
    with socket.create_server(("127.0.0.1", port)):
        assert future.result(60) == ()


@pytest.mark.parametrize(
    ("host", "port", "text"),
    [
        ("127.0.0.1", None, r"127.0.0.1:\d+: Connection refused .*0\.3 s"),
        ("no-such-host.invalid", 22, "resolve"),
        ("127.0.0.1", 0, "."),
        ("127.0.0.1", 70000, "."),
    ],
)
def test_host_that_never_answers(scans: Scans, host: str, port: int | None, text: str) -> None:
    """K-3, K-5: time is up; the text says what was wrong."""
    with pytest.raises(ScanFailed, match=text):
        scans.scan(host, free_ports(1)[0] if port is None else port, 0.3, "ssh").result(60)


def test_hosts_that_hold_the_line(scans: Scans, sshd: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """K-4: hosts that accept and send nothing do not keep the threads from the others."""
    monkeypatch.setattr(home(Scans), "SLICE_SECONDS", 0.2)
    with odd_host(is_silent) as host:
        bad = [scans.scan("127.0.0.1", host.port, 1.0, "ssh") for _ in range(2 * EXCHANGE_THREADS)]
        good = scans.scan("127.0.0.1", sshd.port, 60.0, "ssh")
        assert sorted(good.result(60)) == sorted(sshd.host_keys)
        for future in bad:
            with pytest.raises(ScanFailed):
                future.result(60)


def test_queue(scans: Scans, monkeypatch: pytest.MonkeyPatch) -> None:
    """K-4: more than so many wait for their turn, and their time begins with it."""
    monkeypatch.setattr(home(Scans), "MAX_SCANS", 1)
    (port,) = free_ports(1)
    first = scans.scan("127.0.0.1", port, 0.3, "winrm")
    with odd_host(closes) as host:
        second = scans.scan("127.0.0.1", host.port, 30.0, "winrm")
        with pytest.raises(ScanFailed):
            first.result(60)
        assert second.result(60) == ()
    left = [scans.scan("127.0.0.1", port, 60.0, "winrm") for _ in range(2)]
    scans.stop()
    for future in left:
        with pytest.raises(ScanFailed, match="stops"):
            future.result(60)


def test_connection_that_showed_that_the_host_is_up(
    scans: Scans, sshd: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K-2: it serves the first key exchange."""
    connected: list[object] = []
    connect = socket.socket.connect

    def noting(sock: socket.socket, address: Any) -> None:
        connected.append(address)
        connect(sock, address)

    monkeypatch.setattr(socket.socket, "connect", noting)
    keys = scans.scan("127.0.0.1", sshd.port, 60.0, "ssh").result(60)
    # That of the event loop is one of them.
    assert len(connected) == len(keys)


# -- as part of a launch


@pytest.mark.parametrize("checked", [True, False])
def test_keys_in_the_node(make_site: MakeSite, sshd: SshServer, monkeypatch: pytest.MonkeyPatch, checked: bool) -> None:
    """K-1, K-6: with host-key-checking off nothing is contacted. WP-77: both times are noted."""
    site = make_site(None, label={"host-key-checking": checked, "connection-port": sshd.port})
    if not checked:
        monkeypatch.setattr(site.provider.scans, "scan", None)
    boots, scanned = Counted(BOOT), Counted(SCAN)
    (node,) = site.serve("small")
    assert sorted(node.host_keys) == (sorted(sshd.host_keys) if checked else [])
    assert (boots.new(), scanned.new()) == ({("nowhere",): 1}, {("nowhere",): 1} if checked else {})


@pytest.mark.parametrize("console_log", [True, False])
def test_failed_check(make_site: MakeSite, caplog: pytest.LogCaptureFixture, console_log: bool) -> None:
    """K-5, L-16: a failed attempt; the console is logged when enabled, and the adapter hears of it."""
    caplog.set_level("INFO")
    (port,) = free_ports(1)
    label = {"host-key-checking": True, "connection-port": port, "console-log": console_log}
    site = make_site({"boot-timeout": 0.1, "launch-retries": 2}, label=label)
    site.fail("small")
    assert site.results == ["error.keyscan"] * 2
    assert len(site.adapter.scan_failures) == 2
    assert len(site.adapter.consoles) == (2 if console_log else 0)
    assert ("Kernel panic" in caplog.text) == console_log
    assert site.cloud.peak == 1
