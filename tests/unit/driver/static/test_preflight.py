# SPDX-License-Identifier: Apache-2.0
"""``nodepool check`` of static hosts: all at a time, within a bounded time."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from nodepool.driver.framework.keyscan import ScanFailed
from nodepool.driver.static import checks
from nodepool.driver.static.checks import HostKeysMissing, host_checks
from nodepool.plan.static import HostFacts, HostId, HostSpec


def host(name: str, check: bool = True) -> HostSpec:
    return HostSpec(HostId(name, "zuul", 22), "main", ("small",), check=check)


@pytest.fixture
def go_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Hosts answer by their names; ``slow`` when the event is set."""
    event = threading.Event()

    def check_host(spec: HostSpec, cancelled: threading.Event | None = None) -> HostFacts:
        match spec.id.name:
            case "slow":
                event.wait(30)
            case "down":
                raise ScanFailed("cannot connect to down:22: Connection refused")
            case "unknown":
                raise ScanFailed("cannot resolve unknown: Name or service not known")
            case "other":
                raise HostKeysMissing("zuul@other:22 does not have the configured host key(s): ssh-ed25519 A")
            case "keys":
                return HostFacts(("ssh-ed25519 A", "ssh-rsa B"))
        return HostFacts()

    monkeypatch.setattr(checks, "check_host", check_host)
    yield event
    event.set()


def test_each_host(go_on: threading.Event) -> None:
    hosts = [host("keys"), host("plain"), host("off", check=False), host("down"), host("unknown"), host("other")]
    found = list(host_checks("lab", hosts))
    assert [(result.subject, result.status) for result in found] == [
        ("host zuul@keys:22", "ok"),
        ("host zuul@plain:22", "ok"),
        ("host zuul@off:22", "ok"),
        ("host zuul@down:22", "failed"),
        ("host zuul@unknown:22", "failed"),
        ("host zuul@other:22", "failed"),
    ]
    assert found[0].text == "answers with 2 host keys"
    assert "not contacted" in found[2].text
    assert found[3].text == "cannot connect to down:22: Connection refused"
    assert "connection-port" in found[3].remedy
    assert "name service" in found[4].remedy
    assert "host-key" in found[5].remedy


def test_time_is_bounded(go_on: threading.Event) -> None:
    """A host that says nothing does not keep the others from being told."""
    slow, fast = host_checks("lab", [host("slow"), host("plain")], limit=2.0)
    assert (slow.status, fast.status) == ("failed", "ok")
    assert slow.text == "not looked at within 2 s"


def test_no_hosts() -> None:
    assert list(host_checks("lab", [])) == []
