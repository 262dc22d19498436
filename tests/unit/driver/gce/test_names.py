# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.gce.types`."""

from __future__ import annotations

import re
import uuid

import pytest

from nodepool.driver.gce.types import image_name, record_id, request_id, zone_and_name
from nodepool.driver.statemachine import CreationKey

KEY = CreationKey("north", "0000000042", 1)


def test_request_id() -> None:
    """A UUID that stays the same for provider, node, attempt and place."""
    keys = [KEY, KEY._replace(attempt=2), KEY._replace(anew=1), KEY._replace(provider="south")]
    found = [request_id(key, "a") for key in keys] + [request_id(KEY, "b")]
    assert len(set(found)) == len(found)
    assert all(uuid.UUID(each).version == 4 for each in found)
    assert request_id(KEY, "a") == request_id(CreationKey("north", "0000000042", 1), "a")


@pytest.mark.parametrize("name", ["debian-1761234567", "a"])
def test_image_names_that_fit(name: str) -> None:
    assert image_name(name) == name


@pytest.mark.parametrize("name", ["Debian_12-1761234567", "12-debian-1", "x" * 80, "-", "debian-"])
def test_image_names_that_do_not(name: str) -> None:
    """They are changed, and never equal those of another name."""
    assert re.fullmatch(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?", image_name(name))
    assert image_name(name) != image_name(f"{name}_")


def test_record_id() -> None:
    assert zone_and_name(record_id("us-central1-a", "np1")) == ("us-central1-a", "np1")
