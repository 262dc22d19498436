# SPDX-License-Identifier: Apache-2.0
"""Uploads of images through botocore, in the simulated region (AW-17 to AW-20)."""

from __future__ import annotations

import hashlib
import os
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.aws import AwsAdapter
from nodepool.driver.aws.images import BLOCK_BYTES
from nodepool.driver.framework import uploads as framework_uploads
from nodepool.driver.framework.uploads import UploadGivenUp, UploadInterrupted
from nodepool.exceptions import CloudUnavailableException, ImageCreateException, NotFound
from nodepool.plan.retries import Backoff
from simulators.aws import AwsSimulator
from simulators.aws.cloud import Region
from tests.unit.driver.aws.support import PROVIDER, load, section

BUILD = "b" * 32
#: Of the file: blocks of two kinds, others that are empty, and one that is short.
DATA = b"".join(bytes([number % 3]) * BLOCK_BYTES for number in range(7)) + b"end"
#: Blocks that are written of it.
WRITTEN = 5
OTHER = "c" * 32


def ids(upload: int = 1, provider: str = PROVIDER, build: str = BUILD) -> dict[str, str]:
    """What the image of an upload carries."""
    return {"nodepool_provider_name": provider, "nodepool_build_id": build, "nodepool_upload_id": f"{upload:010}"}


class Uploads:
    """A provider, its region, and a file to upload.

    :param method: of the import.
    """

    def __init__(self, simulator: AwsSimulator, directory: Path, method: str) -> None:
        self.simulator = simulator
        self.method = method
        self.file = directory / "image.raw"
        self.file.write_bytes(DATA)
        self.adapter = self.new_adapter()

    def new_adapter(self, **more: Any) -> AwsAdapter:
        """As after a restart."""
        image = {"name": "debian", "import-method": self.method, "tags": {"team": "ci"}}
        given = {"region-name": "us-east-1", "object-storage": {"bucket-name": "images"}, "diskimages": [image]}
        return AwsAdapter(load(section(**{**given, **more})))

    def upload(
        self, upload: int = 1, report: Callable[[int, int], None] = lambda *_: None, sha256: str | None = None
    ) -> str:
        image = self.adapter.config.diskimages["debian"]
        with framework_uploads.watched(report):
            return self.adapter.uploadImage(
                image, f"debian-{upload}", str(self.file), "raw", ids(upload), sha256=sha256
            )

    def events(self, name: str) -> int:
        with self.simulator.cloud() as cloud:
            return cloud.core.events[name]

    def look(self, ask: Callable[[Region], Any]) -> Any:
        with self.simulator.cloud() as cloud:
            return ask(cloud)

    def left(self) -> dict[str, int]:
        """What no image needs."""
        found: dict[str, int] = self.look(lambda cloud: cloud.left_of_uploads())
        return {kind: number for kind, number in found.items() if number}


@pytest.fixture
def region(monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsSimulator]:
    monkeypatch.setattr(framework_uploads, "LOOK", Backoff(0.02, 0.1))
    monkeypatch.setattr(framework_uploads.ImageUploader, "retry_pause_seconds", 0.01)
    with AwsSimulator() as simulator:
        for name, value in simulator.environment.items():
            monkeypatch.setenv(name, value)
        yield simulator
        assert simulator.state()["bugs"] == []


@pytest.fixture
def uploads(region: AwsSimulator, tmp_path: Path, method: str) -> Iterator[Uploads]:
    made = Uploads(region, tmp_path, method)
    yield made
    made.adapter.stop()


every_method = pytest.mark.parametrize("method", ["ebs-direct", "snapshot", "image"])
by_blocks = pytest.mark.parametrize("method", ["ebs-direct"])
by_import = pytest.mark.parametrize("method", ["snapshot", "image"])


@every_method
def test_image_and_snapshot(uploads: Uploads) -> None:
    """CM-1: both have all tags. Nothing else is there; after the deletion nothing at all (AW-19)."""
    image_id = uploads.upload()
    image = uploads.look(lambda cloud: cloud.images.get(image_id))
    snapshot_id = image.devices[0]["Ebs"]["SnapshotId"]
    snapshot = uploads.look(lambda cloud: cloud.snapshots.get(snapshot_id))
    assert image.tags == snapshot.tags == {"team": "ci", **ids()}
    assert image.state == "available"
    assert uploads.left() == {}
    uploads.adapter.deleteImage(image_id)
    assert uploads.look(lambda cloud: len(cloud.images.images)) == 1
    assert not uploads.look(lambda cloud: cloud.snapshots.snapshots)


@by_import
def test_objects_of_several_parts(uploads: Uploads) -> None:
    """AW-17: each part has a checksum; the file is the one that was built (U-14)."""
    data = os.urandom(1024) * (20 * 1024)
    uploads.file.write_bytes(data)
    seen: list[int] = []
    uploads.upload(report=lambda done, total: seen.append(done), sha256=hashlib.sha256(data).hexdigest())
    assert seen[-1] == len(data)
    assert uploads.events("objects stored") == uploads.events("objects deleted") == 1
    with pytest.raises(ImageCreateException, match="is the disk well"):
        uploads.upload(2, sha256="00")
    assert uploads.left() == {}
    assert uploads.events("imports begun") == 1


def interrupted_after(reports: int) -> Callable[[int, int], None]:
    seen: list[int] = []

    def report(done: int, total: int) -> None:
        seen.append(done)
        if len(seen) > reports:
            raise UploadInterrupted("the builder stops")

    return report


@by_import
def test_parts_that_outlive_the_builder(uploads: Uploads) -> None:
    """AW-17: only the parts that are missing are sent."""
    uploads.file.write_bytes(os.urandom(1024) * (50 * 1024))
    uploads.simulator.change(latencies={"s3.UploadPart": 0.2})
    with pytest.raises(UploadInterrupted):
        uploads.upload(1, interrupted_after(2))
    assert uploads.left() == {"uploads": 1}
    uploads.adapter.stop()
    uploads.adapter = uploads.new_adapter()
    ((key, there),) = uploads.look(lambda cloud: [(one.key, len(one.parts)) for one in cloud.objects.uploads.values()])
    assert 2 <= there <= 6
    sent = uploads.simulator.state()["calls"]["s3.UploadPart"]
    image_id = uploads.upload(2)
    assert uploads.simulator.state()["calls"]["s3.UploadPart"] - sent == 7 - there
    assert uploads.events("objects stored") == uploads.events("imports begun") == 1
    assert f"{1:010}" in key, "the key stays that of the first upload"
    assert uploads.look(lambda cloud: cloud.images.get(image_id).tags) == {"team": "ci", **ids(2)}
    assert uploads.left() == {}


@by_import
def test_without_the_right_to_look_for_parts(uploads: Uploads) -> None:
    """AW-17: what only saves time is left out; the upload is made."""
    rule = {"kind": "403", "code": "AccessDenied", "count": 100}
    uploads.simulator.change(errors=[{**rule, "operation": "s3.List*"}])
    uploads.upload()
    assert uploads.events("imports begun") == 1


@every_method
def test_overtaken(uploads: Uploads) -> None:
    """U-12, U-9: nothing is left."""
    uploads.simulator.change(import_seconds=30, end_seconds=0)

    def report(done: int, total: int) -> None:
        begun = uploads.look(lambda cloud: cloud.imports.tasks)
        if begun or uploads.method == "ebs-direct":
            raise UploadGivenUp("a newer build is ready")

    with pytest.raises(UploadGivenUp):
        uploads.upload(1, report)
    assert uploads.left() == {}
    assert uploads.look(lambda cloud: len(cloud.images.images)) == 1


@by_import
def test_bucket_that_is_not_there(uploads: Uploads) -> None:
    """The error names the remedy."""
    uploads.simulator.change(buckets=[])
    with pytest.raises(NotFound, match=r"NoSuchBucket: .*; create the bucket, or correct bucket-name"):
        uploads.upload()


LOST = {
    "ebs-direct": [
        *("ebs.StartSnapshot", "ebs.PutSnapshotBlock", "ebs.CompleteSnapshot"),
        *("ec2.DescribeSnapshots", "ec2.RegisterImage", "ec2.DescribeImages"),
    ],
    "snapshot": [
        *("s3.CreateMultipartUpload", "s3.UploadPart", "s3.CompleteMultipartUpload", "s3.HeadObject", "s3.List*"),
        *("ec2.ImportSnapshot", "ec2.DescribeImport*", "s3.DeleteObject"),
        *("ec2.DescribeSnapshots", "ec2.RegisterImage"),
    ],
    "image": ["ec2.ImportImage", "ec2.DescribeImport*", "ec2.DescribeImages"],
}


@pytest.mark.parametrize("kind", ["drop", "503"])
@pytest.mark.parametrize(
    ("method", "operation"), [(method, operation) for method, found in LOST.items() for operation in found]
)
def test_lost_answer(uploads: Uploads, operation: str, kind: str) -> None:
    """A call that was carried out and not answered: the upload goes on, and nothing is doubled."""
    uploads.simulator.change(errors=[{"operation": operation, "kind": kind, "after": True, "count": 1}])
    try:
        uploads.upload()
    except CloudUnavailableException:
        # What is asked before anything is made, or when all was sent: the builder begins anew.
        assert operation in ("ec2.DescribeSnapshots", "ec2.DescribeImport*")
        assert uploads.left() == {}
        uploads.upload(2)
    assert uploads.look(lambda cloud: len(cloud.images.images)) == 2
    assert uploads.events("snapshots created") == 1
    # An object that could not be deleted is found by its key.
    assert uploads.left() in ({}, {"objects": 1} if operation == "s3.DeleteObject" else {})


@by_blocks
def test_throttled_blocks(uploads: Uploads) -> None:
    """AW-18: all blocks pause, and are written."""
    rule = {"operation": "ebs.PutSnapshotBlock", "kind": "400", "code": "RequestThrottledException", "count": 1}
    uploads.simulator.change(errors=[rule])
    uploads.upload()
    assert uploads.events("blocks written") == WRITTEN


@every_method
def test_what_is_left_over(uploads: Uploads) -> None:
    """AW-20, R-4: of uploads that were killed. It is listed with the ids of the upload, and deleted; others' stays."""
    stored = uploads.adapter.images.store
    assert stored is not None

    def leave(provider: str, number: int) -> None:
        tags = [{"Key": key, "Value": value} for key, value in ids(number, provider, OTHER).items()]
        # Botocore's client with the settings of the driver.
        client = uploads.adapter.client.transport._client  # noqa: SLF001
        client("ebs").start_snapshot(VolumeSize=1, Tags=tags)
        key = f"nodepool/{provider}/{OTHER}/{number:010}/debian.raw"
        client("s3").put_object(Bucket="images", Key=key, Body=b"content")
        client("s3").create_multipart_upload(Bucket="images", Key=key)
        disk = {"Format": "raw", "UserBucket": {"S3Bucket": "images", "S3Key": key}}
        task = [{"ResourceType": "import-snapshot-task", "Tags": tags}]
        # One ends, and its result has no tags; one runs.
        for seconds in (0, 1000):
            uploads.simulator.change(import_seconds=seconds)
            client("ec2").import_snapshot(DiskContainer=disk, TagSpecifications=task)

    leave(PROVIDER, 1)
    leave("south", 2)
    # Botocore's client with the settings of the driver.
    uploads.adapter.client.transport._client("s3").put_object(Bucket="images", Key="debian.raw", Body=b"")  # noqa: SLF001
    uploads.simulator.change(import_seconds=0, end_seconds=0)
    image_id = uploads.upload(3)
    for _ in range(2):
        found = {resource.type: resource for resource in uploads.adapter.listResources()}
    assert found.keys() == {"ami", "snapshot", "import", "object", "part"}
    listed = list(uploads.adapter.listImages())
    assert {image.shown_id for image in listed if image.usable} == {image_id}
    unusable = [image for image in listed if not image.usable]
    assert len(unusable) == 5
    assert all(image.metadata == ids(1, build=OTHER) for image in unusable)
    for image in unusable:
        uploads.adapter.deleteResource(image.id)
    assert uploads.left() == {"snapshots": 2, "objects": 2, "uploads": 1, "imports": 1}
    assert [resource.type for resource in uploads.adapter.listResources()] == ["ami"]


@by_blocks
def test_memory(uploads: Uploads) -> None:
    """Of a large file only a few blocks are in memory."""
    with open(uploads.file, "wb") as file:
        for _ in range(400):
            file.write(os.urandom(16) * (BLOCK_BYTES // 16))
    tracemalloc.start()
    try:
        uploads.upload()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 80 * 2**20, f"{peak / 2**20:.0f} MiB of a file of 200 MiB"
