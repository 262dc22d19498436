# SPDX-License-Identifier: Apache-2.0
"""nodepool.plan.nodes: ready nodes for wanted labels (rules N)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodepool.model.node import Node
from nodepool.plan.nodes import ReadyNodes, can_match, is_free


def make(id: str, *labels: str, az: str | None = None, **fields: Any) -> Node:
    node = Node(list(labels), id=id)
    node.state = "ready"
    node.provider, node.pool, node.az = "cloud", "main", az
    for name, value in fields.items():
        setattr(node, name, value)
    return node


def filled(*nodes: Node) -> ReadyNodes:
    ready = ReadyNodes()
    for node in nodes:
        ready.put(node)
    return ready


def ids(chosen: dict[int, Node]) -> dict[int, str | None]:
    return {position: node.id for position, node in chosen.items()}


@pytest.mark.parametrize(
    ("fields", "free"),
    [
        ({}, True),
        ({"state": "in-use"}, False),
        ({"state": "hold"}, False),
        ({"state": "building"}, False),
        ({"allocated_to": "200-1"}, False),
        ({"provider": "other"}, False),
        ({"pool": "other"}, False),
    ],
)
def test_free_node(fields: dict[str, Any], free: bool) -> None:
    """N-2"""
    assert is_free(make("1", "a", **fields), "cloud", "main") is free


def test_multiset_of_labels() -> None:
    """N-1: duplicates need nodes of their own."""
    ready = filled(make("1", "a"), make("2", "b"), make("3", "a"))
    assert ids(ready.choose(["a", "b", "a"])) == {0: "1", 1: "2", 2: "3"}
    assert ids(ready.choose(["b", "b"])) == {0: "2"}
    assert ready.choose(["c"]) == {}
    assert ready.choose([]) == {}


def test_a_node_serves_one_label_once() -> None:
    """N-5"""
    assert ids(filled(make("1", "a", "b")).choose(["a", "b"])) in ({0: "1"}, {1: "1"})


def test_plain_node_before_one_with_several_labels() -> None:
    """A node with several labels is not spent where a plainer one would do."""
    ready = filled(make("1", "a", "b"), make("2", "a"))
    assert ids(ready.choose(["a", "b"])) == {0: "2", 1: "1"}


def test_chain_of_moves() -> None:
    ready = filled(make("1", "a", "b"), make("2", "b", "c"), make("3", "c", "d"), make("4", "d"))
    assert ids(ready.choose(["b", "c", "d", "a"])) == {3: "1", 0: "2", 1: "3", 2: "4"}


def test_one_zone_for_all() -> None:
    """N-7: the zone that can serve most; nodes without a zone fit every zone."""
    ready = filled(make("1", "a", az="z1"), make("2", "b", az="z2"), make("3", "a", az="z2"), make("4", "c"))
    assert ids(ready.choose(["a", "b", "c"])) == {0: "3", 1: "2", 2: "4"}
    assert ids(ready.choose(["a", "b"], az="z1")) == {0: "1"}
    assert ids(ready.choose(["b"], az="z1")) == {}
    assert ids(ready.choose(["c"], az="z1")) == {0: "4"}


def test_newer_record() -> None:
    ready = filled(make("1", "a"))
    ready.put(make("1", "b"))
    assert ready.choose(["a"]) == {}
    assert ids(ready.choose(["b"])) == {0: "1"}
    assert (len(ready), ready.count("a"), ready.count("b")) == (1, 0, 1)
    newer = make("1", "b", comment="x")
    ready.put(newer)
    assert ready.choose(["b"])[0] is newer


def test_newer_record_with_another_label_added() -> None:
    """The order of labels and a label more are changes too."""
    ready = filled(make("1", "a", "b"))
    ready.put(make("1", "b", "c"))
    assert (ready.count("a"), ready.count("b"), ready.count("c")) == (0, 1, 1)
    ready.discard("1")
    assert not ready.could_serve(["b"])


def test_discard_and_clear() -> None:
    ready = filled(make("1", "a", "a"), make("2", "a"))
    ready.discard("1")
    ready.discard("1")
    assert ("1" in ready, "2" in ready, ready.count("a")) == (False, True, 1)
    ready.clear()
    assert len(ready) == 0
    assert ready.choose(["a"]) == {}


def test_oldest() -> None:
    """Q-8: the oldest unused ready node goes first."""
    ready = filled(make("1", "a", state_time=7.0), make("2", "b", state_time=3.0), make("3", "a", state_time=9.0))
    oldest = ready.oldest()
    assert oldest is not None
    assert oldest.id == "2"
    assert ReadyNodes().oldest() is None


def test_could_serve() -> None:
    ready = filled(make("1", "a", "b"))
    assert ready.could_serve(["b"])
    assert not ready.could_serve(["a", "b"]), "one node cannot be both"
    ready.put(make("2", "a", "b"))
    assert ready.could_serve(["a", "b"])
    assert not ready.could_serve(["a", "c"])
    assert ready.could_serve([])


# -- hypothesis: the choice is a greatest one

LABELS = st.sampled_from("abcd")
ZONES = st.sampled_from([None, "z1", "z2"])
OFFERS = st.lists(st.tuples(st.lists(LABELS, min_size=1, max_size=3, unique=True), ZONES), max_size=7)
WANTED = st.lists(LABELS, max_size=5)


def greatest(wanted: list[str], offers: list[list[str]]) -> int:
    """Size of a greatest assignment, by trying everything."""
    if not wanted:
        return 0
    best = greatest(wanted[1:], offers)
    for index, labels in enumerate(offers):
        if wanted[0] in labels:
            best = max(best, 1 + greatest(wanted[1:], offers[:index] + offers[index + 1 :]))
            if best == len(wanted):
                break
    return best


@given(OFFERS, WANTED, ZONES)
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


@given(st.lists(st.lists(LABELS, min_size=1, max_size=3), max_size=6), WANTED)
def test_can_match(offers: list[list[str]], wanted: list[str]) -> None:
    assert can_match(wanted, offers) is (greatest(wanted, offers) == len(wanted))


def test_large_set() -> None:
    """No recursion: a request may want more nodes than Python's stack is deep."""
    count = 1500
    ready = filled(*(make(str(index), "a", "b") for index in range(count)))
    assert len(ready.choose(["a", "b"] * (count // 2))) == count
