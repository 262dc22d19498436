# SPDX-License-Identifier: Apache-2.0
"""`FakeImages`: the image service of a cloud in memory, which reads, checks and loses images as clouds do."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from nodepool.clock import monotonic

QUEUED: Final = "queued"
USABLE: Final = "active"


class ImageError(Exception):
    """The image service refused or did not answer a call."""


class NoSuchImage(ImageError):
    """There is no image with this id."""


@dataclasses.dataclass(frozen=True)
class FakeImage:
    """An image as a list call shows it; a snapshot. Size and checksums are known when its data are complete."""

    id: str
    name: str
    format: str | None
    metadata: Mapping[str, str]
    status: str = QUEUED
    size: int | None = None
    md5: str | None = None
    sha256: str | None = None


@dataclasses.dataclass
class FakeImageKnobs:
    """How the image service behaves. Counters are used up by calls."""

    #: How long the data of an image take to arrive.
    upload_seconds: float = 0.0
    #: So many images are refused at their beginning.
    refused_images: int = 0
    #: So many images are made, but the caller gets an error.
    lost_images: int = 0
    #: So many uploads break off on their way.
    broken_uploads: int = 0
    #: So many images arrive with another first byte.
    corrupted_uploads: int = 0
    #: So many images arrive without their last byte.
    truncated_uploads: int = 0
    #: So many deletions are refused, as if the image were in use.
    refused_deletions: int = 0
    #: Uploads do not go on.
    hanging_uploads: bool = False
    #: Every call fails.
    images_down: bool = False


class Arrival:
    """The data of one image on their way; for one thread. What arrives may differ from what was sent.

    :param breaks: the connection is to break off.
    """

    def __init__(self, corrupted: bool, truncated: bool, breaks: bool) -> None:
        self._corrupted = corrupted
        self._truncated = truncated
        self.breaks = breaks
        self.size = 0
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._sha256 = hashlib.sha256()

    def feed(self, data: bytes) -> None:
        """The next piece."""
        if data and self._truncated:
            self._truncated = False
            data = data[:-1]
        if data and self._corrupted:
            self._corrupted = False
            data = bytes([data[0] ^ 0xFF]) + data[1:]
        self.size += len(data)
        self._md5.update(data)
        self._sha256.update(data)

    def complete(self, image: FakeImage) -> FakeImage:
        """The image with what arrived."""
        md5, sha256 = self._md5.hexdigest(), self._sha256.hexdigest()
        return dataclasses.replace(image, status=USABLE, size=self.size, md5=md5, sha256=sha256)


class FakeImages:
    """Thread-safe; ``_changed`` guards everything in it and is not held while data arrive.

    :param prefix: of the ids.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._knobs = FakeImageKnobs()
        self._changed = threading.Condition()
        self._images: dict[str, FakeImage] = {}
        self._ids = itertools.count(1)
        #: Calls by name.
        self.calls: Counter[str] = Counter()

    def set(self, **changes: object) -> None:
        """Change knobs by name. Raises TypeError for an unknown one. Uploads that wait take notice."""
        with self._changed:
            self._knobs = dataclasses.replace(self._knobs, **changes)  # type: ignore[arg-type]
            self._changed.notify_all()

    @property
    def upload_seconds(self) -> float:
        """How long the data of an image take."""
        with self._changed:
            return self._knobs.upload_seconds

    def create(self, name: str, image_format: str | None, metadata: Mapping[str, str]) -> FakeImage:
        """Make an image without data. Raises ImageError; the image may have been made all the same."""
        with self._changed:
            self._call("create")
            if self._use_up("refused_images"):
                raise ImageError(f"image {name} is refused")
            image = FakeImage(f"{self._prefix}-image-{next(self._ids):06d}", name, image_format, dict(metadata))
            self._images[image.id] = image
            if self._use_up("lost_images"):
                raise ImageError("connection closed before there was an answer")
            return image

    def upload(
        self, image_id: str, chunks: Iterable[bytes], size: int, cancelled: Callable[[], bool] = lambda: False
    ) -> FakeImage:
        """Take the data of an image; blocks. Returns it as it is then.

        :param size: of all chunks, in bytes.
        :param cancelled: looked at after each change; must not block.
        :raises ImageError: it broke off, or the image is gone.
        """
        arrival = self.begin(image_id)
        for chunk in chunks:
            self._take(len(chunk) / max(1, size), cancelled)
            if arrival.breaks:
                raise ImageError(f"image {image_id}: connection reset")
            arrival.feed(chunk)
        return self.end(image_id, arrival)

    def begin(self, image_id: str) -> Arrival:
        """Data begin to arrive. Raises ImageError."""
        with self._changed:
            self._call("upload")
            self._image(image_id)
            knobs = ("corrupted_uploads", "truncated_uploads", "broken_uploads")
            return Arrival(*[self._use_up(knob) for knob in knobs])

    def end(self, image_id: str, arrival: Arrival) -> FakeImage:
        """All data have arrived. Raises ImageError: the image is gone."""
        with self._changed:
            self._images[image_id] = arrival.complete(self._image(image_id))
            return self._images[image_id]

    def images(self) -> list[FakeImage]:
        """All images. Raises ImageError."""
        with self._changed:
            self._call("list")
            return list(self._images.values())

    def image(self, image_id: str) -> FakeImage:
        """One image. Raises NoSuchImage, ImageError."""
        with self._changed:
            self._call("get")
            return self._image(image_id)

    def delete(self, image_id: str) -> None:
        """Delete an image. Raises NoSuchImage; ImageError, e.g. it is in use."""
        with self._changed:
            self._call("delete")
            self._image(image_id)
            if self._use_up("refused_deletions"):
                raise ImageError(f"image {image_id} is in use")
            del self._images[image_id]

    def wake(self) -> None:
        """Make uploads that wait look at their ``cancelled`` again."""
        with self._changed:
            self._changed.notify_all()

    # -- inside --

    def _take(self, part: float, cancelled: Callable[[], bool]) -> None:
        """Wait as long as a part of an image is under way. Raises ImageError: nobody wants it any more."""
        begun = monotonic()
        with self._changed:
            while True:
                if cancelled():
                    raise ImageError("the upload was given up")
                left = begun + self._knobs.upload_seconds * part - monotonic()
                if not self._knobs.hanging_uploads and left <= 0:
                    return
                self._changed.wait(None if self._knobs.hanging_uploads else left)

    def _call(self, name: str) -> None:
        self.calls[name] += 1
        if self._knobs.images_down:
            raise ImageError(f"{self._prefix}: image service unavailable")

    def _image(self, image_id: str) -> FakeImage:
        image = self._images.get(image_id)
        if image is None:
            raise NoSuchImage(image_id)
        return image

    def _use_up(self, counter: str) -> bool:
        left: int = getattr(self._knobs, counter)
        if left > 0:
            setattr(self._knobs, counter, left - 1)
        return left > 0
