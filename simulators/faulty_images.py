# SPDX-License-Identifier: Apache-2.0
"""`FaultyImages`: the image service of a cloud in memory, with knobs for trouble: refused, altered and lost images."""

from __future__ import annotations

import dataclasses
import hashlib
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nodepool.clock import monotonic
from nodepool.driver.fake.cloud import USABLE, FakeImage, FakeImages, ImageError


@dataclasses.dataclass
class ImageKnobs:
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


class FaultyImages(FakeImages):
    """In place of the ``images`` of a `FakeCloud`. Its lock is not held while data arrive.

    :param name: of the cloud; ids begin with it.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._knobs = ImageKnobs()
        #: Guards everything here.
        self._changed = threading.Condition()
        self._closed = False
        #: Calls by name, as a cloud's bill would show them.
        self.calls: Counter[str] = Counter()

    def set(self, **changes: Any) -> None:
        """Change knobs by name. Raises TypeError for an unknown one. Calls that wait take notice."""
        with self._changed:
            self._knobs = dataclasses.replace(self._knobs, **changes)
            self._changed.notify_all()

    def close(self) -> None:
        """Uploads that wait end with an error."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def upload_seconds(self) -> float:
        """How long the data of an image take."""
        with self._changed:
            return float(self._knobs.upload_seconds)

    def create(self, name: str, image_format: str | None, metadata: Mapping[str, str]) -> FakeImage:
        self._begin("create")
        if self._use_up("refused_images"):
            raise ImageError(f"image {name} is refused")
        image = super().create(name, image_format, metadata)
        if self._use_up("lost_images"):
            raise ImageError("connection closed before there was an answer")
        return image

    def upload(self, image_id: str, chunks: Iterable[bytes]) -> FakeImage:
        arrival = self.begin(image_id)
        for chunk in self._slowly(chunks):
            if arrival.breaks:
                raise ImageError(f"image {image_id}: connection reset")
            arrival.feed(chunk)
        return self.end(image_id, arrival)

    def _slowly(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """The first piece comes when an image would be there."""
        begun = monotonic()
        for chunk in chunks:
            with self._changed:
                while self._knobs.hanging_uploads or monotonic() < begun + self._knobs.upload_seconds:
                    if self._closed:
                        raise ImageError("the upload was given up")
                    left = begun + self._knobs.upload_seconds - monotonic()
                    self._changed.wait(None if self._knobs.hanging_uploads else left)
            yield chunk

    def begin(self, image_id: str) -> Arrival:
        """Data begin to arrive. Raises ImageError."""
        self._begin("upload")
        super().image(image_id)
        return Arrival(*map(self._use_up, ("corrupted_uploads", "truncated_uploads", "broken_uploads")))

    def end(self, image_id: str, arrival: Arrival) -> FakeImage:
        """All data have arrived. Raises ImageError: the image is not there any more."""
        found = self._images[image_id] = arrival.complete(super().image(image_id))
        return found

    def images(self) -> list[FakeImage]:
        self._begin("list")
        return super().images()

    def image(self, image_id: str) -> FakeImage:
        self._begin("get")
        return super().image(image_id)

    def delete(self, image_id: str) -> None:
        self._begin("delete")
        super().image(image_id)
        if self._use_up("refused_deletions"):
            raise ImageError(f"image {image_id} is in use")
        super().delete(image_id)

    def _begin(self, call: str) -> None:
        """A call. Raises ImageError: the service is down."""
        with self._changed:
            self.calls[call] += 1
            if self._knobs.images_down:
                raise ImageError(f"{self.name}: image service unavailable")

    def _use_up(self, counter: str) -> bool:
        with self._changed:
            left: int = getattr(self._knobs, counter)
            setattr(self._knobs, counter, max(0, left - 1))
            return left > 0
