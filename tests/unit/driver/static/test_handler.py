# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.static.provider`."""

from __future__ import annotations

from typing import Any, cast

import pytest

from nodepool.driver.static.provider import StaticNodeRequestHandler
from nodepool.model.node import Node
from nodepool.model.reasons import ReasonCode, reason_of
from nodepool.model.request import NodeRequest
from nodepool.plan.queue import MIN_READY_REQUESTOR
from tests.unit.driver.static.conftest import Lab


class Worker:
    """What a handler sees of its pool worker."""

    launcher_id = "pool-1"

    def __init__(self, lab: Lab, slots: int, pool: dict[str, Any] | None) -> None:
        self._lab = lab
        self._provider = lab.provider({"host-key-checking": False, "max-parallel-jobs": slots}, pool=pool)

    def wake(self) -> None:
        """Hosts went or came."""

    def getZK(self) -> Any:
        return self._lab.zk

    def getProviderManager(self) -> Any:
        return self._provider

    def getProviderConfig(self) -> Any:
        return self._provider.provider

    def getPoolConfig(self) -> Any:
        return self._provider.provider.pools["main"]


def handler(
    lab: Lab, *labels: str, requestor: str = "zuul", slots: int = 1, pool: dict[str, Any] | None = None
) -> StaticNodeRequestHandler:
    request = NodeRequest("200-0000000001")
    request.node_types = list(labels)
    request.requestor = requestor
    worker = cast(Any, Worker(lab, slots, pool))
    made = worker.getProviderManager().getRequestHandler(worker, request)
    assert isinstance(made, StaticNodeRequestHandler)
    return made


def test_max_servers_does_not_count_hosts(lab: Lab) -> None:
    """S-11, S-14: a request waits for hosts, however few max-servers allows."""
    made = handler(lab, "small", "small", slots=2, pool={"max-servers": 1})
    assert made.getDeclinedReasons() == []
    assert not made.hasRemainingQuota("small")
    assert made.imagesAvailable()
    assert made.launchesComplete()
    assert made.alive_thread_count == 0


def test_more_nodes_than_the_pool_has_slots_are_declined(lab: Lab) -> None:
    """S-15: no host will ever be added by waiting; the reason says how many there are."""
    (text,) = handler(lab, *["small"] * 3, slots=2).getDeclinedReasons()
    assert text == "3 nodes of label small are needed, this pool has 2 slots"
    assert (reason_of(text).code, reason_of(text).numbers) == (ReasonCode.ROOM_STATIC, {"needed": 3, "slots": 2})
    assert not handler(lab, *["small"] * 3, slots=2).hasProviderQuota(["small"] * 3)


@pytest.mark.parametrize(
    ("labels", "requestor", "pool", "reason"),
    [
        (["small"], MIN_READY_REQUESTOR, {}, "min-ready"),
        (["small"], "zuul", {"max-servers": 0}, "max-servers is 0"),
        (["small", "big"], "zuul", {}, "big"),
    ],
)
def test_declines(lab: Lab, labels: list[str], requestor: str, pool: dict[str, Any], reason: str) -> None:
    """S-14, A-13: min-ready requests, disabled pools and unknown labels."""
    (text,) = handler(lab, *labels, requestor=requestor, pool=pool).getDeclinedReasons()
    assert reason in text


def test_never_launches(lab: Lab) -> None:
    """S-11: hosts are not launched."""
    made = handler(lab, "small")
    with pytest.raises(NotImplementedError):
        made.launch(Node("small"))
    assert made.manager.LAUNCHES is False
    assert made.manager.PAUSE_AT_QUOTA is False


def test_ready_node_is_checked(lab: Lab) -> None:
    """S-9: the provider's check decides."""
    made = handler(lab, "small")
    lab.settle(lab.providers[0])
    (node,) = lab.zk.all_nodes()
    assert made.checkReusableNode(node)
    node.hostname = "127.0.0.250"
    assert not made.checkReusableNode(node)
