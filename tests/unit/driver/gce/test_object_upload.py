# SPDX-License-Identifier: Apache-2.0
"""An image file on its way to Cloud Storage: what is sent again, and what an upload that was interrupted has left."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.framework import uploads
from nodepool.driver.framework.cloud_errors import CloudAway, CloudRefused
from nodepool.driver.framework.images import InterruptedUpload
from nodepool.driver.framework.uploads import UploadGivenUp, UploadInterrupted
from nodepool.driver.gce import images
from nodepool.driver.gce.images import SEND_ATTEMPTS, ObjectUpload
from nodepool.exceptions import ImageCreateException
from simulators.gce import GceErrorRule
from simulators.gce.cloud import BUCKET
from simulators.gce.images import disk_of
from tests.unit.driver.gce.sections import PROVIDER, section
from tests.unit.driver.gce.support import Here, at_simulator

UNIT = 1024 * 1024
PIECE_BYTES = 256 * 1024
SIZE = 1_200_000
METADATA = {"nodepool_build_id": "b" * 32, "nodepool_provider_name": PROVIDER}


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is sent in several pieces."""
    monkeypatch.setattr(images, "DISK_UNIT_BYTES", UNIT)
    monkeypatch.setattr(images, "PIECE_BYTES", PIECE_BYTES)
    path = tmp_path / "image.raw"
    # Most of it cannot be compressed.
    path.write_bytes(b"".join(hashlib.sha256(number.to_bytes(4, "big")).digest() for number in range(SIZE // 32)))
    return path


class Storage:
    """Cloud Storage that has trouble: calls that send fail as often as ``away`` says, and calls that ask likewise.

    What is sent meanwhile with ``half`` is stored up to its half; what is sent with ``full`` is not stored.
    """

    def __init__(self, away: int = 0, deaf: int = 0, half: bool = False, full: bool = False) -> None:
        self.away, self.deaf = away, deaf
        self.half, self.full = half, full
        self.bucket = BUCKET
        self.kept = b""
        self.calls = 0
        self.stopped = threading.Event()
        self.pauses: list[float] = []

    def begin_object(self, name: str, labels: Any) -> str:
        return "where"

    def is_address(self, where: object) -> bool:
        return False

    def send_piece(self, where: str, offset: int, data: bytes, last: bool) -> tuple[int, dict[str, Any] | None]:
        self.calls += 1
        assert offset == len(self.kept)
        if self.away:
            self.away -= 1
            if self.half:
                self.kept += data[: len(data) // 2]
            raise CloudAway("no answer")
        if self.full:
            return len(self.kept), None
        self.kept += data
        md5 = b64encode(hashlib.md5(self.kept, usedforsecurity=False).digest()).decode()
        return len(self.kept), {"md5Hash": md5} if last else None

    def stored(self, where: str) -> tuple[int, dict[str, Any] | None]:
        self.calls += 1
        if self.deaf:
            self.deaf -= 1
            raise CloudAway("no answer, either")
        return len(self.kept), None

    def wait(self, seconds: float, stopped: threading.Event, wanted: Callable[[], None]) -> bool:
        self.pauses.append(seconds)
        wanted()
        return not stopped.is_set()


def send(storage: Storage, file: Path) -> None:
    calls: Any = storage
    ObjectUpload(calls, "it", str(file), {}, InterruptedUpload(file, PROVIDER), storage.wait).run()


def test_storage_is_away_for_a_while(small: Path) -> None:
    """What is not stored is sent again, after pauses that grow; each piece has its own."""
    storage = Storage(away=1, deaf=4)
    send(storage, small)
    assert storage.pauses == [0, 1, 2, 4, 8]
    storage = Storage(away=10, half=True)
    send(storage, small)
    assert storage.pauses == [0] * 10, "each time some of it was stored"


@pytest.mark.parametrize(
    ("storage", "calls", "told"),
    [
        (Storage(away=1000), 2 * SEND_ATTEMPTS - 1, "no answer"),
        (Storage(away=1000, deaf=1000), SEND_ATTEMPTS, "no answer, either"),
        (Storage(full=True), SEND_ATTEMPTS, "does not store the piece at 0 of it"),
    ],
)
def test_storage_stays_away(small: Path, storage: Storage, calls: int, told: str) -> None:
    """The upload ends: it does not go on for ever, whether Cloud Storage says that it has nothing, or nothing."""
    with pytest.raises(CloudAway, match=told):
        send(storage, small)
    assert (storage.calls, storage.pauses) == (calls, [0, 1, 2, 4, 8, 16, 30])


def test_given_up_while_storage_is_away(small: Path) -> None:
    """Somebody may end the upload, or stop the provider, in between."""
    storage = Storage(away=1000)

    def give_up() -> None:
        if storage.calls == 3:
            raise UploadGivenUp("not wanted")

    with uploads.watched(lambda done, total: None, give_up), pytest.raises(UploadGivenUp):
        send(storage, small)
    storage = Storage(away=1000)
    storage.stopped.set()
    with pytest.raises(UploadInterrupted, match="the provider was stopped"):
        send(storage, small)
    assert storage.calls == 1


# -- uploads that were interrupted --


@pytest.fixture
def here(tmp_path: Path, small: Path) -> Iterator[Here]:
    with at_simulator(tmp_path, section(diskimages=[{"name": "fedora"}]), disk_unit_bytes=UNIT) as made:
        yield made


def upload(here: Here, file: Path, number: int) -> str:
    """As the builder calls it: each upload of a build has a number, and a name, of its own."""
    image = here.adapter.config.diskimages["fedora"]
    metadata = {**METADATA, "nodepool_upload_id": f"{number:010}"}
    return here.adapter.uploadImage(image, f"fedora-{number}", str(file), "raw", metadata)


def interrupted(here: Here, file: Path, error: Exception, after: int = 3) -> None:
    """An upload that ends when so many pieces were sent."""

    def report(done: int, total: int) -> None:
        if here.calls("objects.upload") >= after:
            raise error

    with uploads.watched(report), pytest.raises(type(error)):
        upload(here, file, 1)


def sent(here: Here, file: Path, number: int) -> int:
    """Pieces that an upload sends."""
    before = here.calls("objects.upload")
    upload(here, file, number)
    return here.calls("objects.upload") - before


def whole(here: Here, file: Path, number: int) -> None:
    """There is one image, of this upload, and it was made of the file; nothing else is left."""
    (image,) = [image for image in here.adapter.listImages() if image.metadata.get("nodepool_upload_id")]
    assert image.metadata["nodepool_upload_id"] == f"{number:010}"
    with here.simulator.cloud() as cloud:
        assert cloud.objects.count() == 0
    assert os.listdir(file.parent).count(InterruptedUpload(file, PROVIDER).path.name) == 0


def test_interrupted_upload_goes_on(here: Here, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-4: what Cloud Storage has is not sent again; the object is the file all the same."""
    made: list[bytes] = []
    create = here.adapter.images.calls.create_image

    def look(name: str, object_name: str, *more: Any) -> None:
        with here.simulator.cloud() as cloud:
            made.append(disk_of(cloud.objects.get(BUCKET, object_name)[0]))
        create(name, object_name, *more)

    monkeypatch.setattr(here.adapter.images.calls, "create_image", look)
    interrupted(here, small, UploadInterrupted("the builder stops"))
    pieces = -(-SIZE // PIECE_BYTES)
    # One more call asks what there is.
    assert sent(here, small, 2) <= pieces - 3 + 1 + 1
    assert made == [small.read_bytes() + bytes(2 * UNIT - small.stat().st_size)]
    assert here.calls("objects.insert") == 1
    whole(here, small, 2)


def test_killed_builder_goes_on(here: Here, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same if nothing could be done at the end."""
    with monkeypatch.context() as patch:
        patch.setattr(here.adapter.images, "_ended", lambda *_: None)
        interrupted(here, small, RuntimeError("killed"))
    upload(here, small, 2)
    assert here.calls("objects.insert") == 1
    whole(here, small, 2)


def test_object_that_is_complete_is_used(here: Here, small: Path) -> None:
    """Google makes another image of it: one that it had begun has the name of the upload that was interrupted."""
    here.simulator.change(image_seconds=1000.0)

    def interrupt() -> None:
        if here.calls("images.insert"):
            raise UploadInterrupted("the builder stops")

    with uploads.watched(lambda done, total: None, interrupt), pytest.raises(UploadInterrupted):
        upload(here, small, 1)
    here.simulator.change(image_seconds=0.0)
    assert sent(here, small, 2) == 1
    here.adapter.deleteImage(f"fedora-1-{PROVIDER}")
    whole(here, small, 2)


def test_stopped_provider(here: Here, small: Path) -> None:
    """Another configuration replaces the provider: its successor goes on."""

    def report(done: int, total: int) -> None:
        if here.calls("objects.upload"):
            here.adapter.stop()

    with uploads.watched(report), pytest.raises(UploadInterrupted, match="the provider was stopped"):
        upload(here, small, 1)
    assert InterruptedUpload(small, PROVIDER).read() is not None


@pytest.mark.parametrize("gone", ["session", "object", "bucket"])
def test_nothing_to_go_on_with(here: Here, small: Path, gone: str, caplog: pytest.LogCaptureFixture) -> None:
    """It begins anew: Google forgets an upload after a week, somebody deletes the object, or the bucket is another."""
    interrupted(here, small, UploadInterrupted("the builder stops"), after=5 if gone == "object" else 3)
    state = InterruptedUpload(small, PROVIDER)
    known = state.read()
    assert known is not None
    with here.simulator.cloud() as cloud:
        if gone == "session":
            cloud.objects.sessions.clear()
        elif gone == "object":
            (session,) = cloud.objects.sessions.values()
            cloud.objects.delete(BUCKET, session.key)
    if gone == "bucket":
        state.write({**known, "bucket": "another"})
    with caplog.at_level(logging.INFO, "nodepool.driver.gce.images"):
        upload(here, small, 2)
    assert here.calls("objects.insert") == 2
    assert ("begins anew" in caplog.text) == (gone != "bucket")
    whole(here, small, 2)


def test_what_was_stored_is_another_file(here: Here, small: Path) -> None:
    """U-14: the checksum of the whole finds it; the next upload begins anew."""
    interrupted(here, small, UploadInterrupted("the builder stops"))
    with here.simulator.cloud() as cloud:
        (session,) = cloud.objects.sessions.values()
        session.data[1000] ^= 1
    with pytest.raises(ImageCreateException, match="did not arrive as it was sent"):
        upload(here, small, 2)
    upload(here, small, 3)
    assert here.calls("objects.insert") == 2
    whole(here, small, 3)


def test_more_is_stored_than_there_is(here: Here, small: Path) -> None:
    """The same."""
    interrupted(here, small, UploadInterrupted("the builder stops"))
    with here.simulator.cloud() as cloud:
        (session,) = cloud.objects.sessions.values()
        session.data += bytes(4 * UNIT)
    with pytest.raises(ImageCreateException, match="longer than what is to be sent"):
        upload(here, small, 2)
    upload(here, small, 3)
    whole(here, small, 3)


def test_address_of_another_host(here: Here, small: Path) -> None:
    """Nobody else sees the token, whatever the file says."""
    interrupted(here, small, UploadInterrupted("the builder stops"))
    state = InterruptedUpload(small, PROVIDER)
    known = state.read()
    assert known is not None
    state.write({**known, "address": "http://127.0.0.1:9/upload"})
    upload(here, small, 2)
    assert here.calls("objects.insert") == 2
    whole(here, small, 2)


def test_storage_that_went_away(here: Here, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The upload fails; the next one of the build, which the builder begins later, goes on."""
    monkeypatch.setattr(images, "SEND_ATTEMPTS", 1)

    def report(done: int, total: int) -> None:
        if here.calls("objects.upload"):
            here.simulator.change(errors=[GceErrorRule(operation="objects.upload", kind="503")])

    with uploads.watched(report), pytest.raises(CloudAway):
        upload(here, small, 1)
    here.simulator.change(errors=[])
    upload(here, small, 2)
    assert here.calls("objects.insert") == 1
    whole(here, small, 2)


def test_given_up_upload_leaves_nothing(here: Here, small: Path) -> None:
    """U-9: nobody goes on with what is not wanted, nor with what Google refused."""
    interrupted(here, small, UploadGivenUp("not wanted"))
    assert InterruptedUpload(small, PROVIDER).read() is None
    here.simulator.change(errors=[GceErrorRule(operation="images.insert", kind="400")])
    with pytest.raises(CloudRefused):
        upload(here, small, 2)
    assert InterruptedUpload(small, PROVIDER).read() is None
    with here.simulator.cloud() as cloud:
        assert cloud.objects.count() == 0
