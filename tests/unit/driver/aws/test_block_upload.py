# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.aws.images` (AW-18, U-14)."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError

from nodepool.driver.aws import images as aws_uploads
from nodepool.driver.aws.errors import AwsNotFound
from nodepool.driver.aws.image_store import ImageJob
from nodepool.driver.aws.images import BLOCK_BYTES, WRITTEN_KEY, BlockUpload
from nodepool.driver.framework import uploads
from nodepool.driver.framework.uploads import UploadGivenUp, UploadInterrupted
from nodepool.exceptions import ImageCreateException
from tests.unit.driver.aws.image_support import BEFORE, IDS, ImageRig, tag_set, tags_in
from tests.unit.driver.aws.support import error

BLOCKS = [b"a" * BLOCK_BYTES, bytes(BLOCK_BYTES), b"c" * BLOCK_BYTES, b"d" * 10]
CONTENT = b"".join(BLOCKS)
DIGESTS = [hashlib.sha256(block.ljust(BLOCK_BYTES, b"\0")).digest() for block in BLOCKS]
#: Of all blocks but the empty one.
WHOLE = base64.b64encode(hashlib.sha256(DIGESTS[0] + DIGESTS[2] + DIGESTS[3]).digest()).decode()
SILENCE = ReadTimeoutError(endpoint_url="https://ebs")


def snapshot(status: str, **more: Any) -> dict[str, Any]:
    """An answer of DescribeSnapshots."""
    return {"Snapshots": [{"SnapshotId": "snap-1", "State": status, "VolumeSize": 1, **more}]}


def interrupted(written: str, **more: Any) -> dict[str, Any]:
    return snapshot("pending", Tags=tag_set({**BEFORE, WRITTEN_KEY: written}), **more)


class BlockRig(ImageRig):
    """An upload of four blocks, of which the second is empty and the last one short."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.region.answers |= {
            "start_snapshot": {"SnapshotId": "snap-1"},
            "put_snapshot_block": {},
            "complete_snapshot": {"Status": "pending"},
            "describe_snapshots": [{"Snapshots": []}, snapshot("pending"), snapshot("completed")],
            "delete_snapshot": {},
        }

    def upload(self, job: ImageJob | None = None, limit: float | None = None) -> str:
        given = job or self.job(CONTENT)
        calls, ec2 = self.images.calls, self.adapter.client
        found: str = BlockUpload(calls, ec2, given, self.wait(given), limit).upload()
        return found

    @property
    def written(self) -> dict[int, dict[str, Any]]:
        puts = [arguments for name, arguments in self.region.calls if name == "put_snapshot_block"]
        return {arguments["BlockIndex"]: arguments for arguments in puts}


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BlockRig:
    monkeypatch.setattr(BlockUpload, "retry_pause_seconds", 0.0)
    return BlockRig(tmp_path)


def test_blocks(rig: BlockRig) -> None:
    """AW-18: each with its checksum, the last one padded, no empty ones; then AWS compares the whole."""
    job = rig.job(CONTENT)
    assert rig.upload(job) == "snap-1"
    start = rig.region.last("start_snapshot")
    assert (start["VolumeSize"], start["ClientToken"], tags_in(start)) == (1, job.token, {**IDS, WRITTEN_KEY: "0"})
    assert sorted(rig.written) == [0, 2, 3]
    for index, arguments in rig.written.items():
        assert arguments["BlockData"] == BLOCKS[index].ljust(BLOCK_BYTES, b"\0")
        assert arguments["DataLength"] == BLOCK_BYTES
        assert base64.b64decode(arguments["Checksum"]) == DIGESTS[index]
    assert rig.region.last("complete_snapshot") == {
        "SnapshotId": "snap-1",
        "ChangedBlocksCount": 3,
        "Checksum": WHOLE,
        "ChecksumAlgorithm": "SHA256",
        "ChecksumAggregationMethod": "LINEAR",
    }
    assert not rig.region.count("delete_snapshot")


def test_what_an_interrupted_upload_has_written(rig: BlockRig) -> None:
    """AW-18: the snapshot is written on, and is that of this upload from then on; AWS compares all of it."""
    rig.region.answers["describe_snapshots"] = [interrupted("2"), snapshot("completed")]
    assert rig.upload() == "snap-1"
    assert sorted(rig.written) == [2, 3]
    assert not rig.region.count("start_snapshot")
    assert rig.region.last("complete_snapshot")["Checksum"] == WHOLE
    assert tags_in(rig.region.last("create_tags")) == IDS


@pytest.mark.parametrize(
    "found",
    [
        interrupted("many"),
        interrupted("2", VolumeSize=2),
        snapshot("completed", Tags=tag_set({**BEFORE, WRITTEN_KEY: "2"})),
        snapshot("pending", Tags=tag_set(BEFORE)),
    ],
)
def test_what_cannot_be_written_on(rig: BlockRig, found: dict[str, Any]) -> None:
    """AW-18: it is no snapshot of the same file, or nobody knows how far it is."""
    rig.region.answers["describe_snapshots"] = [found, snapshot("completed")]
    rig.upload()
    assert sorted(rig.written) == [0, 2, 3]
    assert rig.region.count("start_snapshot") == 1


def stops_at(block: int, reason: Exception) -> Any:
    def report(done: int, total: int) -> None:
        if done > block * BLOCK_BYTES:
            raise reason

    return uploads.watched(report)


def test_interruption(rig: BlockRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """AW-18: how far it is stands in a tag; nothing is deleted."""
    monkeypatch.setattr(BlockUpload, "concurrency", 1)
    with stops_at(1, UploadInterrupted("the builder stops")), pytest.raises(UploadInterrupted):
        rig.upload()
    assert tags_in(rig.region.last("create_tags")) == {WRITTEN_KEY: "2"}
    assert not rig.region.count("delete_snapshot")


def test_end_of_the_provider(rig: BlockRig) -> None:
    """A provider that ends interrupts its uploads."""
    rig.region.answers["put_snapshot_block"] = lambda _: rig.stopped.set()
    with pytest.raises(Exception):  # noqa: B017 - `AwsImages.upload` makes UploadInterrupted of it
        rig.upload()
    assert not rig.region.count("delete_snapshot")


def test_upload_that_nobody_wants(rig: BlockRig) -> None:
    """U-12, U-9: it leaves nothing."""
    with stops_at(0, UploadGivenUp("a newer build is ready")), pytest.raises(UploadGivenUp):
        rig.upload()
    assert rig.region.last("delete_snapshot") == {"SnapshotId": "snap-1"}


def test_marks_on_the_way(rig: BlockRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """AW-18: a builder that is killed has noted how far it is; only blocks before the first open one count."""
    monkeypatch.setattr(aws_uploads, "FIRST_MARK_SECONDS", 0.0)
    monkeypatch.setattr(BlockUpload, "concurrency", 1)
    rig.region.answers["create_tags"] = [error("RequestExpired"), {}]
    rig.upload()
    marks = [tags_in(arguments)[WRITTEN_KEY] for name, arguments in rig.region.calls if name == "create_tags"]
    assert marks == ["1", "2", "3", "4"]


def test_marks_are_soon_at_first(rig: BlockRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """AW-18: of an upload that is killed early little is lost, and one that takes long is marked seldom."""
    seconds = iter(range(0, 1000, 1))
    monkeypatch.setattr(aws_uploads, "monotonic", lambda: float(next(seconds)))
    monkeypatch.setattr(BlockUpload, "concurrency", 1)
    rig.region.answers["create_tags"] = {}
    rig.upload(rig.job(b"x" * (100 * BLOCK_BYTES)))
    marks = [tags_in(arguments)[WRITTEN_KEY] for name, arguments in rig.region.calls if name == "create_tags"]
    assert marks == ["1", "3", "7", "15", "31", "61", "91"]


def test_killed_at_once(rig: BlockRig) -> None:
    """AW-18: the snapshot of a builder that was killed before its first mark is used all the same."""
    rig.upload()
    assert {"Key": WRITTEN_KEY, "Value": "0"} in rig.region.last("start_snapshot")["Tags"]
    rig.region.calls.clear()
    rig.region.answers["describe_snapshots"] = [interrupted("0"), snapshot("completed")]
    assert rig.upload() == "snap-1"
    assert not rig.region.count("start_snapshot")
    assert sorted(rig.written) == [0, 2, 3]


def test_file_that_has_changed(rig: BlockRig) -> None:
    """U-14: it is not what was built. Nothing is left."""
    with pytest.raises(ImageCreateException, match="sha256 of the file was 00 when it was built"):
        rig.upload(rig.job(CONTENT, sha256="00"))
    assert rig.region.count("delete_snapshot") == 1
    assert not rig.region.count("complete_snapshot")


@pytest.mark.parametrize("code", ["InternalServerException", "ValidationException"])
def test_block_that_is_refused_for_a_moment(rig: BlockRig, code: str) -> None:
    """AW-18: it is written again."""
    rig.region.answers["put_snapshot_block"] = [error(code, status=500 if "Server" in code else 400), {}]
    assert rig.upload() == "snap-1"
    assert rig.region.count("put_snapshot_block") == 4


def test_snapshot_that_is_gone(rig: BlockRig) -> None:
    """The error is that of AWS; there is nothing to delete."""
    rig.region.answers |= {
        "put_snapshot_block": error("ResourceNotFoundException", status=404),
        "delete_snapshot": error("InvalidSnapshot.NotFound"),
    }
    with pytest.raises(AwsNotFound, match="PutSnapshotBlock"):
        rig.upload()


def test_lost_answers(rig: BlockRig) -> None:
    """What got no answer is ordered again; one that was carried out is not refused then."""
    rig.region.answers |= {
        "complete_snapshot": [SILENCE, error("ValidationException", "it is complete")],
        "describe_snapshots": [{"Snapshots": []}, snapshot("pending"), snapshot("completed"), snapshot("completed")],
        "start_snapshot": [SILENCE, {"SnapshotId": "snap-1"}],
    }
    assert rig.upload() == "snap-1"
    assert rig.region.count("complete_snapshot") == rig.region.count("start_snapshot") == 2


@pytest.mark.parametrize(
    ("complete", "shown", "match"),
    [
        (error("ValidationException", "checksums differ"), snapshot("pending"), "checksums differ"),
        ({"Status": "pending"}, snapshot("error", StateMessage="blocks differ"), "blocks differ"),
    ],
)
def test_other_content(rig: BlockRig, complete: Any, shown: dict[str, Any], match: str) -> None:
    """U-14: what AWS has is not what was sent. It is deleted."""
    rig.region.answers |= {"complete_snapshot": complete, "describe_snapshots": [{"Snapshots": []}, shown]}
    with pytest.raises(Exception, match=match):
        rig.upload()
    assert rig.region.count("delete_snapshot") == 1


def test_limit_of_the_account(rig: BlockRig) -> None:
    """AW-17: snapshots that are written at once have one, too."""
    rig.region.answers["start_snapshot"] = [error("ConcurrentLimitExceededException"), {"SnapshotId": "snap-1"}]
    assert rig.upload(limit=100.0) == "snap-1"
    assert sum(rig.stopped.pauses) >= 30
