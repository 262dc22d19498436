# SPDX-License-Identifier: Apache-2.0
"""Which requests a pool takes, declines or leaves (rules A), by single passes of its worker."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kazoo.recipe.lock import Lock

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.driver.fake.handler import FakeRequestHandler
from nodepool.driver.fake.provider import FakeProvider
from nodepool.launcher.pool import decline, intake
from nodepool.launcher.pool.worker import PoolWorker
from nodepool.model.reasons import OTHER_LAUNCHERS, REQUEST_CHANGED
from nodepool.plan.first_choice import first_choice
from tests.support.local_launcher import fake_provider
from tests.support.pool_znodes import PoolZnodes
from tests.support.still_launcher import StillLauncher
from tests.support.wait import wait_for
from tests.unit.launcher.conftest import Still

pytestmark = pytest.mark.usefixtures("cloud")


def reasons(worker: PoolWorker) -> list[str]:
    return [waiting.reason.text for _, _, waiting in worker.desk.snapshot().kinds]


def in_state(launcher: StillLauncher, request_id: str, state: str) -> bool:
    request = launcher.nodepool.cache.requests.get(request_id)
    return request is not None and request.state == state


def test_many_refusals(still: Still, znodes: PoolZnodes, cloud_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A-6, A-13: more than fit in one pass are declined in the next one, which comes at once."""
    monkeypatch.setattr(decline, "BATCH", 2)
    launcher = still([fake_provider("one", cloud=cloud_name)])
    worker = launcher.worker()
    requests = [znodes.submit(["unknown"]) for _ in range(5)]
    launcher.knows_requests(5)
    waits = [worker.run_once() for _ in range(3)]
    assert waits == [0.0, 0.0, None]
    assert {znodes.request_state(request_id) for request_id in requests} == {"failed"}


def test_many_impossible_requests(
    still: Still, znodes: PoolZnodes, cloud_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A-13, A-21: the same for what a disabled pool declines."""
    monkeypatch.setattr(decline, "BATCH", 2)
    launcher = still([fake_provider("one", cloud=cloud_name, pool_max_servers=0)])
    worker = launcher.worker()
    requests = [znodes.submit(["small"]) for _ in range(3)]
    launcher.knows_requests(3)
    assert [worker.run_once() for _ in range(2)] == [0.0, None]
    assert {znodes.request_state(request_id) for request_id in requests} == {"failed"}


def test_error_while_judging(
    still: Still, znodes: PoolZnodes, cloud_name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A-16: an exception declines the request that caused it, not all that are like it."""
    launcher = still([fake_provider("one", cloud=cloud_name)])
    worker = launcher.worker()
    bad, good = znodes.submit(["small"]), znodes.submit(["small"])
    launcher.knows_requests(2)
    handler = FakeProvider.getRequestHandler

    def flaky(provider: FakeProvider, pw: Any, request: Any) -> Any:
        if request.id == bad:
            raise RuntimeError("no way")
        return handler(provider, pw, request)

    monkeypatch.setattr(FakeProvider, "getRequestHandler", flaky)
    launcher.passes(worker, "the good one is served", lambda: znodes.request_state(good) == "fulfilled")
    assert znodes.request_state(bad) == "failed"
    assert "no way" in caplog.text


def test_provider_is_replaced_in_the_middle_of_a_pass(
    still: Still, znodes: PoolZnodes, cloud_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-5, A-16: what the stopped provider cannot launch any more its successor does; the request does not fail."""
    launcher = still([fake_provider("one", cloud=cloud_name)])
    worker = launcher.worker()
    request_id = znodes.submit(["small"])
    launcher.knows_requests(1)
    launch = FakeRequestHandler.launch

    def reload_first(handler: FakeRequestHandler, node: Any) -> None:
        monkeypatch.setattr(FakeRequestHandler, "launch", launch)
        section = launcher.local.provider_settings()
        section["launch-retries"] = 1
        launcher.local.write(launcher.local.settings)
        wait_for("the file is new", launcher.nodepool.configuration.source.changed)
        launcher.nodepool.configuration.follow()
        launch(handler, node)

    monkeypatch.setattr(FakeRequestHandler, "launch", reload_first)
    worker.run_once()
    assert znodes.request_state(request_id) == "pending"
    launcher.passes(worker, "it is served", lambda: znodes.request_state(request_id) == "fulfilled")
    assert (znodes.request(request_id) or {})["declined_by"] == []


def test_lock_is_held_by_somebody(still: Still, znodes: PoolZnodes, cloud_name: str) -> None:
    """A-11: the lock is taken without waiting; the next request is served, and this one when the lock is free."""
    launcher = still([fake_provider("one", cloud=cloud_name)])
    worker = launcher.worker()
    held, other = znodes.submit(["small"]), znodes.submit(["small"])
    lock = Lock(znodes.kazoo, f"/nodepool/requests-lock/{held}")
    assert lock.acquire(timeout=5)
    launcher.passes(worker, "the other is served", lambda: znodes.request_state(other) == "fulfilled")
    assert znodes.request_state(held) == "requested"
    wait = worker.run_once()
    assert wait is not None
    assert wait <= 0.25
    lock.release()
    launcher.passes(worker, "it is served", lambda: znodes.request_state(held) == "fulfilled")


def test_request_that_changed_before_it_was_taken(
    still: Still, znodes: PoolZnodes, cloud_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A-2, A-11: what the cache does not know yet is seen when the request is taken."""
    launcher = still([fake_provider("one", cloud=cloud_name)])
    worker = launcher.worker()
    request_id = znodes.submit(["small"])
    launcher.knows_requests(1)
    handler = FakeProvider.getRequestHandler

    def cancel_first(provider: FakeProvider, pw: Any, request: Any) -> Any:
        znodes.delete_request(request_id)
        return handler(provider, pw, request)

    monkeypatch.setattr(FakeProvider, "getRequestHandler", cancel_first)
    worker.run_once()
    assert worker.handlers == []
    assert znodes.nodes() == {}
    assert znodes.children("/nodepool/requests-lock") == []


@pytest.mark.parametrize("state", ["fulfilled", "failed", "pending"])
@pytest.mark.parametrize("label", ["small", "unknown"])
def test_request_that_others_finish_during_a_pass(
    still: Still, znodes: PoolZnodes, cloud_name: str, monkeypatch: pytest.MonkeyPatch, state: str, label: str
) -> None:
    """A-2: a long pass neither takes nor declines what somebody else has served since it began."""
    launcher = still([fake_provider("one", cloud=cloud_name, pool_max_servers=5)])
    worker = launcher.worker()
    first, second = znodes.submit(["small"], priority="100"), znodes.submit([label])
    launcher.knows_requests(2)
    registered = worker.context.registered_pools
    done: list[str] = []

    def finish_meanwhile() -> Any:
        # Asked for after the queue is up to date, and before anything is taken or declined.
        if not done and len(worker.queue) == 2:
            done.append(second)
            request = {**(znodes.request(second) or {}), "state": state, "nodes": ["theirs"]}
            znodes.kazoo.set(f"/nodepool/requests/{second}", json.dumps(request).encode())
            wait_for("the cache knows", lambda: in_state(launcher, second, state))
        return registered()

    monkeypatch.setattr(worker.context, "registered_pools", finish_meanwhile)
    launcher.passes(worker, "the first is served", lambda: znodes.request_state(first) == "fulfilled")
    assert done == [second]
    request = znodes.request(second) or {}
    assert (request["state"], request["nodes"], request.get("declined_by", [])) == (state, ["theirs"], [])


def test_better_pool_comes_first(still: Still, znodes: PoolZnodes, cloud_name: str) -> None:
    """A-4: yield to a pool with a lower priority number, unless it is paused."""
    launcher = still(
        [
            fake_provider("one", cloud=cloud_name, priority=20),
            fake_provider("two", cloud=cloud_name, priority=10, pool_max_servers=1),
        ]
    )
    worker, better = launcher.worker("one"), launcher.worker("two")
    first = znodes.submit(["small"])
    launcher.knows_requests(1)
    worker.run_once()
    assert znodes.request_state(first) == "requested"
    assert "better priority" in reasons(worker)[0]
    launcher.passes(better, "it serves", lambda: znodes.request_state(first) == "fulfilled")
    second, third = znodes.submit(["small"]), znodes.submit(["small"])
    launcher.passes(better, "it is paused", lambda: better.desk.paused)
    launcher.passes(worker, "this one serves", lambda: znodes.request_state(third) == "fulfilled")
    assert znodes.request_state(second) == "pending"


def test_labels_of_another_pool(still: Still, znodes: PoolZnodes, cloud_name: str) -> None:
    """A-5, A-6: left to the pool that has the labels; declined when that one has declined."""
    launcher = still(
        [
            fake_provider("one", ("a",), cloud=cloud_name),
            fake_provider("two", ("b",), cloud=cloud_name, max_concurrency=0),
        ]
    )
    worker, able = launcher.worker("one"), launcher.worker("two")
    request_id = znodes.submit(["b"])
    launcher.knows_requests(1)
    worker.run_once()
    assert "is not here, but pool" in reasons(worker)[0]
    assert znodes.request_state(request_id) == "requested"
    launcher.passes(able, "it declines", lambda: able.launcher_id in (znodes.request(request_id) or {})["declined_by"])
    assert znodes.request_state(request_id) == "requested"
    launcher.passes(worker, "so does this one", lambda: znodes.request_state(request_id) == "failed")
    assert (znodes.request(request_id) or {})["declined_by"] == [able.launcher_id, worker.launcher_id]


def test_paused_pool(still: Still, znodes: PoolZnodes, cloud_name: str) -> None:
    """A-9: while paused nothing new is taken, but what can never be served is declined."""
    launcher = still([fake_provider("one", cloud=cloud_name, pool_max_servers=1)])
    worker = launcher.worker()
    first = znodes.submit(["small"])
    launcher.passes(worker, "it is served", lambda: znodes.request_state(first) == "fulfilled")
    waiting = znodes.submit(["small"])
    launcher.passes(worker, "it waits", lambda: worker.desk.paused)
    later, impossible = znodes.submit(["small"], priority="100"), znodes.submit(["small", "small"])
    launcher.passes(worker, "it is declined", lambda: znodes.request_state(impossible) == "failed")
    assert (znodes.request_state(waiting), znodes.request_state(later)) == ("pending", "requested")
    told = worker.desk.explain(later)
    assert told is not None
    assert told.reason.numbers == {"limit": 1, "used": 1, "needed": 1}
    assert told.reason.text == (
        f"the pool is paused: another request waits for room ({waiting}: quota: 1 of 1 instances of pool main in use)"
    )


def test_gone_from_the_queue(still: Still, znodes: PoolZnodes, cloud_name: str) -> None:
    """A-2: requests that nobody wants any more, or that others took, leave the queue."""
    launcher = still([fake_provider("one", cloud=cloud_name, max_concurrency=1)])
    worker = launcher.worker()
    FakeCloud.get(cloud_name).set(hang=True)
    znodes.submit(["small"])
    launcher.passes(worker, "it launches", lambda: worker.own_launches() == 1)
    waiting, cancelled = znodes.submit(["small"]), znodes.submit(["small"])
    launcher.passes(worker, "they wait", lambda: len(worker.queue) == 2)
    assert reasons(worker) == ["max-concurrency of 1 launches is reached"]
    znodes.delete_request(cancelled)
    launcher.passes(worker, "one is gone", lambda: len(worker.queue) == 1)
    assert waiting in worker.queue


def test_requests_from_before_the_start(
    still: Still, znodes: PoolZnodes, cloud_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A-15: after an outage of all launchers the first one back does not fail what another one will serve."""
    old = znodes.submit(["unknown"])
    launcher = still([fake_provider("one", cloud=cloud_name)])
    worker = launcher.worker()
    new = znodes.submit(["unknown"])
    launcher.knows_requests(2)
    worker.run_once()
    assert (znodes.request_state(old), znodes.request_state(new)) == ("requested", "failed")
    monkeypatch.setattr(decline, "START_SECONDS", 0.0)
    worker.desk.defer(old, OTHER_LAUNCHERS, 0.0)
    worker.run_once()
    assert znodes.request_state(old) == "failed", "nobody else came"


def test_error_while_it_is_asked_whether_to_look_again(still: Still, znodes: PoolZnodes, cloud_name: str) -> None:
    """A-16: a driver may raise anything when it is asked for room; the request is taken up again all the same."""
    launcher = still([fake_provider("one", cloud=cloud_name)])
    worker = launcher.worker()
    given_back = znodes.submit(["small"])

    def pointless() -> bool:
        raise RuntimeError("no way")

    worker.desk.defer(given_back, REQUEST_CHANGED, 0.0, pointless)
    launcher.passes(worker, "it is served", lambda: znodes.request_state(given_back) == "fulfilled")


def test_nodes_of_launchers_that_are_away(
    still: Still, znodes: PoolZnodes, cloud_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A-15: right after its start a launcher does not know what those serve whose nodes it sees."""
    launcher = still([fake_provider("one", cloud=cloud_name)])
    worker = launcher.worker()
    away = znodes.add_node("in-use", provider="other", launcher="host-PoolWorker.other-main-1234")
    for foreign in ("static driver", worker.launcher_id):
        znodes.add_node("in-use", provider="other", launcher=foreign)
    request_id = znodes.submit(["unknown"])
    launcher.knows_requests(1)
    launcher.settle()
    worker.run_once()
    assert znodes.request_state(request_id) == "requested"
    znodes.kazoo.delete(f"/nodepool/nodes/{away}", recursive=True)
    launcher.settle()
    worker.desk.defer(request_id, OTHER_LAUNCHERS, 0.0)
    worker.run_once()
    assert znodes.request_state(request_id) == "failed"


def test_first_choice_that_refuses(
    still: Still, znodes: PoolZnodes, cloud_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A-14: a request is left to its first choice; when that declines it, it is taken at once."""
    monkeypatch.setattr(intake, "GRACE_SECONDS", 3600.0)
    declining = fake_provider("two", cloud=cloud_name, pool_max_servers=0)
    launcher = still([fake_provider("one", cloud=cloud_name), declining])
    one, two = launcher.worker("one"), launcher.worker("two")
    chosen: str | None = None
    while chosen is None:
        request_id = znodes.submit(["small"])
        owner = first_choice(request_id, one.context.registered_pools())
        if owner is not None and owner.id == two.launcher_id:
            chosen = request_id
        else:
            znodes.delete_request(request_id)
    launcher.knows_requests(1)
    one.run_once()
    assert znodes.request_state(chosen) == "requested"
    assert one.desk.next_look() is not None
    two.run_once()
    wait_for("it is declined", lambda: (znodes.request(chosen) or {})["declined_by"] == [two.launcher_id])
    launcher.settle()
    one.run_once()
    assert znodes.request_state(chosen) != "requested"
