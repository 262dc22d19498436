# SPDX-License-Identifier: Apache-2.0
"""The provider section (reference/configuration)."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from nodepool.config.objects import Config, DiskImage
from tests.support.provider_sections import problems_of_section
from tests.support.tables import driver_table
from tests.unit.driver.aws.support import load, rows, section

EVERYTHING: dict[str, Any] = driver_table("aws", "everything")
LEAST = {"name": "north", "driver": "aws", "region-name": "r", "pools": [{"name": "main"}]}


@pytest.mark.parametrize(("data", "expected"), [(EVERYTHING, "loaded"), (LEAST, "defaults")], ids=["all", "defaults"])
def test_every_key(data: dict[str, Any], expected: str) -> None:
    """reference/configuration: all keys are read; defaults are those of Nodepool 11.0.0."""
    whole = Config()
    for name in ("fedora", "windows"):
        image = whole.diskimages[name] = DiskImage(name)
        image.username, image.python_path = "builder", "/top"
    config = load(copy.deepcopy(data), whole)
    for path, values in driver_table("aws", expected).items():
        found: Any = config
        for step in filter(None, path.split(".")):
            found = found[step] if isinstance(found, dict) else getattr(found, step)
        assert {name: getattr(found, name) for name in values} == values, path
    if data is EVERYTHING:
        labels = config.pools["main"].labels
        assert labels["small"].diskimage is config.diskimages["fedora"]
        assert labels["fleet"].cloud_image is config.cloud_images["newest"]
        assert whole.diskimages["fedora"].image_types == {"vmdk"}
        filters = [(each.name, each.values) for each in config.cloud_images["newest"].image_filters]
        assert filters == [("name", ["debian-*"]), ("architecture", ["x86_64", "arm64"])]


@pytest.mark.parametrize(("method", "image_format", "words"), rows("formats"))
def test_format_that_cannot_be_uploaded(method: str, image_format: str, words: str) -> None:
    """AW-17, AW-18: config-validate says it; Nodepool 11 accepts such a section. A paused image is no matter."""
    images = [{"name": "fedora", "import-method": method}, {"name": "old", "import-method": method, "pause": True}]
    more: dict[str, Any] = {"image-format": image_format, "object-storage": {"bucket-name": "images"}}
    found = list(load(section(diskimages=images, **more)).localProblems())
    assert [key for key, _ in found] == (["image-format"] if words else [])
    assert all(words in text and "fedora" in text for _, text in found)


@pytest.mark.parametrize(("changes", "key", "text"), rows("checked"))
def test_what_is_wrong(tmp_path: Path, changes: dict[str, Any], key: str, text: str) -> None:
    """reference/configuration: ``config-validate`` says file, line, key and what is allowed."""
    data = copy.deepcopy(EVERYTHING)
    for path, value in changes.items():
        *outer, last = (int(step) if step.isdigit() else step for step in path.split("/"))
        place: Any = data
        for step in outer:
            place = place[step]
        place[last] = value
        if value is None:
            del place[last]
    found = problems_of_section(tmp_path, data, "fedora", "windows")
    assert len(found) == bool(key)
    assert all(problem.partition(": ")[0].endswith(key) and text in problem for problem in found), found
