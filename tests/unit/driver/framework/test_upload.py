# SPDX-License-Identifier: Apache-2.0
"""nodepool.driver.framework.uploads: segments, parallel work, errors (reference/driver 12)."""

from __future__ import annotations

import logging
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.framework import uploads
from nodepool.driver.framework.rate import HeldTime, TimeLimit
from nodepool.driver.framework.uploads import ImageUploader, Segment
from nodepool.exceptions import ImageCreateException

LOG = logging.getLogger("test")


class Uploader(ImageUploader):
    """Keeps what it is given; `fail` maps the index of a segment to the errors of its attempts."""

    segment_size = 4
    retry_pause_seconds = 0.0

    def __init__(self, path: Path, **metadata: Any) -> None:
        super().__init__("the adapter", LOG, path, "image", metadata)
        self.steps: list[str] = []
        self.read = b""
        self.segments: dict[int, Segment] = {}
        self.fail: dict[int, list[Exception]] = {}
        self.attempts: list[int] = []
        self.lock = threading.Lock()

    def startUpload(self) -> None:
        self.steps.append("start")

    def uploadSegment(self, segment: Segment) -> None:
        with self.lock:
            self.attempts.append(segment.index)
            errors = self.fail.get(segment.index)
            if errors:
                raise errors.pop(0)
            self.segments[segment.index] = segment

    def finishUpload(self) -> Any:
        self.steps.append("finish")
        return "external id"

    def abortUpload(self) -> None:
        assert self.error is not None, "abortUpload() is told why"
        self.steps.append("abort")

    def segmentRead(self, segment: Segment) -> None:
        self.read += segment.data

    @property
    def content(self) -> bytes:
        return b"".join(segment.data for _, segment in sorted(self.segments.items()))


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image.raw"
    path.write_bytes(b"0123456789abcdef0")
    return path


def test_whole_file_in_segments(image: Path) -> None:
    uploader = Uploader(image, owner="me")
    assert uploader.upload() == "external id"
    assert uploader.steps == ["start", "finish"]
    assert uploader.content == uploader.read == image.read_bytes()
    assert [(s.index, s.offset, len(s.data)) for _, s in sorted(uploader.segments.items())] == [
        (0, 0, 4),
        (1, 4, 4),
        (2, 8, 4),
        (3, 12, 4),
        (4, 16, 1),
    ]
    assert (uploader.size, uploader.adapter, uploader.metadata) == (17, "the adapter", {"owner": "me"})


def test_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    uploader = Uploader(tmp_path / "empty")
    assert uploader.upload() == "external id"
    assert uploader.steps == ["start", "finish"]


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Uploader(tmp_path / "nothing")


def test_segment_is_tried_three_times(image: Path) -> None:
    uploader = Uploader(image)
    uploader.fail = {2: [OSError("1"), OSError("2")]}
    assert uploader.upload() == "external id"
    assert uploader.attempts.count(2) == 3
    assert uploader.content == image.read_bytes()


def test_error_reaches_the_caller_after_abort(image: Path) -> None:
    """U-9: a broken upload is never taken for a good one."""
    uploader = Uploader(image)
    uploader.fail = {0: [OSError("1"), OSError("2"), OSError("cloud is full")]}
    with pytest.raises(OSError, match="cloud is full"):
        uploader.upload()
    assert uploader.steps == ["start", "abort"]


def test_driver_that_wants_to_exit(image: Path) -> None:
    """An image that lacks a segment is no image."""

    class Exits(Uploader):
        def uploadSegment(self, segment: Segment) -> None:
            if segment.index == 1:
                sys.exit("no more")
            super().uploadSegment(segment)

    uploader = Exits(image)
    with pytest.raises(RuntimeError, match="no more"):
        uploader.upload()
    assert uploader.steps == ["start", "abort"]


def test_no_more_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has begun ends before it is removed."""
    image = tmp_path / "image.raw"
    image.write_bytes(b"0123" * 100)
    uploader = Uploader(image)
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def only_one(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", only_one)
    stop = uploader._stop
    with pytest.raises(RuntimeError, match="can't start new thread"):
        uploader.upload()
    assert uploader.steps == ["start", "abort"]
    assert stop.is_set()
    assert not started[0].is_alive()


def test_error_that_needs_no_retry(image: Path) -> None:
    class Picky(Uploader):
        def shouldRetryException(self, exception: BaseException) -> bool:
            return isinstance(exception, OSError)

    uploader = Picky(image)
    uploader.fail = {1: [ValueError("bad segment")]}
    with pytest.raises(ValueError, match="bad segment"):
        uploader.upload()
    assert uploader.attempts.count(1) == 1


def test_retry_in_a_hook_does_not_multiply(image: Path) -> None:
    """Drivers of old releases retry single calls themselves."""

    class Careful(Uploader):
        def uploadSegment(self, segment: Segment) -> None:
            self.retry(super().uploadSegment, segment)

    uploader = Careful(image)
    uploader.fail = {1: [OSError(str(n)) for n in range(9)]}
    with pytest.raises(OSError, match="2"):
        uploader.upload()
    assert uploader.attempts.count(1) == 3


@pytest.mark.parametrize("hook", ["startUpload", "finishUpload"])
def test_error_in_another_hook(image: Path, hook: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise KeyError(hook)

    uploader = Uploader(image)
    monkeypatch.setattr(uploader, hook, fail)
    with pytest.raises(KeyError, match=hook):
        uploader.upload()
    assert uploader.steps[-1] == "abort"


def test_error_in_abort_does_not_hide_the_first(image: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Clumsy(Uploader):
        def abortUpload(self) -> None:
            raise KeyError("abort")

    uploader = Clumsy(image)
    uploader.fail = {0: [OSError("first")] * 3}
    with pytest.raises(OSError, match="first"):
        uploader.upload()
    assert "could not be removed" in caplog.text


def test_abort_may_retry(image: Path) -> None:
    class Stubborn(Uploader):
        def abortUpload(self) -> None:
            errors = [OSError("not yet"), OSError("not yet")]

            def remove() -> None:
                if errors:
                    raise errors.pop()
                self.steps.append("removed")

            self.retry(remove)

    uploader = Stubborn(image)
    uploader.fail = {0: [OSError("first")] * 3}
    with pytest.raises(OSError, match="first"):
        uploader.upload()
    assert uploader.steps == ["start", "removed"]


def test_finish_may_retry(image: Path) -> None:
    """12: single calls of a hook are tried again, also after the segments."""

    class Retrying(Uploader):
        def finishUpload(self) -> Any:
            return self.retry(self.once_more)

        def once_more(self) -> str:
            self.steps.append("try")
            if self.steps.count("try") < 3:
                raise OSError("not yet")
            return "external id"

    uploader = Retrying(image)
    assert uploader.upload() == "external id"
    assert uploader.steps == ["start", "try", "try", "try"]


def test_up_to_concurrency_segments_at_once(tmp_path: Path) -> None:
    """That many uploads run at once, and no more segments than that are in memory."""
    path = tmp_path / "image"
    path.write_bytes(bytes(4 * 30))
    together = threading.Barrier(10)
    read: list[int] = []
    most: list[int] = []

    class Parallel(Uploader):
        def _read_segment(self, file: Any) -> Segment | None:
            segment = super()._read_segment(file)
            with self.lock:
                read.append(1)
            return segment

        def uploadSegment(self, segment: Segment) -> None:
            together.wait(30)
            with self.lock:
                most.append(len(read) - len(self.segments))
            super().uploadSegment(segment)

    uploader = Parallel(path)
    uploader.upload()
    assert len(uploader.segments) == 30
    assert max(most) <= uploader.concurrency == 10


def test_timeout(image: Path) -> None:
    """A segment that hangs does not hold up the caller for ever."""
    release, hanging = threading.Event(), threading.Event()

    class Hanging(Uploader):
        abort_wait_seconds = 0.0

        def uploadSegment(self, segment: Segment) -> None:
            hanging.set()
            release.wait(30)

    uploader = Hanging(image)
    with pytest.raises(ImageCreateException, match=r"longer than 0\.05 s"):
        uploader.upload(0.05)
    assert hanging.is_set()
    assert uploader.steps == ["start", "abort"]
    release.set()


def test_time_is_over_in_a_hook(image: Path) -> None:
    class Slow(Uploader):
        def finishUpload(self) -> Any:
            self.checkTimeout()
            self._limit = TimeLimit(0.0, HeldTime())
            self.checkTimeout()

    with pytest.raises(ImageCreateException):
        Slow(image).upload(1000)


def test_file_that_changes_its_size(image: Path) -> None:
    class Shrinking(Uploader):
        def startUpload(self) -> None:
            image.write_bytes(b"012345")

    with pytest.raises(OSError, match="changed its size"):
        Shrinking(image).upload()


def test_hooks_have_defaults(image: Path) -> None:
    """reference/driver 12: only the upload of a segment is the driver's."""
    segments: list[int] = []

    class Least(ImageUploader):
        segment_size = 8

        def uploadSegment(self, segment: Segment) -> None:
            segments.append(segment.index)

    uploader = Least("the adapter", LOG, image, "debian-7", {"a": "b"})
    assert uploader.upload(60) is None
    assert sorted(segments) == [0, 1, 2]
    assert (uploader.image_name, uploader.metadata) == ("debian-7", {"a": "b"})
    assert 0 < (uploader.getTimeout() or 0) <= 60


def test_progress(tmp_path: Path) -> None:
    """Segments are uploaded in threads of the uploader, and reported to who watches the thread of the upload."""
    seen: list[tuple[int, int]] = []
    path = tmp_path / "image"
    path.write_bytes(b"0123456789")
    with uploads.watched(lambda *at: seen.append(at)):
        uploader = Uploader(path)
        assert uploader.upload() == "external id"
    assert len(seen) == 3
    assert max(seen) == (10, 10)
