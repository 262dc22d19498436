# SPDX-License-Identifier: Apache-2.0
"""nodepool.model.image: builds and uploads (reference/zookeeper 6)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.model.image import ImageBuild, ImageUpload
from nodepool.model.record import InvalidRecord


def test_build_round_trip() -> None:
    data: dict[str, Any] = {
        "state": "ready",
        "state_time": 4.5,
        "builder": "b.example",
        "builder_id": "u",
        "formats": "qcow2,raw",
        "username": "root",
        "python_path": "auto",
        "shell_type": None,
        "new_key": 1,
    }
    build = ImageBuild.from_dict(data, "debian", "a" * 32)
    assert (build.image_name, build.id, build.formats) == ("debian", "a" * 32, ["qcow2", "raw"])
    assert build.to_dict(9.0) == data


def test_new_build_leaves_out_what_it_does_not_know() -> None:
    """6.1: omitted when null or empty; login data is null while building."""
    assert ImageBuild("debian").to_dict(3.0) == {
        "state": "building",
        "state_time": 3.0,
        "username": None,
        "python_path": None,
        "shell_type": None,
    }


def test_formats_are_sorted_text() -> None:
    build = ImageBuild("debian")
    build.formats = ["vhd", "raw"]
    assert build.to_dict(1.0)["formats"] == "raw,vhd"


@pytest.mark.parametrize(
    ("value", "expected"), [(2.5, 2.5), (0, 0), ("2", None), (True, None), (-1, None), (float("inf"), None)]
)
def test_numbers_of_our_own(value: object, expected: float | None) -> None:
    """Anybody may write into a record: what is no such number is not known."""
    build = ImageBuild.from_dict({"state": "ready", "duration": value, "size": value}, "debian", "1")
    assert (build.duration, build.size) == (expected, expected)
    build.tell(1.23456, 7)
    assert {"duration": 1.235, "size": 7}.items() <= build.to_dict(1.0).items()


def test_read_defaults() -> None:
    build = ImageBuild.from_dict({"state": "ready"}, "debian", "1")
    assert (build.username, build.python_path, build.shell_type) == ("zuul", "/usr/bin/python2", None)


def test_upload_round_trip() -> None:
    data: dict[str, Any] = {
        "state": "ready",
        "state_time": 4.5,
        "external_id": {"id": 1},
        "external_name": "n",
        "format": "raw",
        "username": None,
        "python_path": None,
        "shell_type": None,
    }
    upload = ImageUpload.from_dict(data, "debian", "build", "cloud", "0000000001")
    assert (upload.provider_name, upload.build_id, upload.id) == ("cloud", "build", "0000000001")
    assert upload.to_dict(9.0) == data
    assert ImageUpload("debian", "build", "cloud").to_dict(1.0)["state"] == "uploading"


@pytest.mark.parametrize("data", [{"state": "in-use"}, {"state": "ready", "formats": ["raw"]}, {}])
def test_no_build(data: dict[str, Any]) -> None:
    with pytest.raises(InvalidRecord):
        ImageBuild.from_dict(data, "debian", "1")


def test_for_released_drivers() -> None:
    """Methods of 11.0.0, whose arguments of an upload have another order."""
    data = ImageBuild("image").to_dict(5.0)
    build = ImageBuild.fromDict({**data, "formats": "raw"}, "image", "1")
    assert (build.image_name, build.id, build.formats, build.state) == ("image", "1", ["raw"], data["state"])
    build.updateFromDict({**data, "formats": "qcow2,raw"})
    assert build.toDict()["formats"] == "qcow2,raw"
    upload = ImageUpload.fromDict(ImageUpload("image", "1", "cloud").to_dict(5.0), "1", "cloud", "image", "2")
    assert (upload.image_name, upload.build_id, upload.provider_name, upload.id) == ("image", "1", "cloud", "2")
