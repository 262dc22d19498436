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
from collections.abc import Iterable, Iterator, Mapping
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
        """Lists of this cloud do not show instances that have ended."""
        return False


@dataclasses.dataclass
class FakeKnobs:
    """How the cloud behaves. Counters are used up by calls."""

    #: From creation to `active` or `error`.
    boot_seconds: float = 0.0
    #: From the delete call until the instance has ended.
    delete_seconds: float = 0.0
    #: So many instances end in `error`.
    fail_launches: int = 0
    #: So many creations are refused as over quota, whatever the limits say.
    quota_errors: int = 0
    #: So many creations make an instance, but the caller gets an error.
    lost_answers: int = 0
    #: Instances stay `building`.
    hang: bool = False
    #: Every call fails.
    down: bool = False
    #: Limits by resource name; without a name: no limit.
    limits: dict[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class _Record:
    instance: FakeInstance
    ready_at: float
    fails: bool
    gone_at: float = math.inf


class FakeCloud:
    """One cloud. Thread-safe.

    Use `get`: clouds of the same name are the same cloud.
    """

    _clouds: ClassVar[dict[str, FakeCloud]] = {}
    _clouds_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, name: str) -> None:
        self.name = name
        #: Guards everything here.
        self._lock = threading.Lock()
        self._knobs = FakeKnobs()
        self._ids = itertools.count(1)
        #: Calls by name, as a cloud's bill would show them.
        self.calls: Counter[str] = Counter()
        self._records: dict[str, _Record] = {}
        #: Those of them that are being deleted.
        self._going: dict[str, _Record] = {}
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
        with self._lock:
            return dataclasses.replace(self._knobs, limits=dict(self._knobs.limits))

    def set(self, **changes: Any) -> None:
        """Change knobs by name. Raises TypeError for an unknown one."""
        with self._lock:
            self._knobs = dataclasses.replace(self._knobs, **changes)

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
        :raises NoSuchInstance: the instance of this key is deleted.
        :raises OverQuota: a limit would be exceeded.
        :raises CloudError: something else went wrong; the instance may have been made all the same.
        """
        with self._call("create"):
            if key is not None and key in self._keys:
                found = self._show(self._record(self._keys[key]))
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
        ready_at = monotonic() + self._knobs.boot_seconds
        self._records[made.id] = _Record(made, ready_at, self._use_up("fail_launches"))
        self.made += 1
        self._used.update(needed)
        self.peak = max(self.peak, len(self._records))
        return made

    def instances(self) -> list[FakeInstance]:
        """All instances of all users. Raises CloudError."""
        with self._call("list"):
            return [self._show(record) for record in self._records.values()]

    def instance(self, instance_id: str) -> FakeInstance:
        """One instance, as it is now. Raises NoSuchInstance, CloudError."""
        with self._call("get"):
            return self._show(self._record(instance_id))

    def delete(self, instance_id: str) -> None:
        """Begin to delete an instance; again is fine. Raises NoSuchInstance, CloudError."""
        with self._call("delete"):
            record = self._record(instance_id)
            if record.gone_at == math.inf:
                record.gone_at = monotonic() + self._knobs.delete_seconds
                self._going[instance_id] = record
                self._collect()

    # -- inside, with the lock held --

    @contextlib.contextmanager
    def _call(self, name: str) -> Iterator[None]:
        """One call, for which the lock is taken."""
        with self._lock:
            self.calls[name] += 1
            self._collect()
            if self._knobs.down:
                raise CloudError(f"{self.name}: service unavailable")
            yield

    def _use_up(self, counter: str) -> bool:
        left: int = getattr(self._knobs, counter)
        setattr(self._knobs, counter, max(0, left - 1))
        return left > 0

    def _collect(self) -> None:
        now = monotonic()
        for instance_id, record in list(self._going.items()):
            if record.gone_at <= now:
                del self._going[instance_id], self._records[instance_id]
                self._used.subtract(record.instance.resources)

    def _record(self, instance_id: str) -> _Record:
        record = self._records.get(instance_id)
        if record is None:
            raise NoSuchInstance(instance_id)
        return record

    def _show(self, record: _Record) -> FakeInstance:
        status = BUILDING
        if record.gone_at < math.inf:
            status = DELETING
        elif not self._knobs.hang and monotonic() >= record.ready_at:
            status = ERROR if record.fails else ACTIVE
        return dataclasses.replace(record.instance, status=status)


# `FakeImages`: the image service of a cloud in memory.

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


class FakeImages:
    """The image service. Thread-safe. Data are not kept.

    :param name: of the cloud; ids begin with it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._ids = itertools.count(1)
        #: By id. What changes it is one operation.
        self._images: dict[str, FakeImage] = {}

    def create(self, name: str, image_format: str | None, metadata: Mapping[str, str]) -> FakeImage:
        """Make an image without data."""
        image = FakeImage(f"{self.name}-image-{next(self._ids):06d}", name, image_format, dict(metadata))
        self._images[image.id] = image
        return image

    def upload(self, image_id: str, chunks: Iterable[bytes]) -> FakeImage:
        """Take the data of an image. Returns it as it is then. Raises NoSuchImage."""
        size, md5, sha256 = 0, hashlib.md5(usedforsecurity=False), hashlib.sha256()
        for chunk in chunks:
            size += len(chunk)
            md5.update(chunk)
            sha256.update(chunk)
        arrived: dict[str, Any] = {"size": size, "md5": md5.hexdigest(), "sha256": sha256.hexdigest()}
        found = dataclasses.replace(self.image(image_id), status=USABLE, **arrived)
        self._images[image_id] = found
        return found

    def images(self) -> list[FakeImage]:
        """All images."""
        return list(self._images.values())

    def image(self, image_id: str) -> FakeImage:
        """One image. Raises NoSuchImage."""
        image = self._images.get(image_id)
        if image is None:
            raise NoSuchImage(image_id)
        return image

    def delete(self, image_id: str) -> None:
        """Delete an image. Raises NoSuchImage."""
        if self._images.pop(image_id, None) is None:
            raise NoSuchImage(image_id)
