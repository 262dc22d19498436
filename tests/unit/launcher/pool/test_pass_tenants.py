# SPDX-License-Identifier: Apache-2.0
"""Ready nodes for tenants with limits (rules A-8, Q-15), by single passes of a pool worker."""

from __future__ import annotations

import pytest

from nodepool.driver.fake.provider import FakeProvider
from nodepool.launcher.pool.worker import PoolWorker
from tests.support.local_launcher import fake_provider
from tests.support.pool_znodes import PoolZnodes
from tests.support.still_launcher import StillLauncher
from tests.unit.launcher.conftest import Still

pytestmark = pytest.mark.usefixtures("cloud")


def limited(still: Still, cloud_name: str, max_servers: int, **more: int) -> StillLauncher:
    """A launcher with limits for the tenant ``poor``."""
    limits = [{"tenant-name": "poor", "max-servers": max_servers, **{k.replace("_", "-"): v for k, v in more.items()}}]
    return still([fake_provider("one", cloud=cloud_name)], tenant_resource_limits=limits)


def free_node(launcher: StillLauncher, znodes: PoolZnodes) -> str:
    """Id of a ready node that a tenant without limits had, and that nobody has now."""
    rich = znodes.submit(["small"], tenant_name="rich")
    launcher.passes(launcher.worker(), "a node is made", lambda: znodes.request_state(rich) == "fulfilled")
    (node_id,) = nodes_of(znodes, rich)
    znodes.change_node(node_id, allocated_to=None)
    znodes.delete_request(rich)
    return node_id


def nodes_of(znodes: PoolZnodes, request_id: str) -> list[str]:
    nodes: list[str] = (znodes.request(request_id) or {})["nodes"]
    return nodes


def in_version(launcher: StillLauncher, request_id: str) -> int | None:
    """How often a request was written since it was submitted."""
    launcher.settle()
    request = launcher.nodepool.cache.requests.get(request_id)
    assert request is not None
    return request.version


def texts(worker: PoolWorker) -> list[str]:
    """Why requests wait in a pool."""
    return [waiting.reason.text for _, _, waiting in worker.desk.snapshot().kinds]


def test_ready_node_of_a_limited_tenant(still: Still, znodes: PoolZnodes, cloud_name: str) -> None:
    """A-8, Q-15: a ready node is given in two steps, with a look at the tenant's limit between them."""
    launcher = limited(still, cloud_name, 1)
    worker = launcher.worker()
    node_id = free_node(launcher, znodes)
    poor = znodes.submit(["small"], tenant_name="poor")
    launcher.passes(worker, "it is reused", lambda: znodes.request_state(poor) == "fulfilled")
    assert nodes_of(znodes, poor) == [node_id]
    assert not worker.desk.on_fast_path(poor)


def test_limited_tenant_while_the_cloud_rests(
    still: Still, znodes: PoolZnodes, cloud_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-5, Q-15: ready nodes are given to it, too; what they cannot serve is not taken just to be given back."""
    launcher = limited(still, cloud_name, 3)
    worker = launcher.worker()
    node_id = free_node(launcher, znodes)
    monkeypatch.setattr(FakeProvider, "pausedReason", lambda provider: "it rests")
    pair = znodes.submit(["small", "small"], tenant_name="poor")
    launcher.passes(worker, "it waits", lambda: "it rests" in texts(worker))
    single = znodes.submit(["small"], tenant_name="poor")
    launcher.passes(worker, "it is reused", lambda: znodes.request_state(single) == "fulfilled")
    assert nodes_of(znodes, single) == [node_id]
    assert in_version(launcher, pair) == 0, "never taken"


@pytest.mark.parametrize("rests", [False, True])
def test_ready_node_that_is_too_large(
    still: Still, znodes: PoolZnodes, cloud_name: str, monkeypatch: pytest.MonkeyPatch, rests: bool
) -> None:
    """Q-15: its flavor has changed since it was made. A new one fits; while there can be none the request waits."""
    launcher = limited(still, cloud_name, 3, max_cores=2)
    worker = launcher.worker()
    large = free_node(launcher, znodes)
    znodes.change_node(large, resources={"cores": 8, "instances": 1})
    resting = ["it rests"] if rests else []
    monkeypatch.setattr(FakeProvider, "pausedReason", lambda provider: resting[0] if resting else None)
    poor = znodes.submit(["small"], tenant_name="poor")
    if rests:
        launcher.passes(worker, "it waits", lambda: "it rests" in texts(worker))
        assert (znodes.request(poor) or {})["state"] == "requested"
        assert in_version(launcher, poor) == 0, "never taken"
        resting.clear()
    launcher.passes(worker, "it has a new one", lambda: znodes.request_state(poor) == "fulfilled")
    assert large not in nodes_of(znodes, poor)
    assert in_version(launcher, poor) == 2, "taken once"
    assert not znodes.node_lockers(large)
    rich = znodes.submit(["small"], tenant_name="rich")
    launcher.passes(worker, "it is reused", lambda: znodes.request_state(rich) == "fulfilled")
    assert nodes_of(znodes, rich) == [large]


def test_pair_before_singles(still: Still, znodes: PoolZnodes, cloud_name: str) -> None:
    """A request for two nodes is not overtaken for ever by later ones for one node, which need less of the limit."""
    launcher = limited(still, cloud_name, 2)
    worker = launcher.worker()
    first = [znodes.submit(["small"], tenant_name="poor") for _ in range(2)]
    launcher.passes(worker, "the limit is reached", lambda: all(znodes.request_state(i) == "fulfilled" for i in first))
    pair = znodes.submit(["small", "small"], tenant_name="poor")
    single = znodes.submit(["small"], tenant_name="poor")
    rich = znodes.submit(["small"], tenant_name="rich")
    launcher.passes(worker, "others go on", lambda: znodes.request_state(rich) == "fulfilled")
    for request_id in first:
        (node_id,) = nodes_of(znodes, request_id)
        znodes.change_node(node_id, allocated_to=None, tenant_name=None)
        znodes.delete_request(request_id)
        launcher.settle()
        # With what it knew before: the queue as it was.
        worker.view.begin_pass(worker.labels, worker.entry.priority)
        worker.intake.serve()
    launcher.passes(worker, "the pair is served", lambda: znodes.request_state(pair) == "fulfilled")
    assert in_version(launcher, single) == 0, "never taken"
