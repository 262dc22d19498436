# SPDX-License-Identifier: Apache-2.0
"""Watches resume, list again when they must, and go on after every trouble."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway, CloudSetup
from nodepool.driver.kubernetes.watch import REFUSED_SECONDS, Listener, Watch
from nodepool.exceptions import LaunchError
from tests.unit.driver.kubernetes.stand_in import StandIn

EXPIRED = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}


class Told(Listener):
    def __init__(self) -> None:
        self.events: list[Any] = []

    def listed(self, kind: str, found: list[Any], started: float) -> None:
        self.events.append(("listed", [item["metadata"]["name"] for item in found]))

    def changed(self, kind: str, found: Any, gone: bool) -> None:
        self.events.append(("gone" if gone else "changed", found["metadata"]["name"]))

    def heard(self, kind: str) -> None:
        self.events.append("heard")

    def refused(self, kind: str, error: LaunchError | None) -> None:
        self.events.append("allowed" if error is None else "refused")


def item(name: str, version: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": version}}


def event(kind: str, name: str, version: str) -> dict[str, Any]:
    return {"type": kind, "object": item(name, version)}


@pytest.fixture
def client() -> StandIn:
    return StandIn()


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def watch(client: StandIn, told: Told) -> Watch:
    return Watch(client, "pod", "/api/v1/pods", "a=b", told)


def test_resumes(client: StandIn, told: Told, watch: Watch) -> None:
    """KU-10: one list; each watch begins where the one before ended, also after a bookmark."""
    client.lists = [([item("one", "3")], "5")]
    client.streams = [[event("ADDED", "two", "6"), event("BOOKMARK", "", "9")], [event("DELETED", "one", "11")], []]
    assert [watch.turn() for _ in range(3)] == [0.0, 0.0, 0.0]
    assert told.events == [("listed", ["one"]), ("changed", "two"), "heard", ("gone", "one")]
    assert client.versions == ["5", "9", "11"]


def test_expired(client: StandIn, told: Told, watch: Watch) -> None:
    """KU-10: the API has forgotten the version: all is listed again, at once."""
    client.lists = [([], "5"), ([item("one", "7")], "8")]
    client.streams = [[EXPIRED], [event("ADDED", "two", "9")]]
    assert watch.turn() == 0.0
    assert watch.turn() == 0.0
    assert told.events == [("listed", []), ("listed", ["one"]), ("changed", "two")]
    assert client.versions == ["5", "8"]


@pytest.mark.parametrize("stream", [[EXPIRED], []], ids=["expired", "empty"])
def test_nothing_but_ends(client: StandIn, told: Told, watch: Watch, stream: list[Any]) -> None:
    """KU-10: an API that ends each watch at once, or finds each version too old, is not asked without a pause."""
    client.lists = [([], "5") for _ in range(5)]
    client.streams = [stream, stream, stream, [event("ADDED", "one", "6")], stream]
    pauses = [watch.turn() for _ in range(5)]
    assert pauses[0] == 0.0
    assert 0 < pauses[1] < pauses[2]
    # After one that told something it is as at first.
    assert pauses[3:] == [0.0, 0.0]


def test_broken(client: StandIn, told: Told, watch: Watch) -> None:
    """KU-10: a broken stream is resumed after a pause that grows; what was told is not told again."""
    client.lists = [([], "5")]
    client.streams = [[event("ADDED", "one", "6"), CloudAway("cut")], [CloudAway("no")], [CloudAway("no")]]
    pauses = [watch.turn() for _ in range(3)]
    assert 0 < pauses[0] < pauses[1] < pauses[2]
    assert client.versions == ["5", "6", "6"]
    assert told.events == [("listed", []), ("changed", "one")]


def test_refused(client: StandIn, told: Told, watch: Watch) -> None:
    """KU-3: an account without the right is told of once, and asked again later: the right may be given."""
    refused = CloudSetup("no", 403)
    client.lists = [refused, refused, ([], "5")]
    client.streams = [[]]
    assert [watch.turn() for _ in range(3)] == [REFUSED_SECONDS, REFUSED_SECONDS, 0.0]
    assert told.events == ["refused", ("listed", []), "allowed"]
