# SPDX-License-Identifier: Apache-2.0
"""Uploads to a region of answers that the test writes. Time passes at once."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from typing import Any

from nodepool.driver.aws.image_store import ImageJob, UploadWait, image_tags
from nodepool.driver.aws.images import AwsImages
from tests.support.manual_clock import ManualClock
from tests.unit.driver.aws.support import PROVIDER, Rig, section

BUCKET = "images"
NAME = "debian-1"
BUILD = "b" * 32
IDS = {"nodepool_provider_name": PROVIDER, "nodepool_build_id": BUILD, "nodepool_upload_id": "0000000007"}
#: Of an upload of the same build that was interrupted.
BEFORE = {**IDS, "nodepool_upload_id": "0000000006"}


def tag_set(tags: dict[str, str]) -> list[dict[str, str]]:
    """Tags as AWS shows them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def tags_in(arguments: dict[str, Any]) -> dict[str, str]:
    """Tags of a call of CreateTags."""
    return {tag["Key"]: tag["Value"] for tag in arguments["Tags"]}


class Stopped(threading.Event):
    """A pause is over at once."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.pauses: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.clock.now += timeout or 0
        self.pauses.append(timeout or 0)
        return self.is_set()


class ImageRig(Rig):
    """A provider with a disk image ``debian``.

    :param image: more of the image's section.
    :param more: of the provider's section.
    """

    def __init__(self, directory: Path, image: dict[str, Any] | None = None, **more: Any) -> None:
        storage = {"bucket-name": BUCKET}
        disk = {"name": "debian", **(image or {})}
        super().__init__(section(**{"object-storage": storage, "diskimages": [disk], **more}))
        self.directory = directory
        transport = self.adapter.client.transport
        self.stopped = transport.stopped = Stopped(self.clock)
        self.images = AwsImages(self.config, self.adapter.client, self.clock)
        self.region.answers |= {"create_tags": {}, "describe_snapshots": {"Snapshots": []}}

    def job(self, content: bytes = b"content", sha256: str | None = "", image_format: str = "raw") -> ImageJob:
        """An upload of a file.

        :param sha256: "" = the right one.
        """
        path = self.directory / "image"
        path.write_bytes(content)
        image = self.config.diskimages["debian"]
        checksum = hashlib.sha256(content).hexdigest() if sha256 == "" else sha256
        return ImageJob(NAME, str(path), len(content), image_format, image, image_tags(image, IDS), checksum)

    def wait(self, job: ImageJob) -> UploadWait:
        return UploadWait("upload", job.size, self.stopped, self.clock)
