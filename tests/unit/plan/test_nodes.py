# SPDX-License-Identifier: Apache-2.0
"""Nodes that are there: which serve a request, which are missing, and which go."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.model.states import DELETABLE_STATES, NODE_STATES, REQUEST_STATES
from nodepool.plan.nodes import (
    STALLED_SECONDS,
    Deallocate,
    Delete,
    Keep,
    ReadyNodes,
    can_match,
    in_the_way,
    is_free,
    is_of_holder,
    judge_age,
    judge_unlocked,
    missing,
    missing_labels,
    reset_lost_request,
)
from nodepool.plan.observed import FollowedNodes, NodeIndex, Observed
from nodepool.plan.retries import SeenTwice

REQUEST = "200-0000000001"


def make(id: str, *labels: str, **fields: Any) -> Node:
    node = Node(list(labels or ("a",)), id=id)
    node.state, node.provider, node.pool = "ready", "cloud", "main"
    for name, value in fields.items():
        setattr(node, name, value)
    return node


def request(*labels: str, **fields: Any) -> NodeRequest:
    made = NodeRequest(REQUEST)
    made.node_types = list(labels)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


# -- ready nodes for wanted labels


def filled(*nodes: Node) -> ReadyNodes:
    ready = ReadyNodes()
    for node in nodes:
        ready.put(node)
    return ready


@pytest.mark.parametrize(
    ("fields", "free"),
    [
        ({}, True),
        *(({"state": state}, False) for state in ("in-use", "hold", "building")),
        *(({name: "other"}, False) for name in ("allocated_to", "provider", "pool")),
    ],
)
def test_free_node(fields: dict[str, Any], free: bool) -> None:
    """N-2"""
    assert is_free(make("1", "a", **fields), "cloud", "main") is free


A, B, AB = make("1", "a"), make("2", "b"), make("1", "a", "b")
ZONES = [make("1", "a", az="z1"), make("2", "b", az="z2"), make("3", "a", az="z2"), make("4", "c")]


@pytest.mark.parametrize(
    ("nodes", "wanted", "az", "expected"),
    [
        # N-1: duplicates need nodes of their own. N-5: a node serves one label once.
        ([A, B, make("3", "a")], "aba", None, {0: "1", 1: "2", 2: "3"}),
        ([A, B], "bb", None, {0: "2"}),
        ([A, B], "c", None, {}),
        ([A], "", None, {}),
        ([AB], "ab", None, {0: "1"}),
        # A node with several labels is not spent where a plainer one would do.
        ([AB, make("2", "a")], "ab", None, {0: "2", 1: "1"}),
        (
            [AB, make("2", "b", "c"), make("3", "c", "d"), make("4", "d")],
            "bcda",
            None,
            {3: "1", 0: "2", 1: "3", 2: "4"},
        ),
        # N-7: the zone that can serve most; nodes without a zone fit every zone.
        (ZONES, "abc", None, {0: "3", 1: "2", 2: "4"}),
        (ZONES, "ab", "z1", {0: "1"}),
        (ZONES, "b", "z1", {}),
        (ZONES, "c", "z1", {0: "4"}),
    ],
)
def test_choice(nodes: list[Node], wanted: str, az: str | None, expected: dict[int, str]) -> None:
    """N-1, N-5, N-7"""
    assert {position: node.id for position, node in filled(*nodes).choose(wanted, az).items()} == expected


def test_newer_record() -> None:
    """It takes the place of the older one, with any change of its labels."""
    ready = filled(make("1", "a", "b"))
    assert [ready.could_serve(wanted) for wanted in ("b", "ab", "ac", "")] == [True, False, False, True]
    newer = make("1", "b", "c")
    ready.put(newer)
    assert (len(ready), ready.choose("a"), ready.choose("b")) == (1, {}, {0: newer})
    assert [ready.count(label) for label in "abc"] == [0, 1, 1]
    same = make("1", "b", "c", comment="x")
    ready.put(same)
    assert ready.choose("b")[0] is same
    for _ in range(2):
        ready.discard("1")
    assert ("1" in ready, ready.could_serve("b"), ready.count("b")) == (False, False, 0)


def test_what_is_left() -> None:
    """Q-8: the oldest unused ready node goes first."""
    ready = filled(make("1", "a", "a", state_time=7.0), make("2", "b", state_time=3.0), make("3", "a", state_time=9.0))
    oldest = ready.oldest()
    assert oldest is not None
    assert oldest.id == "2"
    ready.discard("1")
    assert ("3" in ready, ready.count("a")) == (True, 1)
    ready.clear()
    assert (len(ready), ready.oldest(), ready.choose("a"), ready.could_serve("")) == (0, None, {}, True)


LABELS = st.sampled_from("abcd")
AZ = st.sampled_from([None, "z1", "z2"])
OFFERS = st.lists(st.tuples(st.lists(LABELS, min_size=1, max_size=3, unique=True), AZ), max_size=7)
WANTED = st.lists(LABELS, max_size=5)


def greatest(wanted: list[str], offers: list[list[str]]) -> int:
    """Size of a greatest assignment, by trying everything."""
    if not wanted:
        return 0
    best = greatest(wanted[1:], offers)
    for index, labels in enumerate(offers):
        if best < len(wanted) and wanted[0] in labels:
            best = max(best, 1 + greatest(wanted[1:], offers[:index] + offers[index + 1 :]))
    return best


@given(OFFERS, WANTED, AZ)
def test_choice_is_a_greatest_one(
    offers: list[tuple[list[str], str | None]], wanted: list[str], zone: str | None
) -> None:
    """N-1, N-5, N-7: no other choice serves more labels; every node fits, once, in one zone."""
    ready = filled(*(make(str(index), *labels, az=az) for index, (labels, az) in enumerate(offers)))
    chosen = ready.choose(wanted, zone)
    assert len({node.id for node in chosen.values()}) == len(chosen)
    assert all(wanted[position] in node.type for position, node in chosen.items())
    zones = {node.az for node in chosen.values()} - {None}
    assert len(zones) <= 1
    assert zone is None or zones <= {zone}

    def size(one: str | None) -> int:
        return greatest(wanted, [labels for labels, az in offers if az is None or az == one])

    assert len(chosen) == (size(zone) if zone else max(size("z1"), size("z2")))
    plain = [labels for labels, _ in offers]
    assert can_match(wanted, plain) is (greatest(wanted, plain) == len(wanted))


def test_large_set() -> None:
    """No recursion: a request may want more nodes than Python's stack is deep."""
    ready = filled(*(make(str(index), "a", "b") for index in range(1500)))
    assert len(ready.choose(["a", "b"] * 750)) == 1500


# -- min-ready


@pytest.mark.parametrize(
    ("wanted", "nodes", "requests", "expected"),
    [
        # M-1, M-2: one request a node. M-5: nothing wanted.
        ({"a": 3, "b": 1, "c": 1}, [make("1"), make("2", "b")], [], {"a": 2, "c": 1}),
        ({"a": 1}, [make("1", allocated_to="200-1")], [], {"a": 1}),
        ({"a": 1}, [make("1", state="building"), make("2", "b")], [], {"a": 1}),
        ({"a": 1, "b": 1}, [make("1", "a", "b")], [], {}),
        ({"a": 0, "b": -1}, [], [], {}),
        # M-6: open requests of all launchers count, failed ones and those of others do not (M-4).
        ({"a": 3}, [make("1")], [("requested", "NodePool:min-ready")], {"a": 1}),
        ({"a": 3}, [make("1")], [("pending", "NodePool:min-ready")], {"a": 1}),
        ({"a": 1}, [], [("requested", "NodePool:min-ready")], {}),
        ({"a": 1}, [], [("failed", "NodePool:min-ready")], {"a": 1}),
        ({"a": 1}, [], [("requested", "zuul")], {"a": 1}),
        # M-4, M-6: the node of a fulfilled one is free in a moment; the request itself does not count.
        ({"a": 3}, [make("1", allocated_to=REQUEST)], [("fulfilled", "NodePool:min-ready")], {"a": 2}),
        ({"a": 3}, [make("1")], [("fulfilled", "NodePool:min-ready")], {"a": 2}),
        # M-8: too many.
        ({"a": 1}, [make("1"), make("2")], [("requested", "NodePool:min-ready")], {"a": -2}),
    ],
)
def test_min_ready(
    wanted: dict[str, int], nodes: list[Node], requests: list[tuple[str, str]], expected: dict[str, int]
) -> None:
    """M-1, M-2, M-4, M-5, M-6, M-8: how many requests are missing, or too many."""
    made = [request("a", state=state, requestor=who) for state, who in requests]
    assert missing(wanted, nodes, made) == expected


# -- cleanup of nodes without a lock


def unlocked(state: str, request_state: str | None, allocated_to: str | None = REQUEST) -> type:
    found = request(state=request_state) if request_state else None
    return type(judge_unlocked(make("1", state=state, allocated_to=allocated_to), lambda _: found))


@pytest.mark.parametrize(
    ("node_states", "request_states", "expected"),
    [
        (
            ["used", "in-use", "building", "failed", "aborted", "deleting", "deleted"],
            [None, "pending", "fulfilled"],
            Delete,
        ),
        (["hold", "testing"], [None, *REQUEST_STATES], Keep),
        (["ready"], [None], Deallocate),
        (["ready"], REQUEST_STATES, Keep),
        (["init"], [None, "fulfilled", "failed"], Delete),
        (["init"], ["requested", "pending"], Keep),
    ],
)
def test_unlocked_nodes(node_states: list[str], request_states: list[str | None], expected: type) -> None:
    """X-1, C-9, C-10, N-6, 5.4: by the state of the node and of its request."""
    for state in node_states:
        assert {unlocked(state, request_state) for request_state in request_states} == {expected}
        without = Keep if state in ("ready", "hold", "testing") else expected
        assert state == "init" or unlocked(state, None, None) is without
    assert {*DELETABLE_STATES, "ready", "hold", "testing", "init"} == set(NODE_STATES)


@pytest.mark.parametrize(
    ("fields", "ages", "max_hold_age", "now", "expected"),
    [
        # C-5: ready and not allocated; the smallest of its labels; 0 = unlimited.
        ({}, {"a": 600}, 0, 1600.0, Keep),
        ({}, {"a": 600}, 0, 1600.5, Delete),
        ({}, {"a": 600}, 0, 100.0, Keep),
        ({}, {"b": 1}, 0, 1e9, Keep),
        ({"type": ["a", "b", "c"]}, {"a": 600, "b": 50}, 0, 1100.0, Delete),
        ({"allocated_to": REQUEST}, {"a": 1}, 0, 1e9, Keep),
        ({"state_time": None}, {"a": 1}, 1, 1e9, Keep),
        *(({"state": state}, {"a": 1}, 1, 1e9, Keep) for state in ("in-use", "building", "used", "init")),
        # C-6: the smaller of the two that are set.
        *(({"hold_expiration": seconds, "state": "hold"}, {"a": 1}, 0, 1e9, Keep) for seconds in (None, 0, -5)),
        ({"hold_expiration": 0, "state": "hold"}, {}, -1, 1e9, Keep),
        ({"hold_expiration": 100, "state": "hold"}, {}, 0, 1100.0, Keep),
        ({"hold_expiration": 100, "state": "hold"}, {}, 0, 1101.0, Delete),
        ({"hold_expiration": 100, "state": "hold"}, {}, 50, 1051.0, Delete),
        ({"hold_expiration": 100, "state": "hold"}, {}, 500, 1101.0, Delete),
        ({"hold_expiration": None, "state": "hold"}, {}, 50, 1051.0, Delete),
        ({"hold_expiration": 0, "state": "hold"}, {}, 50, 1051.0, Delete),
        ({"hold_expiration": 0, "state": "hold"}, {}, 50, 1050.0, Keep),
    ],
)
def test_age(fields: dict[str, Any], ages: dict[str, float], max_hold_age: float, now: float, expected: type) -> None:
    """C-5, C-6"""
    node = make("1", **{"state_time": 1000.0, **fields})
    assert isinstance(judge_age(node, now, lambda label: ages.get(label, 0), max_hold_age), expected)


def test_reset_lost_request() -> None:
    """C-4"""
    lost = request(state="pending", nodes=["0000000001"], declined_by=["pool"])
    nodes = [make("1", state=state, allocated_to=REQUEST) for state in ("init", "ready", "building")]
    reset_lost_request(lost, nodes)
    assert (lost.state, lost.nodes, lost.declined_by) == ("requested", [], ["pool"])
    found = [(node.state, node.allocated_to) for node in nodes]
    assert found == [("deleting", None), ("ready", None), ("building", None)]


@pytest.mark.parametrize(
    ("written", "held_since", "seconds", "kept"),
    [
        (7, None, 2.0, False),
        (7, 8, 2.0, False),
        (8, 8, 2.0, True),
        (9, 8, STALLED_SECONDS - 1, True),
        (9, 8, STALLED_SECONDS, False),
    ],
)
def test_unlocked_node_of_a_request_that_is_served(
    written: int, held_since: int | None, seconds: float, kept: bool
) -> None:
    """C-4: written under the present lock it is left alone, but not for ever: a lost launcher writes as late."""
    assert is_of_holder(written, held_since, seconds) is kept


# -- a request that is given back


@pytest.mark.parametrize(
    ("mine", "goes"),
    [
        ([make("2", "a")], []),
        ([make("2", "a", pool="second")], ["2"]),
        ([make("2", "b")], ["2"]),
        ([make("2", "b", "a")], []),
        ([make("2", "b"), make("3", "b")], ["2"]),
        ([make("2", "b"), make("3", "a")], []),
        ([], []),
    ],
    ids=["of use", "other pool", "other label", "two labels", "only as many as it lacks", "enough", "none"],
)
def test_in_the_way(mine: list[Node], goes: list[str]) -> None:
    """Q-10, Q-12: the first one holds an ``a`` of the main pool and lacks another. N-4: it may not reuse any."""
    first = [make("1", "a")]
    assert [found.id for found in in_the_way(request("a", "a"), first, mine)] == goes
    assert len(in_the_way(request("a", "a", reuse=False), first, mine)) == min(1, len(mine))


def test_missing_labels() -> None:
    """Q-10, Q-12."""
    assert missing_labels(request("a", "a", "b"), [make("1", "a")]) == {"a": 1, "b": 1}
    assert missing_labels(request("a", "b"), [make("1", "x", "b"), make("2", "b", "a")]) == {}


# -- what is asked of all nodes


def facts(index: NodeIndex) -> tuple[object, ...]:
    requests = [f"200-{number}" for number in range(6)]
    return dict(index.counts), index.deleting, index.held, dict(index.allocated), index.allocated_to(requests)


def test_index() -> None:
    """One pass; it is made once for all times of the same nodes."""
    states = (("ready", None), ("ready", "200-1"), ("deleting", None), ("hold", None))
    nodes = {f"000{number}": make(f"000{number}", state=s, allocated_to=a) for number, (s, a) in enumerate(states)}
    seen = Observed(1.0, nodes=nodes)
    index = seen.node_index
    assert index.counts == {("cloud", "main", state): 1 + (state == "ready") for state, _ in states}
    assert (index.deleting, index.held) == ([nodes["0002"]], [nodes["0003"]])
    assert index.allocated_to(["200-1", "200-2"]) == {"0001": nodes["0001"]}
    later = seen.at(3.0)
    assert (later.now, later.node_index is index, later.nodes) == (3.0, True, seen.nodes)
    assert facts(NodeIndex.of([])) == ({}, [], [], {}, {})


def check(followed: FollowedNodes, nodes: Mapping[str, Node], noted: frozenset[str] = frozenset()) -> None:
    found, index = followed.follow(dict(nodes), noted)
    assert list(found.items()) == sorted(nodes.items())
    assert facts(index) == facts(NodeIndex.of(found.values()))


@pytest.mark.parametrize("seed", range(20))
def test_as_a_look_at_all(seed: int) -> None:
    """Nodes come, go, are replaced and are changed in place, in any order; an earlier moment stays as it was."""
    chance = random.Random(seed)
    followed, last = FollowedNodes(), 0
    nodes: dict[str, Node] = {}
    for _ in range(60):
        noted = set()
        for _ in range(chance.randrange(6)):
            last += 1
            # Not always behind the others: the first listing is in no order.
            number = last if chance.random() < 0.8 else chance.randrange(1000, 2000)
            nodes[f"{number:010}"] = make(f"{number:010}")
        for node_id in chance.sample(sorted(nodes), min(len(nodes), chance.randrange(5))):
            owner = chance.choice([None, "", "200-1", "200-2", "200-3"])
            state = chance.choice(("ready", "in-use", "hold", "deleting"))
            match chance.randrange(3):
                case 0:
                    del nodes[node_id]
                case 1:
                    nodes[node_id] = make(node_id, state=state, allocated_to=owner)
                case _:
                    nodes[node_id].state, nodes[node_id].allocated_to = state, owner
                    noted.add(node_id)
        check(followed, nodes, frozenset({*noted, "unknown"}))
    given, index = followed.follow(dict(nodes), ())
    before = dict(given), facts(index)
    check(followed, {"0": make("0", state="deleting")})
    assert (dict(given), facts(index)) == before


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
