# SPDX-License-Identifier: Apache-2.0
"""The provider section (reference/configuration)."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.support.provider_sections import problems_of_section
from tests.support.tables import driver_table
from tests.unit.driver.aws.support import load, rows, section

EVERYTHING: dict[str, Any] = driver_table("aws", "everything")


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
