# SPDX-License-Identifier: Apache-2.0
"""Uploads of images: segments and parts, errors and clean-up, progress."""

from __future__ import annotations

import hashlib
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.framework import uploads

LOG = logging.getLogger("test")
DATA = b"0123456789abcdef0"
BUILD = "b" * 32


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / f"fedora-{BUILD}.raw"
    path.write_bytes(DATA)
    return path


# -- segments --


class Uploader(uploads.ImageUploader):
    """Notes steps and segments.

    :ivar errors: of the attempts, by the index of a segment or the name of a step. ``tries``: calls by the same.
    """

    segment_size = 4
    retry_pause_seconds = 0.0
    abort_wait_seconds = 0.0

    def __init__(self, path: Path, **errors: list[BaseException]) -> None:
        super().__init__("the adapter", LOG, path, "image", {"owner": "me"})
        self.errors = errors
        self.tries: list[str] = []
        self.steps: list[str] = []
        self.segments: dict[int, uploads.Segment] = {}
        self.read = b""
        self.lock = threading.Lock()

    def once(self, name: str) -> str:
        with self.lock:
            self.tries.append(name)
            if errors := self.errors.get(name):
                raise errors.pop(0)
        return name

    def step(self, name: str) -> str:
        self.steps.append(name)
        return self.retry(self.once, name)

    def startUpload(self) -> None:
        self.step("start")

    def uploadSegment(self, segment: uploads.Segment) -> None:
        # Drivers of old releases retry single calls themselves: attempts do not multiply.
        self.retry(self.once, f"s{segment.index}")
        self.segments[segment.index] = segment

    def finishUpload(self) -> Any:
        return self.step("finish")

    def abortUpload(self) -> None:
        assert self.error is not None
        self.step("abort")

    def shouldRetryException(self, exception: BaseException) -> bool:
        return not isinstance(exception, ValueError)

    def segmentRead(self, segment: uploads.Segment) -> None:
        self.read += segment.data


@pytest.mark.parametrize("data", [DATA, b""])
def test_whole_file(image: Path, data: bytes) -> None:
    """reference/driver 12: each segment once, in any thread; who watches the thread of the upload sees the progress."""
    image.write_bytes(data)
    seen: list[tuple[int, int]] = []
    with uploads.watched(lambda *at: seen.append(at)):
        uploader = Uploader(image)
        assert uploader.upload() == "finish"
    assert uploader.steps == ["start", "finish"]
    found = [segment for _, segment in sorted(uploader.segments.items())]
    assert b"".join(segment.data for segment in found) == uploader.read == data
    assert [(s.index, s.offset, len(s.data)) for s in found] == [
        (index, index * 4, min(4, len(data) - index * 4)) for index in range(-(-len(data) // 4))
    ]
    assert (len(seen), max(seen, default=(0, 0))) == (len(found), (len(data), len(data)))
    with pytest.raises(FileNotFoundError):
        Uploader(image.parent / "nothing")


def errors(count: int, kind: type[Exception] = OSError) -> list[BaseException]:
    return [kind(str(number)) for number in range(count)]


@pytest.mark.parametrize(
    ("failing", "fails", "name", "tries"),
    [
        ({"s2": errors(2)}, None, "s2", 3),
        ({"s2": errors(9)}, OSError, "s2", 3),
        ({"s1": errors(1, ValueError)}, ValueError, "s1", 1),
        ({"s1": [SystemExit("no more")]}, RuntimeError, "s1", 1),
        ({"finish": errors(2)}, None, "finish", 3),
        ({"start": errors(3)}, OSError, "s0", 0),
        ({"finish": errors(1, ValueError)}, ValueError, "finish", 1),
        # An error in the clean-up does not hide the first; it may try again, too.
        ({"s0": errors(3), "abort": errors(2)}, OSError, "abort", 3),
        ({"s0": errors(3), "abort": errors(3, KeyError)}, OSError, "abort", 3),
    ],
)
def test_errors(image: Path, failing: Any, fails: type[Exception] | None, name: str, tries: int) -> None:
    """U-9: a broken upload is never taken for a good one; what was uploaded is removed."""
    uploader = Uploader(image, **{key: list(value) for key, value in failing.items()})
    if fails is None:
        assert uploader.upload() == "finish"
        assert b"".join(segment.data for _, segment in sorted(uploader.segments.items())) == DATA
    else:
        with pytest.raises(fails):
            uploader.upload()
        assert (uploader.steps[0], uploader.steps[-1]) == ("start", "abort")
    assert uploader.tries.count(name) == tries


# -- parts: tests/integration/test_aws_uploads.py sends them --


def test_which_part_is_there() -> None:
    """U-14: size and checksum; where the bucket encrypts only what it says of the checksum counts."""
    plain = uploads.StoredPart(1, hashlib.md5(b"aaaa", usedforsecurity=False).hexdigest(), 4)
    encrypted = uploads.StoredPart(1, "no-md5", 4, uploads.crc32_of(b"aaaa"))
    for stored, data, good in (
        *((plain, b"aaaa", True), (plain, b"aaab", False), (plain._replace(size=3), b"aaaa", False)),
        *((encrypted, b"aaaa", True), (encrypted, b"aaab", False), (encrypted._replace(crc32=""), b"aaaa", False)),
    ):
        assert uploads.is_part(stored, data) is good
