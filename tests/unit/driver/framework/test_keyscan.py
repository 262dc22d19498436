# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.keyscan`, against a real sshd and against hosts that misbehave."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from nodepool.driver.framework import keyscan
from nodepool.driver.framework.keyscan import ScanFailed, ScanResult
from tests.support import odd_hosts
from tests.support.odd_hosts import OddHost, odd_host
from tests.support.ports import free_ports
from tests.support.sshd import SshServer


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def relay(target_port: int) -> Callable[[OddHost, socket.socket], None]:
    """Hands a connection through to a port of 127.0.0.1."""

    def copy(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def behave(host: OddHost, connection: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", target_port)) as target:
            back = threading.Thread(target=copy, args=(target, connection))
            back.start()
            copy(connection, target)
            back.join()

    return behave


@pytest.mark.parametrize("connection_type", ["ssh", "network_cli"])
def test_collects_every_key_type_at_a_nonstandard_port(sshd: SshServer, connection_type: str) -> None:
    """K-2, K-6: one key a key type, as `<type> <base64>`."""
    found = keyscan.scan("127.0.0.7", sshd.port, timeout=30, connection_type=connection_type)
    assert sorted(found.host_keys) == sorted(sshd.host_keys)
    assert (found.public_ipv4, found.public_ipv6) == ("127.0.0.7", None)


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_ipv6(sshd: SshServer) -> None:
    """K-6: IPv6 works."""
    with odd_host(relay(sshd.port), "::1") as host:
        found = keyscan.scan("::1", host.port, timeout=30)
    assert sorted(found.host_keys) == sorted(sshd.host_keys)
    assert (found.public_ipv4, found.public_ipv6) == (None, "::1")


@pytest.mark.parametrize("settings", [{"connection_type": "winrm"}, {"gather_keys": False}])
def test_others_need_only_a_tcp_connection(settings: dict[str, Any]) -> None:
    """K-2: nothing is negotiated with connection types other than SSH, nor for a liveness check."""
    with odd_host(odd_hosts.closes) as host:
        assert keyscan.scan("127.0.0.1", host.port, timeout=30, **settings) == ScanResult((), "127.0.0.1", None)


@pytest.mark.parametrize(
    ("behave", "reason"),
    [
        (odd_hosts.closes, "SSH negotiation failed"),
        # Whichever notices first: the scan, or paramiko's wait for the banner, which gets the time that is left.
        (odd_hosts.is_silent, "no time left|gave up after 0.5 s"),
        (odd_hosts.drips, "no time left|gave up after 0.5 s"),
        (odd_hosts.sends_garbage, "sent more than 256 KiB"),
        (odd_hosts.speaks_http, "SSH negotiation failed"),
        (odd_hosts.announces_a_huge_packet, "no time left|gave up after 0.5 s"),
        (odd_hosts.stops_after_banner, "no time left|gave up after 0.5 s"),
    ],
)
def test_hosts_that_misbehave_fail_in_time(
    behave: Callable[[OddHost, socket.socket], None], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """K-3, K-5: garbage and silence end in one line after the timeout: no thread, descriptor or traceback is left."""
    caplog.set_level(logging.DEBUG)
    threads = threading.active_count()
    with odd_host(behave) as host:
        descriptors = len(os.listdir("/proc/self/fd"))
        with pytest.raises(ScanFailed, match=reason) as failure:
            keyscan.scan("127.0.0.1", host.port, timeout=0.5)
        assert threading.active_count() == threads + 1
    assert len(os.listdir("/proc/self/fd")) < descriptors
    assert "\n" not in str(failure.value)
    assert failure.value.statsd_key == "error.keyscan"
    assert not caplog.records


def test_negotiation_errors_are_tried_again(sshd: SshServer) -> None:
    """K-3: a host that hangs up at first (an sshd with too many connections does) is asked again."""
    through = relay(sshd.port)

    def behave(host: OddHost, connection: socket.socket) -> None:
        if host.connections > 2:
            through(host, connection)

    with odd_host(behave) as host:
        found = keyscan.scan("127.0.0.1", host.port, timeout=30, retry_connect=False)
        assert host.connections == 2 + len(sshd.host_keys)
    assert sorted(found.host_keys) == sorted(sshd.host_keys)


def test_refusal_is_tried_again_until_the_host_is_up() -> None:
    """K-3: an instance that boots refuses connections for a while."""
    port = free_ports(1)[0]
    refused = threading.Event()

    class Patience(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            refused.set()
            return up.wait(30) and False

    up = threading.Event()
    found: list[ScanResult] = []

    def look() -> None:
        found.append(keyscan.scan("127.0.0.1", port, timeout=60, connection_type="winrm", cancelled=Patience()))

    thread = threading.Thread(target=look)
    thread.start()
    assert refused.wait(30)
    with socket.create_server(("127.0.0.1", port)):
        up.set()
        thread.join(30)
    assert found == [ScanResult((), "127.0.0.1", None)]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("127.0.0.1", "cannot connect to 127.0.0.1:{port}: Connection refused"),
        ("bad..name", "cannot resolve bad..name"),
    ],
)
def test_without_retry_the_first_error_ends_it(name: str, reason: str) -> None:
    """S-4: a static host that is down must not occupy a thread; the provider comes back to it."""
    port = free_ports(1)[0]
    with pytest.raises(ScanFailed) as failure:
        keyscan.scan(name, port, timeout=3600, retry_connect=False)
    assert str(failure.value).startswith(reason.format(port=port))


def test_cancelled_scan_makes_no_further_attempt() -> None:
    """K-3: a provider that is stopped does not wait for its scans' timeouts."""
    cancelled = threading.Event()
    cancelled.set()
    with odd_host(odd_hosts.closes) as host, pytest.raises(ScanFailed):
        keyscan.scan("127.0.0.1", host.port, timeout=3600, cancelled=cancelled)
    assert host.connections == 1


def test_many_scans_leave_nothing_behind(sshd: SshServer) -> None:
    """K-4: threads and descriptors are given back, also when many scans run at once."""
    descriptors = len(os.listdir("/proc/self/fd"))
    found: list[int] = []
    threads = [
        threading.Thread(
            target=lambda number=number: found.append(
                len(keyscan.scan(f"127.0.1.{number}", sshd.port, timeout=60).host_keys)
            )
        )
        for number in range(1, 21)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [len(sshd.host_keys)] * 20
    # Fewer: what an earlier test left to the collector has been closed since.
    assert len(os.listdir("/proc/self/fd")) <= descriptors
