# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.ibmvpc.images`, ``image_upload`` and ``object_store`` at a simulated region.

IV-9, IV-10, IV-11.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.framework import uploads
from nodepool.driver.framework.cloud_errors import CloudAway, CloudQuota, CloudRefused
from nodepool.driver.framework.uploads import UploadGivenUp, UploadInterrupted
from nodepool.driver.ibmvpc.adapter import IbmAdapter
from nodepool.driver.ibmvpc.images import CosUpload
from nodepool.driver.ibmvpc.types import OF_IMAGES
from nodepool.driver.statemachine.instance import upload_of
from nodepool.exceptions import ImageCreateException
from simulators.ibmvpc import ImageImportRule, VpcErrorRule
from tests.support.wait import wait_for
from tests.unit.driver.ibmvpc.region import Here, at_simulator, section
from tests.unit.driver.ibmvpc.support import PROVIDER, load
from tests.unit.driver.simulated_adapter import HOST

MIB = 1024 * 1024
BUILD = "0123456789abcdef0123456789abcdef"
#: With the name of the provider.
MARK = hashlib.sha256(PROVIDER.encode()).hexdigest()[:8]
NAME = f"npimage0000000001-{MARK}-{BUILD}"
KEY = f"npimages_{PROVIDER}_{NAME}.qcow2"
#: Three parts.
CONTENT = b"QFI\xfb" + bytes(range(256)) * 4096 * 11
STORAGE = {"instance-name": "storage", "endpoint": "", "bucket-name": "images"}
DISKIMAGES = [{"name": "debian", "operating-system": "debian-12-amd64"}]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    monkeypatch.setattr(CosUpload, "segment_size", 5 * MIB)
    monkeypatch.setattr(CosUpload, "retry_pause_seconds", 0.01)
    with at_simulator(tmp_path, section(object_storage=STORAGE, diskimages=DISKIMAGES)) as made:
        yield made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "image.qcow2"
    path.write_bytes(CONTENT)
    return path


def metadata(upload: str = "0000000001", build: str = BUILD) -> dict[str, str]:
    return {"nodepool_build_id": build, "nodepool_upload_id": upload, "nodepool_provider_name": PROVIDER}


def upload(here: Here, file: Path, upload_id: str = "0000000001", **more: Any) -> Any:
    image = here.adapter.config.diskimages["debian"]
    return here.adapter.uploadImage(image, "debian-1", str(file), "qcow2", metadata(upload_id), **more)


def left(here: Here) -> dict[str, int]:
    """What uploads have left, and images of the account."""
    with here.simulator.cloud() as cloud:
        found = {**cloud.left_of_uploads(), "images": cloud.contents()["images"]}
    return {kind: number for kind, number in found.items() if number}


def parts_sent(here: Here) -> int:
    return here.calls("cos.UploadPart")


def test_upload(here: Here, file: Path) -> None:
    """IV-9: parts, an object, an import that is checked; the object goes."""
    seen: list[int] = []
    with uploads.watched(lambda done, total: seen.append(done)):
        image_id = upload(here, file, sha256=hashlib.sha256(CONTENT).hexdigest())
    assert parts_sent(here) == 3
    with here.simulator.cloud() as cloud:
        (image,) = (one for one in cloud.resources.of("images") if one.document["visibility"] == "private")
        assert (image.id, image.name) == (image_id, NAME)
        assert image.document["resource_group"]["name"] == f"npimages_{PROVIDER}"
        assert image.document["operating_system"]["name"] == "debian-12-amd64"
        assert image.document["file"]["checksums"]["sha256"] == hashlib.sha256(CONTENT).hexdigest()
    assert left(here) == {"images": 1}
    assert max(seen) == len(CONTENT)


def test_ids_of_uploads_begin_again(here: Here, file: Path) -> None:
    """IV-10: the same upload id of two builds makes two images."""
    first = upload(here, file)
    image = here.adapter.config.diskimages["debian"]
    second = here.adapter.uploadImage(image, "debian-2", str(file), "qcow2", metadata(build="f" * 32))
    assert first != second
    assert left(here) == {"images": 2}


def test_providers_share_no_image(here: Here, file: Path, tmp_path: Path) -> None:
    """IV-10: names are unique in a region, and ids of uploads begin again with each provider."""
    first = upload(here, file)
    data = section(name="north", object_storage={**STORAGE, "endpoint": here.simulator.url}, diskimages=DISKIMAGES)
    adapter = IbmAdapter(load({**data, "credentials-file": str(tmp_path / "ibm.env")}))
    try:
        image = adapter.config.diskimages["debian"]
        given = {**metadata(), "nodepool_provider_name": "north"}
        second = adapter.uploadImage(image, "debian-1", str(file), "qcow2", given)
        assert first != second
        adapter.deleteImage(second)
    finally:
        adapter.stop()
    wait_for("the image to go", lambda: left(here) == {"images": 1})
    assert [one.id for one in here.adapter.listImages()] == [first]


def test_import_of_another_provider(here: Here, file: Path) -> None:
    """IV-10: one of the same build in the group of others is not taken up again."""
    with here.simulator.cloud() as cloud:
        cloud.add_image(f"npimage0000000009-{BUILD}", "npimages_north")
        cloud.add_object(f"npimages_{PROVIDER}_npimage0000000009-{BUILD}.qcow2")
    upload(here, file)
    assert parts_sent(here) == 3
    assert left(here) == {"images": 2, "objects": 1}


def test_name_of_another_provider(here: Here, file: Path) -> None:
    """IV-10, CM-8: an image of the name in the group of others is never taken for ours, nor deleted."""
    with here.simulator.cloud() as cloud:
        cloud.add_image(NAME, "npimages_north")
    with pytest.raises(CloudRefused, match="validation_unique_failed"):
        upload(here, file)
    assert left(here) == {"images": 1}


def test_sweep_knows_images_by_build_and_upload(here: Here, file: Path) -> None:
    """IV-10: an image that a record knows is never taken for leaked; neither is one that says nothing of its build."""
    upload(here, file)
    with here.simulator.cloud() as cloud:
        cloud.add_image("npimage0000000001", f"npimages_{PROVIDER}")
        cloud.add_image("fedora", f"npimages_{PROVIDER}")
        cloud.add_image(f"npimage0000000001-{BUILD}-copy", "Default")
    found = [upload_of(one.metadata, PROVIDER) for one in here.adapter.listResources() if one.metadata]
    assert found == [(BUILD, "0000000001")]


def test_launch_from_an_upload(here: Here, file: Path) -> None:
    """IV-5: an instance of an uploaded image."""
    image_id = upload(here, file)
    machine = here.launch(image=image_id)
    here.delete(machine.external_id)


def test_delete(here: Here, file: Path) -> None:
    """IV-11: the image goes with what is left of its upload; one that is gone is no error; an empty bucket is none."""
    image_id = upload(here, file)
    (listed,) = here.adapter.listImages()
    assert (listed.id, listed.name, dict(listed.metadata), listed.usable) == (image_id, NAME, metadata(), True)
    with here.simulator.cloud() as cloud:
        cloud.add_object(KEY)
        cloud.add_object("somebody-elses.qcow2")
    for _ in range(2):
        here.adapter.deleteImage(image_id)
    wait_for("the image to go", lambda: left(here) == {"objects": 1})
    here.adapter.deleteImage("no-such-image")


@pytest.mark.parametrize("kind", ["drop", "500"])
@pytest.mark.parametrize(
    "operation", ["cos.CreateMultipartUpload", "cos.UploadPart", "cos.CompleteMultipartUpload", "vpc.create_image"]
)
def test_lost_answers(here: Here, file: Path, operation: str, kind: str) -> None:
    """U-8: each call is sent again, and nothing is left."""
    here.simulator.change(errors=[VpcErrorRule(operation=operation, kind=kind, after=True, count=1)])
    upload(here, file)
    found = left(here)
    # An upload that nobody knows of is found by its key.
    found.pop("uploads", None)
    assert found == {"images": 1}


def test_order_of_an_import_is_sent_again(here: Here, file: Path) -> None:
    """U-8: as often as other calls of an upload, with pauses."""
    here.simulator.change(errors=[VpcErrorRule(operation="vpc.create_image", kind="500", count=4)])
    upload(here, file)
    assert here.calls("vpc.create_image") == 5
    assert left(here) == {"images": 1}


def test_image_that_is_not_there_yet(here: Here, file: Path) -> None:
    """IV-9: what IBM has just made may be unknown for a moment; a page of a proxy says nothing about it."""
    page = VpcErrorRule(operation="vpc.get_image", kind="html", status=404, count=1)
    here.simulator.change(errors=[VpcErrorRule(operation="vpc.get_image", kind="404", count=2), page])
    identity = upload(here, file)
    assert [image.id for image in here.adapter.listImages()] == [identity]
    # Somebody has deleted it.
    here.simulator.change(errors=[VpcErrorRule(operation="vpc.get_image", kind="404")])
    with pytest.raises(CloudRefused, match="reading images failed"):
        upload(here, file, "0000000002")


def test_failed_import(here: Here, file: Path) -> None:
    """IV-9, U-9: in the words of IBM, and nothing is left."""
    here.simulator.change(imports=[ImageImportRule(message="the file is no qcow2")])
    with pytest.raises(ImageCreateException, match="its import is failed: image_data_corrupted: the file is no qcow2"):
        upload(here, file)
    wait_for("all to go", lambda: not left(here))


def test_file_that_has_changed(here: Here, file: Path) -> None:
    """U-14: the disk of the builder may be broken."""
    with pytest.raises(ImageCreateException, match="the sha256 of the file"):
        upload(here, file, sha256="0" * 64)
    assert left(here) == {}


def test_refused_upload(here: Here, file: Path) -> None:
    """U-9: nothing is left."""
    here.simulator.change(errors=[VpcErrorRule(operation="vpc.create_image", kind="403", code="not_authorized")])
    with pytest.raises(CloudRefused, match="not_authorized"):
        upload(here, file)
    assert left(here) == {}


def test_quota_of_images(here: Here, file: Path) -> None:
    here.simulator.change(quotas={"images": 0})
    with pytest.raises(CloudQuota):
        upload(here, file)
    assert left(here) == {}


def test_given_up(here: Here, file: Path) -> None:
    """U-9: nobody wants it any more."""

    def give_up(done: int, total: int) -> None:
        raise UploadGivenUp("the build was deleted")

    with uploads.watched(give_up), pytest.raises(UploadGivenUp):
        upload(here, file)
    assert left(here) == {}


def test_given_up_during_the_import(here: Here, file: Path) -> None:
    """U-9, D-3: IBM deletes no image while it is imported. Its object tells that it is of no use, until it can go."""
    here.simulator.change(import_seconds=[30.0, 30.0])

    def give_up(done: int, total: int) -> None:
        if here.calls("vpc.create_image"):
            raise UploadGivenUp("the build was deleted")

    with uploads.watched(give_up), pytest.raises(UploadGivenUp):
        upload(here, file)
    assert left(here) == {"images": 1, "objects": 1, "pending": 1}
    (found,) = (one for one in here.adapter.listResources() if one.type in OF_IMAGES)
    assert (found.type, found.usable) == ("image", False)
    with pytest.raises(CloudRefused, match="image_request_in_progress"):
        here.adapter.deleteResource(found)
    with here.simulator.cloud() as cloud:
        (image,) = (one for one in cloud.resources.of("images") if one.status == "pending")
        image.document["status"] = "available"
    (listed,) = here.adapter.listImages()
    assert (listed.id, listed.usable) == (image.id, False)
    here.adapter.deleteImage(listed.id)
    wait_for("all to go", lambda: not left(here))


def test_given_up_without_an_answer(here: Here, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-9: an import that was ordered without an answer is found by its name."""
    monkeypatch.setattr(CosUpload, "error_retries", 1)
    drop = VpcErrorRule(operation="vpc.create_image", kind="drop", after=True)
    here.simulator.change(errors=[drop], import_seconds=[30.0, 30.0])
    with pytest.raises(CloudAway):
        upload(here, file)
    assert left(here) == {"images": 1, "objects": 1, "pending": 1}
    (found,) = here.adapter.listImages()
    assert not found.usable


def test_bucket_that_cannot_be_read(here: Here, caplog: pytest.LogCaptureFixture) -> None:
    """D-2: what uploads have left is not found; instances are all the same. Who looks for images hears of it."""
    here.launch()
    here.simulator.change(buckets=[])
    assert [one.type for one in here.adapter.listResources()] == ["instance"]
    assert "resources of kind image cannot be listed" in caplog.text
    with pytest.raises(CloudRefused, match="NoSuchBucket"):
        list(here.adapter.listImages())
    here.delete(HOST)


# -- interrupted --


def interrupt_at(share: float) -> Any:
    def report(done: int, total: int) -> None:
        if done >= share * total:
            raise UploadInterrupted("the builder stops")

    return report


def test_parts_are_not_sent_again(here: Here, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-4: the next upload of the build sends the parts that are missing."""
    monkeypatch.setattr(CosUpload, "concurrency", 1)
    with uploads.watched(interrupt_at(0.5)), pytest.raises(UploadInterrupted):
        upload(here, file)
    sent = parts_sent(here)
    assert 0 < sent < 3
    assert left(here) == {"uploads": 1}
    upload(here, file, "0000000002")
    assert parts_sent(here) == 3
    assert left(here) == {"images": 1}
    assert [one.name for one in here.adapter.listImages()] == [f"npimage0000000002-{MARK}-{BUILD}"]


def test_import_is_taken_up_again(here: Here, file: Path) -> None:
    """R-4: an import that was under way when the builder stopped is that of the next upload of the build."""
    here.simulator.change(import_seconds=[30.0, 30.0])

    def stop_during_the_import(done: int, total: int) -> None:
        if here.calls("vpc.create_image"):
            raise UploadInterrupted("the builder stops")

    with uploads.watched(stop_during_the_import), pytest.raises(UploadInterrupted):
        upload(here, file)
    assert left(here) == {"images": 1, "objects": 1, "pending": 1}
    with here.simulator.cloud() as cloud:
        (image,) = (one for one in cloud.resources.of("images") if one.status == "pending")
        image.document["status"] = "available"
    assert upload(here, file, "0000000002") == image.id
    assert (here.calls("vpc.create_image"), parts_sent(here)) == (1, 3)
    assert left(here) == {"images": 1}
    assert [dict(one.metadata) for one in here.adapter.listImages()] == [metadata("0000000002")]


def test_import_that_was_taken_up_again_is_given_up(here: Here, file: Path) -> None:
    """D-3: its object has the name of the interrupted upload, and tells of the image all the same."""
    here.simulator.change(import_seconds=[30.0, 30.0])

    def during_the_import(error: Exception) -> Any:
        def report(done: int, total: int) -> None:
            if here.calls("vpc.create_image"):
                raise error

        return report

    with uploads.watched(during_the_import(UploadInterrupted("it stops"))), pytest.raises(UploadInterrupted):
        upload(here, file)
    with uploads.watched(during_the_import(UploadGivenUp("not wanted"))), pytest.raises(UploadGivenUp):
        upload(here, file, "0000000002")
    (found,) = here.adapter.listImages()
    assert (dict(found.metadata), found.usable) == (metadata("0000000002"), False)
    with here.simulator.cloud() as cloud:
        (image,) = (one for one in cloud.resources.of("images") if one.status == "pending")
        image.document["status"] = "available"
    here.adapter.deleteImage(found.id)
    wait_for("the image to go", lambda: left(here) == {"objects": 1})
    (resource,) = here.adapter.listResources()
    here.adapter.deleteResource(resource)
    assert left(here) == {}


def test_other_builds_are_left_alone(here: Here, file: Path) -> None:
    """R-4: what another build has left is not used."""
    with uploads.watched(interrupt_at(0.1)), pytest.raises(UploadInterrupted):
        upload(here, file)
    before = parts_sent(here)
    image = here.adapter.config.diskimages["debian"]
    here.adapter.uploadImage(image, "debian-2", str(file), "qcow2", metadata(build="f" * 32))
    assert parts_sent(here) == before + 3
    assert left(here) == {"images": 1, "uploads": 1}
    # The sweep finds it.
    (part,) = (one for one in here.adapter.listResources() if one.type == "part")
    assert (upload_of(part.metadata, PROVIDER), part.usable) == ((BUILD, "0000000001"), False)
    here.adapter.deleteResource(part)
    assert left(here) == {"images": 1}


def test_leftover_object(here: Here) -> None:
    """D-3: an object of an upload that never ended."""
    with here.simulator.cloud() as cloud:
        cloud.add_object(KEY)
    (found,) = (one for one in here.adapter.listResources() if one.type == "object")
    assert (upload_of(found.metadata, PROVIDER), found.usable) == ((BUILD, "0000000001"), False)
    here.adapter.deleteResource(found)
    assert left(here) == {}


def test_pages_of_the_bucket(here: Here) -> None:
    here.simulator.change(page_limit=2)
    with here.simulator.cloud() as cloud:
        for number in range(5):
            cloud.add_object(f"npimages_{PROVIDER}_npimage{number}-{BUILD}.qcow2")
    assert sum(one.type == "object" for one in here.adapter.listResources()) == 5


def test_no_bucket(here: Here, file: Path, tmp_path: Path) -> None:
    here.simulator.change(buckets=[])
    with pytest.raises(CloudRefused, match="NoSuchBucket"):
        upload(here, file)
