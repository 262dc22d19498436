# SPDX-License-Identifier: Apache-2.0
"""Static providers over a ZooKeeper in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nodepool.config.objects import Config, Label
from nodepool.driver.static.config import StaticProviderConfig
from nodepool.driver.static.provider import StaticProvider
from tests.support.failing_zk import FailingZooKeeper
from tests.support.manual_clock import ManualClock
from tests.support.wait import wait_for

LABELS = ("small", "big", "other")


def load(*hosts: dict[str, Any], pool: dict[str, Any] | None = None, quarantine_after: int = 0) -> StaticProviderConfig:
    """The configuration of a provider with one pool of these hosts; ``name`` and ``labels`` have defaults.

    :param pool: other keys of the pool.
    """
    nodes = [{"name": "127.0.0.1", "labels": ["small"], **host} for host in hosts]
    section: dict[str, Any] = {
        "name": "lab",
        "driver": "static",
        "pools": [{"name": "main", "nodes": nodes, **(pool or {})}],
    }
    section["quarantine-after"] = quarantine_after
    config = Config()
    config.labels = {label: Label(label) for label in LABELS}
    loaded = StaticProviderConfig(section)
    loaded.getSchema()(section)
    loaded.load(config)
    return loaded


class Lab:
    """Providers of one test."""

    def __init__(self) -> None:
        self.zk = FailingZooKeeper()
        self.clock = ManualClock()
        self.wall = ManualClock(1_000_000.0)
        self.providers: list[StaticProvider] = []

    def provider(
        self, *hosts: dict[str, Any], pool: dict[str, Any] | None = None, quarantine_after: int = 0
    ) -> StaticProvider:
        """A provider that is ready for `settle`, without a thread."""
        loaded = load(*hosts, pool=pool, quarantine_after=quarantine_after)
        provider = StaticProvider(loaded, self.clock, self.wall)
        provider.prepare(self.zk)
        self.providers.append(provider)
        return provider

    def settle(self, provider: StaticProvider) -> float:
        """Passes until no check is under way; returns the delay of the last one."""
        delay = provider.run_once()
        while provider.checks_under_way:
            wait_for("a check ends", lambda: provider.has_results)
            delay = provider.run_once()
        return delay

    def pass_seconds(self, seconds: float) -> None:
        """Lets time pass, by both clocks."""
        self.clock.pass_seconds(seconds)
        self.wall.pass_seconds(seconds)

    def stop(self) -> None:
        for provider in self.providers:
            provider.stop()
            provider.join()


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.stop()


@pytest.fixture
def down_port() -> Callable[[], int]:
    """Ports that nobody listens on."""
    from tests.support.ports import free_ports

    return lambda: free_ports(1)[0]
