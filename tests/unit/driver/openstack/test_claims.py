# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openstack.claims`: servers that show up late."""

from __future__ import annotations

import pytest

from nodepool.driver.openstack.claims import LATE_SECONDS, MANY, OLD_SECONDS, Claims
from tests.support.manual_clock import ManualClock
from tests.unit.driver.openstack.support import METADATA, view

NODE = METADATA["nodepool_node_id"]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def claims(clock: ManualClock) -> Claims:
    return Claims("cloud-a", clock)


def test_late_server(claims: Claims) -> None:
    """The creation was given up, the server comes: it is a stray, once."""
    claims.begin(NODE)
    assert claims.strays([view()]) == []
    claims.lost(NODE)
    assert [server.id for server in claims.strays([view()])] == ["s1"]
    assert claims.strays([view()]) == []


def test_the_second_attempt_is_no_stray(claims: Claims) -> None:
    claims.begin(NODE)
    claims.lost(NODE)
    claims.begin(NODE)
    assert claims.strays([view("s2")]) == [], "its answer is under way"
    claims.answered(NODE, "s2")
    assert [server.id for server in claims.strays([view("s2"), view("s1")])] == ["s1"]


def test_an_old_server_is_not_adopted(claims: Claims) -> None:
    """The server of the first attempt, which is being deleted, is not what the second one made."""
    claims.begin(NODE)
    claims.answered(NODE, "s1")
    claims.begin(NODE)
    assert claims.found(NODE, [view("s1")]) is None
    assert claims.found(NODE, [view("s1"), view("s2")]) == "s2"


def test_others_are_left_alone(claims: Claims) -> None:
    """D-4: servers of other providers, and servers that no call of ours can have made."""
    claims.begin(NODE)
    foreign = view(metadata={**METADATA, "nodepool_provider_name": "other"})
    assert claims.found(NODE, [foreign]) is None
    claims.lost(NODE)
    assert claims.strays([foreign, view("x", metadata={}), view("y", metadata={"nodepool_node_id": "7"})]) == []


def test_nothing_is_kept(claims: Claims, clock: ManualClock) -> None:
    """Memory: a node that was made and deleted leaves no trace; a lost one not for ever."""
    claims.begin(NODE)
    claims.answered(NODE, "s1")
    claims.deleted("s1")
    claims.begin("2")
    claims.refused("2")
    assert (claims._claims, claims._nodes) == ({}, {})
    claims.begin(NODE)
    claims.lost(NODE)
    clock.now += LATE_SECONDS + 1
    assert claims.strays([view()]) == []
    claims.begin(NODE)
    claims.refused(NODE)
    assert claims._claims == {}


def test_given_up_before_the_answer(claims: Claims) -> None:
    """L-4: the attempt ended while its creation was under way; what that makes is found while the second one serves."""
    claims.begin(NODE)
    claims.begin(NODE)
    assert claims.strays([view("s1")]) == [], "it may be the second one's"
    claims.answered(NODE, "s2")
    assert [server.id for server in claims.strays([view("s1"), view("s2")])] == ["s1"]


def test_deleted_by_others(claims: Claims, clock: ManualClock) -> None:
    """X-8, memory: another launcher deleted the servers, and this one is not told."""
    for number in range(MANY):
        claims.begin(str(number))
        claims.answered(str(number), f"s{number}")
    clock.now += OLD_SECONDS + 1
    claims.begin("young")
    claims.answered("young", "s")
    claims.begin("next")
    assert set(claims._claims) == {"young", "next"}
    assert set(claims._nodes) == {"s"}
