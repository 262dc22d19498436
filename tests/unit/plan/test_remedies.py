# SPDX-License-Identifier: Apache-2.0
"""What an operator can do about a request that waits."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.model import states
from nodepool.model.maintenance import Maintenance, Mode
from nodepool.model.status import FailedLaunch, HostStatus, LaunchesStatus, LimitStatus
from nodepool.plan.explain import explain_request
from tests.support.observed import NOW, component, known, node, request, seen, status, waiting


def remedies(code: str, provider: str = "cloud-1", nodes: Any = (), **told: Any) -> list[str]:
    pool = status(provider, waiting=[waiting("gpu", code=code, text="text")], **told)
    observed = seen(request(7), nodes=known(*nodes), registered=[component(provider, "gpu")], statuses=[pool])
    return list(explain_request(request(7), observed).remedies)


def old(number: int, state: str, seconds: float = 50) -> Any:
    made = node(number, state=state)
    made.state_time, made.tenant_name = NOW - seconds, "t1"
    return made


@pytest.mark.parametrize("code", ["room.instances", "room.cores", "room.ram", "room.resource", "wait.pool-paused"])
def test_room(code: str) -> None:
    """E-8: who has it."""
    nodes = [old(1, states.HOLD), old(2, states.IN_USE, 99), old(3, states.IN_USE, 9000), old(4, states.DELETING, 601)]
    limits = [LimitStatus("cloud", "cores", 80, 72, 8, NOW), LimitStatus("cloud", "ram", 800, 72, 8, NOW)]
    assert remedies(code, nodes=nodes, limits=limits) == [
        "others use 8 of 80 cores of the same cloud quota",
        "nodes on hold take room: 0000000001; nodepool delete 0000000001 frees it",
        "node 0000000003 is in use for the longest time; nodepool explain 0000000003 tells by whom",
        "nodes are being deleted for more than 10 minutes: 0000000004; nodepool explain 0000000004 tells why",
    ]
    assert remedies(code) == []


@pytest.mark.parametrize("code", ["room.tenant", "wait.tenant-order"])
def test_tenant(code: str) -> None:
    assert remedies(code, nodes=[old(1, states.HOLD)]) == [
        "nodes on hold count for tenant t1: 0000000001; nodepool delete 0000000001 ends that",
        "the limits of tenant t1 are in tenant-resource-limits of the configuration",
    ]


def test_static() -> None:
    hosts = [
        HostStatus("zuul@h1:22", False, "no route to host"),
        HostStatus("zuul@h2:22", True),
        HostStatus("zuul@h3:22", True, quarantine="disk"),
    ]
    assert remedies("wait.ready-node", nodes=[old(1, states.IN_USE)], hosts=hosts) == [
        "host zuul@h1:22 is down: no route to host",
        "host zuul@h3:22 is quarantined: disk; nodepool release zuul@h3:22 ends that",
        "node 0000000001 has its host for the longest time; nodepool explain 0000000001 tells for whom",
    ]


def test_circuit() -> None:
    assert remedies("provider.circuit-open", next=NOW + 9) == ["cloud-1/main is tried again in 9 s"]
    assert remedies("provider.circuit-open") == []


@pytest.mark.parametrize(
    ("code", "command"),
    [
        ("provider.paused", "nodepool resume provider cloud-1"),
        ("pool.draining", "nodepool resume pool cloud-1/main"),
    ],
)
def test_maintenance(code: str, command: str) -> None:
    assert remedies(code) == [command]


def test_backing_providers() -> None:
    """T-13: the records that the text names, of whatever kind; not those of others."""
    records = [
        Maintenance("provider", "cloud-2", Mode.PAUSE, "network", "alice@desk"),
        Maintenance("pool", "cloud-3/main", Mode.DRAIN),
        Maintenance("provider", "cloud-4", Mode.PAUSE, "other", "bob@desk"),
    ]
    text = f"nobody makes it: {records[0].text}; {records[1].text}"
    pool = status("shared", waiting=[waiting("gpu", code="backing.held", text=text)])
    observed = seen(request(7), registered=[component("shared", "gpu")], statuses=[pool], maintenance=records)
    assert list(explain_request(request(7), observed).remedies) == [
        "nodepool resume provider cloud-2",
        "nodepool resume pool cloud-3/main",
    ]


def test_others() -> None:
    error = FailedLaunch("error.status", "no flavor", NOW - 5, "0000000009")
    launches = LaunchesStatus(last_error=error)
    assert remedies("launch.failed", launches=launches) == [
        "the last launch that failed there, of node 0000000009: no flavor"
    ]
    assert "max-concurrency of provider cloud-1" in remedies("wait.max-concurrency")[0]
    assert remedies("driver.error") == ["search the log of l1 for 200-0000000007"]
    assert remedies("wait.order") == []


@pytest.mark.parametrize(
    ("code", "what"),
    [("room.static", "add hosts or raise max-parallel-jobs"), ("quota.too-small", "raise the limit")],
)
def test_too_large(code: str, what: str) -> None:
    """E-8: more than the pool can ever have."""
    assert remedies(code) == [
        f"ask for fewer nodes in the nodeset, or {what}; all nodes of a request come from one pool"
    ]
