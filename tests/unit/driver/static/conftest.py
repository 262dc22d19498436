# SPDX-License-Identifier: Apache-2.0
"""Static providers over a ZooKeeper in memory."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.config.objects import Config, Label
from nodepool.driver.framework.keyscan import ScanFailed
from nodepool.driver.static.checks import HostChecker
from nodepool.driver.static.config import StaticProviderConfig
from nodepool.driver.static.provider import StaticProvider
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.plan.static import HostFacts, HostSpec
from tests.support.failing_zk import FailingZooKeeper
from tests.support.manual_clock import ManualClock
from tests.support.wait import wait_for

#: Of a host that is never contacted.
OFF = {"host-key-checking": False}


def load(*hosts: dict[str, Any], pool: dict[str, Any] | None = None, quarantine_after: int = 0) -> StaticProviderConfig:
    """The configuration of a provider with one pool of these hosts; ``name`` and ``labels`` have defaults.

    :param pool: other keys of the pool.
    """
    nodes = [{"name": "127.0.0.1", "labels": ["small"], **host} for host in hosts]
    pools = [{"name": "main", "nodes": nodes, **(pool or {})}]
    section = {"name": "lab", "driver": "static", "pools": pools, "quarantine-after": quarantine_after}
    config = Config()
    config.labels = {label: Label(label) for label in ("small", "big", "other")}
    loaded = StaticProviderConfig(section)
    loaded.getSchema()(section)
    loaded.load(config)
    return loaded


class Lab:
    """Providers of one test."""

    def __init__(self) -> None:
        self.zk = FailingZooKeeper()
        self.clock = ManualClock().rules()
        self.wall = ManualClock(1_000_000.0).rules("time")
        self.providers: list[StaticProvider] = []

    def provider(self, *hosts: dict[str, Any], settled: bool = False, **more: Any) -> StaticProvider:
        """A provider without a thread, ready for `settle`.

        :param more: see `load`.
        """
        provider = StaticProvider(load(*hosts, **more))
        provider.prepare(self.zk)
        self.providers.append(provider)
        if settled:
            self.settle(provider)
        return provider

    def settle(self, provider: StaticProvider) -> float:
        """Passes until no check is under way; returns the delay of the last one."""
        delay = provider.run_once()
        # Private: nothing but a test asks for it.
        state = vars(provider)
        while state["_checking"]:
            wait_for("a check ends", lambda: state["_results"] or state["_lost"])
            delay = provider.run_once()
        return delay

    def pass_seconds(self, seconds: float) -> None:
        """Lets time pass, by both clocks."""
        self.clock.pass_seconds(seconds)
        self.wall.pass_seconds(seconds)

    def nodes(self, *names: str) -> list[Any]:
        """Fields of all nodes; of one name the fields alone."""
        found = [tuple(getattr(node, name) for name in names) for node in self.zk.all_nodes()]
        return found if len(names) > 1 else [fields[0] for fields in found]

    def used(self, node: Node) -> Node:
        """The node as the framework hands it over: released, marked, locked."""
        node.state = states.DELETING
        self.zk.nodes.lock_and_save(node)
        return node

    def stop(self) -> None:
        for provider in self.providers:
            provider.stop()
            provider.join()


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.stop()


class Hosts:
    """Hosts that answer at once, unless they are ``down``; those that are named ``slow`` when ``go_on`` is set."""

    def __init__(self) -> None:
        self.down: set[str] = set()
        self.errors: dict[str, Exception] = {}
        self.go_on = threading.Event()
        self.started: list[str] = []

    def check(self, spec: HostSpec, cancelled: object = None) -> HostFacts:
        self.started.append(spec.id.name)
        if spec.id.name.startswith("slow"):
            assert self.go_on.wait(30)
        if spec.id.name in self.down:
            raise self.errors.get(spec.id.name, ScanFailed("no answer"))
        return HostFacts((f"ssh-rsa {len(self.started)}",), spec.id.name)

    def is_alive(self, spec: HostSpec) -> bool:
        return spec.id.name not in self.down


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    """In place of the functions that contact hosts: with real ones each state would take seconds, and nothing takes
    them as arguments.
    """
    made = Hosts()
    monkeypatch.setattr(sys.modules[HostChecker.__module__], "check_host", made.check)
    monkeypatch.setattr(sys.modules[StaticProvider.__module__], "is_alive", made.is_alive)
    yield made
    made.go_on.set()
