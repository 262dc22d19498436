# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openshiftpods.adapter` (reference/configuration)."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.openshiftpods import OpenShiftPodsDriver
from tests.support.provider_sections import load_section, problems_of_section
from tests.unit.driver.openshift.test_config import EVERYTHING as OPENSHIFT

EVERYTHING: dict[str, Any] = {**copy.deepcopy(OPENSHIFT), "driver": "openshiftpods", "max-pods": 20}
EVERYTHING["pools"][0]["labels"].pop()
for label in EVERYTHING["pools"][0]["labels"]:
    del label["type"]


def test_every_key() -> None:
    """reference/configuration: as OpenShift, without types."""
    config = load_section(OpenShiftPodsDriver(), EVERYTHING)
    label = config.pools["main"].labels["pod-debian"]
    assert (label.is_pod, label.cpu, label.image_pull_secrets[0]) == (True, 2, {"name": "one"})


@pytest.mark.parametrize(
    ("provider", "expected"),
    [({}, math.inf), ({"max-servers": 5}, 5), ({"max-projects": 4}, 4), ({"max-pods": 3, "max-projects": 4}, 3)],
)
def test_limit_of_nodes(provider: dict[str, Any], expected: float) -> None:
    """reference/configuration: ``max-pods`` counts, as it is documented."""
    data = {"name": "o", "driver": "openshiftpods", "context": "c", **provider, "pools": [{"name": "main"}]}
    assert load_section(OpenShiftPodsDriver(), data).pools["main"].max_servers == expected


def test_released_configuration_is_accepted(tmp_path: Path) -> None:
    """reference/configuration: with every key that 11.0.0 takes."""
    assert problems_of_section(tmp_path, EVERYTHING) == []


@pytest.mark.parametrize(
    ("change", "key", "text"),
    [
        (lambda d: d["pools"][0]["labels"][0].update(type="pod"), "labels[0].type", "unknown"),
        (lambda d: d["pools"][0]["labels"][0].pop("image"), "labels[0]", "needs an image"),
    ],
)
def test_what_is_wrong(tmp_path: Path, change: Any, key: str, text: str) -> None:
    """reference/configuration: refused with file, line, key and what is allowed."""
    data = copy.deepcopy(EVERYTHING)
    change(data)
    where, _, said = problems_of_section(tmp_path, data)[0].partition(": ")
    assert where.endswith(key)
    assert text in said
