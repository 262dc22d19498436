# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openstack.cloud` (O-8)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway, CloudRefused
from nodepool.driver.openstack.cloud import LATE_SECONDS, WIDE_SECONDS, ServerLists
from nodepool.driver.statemachine.inventory import ChangesNotListed
from tests.support.manual_clock import ManualClock
from tests.unit.driver.openstack.support import StubCloud, server

LISTS = ("GET", "/servers/detail")


def at(second: int) -> str:
    return f"2026-01-01T12:00:{second:02}Z"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def lists(cloud: StubCloud, clock: ManualClock) -> ServerLists:
    return ServerLists(cloud.api, clock)


def answer(cloud: StubCloud, *servers: dict[str, Any]) -> None:
    cloud.stub.answers[LISTS] = {"servers": list(servers)}


@pytest.mark.parametrize(
    ("latest", "expected"),
    [
        ("2026-01-01T12:00:30Z", "2026-01-01T12:00:25Z"),
        ("2026-01-01T12:00:30", "2026-01-01T12:00:25Z"),
        ("2026-01-01T14:00:30+02:00", "2026-01-01T12:00:25Z"),
        ("yesterday", None),
        ("", None),
    ],
)
def test_wide_list(lists: ServerLists, latest: str, expected: str | None) -> None:
    """Services round to seconds and clocks differ. Bad input: what is no time asks for everything."""
    assert lists.changes_since(latest) == expected


def test_lists_in_between_are_narrow(lists: ServerLists, clock: ManualClock) -> None:
    """The second before counts until its transactions can be expected to have ended."""
    assert lists.changes_since(at(30)) == at(25)
    clock.pass_seconds(0.4)
    assert lists.changes_since(at(30)) == at(29)
    clock.pass_seconds(0.2)
    assert lists.changes_since(at(30)) == at(30)
    assert lists.changes_since(at(31)) == at(30)
    clock.pass_seconds(WIDE_SECONDS - 0.6)
    assert lists.changes_since(at(31)) == at(26)


def test_list_after_one_of_all_is_wide(lists: ServerLists, cloud: StubCloud) -> None:
    """D-2: what went before the list of all is told by it."""
    lists.changes_since(at(30))
    assert lists.changes_since(at(30)) == at(29)
    answer(cloud)
    lists.list(None)
    assert lists.changes_since(at(30)) == at(25)


def test_list_after_one_that_failed_is_wide(lists: ServerLists, cloud: StubCloud) -> None:
    """D-2: the failed one may have been that which was to tell what went before the list of all."""
    answer(cloud)
    lists.list(None)
    since = lists.changes_since(at(30))
    cloud.stub.answers[LISTS] = CloudAway("503")
    with pytest.raises(CloudAway):
        lists.list(since)
    assert lists.changes_since(at(30)) == at(25)


def late(lists: ServerLists, cloud: StubCloud, clock: ManualClock, *servers: dict[str, Any]) -> bool:
    """Are narrow lists given up when a wide one tells this?"""
    answer(cloud, server(updated=at(20)))
    lists.list(None)
    clock.pass_seconds(WIDE_SECONDS)
    answer(cloud, *servers)
    lists.list(lists.changes_since(at(30)))
    return lists.changes_since(at(30)) == at(25)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([], False),
        ([server(updated=at(30))], False),
        ([server(updated=at(20))], False),
        ([server(updated=at(28))], True),
        ([server(id="new", updated=at(28))], True),
        ([server(id="new", updated=at(30))], False),
        ([server(id="gone before the list of all", status="DELETED", updated=at(28))], False),
    ],
)
def test_change_that_a_narrow_list_does_not_show(
    lists: ServerLists, cloud: StubCloud, clock: ManualClock, told: list[dict[str, Any]], expected: bool
) -> None:
    """Clocks of a cloud differ, or it is slow: lists are wide from then on."""
    assert late(lists, cloud, clock, *told) is expected


def test_narrow_lists_are_tried_again(lists: ServerLists, cloud: StubCloud, clock: ManualClock) -> None:
    assert late(lists, cloud, clock, server(updated=at(28)))
    clock.pass_seconds(LATE_SECONDS)
    assert lists.changes_since(at(31)) == at(26)
    assert lists.changes_since(at(31)) == at(30)


def test_lists(cloud: StubCloud) -> None:
    """All servers, or those that changed."""
    asked: list[Any] = []

    def tell(body: Any, query: dict[str, Any]) -> dict[str, Any]:
        asked.append(query.get("changes-since"))
        return {"servers": [server()]}

    cloud.stub.answers[LISTS] = tell
    for since in (None, "2026-01-01T12:00:25Z"):
        assert [found.id for found in ServerLists(cloud.api).list(since)] == ["s1"]
    assert asked == [None, "2026-01-01T12:00:25Z"]


def test_refusal(cloud: StubCloud) -> None:
    """A cloud that refuses changes-since is asked for everything; one that lists nothing, or is away, has trouble."""
    cloud.stub.answers[LISTS] = CloudRefused("bad request", 400)
    with pytest.raises(ChangesNotListed, match="bad request"):
        ServerLists(cloud.api).list("2026-01-01T12:00:25Z")
    with pytest.raises(CloudRefused):
        ServerLists(cloud.api).list(None)
    cloud.stub.answers[LISTS] = CloudAway("503")
    with pytest.raises(CloudAway):
        ServerLists(cloud.api).list("2026-01-01T12:00:25Z")
