# SPDX-License-Identifier: Apache-2.0
"""Connection checks (rules K, L-16)."""

from __future__ import annotations

import errno
import os
import selectors
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from nodepool.driver.framework.keyscan import ScanFailed
from nodepool.driver.statemachine.scans import EXCHANGE_THREADS, Scans
from tests.support.odd_hosts import closes, odd_host
from tests.support.ports import free_ports
from tests.unit.driver.statemachine.conftest import MakeSite, home


@pytest.fixture
def scans() -> Iterator[Scans]:
    made = Scans("test", ThreadPoolExecutor(EXCHANGE_THREADS))
    yield made
    made.stop()
    made.join()


def test_system_that_is_short_of_something(scans: Scans, monkeypatch: pytest.MonkeyPatch) -> None:
    """K-4: who asks is answered with the error, and the next one is served."""
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


@pytest.mark.parametrize(("address", "listens"), [("127.0.0.1", ""), ("::1", "::1"), ("localhost", "")])
def test_other_connection_types(scans: Scans, address: str, listens: str) -> None:
    """K-2: a TCP connect is enough, also over IPv6, and by name."""
    with odd_host(closes, *([listens] if listens else [])) as host:
        assert scans.scan(address, host.port, 30.0, "winrm").result(60) == ()


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


# -- as part of a launch


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
