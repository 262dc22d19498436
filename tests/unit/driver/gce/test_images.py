# SPDX-License-Identifier: Apache-2.0
"""Uploads to a simulated project."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from nodepool.driver.framework import uploads
from nodepool.driver.framework.cloud_errors import CloudRefused
from nodepool.driver.framework.http.rest_calls import RestAnswer
from nodepool.driver.framework.images import ListedImage
from nodepool.driver.framework.uploads import UploadGivenUp
from nodepool.driver.gce import images
from nodepool.driver.gce.images import GceImageCalls, image_labels
from nodepool.exceptions import ImageCreateException
from nodepool.plan.retries import Backoff
from simulators.gce import GceErrorRule
from tests.unit.driver.gce.sections import PROVIDER, section
from tests.unit.driver.gce.support import Here, at_simulator

UNIT = 1024 * 1024
#: What the image of an upload ``fedora-1`` is called.
IMAGE = f"fedora-1-{PROVIDER}"
METADATA = {
    "nodepool_build_id": "b" * 32,
    "nodepool_upload_id": "0000000007",
    "nodepool_provider_name": PROVIDER,
    "Release": "Debian 12",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    monkeypatch.setattr(images, "DISK_UNIT_BYTES", UNIT)
    # So that there are several pieces.
    monkeypatch.setattr(images, "PIECE_BYTES", 256 * 1024)
    with at_simulator(tmp_path, section(diskimages=[{"name": "fedora"}]), disk_unit_bytes=UNIT) as made:
        yield made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "image.raw"
    # Nothing of it can be compressed.
    path.write_bytes(b"".join(number.to_bytes(4, "big") * 2 for number in range(150_000)) + bytes(3 * UNIT))
    return path


def upload(here: Here, file: Path, name: str = "fedora-1", **metadata: str) -> str:
    image = here.adapter.config.diskimages["fedora"]
    return here.adapter.uploadImage(image, name, str(file), "raw", {**METADATA, **metadata})


def listed(here: Here) -> list[ListedImage]:
    return [image for image in here.adapter.listImages() if image.metadata.get("nodepool_provider_name") == PROVIDER]


def left(here: Here) -> tuple[int, int]:
    """Images and objects."""
    contents = here.simulator.state()["contents"]
    return contents["images"], contents["objects"]


def test_upload_and_delete(here: Here, file: Path) -> None:
    """U-9, D-1, CM-1: one image with labels, and no object is left."""
    before = left(here)
    seen: list[tuple[int, int]] = []
    with uploads.watched(lambda done, total: seen.append((done, total))):
        assert upload(here, file) == IMAGE
    size = file.stat().st_size
    assert seen[-1] == (size, size)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    (image,) = listed(here)
    assert (image.id, image.usable) == (IMAGE, True)
    assert {key: image.metadata[key] for key in METADATA if key.startswith("nodepool_")} == {
        key: value for key, value in METADATA.items() if key.startswith("nodepool_")
    }
    assert left(here) == (before[0] + 1, before[1])
    for _ in range(2):
        here.adapter.deleteImage(IMAGE)
    assert left(here) == before


@pytest.mark.parametrize(
    ("endpoint", "source"),
    [
        # RawDisk.source in google-cloud-compute
        ("https://storage.googleapis.com", "https://storage.googleapis.com"),
        # https://cloud.google.com/vpc/docs/about-accessing-google-apis-endpoints
        ("https://storage-psc.p.googleapis.com", "https://storage.googleapis.com"),
        # Of another universe: https://cloud.google.com/storage/docs/request-endpoints
        ("https://storage.apis.example", "https://storage.apis.example"),
    ],
)
def test_source_of_an_image(endpoint: str, source: str) -> None:
    """Compute Engine reads the object where it was uploaded to."""
    sent: list[Any] = []

    def call(*_: Any, body: Any, **__: Any) -> RestAnswer:
        sent.append(body["rawDisk"]["source"])
        return RestAnswer(200, {"name": "operation-1", "status": "DONE"}, {})

    client: Any = Mock(**{"calls.call": call, "calls.provider": PROVIDER})
    GceImageCalls(client, "ci", endpoint).create_image("fedora", "np/fedora 1.tar.gz", {}, "r", lambda: None)
    assert sent == [f"{source}/ci/np/fedora%201.tar.gz"]


def test_node_of_an_upload(here: Here, file: Path) -> None:
    upload(here, file)
    assert here.adapter.facts.image_link(None, IMAGE).endswith(f"/global/images/{IMAGE}")  # type: ignore[arg-type]
    assert here.launch(image=IMAGE).interface_ip
    here.delete("np0000000042")
    here.adapter.deleteImage(IMAGE)


def test_name_that_does_not_fit(here: Here, file: Path) -> None:
    name = upload(here, file, "Fedora_40-1")
    assert name.startswith("fedora-40-1-")
    here.adapter.deleteImage(name)


@pytest.mark.parametrize("change", [{"upload_cut_rate": 0.3}, {"upload_short_rate": 0.5}])
def test_broken_connections(here: Here, file: Path, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not stored is sent again; what arrives is what was sent."""
    monkeypatch.setattr(images, "SEND_AGAIN", Backoff(0.0, 0.0))
    monkeypatch.setattr(images, "SEND_ATTEMPTS", 100)
    here.simulator.change(**change)
    upload(here, file)
    here.simulator.change(**dict.fromkeys(change, 0.0))
    here.adapter.deleteImage(IMAGE)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (GceErrorRule(operation="objects.upload", kind="403"), CloudRefused),
        (GceErrorRule(operation="images.insert", kind="400"), CloudRefused),
        (GceErrorRule(operation="globalOperations.get", kind="403"), CloudRefused),
    ],
)
def test_nothing_is_left_after_an_error(here: Here, file: Path, rule: GceErrorRule, expected: type[Exception]) -> None:
    """U-9: image and object are deleted, and the error is raised."""
    before = left(here)
    here.simulator.change(errors=[rule])
    if rule.operation == "globalOperations.get":
        # Only that of the image; its deletion is waited for, too.
        here.simulator.change(errors=[GceErrorRule(operation=rule.operation, kind="403", count=1)])
    with pytest.raises(expected):
        upload(here, file)
    here.simulator.change(errors=[])
    assert left(here) == before


def test_image_that_google_cannot_use(here: Here, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operation says why."""
    before = left(here)
    monkeypatch.setattr(images, "FILE_NAME", "another.raw")
    with pytest.raises(CloudRefused, match="INVALID_USAGE"):
        upload(here, file)
    assert left(here) == before


def test_lost_answer(here: Here, file: Path) -> None:
    """The image is made once."""
    here.simulator.change(errors=[GceErrorRule(operation="images.insert", kind="drop", after=True, count=1)])
    upload(here, file)
    assert here.simulator.state()["events"]["images made"] == 1
    here.adapter.deleteImage(IMAGE)


def test_what_is_stored_is_compared(here: Here, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-14: by the checksum that Cloud Storage tells."""
    before = left(here)
    stored = here.adapter.images.calls.send_piece

    def tampered(*arguments: Any) -> Any:
        kept, done = stored(*arguments)
        return kept, done if done is None else {**done, "md5Hash": "AAAA"}

    monkeypatch.setattr(here.adapter.images.calls, "send_piece", tampered)
    with pytest.raises(ImageCreateException, match="did not arrive as it was sent"):
        upload(here, file)
    assert left(here) == before


def test_abandoned(here: Here, file: Path) -> None:
    """Nobody wants it any more: it ends soon, and nothing is left."""
    before = left(here)

    def give_up() -> None:
        raise UploadGivenUp("not wanted")

    with uploads.watched(lambda done, total: None, give_up), pytest.raises(UploadGivenUp):
        upload(here, file)
    assert left(here) == before


def test_image_of_another_upload(here: Here, file: Path) -> None:
    """It is never changed nor deleted."""
    upload(here, file)
    with pytest.raises(ImageCreateException, match="of another upload"):
        upload(here, file, nodepool_upload_id="0000000008")
    assert [image.id for image in listed(here)] == [IMAGE]
    here.adapter.deleteImage(IMAGE)


def other_provider(here: Here) -> None:
    """Somebody else has made an image of the name in the project."""
    with here.simulator.cloud() as cloud:
        cloud.images.add(IMAGE, labels={**image_labels(METADATA), "nodepool_provider_name": "south"})


def test_image_of_another_provider(here: Here, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-9, CM-1: all providers of a project share the names of images. One that was made meanwhile is not deleted."""
    before = left(here)
    create = here.adapter.images.calls.create_image

    def late(*arguments: Any) -> None:
        other_provider(here)
        create(*arguments)

    monkeypatch.setattr(here.adapter.images.calls, "create_image", late)
    with pytest.raises(CloudRefused, match="alreadyExists"):
        upload(here, file)
    assert left(here) == (before[0] + 1, before[1])
    assert here.calls("images.delete") == 0


def test_object_beside_an_image_of_another_provider(here: Here, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-4: what an upload left is deleted, and nothing else of the name."""
    before = left(here)
    monkeypatch.setattr(here.adapter.images, "_discard", lambda *_: None)
    here.simulator.change(errors=[GceErrorRule(operation="images.insert", kind="400")])
    with pytest.raises(CloudRefused):
        upload(here, file)
    other_provider(here)
    (found,) = listed(here)
    here.adapter.deleteImage(found.id)
    assert left(here) == (before[0] + 1, before[1])


def test_object_goes_although_the_image_stays(
    here: Here, file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """U-9: as much as Google lets us."""
    before = left(here)

    def refused(*_: Any) -> None:
        here.simulator.change(errors=[GceErrorRule(operation="images.*", kind="403")])
        raise CloudRefused("no image")

    monkeypatch.setattr(here.adapter.images.calls, "create_image", refused)
    with caplog.at_level(logging.ERROR), pytest.raises(CloudRefused, match="no image"):
        upload(here, file)
    assert f"What was uploaded of image {IMAGE} could not be removed" in caplog.text
    assert left(here) == before


def test_killed_builder(here: Here, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-4: an object whose upload did not end is found by its name and metadata."""
    monkeypatch.setattr(here.adapter.images, "_discard", lambda *_: None)
    here.simulator.change(errors=[GceErrorRule(operation="images.insert", kind="400")])
    with pytest.raises(CloudRefused):
        upload(here, file)
    (found,) = listed(here)
    assert (found.id, found.usable, found.metadata["nodepool_upload_id"]) == (IMAGE, False, "0000000007")
    here.adapter.deleteImage(found.id)
    assert listed(here) == []


def test_labels() -> None:
    """Of any metadata: keys and values fit."""
    assert image_labels({"Release": "Debian 12", "1st": "x", "nodepool_build_id": "b"}) == {
        "release": image_labels({"release": "Debian 12"})["release"],
        "x1st": "x",
        "nodepool_build_id": "b",
    }
