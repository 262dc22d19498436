# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.aws.image_store` (AW-17, AW-18, CM-1, U-4)."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from nodepool.driver.aws import image_store
from tests.unit.driver.aws.image_support import BUCKET, IDS, ImageRig


def test_tags(tmp_path: Path) -> None:
    """CM-1, U-4: the build's, then the image's, then whose it is."""
    rig = ImageRig(tmp_path, {"tags": {"team": "ci", "size": 7, "nodepool_build_id": "other"}})
    metadata = {"team": "builders", "os": "linux", **IDS}
    found = image_store.image_tags(rig.config.diskimages["debian"], metadata)
    assert found == {"team": "ci", "size": "7", "os": "linux", **IDS}


def test_key_says_whose_it_is(tmp_path: Path) -> None:
    """AW-20: nobody has to ask for the tags of objects."""
    job = ImageRig(tmp_path).job()
    odd = dataclasses.replace(job, tags={**IDS, "nodepool_provider_name": "north/2 b"})
    for each in (job, odd):
        assert image_store.metadata_of_key(each.key) == each.upload_tags
        assert each.key.startswith(image_store.provider_prefix(each.tags["nodepool_provider_name"]))
        assert each.key.endswith("/debian-1.raw")
    assert image_store.metadata_of_key("debian-1.raw") == {}
    assert image_store.metadata_of_key("nodepool/readme") == {}


def test_key_of_an_installation(tmp_path: Path) -> None:
    """D-10: so the objects of another one are left to it."""
    job = ImageRig(tmp_path).job()
    tags = {**IDS, "nodepool_installation_id": "0123456789abcdef"}
    named = dataclasses.replace(job, tags=tags)
    assert image_store.metadata_of_key(named.key) == tags
    assert named.key.startswith(job.build_prefix)


def test_tags_of_an_object() -> None:
    """AW-17: S3 takes ten, and not all characters: ours come first."""
    many = {f"tag-{number}": "value" for number in range(20)}
    found = parse_qs(image_store.object_tagging({**many, "odd": "a*b", **IDS}))
    assert len(found) == 10
    assert {key: found[key] for key in IDS} == {key: [value] for key, value in IDS.items()}
    assert "odd" not in parse_qs(image_store.object_tagging({"odd": "a*b", "good": "a b"}))


def test_token(tmp_path: Path) -> None:
    """AW-18: of build and upload; the same call again makes nothing new."""
    job = ImageRig(tmp_path).job()
    assert job.token == dataclasses.replace(job, size=9).token
    assert job.token != dataclasses.replace(job, tags={**job.tags, "nodepool_upload_id": "8"}).token
    assert len(job.token) == 64


@pytest.mark.parametrize(("size", "gib"), [(0, 1), (1, 1), (2**30, 1), (2**30 + 1, 2)])
def test_size_of_the_volume(tmp_path: Path, size: int, gib: int) -> None:
    """AW-18: the file in whole GiB."""
    assert dataclasses.replace(ImageRig(tmp_path).job(), size=size).size_gib == gib


def test_imports(tmp_path: Path) -> None:
    """AW-17: the tags are those of the task."""
    job = ImageRig(tmp_path, {"architecture": "arm64"}).job()
    source = {"Format": "raw", "UserBucket": {"S3Bucket": BUCKET, "S3Key": "debian-1.raw"}}
    snapshot, image = (
        make(job, BUCKET, "debian-1.raw") for make in (image_store.snapshot_import, image_store.image_import)
    )
    assert snapshot["DiskContainer"] == source
    assert (image["DiskContainers"], image["Architecture"]) == ([source], "arm64")
    for arguments, kind in ((snapshot, "import-snapshot-task"), (image, "import-image-task")):
        (specification,) = arguments["TagSpecifications"]
        assert specification["ResourceType"] == kind
        assert {tag["Key"]: tag["Value"] for tag in specification["Tags"]} == IDS
        assert arguments["ClientToken"] == job.token


@pytest.mark.parametrize(
    ("image", "ebs", "more"),
    [
        ({}, {"VolumeType": "gp3"}, {"EnaSupport": True}),
        (
            {"volume-type": "io2", "volume-size": 40, "iops": 5000, "ena-support": False, "imds-support": "v2.0"},
            {"VolumeType": "io2", "VolumeSize": 40, "Iops": 5000},
            {"EnaSupport": False, "ImdsSupport": "v2.0"},
        ),
        ({"throughput": 200}, {"VolumeType": "gp3", "Throughput": 200}, {"EnaSupport": True}),
    ],
)
def test_registration(tmp_path: Path, image: dict[str, Any], ebs: dict[str, Any], more: dict[str, Any]) -> None:
    """AW-17"""
    found = image_store.registration(ImageRig(tmp_path, image).job(), "snap-1")
    (tags,) = found.pop("TagSpecifications")
    assert tags["ResourceType"] == "image"
    assert found == {
        "Name": "debian-1",
        "Architecture": "x86_64",
        "RootDeviceName": "/dev/sda1",
        "BlockDeviceMappings": [
            {"DeviceName": "/dev/sda1", "Ebs": {"SnapshotId": "snap-1", "DeleteOnTermination": True, **ebs}}
        ],
        "VirtualizationType": "hvm",
        **more,
    }
