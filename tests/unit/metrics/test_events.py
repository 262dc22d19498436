# SPDX-License-Identifier: Apache-2.0
"""Results of launches and leaked resources (metrics.md 3, 4)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nodepool import exceptions
from nodepool.metrics import events
from nodepool.metrics.statsd import StatsdClient, get_client
from tests.support.statsd_server import StatsdServer


@pytest.fixture
def server() -> Iterator[StatsdServer]:
    with StatsdServer() as running:
        yield running


@pytest.fixture
def client(server: StatsdServer) -> Iterator[StatsdClient]:
    made = get_client(server.environ)
    assert made is not None
    yield made
    made.close()


def test_launch_keys(server: StatsdServer, client: StatsdClient) -> None:
    """metrics.md 3: a timer and a counter under each of four keys; the requestor is normalised."""
    events.report_launch(
        client, result="ready", duration_seconds=1.5, provider="eu.west", az="az.1", requestor="zuul:sched.example"
    )
    keys = [
        "nodepool.launch.ready",
        "nodepool.launch.provider.eu.west.ready",
        "nodepool.launch.provider.eu.west.az.1.ready",
        "nodepool.launch.requestor.zuul_sched_example.ready",
    ]
    assert server.drain() == [line for key in keys for line in (f"{key}:1500.000000|ms", f"{key}:1|c")]


def test_keys_without_zone_and_requestor(server: StatsdServer, client: StatsdClient) -> None:
    """metrics.md 3: no key for a zone or a requestor that there is not."""
    events.report_launch(client, result="error.quota", duration_seconds=0, provider="p")
    assert {line.partition(":")[0] for line in server.drain()} == {
        "nodepool.launch.error.quota",
        "nodepool.launch.provider.p.error.quota",
    }


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (None, "ready"),
        (exceptions.QuotaException("x"), "error.quota"),
        (exceptions.CapacityException("x"), "error.capacity"),
        (exceptions.LaunchKeyscanException("x"), "error.keyscan"),
        (exceptions.LaunchStatusException("x"), "error.status"),
        (exceptions.LaunchNetworkException("x"), "error.network"),
        (exceptions.LaunchNodepoolException("x"), "error.nodepool"),
        (exceptions.ServerCreateTimeoutException("x"), "error.servercreatetimeout"),
        (exceptions.TimeoutException("x"), "error.unknown"),
        (ValueError("x"), "error.unknown"),
    ],
)
def test_result_of_an_error(error: Exception | None, result: str) -> None:
    """metrics.md 3: the class of the error decides."""
    assert events.launch_result(error) == result


def test_leaked(server: StatsdServer, client: StatsdClient) -> None:
    """metrics.md 4: a counter by provider and kind; nothing for nothing."""
    events.report_leaked(client, "p", "instances")
    events.report_leaked(client, "p", "ports", 3)
    events.report_leaked(client, "p", "ports", 0)
    assert server.drain() == ["nodepool.provider.p.leaked.instances:1|c", "nodepool.provider.p.leaked.ports:3|c"]


def test_metrics_off() -> None:
    """Without a client nothing happens."""
    events.report_launch(None, result="ready", duration_seconds=0, provider="p")
    events.report_leaked(None, "p", "instances")
