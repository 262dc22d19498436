# SPDX-License-Identifier: Apache-2.0
"""Results of launches and leaked resources (reference/metrics 3, 4)."""

from __future__ import annotations

import socket

import pytest

from nodepool.metrics import reports
from nodepool.metrics.statsd import shared_client
from tests.support.statsd_server import StatsdServer


def test_launch_keys(statsd: StatsdServer) -> None:
    """reference/metrics 3: a timer and a counter under each of four keys; the requestor is normalised."""
    reports.report_launch("ready", 1500, provider="eu.west", az="az.1", requestor="zuul:sched.example")
    keys = [
        "nodepool.launch.ready",
        "nodepool.launch.provider.eu.west.ready",
        "nodepool.launch.provider.eu.west.az.1.ready",
        "nodepool.launch.requestor.zuul_sched_example.ready",
    ]
    assert statsd.drain() == [line for key in keys for line in (f"{key}:1500.000000|ms", f"{key}:1|c")]


def test_keys_without_zone_and_requestor(statsd: StatsdServer) -> None:
    """reference/metrics 3: no key for a zone or a requestor that there is not."""
    reports.report_launch("error.quota", 0, provider="p")
    assert {line.partition(":")[0] for line in statsd.drain()} == {
        "nodepool.launch.error.quota",
        "nodepool.launch.provider.p.error.quota",
    }


def test_leaked(statsd: StatsdServer) -> None:
    """reference/metrics 4: a counter by provider and kind; nothing for nothing."""
    reports.report_leaks("p", "instances")
    reports.report_leaks("p", "ports", 3)
    reports.report_leaks("p", "ports", 0)
    assert statsd.drain() == ["nodepool.provider.p.leaked.instances:1|c", "nodepool.provider.p.leaked.ports:3|c"]


def test_circuit_breakers(statsd: StatsdServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open circuit breaker is a gauge of the launcher, whose name keeps its dots; each opening is counted."""
    host = "nl01.example.com"
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    reports.report_circuit_breaker("eu.west", True)
    reports.report_circuit_breaker("eu.west", False)
    assert statsd.drain() == [
        f"nodepool.launcher.{host}.provider.eu.west.circuit_open:1|g",
        "nodepool.provider.eu.west.circuit_opened:1|c",
        f"nodepool.launcher.{host}.provider.eu.west.circuit_open:0|g",
    ]


def test_metrics_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a configuration nothing happens."""
    monkeypatch.delenv("STATSD_HOST", raising=False)
    monkeypatch.delenv("STATSD_PORT", raising=False)
    shared_client.cache_clear()
    reports.report_launch("ready", 0, provider="p")
    reports.report_leaks("p", "instances")
    assert shared_client() is None
    shared_client.cache_clear()
