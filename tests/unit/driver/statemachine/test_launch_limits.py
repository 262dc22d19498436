# SPDX-License-Identifier: Apache-2.0
"""Limits of pools and clouds when nodes are launched (rules Q)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.model import states
from nodepool.model.node import Node
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.support.wait import wait_for
from tests.unit.driver.statemachine.conftest import MakeSite


def test_no_place(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """Q-2: two launchers saw the same gap; the older node has the place, the younger one makes room at once."""
    site = make_site(None, **{"max-servers": 1})
    plain = site.provider.roomForOne
    others: list[Any] = []

    def room(pool: Any, label: str) -> bool:
        found = plain(pool, label)
        if found and not others:
            node = Node("small")
            node.provider, node.pool, node.resources = "nowhere", "main", {"instances": 1}
            zk.storeNode(node)
            others.append(node)
        return found

    site.provider.roomForOne = room  # type: ignore[method-assign]
    handler = site.worker.accept(site.worker.submit("small"))
    assert handler.poll() is False
    assert handler.paused
    assert site.cloud.calls["create"] == 0
    (node,) = zk.nodeIterator()
    zk.deleteRawNode(node.key)
    assert site.worker.finish(handler, 30).state == states.FULFILLED


def test_a_look_for_room_is_no_probe(make_site: MakeSite) -> None:
    """L-7: a cloud that does not tell its limit is tried now and then, by a launch and not by a look."""
    site = make_site()
    (node,) = site.serve("small")
    handler = site.provider.getRequestHandler(site.worker, site.worker.submit("small"))
    assert handler.has_room_now("small")
    site.provider.learned_limits.refused("main", "small", "refused-node", "quota exceeded")
    assert not handler.has_room_now("small")
    site.provider.learned_limits._limits["main", "small"]._probe_at = float("-inf")
    assert not handler.has_room_now("small")
    assert handler.hasRemainingQuota("small"), "the probe"
    assert not handler.hasRemainingQuota("small")
    site.delete(node)
    assert handler.has_room_now("small")


def test_no_place_while_nobody_knows(make_site: MakeSite, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q-2: nodes that others have stored before ours may not be known yet."""
    site = make_site(None, **{"max-servers": 1})
    with monkeypatch.context() as unread:
        unread.setattr(zk.cache.nodes, "wait_settled", lambda seconds: False)
        handler = site.worker.accept(site.worker.submit("small"))
        assert handler.poll() is False
        assert handler.paused
        assert site.cloud.calls["create"] == 0
    assert site.worker.finish(handler, 30).state == states.FULFILLED


def test_pool_limits(make_site: MakeSite) -> None:
    """Q-1, Q-2: what can never fit is declined, what does not fit now waits for the deletion of a node."""
    site = make_site(None, **{"max-cores": 4})
    site.fail("large")
    first, second = site.serve("small", "small")
    handler = site.worker.accept(site.worker.submit("small"))
    assert handler.paused
    assert site.worker.evictions == 1
    site.delete(first)
    assert site.worker.finish(handler, 30).state == states.FULFILLED
    assert second.id in site.zk.getNodes()


def test_limits_of_the_cloud(make_site: MakeSite) -> None:
    """Q-1, Q-4: what others use of the cloud counts."""
    make_site().cloud.create("stranger", metadata={}, resources={"cores": 1})
    site = make_site({"limits": {"instances": 3}})
    site.serve("small", "small")
    handler = site.worker.accept(site.worker.submit("small"))
    assert handler.paused
    site.fail("small", "small", "small")
    handler.declineRequest()


def test_unknown_limits_do_not_decline(make_site: MakeSite) -> None:
    """F-5: while the cloud does not say what it allows, requests wait."""
    site = make_site({"limits": {"instances": 1}})
    wait_for("limits are known", site.provider.estimatedNodepoolQuota)
    site.cloud.set(down=True)
    blind = make_site()
    handler = blind.worker.accept(blind.worker.submit("small"))
    assert handler.paused
    assert not handler.done
    blind.cloud.set(down=False)
    assert blind.worker.finish(handler, 60).state == states.FULFILLED
