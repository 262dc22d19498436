# SPDX-License-Identifier: Apache-2.0
"""A cloud in memory, with an interface as clouds have it, a memory, and knobs for faults.

Nothing here knows of Nodepool: what a driver does is translate between a thing like this one and Nodepool. Instances
have addresses in 127.0.0.0/8, which answer on every Linux host if something listens there. First the instances
(`FakeCloud`), then the images (`FakeImages`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import ipaddress
import itertools
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final

from nodepool.clock import monotonic

BUILDING: Final = "building"
ACTIVE: Final = "active"
ERROR: Final = "error"
DELETING: Final = "deleting"

_FIRST_ADDRESS: Final = ipaddress.IPv4Address("127.64.0.1")
_ADDRESSES: Final = 2**22 - 2


class CloudError(Exception):
    """The cloud refused or did not answer a call."""


class OverQuota(CloudError):
    """The instance would exceed a limit."""


class NoSuchInstance(CloudError):
    """There is no instance with this id."""


@dataclasses.dataclass(frozen=True)
class FakeInstance:
    """An instance as a list call shows it; a snapshot.

    ``resources`` has the amounts that count against the limits of the cloud.
    """

    id: str
    name: str
    status: str
    az: str | None
    address: str
    metadata: Mapping[str, str]
    resources: Mapping[str, float]
    #: This cloud cannot list what changed.
    updated: str = ""

    @property
    def gone(self) -> bool:
        """Lists of this cloud do not show instances that are gone."""
        return False


@dataclasses.dataclass
class FakeKnobs:
    """How the cloud behaves. Counters are used up by calls."""

    #: From creation to `active` or `error`.
    boot_seconds: float = 0.0
    #: From the delete call until the instance is gone.
    delete_seconds: float = 0.0
    #: So many instances end in `error`.
    fail_launches: int = 0
    #: So many creations are refused as over quota, whatever the limits say.
    quota_errors: int = 0
    #: So many creations make an instance, but the caller gets an error.
    lost_answers: int = 0
    #: So many delete calls are accepted and have no effect.
    swallowed_deletes: int = 0
    #: Lists show what was so long ago; asking for one instance shows what is.
    list_lag_seconds: float = 0.0
    #: Instances stay `building`.
    hang: bool = False
    #: Every call fails.
    down: bool = False
    #: Limits by resource name; without a name: no limit.
    limits: dict[str, float] = dataclasses.field(default_factory=dict)


class _Service:
    """What both services have. Thread-safe; ``_changed`` guards everything in them and is never held over I/O.

    :param knobs: a dataclass.
    """

    def __init__(self, name: str, knobs: Any) -> None:
        self.name = name
        self._knobs = knobs
        self._changed = threading.Condition()
        self._ids = itertools.count(1)
        #: Calls by name, as a cloud's bill would show them.
        self.calls: Counter[str] = Counter()

    def set(self, **changes: object) -> None:
        """Change knobs by name. Raises TypeError for an unknown one. Calls that wait take notice."""
        with self._changed:
            self._knobs = dataclasses.replace(self._knobs, **changes)
            self._changed.notify_all()

    def wake(self) -> None:
        """Make calls that wait look at their ``cancelled`` again."""
        with self._changed:
            self._changed.notify_all()

    @contextlib.contextmanager
    def _call(self, name: str) -> Iterator[None]:
        """One call, with the lock."""
        with self._changed:
            self._count_call(name)
            yield

    def _count_call(self, name: str) -> None:
        """Called with the lock; raises if the service is down."""
        self.calls[name] += 1

    def _use_up(self, counter: str) -> bool:
        left: int = getattr(self._knobs, counter)
        if left > 0:
            setattr(self._knobs, counter, left - 1)
        return left > 0


@dataclasses.dataclass
class _Record:
    instance: FakeInstance
    made_at: float
    ready_at: float
    fails: bool
    deleted_at: float = math.inf
    gone_at: float = math.inf


class FakeCloud(_Service):
    """One cloud.

    Use `get`: clouds of the same name are the same cloud.
    """

    _clouds: ClassVar[dict[str, FakeCloud]] = {}
    _clouds_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, name: str) -> None:
        super().__init__(name, FakeKnobs())
        self._records: dict[str, _Record] = {}
        #: Those of them that are being deleted.
        self._going: dict[str, _Record] = {}
        #: Those that are gone, as long as lists may show them.
        self._past: list[_Record] = []
        #: The instance that was made for a key.
        self._keys: dict[str, str] = {}
        self._used: Counter[str] = Counter()
        self.images = FakeImages(name)
        #: So many instances were made.
        self.made = 0
        #: The greatest number of instances that existed at one time.
        self.peak = 0

    @classmethod
    def get(cls, name: str) -> FakeCloud:
        """The cloud of this name; made at the first call."""
        with cls._clouds_lock:
            return cls._clouds.setdefault(name, cls(name))

    @classmethod
    def forget(cls, name: str) -> None:
        """The next `get` makes a new, empty cloud. For tests."""
        with cls._clouds_lock:
            cls._clouds.pop(name, None)

    @property
    def knobs(self) -> FakeKnobs:
        """A copy of the current ones."""
        with self._changed:
            knobs: FakeKnobs = dataclasses.replace(self._knobs, limits=dict(self._knobs.limits))
            return knobs

    # -- the interface of the cloud --

    def create(
        self,
        name: str,
        *,
        metadata: Mapping[str, str],
        resources: Mapping[str, float],
        az: str | None = None,
        key: str | None = None,
    ) -> FakeInstance:
        """Begin to make an instance. Does not block.

        :param resources: amounts that count against the limits; ``instances`` counts 1 by itself.
        :param key: the second call with the same one makes nothing, but gives the same instance.
        :raises NoSuchInstance: the instance of this key is gone.
        :raises OverQuota: a limit would be exceeded.
        :raises CloudError: something else went wrong; the instance may have been made all the same.
        """
        with self._call("create"):
            if key is not None and key in self._keys:
                found = self._show(self._record(self._keys[key]), monotonic())
            else:
                found = self._make(name, metadata, {**resources, "instances": 1.0}, az)
                if key is not None:
                    self._keys[key] = found.id
            if self._use_up("lost_answers"):
                raise CloudError("connection closed before there was an answer")
            return found

    def _make(
        self, name: str, metadata: Mapping[str, str], needed: Mapping[str, float], az: str | None
    ) -> FakeInstance:
        limits = self._knobs.limits
        fits = all(self._used[name] + amount <= limits.get(name, math.inf) for name, amount in needed.items())
        if self._use_up("quota_errors") or not fits:
            raise OverQuota(f"quota of {self.name} exceeded")
        number = next(self._ids)
        address = str(_FIRST_ADDRESS + number % _ADDRESSES)
        made = FakeInstance(f"{self.name}-{number:06d}", name, BUILDING, az, address, dict(metadata), needed)
        now = monotonic()
        self._records[made.id] = _Record(made, now, now + self._knobs.boot_seconds, self._use_up("fail_launches"))
        self.made += 1
        self._used.update(needed)
        self.peak = max(self.peak, len(self._records))
        return made

    def instances(self) -> list[FakeInstance]:
        """All instances of all users. Raises CloudError."""
        with self._call("list"):
            then = monotonic() - self._knobs.list_lag_seconds
            self._forget_past(then)
            shown = [record for record in (*self._records.values(), *self._past) if record.made_at <= then]
            return [self._show(record, then) for record in shown]

    def instance(self, instance_id: str) -> FakeInstance:
        """One instance, as it is now. Raises NoSuchInstance, CloudError."""
        with self._call("get"):
            return self._show(self._record(instance_id), monotonic())

    def delete(self, instance_id: str) -> None:
        """Begin to delete an instance; again is fine. Raises NoSuchInstance, CloudError."""
        with self._call("delete"):
            record = self._record(instance_id)
            if record.gone_at == math.inf and not self._use_up("swallowed_deletes"):
                record.deleted_at = monotonic()
                record.gone_at = record.deleted_at + self._knobs.delete_seconds
                self._going[instance_id] = record
                self._collect()
                self._changed.notify_all()

    # -- inside, with the lock held --

    def _count_call(self, name: str) -> None:
        super()._count_call(name)
        self._collect()
        if self._knobs.down:
            raise CloudError(f"{self.name}: service unavailable")

    def _collect(self) -> None:
        now = monotonic()
        for instance_id, record in list(self._going.items()):
            if record.gone_at <= now:
                del self._going[instance_id], self._records[instance_id]
                self._past.append(record)
                self._used.subtract(record.instance.resources)
        if len(self._past) > 1000:
            self._forget_past(now - self._knobs.list_lag_seconds)

    def _forget_past(self, then: float) -> None:
        self._past = [record for record in self._past if record.gone_at > then]

    def _record(self, instance_id: str) -> _Record:
        record = self._records.get(instance_id)
        if record is None:
            raise NoSuchInstance(instance_id)
        return record

    def _show(self, record: _Record, then: float) -> FakeInstance:
        """What was seen of an instance at a time."""
        status = BUILDING
        if then >= record.deleted_at:
            status = DELETING
        elif not self._knobs.hang and then >= record.ready_at:
            status = ERROR if record.fails else ACTIVE
        return dataclasses.replace(record.instance, status=status)


# `FakeImages`: the image service of a cloud in memory, which reads, checks and loses images as clouds do.

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


class FakeImages(_Service):
    """The image service; its lock is not held while data arrive.

    :param name: of the cloud; ids begin with it.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, FakeImageKnobs())
        self._images: dict[str, FakeImage] = {}

    @property
    def upload_seconds(self) -> float:
        """How long the data of an image take."""
        with self._changed:
            return float(self._knobs.upload_seconds)

    def create(self, name: str, image_format: str | None, metadata: Mapping[str, str]) -> FakeImage:
        """Make an image without data. Raises ImageError; the image may have been made all the same."""
        with self._call("create"):
            if self._use_up("refused_images"):
                raise ImageError(f"image {name} is refused")
            image = FakeImage(f"{self.name}-image-{next(self._ids):06d}", name, image_format, dict(metadata))
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
        with self._call("upload"):
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
        with self._call("list"):
            return list(self._images.values())

    def image(self, image_id: str) -> FakeImage:
        """One image. Raises NoSuchImage, ImageError."""
        with self._call("get"):
            return self._image(image_id)

    def delete(self, image_id: str) -> None:
        """Delete an image. Raises NoSuchImage; ImageError, e.g. it is in use."""
        with self._call("delete"):
            self._image(image_id)
            if self._use_up("refused_deletions"):
                raise ImageError(f"image {image_id} is in use")
            del self._images[image_id]

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

    def _count_call(self, name: str) -> None:
        super()._count_call(name)
        if self._knobs.images_down:
            raise ImageError(f"{self.name}: image service unavailable")

    def _image(self, image_id: str) -> FakeImage:
        image = self._images.get(image_id)
        if image is None:
            raise NoSuchImage(image_id)
        return image
