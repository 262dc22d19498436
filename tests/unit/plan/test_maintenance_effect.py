# SPDX-License-Identifier: Apache-2.0
"""Which maintenance record holds for what."""

from __future__ import annotations

import pytest

from nodepool.model.maintenance import MODES, Maintenance, MaintenanceRecords, Mode
from nodepool.model.node import Node
from nodepool.model.reasons import ReasonCode
from nodepool.plan import maintenance

NOW = 1000.0
HOSTS = ("l1", "l1.example.com")


def records(*found: Maintenance) -> MaintenanceRecords:
    return {(record.kind, record.name): record for record in found}


def paused(kind: str, name: str, until: float | None = None) -> Maintenance:
    return Maintenance(kind, name, Mode.PAUSE, "why", "alice@desk", 900.0, until)


PROVIDER = paused("provider", "cloud-1")
POOL = paused("pool", "cloud-1/main")
LAUNCHER = paused("launcher", "l1")


def test_of_subject() -> None:
    """MT-9: a record is over at its end, not before."""
    found = records(paused("label", "gpu", until=1001.0))
    assert maintenance.of_subject(found, "label", "gpu", NOW) is not None
    assert maintenance.of_subject(found, "label", "gpu", 1001.0) is None
    assert maintenance.of_subject(found, "provider", "gpu", NOW) is None


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ((), None),
        ((POOL,), POOL),
        ((PROVIDER, POOL), PROVIDER),
        ((PROVIDER, POOL, LAUNCHER), LAUNCHER),
        ((paused("pool", "cloud-2/main"), paused("provider", "cloud"), paused("launcher", "l2")), None),
        ((paused("provider", "cloud-1", until=NOW), POOL), POOL),
    ],
)
def test_of_pool(found: tuple[Maintenance, ...], expected: Maintenance | None) -> None:
    assert maintenance.of_pool(records(*found), HOSTS, "cloud-1", "main", NOW) == expected


def test_of_launcher() -> None:
    drained = Maintenance("launcher", "l1.example.com", Mode.DRAIN)
    assert maintenance.of_launcher(records(LAUNCHER), HOSTS, NOW) == LAUNCHER
    assert maintenance.of_launcher(records(LAUNCHER, drained), HOSTS, NOW) == drained
    assert maintenance.of_launcher(records(LAUNCHER, drained), ["l3"], NOW) is None


def test_of_labels() -> None:
    gpu = paused("label", "gpu")
    held = maintenance.of_labels(records(gpu, paused("label", "small", until=NOW), PROVIDER), NOW)
    assert held == {"gpu": gpu}


def test_of_host() -> None:
    whole = Maintenance("host", "h7", Mode.QUARANTINE)
    one = Maintenance("host", "zuul@h8:22", Mode.QUARANTINE)
    found = records(whole, one)
    assert maintenance.of_host(found, "h7", "zuul", 22, NOW) == whole
    assert maintenance.of_host(found, "h7", None, None, NOW) == whole
    assert maintenance.of_host(found, "h8", "zuul", 22, NOW) == one
    assert maintenance.of_host(found, "h8", "zuul", 2022, NOW) is None


def test_of_node() -> None:
    """T-14: nothing new is put on a node of a provider, pool, label or host that is out of service."""
    node = Node("big")
    node.provider, node.pool, node.hostname = "cloud-1", "main", "h7"
    node.username, node.connection_port = "zuul", 22
    quarantined = Maintenance("host", "zuul@h7:22", Mode.QUARANTINE)
    for record in (PROVIDER, POOL, paused("label", "big"), quarantined):
        assert maintenance.of_node(records(record), node, "big", NOW) == record
    others = (LAUNCHER, paused("label", "small"), paused("pool", "cloud-1/other"), paused("provider", "main"))
    assert maintenance.of_node(records(*others), node, "big", NOW) is None
    assert maintenance.of_node({}, node, "big", NOW) is None


def test_ends() -> None:
    first, second = paused("label", "a", until=1010.0), paused("label", "b", until=1020.0)
    found = records(second, first, PROVIDER)
    assert maintenance.next_end(found, NOW) == 1010.0
    assert maintenance.next_end(found, 1010.0) == 1020.0
    assert maintenance.next_end(records(PROVIDER), NOW) is None
    assert maintenance.ended(found, 1010.0) == [first]
    assert maintenance.ended(found, NOW) == []


def test_reason() -> None:
    reason = maintenance.reason(paused("provider", "cloud-1", until=1010.0))
    assert reason.code is ReasonCode.PROVIDER_PAUSED
    assert reason.text == "provider cloud-1 is paused by alice@desk: why"
    assert reason.numbers == {"since": 900.0, "until": 1010.0}
    assert maintenance.reason(PROVIDER).numbers == {"since": 900.0}


def test_each_record_that_holds_requests_back_has_a_code() -> None:
    """What a request waits for is never unknown."""
    codes = [
        maintenance.reason(Maintenance(kind, "x", mode)).code
        for kind in MODES
        if kind != "host"
        for mode in MODES[kind]
    ]
    assert len(set(codes)) == len(codes)
