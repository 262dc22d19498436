# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.aws.resources` (AW-20)."""

from __future__ import annotations

import logging

import pytest

from nodepool.driver.aws.resources import AwsResource, AwsResources, ResourceKind
from nodepool.driver.framework.cloud_errors import CloudSetup
from tests.support.manual_clock import ManualClock

OURS = AwsResource({"nodepool_provider_name": "north"}, "ami", "ami-1")
FOREIGN = AwsResource({}, "ami", "ami-2")


def denied() -> list[AwsResource]:
    raise CloudSetup("it says", code="UnauthorizedOperation")


def not_deleted(_: str) -> None:
    raise AssertionError("nothing is deleted here")


def test_each_by_its_kind() -> None:
    """AW-20: a thing is deleted as its kind says."""
    deleted: list[str] = []
    kinds = [ResourceKind("host", list, not_deleted), ResourceKind("ami", lambda: [OURS], deleted.append)]
    resources = AwsResources("north", kinds)
    assert list(resources.all()) == [OURS]
    resources.delete(OURS)
    assert deleted == ["ami-1"]


def test_trouble_with_one_kind(caplog: pytest.LogCaptureFixture) -> None:
    """AW-20: it does not hide the others, and is told once."""
    kinds = [ResourceKind("object", denied, not_deleted), ResourceKind("ami", lambda: [OURS], not_deleted)]
    resources = AwsResources("north", kinds)
    with caplog.at_level(logging.WARNING):
        assert list(resources.all()) == list(resources.all()) == [OURS]
    assert caplog.messages == ["Provider north: resources of kind object cannot be listed: it says"]


def test_vital_kind() -> None:
    """Without the instances there is no sweep."""
    resources = AwsResources("north", [ResourceKind("instance", denied, not_deleted, vital=True)])
    with pytest.raises(CloudSetup):
        list(resources.all())


def test_what_the_configuration_has_no_use_for() -> None:
    """AW-20: it is looked for seldom; when something of ours is there, in each sweep until it is gone."""
    clock = ManualClock()
    lists: list[list[AwsResource]] = [[FOREIGN], [OURS], [OURS], [], []]
    kind = ResourceKind("ami", lambda: lists.pop(0), not_deleted, idle_seconds=600)
    resources = AwsResources("north", [kind], clock)
    assert list(resources.all()) == [FOREIGN]
    clock.now += 599
    assert list(resources.all()) == []
    assert len(lists) == 4
    clock.now += 1
    assert list(resources.all()) == list(resources.all()) == [OURS]
    assert list(resources.all()) == list(resources.all()) == []
    assert len(lists) == 1
