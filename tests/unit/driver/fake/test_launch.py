# SPDX-License-Identifier: Apache-2.0
"""The fake driver's launches, deletions and sweeps: the rules that every launching driver must keep."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nodepool.driver.fake import FakeDriver
from nodepool.driver.fake.cloud import BUILDING, CloudError, FakeCloud
from nodepool.model import states
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.support.driver_site import DriverSite
from tests.support.wait import DEADLINE_SECONDS, wait_for

CLOUD = "test-launch"


class Site(DriverSite):
    """A provider on its own cloud, with one pool."""

    def __init__(self, zk: MemoryZooKeeper, settings: dict[str, Any], **pool: Any) -> None:
        labels = [{"name": "small", "cores": 2, "ram": 2048}, {"name": "large", "cores": 8}]
        section = {
            "name": "nowhere",
            "driver": "fake",
            "cloud": CLOUD,
            "pools": [{"name": "main", "labels": labels, **pool}],
            **settings,
        }
        self.cloud = FakeCloud.get(CLOUD)
        super().__init__(FakeDriver(), section, zk)


@pytest.fixture
def zk() -> MemoryZooKeeper:
    return MemoryZooKeeper()


@pytest.fixture
def make_site(zk: MemoryZooKeeper) -> Iterator[Callable[..., Site]]:
    """Makes started providers: ``make_site({"launch-retries": 1}, **{"max-servers": 2})``."""
    FakeCloud.forget(CLOUD)
    sites: list[Site] = []

    def make(settings: dict[str, Any] | None = None, **pool: Any) -> Site:
        sites.append(Site(zk, settings or {}, **pool))
        return sites[-1]

    yield make
    for site in sites:
        site.end()
    FakeCloud.forget(CLOUD)


def test_record(make_site: Callable[..., Site]) -> None:
    """L-1, L-2, L-3, D-1: the node and its instance know of each other."""
    site = make_site(None, **{"availability-zones": ["az1"], "node-attributes": {"rack": "7"}})
    (node,) = site.serve("small")
    (instance,) = site.cloud.instances()
    assert instance.name == f"np{node.id}" == node.hostname
    assert instance.metadata == {
        "nodepool_node_id": node.id,
        "nodepool_provider_name": "nowhere",
        "nodepool_pool_name": "main",
    }
    assert (node.external_id, node.interface_ip, node.az) == (instance.id, instance.address, "az1")
    assert node.resources == {"instances": 1, "cores": 2, "ram": 2048}
    assert (node.connection_type, node.connection_port, node.python_path) == ("ssh", 22, "auto")
    assert node.host_keys == []
    assert node.attributes == {"rack": "7"}


def test_attempts(make_site: Callable[..., Site]) -> None:
    """L-4: the third attempt succeeds, and never are there two instances of the node."""
    site = make_site({"fail-launches": 2, "launch-retries": 3})
    (node,) = site.serve("small")
    assert node.external_id == site.cloud.instances()[0].id
    assert site.cloud.calls["create"] == 3
    assert site.cloud.peak == 1


def test_all_attempts_fail(make_site: Callable[..., Site]) -> None:
    """L-6: the node is `failed` and the request declined; its instance waits for the node's deletion."""
    site = make_site({"fail-launches": 9, "launch-retries": 2})
    request, _ = site.worker.serve("small", timeout=DEADLINE_SECONDS)
    assert request.state == states.FAILED
    (node,) = site.zk.nodeIterator()
    assert (node.state, node.allocated_to) == (states.FAILED, None)
    assert [instance.id for instance in site.cloud.instances()] == [node.external_id]


def test_launch_timeout(make_site: Callable[..., Site]) -> None:
    """L-5: an instance that hangs is given up after launch-timeout, and deleted before the next attempt."""
    site = make_site({"hang": True, "launch-timeout": 0.01, "launch-retries": 2})
    request, _ = site.worker.serve("small", timeout=DEADLINE_SECONDS)
    assert request.state == states.FAILED
    assert site.cloud.calls["create"] == 2
    assert site.cloud.peak == 1


def test_quota_error(make_site: Callable[..., Site]) -> None:
    """L-7: a quota error pauses the request and costs no attempt; the limits are asked for again."""
    site = make_site({"quota-errors": 1, "launch-retries": 1})
    handler = site.worker.accept(site.worker.submit("small"))
    wait_for("the launch ended", handler.launchesComplete)
    lists = site.cloud.calls["list"]
    assert handler.poll() is False
    assert handler.paused
    request = site.worker.finish(handler, DEADLINE_SECONDS)
    assert request.state == states.FULFILLED
    assert request.declined_by == []
    assert site.cloud.calls["list"] > lists
    assert sorted(node.state for node in site.zk.nodeIterator()) == [states.ABORTED, states.READY]


def test_lost_answer(make_site: Callable[..., Site]) -> None:
    """A creation whose answer was lost is not repeated: the instance is found and taken."""
    site = make_site({"lost-answers": 1})
    (node,) = site.serve("small")
    assert [instance.id for instance in site.cloud.instances()] == [node.external_id]
    assert site.cloud.calls["create"] == 1


def test_max_concurrency_counts_running_launches(make_site: Callable[..., Site]) -> None:
    """A-10: launches in progress, not nodes."""
    site = make_site({"hang": True})
    handler = site.worker.accept(site.worker.submit("small", "small"))
    assert handler.alive_thread_count == 2
    assert not handler.launchesComplete()
    site.cloud.set(hang=False)
    site.worker.finish(handler, DEADLINE_SECONDS)
    assert handler.alive_thread_count == 0


def test_pool_limits(make_site: Callable[..., Site]) -> None:
    """Q-1, Q-2: what can never fit is declined, what does not fit now waits for the deletion of a node."""
    site = make_site(None, **{"max-cores": 4})
    request, _ = site.worker.serve("large", timeout=DEADLINE_SECONDS)
    assert request.state == states.FAILED
    first, second = site.serve("small", "small")
    handler = site.worker.accept(site.worker.submit("small"))
    assert handler.paused
    assert site.worker.evictions == 1
    site.zk.nodes.lock_and_save(first)
    site.provider.startNodeCleanup(first).join()
    assert site.worker.finish(handler, DEADLINE_SECONDS).state == states.FULFILLED
    assert second.id in site.zk.getNodes()


def test_limits_of_the_cloud(make_site: Callable[..., Site]) -> None:
    """Q-1, Q-4: what others use of the cloud counts."""
    site = make_site({"limits": {"instances": 3}})
    site.cloud.create("stranger", metadata={}, resources={"cores": 1})
    site.serve("small", "small")
    handler = site.worker.accept(site.worker.submit("small"))
    assert handler.paused
    request, _ = site.worker.serve("small", "small", "small", timeout=DEADLINE_SECONDS)
    assert request.state == states.FAILED
    handler.declineRequest()


def test_ignore_provider_quota(make_site: Callable[..., Site]) -> None:
    """Q-6: the limits of the cloud are not looked at before it is asked."""
    site = make_site({"limits": {"instances": 1}}, **{"ignore-provider-quota": True})
    site.serve("small")
    handler = site.worker.accept(site.worker.submit("small"))
    assert not handler.paused
    wait_for("the launch ended", handler.launchesComplete)
    assert [node.state for node in handler.nodeset] == [states.ABORTED]
    handler.declineRequest()


def test_leak_needs_two_sweeps(make_site: Callable[..., Site], zk: MemoryZooKeeper) -> None:
    """D-2: an instance without a node goes at the second sweep in a row that finds it so."""
    site = make_site()
    (node,) = site.serve("small")
    (kept,) = site.serve("small")
    zk.deleteRawNode(node.key)
    site.provider.cleanupLeakedResources()
    assert len(site.cloud.instances()) == 2
    site.provider.cleanupLeakedResources()
    assert [instance.id for instance in site.cloud.instances()] == [kept.external_id]


def test_leaks_of_others(make_site: Callable[..., Site]) -> None:
    """D-4: instances without our keys, or of another provider, are not ours."""
    site = make_site()
    site.cloud.create("plain", metadata={}, resources={})
    site.cloud.create("half", metadata={"nodepool_provider_name": "nowhere"}, resources={})
    site.cloud.create("other", metadata={"nodepool_provider_name": "x", "nodepool_node_id": "1"}, resources={})
    for _ in range(3):
        site.provider.cleanupLeakedResources()
    assert [instance.name for instance in site.cloud.instances()] == ["plain", "half", "other"]


def test_failed_sweep_is_repeated(make_site: Callable[..., Site], zk: MemoryZooKeeper) -> None:
    """D-5: a cloud that is down costs a sweep, not the leak's record."""
    site = make_site()
    (node,) = site.serve("small")
    zk.deleteRawNode(node.key)
    site.provider.cleanupLeakedResources()
    site.cloud.set(down=True)
    with pytest.raises(CloudError):
        site.provider.cleanupLeakedResources()
    site.cloud.set(down=False)
    site.provider.cleanupLeakedResources()
    assert site.cloud.instances() == []


def test_replaced_provider_finishes_its_launches(make_site: Callable[..., Site]) -> None:
    """L-17: a launch that is in progress when its provider is replaced ends well."""
    old = make_site({"hang": True})
    handler = old.worker.accept(old.worker.submit("small"))
    wait_for("the instance is there", old.cloud.instances)
    old.provider.idle()
    new = make_site({"hang": False})
    old.provider.stop()
    assert old.worker.finish(handler, DEADLINE_SECONDS).state == states.FULFILLED
    assert len(new.serve("small")) == 1


def test_shutdown_does_not_wait_for_the_cloud(make_site: Callable[..., Site]) -> None:
    """G-14: at the end of the launcher a launch that hangs is abandoned."""
    site = make_site({"hang": True, "launch-timeout": 3600})
    handler = site.worker.accept(site.worker.submit("small"))
    wait_for("the instance is there", lambda: [i.status for i in site.cloud.instances()] == [BUILDING])
    site.provider.stop()
    joined = threading.Thread(target=site.provider.join)
    joined.start()
    joined.join(DEADLINE_SECONDS)
    assert not joined.is_alive()
    assert [node.state for node in handler.nodeset] == [states.FAILED]


def test_no_launch_after_stop(make_site: Callable[..., Site]) -> None:
    """2: a stopped provider takes on no new work: the request is declined, not stuck."""
    site = make_site()
    site.provider.stop()
    request, _ = site.worker.serve("small", timeout=DEADLINE_SECONDS)
    assert request.state == states.FAILED
    assert site.cloud.calls["create"] == 0


def test_deletion_fails_and_is_repeated(make_site: Callable[..., Site]) -> None:
    """X-5: after an error of the cloud the node is unlocked and still `deleting`."""
    site = make_site()
    (node,) = site.serve("small")
    site.cloud.set(down=True)
    site.zk.nodes.lock_and_save(node)
    site.provider.startNodeCleanup(node).join()
    stored = site.zk.getNode(node.key)
    assert stored is not None
    assert stored.state == states.DELETING
    assert not site.zk.isNodeLocked(stored)
    site.cloud.set(down=False)
    site.zk.nodes.lock_and_save(stored)
    site.provider.startNodeCleanup(stored).join()
    assert site.zk.getNodes() == []
    assert site.cloud.instances() == []
