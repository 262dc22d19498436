# SPDX-License-Identifier: Apache-2.0
"""What handlers get as ``pw``: all of `PoolWorkerView`, from the parts of the pool."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from nodepool.driver.framework.handler_hooks import PoolWorkerView
from nodepool.launcher.pool.handlers import LaunchLog
from nodepool.launcher.pool.worker import PoolServices
from nodepool.model.node import Node
from nodepool.model.status import FailedLaunch, LaunchesStatus


def test_each_question_goes_to_its_part() -> None:
    asked: list[Any] = []

    def has_place(_node: Node, *, reused: bool) -> bool:
        asked.append(("place", reused))
        return False

    node = Node("small", id="1")
    config = SimpleNamespace(driver=SimpleNamespace(name="static"))
    pool = SimpleNamespace(
        launcher_id="me",
        provider_name="one",
        pool_name="main",
        zk="zk",
        provider="provider",
        config=config,
        pool_config="pool config",
        absent_pools=lambda: ["absent"],
        provider_replaced=lambda: True,
        declines_of_others=lambda request_id: {"cloud/main": None},
        launcher=SimpleNamespace(provider={"one": "provider"}.get),
    )
    launches = LaunchLog(lambda: 5.0)
    services = PoolServices(
        cast(Any, pool),
        cast(Any, SimpleNamespace(ready="ready", set_aside=lambda refused: asked.append(("aside", refused.key)))),
        cast(Any, SimpleNamespace(evict=lambda *, shared: asked.append(("evict", shared)))),
        cast(Any, SimpleNamespace(has_place=has_place)),
        launches,
        lambda: asked.append("wake"),
    )
    seen: PoolWorkerView = services
    assert (seen.launcher_id, services.provider_name, services.pool_name) == ("me", "one", "main")
    answers: list[Any] = [seen.ready_nodes, seen.getZK(), seen.getProviderManager(), seen.getProviderConfig()]
    assert [*answers, seen.getPoolConfig()] == ["ready", "zk", "provider", config, "pool config"]
    assert (list(map(str, seen.absent_pools())), seen.provider_replaced()) == (["absent"], True)
    assert seen.declines_of_others("100-1") == {"cloud/main": None}
    # What drivers written for 11.0.0 ask.
    launcher: Any = services.nodepool
    assert (launcher.getZK(), launcher.getProviderManager("one")) == ("zk", "provider")
    seen.wake()
    seen.evict(shared=True)
    seen.set_aside(node)
    seen.launch_ended(node, "ready")
    seen.launch_ended(node, "error.quota", "no room")
    assert launches.status(0) == LaunchesStatus(0, 1, 1, FailedLaunch("error.quota", "no room", 5.0, node.id, "small"))
    assert not seen.tenant_has_place(node, reused=True)
    assert asked == ["wake", ("evict", True), ("aside", "1"), ("place", True)]
