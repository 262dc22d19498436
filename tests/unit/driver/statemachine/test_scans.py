# SPDX-License-Identifier: Apache-2.0
"""Connection checks (rules K, L-16)."""

from __future__ import annotations

import base64
import contextlib
import errno
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.clock import monotonic
from nodepool.driver.framework.keyscan import CONNECT_SECONDS, EXCHANGE_SECONDS, CheckFailed, ScanFailed, Scans, scan
from tests.support.odd_hosts import OddHost, closes, is_silent, stops_after_banner, takes_nothing
from tests.support.ports import free_ports
from tests.support.sshd import SshServer
from tests.support.virtual_clock import VirtualClock
from tests.support.wait import wait_for


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


@pytest.mark.parametrize("behave", [is_silent, stops_after_banner])
def test_stop_while_a_host_says_nothing(scans: Scans, behave: Any) -> None:
    """With a long limit, a late key exchange may take minutes."""
    with OddHost(behave) as host:
        future = scans.scan("127.0.0.1", host.port, 600.0, "ssh")
        wait_for("it is connected", lambda: host.connections)
        begun = monotonic()
        scans.stop()
        with pytest.raises(ScanFailed, match="stops"):
            future.result(60)
        assert monotonic() - begun < EXCHANGE_SECONDS / 2


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


def begin(scans: Scans, server: SshServer, command: str, timeout: float, **more: Any) -> Any:
    """A ready-check of a node at a server."""
    node: Any = SimpleNamespace(interface_ip="127.0.0.1", connection_port=server.port, username=server.user)
    vars(node).update((name, value) for name, value in more.items() if hasattr(node, name))
    return scans.check(node, command, timeout, more.get("ready_check_key", str(server.client_key)))


def odd_key() -> str:
    """A private key of an unknown type, as OpenSSH writes it."""
    words = [b"none", b"none", b""]
    head = b"".join(len(word).to_bytes(4) + word for word in words) + (1).to_bytes(4)
    public = b"\0\0\0\x03odd"
    private = (b"\0\0\0\x07" * 2) + public + bytes(range(1, 10))
    private = private[: len(private) // 8 * 8]
    data = b"openssh-key-v1\0" + head + b"".join(len(part).to_bytes(4) + part for part in (public, private))
    lines = base64.encodebytes(data).decode()
    return f"-----BEGIN OPENSSH PRIVATE KEY-----\n{lines}-----END OPENSSH PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    ("command", "more", "reason", "output"),
    [
        ("echo up; echo no disk >&2; exit 3", {}, "^ready-check ended with exit code 3: up no disk$", "up\nno disk\n"),
        ("seq 1 9999; false", {}, "ended with exit code 1: .* 9998 9999$", "\n9998\n9999\n"),
        ("false", {}, "exit code 1: it wrote nothing$", ""),
        ("yes", {}, "^ready-check sent more than 4096 KiB: ", "y\ny\n"),
        ("echo busy; touch {runs}; sleep 60", {}, "^ready-check has not ended in time: busy$", "busy\n"),
        # The server does not answer any more.
        ("s=$PPID; (sleep 20; kill -CONT $s) & touch {runs}; kill -STOP $s", {}, "not ended in time", ""),
        ("kill -9 $$", {}, r"without an exit code \(gave up after 60 s\)$|not ended in time", ""),
        ("true", {"username": "daemon"}, r"could not be run: .*Authentication failed. \(gave up after 60 s\)$", ""),
        ("true", {"ready_check_key": "/none"}, "^ready-check-key /none cannot be used: .*No such file", ""),
        ("true", {"ready_check_key": "odd"}, "^ready-check-key .* cannot be used: Unsupported key type", ""),
        ("true", {"connection_port": is_silent, "timeout": 1.0}, "could not be run: .*gave up after 1 s", ""),
    ],
)
def test_ready_checks_that_fail(
    scans: Scans, sshd: SshServer, tmp_path: Path, command: str, more: dict[str, Any], reason: str, output: str
) -> None:
    """K-7: the limit holds whatever the host does; the reason has the end of the output, which is bounded."""
    clock, runs = VirtualClock(0.1), tmp_path / "runs"
    if more.get("ready_check_key") == "odd":
        # Of a kind that needs a token.
        more = {"ready_check_key": str(tmp_path / "odd")}
        (tmp_path / "odd").write_text(odd_key(), encoding="ascii")
    with contextlib.ExitStack() as around:
        around.enter_context(clock.running())
        if "connection_port" in more:
            more = {**more, "connection_port": around.enter_context(OddHost(is_silent)).port}
        future = begin(scans, sshd, command.format(runs=runs), **{"timeout": 60.0, **more})
        if "{runs}" in command:
            wait_for("it runs", runs.exists)
            clock.pass_seconds(60.0)
        with pytest.raises(CheckFailed, match=reason) as failure:
            future.result(60)
    assert failure.value.output.endswith(output)
    assert len(failure.value.output) <= 2048
    assert failure.value.statsd_key == "error.readycheck"


def test_ready_check_of_a_host_that_takes_nothing(scans: Scans, sshd: SshServer) -> None:
    """K-7: the limit holds, too, if what is sent to it cannot be sent."""
    with OddHost(takes_nothing) as host:
        future = begin(scans, sshd, "true", 5.0, connection_port=host.port)
        with pytest.raises(CheckFailed, match="has not ended in time"):
            future.result(30)


def test_ready_check_of_a_host_with_new_keys(scans: Scans, tmp_path: Path) -> None:
    """K-7: the keys are those that the host has after the check."""
    server = SshServer(tmp_path / "sshd")
    server.start()
    old = scans.scan("127.0.0.1", server.port, 60.0, "ssh").result(60)
    key = tmp_path / "sshd/key_ed25519"
    command = (
        f"rm {key} && ssh-keygen -qt ed25519 -N '' -f {key} && kill -HUP {server.pid} && "
        f'until ssh-keyscan -t ed25519 -p {server.port} 127.0.0.1 | grep -q "$(cut -d" " -f2 {key}.pub)"; do :; done'
    )
    try:
        new = begin(scans, server, command, 60.0).result(60)
    finally:
        server.stop()
    assert sorted(new) == sorted(server.host_keys)
    assert len(set(new) & set(old)) == 2


def test_stop_during_a_ready_check(scans: Scans, sshd: SshServer, tmp_path: Path) -> None:
    """K-7: one that waits for the end of a command does not keep a launcher from its end."""
    future = begin(scans, sshd, f"touch {tmp_path}/runs; sleep 60", 120.0)
    wait_for("it runs", (tmp_path / "runs").exists)
    scans.stop()
    with pytest.raises(ScanFailed, match="the provider stops"):
        future.result(30)
