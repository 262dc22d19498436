# SPDX-License-Identifier: Apache-2.0
"""Quota of a provider: limits, use, room (rules Q; reference/driver 12)."""

from __future__ import annotations

import math
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.driver.framework.fact import NotKnown
from nodepool.driver.framework.quota_support import ERROR_AGE_SECONDS, LIMITS_AGE_SECONDS, QuotaSupport
from nodepool.exceptions import RuntimeConfigurationException
from nodepool.model.node import Node, QuotaInformation
from nodepool.model.reasons import ReasonCode
from tests.support.manual_clock import ManualClock
from tests.support.tables import rows
from tests.support.wait import DEADLINE_SECONDS

NEEDS = {
    "small": QuotaInformation(cores=2, instances=1, ram=2048),
    "large": QuotaInformation(cores=8, instances=1, ram=8192, **{"volumes": 1, "volume-gb": 80}),
    "free": QuotaInformation(),
}
DOWN = OSError("cloud is down")


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
        by_id = {str(number): node for number, node in enumerate(nodes)}
        ignored = {"add_listener": lambda listener: None, "remove_listener": lambda listener: None}
        cached = SimpleNamespace(ids=by_id.keys, get=by_id.get, **ignored)
        self.zk = cast(Any, SimpleNamespace(cache=SimpleNamespace(nodes=cached)))
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

    def cores(self) -> float:
        return compute(self.estimatedNodepoolQuota())["cores"]


def make_node(state: str = "ready", provider: str = "cloud", pool: str | None = "main", **fields: Any) -> Node:
    node = Node("small", id="0000000001")
    node.state, node.provider, node.pool = state, provider, pool
    for name, value in fields.items():
        setattr(node, name, value)
    return node


def compute(information: QuotaInformation) -> dict[str, float]:
    return information.quota["compute"]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock().rules()


# -- use --

ONE = {"cores": 2, "instances": 1, "ram": 2048}


@pytest.mark.parametrize(
    ("node", "used"),
    [
        *((make_node(state), ONE) for state in ("init", "building", "ready", "in-use", "hold", "deleting", "failed")),
        # What is stored wins over the label, and counts for a pool that is not there any more: its machine is.
        (make_node(resources={"cores": 4, "volumes": 2}), {"cores": 4, "volumes": 2}),
        (make_node(pool="past", resources={"cores": 4}), {"cores": 4}),
        # Nodes of unknown pools or labels are skipped, but for launches of others, who say later what they use.
        *((make_node(**fields), {}) for fields in ({"provider": "other"}, {"pool": "past"}, {"pool": None})),
        *((make_node(type=labels), {}) for labels in (["past"], [], ["broken"])),
        *((make_node(state, type=["theirs"]), {"instances": 1}) for state in ("init", "building")),
        (make_node("init", pool="theirs"), {"instances": 1}),
        # Data of others must not make a pool look full for ever.
        *((make_node(resources={"cores": wrong}), {}) for wrong in (math.inf, math.nan, "4", True, None)),
    ],
)
def test_what_a_node_uses(node: Node, used: dict[str, float]) -> None:
    """Q-3, Q-14: in every state."""
    pool = make_pool()
    pool.labels["broken"] = None
    found = compute(Manager(pool, nodes=(node,)).estimatedNodepoolQuotaUsed())
    assert {name: amount for name, amount in found.items() if amount} == used


# -- room --


@rows(__file__, "limits_of_pools")
def test_limits_of_the_pool(limits: dict[str, Any], fits: bool) -> None:
    """Q-1, Q-18"""
    pool = make_pool(**limits)
    assert Manager(pool).canEverFit(pool, ["small", "large"]) is fits


def test_driver_without_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Q-1, reference/driver 12: NotImplementedError: each node is one instance; the limits of the pool hold."""

    def missing(*_: Any) -> Any:
        raise NotImplementedError

    pool = make_pool(max_servers=3)
    manager = Manager(pool)
    for name in ("quotaNeededByLabel", "unmanagedQuotaUsed", "getProviderLimits"):
        monkeypatch.setattr(manager, name, missing)
    assert [manager.canEverFit(pool, ["small"] * count) for count in (3, 4)] == [True, False]
    assert (manager.roomForOne(pool, "small"), manager.errorLabels()) == (True, [])


def test_room() -> None:
    """Q-1, Q-2, Q-8, A-13: what fits if nothing of ours runs, what fits now, and whose limit is in the way."""
    first, second = make_pool("first", max_servers=2), make_pool("second")
    nodes = [make_node(provider="other"), *(make_node(pool="first") for _ in range(2))]
    manager = Manager(first, second, nodes=tuple(nodes))
    assert manager.canEverFit(second, ["small"] * 10)
    assert not manager.canEverFit(second, ["small"] * 11), "cores"
    rooms = [(manager.roomForOne(pool, "small"), manager.poolHasRoom(pool, "small")) for pool in (first, second)]
    assert rooms == [(False, False), (True, True)]
    manager.limits = QuotaInformation(cores=5, default=math.inf)
    manager.invalidateQuotaCache()
    assert not manager.roomForOne(second, "small"), "the cloud counts the nodes of all pools"
    assert manager.poolHasRoom(second, "small")
    found = [manager.shortage(pool, label) for pool, label in ((first, "small"), (second, "small"), (first, "none"))]
    found += [manager.excess(first, labels) for labels in (["small"], ["small"] * 3, ["none"])]
    found += [manager.excess(second, ["small"] * 3)]
    assert [reason and reason.text for reason in found] == [
        "quota: 2 of 2 instances of pool first in use",
        "quota: 4 of 5 cores of provider cloud in use, 2 more needed",
        None,
        None,
        "it would exceed quota: 3 instances needed, the limit of pool first is 2",
        None,
        "it would exceed quota: 6 cores needed, the limit of provider cloud is 5",
    ]
    assert found[0] is not None
    assert (found[0].code, found[0].numbers) == (ReasonCode.ROOM_INSTANCES, {"limit": 2, "used": 2, "needed": 1})


# -- limits of the cloud --


def test_age_of_limits(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """Q-4, Q-5: without what others use; kept for 300 s, unless a quota was used up; an error leaves the old ones."""
    manager = Manager()
    manager.unmanaged = QuotaInformation(cores=5, instances=3, ram=1024)
    found = manager.estimatedNodepoolQuota()
    assert compute(found) == {"cores": 15, "instances": 7, "ram": 19456}
    found.subtract(QuotaInformation(cores=15))

    def look(seconds: float, cores: float, asked: int) -> None:
        clock.pass_seconds(seconds)
        assert (manager.cores(), manager.asked) == (cores, asked)

    manager.limits = QuotaInformation(cores=6, default=math.inf)
    look(LIMITS_AGE_SECONDS - 0.1, 15, 1)
    look(0.1, 1, 2)
    manager.limits = QuotaInformation(cores=7, default=math.inf)
    manager.invalidateQuotaCache()
    look(0, 2, 3)
    manager.error = DOWN
    look(LIMITS_AGE_SECONDS, 2, 4)
    assert "cloud is down" in caplog.text
    manager.error, manager.limits = None, QuotaInformation(cores=8, default=math.inf)
    look(ERROR_AGE_SECONDS - 0.1, 2, 4)
    look(0.1, 3, 5)


@pytest.mark.parametrize(("error", "text"), [(DOWN, "cloud is down"), (SystemExit(3), r"sys.exit\(3\)")])
def test_cloud_that_never_answered(clock: ManualClock, error: BaseException, text: str) -> None:
    """F-5, Q-1, Q-5: no reason to refuse a request for ever; there is no room either, and it is not asked at once."""
    pool = make_pool()
    manager = Manager(pool)
    manager.error = error
    for _ in range(3):
        with pytest.raises(NotKnown, match=text):
            manager.estimatedNodepoolQuota()
        assert manager.canEverFit(pool, ["small"])
        assert not manager.roomForOne(pool, "small")
    assert manager.asked == 1
    unknown = manager.shortage(pool, "small")
    assert unknown is not None
    assert unknown.code == ReasonCode.QUOTA_UNKNOWN
    assert unknown.text.startswith("the limits of provider cloud are not known: ")
    assert not manager.canEverFit(make_pool(max_servers=0), ["small"]), "the limits of the configuration are known"
    manager.error = None
    clock.pass_seconds(ERROR_AGE_SECONDS)
    assert manager.roomForOne(pool, "small")
