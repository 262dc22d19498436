# SPDX-License-Identifier: Apache-2.0
"""What uploads of images to AWS are made of (AW-17 to AW-19).

First our objects in a bucket of S3 (`ObjectStore`) and how a file is sent there, then waiting for the cloud, then the
arguments of the calls, then how AMIs, snapshots and imports are deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar
from urllib.parse import quote, unquote, urlencode

from nodepool.driver.aws import transport as t
from nodepool.driver.aws.errors import AwsNotFound
from nodepool.driver.aws.types import ROOT_DEVICE, filled, tag_list, tag_specifications
from nodepool.driver.framework import uploads
from nodepool.driver.framework.cloud_errors import CloudAway, CloudQuota
from nodepool.driver.framework.uploads import (
    ImageTime,
    PartsUpload,
    PartsUploader,
    StoredPart,
    UploadInterrupted,
    crc32_of,
    wait_wanted,
)
from nodepool.driver.statemachine.instance import BUILD_KEY, INSTALLATION_KEY, PROVIDER_KEY, UPLOAD_KEY
from nodepool.exceptions import ImageCreateException
from nodepool.guard import Guard

if TYPE_CHECKING:
    from nodepool.driver.aws.config import AwsDiskImage, AwsProviderConfig
    from nodepool.driver.framework.uploads import Segment


class ObjectStore:
    """One bucket: a `nodepool.driver.framework.uploads.PartsBucket`.

    All methods block; any thread may call them. They raise what `nodepool.driver.aws.errors` has.
    """

    def __init__(self, transport: t.AwsTransport, bucket: str) -> None:
        self.bucket = bucket
        #: Set when the provider ends.
        self.stopped = transport.stopped
        self._transport = transport

    # -- uploads in parts --

    def begin(self, key: str, tags: Mapping[str, str]) -> str:
        """Begin an upload; returns its id."""
        given = {"Key": key, "Tagging": object_tagging(tags), "ChecksumAlgorithm": "CRC32"}
        return str(self._call("CreateMultipartUpload", given)["UploadId"])

    def put_part(self, upload: PartsUpload, number: int, data: bytes) -> StoredPart:
        checksum = crc32_of(data)
        given = {**_named(upload), "PartNumber": number, "Body": data, "ChecksumCRC32": checksum}
        answer = self._call("UploadPart", given)
        return StoredPart(number, _plain(answer["ETag"]), len(data), checksum)

    def parts(self, upload: PartsUpload) -> dict[int, StoredPart]:
        found = self._pages("ListParts", _named(upload), "Parts", PartNumberMarker="NextPartNumberMarker")
        parts = (
            StoredPart(part["PartNumber"], _plain(part["ETag"]), part["Size"], part.get("ChecksumCRC32", ""))
            for part in found
        )
        return {part.number: part for part in parts}

    def complete(self, upload: PartsUpload, parts: Mapping[int, StoredPart]) -> None:
        told = [
            {"PartNumber": number, "ETag": f'"{part.tag}"', **({"ChecksumCRC32": part.crc32} if part.crc32 else {})}
            for number, part in sorted(parts.items())
        ]
        self._call("CompleteMultipartUpload", {**_named(upload), "MultipartUpload": {"Parts": told}})

    def abort(self, upload: PartsUpload) -> None:
        with contextlib.suppress(AwsNotFound):
            self._call("AbortMultipartUpload", _named(upload))

    def open_uploads(self, prefix: str) -> Iterator[PartsUpload]:
        marks = {"KeyMarker": "NextKeyMarker", "UploadIdMarker": "NextUploadIdMarker"}
        for found in self._pages("ListMultipartUploads", {"Prefix": prefix}, "Uploads", **marks):
            yield PartsUpload(found["Key"], found["UploadId"])

    # -- objects --

    def size_of(self, key: str) -> int:
        """Of an object, in bytes; raises `CloudRefused` if there is none."""
        size: int = self._call("HeadObject", {"Key": key})["ContentLength"]
        return size

    def delete(self, key: str) -> None:
        """Delete an object; one that is gone already is no error."""
        with contextlib.suppress(AwsNotFound):
            self._call("DeleteObject", {"Key": key})

    def keys(self, prefix: str) -> Iterator[str]:
        """Of all objects whose keys begin so."""
        found = self._pages("ListObjectsV2", {"Prefix": prefix}, "Contents", ContinuationToken="NextContinuationToken")
        return (entry["Key"] for entry in found)

    def _pages(self, operation: str, arguments: dict[str, Any], key: str, **marks: str) -> Iterator[dict[str, Any]]:
        """See `AwsTransport.pages`."""
        return self._transport.pages("s3", t.STORE, operation, {"Bucket": self.bucket, **arguments}, key, marks)

    def _call(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._transport.call("s3", t.STORE, operation, {"Bucket": self.bucket, **arguments})


def _named(upload: PartsUpload) -> dict[str, Any]:
    return {"Key": upload.key, "UploadId": upload.upload_id}


def _plain(tag: str) -> str:
    return tag.strip('"')


# `S3Upload`: sends a file to S3 (AW-17).

log = logging.getLogger("nodepool.driver.aws.images")

#: Size of a part. S3 takes at most 10 000 of an object.
PART_BYTES: Final = 8 * 1024 * 1024
_MOST_PARTS: Final = 9_000


def part_bytes(size: int) -> int:
    """Size of the parts of a file: the same for each upload of it."""
    return max(PART_BYTES, -(-size // _MOST_PARTS))


class S3Upload(PartsUploader):
    """One upload, made in the thread that calls ``upload()``, which returns the key of the object.

    After an error nothing is left of it, unless the upload was interrupted.
    """

    #: Parts that are under way at once, and so in memory.
    concurrency: ClassVar[int] = 4
    error_retries: ClassVar[int] = 5

    def __init__(self, store: ObjectStore, job: ImageJob, wait: UploadWait) -> None:
        super().__init__(store, log, job.path, job.name, wait.head, job.key, store.stopped)
        self.segment_size = part_bytes(job.size)
        self._store = store
        self._job = job
        self._wait = wait
        self._digest = hashlib.sha256()
        self._read = 0

    def startUpload(self) -> None:
        self._wait.check()
        self.begin_parts(self._job.build_prefix, f".{self._job.format}")

    def new_upload(self) -> str:
        return self._store.begin(self.key, self._job.tags)

    def segmentRead(self, segment: Segment) -> None:
        self._digest.update(segment.data)
        self._read += len(segment.data)

    def finishUpload(self) -> str:
        problem = file_problem(self._job, self._read, self._digest.hexdigest())
        if problem is None:
            self.complete_parts()
            stored = self.retry(self._store.size_of, self.key)
            if stored == self._job.size:
                self._wait.sent(stored)
                return self.key
            problem = f"{stored} of {self._job.size} bytes are in the bucket"
        raise ImageCreateException(f"{self.head} did not arrive as it was built: {problem}")

    def abortUpload(self) -> None:
        if self.interrupted:
            log.info("%s: what was sent of the file stays", self.head)
            return
        self._wait.discard("parts of", self.key, lambda _: self.abort_parts())
        self.discard_object()

    @property
    def interrupted(self) -> bool:
        """Is it for the next upload of the build to go on with what there is?"""
        return isinstance(self.error, UploadInterrupted) or self.stopped

    def discard_object(self) -> None:
        self._wait.discard("object", self.key, self._store.delete, logging.WARNING)


# `UploadWait`: what an upload does while it waits: it says how far it is, and hears whether it is still wanted.

T = TypeVar("T")


#: Between two attempts to begin what AWS refuses because too much of it is under way (AW-17).
LIMIT_PAUSE_SECONDS: Final = 30.0


class UploadWait:
    """Of one upload; made in the thread that called ``uploadImage()``.

    :param stopped: set when the provider ends.
    """

    def __init__(self, config: AwsProviderConfig, job: ImageJob, stopped: threading.Event) -> None:
        #: Whose upload it is, for texts.
        self.head = f"Provider {config.name}: image {job.name}"
        self._size = job.size
        self._stopped = stopped
        self._limit_seconds = config.image_import_timeout
        self._report = uploads.reporter()
        self._check = uploads.checker()
        self._done = 0

    @property
    def stopped(self) -> bool:
        """Has the provider ended?"""
        return self._stopped.is_set()

    def sent(self, done: int) -> None:
        """So many bytes are there. Raises UploadGivenUp: nobody wants the upload any more."""
        self._done = min(done, self._size)
        self.go_on()

    def go_on(self) -> None:
        """Say so again. Raises UploadGivenUp."""
        self._stop_now()
        self._report(self._done, self._size)

    def check(self) -> None:
        """Before something is made: is it still wanted? Blocks while nobody knows. Raises UploadGivenUp."""
        self._stop_now()
        self._check()

    def _stop_now(self) -> None:
        if self._stopped.is_set():
            raise UploadInterrupted("the provider was stopped")

    def answers(
        self, what: str, seconds: float, ask: Callable[[], T], passing: tuple[type[Exception], ...] = (CloudAway,)
    ) -> Iterator[T]:
        """Ask now, and after growing pauses: what is answered.

        :param what: is waited for, for the error.
        :param passing: errors after which it asks again.
        :raises ImageCreateException: the time is over.
        :raises UploadGivenUp: nobody wants the upload any more.
        """
        time = ImageTime(f"{self.head}: {what}", seconds, self._stopped, wanted=self.go_on)
        self.go_on()
        for _ in time.looks():
            try:
                answer = ask()
            except passing as error:
                log.debug("%s: %s", self.head, error)
            else:
                yield answer
        self.go_on()
        raise time.over()

    def discard(self, what: str, name: str, delete: Callable[[str], object], level: int = logging.ERROR) -> None:
        """Delete what is not wanted any more; an error is logged."""
        with Guard(log, "%s: %s %s may be left over", self.head, what, name, level=level, traceback=False):
            delete(name)

    def when_allowed(self, begin: Callable[[], T]) -> T:
        """Begin something as soon as the limits of the account allow it.

        :raises ImageCreateException: AWS refused it for ``image-import-timeout``; without that the first time.
        """
        limit = self._limit_seconds
        time = ImageTime(self.head, limit or 0.0, self._stopped)
        for attempt in itertools.count():
            self.check()
            try:
                return begin()
            except CloudQuota as error:
                pause = min(LIMIT_PAUSE_SECONDS, time.left())
                if limit is None:
                    text = f"{error}; set image-import-timeout, and uploads wait for that long"
                    raise ImageCreateException(f"{self.head}: {text}") from error
                if pause <= 0:
                    text = f"AWS refused it for image-import-timeout ({limit:g} s): {error}"
                    raise ImageCreateException(f"{self.head}: {text}") from error
                if not attempt:
                    log.info("%s waits for a limit of the account: %s", self.head, error)
            self.go_on()
            wait_wanted(pause, self._stopped, self.go_on)
            self.go_on()
        raise AssertionError("the attempts end with an error")


# What an uploaded image is to be like: tags, object in S3, and arguments of the calls (AW-17, AW-18). Pure functions.

GIB: Final = 2**30
#: Before the keys of our objects in a bucket.
PREFIX: Final = "nodepool/"
#: What says of which upload a thing is.
UPLOAD_TAGS: Final = (PROVIDER_KEY, BUILD_KEY, UPLOAD_KEY)
_INSTALLATION: Final = re.compile(r"[0-9a-f]{16}")
#: Tags that an object of S3 can have, and what can stand in them.
_OBJECT_TAGS: Final = 10
_OBJECT_TAG: Final = re.compile(r"[\w \-+=.:/@]*")


@dataclass(frozen=True)
class ImageJob:
    """One upload.

    :param name: of the image, unique.
    :param path: of the file.
    :param size: of the file, in bytes.
    :param format: of the file.
    :param image: what the configuration says.
    :param tags: of all that is made.
    :param sha256: of the file, hexadecimal; None = it is not known.
    """

    name: str
    path: str
    size: int
    format: str
    image: AwsDiskImage
    tags: Mapping[str, str]
    sha256: str | None

    @property
    def build_tags(self) -> dict[str, str]:
        """What all uploads of the build to the provider have."""
        return {key: self.tags.get(key, "") for key in (PROVIDER_KEY, BUILD_KEY)}

    @property
    def upload_tags(self) -> dict[str, str]:
        """What says of which upload a thing is."""
        return {key: self.tags.get(key, "") for key in UPLOAD_TAGS}

    @property
    def size_gib(self) -> int:
        """Of a volume that has room for the file."""
        return max(1, math.ceil(self.size / GIB))

    @property
    def token(self) -> str:
        """What AWS knows the upload by: the same call again makes nothing new. 64 characters."""
        return hashlib.sha256(repr(sorted(self.upload_tags.items())).encode()).hexdigest()

    @property
    def key(self) -> str:
        """Of the object in S3. It says whose it is: nobody has to ask for the tags of each object."""
        whose = [self.tags[key] for key in (UPLOAD_KEY, INSTALLATION_KEY) if key in self.tags]
        return f"{self.build_prefix}{'/'.join(quote(one, safe='') for one in whose)}/{self.name}.{self.format}"

    @property
    def build_prefix(self) -> str:
        """Before the keys of all objects of the build at the provider."""
        return f"{PREFIX}{'/'.join(quote(value, safe='') for value in self.build_tags.values())}/"


def image_tags(image: AwsDiskImage, metadata: Mapping[str, Any]) -> dict[str, str]:
    """Tags: the build's, then the image's, then what says whose it is; the later one wins (U-4, CM-1)."""
    ours = {key: value for key, value in metadata.items() if key in (*UPLOAD_TAGS, INSTALLATION_KEY)}
    return {str(key): str(value) for key, value in {**metadata, **image.tags, **ours}.items()}


def metadata_of_key(key: str) -> dict[str, str]:
    """Of which upload an object is, by its key; empty = it is not ours."""
    parts = key.removeprefix(PREFIX).split("/")
    if not key.startswith(PREFIX) or len(parts) < len(UPLOAD_TAGS) + 1:
        return {}
    found = dict(zip(UPLOAD_TAGS, map(unquote, parts), strict=False))
    # Earlier releases had none in it (D-10).
    installation = parts[len(UPLOAD_TAGS)]
    return {**found, INSTALLATION_KEY: installation} if _INSTALLATION.fullmatch(installation) else found


def provider_prefix(provider: str) -> str:
    """Before the keys of all objects of a provider."""
    return f"{PREFIX}{quote(provider, safe='')}/"


def object_tagging(tags: Mapping[str, str]) -> str:
    """Tags as S3 takes them with an object: ours, then others as long as there is room for them."""
    first = {key: tags[key] for key in (*UPLOAD_TAGS, INSTALLATION_KEY) if key in tags}
    usable = {key: value for key, value in tags.items() if _OBJECT_TAG.fullmatch(key) and _OBJECT_TAG.fullmatch(value)}
    return urlencode(dict(list({**first, **usable}.items())[:_OBJECT_TAGS]))


def file_problem(job: ImageJob, size: int, sha256: str) -> str | None:
    """In what a file that was read differs from the one that was built, for people; None = in nothing that is known."""
    if size != job.size:
        return f"the file had {job.size} bytes at first, and {size} when it was read"
    if job.sha256 is not None and job.sha256.strip().lower() != sha256:
        return f"the sha256 of the file was {job.sha256} when it was built, and is {sha256} now; is the disk well?"
    return None


def import_arguments(job: ImageJob, bucket: str, key: str, *, whole: bool) -> dict[str, Any]:
    """Arguments of ImportImage or ImportSnapshot.

    :param key: of the object.
    :param whole: an AMI is made.
    """
    disk = {"Format": job.format, "UserBucket": {"S3Bucket": bucket, "S3Key": key}}
    kind = {"Architecture": job.image.architecture, "DiskContainers": [disk]} if whole else {"DiskContainer": disk}
    task = "import-image-task" if whole else "import-snapshot-task"
    return {"ClientToken": job.token, **kind, "TagSpecifications": tag_specifications(job.tags, task)}


def snapshot_start(job: ImageJob, timeout_minutes: int, tags: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of StartSnapshot.

    :param timeout_minutes: after so long without a block AWS gives the snapshot up.
    :param tags: of the snapshot, beside those of the upload.
    """
    return {
        "VolumeSize": job.size_gib,
        "ClientToken": job.token,
        "Timeout": timeout_minutes,
        "Tags": tag_list({**job.tags, **tags}),
    }


def registration(job: ImageJob, snapshot_id: str) -> dict[str, Any]:
    """Arguments of RegisterImage."""
    image = job.image
    volume = {
        "SnapshotId": snapshot_id,
        "DeleteOnTermination": True,
        "VolumeType": image.volume_type,
        "VolumeSize": image.volume_size,
        "Iops": image.iops,
        "Throughput": image.throughput,
    }
    return filled(
        {
            "Name": job.name,
            "Architecture": image.architecture,
            "RootDeviceName": ROOT_DEVICE,
            "BlockDeviceMappings": [{"DeviceName": ROOT_DEVICE, "Ebs": filled(volume)}],
            "VirtualizationType": "hvm",
            "EnaSupport": image.ena_support,
            "ImdsSupport": image.imds_support,
            "TagSpecifications": tag_specifications(job.tags, "image"),
        }
    )
