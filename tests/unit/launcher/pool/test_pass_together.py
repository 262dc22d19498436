# SPDX-License-Identifier: Apache-2.0
"""Requests that are taken several at a time, because there is room for them (rules A), by single passes."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.recipe.lock import Lock

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.driver.fake.handler import FakeRequestHandler
from nodepool.driver.fake.provider import FakeProvider
from nodepool.exceptions import ZKConnectionError
from tests.support.local_launcher import fake_provider
from tests.support.pool_znodes import PoolZnodes
from tests.unit.launcher.conftest import Still

pytestmark = pytest.mark.usefixtures("cloud")


@pytest.fixture
def roomy(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How many requests a driver says have room for sure; change it."""
    room = [3.0]
    monkeypatch.setattr(FakeRequestHandler, "room_ahead", lambda handler: room[0])
    return room


def test_requests_that_have_room_are_taken_together(
    still: Still, znodes: PoolZnodes, cloud_name: str, roomy: list[float]
) -> None:
    """A-11, A-12: in order, each with a node of its own, and nothing is left of those that are gone or held."""
    launcher = still([fake_provider("one", cloud=cloud_name)])
    worker = launcher.worker()
    requests = [znodes.submit(["small"]) for _ in range(7)]
    lock = Lock(znodes.kazoo, f"/nodepool/requests-lock/{requests[1]}")
    assert lock.acquire(timeout=5)
    launcher.knows_requests(7)
    znodes.delete_request(requests[4])
    others = [request_id for number, request_id in enumerate(requests) if number not in (1, 4)]
    launcher.passes(worker, "all are served", lambda: {znodes.request_state(i) for i in others} == {"fulfilled"})
    nodes = [(znodes.request(request_id) or {})["nodes"] for request_id in others]
    assert sorted(nodes) == sorted([node_id] for node_id in znodes.nodes())
    lock.release()
    launcher.passes(worker, "it is served", lambda: znodes.request_state(requests[1]) == "fulfilled")
    assert znodes.children("/nodepool/requests-lock") == []


def test_only_as_many_as_have_room(
    still: Still, znodes: PoolZnodes, cloud_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A-9, Q-2: one more is taken, finds no room and pauses the pool."""
    monkeypatch.setattr(FakeRequestHandler, "room_ahead", lambda handler: 2 - len(handler.zk.cache.nodes))
    launcher = still([fake_provider("one", cloud=cloud_name, pool_max_servers=2)])
    worker = launcher.worker()
    requests = [znodes.submit(["small"]) for _ in range(5)]
    launcher.knows_requests(5)
    launcher.passes(worker, "the pool is full", lambda: worker.desk.paused)
    states = [znodes.request_state(request_id) for request_id in requests]
    assert states[3:] == ["requested", "requested"]
    assert len(znodes.nodes()) == 2


def test_turns_of_other_requests(
    still: Still, znodes: PoolZnodes, cloud_name: str, roomy: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A-5: those behind the first are not taken before a more urgent one of another kind."""
    launcher = still([fake_provider("one", cloud=cloud_name, labels=("small", "big"))])
    worker = launcher.worker()
    labels = ["small", "big", "small", "small"]
    requests = [znodes.submit([label], priority=str(100 + number)) for number, label in enumerate(labels)]
    launcher.knows_requests(4)
    order: list[str] = []
    launch = FakeRequestHandler.launch

    def noting(handler: FakeRequestHandler, node: Any) -> Any:
        order.append(handler.request.key)
        return launch(handler, node)

    monkeypatch.setattr(FakeRequestHandler, "launch", noting)
    launcher.passes(worker, "all are served", lambda: {znodes.request_state(i) for i in requests} == {"fulfilled"})
    assert order == requests


def test_limits_of_concurrency_and_tenants(
    still: Still, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud, roomy: list[float]
) -> None:
    """A-8, A-10: what limits single requests limits those that are taken together."""
    cloud.set(hang=True)
    launcher = still(
        [fake_provider("one", cloud=cloud_name, max_concurrency=2)],
        tenant_resource_limits=[{"tenant-name": "poor", "max-servers": 1}],
    )
    worker = launcher.worker()
    poor = [znodes.submit(["small"], priority="100", tenant_name="poor") for _ in range(3)]
    rich = [znodes.submit(["small"]) for _ in range(3)]
    launcher.knows_requests(6)
    launcher.passes(worker, "two are launched", lambda: worker.own_launches() == 2)
    worker.run_once()
    assert [znodes.request_state(request_id) for request_id in poor + rich] == [
        *["pending", "requested", "requested"],
        *["pending", "requested", "requested"],
    ]
    cloud.set(hang=False)


@pytest.mark.parametrize("hook", ["getRequestHandler", "getDeclinedReasons"])
def test_error_while_judging_what_is_behind(
    still: Still, znodes: PoolZnodes, cloud_name: str, roomy: list[float], monkeypatch: pytest.MonkeyPatch, hook: str
) -> None:
    """A-16: an exception declines the request that caused it, and does not stop the one before it."""
    launcher = still([fake_provider("one", cloud=cloud_name)])
    worker = launcher.worker()
    first, bad, last = (znodes.submit(["small"]) for _ in range(3))
    launcher.knows_requests(3)
    owner: Any = FakeProvider if hook == "getRequestHandler" else FakeRequestHandler
    real = getattr(owner, hook)

    def flaky(asked: Any, *arguments: Any) -> Any:
        request = arguments[-1] if arguments else asked.request
        if request.id == bad:
            raise RuntimeError("no way")
        return real(asked, *arguments)

    monkeypatch.setattr(owner, hook, flaky)
    launcher.passes(worker, "the others are served", lambda: znodes.request_state(last) == "fulfilled")
    assert (znodes.request_state(first), znodes.request_state(bad)) == ("fulfilled", "failed")


def test_node_that_cannot_be_stored(
    still: Still, znodes: PoolZnodes, cloud_name: str, roomy: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A-16: what a driver puts into a node declines its request, and those that are taken with it are served."""
    launcher = still([fake_provider("one", cloud=cloud_name)])
    worker = launcher.worker()
    first, bad, last = (znodes.submit(["small"]) for _ in range(3))
    launcher.knows_requests(3)

    def describe(handler: FakeRequestHandler, node: Any) -> None:
        if handler.request.id == bad:
            node.driver_data = object()

    monkeypatch.setattr(FakeRequestHandler, "setNodeMetadata", describe)
    launcher.passes(worker, "the others are served", lambda: znodes.request_state(last) == "fulfilled")
    assert (znodes.request_state(first), znodes.request_state(bad)) == ("fulfilled", "failed")


def test_node_begun_before_the_connection_was_lost(
    still: Still, znodes: PoolZnodes, cloud_name: str, roomy: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q-2: a request that went on with a ready node in a later pass keeps no new one locked."""
    launcher = still([fake_provider("one", cloud=cloud_name)])
    worker = launcher.worker()
    requests = [znodes.submit(["small"]) for _ in range(3)]
    launcher.knows_requests(3)
    run = FakeRequestHandler.run

    def interrupted(handler: FakeRequestHandler) -> None:
        raise ZKConnectionError("lost for a moment")

    monkeypatch.setattr(FakeRequestHandler, "run", interrupted)
    with pytest.raises(ZKConnectionError):
        worker.run_once()
    monkeypatch.setattr(FakeRequestHandler, "run", run)
    ready = znodes.add_node("ready", provider="one", pool="main", type=["small"])
    launcher.settle()
    launcher.passes(worker, "all are served", lambda: {znodes.request_state(i) for i in requests} == {"fulfilled"})
    nodes = sorted(nodes[0] for nodes in ((znodes.request(i) or {})["nodes"] for i in requests))
    assert ready in nodes
    assert sorted(znodes.nodes()) == nodes
