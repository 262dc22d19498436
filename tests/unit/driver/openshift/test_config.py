# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openshift.config` (reference/configuration)."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.openshift import OpenShiftDriver
from tests.support.provider_sections import load_section, problems_of_section
from tests.unit.driver.kubernetes.test_config import EVERYTHING as KUBERNETES

EVERYTHING: dict[str, Any] = {**copy.deepcopy(KUBERNETES), "driver": "openshift", "max-projects": 30}
EVERYTHING["pools"][0]["labels"][0]["image-pull-secrets"] = [{"name": "one"}, "two"]
EVERYTHING["pools"][0]["labels"][1]["type"] = "pod"
EVERYTHING["pools"][0]["labels"][3]["type"] = "project"


def test_every_key() -> None:
    """reference/configuration: as Kubernetes, and its own; ``pod`` is a pod, any other type a project."""
    config = load_section(OpenShiftDriver(), EVERYTHING)
    labels = config.pools["main"].labels
    assert labels["pod-debian"].image_pull_secrets == [{"name": "one"}, {"name": "two"}]
    assert labels["defaults"].image_pull_secrets == []
    assert (labels["pod-debian"].is_pod, labels["Empty_1"].is_pod) == (True, False)
    assert (labels["pod-debian"].cpu, config.launch_timeout) == (2, 600)


@pytest.mark.parametrize(
    ("provider", "pool", "expected"),
    [
        ({}, {}, math.inf),
        ({"max-servers": 5}, {}, 5),
        ({"max-projects": 4}, {}, 4),
        ({"max-projects": 4, "max-servers": 5}, {}, 4),
        ({"max-projects": 4}, {"max-servers": 3}, 3),
    ],
)
def test_limit_of_nodes(provider: dict[str, Any], pool: dict[str, Any], expected: float) -> None:
    """reference/configuration: ``max-projects`` is the other name."""
    data = {"name": "o", "driver": "openshift", "context": "c", **provider, "pools": [{"name": "main", **pool}]}
    assert load_section(OpenShiftDriver(), data).pools["main"].max_servers == expected


def test_released_configuration_is_accepted(tmp_path: Path) -> None:
    """reference/configuration: with every key that 11.0.0 takes."""
    assert problems_of_section(tmp_path, EVERYTHING) == []


@pytest.mark.parametrize(
    ("change", "key", "text"),
    [
        (lambda d: d.pop("context"), "context", "required"),
        (lambda d: d["pools"][0]["labels"][3].update(type="pod"), "labels[3].name", "small letters"),
        (lambda d: d["pools"][0]["labels"][0].update({"image-pull-secrets": "x"}), "image-pull-secrets", "list"),
    ],
)
def test_what_is_wrong(tmp_path: Path, change: Any, key: str, text: str) -> None:
    """reference/configuration: refused with file, line, key and what is allowed."""
    data = copy.deepcopy(EVERYTHING)
    change(data)
    where, _, said = problems_of_section(tmp_path, data)[0].partition(": ")
    assert where.endswith(key)
    assert text in said
