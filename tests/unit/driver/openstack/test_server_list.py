# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openstack.server_list` (O-8)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.openstack.errors import CloudAway, CloudRefused
from nodepool.driver.openstack.server_list import changes_since, list_servers
from nodepool.driver.statemachine.inventory import ChangesNotListed
from tests.unit.driver.openstack.support import StubCloud, server

LISTS = ("GET", "/servers/detail")


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
def test_changes_since(latest: str, expected: str | None) -> None:
    """Services round to seconds and clocks differ. Bad input: what is no time asks for everything."""
    assert changes_since(latest) == expected


def test_lists(cloud: StubCloud) -> None:
    """All servers, or those that changed."""
    asked: list[Any] = []

    def answer(body: Any, query: dict[str, Any]) -> dict[str, Any]:
        asked.append(query.get("changes-since"))
        return {"servers": [server()]}

    cloud.stub.answers[LISTS] = answer
    for since in (None, "2026-01-01T12:00:25Z"):
        assert [found.id for found in list_servers(cloud.api, since)] == ["s1"]
    assert asked == [None, "2026-01-01T12:00:25Z"]


def test_refusal(cloud: StubCloud) -> None:
    """A cloud that refuses changes-since is asked for everything; one that lists nothing, or is away, has trouble."""
    cloud.stub.answers[LISTS] = CloudRefused("bad request", 400)
    with pytest.raises(ChangesNotListed, match="bad request"):
        list_servers(cloud.api, "2026-01-01T12:00:25Z")
    with pytest.raises(CloudRefused):
        list_servers(cloud.api, None)
    cloud.stub.answers[LISTS] = CloudAway("503")
    with pytest.raises(CloudAway):
        list_servers(cloud.api, "2026-01-01T12:00:25Z")
