# SPDX-License-Identifier: Apache-2.0
"""Which nodes are looked at."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.cmd.observation import OLDEST, _RoomLook
from tests.support.observed import request


def data(**fields: Any) -> bytes:
    return json.dumps({"provider": "cloud-1", "state": "ready", "allocated_to": None, **fields}).encode()


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, False),
        ({"state": "hold"}, True),
        ({"state": "deleting"}, True),
        ({"state": "hold", "provider": "cloud-2"}, False),
        ({"allocated_to": "200-0000000007", "provider": "cloud-2"}, True),
        ({"allocated_to": "200-0000000007", "state": "in-use"}, True),
        ({"state": "in-use"}, False),
    ],
)
def test_nodes_of_a_request(fields: dict[str, Any], wanted: bool) -> None:
    """Its own, and those that take the room of providers that could serve it."""
    look = _RoomLook(request(7), ["cloud-1"])
    assert look.wants("1", data(**fields), SimpleNamespace(mzxid=1)) is wanted


def test_nodes_that_are_not_fetched() -> None:
    """E-11: ready nodes of a fulfilled request take room, too."""
    look = _RoomLook(request(7), ["cloud-1"], {"1", "2"})
    ready = data(allocated_to="200-0000000008")
    assert [look.wants(number, ready, SimpleNamespace(mzxid=1)) for number in "123"] == [True, True, False]
    assert not look.wants("1", data(provider="cloud-2"), SimpleNamespace(mzxid=1))


def test_nodes_in_use_for_the_longest_time() -> None:
    look = _RoomLook(request(7), ["cloud-1"])
    for number in range(30):
        assert not look.wants(f"{number:02}", data(state="in-use"), SimpleNamespace(mzxid=1000 - number))
    assert look.oldest == [f"{29 - number:02}" for number in range(OLDEST)]
