# SPDX-License-Identifier: Apache-2.0
"""Uploads to a simulated region (IV-9, IV-10, IV-11)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudRefused
from nodepool.driver.framework.uploads import UploadGivenUp, UploadInterrupted, watched
from nodepool.driver.ibmvpc.images import CosUpload
from nodepool.driver.statemachine.instance import upload_of
from simulators.ibmvpc import VpcErrorRule
from tests.support.tables import driver_table
from tests.support.wait import wait_for
from tests.unit.driver.ibmvpc.support import PROVIDER, Here, at_simulator, in_region

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
PENDING = {"images": 1, "objects": 1, "pending": 1}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    monkeypatch.setattr(CosUpload, "segment_size", 5 * MIB)
    monkeypatch.setattr(CosUpload, "retry_pause_seconds", 0.01)
    with at_simulator(tmp_path, in_region(object_storage=STORAGE, diskimages=DISKIMAGES)) as made:
        yield made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "image.qcow2"
    path.write_bytes(CONTENT)
    return path


def metadata(upload: str = "0000000001", build: str = BUILD) -> dict[str, str]:
    return {"nodepool_build_id": build, "nodepool_upload_id": upload, "nodepool_provider_name": PROVIDER}


def upload(here: Here, file: Path, upload_id: str = "0000000001", build: str = BUILD, **more: Any) -> Any:
    image = here.adapter.config.diskimages["debian"]
    return here.adapter.uploadImage(image, "debian-1", str(file), "qcow2", metadata(upload_id, build), **more)


def left(here: Here) -> dict[str, int]:
    """What uploads have left, and images of the account."""
    with here.simulator.cloud() as cloud:
        found = {**cloud.left_of_uploads(), "images": cloud.contents()["images"]}
    return {kind: number for kind, number in found.items() if number}


def parts_sent(here: Here) -> int:
    return here.calls("cos.UploadPart")


def test_upload(here: Here, file: Path) -> None:
    """IV-9, IV-11: parts, an object, an import that is checked; the object goes. The image goes with what is left of
    its upload.
    """
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    image_id = upload(here, file, sha256=sha256)
    assert (parts_sent(here), left(here)) == (3, {"images": 1})
    with here.simulator.cloud() as cloud:
        (image,) = (one for one in cloud.resources.of("images") if one.document["visibility"] == "private")
        assert (image.id, image.name, image.document["file"]["checksums"]["sha256"]) == (image_id, NAME, sha256)
        assert image.document["resource_group"]["name"] == f"npimages_{PROVIDER}"
        assert image.document["operating_system"]["name"] == "debian-12-amd64"
        cloud.add_object(KEY)
        cloud.add_object("of-others.qcow2")
    here.delete(here.launch(image=image_id).external_id)
    for _ in range(2):
        here.adapter.deleteImage(image_id)
    wait_for("the image to go", lambda: left(here) == {"objects": 1})


@pytest.mark.parametrize("kind", ["drop", "500"])
@pytest.mark.parametrize(
    "operation", ["cos.CreateMultipartUpload", "cos.UploadPart", "cos.CompleteMultipartUpload", "vpc.create_image"]
)
def test_lost_answers(here: Here, file: Path, operation: str, kind: str) -> None:
    """U-8: each call is sent again, and nothing is left, but for an upload that is found by its key."""
    here.simulator.change(errors=[VpcErrorRule(operation=operation, kind=kind, after=True, count=1)])
    upload(here, file)
    assert {**left(here), "uploads": 0} == {"images": 1, "uploads": 0}


@pytest.mark.parametrize(("settings", "sha256", "kind", "words"), driver_table("ibmvpc", "uploads_that_fail"))
def test_upload_that_fails(
    here: Here, file: Path, settings: dict[str, Any], sha256: str | None, kind: type[Exception], words: str
) -> None:
    """IV-9, U-9: in the words of IBM, and nothing is left."""
    here.simulator.change(**settings)
    with pytest.raises(kind, match=words):
        upload(here, file, sha256=sha256)
    here.simulator.change(buckets=["images"])
    wait_for("all to go", lambda: not left(here))


def during_the_import(here: Here, error: Exception) -> Callable[[int, int], None]:
    here.simulator.change(import_seconds=[30.0, 30.0])

    def report(done: int, total: int) -> None:
        if here.calls("vpc.create_image"):
            raise error

    return report


def imported(here: Here) -> str:
    """The import that goes on ends; its image."""
    with here.simulator.cloud() as cloud:
        (image,) = (one for one in cloud.resources.of("images") if one.status == "pending")
        image.document["status"] = "available"
        return str(image.id)


GIVEN_UP = UploadGivenUp("the build was deleted")
STOPS = UploadInterrupted("the builder stops")


def test_given_up(here: Here, file: Path) -> None:
    """U-9, D-3: IBM deletes no image while it is imported: its object shows that it is of no use, until it can go."""
    with watched(during_the_import(here, GIVEN_UP)), pytest.raises(UploadGivenUp):
        upload(here, file)
    assert left(here) == PENDING
    (found,) = (one for one in here.adapter.listResources() if one.type == "image")
    assert not found.usable
    with pytest.raises(CloudRefused, match="image_request_in_progress"):
        here.adapter.deleteResource(found)
    image_id = imported(here)
    (listed,) = here.adapter.listImages()
    assert (listed.id, listed.usable) == (image_id, False)
    here.adapter.deleteImage(listed.id)
    wait_for("all to go", lambda: not left(here))


def test_parts_are_not_sent_again(here: Here, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-4: the next upload of the build sends the parts that are missing; that of another build does not use them."""
    monkeypatch.setattr(CosUpload, "concurrency", 1)

    def half(done: int, total: int) -> None:
        if 2 * done >= total:
            raise STOPS

    with watched(half), pytest.raises(UploadInterrupted):
        upload(here, file)
    sent = parts_sent(here)
    assert 0 < sent < 3
    assert left(here) == {"uploads": 1}
    upload(here, file, build="f" * 32)
    assert (parts_sent(here), left(here)) == (sent + 3, {"images": 1, "uploads": 1})
    (part,) = (one for one in here.adapter.listResources() if one.type == "part")
    assert (upload_of(part.metadata, PROVIDER), part.usable) == ((BUILD, "0000000001"), False)
    upload(here, file, "0000000002")
    assert (parts_sent(here), left(here)) == (6, {"images": 2})


@pytest.mark.parametrize("given_up", [False, True])
def test_import_is_taken_up_again(here: Here, file: Path, given_up: bool) -> None:
    """R-4, D-3: an import that was under way when the builder stopped is that of the next upload of the build. If that
    is given up its object has the name of the interrupted upload, and tells of the image all the same.
    """
    with watched(during_the_import(here, STOPS)), pytest.raises(UploadInterrupted):
        upload(here, file)
    assert left(here) == PENDING
    if given_up:
        with watched(during_the_import(here, GIVEN_UP)), pytest.raises(UploadGivenUp):
            upload(here, file, "0000000002")
    image_id = imported(here)
    if not given_up:
        assert upload(here, file, "0000000002") == image_id
        assert (here.calls("vpc.create_image"), parts_sent(here), left(here)) == (1, 3, {"images": 1})
    (found,) = here.adapter.listImages()
    assert (dict(found.metadata), found.usable) == (metadata("0000000002"), not given_up)
    here.adapter.deleteImage(found.id)
    if given_up:
        wait_for("the image to go", lambda: left(here) == {"objects": 1})
        # The last diskimage leaves the configuration: the builder deletes what it finds, a sweep does not look.
        here.adapter.config.diskimages.clear()
        assert not list(here.adapter.listResources())
        (left_over,) = here.adapter.listImages()
        here.adapter.deleteResource(left_over.id)
    wait_for("all to go", lambda: not left(here))
