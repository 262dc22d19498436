# SPDX-License-Identifier: Apache-2.0
"""The recipes of the page on images name elements that diskimage-builder has, and that fit together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import diskimage_builder  # type: ignore[import-untyped]
import pytest
import yaml
from diskimage_builder import element_dependencies

from tests.unit.test_samples import ROOT, yaml_blocks

PAGE = ROOT / "doc/source/explanation/images.rst"
ELEMENTS = Path(diskimage_builder.__file__).parent / "elements"
#: Its partitions are made by one of these.
BLOCK_DEVICE = "block-device-"


def recipes() -> list[dict[str, Any]]:
    """The images of the page that name elements of diskimage-builder."""
    found = [image for block in yaml_blocks(PAGE) for image in yaml.safe_load(block).get("diskimages", [])]
    return [image for image in found if "vm" in image.get("elements", [])]


def test_all_systems() -> None:
    assert {recipe["elements"][0] for recipe in recipes()} == {"debian-minimal", "ubuntu-minimal", "centos-minimal"}


@pytest.mark.parametrize("recipe", recipes(), ids=lambda recipe: recipe["name"])
def test_elements(recipe: dict[str, Any]) -> None:
    """All that it needs exist, one makes the partitions, and an operating system is in it (the tool checks that)."""
    resolved = {name for name, _ in element_dependencies.get_elements(recipe["elements"], str(ELEMENTS))}
    assert set(recipe["elements"]) <= resolved
    assert len([name for name in resolved if name.startswith(BLOCK_DEVICE)]) == 1


def test_unknown_element() -> None:
    """What the test above relies on: the tool refuses what it does not have, and a ``vm`` without partitions."""
    for elements in (["debian-minimal", "nonsense"], ["debian-minimal", "vm"]):
        with pytest.raises(element_dependencies.MissingElementException):
            element_dependencies.get_elements(elements, str(ELEMENTS))
