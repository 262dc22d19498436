# SPDX-License-Identifier: Apache-2.0
"""Uploaded images of one AWS provider: upload, deletion, list, and what uploads have left (AW-17 to AW-20).

First `AwsImages`. Then what uploads are made of: our objects in a bucket of S3 (`ObjectStore`) and how a file is sent
there, waiting for the cloud, and the arguments of the calls. Then the two kinds of uploads: imports from S3
(`ImportUpload`), and blocks of a snapshot (`BlockUpload`).
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeVar
from urllib.parse import quote, unquote, urlencode

from nodepool.driver.aws import types
from nodepool.driver.aws.client import STORE, AwsTransport, Ec2
from nodepool.driver.aws.config import EBS_DIRECT, IMAGE, AwsDiskImage, AwsProviderConfig
from nodepool.driver.framework import uploads
from nodepool.driver.framework.cloud_errors import CloudAway, CloudQuota, CloudRefused
from nodepool.driver.framework.fact import Fact
from nodepool.driver.statemachine import SWEEP_LIST_SECONDS, CloudResource, ResourceKind, ResourceKinds
from nodepool.driver.statemachine.adapter import CloudImages, ImageFile
from nodepool.driver.statemachine.instance import BUILD_KEY, INSTALLATION_KEY, PROVIDER_KEY, UPLOAD_KEY
from nodepool.exceptions import ImageCreateException, LaunchError
from nodepool.guard import Guard, OnError

log = logging.getLogger("nodepool.driver.aws.images")

#: Longest time until a new AMI can be used, and until one that was deleted is listed no more.
AVAILABLE_SECONDS: Final = 3600.0
_DUPLICATE: Final = "InvalidAMIName.Duplicate"
_DEAD_IMAGE: Final = ("failed", "error", "invalid", "deregistered")

# What uploads can leave, by kind (AW-20). Only what carries our tags, or has a key of ours, is asked for. Results of
# imports have no tags at first: they are found by their task, and get its tags, so that nothing of others is looked at.

AMI: Final = "ami"
SNAPSHOT: Final = "snapshot"
IMPORT: Final = "import"
OBJECT: Final = "object"
PARTS: Final = "part"
#: Between two looks of a provider to which no images are uploaded now.
IDLE_SECONDS: Final = 600.0


class AwsImages(CloudImages):
    """Of one provider. All methods block; any thread may call them."""

    def __init__(self, config: AwsProviderConfig, ec2: Ec2) -> None:
        self._config = config
        self._ec2 = ec2
        self.store = None if config.bucket_name is None else ObjectStore(ec2.transport, config.bucket_name)
        self._tags = {PROVIDER_KEY: config.name}
        self._images: Fact[list[types.AwsImage]] = Fact(lambda: ec2.own_images(self._tags))
        self._snapshots: Fact[list[types.AwsSnapshot]] = Fact(lambda: ec2.snapshots(self._tags))
        #: Results of imports that do not exist any more, though their tasks are still listed.
        self._gone: set[str] = set()
        #: For the builder, which must not take an image for deleted because it cannot be listed.
        self._listing = ResourceKinds(config.name, self.kinds(for_builder=True))

    # -- upload --

    def upload(self, file: ImageFile) -> str:
        """Upload a file; returns the id of the AMI. After an error nothing is left, if AWS lets us.

        :raises ImageCreateException: AWS cannot use it, or it took too long.
        :raises UploadGivenUp: no one wants it any more.
        :raises LaunchError: AWS refused it, or is away.
        :raises OSError: the file cannot be read.
        """
        size, wanted = os.stat(file.path).st_size, file.format or self._config.image_type
        tags = image_tags(file.image, file.metadata)
        job = ImageJob(file.name, file.path, size, wanted, file.image, tags, file.sha256)
        wait = UploadWait(self._config, job, self._ec2.transport.stopped)
        problem = job.image.format_problem(job.format)
        if problem is not None:
            raise ImageCreateException(f"{wait.head}: {problem}")
        by_blocks = job.image.import_method == EBS_DIRECT
        try:
            return self._upload_by_blocks(job, wait) if by_blocks else self._import(job, wait)
        except CloudAway as error:
            if wait.stopped:
                raise uploads.UploadInterrupted("the provider was stopped") from error
            raise

    def _upload_by_blocks(self, job: ImageJob, wait: UploadWait) -> str:
        snapshot_id = BlockUpload(self._ec2, job, wait).upload()
        with OnError(lambda _: wait.discard("snapshot", snapshot_id, self._ec2.discard_snapshot)):
            return self._register(job, wait, snapshot_id)

    def _import(self, job: ImageJob, wait: UploadWait) -> str:
        if self.store is None:
            raise ImageCreateException(f"{wait.head} goes through S3; add object-storage.bucket-name to the provider")

        def image_of(task: types.ImportTask) -> str:
            if task.image_id:
                self._wait_available(task.image_id, wait)
                return task.image_id
            (snapshot_id,) = task.snapshot_ids
            return self._register(job, wait, snapshot_id)

        return str(ImportUpload(self._ec2, self.store, job, wait, image_of).upload())

    def _register(self, job: ImageJob, wait: UploadWait, snapshot_id: str) -> str:
        """Make an AMI of a snapshot; returns its id when it can be used."""
        looks = wait.answers("its registration", AVAILABLE_SECONDS, lambda: self._registered(job, wait, snapshot_id))
        image_id = next(filter(None, looks))
        with OnError(lambda _: wait.discard("image", image_id, self._ec2.discard_image)):
            self._wait_available(image_id, wait)
        return image_id

    def _registered(self, job: ImageJob, wait: UploadWait, snapshot_id: str) -> str | None:
        """The id of the AMI; None = it is not known yet. The name makes it one image."""
        wait.check()
        try:
            return self._ec2.register(registration(job, snapshot_id))
        except CloudRefused as error:
            if error.code != _DUPLICATE:
                raise
            found = self._ec2.image_named(job.name)
            if found is not None and not job.upload_tags.items() <= dict(found.metadata).items():
                raise
            # It is ours: the answer was lost.
            return None if found is None else found.id

    def _wait_available(self, image_id: str, wait: UploadWait) -> None:
        # It may not be known yet.
        passing = (CloudAway, CloudRefused)
        for image in wait.answers(f"image {image_id}", AVAILABLE_SECONDS, lambda: self._ec2.image(image_id), passing):
            if image.status == types.AVAILABLE:
                return
            if image.status in _DEAD_IMAGE:
                raise ImageCreateException(f"{wait.head}: {image_id} has become {image.status}")

    # -- lists and deletions --

    def delete(self, image_id: str) -> None:
        self._ec2.discard_image(image_id)

    def kinds(self, for_builder: bool = False) -> Iterator[ResourceKind[CloudResource]]:
        """Rows for the table of resources. Deletions of what does not exist any more are no errors."""
        ec2, store = self._ec2, self.store
        vital, idle = for_builder, 0.0 if for_builder or self._config.diskimages else IDLE_SECONDS
        if store is not None:
            # First, because it gives the results of imports their tags.
            yield ResourceKind(IMPORT, self._found_imports, lambda one: ec2.discard_import(one.id), idle)
        yield ResourceKind(AMI, self._found_images, lambda one: ec2.discard_image(one.id), idle, vital)
        yield ResourceKind(SNAPSHOT, self._found_snapshots, lambda one: ec2.discard_snapshot(one.id), idle, vital)
        if store is not None:
            ours = provider_prefix(self._config.name)

            def objects() -> Iterator[CloudResource]:
                for key in store.keys(ours):
                    yield CloudResource(metadata_of_key(key), OBJECT, key, usable=False)

            def parts() -> Iterator[CloudResource]:
                for found in store.open_uploads(ours):
                    yield CloudResource(metadata_of_key(found.key), PARTS, found.upload_id, found.key, usable=False)

            yield ResourceKind(OBJECT, objects, lambda one: store.delete(one.id), idle)
            yield ResourceKind(PARTS, parts, lambda one: store.abort(uploads.PartsUpload(one.name, one.id)), idle)

    def listed(self) -> Iterator[uploads.ListedImage]:
        """AMIs with our tags, and what uploads have left or not completed yet (D-1, R-4)."""
        for found in self._listing.all():
            usable = found.type == AMI
            yield uploads.ListedImage(found.id if usable else found, found.name, found.metadata, usable=usable)

    def _found_images(self) -> Iterator[CloudResource]:
        for image in self._images.get_new():
            yield CloudResource(image.metadata, AMI, image.id, image.name)

    def _found_snapshots(self) -> Iterator[CloudResource]:
        """Those that no AMI of ours is made of: the others go with it."""
        images = self._images.get(SWEEP_LIST_SECONDS)
        used = {volume.get("SnapshotId") for image in images for _, volume in image.devices}
        for snapshot in self._snapshots.get_new():
            if snapshot.id not in used:
                yield CloudResource(snapshot.metadata, SNAPSHOT, snapshot.id, usable=False)

    def _found_imports(self) -> Iterator[CloudResource]:
        """Those that run. Results of the others get the tags of their task, unless they have them."""
        claimed: set[str] | None = None
        for task in (*self._ec2.import_tasks(whole=False), *self._ec2.import_tasks(whole=True)):
            if task.metadata.get(PROVIDER_KEY) != self._config.name or task.status in types.FAILED_TASKS:
                continue
            if task.status != types.COMPLETED:
                yield CloudResource(task.metadata, IMPORT, task.id, usable=False)
            elif IMAGE_KEY not in task.metadata and not self._gone.issuperset(task.result_ids):
                if claimed is None:
                    claimed = {found.id for found in self._images.get_new()}
                    claimed |= {found.id for found in self._snapshots.get_new()}
                self._claim(task, claimed)

    def _claim(self, task: types.ImportTask, claimed: set[str]) -> None:
        for found in task.result_ids:
            if found in claimed or found in self._gone:
                continue
            try:
                self._ec2.tag_now([found], task.metadata)
            except types.AwsNotFound:
                self._gone.add(found)
                continue
            log.info(
                "Provider %s: %s is the result of import %s, and has its tags now", self._config.name, found, task.id
            )


# `ObjectStore`: our objects in a bucket of S3.


class ObjectStore:
    """One bucket: a `nodepool.driver.framework.uploads.PartsBucket`.

    All methods block; any thread may call them. They raise what `nodepool.driver.aws.types` has.
    """

    def __init__(self, transport: AwsTransport, bucket: str) -> None:
        self.bucket = bucket
        #: Set when the provider ends.
        self.stopped = transport.stopped
        self._transport = transport

    # -- uploads in parts --

    def begin(self, key: str, tags: Mapping[str, str]) -> str:
        """Begin an upload; returns its id."""
        given = {"Key": key, "Tagging": object_tagging(tags), "ChecksumAlgorithm": "CRC32"}
        return str(self._call("CreateMultipartUpload", given)["UploadId"])

    def put_part(self, upload: uploads.PartsUpload, number: int, data: bytes) -> uploads.StoredPart:
        checksum = uploads.crc32_of(data)
        given = {**_named(upload), "PartNumber": number, "Body": data, "ChecksumCRC32": checksum}
        answer = self._call("UploadPart", given)
        return uploads.StoredPart(number, answer["ETag"].strip('"'), len(data), checksum)

    def parts(self, upload: uploads.PartsUpload) -> dict[int, uploads.StoredPart]:
        found = self._pages("ListParts", _named(upload), "Parts", PartNumberMarker="NextPartNumberMarker")
        parts = (
            uploads.StoredPart(part["PartNumber"], part["ETag"].strip('"'), part["Size"], part.get("ChecksumCRC32", ""))
            for part in found
        )
        return {part.number: part for part in parts}

    def complete(self, upload: uploads.PartsUpload, parts: Mapping[int, uploads.StoredPart]) -> None:
        told = [
            {"PartNumber": number, "ETag": f'"{part.tag}"', **({"ChecksumCRC32": part.crc32} if part.crc32 else {})}
            for number, part in sorted(parts.items())
        ]
        self._call("CompleteMultipartUpload", {**_named(upload), "MultipartUpload": {"Parts": told}})

    def abort(self, upload: uploads.PartsUpload) -> None:
        with contextlib.suppress(types.AwsNotFound):
            self._call("AbortMultipartUpload", _named(upload))

    def open_uploads(self, prefix: str) -> Iterator[uploads.PartsUpload]:
        marks = {"KeyMarker": "NextKeyMarker", "UploadIdMarker": "NextUploadIdMarker"}
        for found in self._pages("ListMultipartUploads", {"Prefix": prefix}, "Uploads", **marks):
            yield uploads.PartsUpload(found["Key"], found["UploadId"])

    # -- objects --

    def size_of(self, key: str) -> int:
        """Of an object, in bytes; raises `CloudRefused` if there is none."""
        size: int = self._call("HeadObject", {"Key": key})["ContentLength"]
        return size

    def delete(self, key: str) -> None:
        """Delete an object; one that is not there is no error."""
        with contextlib.suppress(types.AwsNotFound):
            self._call("DeleteObject", {"Key": key})

    def keys(self, prefix: str) -> Iterator[str]:
        """Of all objects whose keys begin so."""
        found = self._pages("ListObjectsV2", {"Prefix": prefix}, "Contents", ContinuationToken="NextContinuationToken")
        return (entry["Key"] for entry in found)

    def _pages(self, operation: str, arguments: dict[str, Any], key: str, **marks: str) -> Iterator[dict[str, Any]]:
        """See `AwsTransport.pages`."""
        return self._transport.pages("s3", STORE, operation, {"Bucket": self.bucket, **arguments}, key, marks)

    def _call(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._transport.call("s3", STORE, operation, {"Bucket": self.bucket, **arguments})


def _named(upload: uploads.PartsUpload) -> dict[str, Any]:
    return {"Key": upload.key, "UploadId": upload.upload_id}


# `S3Upload`: sends a file to S3 (AW-17).

#: Size of a part. S3 takes at most 10 000 of an object.
PART_BYTES: Final = 8 * 1024 * 1024
_MOST_PARTS: Final = 9_000


def part_bytes(size: int) -> int:
    """Size of the parts of a file: the same for each upload of it."""
    return max(PART_BYTES, -(-size // _MOST_PARTS))


class S3Upload(uploads.PartsUploader):
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

    def startUpload(self) -> None:
        self._wait.check()
        self.begin_parts(self._job.build_prefix, f".{self._job.format}")

    def new_upload(self) -> str:
        return self._store.begin(self.key, self._job.tags)

    def segmentRead(self, segment: uploads.Segment) -> None:
        self._digest.update(segment.data)

    def finishUpload(self) -> str:
        problem = file_problem(self._job, self._digest.hexdigest())
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
        return isinstance(self.error, uploads.UploadInterrupted) or self.stopped

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
        """So many bytes are there. Raises UploadGivenUp: no one wants the upload any more."""
        self._done = min(done, self._size)
        self.go_on()

    def go_on(self) -> None:
        """Say so again. Raises UploadGivenUp."""
        self._stop_now()
        self._report(self._done, self._size)

    def check(self) -> None:
        """Before something is made: is it still wanted? Blocks while no one knows. Raises UploadGivenUp."""
        self._stop_now()
        self._check()

    def _stop_now(self) -> None:
        if self._stopped.is_set():
            raise uploads.UploadInterrupted("the provider was stopped")

    def answers(
        self, what: str, seconds: float, ask: Callable[[], T], passing: tuple[type[Exception], ...] = (CloudAway,)
    ) -> Iterator[T]:
        """Ask now, and after growing pauses: what is answered.

        :param what: is waited for, for the error.
        :param passing: errors after which it asks again.
        :raises ImageCreateException: the time is over.
        :raises UploadGivenUp: no one wants the upload any more.
        """
        time = uploads.ImageTime(f"{self.head}: {what}", seconds, self._stopped, wanted=self.go_on)
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
        time = uploads.ImageTime(self.head, limit or 0.0, self._stopped)
        waited = False
        while True:
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
                if not waited:
                    log.info("%s waits for a limit of the account: %s", self.head, error)
            waited = True
            self.go_on()
            uploads.wait_wanted(pause, self._stopped, self.go_on)
            self.go_on()


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
        """Of the object in S3. It says whose it is: no one has to ask for the tags of each object."""
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


def file_problem(job: ImageJob, sha256: str) -> str | None:
    """In what a file that was read differs from the one that was built, for people; None = in nothing that is known."""
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
    return {"ClientToken": job.token, **kind, "TagSpecifications": types.tag_specifications(job.tags, task)}


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
    return types.filled(
        {
            "Name": job.name,
            "Architecture": image.architecture,
            "RootDeviceName": types.ROOT_DEVICE,
            "BlockDeviceMappings": [{"DeviceName": types.ROOT_DEVICE, "Ebs": types.filled(volume)}],
            "VirtualizationType": "hvm",
            "EnaSupport": image.ena_support,
            "ImdsSupport": image.imds_support,
            "TagSpecifications": types.tag_specifications(job.tags, "image"),
        }
    )


# `ImportUpload`: AWS makes a snapshot or an AMI of an object in S3 (``import-method: snapshot``, ``image``; AW-17).
#
# An import takes long, and goes on without us. It is known by its tags: when the builder was restarted meanwhile, the
# next upload of the build takes it up again. One whose result became an image has a tag that says so.

#: Tag of a task: the image that was made of its result.
IMAGE_KEY: Final = "nodepool_image_id"
#: Longest time of an import.
IMPORT_SECONDS: Final = 24 * 3600.0


class ImportUpload(S3Upload):
    """One upload. ``upload()`` returns the id of the AMI.

    :param image_of: gives the id of the AMI that is made of an import's results; blocks until it can be used.
    """

    def __init__(
        self, ec2: Ec2, store: ObjectStore, job: ImageJob, wait: UploadWait, image_of: Callable[[types.ImportTask], str]
    ) -> None:
        super().__init__(store, job, wait)
        self._ec2 = ec2
        self._image_of = image_of
        self._whole = job.image.import_method == IMAGE
        #: The import, as soon as there is one.
        self._task: types.ImportTask | None = None

    # -- hooks --

    def startUpload(self) -> None:
        self._task = self._interrupted()
        if self._task is None:
            super().startUpload()

    def _upload_segments(self) -> None:
        if self._task is None:
            super()._upload_segments()

    def finishUpload(self) -> str:
        if self._task is None:
            super().finishUpload()
            arguments = import_arguments(self._job, self._store.bucket, self.key, whole=self._whole)
            # The token makes it one import.
            self._task = self._wait.when_allowed(
                lambda: self.retry(self._ec2.begin_import, arguments, whole=self._whole)
            )
        self._task = task = self._imported(self._task)
        self.discard_object()
        self._ec2.tag_now(task.result_ids, self._job.tags)
        image_id = self._image_of(task)
        try:
            self._ec2.tag_now([task.id], {IMAGE_KEY: image_id})
        except LaunchError as error:
            log.warning("%s: import %s is not marked as used: %s", self.head, task.id, error)
        return image_id

    def abortUpload(self) -> None:
        if self._task is not None and self.interrupted:
            log.info("%s: import %s goes on", self.head, self._task.id)
            return
        if self._task is not None:
            self._wait.discard("import", self._task.id, self._ec2.discard_import)
        super().abortUpload()

    # -- inside --

    def _interrupted(self) -> types.ImportTask | None:
        """What an upload of the same build has begun; it is that of this upload from now on."""
        wanted = self._job.build_tags.items()
        for task in self._ec2.import_tasks(whole=self._whole):
            ours = wanted <= dict(task.metadata).items() and IMAGE_KEY not in task.metadata
            if ours and task.status not in types.FAILED_TASKS and self._has_result(task):
                log.info("%s: import %s of an interrupted upload is taken up again", self._wait.head, task.id)
                self._ec2.tag_now([task.id], self._job.tags)
                self._wait.sent(self._job.size)
                if task.bucket == self._store.bucket and task.key.startswith(PREFIX):
                    self.key = task.key
                return task
        return None

    def _has_result(self, task: types.ImportTask) -> bool:
        """Not if someone has deleted it."""
        if task.status != types.COMPLETED:
            return True
        found = [self._ec2.snapshot(snapshot_id) for snapshot_id in task.snapshot_ids]
        return bool(found) and None not in found

    def _imported(self, task: types.ImportTask) -> types.ImportTask:
        told, task_id = "", task.id
        # It goes on while there is no answer.
        for task in self._wait.answers(f"import {task_id}", IMPORT_SECONDS, lambda: self._ec2.import_task(task_id)):
            if task.status == types.COMPLETED:
                return task
            if task.status in types.FAILED_TASKS:
                why = task.message or "AWS does not say why"
                raise ImageCreateException(f"{self._wait.head}: import {task.id} is {task.status}: {why}")
            if task.message != told:
                told = task.message
                log.debug("%s: import %s: %s, %s%%", self._wait.head, task.id, told, task.progress or "?")
        raise AssertionError("the looks end with an error")


# `BlockUpload`: writes an image to a snapshot, block by block, without S3 (``import-method: ebs-direct``, AW-18).
#
# Blocks that are empty are left out: AWS reads them as zeros. Each block goes with its SHA-256, and the snapshot is
# completed with one over all of these, so that AWS refuses what is not what was sent.

#: The only size that AWS knows.
BLOCK_BYTES: Final = 512 * 1024
_EMPTY: Final = bytes(BLOCK_BYTES)
#: AWS gives a snapshot up that gets no block for so long.
IDLE_MINUTES: Final = 240
#: Longest time that AWS may need to complete one.
COMPLETE_SECONDS: Final = 3600.0
#: Refusals of a block that another attempt may not meet (AW-18).
_PASSING: Final = frozenset({"ValidationException"})


class BlockUpload(uploads.ImageUploader):
    """One upload. ``upload()`` returns the id of the snapshot.

    :param wait: made by the thread that calls ``upload()``.
    """

    segment_size = BLOCK_BYTES
    #: AWS takes 1000 blocks a second of an account; what it puts off makes all of them slower.
    concurrency: ClassVar[int] = 16
    error_retries: ClassVar[int] = 4

    def __init__(self, ec2: Ec2, job: ImageJob, wait: UploadWait) -> None:
        super().__init__(ec2, log, job.path, job.name, dict(job.tags))
        self._ec2 = ec2
        self._job = job
        self._wait = wait
        self._snapshot_id = ""
        self._whole = hashlib.sha256()
        #: Was its completion ordered?
        self._ordered = False
        #: Of the blocks that are written. Each has one key.
        self._digests: dict[int, bytes] = {}

    # -- hooks --

    def startUpload(self) -> None:
        job = self._job
        arguments = {"VolumeSize": job.size_gib, "ClientToken": job.token, "Timeout": IDLE_MINUTES}
        arguments["Tags"] = types.tag_list(job.tags)
        self._snapshot_id = self._wait.when_allowed(lambda: self.retry(self._ec2.start_snapshot, arguments))

    def segmentRead(self, segment: uploads.Segment) -> None:
        self._whole.update(segment.data)

    def uploadSegment(self, segment: uploads.Segment) -> None:
        data = segment.data
        if data != _EMPTY[: len(data)]:
            data += bytes(BLOCK_BYTES - len(data))
            digest = hashlib.sha256(data).digest()
            self._ec2.put_block(self._snapshot_id, segment.index, data, digest)
            self._digests[segment.index] = digest

    def finishUpload(self) -> str:
        problem = file_problem(self._job, self._whole.hexdigest())
        if problem is not None:
            raise ImageCreateException(f"{self._wait.head} is not what was built: {problem}")
        digest = hashlib.sha256(b"".join(digest for _, digest in sorted(self._digests.items()))).digest()
        for snapshot in self._wait.answers(
            f"snapshot {self._snapshot_id}", COMPLETE_SECONDS, lambda: self._ended(digest)
        ):
            if snapshot is not None and snapshot.status == types.COMPLETED:
                break
            if snapshot is not None and snapshot.status == types.ERROR:
                raise ImageCreateException(
                    f"{self._wait.head}: AWS gave the snapshot up: {snapshot.reason or types.ERROR}"
                )
        return self._snapshot_id

    def abortUpload(self) -> None:
        if self._wait.stopped:
            log.info(
                "%s: the provider was stopped; the builder deletes snapshot %s", self._wait.head, self._snapshot_id
            )
        elif self._snapshot_id:
            self._ec2.discard_snapshot(self._snapshot_id)

    def shouldRetryException(self, exception: BaseException) -> bool:
        if self._wait.stopped:
            return False
        passing = isinstance(exception, CloudRefused) and exception.code in _PASSING
        # What AWS puts off was sent again several times.
        return isinstance(exception, CloudAway) or passing

    # -- inside --

    def _ended(self, digest: bytes) -> types.AwsSnapshot | None:
        """How it looks after its completion was ordered."""
        if not self._ordered:
            try:
                self._ec2.complete_snapshot(self._snapshot_id, len(self._digests), digest)
            except CloudRefused:
                snapshot = self._ec2.snapshot(self._snapshot_id)
                if snapshot is None or snapshot.status != types.COMPLETED:
                    raise
                # The answer of an earlier call was lost.
            self._ordered = True
        return self._ec2.snapshot(self._snapshot_id)
