# SPDX-License-Identifier: Apache-2.0
"""Images: the archive that is made of a file, its way to Cloud Storage, and uploads to a simulated project."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudRefused
from nodepool.driver.framework.uploads import UploadGivenUp, watched
from nodepool.driver.gce import images
from nodepool.exceptions import ImageCreateException
from simulators.gce.cloud import BUCKET
from simulators.gce.images import disk_of
from tests.unit.driver.gce.support import PROVIDER, Here, at_simulator, section

# -- the archive --

ZEROS = bytes(images.BLOCK_BYTES)
NOISE = bytes(range(256)) * (images.BLOCK_BYTES // 256)
HOLES = NOISE + ZEROS + ZEROS + NOISE


@pytest.mark.parametrize(
    "content",
    [b"", b"short", NOISE, ZEROS * 16, HOLES, ZEROS + NOISE + ZEROS, NOISE * 4, NOISE + b"\0" * 1000 + b"end"],
)
def test_archive(tmp_path: Path, content: bytes) -> None:
    """One file, ``disk.raw``, filled up with zeros, which cost nothing; the checksum of gzip is right."""
    path = tmp_path / "image.raw"
    path.write_bytes(content)
    seen: list[int] = []
    with path.open("rb") as file:
        packed = b"".join(images.tar_gz(file, 4 * images.BLOCK_BYTES, seen.append))
    unpacked = gzip.decompress(packed)
    assert len(unpacked) % tarfile.RECORDSIZE == 0
    with tarfile.open(fileobj=io.BytesIO(unpacked)) as archive:
        (member,) = archive.getmembers()
        taken = archive.extractfile(member)
        assert taken is not None
        assert (member.name, member.size) == ("disk.raw", images.disk_size(len(content), 4 * images.BLOCK_BYTES))
        assert taken.read() == content + bytes(member.size - len(content))
    assert seen[-1:] == ([len(content)] if content else [])
    assert len(packed) < images.BLOCK_BYTES / 10 or any(content)
    gib = 1024**3
    assert [images.disk_size(size) for size in (0, 1, gib, gib + 1)] == [gib, gib, gib, 2 * gib]


# -- its way --

UNIT = 1024 * 1024
PIECE_BYTES = 256 * 1024
SIZE = 1_200_000
#: What the image of an upload ``fedora-1`` is called.
IMAGE = f"fedora-1-{PROVIDER}"
METADATA = {"nodepool_build_id": "b" * 32, "nodepool_provider_name": PROVIDER}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is sent in several pieces: most of it cannot be compressed."""
    # Constants of the modules, wherever those are.
    for user in (images.tar_gz, images.ObjectUpload.run, images.GceImages.upload):
        monkeypatch.setitem(user.__globals__, "DISK_UNIT_BYTES", UNIT)
        monkeypatch.setitem(user.__globals__, "PIECE_BYTES", PIECE_BYTES)
    path = tmp_path / "image.raw"
    path.write_bytes(b"".join(hashlib.sha256(number.to_bytes(4, "big")).digest() for number in range(SIZE // 32)))
    return path


# -- uploads --


@pytest.fixture
def here(tmp_path: Path, file: Path) -> Iterator[Here]:
    with at_simulator(tmp_path, section(diskimages=[{"name": "fedora"}]), disk_unit_bytes=UNIT) as made:
        yield made


def upload(here: Here, file: Path, number: int = 1, name: str = "") -> str:
    """As the builder calls it: each upload of a build has a number, and a name, of its own."""
    image = here.adapter.config.diskimages["fedora"]
    metadata = {**METADATA, "nodepool_upload_id": f"{number:010}", "Release": "Debian 12"}
    return here.adapter.uploadImage(image, name or f"fedora-{number}", str(file), "raw", metadata)


def left(here: Here) -> tuple[int, int]:
    """Images of uploads, and objects; some images are there to begin with."""
    with here.simulator.cloud() as cloud:
        objects = cloud.objects.count()
    return sum("nodepool_upload_id" in one.metadata for one in here.adapter.listImages() if one.usable), objects


def test_upload(here: Here, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-9, D-1, GC-4: one image with labels, of what was sent; no object is left. A name that does not fit is changed,
    and an image of another upload is neither changed nor deleted.
    """
    made: list[bytes] = []
    create = here.adapter.images.create_image

    def look(name: str, object_name: str, *more: Any) -> None:
        with here.simulator.cloud() as cloud:
            made.append(disk_of(cloud.objects.get(BUCKET, object_name)[0]))
        create(name, object_name, *more)

    monkeypatch.setattr(here.adapter.images, "create_image", look)
    assert upload(here, file) == IMAGE
    assert made == [file.read_bytes() + bytes(2 * UNIT - SIZE)]
    assert here.launch(image=IMAGE).interface_ip
    here.delete("np0000000042")
    with pytest.raises(ImageCreateException, match="of another upload"):
        upload(here, file, 2, "fedora-1")
    assert left(here) == (1, 0)
    name = upload(here, file, 3, "Fedora_40-1")
    assert name.startswith("fedora-40-1-")
    for each in (name, IMAGE):
        here.adapter.deleteImage(each)
    assert left(here) == (0, 0)


def test_image_of_another_provider(here: Here, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-9, CM-1: all providers of a project share the names of images. One that was made meanwhile is not deleted."""
    create = here.adapter.images.create_image

    def late(*arguments: Any) -> None:
        with here.simulator.cloud() as cloud:
            cloud.images.add(IMAGE, labels=images.image_labels({**METADATA, "nodepool_provider_name": "south"}))
        create(*arguments)

    monkeypatch.setattr(here.adapter.images, "create_image", late)
    with pytest.raises(CloudRefused, match="alreadyExists"):
        upload(here, file)
    assert (left(here)[1], here.calls("images.delete")) == (0, 0)


def test_upload_that_is_not_wanted(here: Here, file: Path) -> None:
    """U-11: what was sent is deleted at once."""

    def report(done: int, total: int) -> None:
        if here.calls("objects.upload") >= 3:
            raise UploadGivenUp("not wanted")

    with watched(report), pytest.raises(UploadGivenUp):
        upload(here, file)
    assert left(here) == (0, 0)


def test_what_is_stored_is_another_file(here: Here, file: Path) -> None:
    """U-14: the checksum of the whole finds it; nothing is left."""
    damaged: list[bool] = []

    def report(done: int, total: int) -> None:
        with here.simulator.cloud() as cloud:
            for session in cloud.objects.sessions.values():
                if len(session.data) > 1000 and not damaged:
                    session.data[1000] ^= 1
                    damaged.append(True)

    with watched(report), pytest.raises(ImageCreateException, match="did not arrive as it was sent"):
        upload(here, file)
    assert left(here) == (0, 0)
