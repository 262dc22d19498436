# SPDX-License-Identifier: Apache-2.0
"""`FollowedNodes`: after any changes it says what a look at all nodes says."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from nodepool.model import states
from nodepool.model.node import Node
from nodepool.plan.observed import FollowedNodes, NodeIndex

STATES = (states.READY, states.IN_USE, states.HOLD, states.DELETING)


def node(node_id: str, state: str = states.READY, request: str | None = None) -> Node:
    made = Node("small")
    made.id, made.state = node_id, state
    made.provider, made.pool, made.allocated_to = "cloud", "main", request
    return made


def facts(index: NodeIndex) -> tuple[object, ...]:
    requests = [f"200-{number}" for number in range(6)]
    return dict(index.counts), index.deleting, index.held, dict(index.allocated), index.allocated_to(requests)


def check(followed: FollowedNodes, nodes: Mapping[str, Node], noted: frozenset[str] = frozenset()) -> None:
    found, index = followed.follow(dict(nodes), noted)
    assert list(found.items()) == sorted(nodes.items())
    assert facts(index) == facts(NodeIndex.of(found.values()))


@pytest.mark.parametrize("seed", range(20))
def test_as_a_look_at_all(seed: int) -> None:
    """Nodes come, go, are replaced and are changed in place, in any order."""
    chance = random.Random(seed)
    followed, nodes, last = FollowedNodes(), {}, 0
    for _ in range(60):
        noted = set()
        for _ in range(chance.randrange(6)):
            last += 1
            # Not always behind the others: the first listing is in no order.
            number = last if chance.random() < 0.8 else chance.randrange(1000, 2000)
            nodes[f"{number:010}"] = node(f"{number:010}")
        for node_id in chance.sample(sorted(nodes), min(len(nodes), chance.randrange(5))):
            request = chance.choice([None, "", "200-1", "200-2", "200-3"])
            match chance.randrange(3):
                case 0:
                    del nodes[node_id]
                case 1:
                    nodes[node_id] = node(node_id, chance.choice(STATES), request)
                case _:
                    nodes[node_id].state, nodes[node_id].allocated_to = chance.choice(STATES), request
                    noted.add(node_id)
        check(followed, nodes, frozenset({*noted, "unknown"}))
    check(followed, {})


def test_what_it_gave_stays() -> None:
    """Those who read an earlier moment see nothing of a later one."""
    followed = FollowedNodes()
    first = {"0000000001": node("0000000001", states.HOLD, "200-1"), "0000000002": node("0000000002", request="200-1")}
    nodes, index = followed.follow(first, ())
    before = dict(nodes), facts(index)
    followed.follow({"0000000002": node("0000000002", states.DELETING), "0000000003": node("0000000003")}, ())
    assert (dict(nodes), facts(index)) == before
