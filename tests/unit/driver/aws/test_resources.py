# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.aws.resources` (AW-20)."""

from __future__ import annotations

from nodepool.driver.aws.resources import AwsKind, AwsResource, AwsResources

OURS = AwsResource({"nodepool_provider_name": "north"}, "ami", "ami-1")


def not_deleted(_: str) -> None:
    raise AssertionError("nothing is deleted here")


def test_each_by_its_kind() -> None:
    """AW-20: a thing is deleted as its kind says."""
    deleted: list[str] = []
    kinds = [AwsKind("host", list, delete=not_deleted), AwsKind("ami", lambda: [OURS], delete=deleted.append)]
    resources = AwsResources("north", kinds)
    assert list(resources.all()) == [OURS]
    resources.delete(OURS)
    assert deleted == ["ami-1"]
