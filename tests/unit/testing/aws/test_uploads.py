# SPDX-License-Identifier: Apache-2.0
"""Snapshots, imports, AMIs and objects of the simulated region, by AWS's own client, whose models check the shapes."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Callable
from typing import Any

import pytest
from boto3.s3.transfer import TransferConfig

from tests.unit.testing.aws.conftest import Caller

BLOCK = b"x" * 512 * 1024
DIGEST = hashlib.sha256(BLOCK).digest()
Refused = Callable[..., str]


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def put(caller: Caller, snapshot_id: str, index: int = 0, **changes: Any) -> Any:
    given = {"DataLength": len(BLOCK), "Checksum": b64(DIGEST), "ChecksumAlgorithm": "SHA256", **changes}
    return caller.client("ebs").put_snapshot_block(SnapshotId=snapshot_id, BlockIndex=index, BlockData=BLOCK, **given)


def started(caller: Caller, **more: Any) -> str:
    return str(caller.client("ebs").start_snapshot(VolumeSize=1, **more)["SnapshotId"])


def completed(caller: Caller, snapshot_id: str, blocks: int, digest: bytes) -> dict[str, Any]:
    """The snapshot as it is shown when its time is over."""
    checksum = {"Checksum": b64(digest), "ChecksumAlgorithm": "SHA256", "ChecksumAggregationMethod": "LINEAR"}
    answer = caller.client("ebs").complete_snapshot(SnapshotId=snapshot_id, ChangedBlocksCount=blocks, **checksum)
    assert answer["Status"] == "pending"
    caller.clock.now += 10
    (found,) = caller.ec2.describe_snapshots(SnapshotIds=[snapshot_id])["Snapshots"]
    shown: dict[str, Any] = found
    return shown


def snapshot(caller: Caller) -> str:
    """A whole one."""
    snapshot_id = started(caller)
    put(caller, snapshot_id)
    completed(caller, snapshot_id, 1, hashlib.sha256(DIGEST).digest())
    return snapshot_id


def store(caller: Caller, key: str = "disk", data: bytes = b"content") -> None:
    caller.client("s3").put_object(Bucket="images", Key=key, Body=data)


def source(key: str = "disk") -> dict[str, Any]:
    return {"Format": "raw", "UserBucket": {"S3Bucket": "images", "S3Key": key}}


def task(caller: Caller, task_id: str) -> dict[str, Any]:
    found = caller.ec2.describe_import_snapshot_tasks(ImportTaskIds=[task_id])["ImportSnapshotTasks"]
    detail: dict[str, Any] = found[0]["SnapshotTaskDetail"]
    return detail


class TestBlocks:
    def test_snapshot(self, caller: Caller) -> None:
        """It is complete when its blocks have the checksum that the client says."""
        snapshot_id = started(caller, Tags=[{"Key": "a", "Value": "b"}], Timeout=60, ClientToken="t1")
        for index in (7, 3):
            put(caller, snapshot_id, index)
        found = completed(caller, snapshot_id, 2, hashlib.sha256(DIGEST + DIGEST).digest())
        assert (found["State"], found["VolumeSize"], found["Tags"]) == ("completed", 1, [{"Key": "a", "Value": "b"}])

    @pytest.mark.parametrize(("blocks", "digest"), [(2, hashlib.sha256(DIGEST).digest()), (1, DIGEST)])
    def test_other_blocks(self, caller: Caller, blocks: int, digest: bytes) -> None:
        """AWS finds that out later."""
        snapshot_id = started(caller)
        put(caller, snapshot_id)
        found = completed(caller, snapshot_id, blocks, digest)
        assert found["State"] == "error"
        assert "does not match" in found["StateMessage"]

    @pytest.mark.parametrize(
        ("index", "changes"),
        [(0, {"Checksum": b64(bytes(32))}), (0, {"DataLength": 4096}), (2048, {}), (0, {"Checksum": "???"})],
    )
    def test_bad_block(self, caller: Caller, refused: Refused, index: int, changes: dict[str, Any]) -> None:
        snapshot_id = started(caller)
        assert refused(put, caller, snapshot_id, index, **changes) == "ValidationException"

    def test_what_is_not_pending(self, caller: Caller, refused: Refused) -> None:
        assert refused(put, caller, snapshot(caller)) == "ValidationException"
        assert refused(put, caller, "snap-00000000000000000") == "ResourceNotFoundException"

    def test_token(self, caller: Caller, refused: Refused) -> None:
        """The same call again makes nothing new."""
        assert started(caller, ClientToken="t1") == started(caller, ClientToken="t1")
        start = caller.client("ebs").start_snapshot
        assert refused(start, VolumeSize=2, ClientToken="t1") == "ConflictException"

    def test_limits(self, caller: Caller, refused: Refused) -> None:
        caller.simulator.change(import_limit=1)
        snapshot_id = started(caller)
        assert refused(started, caller) == "ConcurrentLimitExceededException"
        caller.ec2.delete_snapshot(SnapshotId=snapshot_id)
        caller.simulator.change(throttles=True)
        snapshot_id = started(caller)
        codes = {refused(put, caller, snapshot_id, DataLength=1) for _ in range(1001)}
        assert codes == {"ValidationException", "RequestThrottledException"}


class TestImages:
    def register(self, caller: Caller, snapshot_id: str, **more: Any) -> str:
        devices = [{"DeviceName": "/dev/sda1", "Ebs": {"SnapshotId": snapshot_id, **more.pop("Ebs", {})}}]
        given = {"Name": "mine", "RootDeviceName": "/dev/sda1", "BlockDeviceMappings": devices, **more}
        return str(caller.ec2.register_image(**given)["ImageId"])

    def test_life(self, caller: Caller, refused: Refused) -> None:
        """Pending, available, gone; its snapshot stays as long as it is there."""
        snapshot_id = snapshot(caller)
        tags = [{"ResourceType": "image", "Tags": [{"Key": "a", "Value": "b"}]}]
        image_id = self.register(caller, snapshot_id, Ebs={"VolumeType": "gp3"}, TagSpecifications=tags)
        (shown,) = caller.ec2.describe_images(Owners=["self"])["Images"]
        assert (shown["ImageId"], shown["State"], shown["Tags"]) == (image_id, "pending", [{"Key": "a", "Value": "b"}])
        assert shown["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] == 1
        caller.clock.now += 10
        assert caller.ec2.describe_images(ImageIds=[image_id])["Images"][0]["State"] == "available"
        delete = caller.ec2.delete_snapshot
        assert refused(delete, SnapshotId=snapshot_id) == "InvalidSnapshot.InUse"
        caller.ec2.deregister_image(ImageId=image_id)
        delete(SnapshotId=snapshot_id)
        assert refused(delete, SnapshotId=snapshot_id) == "InvalidSnapshot.NotFound"
        assert refused(caller.ec2.deregister_image, ImageId=image_id) == "InvalidAMIID.NotFound"

    def test_refusals(self, caller: Caller, refused: Refused) -> None:
        snapshot_id = snapshot(caller)
        self.register(caller, snapshot_id)
        assert refused(self.register, caller, snapshot_id) == "InvalidAMIName.Duplicate"
        other = {"Name": "other"}
        assert refused(self.register, caller, "snap-0", **other) == "InvalidSnapshot.NotFound"
        assert refused(self.register, caller, started(caller), **other) == "IncorrectState"
        small = {**other, "Ebs": {"VolumeSize": 0}}
        assert refused(self.register, caller, snapshot_id, **small) == "InvalidBlockDeviceMapping"
        assert refused(self.register, caller, snapshot_id, RootDeviceName="/dev/xvda", **other) == (
            "InvalidBlockDeviceMapping"
        )
        assert refused(caller.ec2.deregister_image, ImageId=caller.image_id) == "AuthFailure"

    def test_tags_of_snapshots(self, caller: Caller) -> None:
        """They are found by them."""
        snapshot_id = snapshot(caller)
        caller.ec2.create_tags(Resources=[snapshot_id], Tags=[{"Key": "a", "Value": "b"}])
        for value, number in (("b", 1), ("c", 0)):
            filters = [{"Name": "tag:a", "Values": [value]}]
            assert len(caller.ec2.describe_snapshots(Filters=filters, OwnerIds=["self"])["Snapshots"]) == number


class TestImports:
    def test_snapshot(self, caller: Caller) -> None:
        """The task has the tags, its result has none."""
        store(caller)
        tags = [{"ResourceType": "import-snapshot-task", "Tags": [{"Key": "a", "Value": "b"}]}]
        given = {"DiskContainer": source(), "ClientToken": "t1", "TagSpecifications": tags}
        begun = caller.ec2.import_snapshot(**given)
        assert begun["ImportTaskId"] == caller.ec2.import_snapshot(**given)["ImportTaskId"]
        assert begun["SnapshotTaskDetail"]["Status"] == "active"
        caller.clock.now += 10
        (shown,) = caller.ec2.describe_import_snapshot_tasks()["ImportSnapshotTasks"]
        assert shown["Tags"] == [{"Key": "a", "Value": "b"}]
        detail = shown["SnapshotTaskDetail"]
        assert (detail["Status"], detail["UserBucket"]) == ("completed", {"S3Bucket": "images", "S3Key": "disk"})
        (made,) = caller.ec2.describe_snapshots(SnapshotIds=[detail["SnapshotId"]])["Snapshots"]
        assert (made["State"], made["Tags"]) == ("completed", [])
        assert begun["ImportTaskId"] in made["Description"]

    def test_image(self, caller: Caller) -> None:
        """An AMI that is called like the task, and its snapshot."""
        store(caller)
        task_id = caller.ec2.import_image(DiskContainers=[source()], Architecture="arm64")["ImportTaskId"]
        caller.clock.now += 10
        (shown,) = caller.ec2.describe_import_image_tasks(ImportTaskIds=[task_id])["ImportImageTasks"]
        assert shown["Status"] == "completed"
        (image,) = caller.ec2.describe_images(ImageIds=[shown["ImageId"]])["Images"]
        assert (image["Name"], image["Architecture"], image["State"]) == (task_id, "arm64", "available")
        snapshot_id = shown["SnapshotDetails"][0]["SnapshotId"]
        assert image["BlockDeviceMappings"][0]["Ebs"]["SnapshotId"] == snapshot_id
        caller.ec2.create_tags(Resources=[task_id, snapshot_id], Tags=[{"Key": "a", "Value": "b"}])
        assert caller.ec2.describe_import_image_tasks()["ImportImageTasks"][0]["Tags"]

    def test_failures(self, caller: Caller) -> None:
        """By a rule, or because the object is gone."""
        store(caller)
        caller.simulator.change(imports=[{"count": 1, "message": "ClientError: no"}])
        for message in ("ClientError: no", "ClientError: The specified key does not exist."):
            task_id = caller.ec2.import_snapshot(DiskContainer=source())["ImportTaskId"]
            if "key" in message:
                caller.client("s3").delete_object(Bucket="images", Key="disk")
            caller.clock.now += 10
            found = task(caller, task_id)
            assert (found["Status"], found["StatusMessage"]) == ("deleted", message)

    def test_cancel(self, caller: Caller, refused: Refused) -> None:
        store(caller)
        task_id = caller.ec2.import_snapshot(DiskContainer=source())["ImportTaskId"]
        assert caller.ec2.cancel_import_task(ImportTaskId=task_id)["PreviousState"] == "active"
        assert task(caller, task_id)["Status"] == "deleting"
        caller.clock.now += 10
        assert task(caller, task_id)["Status"] == "deleted"
        cancel = caller.ec2.cancel_import_task
        assert refused(cancel, ImportTaskId=task_id) == "IncorrectState"
        assert refused(cancel, ImportTaskId="import-snap-9") == "InvalidConversionTaskId.Malformed"

    def test_refusals(self, caller: Caller, refused: Refused) -> None:
        begin = caller.ec2.import_snapshot
        assert refused(begin, DiskContainer=source()) == "NoSuchKey"
        store(caller)
        begin(DiskContainer=source(), ClientToken="t1")
        assert refused(begin, DiskContainer=source("other"), ClientToken="t1") == "IdempotentParameterMismatch"
        assert refused(begin, DiskContainer={**source(), "Format": "vhdx"}) == "InvalidParameter"
        assert refused(caller.ec2.import_image, DiskContainers=[source(), source()]) == "InvalidParameter"
        caller.simulator.change(import_limit=1)
        assert refused(begin, DiskContainer=source()) == "ResourceCountLimitExceeded"
        filters = [{"Name": "task-state", "Values": ["active"]}]
        assert refused(caller.ec2.describe_import_snapshot_tasks, Filters=filters) == "InvalidParameterValue"


class TestObjects:
    def test_parts(self, caller: Caller) -> None:
        """As boto3 sends a large file."""
        config = TransferConfig(multipart_threshold=5 * 2**20, multipart_chunksize=5 * 2**20)
        s3, data = caller.client("s3"), bytes(11 * 2**20)
        extra = {"Tagging": "a=b&c=d", "ChecksumAlgorithm": "CRC32"}
        s3.upload_fileobj(io.BytesIO(data), "images", "dir/large file", ExtraArgs=extra, Config=config)
        assert s3.head_object(Bucket="images", Key="dir/large file")["ContentLength"] == len(data)
        tags = s3.get_object_tagging(Bucket="images", Key="dir/large file")["TagSet"]
        assert tags == [{"Key": "a", "Value": "b"}, {"Key": "c", "Value": "d"}]
        assert "Uploads" not in s3.list_multipart_uploads(Bucket="images")

    def test_lists(self, caller: Caller) -> None:
        """By prefix, in pages."""
        caller.simulator.change(page_limit=2)
        for key in ("a/1", "a/2", "a/3", "b/1"):
            store(caller, key)
        pages = caller.client("s3").get_paginator("list_objects_v2").paginate(Bucket="images", Prefix="a/")
        assert [[found["Key"] for found in answer["Contents"]] for answer in pages] == [["a/1", "a/2"], ["a/3"]]
        caller.client("s3").delete_object(Bucket="images", Key="a/1")
        assert caller.client("s3").list_objects_v2(Bucket="images", Prefix="a/1")["KeyCount"] == 0

    def test_unfinished(self, caller: Caller, refused: Refused) -> None:
        s3 = caller.client("s3")
        upload_id = s3.create_multipart_upload(Bucket="images", Key="a/1")["UploadId"]
        (shown,) = s3.list_multipart_uploads(Bucket="images", Prefix="a/")["Uploads"]
        assert (shown["Key"], shown["UploadId"]) == ("a/1", upload_id)
        s3.abort_multipart_upload(Bucket="images", Key="a/1", UploadId=upload_id)
        assert refused(s3.abort_multipart_upload, Bucket="images", Key="a/1", UploadId=upload_id) == "NoSuchUpload"

    def test_refusals(self, caller: Caller, refused: Refused) -> None:
        s3 = caller.client("s3")
        assert refused(s3.put_object, Bucket="other", Key="a", Body=b"") == "NoSuchBucket"
        bad = {"Bucket": "images", "Key": "a", "Body": b"data", "ChecksumCRC32": "AAAAAA=="}
        assert refused(s3.put_object, **bad) == "BadDigest"
        many = "&".join(f"k{number}=v" for number in range(11))
        assert refused(s3.put_object, Bucket="images", Key="a", Body=b"", Tagging=many) == "BadRequest"
        caller.simulator.change(denied=["s3.*"])
        assert refused(s3.put_object, Bucket="images", Key="a", Body=b"") == "AccessDenied"
        stranger = caller.client("s3", "AKIAOTHER")
        assert refused(stranger.put_object, Bucket="images", Key="a", Body=b"") == "InvalidAccessKeyId"
