# SPDX-License-Identifier: Apache-2.0
"""nodepool.driver.framework.quota_support: limits, use and room (rules Q; reference/driver 12)."""

from __future__ import annotations

import math
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.driver.framework import quota_support
from nodepool.driver.framework.quota_support import QuotaSupport
from nodepool.exceptions import RuntimeConfigurationException
from nodepool.model.node import Node
from nodepool.model.quota import QuotaInformation
from nodepool.model.reasons import ReasonCode
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.support.manual_clock import ManualClock, monotonic_clock
from tests.support.wait import DEADLINE_SECONDS, wait_for

NEEDS = {
    "small": QuotaInformation(cores=2, instances=1, ram=2048),
    "large": QuotaInformation(cores=8, instances=1, ram=8192, **{"volumes": 1, "volume-gb": 80}),
    "free": QuotaInformation(),
}


def make_pool(name: str = "main", **limits: Any) -> Any:
    settings = {"max_servers": math.inf, "ignore_provider_quota": False, **limits}
    return SimpleNamespace(name=name, labels=dict.fromkeys(NEEDS), **settings)


class Manager(QuotaSupport):
    """A provider with a cloud that answers from attributes."""

    def __init__(self, *pools: Any, nodes: tuple[Node, ...] = ()) -> None:
        super().__init__()
        by_name = {pool.name: pool for pool in pools}

        def supported(pool_name: str | None = None) -> set[str]:
            return {label for pool in pools if pool_name in (None, pool.name) for label in pool.labels}

        self.provider = cast(Any, SimpleNamespace(name="cloud", pools=by_name, getSupportedLabels=supported))
        self.zk = cast(Any, SimpleNamespace(cache=None, nodeIterator=lambda: iter(nodes)))
        self.limits = QuotaInformation(cores=20, instances=10, ram=20480, default=math.inf)
        self.unmanaged = QuotaInformation()
        self.error: BaseException | None = None
        self.asked = 0
        #: The cloud answers while this is set.
        self.answers = threading.Event()
        self.answers.set()

    def quotaNeededByLabel(self, label: str, pool: Any) -> QuotaInformation:
        if label not in NEEDS:
            raise RuntimeConfigurationException(f"no flavor for {label}")
        return NEEDS[label].copy()

    def unmanagedQuotaUsed(self) -> QuotaInformation:
        return self.unmanaged.copy()

    def getProviderLimits(self) -> QuotaInformation:
        self.asked += 1
        self.answers.wait(DEADLINE_SECONDS)
        if self.error is not None:
            raise self.error
        return self.limits.copy()


def make_node(state: str = "ready", provider: str = "cloud", pool: str | None = "main", **fields: Any) -> Node:
    node = Node("small", id="0000000001")
    node.state, node.provider, node.pool = state, provider, pool
    for name, value in fields.items():
        setattr(node, name, value)
    return node


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The clock of the limits' cache."""
    return monotonic_clock(monkeypatch, quota_support)


def compute(information: QuotaInformation) -> dict[str, float]:
    return information.quota["compute"]


# -- limits --


def test_limits_without_what_others_use() -> None:
    """Q-4"""
    manager = Manager()
    manager.unmanaged = QuotaInformation(cores=5, instances=3, ram=1024)
    assert compute(manager.estimatedNodepoolQuota()) == {"cores": 15, "instances": 7, "ram": 19456}


def test_limits_are_kept_for_300_seconds(clock: ManualClock) -> None:
    """Q-5"""
    manager = Manager()
    manager.estimatedNodepoolQuota()
    clock.pass_seconds(299.9)
    manager.estimatedNodepoolQuota()
    assert manager.asked == 1
    clock.pass_seconds(0.1)
    manager.estimatedNodepoolQuota()
    assert manager.asked == 2


def test_quota_error_drops_the_limits(clock: ManualClock) -> None:
    """Q-5"""
    manager = Manager()
    manager.estimatedNodepoolQuota()
    manager.limits = QuotaInformation(cores=1, default=math.inf)
    manager.invalidateQuotaCache()
    assert compute(manager.estimatedNodepoolQuota())["cores"] == 1


def test_error_of_the_cloud_uses_old_limits(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """Q-5"""
    manager = Manager()
    manager.estimatedNodepoolQuota()
    manager.error = OSError("cloud is down")
    clock.pass_seconds(300)
    assert compute(manager.estimatedNodepoolQuota())["cores"] == 20
    assert "cloud is down" in caplog.text
    manager.error = None
    manager.limits = QuotaInformation(cores=2, default=math.inf)
    assert compute(manager.estimatedNodepoolQuota())["cores"] == 20, "a cloud that is down is not asked at every node"
    assert manager.asked == 2
    clock.pass_seconds(quota_support.ERROR_AGE_SECONDS)
    assert compute(manager.estimatedNodepoolQuota())["cores"] == 2


def test_error_without_old_limits() -> None:
    manager = Manager()
    manager.error = OSError("cloud is down")
    with pytest.raises(OSError):
        manager.estimatedNodepoolQuota()


def test_exit_of_a_library(clock: ManualClock) -> None:
    """sys.exit() in a driver's library is an error of the cloud, and it is asked again."""
    manager = Manager()
    manager.error = SystemExit(3)
    with pytest.raises(RuntimeError, match=r"sys.exit\(3\)"):
        manager.estimatedNodepoolQuota()
    manager.error = None
    clock.pass_seconds(quota_support.ERROR_AGE_SECONDS)
    assert compute(manager.estimatedNodepoolQuota())["cores"] == 20


def test_no_thread_to_ask_for_the_limits(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Q-5: the next one asks."""

    def no_thread(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    manager = Manager(make_pool())
    manager.estimatedNodepoolQuota()
    clock.pass_seconds(quota_support.LIMITS_AGE_SECONDS)
    manager.limits = QuotaInformation(cores=40)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        assert manager.estimatedNodepoolQuota().quota["compute"]["cores"] == 20, "the old ones"
    assert "limits not asked for: can't start new thread" in caplog.text
    assert manager.estimatedNodepoolQuota().quota["compute"]["cores"] == 40


def test_caller_may_change_the_limits() -> None:
    manager = Manager()
    manager.estimatedNodepoolQuota().subtract(QuotaInformation(cores=19))
    assert compute(manager.estimatedNodepoolQuota())["cores"] == 20


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


# -- a cloud that does not answer --


def test_cloud_that_never_answered(clock: ManualClock) -> None:
    """F-5, Q-1: no reason to refuse a request for ever; there is no room either, and it is not asked all the time."""
    pool = make_pool()
    manager = Manager(pool)
    manager.error = OSError("cloud is down")
    for _ in range(3):
        assert manager.canEverFit(pool, ["small"])
        assert not manager.roomForOne(pool, "small")
    assert manager.asked == 1
    assert not manager.canEverFit(make_pool(max_servers=0), ["small"]), "the limits of the configuration are known"
    manager.error = None
    clock.pass_seconds(quota_support.ERROR_AGE_SECONDS)
    assert manager.roomForOne(pool, "small")


def test_error_is_the_same_for_all(clock: ManualClock) -> None:
    """Whoever asks soon after an error gets it too."""
    manager = Manager()
    manager.error = OSError("cloud is down")
    for _ in range(2):
        with pytest.raises(OSError, match="cloud is down"):
            manager.estimatedNodepoolQuota()
    assert manager.asked == 1


def test_cloud_that_hangs(monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> None:
    """F-5: it is asked once, and waited for only a while; the old limits serve until it answers."""
    monkeypatch.setattr(quota_support, "ANSWER_SECONDS", 0.01)
    pool = make_pool()
    manager = Manager(pool)
    manager.answers.clear()
    for _ in range(3):
        assert manager.canEverFit(pool, ["small"])
        assert not manager.roomForOne(pool, "small")
    manager.answers.set()
    wait_for("there is an answer", lambda: manager.roomForOne(pool, "small"))
    manager.answers.clear()
    clock.pass_seconds(300)
    manager.limits = QuotaInformation(cores=1, default=math.inf)
    for _ in range(3):
        assert manager.roomForOne(pool, "small")
    manager.answers.set()
    wait_for("the new limits count", lambda: not manager.roomForOne(pool, "small"))
    assert manager.asked == 2


def test_quota_error_while_the_cloud_is_asked(monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> None:
    """Q-5: the answer that was under way may be too old."""
    monkeypatch.setattr(quota_support, "ANSWER_SECONDS", 0.01)
    manager = Manager()
    manager.answers.clear()
    with pytest.raises(RuntimeError, match="not told its limits yet"):
        manager.estimatedNodepoolQuota()
    manager.invalidateQuotaCache()
    manager.answers.set()

    def asked_again() -> bool:
        try:
            manager.estimatedNodepoolQuota()
        except RuntimeError:
            return False
        return manager.asked == 2

    wait_for("it is asked again", asked_again)


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
