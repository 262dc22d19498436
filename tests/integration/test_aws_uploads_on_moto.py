# SPDX-License-Identifier: Apache-2.0
"""Uploads of images to moto, which keeps the data: an independent check of what is sent (AW-17, AW-18).

moto knows no imports, no checksums of blocks, and makes AMIs without the devices and tags that they are given.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.aws import AwsAdapter
from nodepool.driver.aws.images import BLOCK_BYTES, PART_BYTES, BlockUpload, ImageJob, S3Upload, UploadWait, image_tags
from nodepool.driver.framework.uploads import PartsUpload, is_part
from tests.support.moto_server import BUCKET, REGION, MotoServer
from tests.support.wait import present
from tests.unit.driver.aws.support import PROVIDER, load, section

IDS = {"nodepool_provider_name": PROVIDER, "nodepool_build_id": "b" * 32, "nodepool_upload_id": "0000000001"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    made = MotoServer(tmp_path_factory.mktemp("moto"))
    made.start()
    yield made
    made.stop()


@pytest.fixture
def moto(server: MotoServer, monkeypatch: pytest.MonkeyPatch) -> MotoServer:
    server.reset()
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server


@pytest.fixture
def adapter(moto: MotoServer) -> Iterator[AwsAdapter]:
    more: dict[str, Any] = {
        "region-name": REGION,
        "object-storage": {"bucket-name": BUCKET},
        "diskimages": [{"name": "debian", "import-method": "ebs-direct"}],
    }
    made = AwsAdapter(load(section(**more)))
    yield made
    made.stop()


def job(adapter: AwsAdapter, path: Path, data: bytes) -> ImageJob:
    path.write_bytes(data)
    image = adapter.config.diskimages["debian"]
    return ImageJob("debian-1", str(path), len(data), "raw", image, image_tags(image, IDS), None)


def wait(adapter: AwsAdapter, given: ImageJob) -> UploadWait:
    return UploadWait(adapter.config, given, adapter.client.transport.stopped)


def test_blocks(moto: MotoServer, adapter: AwsAdapter, tmp_path: Path) -> None:
    """AW-18: what is in the snapshot is the file, and zeros behind its end."""
    data = b"".join(os.urandom(8) * (BLOCK_BYTES // 8) if number % 2 else bytes(BLOCK_BYTES) for number in range(9))
    given = job(adapter, tmp_path / "image", data + b"end")
    ec2 = adapter.client
    snapshot_id = BlockUpload(ec2, given, wait(adapter, given)).upload()
    ebs = moto.client("ebs")
    shown = ebs.list_snapshot_blocks(SnapshotId=snapshot_id)["Blocks"]
    assert sorted(block["BlockIndex"] for block in shown) == [1, 3, 5, 7, 9]
    read = bytearray(10 * BLOCK_BYTES)
    for block in shown:
        answer = ebs.get_snapshot_block(
            SnapshotId=snapshot_id, BlockIndex=block["BlockIndex"], BlockToken=block["BlockToken"]
        )
        read[block["BlockIndex"] * BLOCK_BYTES : (block["BlockIndex"] + 1) * BLOCK_BYTES] = answer["BlockData"].read()
    assert bytes(read) == (data + b"end").ljust(len(read), b"\0")
    (found,) = moto.ec2.describe_snapshots(SnapshotIds=[snapshot_id])["Snapshots"]
    tags = {tag["Key"]: tag["Value"] for tag in found["Tags"]}
    # How far it was: a number that depends on the time.
    assert tags == IDS
    assert (found["State"], found["VolumeSize"]) == ("completed", 1)


@pytest.mark.parametrize("size", [0, 100, 20 * 2**20 + 3])
def test_objects(moto: MotoServer, adapter: AwsAdapter, tmp_path: Path, size: int) -> None:
    """AW-17: in one piece or in several."""
    store = present(adapter.images.store)
    data = os.urandom(size)
    given = job(adapter, tmp_path / "image", data)
    assert S3Upload(store, given, wait(adapter, given)).upload() == given.key
    s3 = moto.client("s3")
    assert s3.get_object(Bucket=BUCKET, Key=given.key)["Body"].read() == data
    tags = s3.get_object_tagging(Bucket=BUCKET, Key=given.key)["TagSet"]
    assert {tag["Key"]: tag["Value"] for tag in tags} == IDS
    other = dataclasses.replace(given, tags={**given.tags, "nodepool_provider_name": "south"})
    assert S3Upload(store, other, wait(adapter, other)).upload() == other.key
    assert list(store.keys("nodepool/north/")) == [given.key]
    store.delete(given.key)
    assert list(store.keys("nodepool/")) == [other.key]


def test_unfinished_objects(moto: MotoServer, adapter: AwsAdapter) -> None:
    """AW-20"""
    store = present(adapter.images.store)
    moto.client("s3").create_multipart_upload(Bucket=BUCKET, Key="nodepool/north/x")
    (found,) = store.open_uploads("nodepool/north/")
    store.abort(found)
    assert list(store.open_uploads("nodepool/")) == []


def test_objects_of_interrupted_uploads(moto: MotoServer, adapter: AwsAdapter, tmp_path: Path) -> None:
    """AW-17: the parts that are there are not sent again."""
    store = present(adapter.images.store)
    data = os.urandom(20 * 2**20 + 3)
    given = job(adapter, tmp_path / "image", data)
    begun = PartsUpload(f"{given.build_prefix}0000000000/debian-0.raw", "")
    begun = begun._replace(upload_id=store.begin(begun.key, IDS))
    store.put_part(begun, 2, data[PART_BYTES : 2 * PART_BYTES])
    first = store.parts(begun)
    assert is_part(first[2], data[PART_BYTES : 2 * PART_BYTES])
    assert S3Upload(store, given, wait(adapter, given)).upload() == begun.key
    assert moto.client("s3").get_object(Bucket=BUCKET, Key=begun.key)["Body"].read() == data
    assert list(store.open_uploads("nodepool/")) == []


def test_image(moto: MotoServer, adapter: AwsAdapter, tmp_path: Path) -> None:
    """AW-18, AW-19: registered, and gone again."""
    path = tmp_path / "image"
    path.write_bytes(b"content")
    image = adapter.config.diskimages["debian"]
    image_id = adapter.uploadImage(image, "debian-1", str(path), "raw", IDS)
    assert moto.ec2.describe_images(ImageIds=[image_id])["Images"][0]["Name"] == "debian-1"
    adapter.deleteImage(image_id)
    assert not moto.ec2.describe_images(Owners=["self"], Filters=[{"Name": "name", "Values": ["debian-1"]}])["Images"]
    adapter.deleteImage(image_id)
