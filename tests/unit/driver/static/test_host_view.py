# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.static.host_view`, through the provider."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, cast

from nodepool.driver.static.provider import StaticProvider
from nodepool.model import states
from nodepool.model.maintenance import Maintenance, Mode
from nodepool.model.request import NodeRequest
from tests.unit.driver.static.conftest import LABELS, Lab, load

OFF = {"host-key-checking": False}


def test_hosts_are_told(lab: Lab, down_port: Callable[[], int]) -> None:
    """S-15: up, down and since when, what is wrong, and the nodes; no host is left out."""
    port = down_port()
    provider = lab.provider({**OFF, "max-parallel-jobs": 2}, {"name": "127.0.0.2", "connection-port": port})
    assert [(host.up, host.next, host.nodes) for host in provider.hostStatus()] == [(None, None, [])] * 2
    lab.settle(provider)
    lab.zk.change("0000000001", state=states.IN_USE)
    up, down = provider.hostStatus()
    assert (up.name, up.up, up.text, up.next, up.slots) == ("zuul@127.0.0.1:22", True, "", None, 2)
    assert (up.pool, list(up.labels)) == ("main", ["small"])
    assert list(up.nodes) == ["0000000000", "0000000001"]
    assert (down.name, down.up, down.nodes) == (f"zuul@127.0.0.2:{port}", False, [])
    assert "127.0.0.2" in down.text
    assert down.next is not None
    assert down.next == down.since + 1


def test_hosts_of_a_provider_that_has_not_started() -> None:
    """S-15: nothing is known of them yet."""
    (host,) = StaticProvider(load(OFF)).hostStatus()
    assert (host.up, host.nodes) == (None, [])


def test_what_a_request_waits_for(lab: Lab, down_port: Callable[[], int]) -> None:
    """S-15: the hosts with its label, in its pool."""
    down = {"name": "127.0.0.2", "connection-port": down_port(), "labels": list(LABELS[:2])}
    provider = lab.provider({**OFF}, down, {**OFF, "name": "127.0.0.3", "labels": ["other"]})
    text = provider.waitReason("main", ["small"], {}).text
    assert text.startswith("no slot with label small is free: of 2, 2 are not checked yet (zuul@127.0.0.1:22, zuul@")
    lab.settle(provider)
    reason = provider.waitReason("main", ["small"], {"small": 0})
    assert reason.text == (
        f"no slot with label small is free: of 2, 1 is in use and 1 is down (zuul@127.0.0.2:{down['connection-port']})"
    )
    assert provider.waitReason("main", ["other", "other"], {"other": 1}).text == (
        "2 slots with label other are needed: of 1, 1 is free"
    )
    assert provider.waitReason("elsewhere", ["small"], {}).text.endswith("this pool has none")


class Worker:
    """What the provider sees of a pool."""

    wakes = 0

    def wake(self) -> None:
        self.wakes += 1


def test_pools_hear_of_hosts_that_go_and_come(lab: Lab, down_port: Callable[[], int]) -> None:
    """S-15: what a request waits for has changed; nothing is said while all stays as it is."""
    provider = lab.provider(OFF, {"name": "127.0.0.2", "connection-port": down_port()})
    worker = Worker()
    with contextlib.suppress(AttributeError):
        # It is no pool that a handler could be made for.
        provider.getRequestHandler(cast(Any, worker), NodeRequest("200-0000000001"))
    lab.settle(provider)
    wakes = worker.wakes
    assert wakes > 0
    lab.settle(provider)
    assert worker.wakes == wakes
    lab.zk.maintenance.put(Maintenance("host", "127.0.0.1", Mode.QUARANTINE))
    lab.settle(provider)
    assert worker.wakes == wakes + 1
