# SPDX-License-Identifier: Apache-2.0
"""Connection checks (rules K, L-16)."""

from __future__ import annotations

import errno
import os
import queue
import selectors
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from nodepool.driver.framework.keyscan import ScanFailed
from nodepool.driver.statemachine import scans as scans_module
from nodepool.driver.statemachine.scans import EXCHANGE_THREADS, ConnectWaiter, Scans
from nodepool.metrics import reports
from nodepool.metrics.catalog import BOOT, SCAN
from tests.support.counted import Counted
from tests.support.odd_hosts import closes, is_silent, odd_host
from tests.support.ports import free_ports
from tests.support.sshd import SshServer
from tests.support.wait import DEADLINE_SECONDS, wait_for
from tests.unit.driver.statemachine.conftest import MakeSite


@pytest.fixture
def scans() -> Iterator[Scans]:
    made = Scans("test", ThreadPoolExecutor(EXCHANGE_THREADS))
    yield made
    made.stop()
    made.join()


def test_two_hundred_hosts(scans: Scans, sshd: SshServer) -> None:
    """K-2, K-4, K-6: all keys of all hosts, in a handful of threads."""
    before = set(threading.enumerate())
    futures = [
        scans.scan(f"127.2.{number // 100}.{number % 100 + 1}", sshd.port, 120.0, "ssh") for number in range(200)
    ]
    # Each key exchange has a thread of paramiko's own beside that of the pool.
    assert len(set(threading.enumerate()) - before) <= 2 * EXCHANGE_THREADS + 1
    for future in futures:
        assert sorted(future.result(120)) == sorted(sshd.host_keys)


def test_system_that_is_short_of_something(scans: Scans, monkeypatch: pytest.MonkeyPatch) -> None:
    """K-4: who asks is told, and the next one is served."""
    before = set(os.listdir("/proc/self/fd"))

    def none_left(_: object = None) -> None:
        raise OSError(errno.EMFILE, "none left")

    for owner, name in ((selectors, "DefaultSelector"), (os, "pipe"), (threading.Thread, "start")):
        with monkeypatch.context() as full:
            full.setattr(owner, name, none_left)
            with pytest.raises(OSError, match="none left"):
                scans.scan("127.0.0.1", 1, 30.0, "winrm")
    assert set(os.listdir("/proc/self/fd")) == before
    with odd_host(closes, "127.0.0.1") as host:
        assert scans.scan("127.0.0.1", host.port, 30.0, "winrm").result(60) == ()


def test_other_connection_types(scans: Scans) -> None:
    """K-2: a TCP connect is enough, also over IPv6."""
    for address in ("127.0.0.1", "::1"):
        with odd_host(closes, address) as host:
            assert scans.scan(address, host.port, 30.0, "winrm").result(60) == ()


def test_host_that_comes_later(scans: Scans) -> None:
    """K-3: refused connections are tried again."""
    (port,) = free_ports(1)
    future = scans.scan("127.0.0.1", port, 60.0, "winrm")
    wait_for("the first attempt was refused", lambda: not future.done())
    with socket.create_server(("127.0.0.1", port)):
        assert future.result(60) == ()


def test_nobody_comes(scans: Scans) -> None:
    """K-3, K-5: time is up; the text says what was wrong."""
    (port,) = free_ports(1)
    with pytest.raises(ScanFailed, match=rf"127.0.0.1:{port}: Connection refused .*0\.3 s"):
        scans.scan("127.0.0.1", port, 0.3, "ssh").result(60)


def test_names_are_looked_up(scans: Scans) -> None:
    with odd_host(closes) as host:
        assert scans.scan("localhost", host.port, 30.0, "winrm").result(60) == ()
    with pytest.raises(ScanFailed, match="resolve"):
        scans.scan("no-such-host.invalid", 22, 0.3, "ssh").result(60)


def test_hosts_that_hold_the_line(scans: Scans, sshd: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """K-4: hosts that accept and say nothing do not keep the threads from the others."""
    monkeypatch.setattr(scans_module, "SLICE_SECONDS", 0.2)
    with odd_host(is_silent) as host:
        bad = [scans.scan("127.0.0.1", host.port, 1.0, "ssh") for _ in range(2 * EXCHANGE_THREADS)]
        good = scans.scan("127.0.0.1", sshd.port, 60.0, "ssh")
        assert sorted(good.result(60)) == sorted(sshd.host_keys)
        for future in bad:
            with pytest.raises(ScanFailed):
                future.result(60)


def test_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """K-4: more than so many wait for their turn, and their time begins with it."""
    monkeypatch.setattr(scans_module, "MAX_SCANS", 1)
    scans = Scans("test", ThreadPoolExecutor(EXCHANGE_THREADS))
    (port,) = free_ports(1)
    first = scans.scan("127.0.0.1", port, 0.3, "winrm")
    with odd_host(closes) as host:
        second = scans.scan("127.0.0.1", host.port, 30.0, "winrm")
        with pytest.raises(ScanFailed):
            first.result(60)
        assert second.result(60) == ()
    third = scans.scan("127.0.0.1", port, 60.0, "winrm")
    fourth = scans.scan("127.0.0.1", port, 60.0, "winrm")
    scans.stop()
    for future in (third, fourth):
        with pytest.raises(ScanFailed, match="stops"):
            future.result(60)
    scans.join()


def test_waiter_after_stop() -> None:
    waiter = ConnectWaiter("test")
    waiter.stop()
    answers: list[socket.socket | str] = []
    waiter.wait("127.0.0.1", 22, 5.0, answers.append)
    waiter.join()
    assert answers == ["the provider stops"]


def test_waiter_survives_errors(sshd: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever happens in its thread, who waits is answered, and the thread goes on."""
    waiter = ConnectWaiter("test")
    answers: queue.Queue[socket.socket | str] = queue.Queue()

    def fail(_wait: object) -> None:
        raise OSError("no more descriptors to wait for")

    with monkeypatch.context() as broken:
        broken.setattr(waiter, "_attempt", fail)
        waiter.wait("127.0.0.1", sshd.port, 30, answers.put)
        assert answers.get(timeout=DEADLINE_SECONDS) == "an error of the launcher, see its log"
    waiter.wait("127.0.0.1", sshd.port, 30, answers.put)
    connected = answers.get(timeout=DEADLINE_SECONDS)
    assert isinstance(connected, socket.socket)
    connected.close()
    waiter.stop()
    waiter.join()


def test_impossible_addresses(scans: Scans) -> None:
    """What the system refuses at once is tried until the time is up, without a busy loop."""
    for port in (0, 70000):
        with pytest.raises(ScanFailed):
            scans.scan("127.0.0.1", port, 0.2, "winrm").result(60)


def test_no_connection_for_nothing(scans: Scans, sshd: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """K-2: the connection that showed that the host is up serves the first key exchange; each further key needs one."""
    connected: list[object] = []
    connect = socket.socket.connect

    def noting(sock: socket.socket, address: object) -> None:
        connected.append(address)
        connect(sock, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", noting)
    keys = scans.scan("127.0.0.1", sshd.port, 60.0, "ssh").result(60)
    assert len(connected) == len(keys) - 1


def test_stop_before_the_key_exchange(sshd: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection whose turn never comes is closed."""
    scans = Scans("test", ThreadPoolExecutor(EXCHANGE_THREADS))
    held: list[socket.socket] = []
    monkeypatch.setattr(scans, "_submit", lambda scan: held.append(scan.connected))
    scans.scan("127.0.0.1", sshd.port, 60.0, "ssh")
    wait_for("the host is connected", lambda: held)
    scans.stop()
    scans.join()
    assert held[0].fileno() == -1


# -- as part of a launch --


def test_keys_in_the_node(make_site: MakeSite, sshd: SshServer) -> None:
    """K-1, K-6."""
    site = make_site(None, label={"host-key-checking": True, "connection-port": sshd.port})
    boots, scanned = Counted(BOOT), Counted(SCAN)
    (node,) = site.serve("small")
    assert sorted(node.host_keys) == sorted(sshd.host_keys)
    # WP-77: both times are noted.
    assert boots.new() == scanned.new() == {("nowhere",): 1}


def test_no_check(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """K-1: with host-key-checking off nothing is contacted."""
    site = make_site()

    def scan(*arguments: object) -> None:
        raise AssertionError("contacted")

    monkeypatch.setattr(site.provider.scans, "scan", scan)
    boots, scanned = Counted(BOOT), Counted(SCAN)
    (node,) = site.serve("small")
    assert node.host_keys == []
    assert (boots.new(), scanned.new()) == ({("nowhere",): 1}, {})


@pytest.mark.parametrize("console_log", [True, False])
def test_failed_check(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, console_log: bool
) -> None:
    """K-5, L-16: a failed attempt; the console is logged when enabled, and the adapter is told."""
    caplog.set_level("INFO")
    results: list[str] = []
    monkeypatch.setattr(reports, "report", lambda result, *_, **__: results.append(result))
    (port,) = free_ports(1)
    label = {"host-key-checking": True, "connection-port": port, "console-log": console_log}
    site = make_site({"boot-timeout": 0.1, "launch-retries": 2}, label=label)
    site.fail("small")
    assert results == ["error.keyscan"] * 2
    assert len(site.adapter.scan_failures) == 2
    assert len(site.adapter.consoles) == (2 if console_log else 0)
    assert ("Kernel panic" in caplog.text) == console_log
    assert site.cloud.peak == 1
