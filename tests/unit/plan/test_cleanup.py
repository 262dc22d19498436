# SPDX-License-Identifier: Apache-2.0
"""nodepool.plan.nodes: what happens to nodes that nobody has locked (rules C, X-1)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.plan.nodes import (
    STALLED_SECONDS,
    Deallocate,
    Delete,
    Keep,
    is_of_holder,
    judge_age,
    judge_unlocked,
    reset_lost_request,
)

REQUEST = "200-0000000001"


def make(state: str, allocated_to: str | None = None, *labels: str, **fields: Any) -> Node:
    node = Node.from_dict({"state": state, "state_time": 1000.0, "type": list(labels or ("a",))}, "0000000001")
    node.allocated_to = allocated_to
    for name, value in fields.items():
        setattr(node, name, value)
    return node


def request_in(state: str | None) -> Any:
    if state is None:
        return lambda request_id: None
    found = NodeRequest(REQUEST)
    found.state = state
    return lambda request_id: found if request_id == REQUEST else None


# -- at once


@pytest.mark.parametrize("state", ["used", "in-use", "building", "failed", "aborted", "deleting", "deleted"])
@pytest.mark.parametrize("request_state", [None, "pending", "fulfilled"])
def test_states_that_are_deleted(state: str, request_state: str | None) -> None:
    """X-1, 5.4: whatever became of the request."""
    assert isinstance(judge_unlocked(make(state, REQUEST), request_in(request_state)), Delete)
    assert isinstance(judge_unlocked(make(state), request_in(None)), Delete)


@pytest.mark.parametrize("state", ["ready", "hold", "testing"])
def test_states_that_are_never_deleted(state: str) -> None:
    """X-1"""
    for request_state in (None, *states.REQUEST_STATES):
        assert not isinstance(judge_unlocked(make(state, REQUEST), request_in(request_state)), Delete)
    assert judge_unlocked(make(state), request_in(None)) == Keep()


def test_states_are_all_known() -> None:
    """A new state has to be put in one of the two groups."""
    assert {*states.DELETABLE_STATES, "ready", "hold", "testing", "init"} == set(states.NODE_STATES)


def test_ready_node_of_a_gone_request() -> None:
    """C-9"""
    assert isinstance(judge_unlocked(make("ready", REQUEST), request_in(None)), Deallocate)


@pytest.mark.parametrize("state", states.REQUEST_STATES)
def test_ready_node_of_a_living_request(state: str) -> None:
    """5.4: Zuul has not locked it yet; leave it alone."""
    assert judge_unlocked(make("ready", REQUEST), request_in(state)) == Keep()


@pytest.mark.parametrize("state", [None, "fulfilled", "failed"])
def test_init_node_of_a_gone_or_finished_request(state: str | None) -> None:
    """C-10"""
    assert isinstance(judge_unlocked(make("init", REQUEST), request_in(state)), Delete)


@pytest.mark.parametrize("state", ["requested", "pending"])
def test_init_node_of_an_open_request(state: str) -> None:
    """N-6: between its creation and its lock. C-4 takes care of it when the request is lost."""
    assert judge_unlocked(make("init", REQUEST), request_in(state)) == Keep()


@pytest.mark.parametrize("state", ["hold", "testing"])
def test_held_node_of_a_gone_request(state: str) -> None:
    assert judge_unlocked(make(state, REQUEST), request_in(None)) == Keep()


# -- age


def ages(**labels: float) -> Any:
    return lambda label: labels.get(label, 0)


@pytest.mark.parametrize(("now", "action"), [(1600.0, Keep), (1600.5, Delete), (100.0, Keep)])
def test_max_ready_age(now: float, action: type) -> None:
    """C-5"""
    assert isinstance(judge_age(make("ready"), now, ages(a=600), 0), action)


def test_no_max_ready_age() -> None:
    """C-5: 0 = unlimited; other labels do not matter."""
    assert judge_age(make("ready"), 1e9, ages(a=0, b=1), 0) == Keep()


def test_shortest_age_of_several_labels() -> None:
    node = make("ready", None, "a", "b", "c")
    assert isinstance(judge_age(node, 1100.0, ages(a=600, b=50), 0), Delete)


def test_allocated_node_does_not_age() -> None:
    """C-5"""
    assert judge_age(make("ready", REQUEST), 1e9, ages(a=1), 0) == Keep()


@pytest.mark.parametrize(
    ("hold_expiration", "max_hold_age", "now", "action"),
    [
        (None, 0, 1e9, Keep),
        (0, 0, 1e9, Keep),
        (0, -1, 1e9, Keep),
        (-5, 0, 1e9, Keep),
        (100, 0, 1100.0, Keep),
        (100, 0, 1101.0, Delete),
        (100, 50, 1051.0, Delete),
        (100, 500, 1101.0, Delete),
        (None, 50, 1051.0, Delete),
        (0, 50, 1051.0, Delete),
        (0, 50, 1050.0, Keep),
    ],
)
def test_hold_age(hold_expiration: int | None, max_hold_age: float, now: float, action: type) -> None:
    """C-6: the smaller of the two that are set."""
    node = make("hold", hold_expiration=hold_expiration)
    assert isinstance(judge_age(node, now, ages(a=1), max_hold_age), action)


@pytest.mark.parametrize("state", ["in-use", "building", "used", "init"])
def test_other_states_do_not_age(state: str) -> None:
    assert judge_age(make(state), 1e9, ages(a=1), 1) == Keep()


def test_node_without_a_time_has_no_age() -> None:
    assert judge_age(make("ready", state_time=None), 1e9, ages(a=1), 1) == Keep()


# -- lost requests


def test_reset_lost_request() -> None:
    """C-4"""
    request = NodeRequest(REQUEST)
    request.state, request.nodes, request.declined_by = "pending", ["0000000001"], ["pool"]
    nodes = [make("init", REQUEST), make("ready", REQUEST), make("building", REQUEST)]
    reset_lost_request(request, nodes)
    assert (request.state, request.nodes, request.declined_by) == ("requested", [], ["pool"])
    assert [(node.state, node.allocated_to) for node in nodes] == [
        ("deleting", None),
        ("ready", None),
        ("building", None),
    ]


# -- whoever serves the request of a node that seems lost


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
