# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openstack.images` (rules U-4, U-5)."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.openstack.images import Content, api_properties, checksum_properties
from nodepool.exceptions import ImageCreateException


class Broken(io.FileIO):
    """The disk has an error in the second piece."""

    def read(self, size: int | None = -1) -> bytes:
        if self.tell():
            raise OSError(5, "Input/output error")
        return super().read(size) or b""


def test_error_of_the_disk(tmp_path: Path) -> None:
    """It is not one of the connection."""
    path = tmp_path / "file"
    path.write_bytes(bytes(2_000_000))
    with Broken(path) as file, pytest.raises(ImageCreateException, match="cannot be read"):
        list(Content(file))


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_file_changes(tmp_path: Path, size: int) -> None:
    """Another length than was told is an error, not a request that nobody ends."""
    path = tmp_path / "file"
    path.write_bytes(bytes(2_000_000))
    with path.open("rb") as file:
        content = Content(file)
        os.truncate(path, size)
        sent: list[bytes] = []
        with pytest.raises(ImageCreateException, match="changed its size"):
            sent.extend(content)
    assert sum(map(len, sent)) <= len(content) == 2_000_000


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("min_disk", "20", 20),
        ("protected", "True", True),
        ("os_hidden", False, False),
        ("tags", ["a", 1], ["a", "1"]),
        ("hw_vif_multiqueue_enabled", True, "true"),
        ("hw_disk_bus", "scsi", "scsi"),
        ("n", 3, "3"),
    ],
)
def test_properties(key: str, value: Any, expected: Any) -> None:
    """U-4: properties are texts, but for the attributes that Glance has itself."""
    assert api_properties({key: value}) == {key: expected}


def test_checksums() -> None:
    """U-5: where openstacksdk puts them; without any nothing is said."""
    assert checksum_properties("n", None, None) == {}
    assert checksum_properties("n", "m", None) == {
        "owner_specified.openstack.md5": "m",
        "owner_specified.openstack.object": "images/n",
    }
