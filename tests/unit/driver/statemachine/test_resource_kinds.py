# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.statemachine.instance` (rules D, AW-20)."""

from __future__ import annotations

import logging

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway, CloudSetup
from nodepool.driver.statemachine import Resource, ResourceKind, ResourceKinds
from nodepool.exceptions import RuntimeConfigurationException
from tests.support.manual_clock import ManualClock

OURS = Resource({"nodepool_provider_name": "north"}, "image")
FOREIGN = Resource({}, "image")


def denied() -> list[Resource]:
    raise CloudSetup("it says", code="UnauthorizedOperation")


@pytest.mark.parametrize(
    "error", [CloudSetup("it says"), CloudAway("it says"), RuntimeConfigurationException("it says")]
)
def test_trouble_with_one_kind(caplog: pytest.LogCaptureFixture, error: Exception) -> None:
    """AW-20: it does not hide the others, and is told once."""

    def fails() -> list[Resource]:
        raise error

    resources = ResourceKinds("north", [ResourceKind("object", fails), ResourceKind("image", lambda: [OURS])])
    with caplog.at_level(logging.WARNING):
        assert list(resources.all()) == list(resources.all()) == [OURS]
    assert caplog.messages == ["Provider north: resources of kind object cannot be listed: it says"]


def test_vital_kind() -> None:
    """Without the instances there is no sweep."""
    resources = ResourceKinds("north", [ResourceKind("instance", denied, vital=True)])
    with pytest.raises(CloudSetup):
        list(resources.all())


def test_what_the_configuration_has_no_use_for() -> None:
    """AW-20: it is looked for seldom; when something of ours is there, in each sweep until it is gone."""
    clock = ManualClock()
    lists: list[list[Resource]] = [[FOREIGN], [OURS], [OURS], [], []]
    resources = ResourceKinds("north", [ResourceKind("image", lambda: lists.pop(0), idle_seconds=600)], clock)
    assert list(resources.all()) == [FOREIGN]
    clock.now += 599
    assert list(resources.all()) == []
    assert len(lists) == 4
    clock.now += 1
    assert list(resources.all()) == list(resources.all()) == [OURS]
    assert list(resources.all()) == list(resources.all()) == []
    assert len(lists) == 1
