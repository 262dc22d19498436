# SPDX-License-Identifier: Apache-2.0
"""Zuul's caches read every znode under the roots, also those of min-ready requests, launches and failures.

The ``zuul`` fixture fails each test in which Zuul logs a warning or an exception.
"""

# Zuul's caches have no public list of what they hold.
# ruff: noqa: SLF001
from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.support.launcher_config import FakeProvider, StaticHost, StaticProvider
from tests.support.wait import wait_for
from tests.support.workplace import Workplace

if TYPE_CHECKING:
    from tests.support.zuul_client import ZuulClient


def _caches_agree(workplace: Workplace, zuul: ZuulClient) -> None:
    """Blocks until Zuul's caches show what the znodes hold: nothing was dropped because it could not be read."""
    znodes = workplace.znodes

    def agree() -> bool:
        nodes = {name: (node["state"], node["allocated_to"]) for name, node in znodes.nodes().items()}
        seen = {name: (node.state, node.allocated_to) for name, node in list(zuul.cache._node_cache.items())}
        assert seen == nodes
        requests = {name: znodes.request_state(name) for name in znodes.children("/nodepool/requests")}
        cached = {name: request.state for name, request in list(zuul.cache._node_request_cache.items())}
        assert cached == requests
        return True

    wait_for("Zuul's caches agree with ZooKeeper", agree)


def test_static_nodes_in_every_state(workplace: Workplace, zuul: ZuulClient) -> None:
    """5.1, 5.2: ready, allocated, in use, on hold and used static nodes."""
    workplace.launch(StaticProvider([StaticHost(f"127.1.1.{n}", ["small", "any"], slots=2) for n in range(1, 4)]))
    accepted = zuul.accept(zuul.submit_and_wait(["small"]))
    used = zuul.accept(zuul.submit_and_wait(["any"]))
    zuul.use(used)
    held = zuul.accept(zuul.submit_and_wait(["small"]))
    zuul.use(held)
    zuul.hold(held)
    zuul.submit_and_wait(["small", "any"])
    _caches_agree(workplace, zuul)
    zuul.give_back(accepted)
    zuul.give_back(used)
    _caches_agree(workplace, zuul)


def test_event_of_a_request_stays_with_the_node(workplace: Workplace, zuul: ZuulClient) -> None:
    """J-10: Zuul reads our key and writes it back, so the return of a node is found by the event, too."""
    workplace.launch(StaticProvider([StaticHost("127.1.1.1", ["small"])]))
    request = zuul.submit_and_wait(["small"])
    event_id = request.event_id
    assert event_id
    nodes = zuul.accept(request)
    zuul.use(nodes)
    (record,) = workplace.znodes.nodes().values()
    assert (record["state"], record["request_event_id"]) == ("in-use", event_id)
    zuul.give_back(nodes)
    wait_for("it is registered again", lambda: len(workplace.znodes.free_nodes()) == 1)
    (again,) = workplace.znodes.free_nodes().values()
    assert "request_event_id" not in again


def test_min_ready_requests(workplace: Workplace, zuul: ZuulClient) -> None:
    """4.2, M-2: requests of the launcher itself have every key that Zuul needs, and their nodes are no one's."""
    fake = FakeProvider(["vm"], settings={"boot-seconds": 0.5})
    workplace.launch([fake], wait=False, labels={"vm": {"min-ready": 3}})
    seen: set[str] = set()

    def all_ready() -> bool:
        seen.update(name for name in list(zuul.cache._node_request_cache) if name.startswith("900-"))
        return len(workplace.znodes.free_nodes()) == 3 and not workplace.znodes.children("/nodepool/requests")

    wait_for("three free nodes", all_ready)
    assert seen, "Zuul's cache has seen min-ready requests"
    assert not zuul.completed, "they are not Zuul's"
    _caches_agree(workplace, zuul)
    request = zuul.submit_and_wait(["vm"])
    (node_id,) = request.nodes
    assert node_id in workplace.znodes.nodes("ready")


def test_min_ready_of_static_labels(workplace: Workplace, zuul: ZuulClient) -> None:
    """S-14: min-ready makes no static hosts; what the launcher writes for it does not disturb Zuul."""
    provider = StaticProvider([StaticHost("127.1.1.1")])
    workplace.launch(provider, labels={"small": {"min-ready": 3}})
    assert zuul.submit_and_wait(["small"]).state == "fulfilled"
    _caches_agree(workplace, zuul)


def test_launches_and_failures(workplace: Workplace, zuul: ZuulClient) -> None:
    """5.2, L-6: nodes being built, ready, failed; requests that fail after their launches."""
    settings = {"fail-launches": 1, "launch-retries": 1, "boot-seconds": 0.3}
    workplace.launch(FakeProvider(["vm"], settings=settings))
    workplace.launchers[0].expected_tracebacks = True
    failed = zuul.submit_and_wait(["vm"])
    assert failed.state == "failed"
    assert zuul.nodepool.deleteNodeRequest(failed.id)
    request = zuul.submit_and_wait(["vm", "vm"], tenant="tenant-two")
    assert request.state == "fulfilled"
    nodes = zuul.accept(request).getNodes()
    assert [node.id for node in nodes] == request.nodes
    assert {node.tenant_name for node in nodes} == {"tenant-two"}
    assert all(node.resources["cores"] == 1 for node in nodes)
    _caches_agree(workplace, zuul)


def test_cancel_while_launching(workplace: Workplace, zuul: ZuulClient) -> None:
    """4.6, L-11: cancelled while pending: its nodes are unallocated when they are ready, and serve the next request."""
    workplace.launch(FakeProvider(["vm"], settings={"boot-seconds": 1}))
    znodes = workplace.znodes
    submitted = zuul.submit(["vm", "vm"])
    building = wait_for(
        "nodes are being built", lambda: sorted(nodes) if len(nodes := znodes.nodes("building")) == 2 else []
    )
    assert znodes.request_state(submitted.id) == "pending"
    zuul.cancel(submitted)
    wait_for("free or gone", lambda: znodes.free_nodes().keys() == znodes.nodes().keys())
    wait_for("no lock directory is left", lambda: not znodes.children("/nodepool/requests-lock"))
    left = sorted(znodes.nodes())
    assert left in (building, [])
    request = zuul.submit_and_wait(["vm", "vm"])
    assert request.state == "fulfilled"
    assert not left or sorted(request.nodes) == left
    _caches_agree(workplace, zuul)


def test_hold_expires(workplace: Workplace, zuul: ZuulClient) -> None:
    """C-6: a node that is held longer than its hold request wanted goes; its host serves again."""
    provider = StaticProvider([StaticHost("127.1.1.1")])
    first = workplace.launch(provider)
    nodeset = zuul.accept(zuul.submit_and_wait(["small"]))
    zuul.use(nodeset)
    zuul.hold(nodeset, seconds=1)
    (held,) = workplace.znodes.nodes("hold").values()
    wait_for("the hold is over", lambda: time.time() > held["state_time"] + 1)
    # A launcher sweeps when it starts, and then once a minute.
    first.stop()
    workplace.launch(provider)


def test_hold_without_end(workplace: Workplace, zuul: ZuulClient) -> None:
    """C-6: without a limit a held node stays, also over a restart; max-hold-age limits every hold."""
    provider = StaticProvider([StaticHost("127.1.1.1"), StaticHost("127.1.1.2")])
    first = workplace.launch(provider)
    nodeset = zuul.accept(zuul.submit_and_wait(["small"]))
    zuul.use(nodeset)
    zuul.hold(nodeset)
    ((held, node),) = workplace.znodes.nodes("hold").items()
    first.stop()
    second = workplace.launch(provider, wait=False)
    workplace.wait_registered(second, 1)
    zuul.give_back(zuul.accept(zuul.submit_and_wait(["small"])))
    assert list(workplace.znodes.nodes("hold")) == [held]
    second.stop()
    wait_for("older than a second", lambda: time.time() > node["state_time"] + 1)
    workplace.launch(provider, extra={"max-hold-age": 1})
