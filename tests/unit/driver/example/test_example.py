# SPDX-License-Identifier: Apache-2.0
"""The example driver against its simulated cloud: what the contract suite does not reach."""

from __future__ import annotations

from typing import Any

import pytest
import voluptuous

from nodepool.driver.example import ExampleDriver
from nodepool.driver.example.client import meaning
from nodepool.exceptions import (
    CapacityException,
    CloudUnavailableException,
    LaunchNodepoolException,
    NotFound,
    QuotaException,
)

LABEL = {"name": "small", "cloud-image": "debian", "size": "small"}


def section(url: str = "http://127.0.0.1:9", label: dict[str, Any] = LABEL) -> dict[str, Any]:
    return {
        "name": "somewhere",
        "driver": "example",
        "url": f"{url}/",
        "rate": 0,
        "diskimages": [{"name": "fedora", "meta": {"colour": "blue", "nodepool_build_id": "forged"}}],
        "cloud-images": [{"name": "debian", "username": "debian"}],
        "pools": [{"name": "main", "labels": [label, {"name": "built", "diskimage": "fedora", "size": "large"}]}],
    }


@pytest.mark.parametrize(
    ("status", "expected", "maybe_done"),
    [
        (400, LaunchNodepoolException, None),
        (403, QuotaException, None),
        (404, NotFound, None),
        (409, CapacityException, None),
        (429, CloudUnavailableException, False),
        (500, CloudUnavailableException, True),
    ],
)
def test_meaning_of_errors(status: int, expected: type[Exception], maybe_done: bool | None) -> None:
    """reference/driver 13: the class says what is to be done; of no answer: may it have been done?"""
    error = meaning(status, "text")
    assert (type(error), getattr(error, "maybe_done", None)) == (expected, maybe_done)


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ({"name": "small", "size": "small"}, "exactly one of diskimage and cloud-image"),
        (LABEL | {"diskimage": "fedora"}, "exactly one"),
        (LABEL | {"cloud-image": "debain"}, "the provider has no cloud-image 'debain'"),
        ({"name": "small", "cloud-image": "debian"}, "required key not provided"),
    ],
)
def test_refused(label: dict[str, Any], expected: str) -> None:
    """A mistake in a label is an error of the configuration, not of a launch."""
    with pytest.raises(voluptuous.Invalid, match=expected):
        ExampleDriver().getProviderConfig(section()).getSchema()(section(label=label))
