# SPDX-License-Identifier: Apache-2.0
"""Keys of hosts, from a real sshd and from hosts that misbehave; and the offer of a host in the SSH protocol."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from nodepool.driver.framework.keyscan import KexInitReader, ScanFailed, ScanResult, scan
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


def relay(target_port: int, refusals: int = 0) -> Callable[[OddHost, socket.socket], None]:
    """Hands connections through to a port of 127.0.0.1, but for the first ones."""

    def copy(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def behave(host: OddHost, connection: socket.socket) -> None:
        if host.connections <= refusals:
            return
        with socket.create_connection(("127.0.0.1", target_port)) as target:
            back = threading.Thread(target=copy, args=(target, connection))
            back.start()
            copy(connection, target)
            back.join()

    return behave


def test_negotiation_errors_are_tried_again(sshd: SshServer) -> None:
    """K-3: a host that hangs up at first (an sshd with too many connections does) is asked again. K-6: in IPv6."""
    address = "::1" if has_ipv6() else "127.0.0.1"
    with odd_host(relay(sshd.port, refusals=2), address) as host:
        found = scan(address, host.port, timeout=30, retry_connect=False)
        assert host.connections == 2 + len(sshd.host_keys)
    assert sorted(found.host_keys) == sorted(sshd.host_keys)
    assert (found.public_ipv4 or found.public_ipv6) == address


@pytest.mark.parametrize("settings", [{"connection_type": "winrm"}, {"gather_keys": False}])
def test_others_need_only_a_tcp_connection(settings: dict[str, Any]) -> None:
    """K-2: nothing is negotiated with connection types other than SSH, nor for a liveness check."""
    with odd_host(odd_hosts.closes) as host:
        assert scan("127.0.0.1", host.port, timeout=30, **settings) == ScanResult((), "127.0.0.1", None)


@pytest.mark.parametrize(
    ("behave", "reason"),
    [
        (odd_hosts.closes, "SSH negotiation failed"),
        (odd_hosts.speaks_http, "SSH negotiation failed"),
        (odd_hosts.sends_garbage, "sent more than 256 KiB"),
        # Whichever notices first: the scan, or paramiko's wait for the banner, which gets the time that is left.
        *(
            (behave, "no time left|gave up after 0.5 s")
            for behave in (
                *(odd_hosts.is_silent, odd_hosts.drips),
                *(odd_hosts.announces_a_huge_packet, odd_hosts.stops_after_banner),
            )
        ),
    ],
)
def test_hosts_that_misbehave(behave: Any, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    """K-3, K-5: garbage and silence end in one line after the timeout: no thread, descriptor or traceback is left."""
    caplog.set_level(logging.DEBUG)
    threads = threading.active_count()
    # Its first attempt says what is wrong; the last of many may end because the time is over.
    once = threading.Event()
    if behave is odd_hosts.sends_garbage:
        once.set()
    with odd_host(behave) as host:
        descriptors = len(os.listdir("/proc/self/fd"))
        with pytest.raises(ScanFailed, match=reason) as failure:
            scan("127.0.0.1", host.port, timeout=30 if once.is_set() else 0.5, cancelled=once)
        assert threading.active_count() == threads + 1
    assert len(os.listdir("/proc/self/fd")) < descriptors
    assert "\n" not in str(failure.value)
    assert failure.value.statsd_key == "error.keyscan"
    assert not caplog.records


def test_refusal_is_tried_again_until_the_host_is_up() -> None:
    """K-3: an instance that boots refuses connections for a while."""
    port = free_ports(1)[0]
    servers: list[socket.socket] = []

    class Patience(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            servers.append(socket.create_server(("127.0.0.1", port)))
            return False

    found = scan("127.0.0.1", port, timeout=60, connection_type="winrm", cancelled=Patience())
    assert found == ScanResult((), "127.0.0.1", None)
    assert len(servers) == 1
    servers[0].close()


# -- the offer of a host --


def kexinit(*algorithms: str) -> bytes:
    """RFC 4253 7.1, with a packet around it."""
    lists = ["curve25519-sha256", ",".join(algorithms), "aes128-ctr"]
    payload = b"\x14" + bytes(16) + b"".join(len(text).to_bytes(4) + text.encode() for text in lists)
    return (len(payload) + 5).to_bytes(4) + b"\x04" + payload + bytes(4)


STREAM = b"SSH-2.0-test\r\n" + kexinit("ssh-ed25519", "rsa-sha2-512")


def read(*chunks: bytes) -> tuple[str, ...]:
    reader = KexInitReader()
    for chunk in chunks:
        reader.feed(chunk)
    return reader.key_algorithms


@pytest.mark.parametrize("size", [1, 2, 7, 100, 10_000])
def test_offer_in_any_pieces(size: int) -> None:
    """K-2: RFC 4253 4.2 allows lines before the identification; only the first packet counts."""
    stream = b"welcome\r\nno SSH- here\r\n" + STREAM + kexinit("ssh-rsa") + b"\x00" * 1000
    assert read(*(stream[at : at + size] for at in range(0, len(stream), size))) == ("ssh-ed25519", "rsa-sha2-512")


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"SSH-2.0-x\r\n", b"SSH-2.0-x\r\n\x00\x00\x00\x0c\x04\x01bye", b"no newline " * 20000),
        *(b"SSH-2.0-x\r\n\xff\xff\xff\xff\x04\x14", b"SSH-2.0-x\r\n\x00\x00\x00\x02\xff\x14\x00"),
    ],
)
def test_streams_that_make_no_sense(data: bytes) -> None:
    """K-2: a host may send anything."""
    assert read(data) == ()
