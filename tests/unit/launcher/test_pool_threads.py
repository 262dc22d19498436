# SPDX-License-Identifier: Apache-2.0
"""One worker for each pool of each provider that runs, without threads (rules G-6, G-7, G-10)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.launcher.pool_threads import PoolThreads


class Worker:
    """Notes what it is told."""

    def __init__(self, provider_name: str, pool_name: str) -> None:
        self.provider_name, self.pool_name = provider_name, pool_name
        self.name = f"{provider_name}-{pool_name}"
        self.handlers: list[Any] = []
        self.alive = False
        self.told: list[str] = []
        self.entry = SimpleNamespace(remove=lambda: self.told.append("entry removed"))

    def start(self) -> None:
        self.alive = True

    def is_alive(self) -> bool:
        return self.alive

    def retire(self) -> None:
        self.told.append("retire")

    def request_changed(self, request_id: str) -> None:
        self.told.append(f"request {request_id!r}")

    def node_changed(self, node_id: str) -> None:
        self.told.append(f"node {node_id!r}")


def config(*pools: str) -> Any:
    return SimpleNamespace(pools=dict.fromkeys(pools))


def running(**providers: list[str]) -> dict[str, Any]:
    return {name: SimpleNamespace(provider=config(*pools)) for name, pools in providers.items()}


class Place:
    def __init__(self) -> None:
        self.made: list[Worker] = []
        self.threads = PoolThreads(self._make)

    def _make(self, provider_name: str, pool_name: str) -> Any:
        self.made.append(Worker(provider_name, pool_name))
        return cast(Any, self.made[-1])

    def names(self) -> list[str]:
        return sorted(worker.name for worker in self.threads.current())


@pytest.fixture
def place() -> Place:
    return Place()


def test_one_for_each_pool(place: Place) -> None:
    place.threads.update(running(one=["main", "second"], two=["main"]))
    assert place.names() == ["one-main", "one-second", "two-main"]
    assert all(worker.alive for worker in place.made)
    place.threads.update(running(one=["main", "second"], two=["main"]))
    assert len(place.made) == 3
    assert len(place.threads.of_provider("one")) == 2
    found = place.threads.get("two", "main")
    assert found is not None
    assert (found.provider_name, found.pool_name) == ("two", "main")
    assert place.threads.get("two", "other") is None
    assert place.threads.get(None, None) is None


def test_pools_that_go(place: Place) -> None:
    """G-6: they retire, and are known until they end."""
    place.threads.update(running(one=["main"], two=["main"]))
    place.threads.retire_others({"one": config("main")})
    (gone,) = [worker for worker in place.made if worker.told == ["retire"]]
    assert (gone.name, place.names()) == ("two-main", ["one-main"])
    gone.handlers = [SimpleNamespace(request=SimpleNamespace(key="100-1"))]
    assert place.threads.requests_in_progress() == {"100-1"}
    assert len(place.threads.all()) == 2
    gone.alive = False
    place.threads.update(running(one=["main"]))
    assert len(place.threads.all()) == 1


def test_thread_that_died(place: Place) -> None:
    """G-1: another one takes its place, and its entry goes."""
    place.threads.update(running(one=["main"]))
    place.made[0].alive = False
    place.threads.update(running(one=["main"]))
    assert [worker.told for worker in place.made] == [["entry removed"], []]
    assert place.made[1].alive


def test_look_again(place: Place) -> None:
    place.threads.update(running(one=["main"]))
    place.threads.look_again()
    assert place.made[0].told == ["request ''", "node ''"]
