# SPDX-License-Identifier: Apache-2.0
"""The gauges that a launcher sends of itself: limits as configured now, circuit breakers, its connection."""

from __future__ import annotations

import math
import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.launcher.stats import make_stats_worker
from nodepool.metrics.statsd_sink import statsd_names


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the worker is given; a test changes it."""
    monkeypatch.setattr(socket, "gethostname", lambda: "nl01.example.com")
    cache = SimpleNamespace(
        nodes=SimpleNamespace(values=list, pending_reads=4),
        requests=SimpleNamespace(values=list, pending_reads=0),
        pools=SimpleNamespace(values=list),
    )
    return SimpleNamespace(
        cache=cache,
        zk=SimpleNamespace(client=SimpleNamespace(queued_calls=3, connected=False), cache=cache),
        providers=SimpleNamespace(running={"lab": SimpleNamespace(pausedReason=lambda: "the cloud keeps failing")}),
        config=SimpleNamespace(
            providers={"lab": pools(2, 3), "open": pools(5, None)}, tenant_resource_limits={"acme": {"cores": 8}}
        ),
    )


def pools(*max_servers: int | None) -> SimpleNamespace:
    named = {str(number): SimpleNamespace(max_servers=limit) for number, limit in enumerate(max_servers)}
    return SimpleNamespace(pools=named)


def own_gauges(launcher: SimpleNamespace) -> dict[str, float]:
    given = (launcher.zk, launcher.cache, launcher.providers, lambda: launcher.config)
    worker = make_stats_worker(cast(Any, None), *cast(Any, given))
    return {
        name: value
        for series, value in {**worker._limits(), **worker._internals()}.items()
        for name in statsd_names(series)
    }


def test_own_gauges(launcher: SimpleNamespace) -> None:
    values = own_gauges(launcher)
    assert values["nodepool.provider.lab.max_servers"] == 5
    assert values["nodepool.provider.open.max_servers"] == math.inf, "one pool without a limit"
    assert values["nodepool.tenant_limits.acme.cores"] == 8
    assert values["nodepool.launcher.nl01.example.com.zk.client.connection_queue"] == 3
    assert values["nodepool.launcher.nl01.example.com.zk.node_cache.event_queue"] == 4


def test_circuit_breakers(launcher: SimpleNamespace) -> None:
    name = "nodepool.launcher.nl01.example.com.provider.lab.circuit_open"
    assert own_gauges(launcher)[name] == 1
    launcher.providers.running["lab"].pausedReason = lambda: None
    assert own_gauges(launcher)[name] == 0


def test_new_configuration(launcher: SimpleNamespace) -> None:
    """The limits are those of the configuration of the moment."""
    own_gauges(launcher)
    launcher.config = SimpleNamespace(providers={"lab": pools(7)}, tenant_resource_limits={})
    assert own_gauges(launcher)["nodepool.provider.lab.max_servers"] == 7


def test_nobody_leads_without_a_connection(launcher: SimpleNamespace) -> None:
    given = (launcher.zk, launcher.cache, launcher.providers, lambda: launcher.config)
    worker = make_stats_worker(cast(Any, None), *cast(Any, given))
    assert not worker._is_leader()
