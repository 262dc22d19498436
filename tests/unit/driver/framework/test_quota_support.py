# SPDX-License-Identifier: Apache-2.0
"""nodepool.driver.framework.quota_support: use and room (rules Q; reference/driver 12)."""

from __future__ import annotations

import math
from typing import Any

import pytest

from nodepool.model.quota import QuotaInformation
from nodepool.model.reasons import ReasonCode
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.unit.driver.framework.quota_manager import Manager, compute, make_node, make_pool

# -- use --


def test_nodes_in_every_state_count() -> None:
    """Q-3"""
    nodes = [make_node(state) for state in ("init", "building", "ready", "in-use", "hold", "deleting", "failed")]
    used = Manager(make_pool(), nodes=tuple(nodes)).estimatedNodepoolQuotaUsed()
    assert compute(used) == {"cores": 14, "instances": 7, "ram": 7 * 2048}


def test_stored_resources_win_over_the_label() -> None:
    """Q-3"""
    node = make_node(resources={"cores": 4, "instances": 1, "ram": 512, "volumes": 2})
    used = Manager(make_pool(), nodes=(node,)).estimatedNodepoolQuotaUsed()
    assert compute(used) == {"cores": 4, "instances": 1, "ram": 512, "volumes": 2}


def test_only_known_nodes_of_the_provider_count() -> None:
    """Q-3: nodes of unknown pools or labels are skipped."""
    nodes = (
        make_node(provider="other"),
        make_node(pool="gone"),
        make_node(type=["gone"]),
        make_node(type=[]),
        make_node(pool=None),
        make_node(),
    )
    assert compute(Manager(make_pool(), nodes=nodes).estimatedNodepoolQuotaUsed())["instances"] == 1


@pytest.mark.parametrize("state", ["init", "building"])
def test_launches_of_others_count_before_they_say_what_they_use(state: str) -> None:
    """Q-3: a launcher of the same provider may have labels and pools that we do not have."""
    nodes = (make_node(state, type=["theirs"]), make_node(state, pool="theirs"))
    manager = Manager(make_pool(), nodes=nodes)
    assert compute(manager.estimatedNodepoolQuotaUsed())["instances"] == 2


def test_resources_of_a_gone_pool_count() -> None:
    """Its machine is still there."""
    nodes = (make_node(pool="gone", resources={"cores": 4, "instances": 1}),)
    assert compute(Manager(make_pool(), nodes=nodes).estimatedNodepoolQuotaUsed())["cores"] == 4


def test_use_of_one_pool() -> None:
    """Q-2"""
    first, second = make_pool("first"), make_pool("second")
    manager = Manager(first, second, nodes=(make_node(pool="first"), make_node(pool="second"), make_node(pool="first")))
    assert compute(manager.estimatedNodepoolQuotaUsed(first))["instances"] == 2
    assert compute(manager.estimatedNodepoolQuotaUsed())["instances"] == 3


def test_label_that_cannot_be_known_does_not_spoil_the_count() -> None:
    """Q-3, Q-14: one bad label must not stop everything that counts."""
    pool = make_pool()
    pool.labels["broken"] = None
    nodes = (make_node(type=["broken"]), make_node())
    assert compute(Manager(pool, nodes=nodes).estimatedNodepoolQuotaUsed())["instances"] == 1


@pytest.mark.parametrize("wrong", [math.inf, math.nan, "4", True, None])
def test_resources_that_are_no_numbers(wrong: Any) -> None:
    """Data of others must not make a pool look full for ever."""
    node = make_node(resources={"cores": wrong, "instances": 1})
    assert compute(Manager(make_pool(), nodes=(node,)).estimatedNodepoolQuotaUsed())["cores"] == 0


# -- room --


def test_can_ever_fit_ignores_our_nodes() -> None:
    """Q-1"""
    pool = make_pool()
    manager = Manager(pool, nodes=tuple(make_node() for _ in range(10)))
    assert manager.canEverFit(pool, ["small"] * 10)
    assert not manager.canEverFit(pool, ["small"] * 11), "cores"
    assert not manager.roomForOne(pool, "small")


@pytest.mark.parametrize(
    ("limits", "fits"),
    [
        ({"max_servers": 2}, True),
        ({"max_servers": 1}, False),
        ({"max_cores": 10}, True),
        ({"max_cores": 9}, False),
        ({"max_ram": 10239}, False),
        ({"max_volumes": 0}, False),
        ({"max_volumes": 1}, True),
        ({"max_volume_gb": 79}, False),
        ({"max_volume_gb": 80}, True),
        ({"max_resources": {"L-1216C47A": 5}}, True),
        ({"max_resources": {"cores": 9}}, False),
        ({"max_cores": None, "max_ram": None}, True),
    ],
)
def test_limits_of_the_pool(limits: dict[str, Any], fits: bool) -> None:
    """Q-1, Q-18"""
    pool = make_pool(**limits)
    assert Manager(pool).canEverFit(pool, ["small", "large"]) is fits


def test_room_for_one_counts_the_pool_and_the_provider() -> None:
    """Q-2"""
    first, second = make_pool("first", max_servers=2), make_pool("second")
    nodes = [make_node(pool="first") for _ in range(2)]
    manager = Manager(first, second, nodes=tuple(nodes))
    assert not manager.roomForOne(first, "small")
    assert not manager.poolHasRoom(first, "small")
    assert manager.roomForOne(second, "small")
    manager.limits = QuotaInformation(cores=5, default=math.inf)
    manager.invalidateQuotaCache()
    assert not manager.roomForOne(second, "small"), "the cloud counts the nodes of all pools"
    assert manager.poolHasRoom(second, "small")


def test_shortage_says_what_is_missing() -> None:
    """Q-2, Q-8: whose limit it is, and how much of it is in use."""
    first, second = make_pool("first", max_servers=2), make_pool("second")
    manager = Manager(first, second, nodes=tuple(make_node(pool="first") for _ in range(2)))
    full = manager.shortage(first, "small")
    assert full is not None
    assert (full.code, full.text) == (ReasonCode.ROOM_INSTANCES, "quota: 2 of 2 instances of pool first in use")
    assert full.numbers == {"limit": 2, "used": 2, "needed": 1}
    assert manager.shortage(second, "small") is None
    manager.limits = QuotaInformation(cores=5, default=math.inf)
    manager.invalidateQuotaCache()
    cores = manager.shortage(second, "small")
    assert cores is not None
    assert cores.text == "quota: 4 of 5 cores of provider cloud in use, 2 more needed"
    assert manager.shortage(second, "no such label") is None


def test_shortage_of_a_cloud_that_does_not_tell_its_limits() -> None:
    """Q-5: nobody knows whether there is room."""
    manager = Manager(make_pool())
    manager.error = RuntimeError("HTTP 503")
    unknown = manager.shortage(make_pool(), "small")
    assert unknown is not None
    assert (unknown.code, unknown.text) == (
        ReasonCode.QUOTA_UNKNOWN,
        "the limits of provider cloud are not known: HTTP 503",
    )


def test_what_never_fits() -> None:
    """A-13: whose limit it is, and what is needed of it."""
    pool = make_pool(max_servers=2)
    manager = Manager(pool)
    manager.limits = QuotaInformation(cores=3, default=math.inf)
    assert manager.excess(pool, ["small"]) is None
    of_provider = manager.excess(pool, ["small"] * 2)
    assert of_provider is not None
    assert of_provider.text == "it would exceed quota: 4 cores needed, the limit of provider cloud is 3"
    of_pool = manager.excess(pool, ["small"] * 3)
    assert of_pool is not None
    assert (of_pool.text, of_pool.numbers) == (
        "it would exceed quota: 3 instances needed, the limit of pool main is 2",
        {"limit": 2, "needed": 3},
    )
    assert manager.excess(pool, ["no such label"]) is None


def test_ignore_provider_quota() -> None:
    """Q-6"""
    pool = make_pool(ignore_provider_quota=True, max_servers=1)
    manager = Manager(pool)
    manager.error = OSError("must not be asked")
    assert manager.canEverFit(pool, ["large"])
    assert manager.roomForOne(pool, "large")
    assert not manager.canEverFit(pool, ["large", "large"])


def test_label_that_can_never_work() -> None:
    """Q-14"""
    pool = make_pool()
    pool.labels["broken"] = None
    manager = Manager(pool)
    assert not manager.canEverFit(pool, ["small", "broken"])
    assert not manager.roomForOne(pool, "broken")
    assert manager.errorLabels() == ["broken"]


def test_label_quota() -> None:
    """How many of each label would still fit; the best pool counts."""
    first, second = make_pool("first", max_servers=3), make_pool("second", max_servers=6)
    manager = Manager(first, second, nodes=(make_node(pool="second"),))
    assert manager.getLabelQuota() == {"small": 5, "large": 2, "free": math.inf}


def test_label_quota_is_never_negative() -> None:
    pool = make_pool(max_servers=1)
    manager = Manager(pool, nodes=tuple(make_node() for _ in range(3)))
    assert manager.getLabelQuota()["small"] == 0


# -- use, with a cache --


def test_use_follows_the_cache() -> None:
    """Q-2, Q-3: the same numbers with a cache, where only what changed is counted."""
    first, second = make_pool("first"), make_pool("second")
    manager = Manager(first, second)
    zk = manager.zk = MemoryZooKeeper()
    for provider, pool, resources in (
        ("cloud", "first", {"cores": 4, "instances": 1}),
        ("cloud", "second", {"cores": 2, "instances": 1}),
        ("cloud", "second", None),
        ("cloud", None, {"cores": 100, "instances": 1}),
        ("other", "first", {"cores": 1000, "instances": 1}),
    ):
        node = make_node(provider=provider, pool=pool, resources=resources)
        node.id = None
        zk.storeNode(node)
    assert compute(manager.estimatedNodepoolQuotaUsed(first)) == {"cores": 4, "instances": 1, "ram": 0}
    assert compute(manager.estimatedNodepoolQuotaUsed(second)) == {"cores": 4, "instances": 2, "ram": 2048}
    assert compute(manager.estimatedNodepoolQuotaUsed())["cores"] == 108
    for node_id in zk.getNodes():
        zk.deleteRawNode(node_id)
    assert compute(manager.estimatedNodepoolQuotaUsed()) == {"cores": 0, "instances": 0, "ram": 0}


def test_driver_without_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    """Q-1, Q-2, reference/driver 12: NotImplementedError means unlimited; the pool's own limits hold."""

    def missing(*_: Any) -> Any:
        raise NotImplementedError

    pool = make_pool(max_servers=3)
    manager = Manager(pool)
    for name in ("quotaNeededByLabel", "unmanagedQuotaUsed", "getProviderLimits"):
        monkeypatch.setattr(manager, name, missing)
    assert manager.canEverFit(pool, ["small"] * 3)
    assert manager.roomForOne(pool, "small")
    assert not manager.canEverFit(pool, ["small"] * 4)
    assert manager.errorLabels() == []


class NeverInitialized(Manager):
    """As static providers of 11.0.0, which have the class among their bases and use nothing of it."""

    def __init__(self, *pools: Any) -> None:
        made = Manager(*pools)
        self.provider, self.zk = made.provider, MemoryZooKeeper()


def test_provider_that_does_not_initialize_it() -> None:
    """W-10: it has nothing to tell, and that is no error."""
    provider = NeverInitialized(make_pool())
    assert (provider.limitStatus("main"), provider.labelErrors(), provider.errorLabels()) == ([], {}, [])
