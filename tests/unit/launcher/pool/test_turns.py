# SPDX-License-Identifier: Apache-2.0
"""nodepool.launcher.pool.view and free_counts: whose turn a request is, without threads or ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, cast

import pytest

from nodepool.launcher.pool.view import FORGET_SECONDS, GRACE_SECONDS, MANY, MAX_PASSED, TURN_SECONDS, WINDOW, Turns
from nodepool.launcher.pool_registry import FreeCounts
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.plan.queue import RequestKind
from nodepool.plan.triage import PoolInfo, first_choice
from tests.support.manual_clock import ManualClock

POOLS = [
    PoolInfo(f"pool-{number}", f"cloud-{number}", frozenset({"small"}), 100, paused=False, name="main")
    for number in range(3)
]


class Nodes:
    """The part of the node cache that is asked."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.locked: set[str] = set()
        self.tell: Callable[[str], None] = lambda node_id: None

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self.tell = listener

    def get(self, node_id: str) -> Node | None:
        return self.nodes.get(node_id)

    def ids(self) -> list[str]:
        return list(self.nodes)

    def is_locked(self, node_id: str) -> bool:
        return node_id in self.locked

    def put(self, node_id: str, pool: PoolInfo, *labels: str) -> Node:
        node = Node(list(labels or ("small",)), node_id)
        node.provider, node.pool, node.state = pool.provider_name, pool.name, "ready"
        self.nodes[node_id] = node
        self.tell(node_id)
        return node


@pytest.fixture
def nodes() -> Nodes:
    return Nodes()


@pytest.fixture
def counts(nodes: Nodes) -> FreeCounts:
    return FreeCounts(cast(Any, nodes))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def make(counts: FreeCounts, clock: ManualClock) -> Callable[[PoolInfo], Turns]:
    def made(me: PoolInfo) -> Turns:
        turns = Turns(counts, clock)
        turns.begin_pass(me.id, POOLS)
        return turns

    return made


def requests_of(owner: PoolInfo) -> Iterator[NodeRequest]:
    """Requests whose first choice is a pool."""
    for number in range(100_000):
        request = NodeRequest(f"200-{number:010}")
        request.node_types = ["small"]
        if first_choice(request.key, POOLS) is owner:
            yield request


def request_of(owner: PoolInfo) -> NodeRequest:
    return next(requests_of(owner))


def leaves(turns: Turns, request: NodeRequest) -> bool:
    """Does a pool leave a request to others? If so it is passed over."""
    others = turns.of_others(RequestKind.of(request), request)
    if others:
        turns.pass_over(request, others)
    return bool(others)


# -- whose turn


def test_one_takes_it_and_the_others_leave_it(make: Callable[[PoolInfo], Turns]) -> None:
    request = request_of(POOLS[1])
    assert [leaves(make(pool), request) for pool in POOLS] == [True, False, True]


def test_only_one_pool_has_the_label(make: Callable[[PoolInfo], Turns]) -> None:
    turns, request = make(POOLS[0]), request_of(POOLS[1])
    turns.begin_pass(POOLS[0].id, POOLS[:1])
    assert not leaves(turns, request)


def test_paused_pools_are_not_asked(make: Callable[[PoolInfo], Turns]) -> None:
    turns, request = make(POOLS[0]), request_of(POOLS[1])
    paused = [POOLS[0], PoolInfo("pool-1", "cloud-1", frozenset({"small"}), 100, paused=True, name="main")]
    turns.begin_pass(POOLS[0].id, paused)
    assert not leaves(turns, request)


def test_slow_first_choice(make: Callable[[PoolInfo], Turns], clock: ManualClock) -> None:
    """After each turn another one tries, the same for all; in the end everybody may."""
    request = request_of(POOLS[1])
    all_turns = [make(pool) for pool in (POOLS[0], POOLS[2])]
    assert [leaves(turns, request) for turns in all_turns] == [True, True]
    clock.pass_seconds(GRACE_SECONDS)
    second = [leaves(turns, request) for turns in all_turns]
    assert sorted(second) == [False, True]
    clock.pass_seconds(GRACE_SECONDS)
    assert not leaves(all_turns[second.index(True)], request)


def test_pool_with_a_node_helps_out_when_its_own_are_served(nodes: Nodes, make: Callable[[PoolInfo], Turns]) -> None:
    """Not at once: requests of its own come first."""
    nodes.put("n1", POOLS[0])
    turns, foreign, own = make(POOLS[0]), request_of(POOLS[1]), request_of(POOLS[0])
    assert leaves(turns, foreign)
    assert not leaves(turns, own)
    assert turns.end_pass() == [foreign.id]
    turns.begin_pass(POOLS[0].id, POOLS)
    assert not leaves(turns, foreign)


def test_nobody_helps_an_owner_that_has_a_node(nodes: Nodes, make: Callable[[PoolInfo], Turns]) -> None:
    nodes.put("n0", POOLS[0])
    nodes.put("n1", POOLS[1])
    turns, foreign = make(POOLS[0]), request_of(POOLS[1])
    assert leaves(turns, foreign)
    assert turns.end_pass() == []


def test_not_passed_over_for_ever(make: Callable[[PoolInfo], Turns], clock: ManualClock) -> None:
    turns, foreign = make(POOLS[0]), request_of(POOLS[1])
    for _ in range(MAX_PASSED):
        assert leaves(turns, foreign)
        clock.pass_seconds(2 * TURN_SECONDS)
    assert not leaves(turns, foreign)


def test_window(make: Callable[[PoolInfo], Turns]) -> None:
    """When nothing of its own is near, a pool takes what there is."""
    turns = make(POOLS[0])
    answers = [leaves(turns, request) for request in islice(requests_of(POOLS[1]), WINDOW + 1)]
    assert answers == [True] * WINDOW + [False]


def test_old_memories_go(make: Callable[[PoolInfo], Turns], clock: ManualClock) -> None:
    turns, requests = make(POOLS[0]), requests_of(POOLS[1])
    for request in islice(requests, MANY):
        turns.begin_pass(POOLS[0].id, POOLS)
        leaves(turns, request)
    clock.pass_seconds(2 * FORGET_SECONDS)
    for request in islice(requests, 2):
        leaves(turns, request)
    turns.begin_pass(POOLS[0].id, POOLS)
    assert len(turns._left) == 2


# -- counts of free nodes


def test_counts(nodes: Nodes, counts: FreeCounts) -> None:
    """A node that is locked, allocated or gone does not count."""
    assert not counts.could_serve(POOLS[0], ["small"])
    node = nodes.put("n1", POOLS[0], "small", "large")
    assert counts.could_serve(POOLS[0], ["small"])
    assert not counts.could_serve(POOLS[0], ["small", "large"]), "one node cannot be both"
    assert not counts.could_serve(POOLS[1], ["small"])
    nodes.put("n2", POOLS[0], "small")
    assert counts.could_serve(POOLS[0], ["small", "large"])
    assert not counts.could_serve(POOLS[0], ["large", "large"])
    nodes.locked.add("n2")
    nodes.tell("n2")
    assert not counts.could_serve(POOLS[0], ["small", "large"])
    node.allocated_to = "200-0000000001"
    nodes.tell("")
    assert not counts.could_serve(POOLS[0], ["small"])
    nodes.locked.clear()
    nodes.tell("")
    assert counts.could_serve(POOLS[0], ["small"]), "after a lost connection everything is looked at"
