# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.uploads` (R-4)."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound, CloudRefused
from nodepool.driver.framework.uploads import PartsUpload, PartsUploader, StoredPart, crc32_of, is_part

DATA = b"aaaabbbbcc"
SILENCE = CloudAway("no answer")


def part(number: int, data: bytes) -> StoredPart:
    return StoredPart(number, hashlib.md5(data, usedforsecurity=False).hexdigest(), len(data))


class Bucket:
    """Calls by name, and what they raise first."""

    def __init__(self) -> None:
        self.uploads: dict[PartsUpload, dict[int, StoredPart]] = {}
        self.objects: dict[str, list[StoredPart]] = {}
        self.calls: list[str] = []
        #: By call: raised once, before or after it was carried out.
        self.before: dict[str, Exception] = {}
        self.after: dict[str, Exception] = {}

    def called(self, name: str, carry_out: Any) -> Any:
        self.calls.append(name)
        if (error := self.before.pop(name, None)) is not None:
            raise error
        result = carry_out()
        if (error := self.after.pop(name, None)) is not None:
            raise error
        return result

    def begin(self, key: str) -> str:
        upload = PartsUpload(key, f"upload-{len(self.uploads)}")
        self.called("begin", lambda: self.uploads.setdefault(upload, {}))
        return upload.upload_id

    def put_part(self, upload: PartsUpload, number: int, data: bytes) -> StoredPart:
        made: StoredPart = self.called("put", lambda: self.uploads[upload].setdefault(number, part(number, data)))
        return made

    def parts(self, upload: PartsUpload) -> dict[int, StoredPart]:
        found: dict[int, StoredPart] = self.called("parts", lambda: dict(self.uploads[upload]))
        return found

    def complete(self, upload: PartsUpload, parts: Mapping[int, StoredPart]) -> None:
        if upload not in self.uploads:
            raise CloudNotFound("NoSuchUpload", 404)

        def carry_out() -> None:
            del self.uploads[upload]
            self.objects[upload.key] = [parts[number] for number in sorted(parts)]

        self.called("complete", carry_out)

    def abort(self, upload: PartsUpload) -> None:
        self.called("abort", lambda: self.uploads.pop(upload, None))

    def open_uploads(self, prefix: str) -> list[PartsUpload]:
        found: list[PartsUpload] = self.called(
            "list", lambda: [one for one in self.uploads if one.key.startswith(prefix)]
        )
        return found


class Upload(PartsUploader):
    segment_size = 4
    concurrency = 1
    retry_pause_seconds = 0.0

    def __init__(self, bucket: Bucket, path: Path) -> None:
        self.bucket = bucket
        super().__init__(bucket, logging.getLogger("test"), path, "image", "upload", "b/2.raw", threading.Event())

    def new_upload(self) -> str:
        return self.bucket.begin(self.key)

    def startUpload(self) -> None:
        self.begin_parts("b/", ".raw")

    def finishUpload(self) -> str:
        self.complete_parts()
        return self.key

    def abortUpload(self) -> None:
        self.abort_parts()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "image.raw"
    path.write_bytes(DATA)
    return path


def test_parts(file: Path) -> None:
    """U-14: all of them, in their order."""
    bucket = Bucket()
    assert Upload(bucket, file).upload() == "b/2.raw"
    assert bucket.objects == {"b/2.raw": [part(1, b"aaaa"), part(2, b"bbbb"), part(3, b"cc")]}
    assert not bucket.uploads


def test_empty_file(file: Path) -> None:
    """An object has one part at least."""
    file.write_bytes(b"")
    bucket = Bucket()
    Upload(bucket, file).upload()
    assert bucket.objects == {"b/2.raw": [part(1, b"")]}


def test_parts_that_are_there(file: Path) -> None:
    """R-4: what is there is not sent again; what differs is, and parts after the end of the file do not count."""
    bucket = Bucket()
    before = PartsUpload("b/1.raw", "upload-before")
    bucket.uploads[before] = {1: part(1, b"aaaa"), 3: part(3, b"cc"), 4: part(4, b"dddd")}
    bucket.uploads[PartsUpload("b/1.qcow2", "another")] = {}
    assert Upload(bucket, file).upload() == "b/1.raw"
    assert bucket.calls.count("put") == 1
    assert bucket.calls.count("begin") == 0
    assert [one.number for one in bucket.objects["b/1.raw"]] == [1, 2, 3]


def test_upload_that_ended_meanwhile(file: Path) -> None:
    """R-4: then another one is begun."""
    bucket = Bucket()
    bucket.uploads[PartsUpload("b/1.raw", "upload-before")] = {}
    bucket.before["parts"] = CloudNotFound("NoSuchUpload", 404)
    assert Upload(bucket, file).upload() == "b/2.raw"


def test_no_right_to_look(file: Path) -> None:
    """R-4: what only saves time is no reason to fail."""
    bucket = Bucket()
    bucket.before["list"] = CloudRefused("AccessDenied", 403)
    assert Upload(bucket, file).upload() == "b/2.raw"


def test_lost_answers(file: Path) -> None:
    """U-9: what was begun without an answer is gone on with, and what was completed is no error."""
    bucket = Bucket()
    bucket.after = {"begin": SILENCE, "put": SILENCE, "complete": SILENCE}
    assert Upload(bucket, file).upload() == "b/2.raw"
    assert not bucket.uploads
    assert bucket.calls.count("begin") == 1


def test_error(file: Path) -> None:
    """U-9: nothing is left."""
    bucket = Bucket()
    bucket.before["put"] = CloudRefused("no", 400)
    with pytest.raises(CloudRefused):
        Upload(bucket, file).upload()
    assert not bucket.uploads
    assert not bucket.objects


def test_which_part_is_there() -> None:
    """U-14: size and checksum; where the bucket encrypts only what it says of the checksum counts."""
    assert is_part(part(1, b"aaaa"), b"aaaa")
    assert not is_part(part(1, b"aaaa"), b"aaab")
    assert not is_part(part(1, b"aaaa")._replace(size=3), b"aaaa")
    encrypted = StoredPart(1, "no-md5", 4, crc32_of(b"aaaa"))
    assert is_part(encrypted, b"aaaa")
    assert not is_part(encrypted, b"aaab")
    assert not is_part(encrypted._replace(crc32=""), b"aaaa")
