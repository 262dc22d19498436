# SPDX-License-Identifier: Apache-2.0
"""Uploads to clouds that import images by tasks (clouds.yaml: image_api_use_tasks)."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.framework import uploads
from nodepool.driver.framework.uploads import UploadGivenUp
from nodepool.exceptions import ImageCreateException
from simulators.openstack.image_data import Upload
from tests.support.openstack_place import Place

KEYS = {"nodepool_provider_name": "cloud-a", "nodepool_build_id": "b1", "nodepool_upload_id": "1"}


@pytest.fixture(autouse=True)
def files_of_the_library() -> Iterator[None]:
    """openstacksdk leaves the file of a segment open until the garbage collection: that must not be in another test."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "unclosed file .*image.vhd", ResourceWarning)
        yield
        gc.collect()


@pytest.fixture
def upload(place: Place, tmp_path: Path) -> Any:
    """Uploads an image through the adapter of a running launcher."""
    place.clouds["simulator"]["image_api_use_tasks"] = True
    place.write_clouds()
    place.simulator.change(image_tasks=True)
    place.section["diskimages"][0]["meta"] = {"team": "ci"}
    file = tmp_path / "image.vhd"
    file.write_bytes(bytes(5000))

    def call() -> str:
        place.launch()
        image = place.adapter.config.diskimages["built"]
        return place.adapter.uploadImage(image, "built-1", str(file), "vhd", dict(KEYS))

    return call


def objects(place: Place) -> int:
    with place.simulator.cloud() as cloud:
        return sum(len(container) for container in cloud.objects.values())


def test_upload(place: Place, upload: Any) -> None:
    """The image has the data, and the properties by which it is found (D-1, U-4); the object is gone."""
    found = upload()
    with place.simulator.cloud() as cloud:
        image = cloud.images.images.get(found)
    assert (image["name"], image["status"], image["size"]) == ("built-1", "active", 5000)
    assert {key: image[key] for key in ("team", *KEYS)} == {"team": "ci", **KEYS}
    assert (place.calls("image.create_task"), place.calls("image.upload_image"), objects(place)) == (1, 0, 0)
    place.adapter.deleteImage(found)
    with place.simulator.cloud() as cloud:
        assert found not in cloud.images.images


@pytest.mark.parametrize("trouble", ["task", "no storage", "refused"])
def test_failure(place: Place, upload: Any, trouble: str) -> None:
    """It is said why, and what to do; nothing is left."""
    if trouble == "task":
        place.simulator.change(image_task_failure="Image is not a VHD")
    elif trouble == "no storage":
        place.simulator.change(image_tasks=False)
    else:
        place.simulator.change(errors=[{"operation": "image.create_task", "kind": "403", "message": "not for you"}])
    with pytest.raises(ImageCreateException) as caught:
        upload()
    text = str(caught.value)
    assert text.startswith("Provider cloud-a: image built-1 was not imported by a task: ")
    assert "image_api_use_tasks to false in clouds.yaml" in text
    assert {"task": "VHD", "no storage": "object-store", "refused": "not for you"}[trouble] in text
    assert objects(place) == 0
    with place.simulator.cloud() as cloud:
        assert [image["name"] for image in cloud.images.images] == ["cloud-image"]


@pytest.mark.parametrize("largest", [5 * 2**30, 2_000_000], ids=["whole", "in segments"])
def test_progress(place: Place, upload: Any, tmp_path: Path, largest: int) -> None:
    """The builder hears how far the object is, also when its segments are sent at once; nothing is left."""
    (tmp_path / "image.vhd").write_bytes(bytes(5_000_000))
    place.simulator.change(object_bytes=largest)
    told: list[int] = []

    def listen(done: int, total: int) -> None:
        assert total == 5_000_000
        told.append(done)

    with uploads.watched(listen):
        found = upload()
    assert told[-1] == 5_000_000
    assert 3 <= len(told) <= 8
    with place.simulator.cloud() as cloud:
        image = cloud.images.images.get(found)
    assert (image["status"], image["size"]) == ("active", 5_000_000)
    assert place.calls("object.create_object") == (1 if largest > 5_000_000 else 4)


@pytest.mark.parametrize("largest", [5 * 2**30, 1_500_000], ids=["whole", "in segments"])
def test_given_up_before_the_task(place: Place, upload: Any, tmp_path: Path, largest: int) -> None:
    """U-9, U-12: nobody wants it any more: it ends on its way, and no object or segment stays."""
    (tmp_path / "image.vhd").write_bytes(bytes(5_000_000))
    place.simulator.change(object_bytes=largest)

    def stop(done: int, total: int) -> None:
        if done > 3_000_000:
            raise UploadGivenUp("enough")

    with place.simulator.cloud() as cloud:
        cloud.objects["images"] = {"built-10/000000": Upload()}
    with uploads.watched(stop), pytest.raises(UploadGivenUp, match="enough"):
        upload()
    # Those of another image stay.
    assert (place.calls("image.create_task"), objects(place)) == (0, 1)
    with place.simulator.cloud() as cloud:
        assert [image["name"] for image in cloud.images.images] == ["cloud-image"]


def test_given_up(place: Place, tmp_path: Path) -> None:
    """U-9, U-12: an upload that nobody wants any more ends on its way; nothing is left, and it is not sent again."""
    file = tmp_path / "image.raw"
    file.write_bytes(bytes(5_000_000))
    place.launch()

    def stop(done: int, total: int) -> None:
        assert total == 5_000_000
        if done > 2_000_000:
            raise UploadGivenUp("enough")

    image = place.adapter.config.diskimages["built"]
    with uploads.watched(stop), pytest.raises(UploadGivenUp, match="enough"):
        place.adapter.uploadImage(image, "built-1", str(file), "raw", dict(KEYS))
    with place.simulator.cloud() as cloud:
        assert [image["name"] for image in cloud.images.images] == ["cloud-image"]
    assert place.calls("image.upload_image") <= 1
