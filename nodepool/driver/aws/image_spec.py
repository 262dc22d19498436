# SPDX-License-Identifier: Apache-2.0
"""What an uploaded image is to be like: tags, object in S3, and arguments of the calls (AW-17, AW-18). Pure."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urlencode

from nodepool.driver.aws.types import tag_list
from nodepool.driver.statemachine.metadata import BUILD_KEY, INSTALLATION_KEY, PROVIDER_KEY, UPLOAD_KEY

if TYPE_CHECKING:
    from nodepool.driver.aws.image_config import AwsDiskImage

GIB: Final = 2**30
#: The root of an AMI that is made of a snapshot.
ROOT_DEVICE: Final = "/dev/sda1"
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


def tag_specifications(kind: str, tags: Mapping[str, str]) -> list[dict[str, Any]]:
    """Tags of what a call makes."""
    return [{"ResourceType": kind, "Tags": tag_list(tags)}]


def snapshot_import(job: ImageJob, bucket: str, key: str) -> dict[str, Any]:
    """Arguments of ImportSnapshot.

    :param key: of the object.
    """
    return {
        "ClientToken": job.token,
        "DiskContainer": {"Format": job.format, "UserBucket": {"S3Bucket": bucket, "S3Key": key}},
        "TagSpecifications": tag_specifications("import-snapshot-task", job.tags),
    }


def image_import(job: ImageJob, bucket: str, key: str) -> dict[str, Any]:
    """Arguments of ImportImage.

    :param key: of the object.
    """
    return {
        "ClientToken": job.token,
        "Architecture": job.image.architecture,
        "DiskContainers": [{"Format": job.format, "UserBucket": {"S3Bucket": bucket, "S3Key": key}}],
        "TagSpecifications": tag_specifications("import-image-task", job.tags),
    }


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
        "VolumeType": image.volume_type,
        "VolumeSize": image.volume_size,
        "Iops": image.iops,
        "Throughput": image.throughput,
    }
    ebs = {
        "SnapshotId": snapshot_id,
        "DeleteOnTermination": True,
        **{name: value for name, value in volume.items() if value},
    }
    arguments: dict[str, Any] = {
        "Name": job.name,
        "Architecture": image.architecture,
        "RootDeviceName": ROOT_DEVICE,
        "BlockDeviceMappings": [{"DeviceName": ROOT_DEVICE, "Ebs": ebs}],
        "VirtualizationType": "hvm",
        "EnaSupport": image.ena_support,
        "TagSpecifications": tag_specifications("image", job.tags),
    }
    if image.imds_support:
        arguments["ImdsSupport"] = image.imds_support
    return arguments
