# SPDX-License-Identifier: Apache-2.0
"""Who a pool is, and what a pass works with, without ZooKeeper."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.launcher.pool.view import IN_ITS_LINE, PassContext
from nodepool.model import states
from nodepool.model.maintenance import Maintenance, Mode
from nodepool.model.reasons import Reason, ReasonCode
from nodepool.model.request import NodeRequest
from nodepool.plan.triage import PoolInfo


def pool_of(name: str, launches: int = 0, fast: str = "") -> Any:
    return SimpleNamespace(
        launcher_id=name, fulfils=lambda request_id: request_id == fast, own_launches=lambda: launches
    )


class Launcher:
    """A launcher with a provider ``one`` that can be replaced."""

    def __init__(self) -> None:
        self.running: Any = self.make("main")
        self.pools: list[Any] = [pool_of("me", 1, fast="100-1"), pool_of("other", 2, fast="100-2")]
        self.cache = SimpleNamespace(requests={})
        self.hold: Maintenance | None = None
        self.held_labels: dict[str, Maintenance] = {}
        self.maintenance = SimpleNamespace(of_pool=lambda *place: self.hold, of_labels=lambda: self.held_labels)

    def make(self, *pools: str) -> Any:
        config = SimpleNamespace(
            pools={name: object() for name in pools}, max_concurrency=3, getSupportedLabels=lambda pool: {"small"}
        )
        return SimpleNamespace(provider=config)

    def provider(self, name: str) -> Any:
        return self.running

    def siblings(self) -> list[Any]:
        return self.pools

    def siblings_of(self, name: str) -> list[Any]:
        return self.pools


@pytest.fixture
def launcher() -> Launcher:
    return Launcher()


@pytest.fixture
def context(launcher: Launcher) -> PassContext:
    return PassContext(cast(Any, launcher), "one", "main", "me")


def test_before_the_first_pass(context: PassContext) -> None:
    for name in ("provider", "config", "pool_config"):
        with pytest.raises(RuntimeError, match="provider one is not"):
            getattr(context, name)
    assert context.max_concurrency == -1


def test_constant_during_a_pass(context: PassContext, launcher: Launcher) -> None:
    """G-5: a reload takes effect with the next pass."""
    assert context.refresh()
    before = launcher.running
    assert (context.provider, context.config) == (before, before.provider)
    assert context.labels == {"small"}
    assert context.max_concurrency == 3
    assert not context.provider_replaced()
    launcher.running = launcher.make("main")
    assert context.provider is before
    assert context.provider_replaced()
    assert context.refresh()
    assert context.provider is launcher.running


def test_labels_are_asked_again_after_an_error(
    context: PassContext, launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A-3: a pool without labels would decline everything."""

    def fails(pool_name: str | None = None) -> set[str]:
        raise RuntimeError(f"no labels of {pool_name}")

    with monkeypatch.context() as patch:
        patch.setattr(launcher.running.provider, "getSupportedLabels", fails)
        with pytest.raises(RuntimeError, match="no labels of main"):
            context.refresh()
    assert context.refresh()
    assert context.labels == {"small"}


def test_pool_that_goes(context: PassContext, launcher: Launcher) -> None:
    """G-6"""
    launcher.running = launcher.make("second")
    assert not context.refresh()
    launcher.running = None
    assert not context.refresh()


def test_other_pools(context: PassContext) -> None:
    """A-10: launches count over all pools of the provider; what this pool serves itself no sibling serves."""
    assert context.launches_running() == 3
    assert context.sibling_serves("100-2")
    assert not context.sibling_serves("100-1")


def test_open_requests(context: PassContext, launcher: Launcher) -> None:
    """A-2"""
    request = NodeRequest("100-1")
    request.state = states.REQUESTED
    launcher.cache.requests["100-1"] = request
    assert context.open_request("100-1") is request
    assert context.open_request("100-2") is None
    request.declined_by = ["me"]
    assert context.open_request("100-1") is None
    request.declined_by, request.state = [], states.PENDING
    assert context.open_request("100-1") is None


def test_what_other_pools_said() -> None:
    """J-3: reasons of pools of this launcher; of others nothing is known."""
    said = Reason(ReasonCode.IMAGE_MISSING, "images are not available")

    def registered(pool_id: str, provider: str) -> PoolInfo:
        return PoolInfo(pool_id, provider, frozenset(), 100, False, "main")

    def sibling(pool_id: str, reason: Reason | None) -> Any:
        return SimpleNamespace(launcher_id=pool_id, declined=lambda request_id: reason)

    pools = [("me", "one"), ("other", "two"), ("late", "three"), ("away", "four"), ("twice", "two")]
    launcher = SimpleNamespace(
        pools=SimpleNamespace(registered=lambda: [registered(*pool) for pool in pools]),
        siblings=lambda: [sibling("me", said), sibling("other", said), sibling("late", None)],
    )
    context = PassContext(cast(Any, launcher), "one", "main", "me")
    assert context.place == "one/main"
    assert context.declines_of_others("100-1") == {"two/main": said, "three/main": IN_ITS_LINE, "four/main": None}


def test_what_an_operator_holds_back(launcher: Launcher, context: PassContext) -> None:
    """MT-3, MT-5: it is as at the beginning of the pass."""
    launcher.held_labels = {"gpu": Maintenance("label", "gpu", Mode.PAUSE)}
    assert context.held(["gpu"]) is None
    assert context.refresh()
    assert context.held(["small"]) is None
    held = context.held(["small", "gpu"])
    assert held is not None
    assert held.code is ReasonCode.LABEL_PAUSED
    launcher.hold = Maintenance("provider", "one", Mode.DRAIN)
    launcher.running = None
    assert not context.refresh(), "also of a pool whose provider is away"
    held = context.held(["small"])
    assert held is not None
    assert held.code is ReasonCode.PROVIDER_DRAINING
