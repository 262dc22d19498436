# SPDX-License-Identifier: Apache-2.0
"""Nodes that are there: which serve a request, which are missing, and which go."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.model.node import Node
from nodepool.model.states import DELETABLE_STATES, NODE_STATES
from nodepool.plan import launch as plan
from nodepool.plan.observed import NodeIndex, Observed
from nodepool.plan.retries import SeenTwice
from nodepool.plan.triage import ReadyNodes, is_free
from tests.support.observed import node, request
from tests.support.tables import rows

REQUEST = "200-0000000001"


def made(id: str, labels: str = "a", az: str | None = None, **fields: Any) -> Node:
    """A ready node without a launcher."""
    return node(0, *labels.split(), id=id, az=az, **fields)


# -- ready nodes for wanted labels


def filled(*nodes: Node) -> ReadyNodes:
    ready = ReadyNodes()
    for one in nodes:
        ready.put(one)
    return ready


@rows(__file__, "free_node")
def test_free_node(fields: dict[str, Any], free: bool) -> None:
    """N-2"""
    assert is_free(made("1", **fields), "cloud-1", "main") is free


@rows(__file__, "choice")
def test_choice(nodes: dict[int, str], wanted: str, az: str | None, expected: dict[int, int]) -> None:
    """N-1, N-5, N-7"""
    ready = filled(*(made(str(number), *text.split("@")) for number, text in nodes.items()))
    assert {position: int(one.key) for position, one in ready.choose(wanted, az).items()} == expected


# -- min-ready


@rows(__file__, "min_ready")
def test_min_ready(
    wanted: dict[str, int], nodes: list[dict[str, Any]], requests: list[str], expected: dict[str, int]
) -> None:
    """M-1, M-2, M-4, M-5, M-6, M-8: how many requests are missing, or too many."""
    there = [made(str(number), **{"labels": "a", **fields}) for number, fields in enumerate(nodes)]
    asked = [request(1, "a", requestor="NodePool:min-ready", state=state) for state in requests]
    others = [request(1, "a", requestor="zuul")]
    assert plan.missing(wanted, there, [*asked, *others]) == expected


# -- cleanup of nodes without a lock


@rows(__file__, "unlocked_nodes")
def test_unlocked_nodes(node_states: list[str], request_states: list[str | None], expected: str) -> None:
    """X-1, C-9, C-10, N-6, 5.4: by the state of the node and of its request."""
    for state in node_states:
        for request_state in request_states:
            found = None if request_state is None else request(1, state=request_state)
            verdict = plan.judge_unlocked(made("1", state=state, allocated_to=REQUEST), lambda _: found)  # noqa: B023
            assert type(verdict).__name__ == expected
        without = plan.judge_unlocked(made("1", state=state), lambda _: None)
        assert type(without).__name__ == ("Keep" if state in ("ready", "hold", "testing") else "Delete")
    assert {*DELETABLE_STATES, "ready", "hold", "testing", "init"} == set(NODE_STATES)


@rows(__file__, "ages")
def test_age(fields: dict[str, Any], ages: dict[str, float], max_hold_age: float, now: float, expected: str) -> None:
    """C-5, C-6"""
    old = made("1", **{"state_time": 1000.0, **fields})
    assert type(plan.judge_age(old, now, lambda label: ages.get(label, 0), max_hold_age)).__name__ == expected


@pytest.mark.parametrize(
    ("written", "held_since", "seconds", "kept"),
    [
        (7, None, 2.0, False),
        (7, 8, 2.0, False),
        (8, 8, 2.0, True),
        (9, 8, plan.STALLED_SECONDS - 1, True),
        (9, 8, plan.STALLED_SECONDS, False),
    ],
)
def test_unlocked_node_of_a_request_that_is_served(
    written: int, held_since: int | None, seconds: float, kept: bool
) -> None:
    """C-4: written under the present lock it is left alone, but not for ever: a lost launcher writes as late."""
    assert plan.is_of_holder(written, held_since, seconds) is kept


# -- a request that is given back


@rows(__file__, "in_the_way")
def test_in_the_way(mine: list[str], pool: str, goes: list[str]) -> None:
    """Q-10, Q-12: the first one holds an ``a`` of the main pool and lacks another. N-4: it may not reuse any."""
    first, nodes = [made("1")], [made(str(number + 2), labels, pool=pool) for number, labels in enumerate(mine)]
    assert [found.id for found in plan.in_the_way(request(1, "a", "a"), first, nodes)] == goes
    assert len(plan.in_the_way(request(1, "a", "a", reuse=False), first, nodes)) == min(1, len(mine))


def test_what_a_request_lacks() -> None:
    """Q-10: a node stands for one label that is lacking, and not for one that the request does not want."""
    wanted = request(1, "a", "b")
    assert plan.missing_labels(wanted, [made("1", "b"), made("2", "b")]) == {"a": 1}
    assert plan.missing_labels(wanted, [made("1", "x b"), made("2", "b a")]) == {}


# -- what is asked of all nodes


def facts(index: NodeIndex) -> tuple[object, ...]:
    requests = [f"200-{number}" for number in range(6)]
    return dict(index.counts), index.deleting, index.held, dict(index.allocated), index.allocated_to(requests)


# -- what counts only when two looks in a row show it


def test_two_looks_in_a_row() -> None:
    """A look in between that does not show it begins anew; `new` asks for another look soon."""
    seen: SeenTwice[str] = SeenTwice()
    assert (seen.new, seen.seen_for("a", 1.0)) == (False, 0)
    looks = [("ab", "", True), ("bc", "b", True), ("abc", "bc", True), ("abc", "abc", False), ("", "", False)]
    for found, counts, new in [*looks, ("a", "", True)]:
        assert (seen.look(found), seen.new) == (set(counts), new)


def test_seconds_between_looks() -> None:
    """A gap begins anew; looks that are too close do not count, however many there were."""
    seen: SeenTwice[str] = SeenTwice(apart_seconds=2.0)
    assert [seen.look("a", now) for now in (10.0, 11.0, 11.9)] == [set()] * 3
    assert [seen.look(found, now) for found, now in (("ab", 12.0), ("b", 13.0), ("ab", 14.5))] == [{"a"}, set(), {"b"}]
    assert [seen.seen_for(key, 16.0) for key in "ab"] == [1.5, 4.0]


def test_large_set() -> None:
    """No recursion: a request may want more nodes than Python's stack is deep."""
    ready = filled(*(made(str(index), "a b") for index in range(1500)))
    assert len(ready.choose(["a", "b"] * 750)) == 1500


def test_index() -> None:
    """One pass; it is made once for all times of the same nodes."""
    states = (("ready", None), ("ready", "200-1"), ("deleting", None), ("hold", None))
    nodes = {f"000{number}": made(f"000{number}", state=s, allocated_to=a) for number, (s, a) in enumerate(states)}
    seen = Observed(1.0, nodes=nodes)
    index = seen.node_index
    assert index.counts == {("cloud-1", "main", state): 1 + (state == "ready") for state, _ in states}
    assert (index.deleting, index.held) == ([nodes["0002"]], [nodes["0003"]])
    assert index.allocated_to(["200-1", "200-2"]) == {"0001": nodes["0001"]}
    later = seen.at(3.0)
    assert (later.now, later.node_index is index, later.nodes) == (3.0, True, seen.nodes)
    assert facts(NodeIndex.of([])) == ({}, [], [], {}, {})
