# SPDX-License-Identifier: Apache-2.0
"""Uploads of images, call by call (AW-17, AW-18, U-14). Whole uploads to a region are in ``test_aws_uploads``."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.aws.images import BLOCK_BYTES, IMAGE_KEY, PART_BYTES, part_bytes
from nodepool.driver.framework.cloud_errors import CloudRefused
from nodepool.driver.framework.uploads import ImageUploader
from nodepool.exceptions import ImageCreateException
from tests.unit.driver.aws.support import BUCKET, IDS, IMAGE, SILENCE, ImageRig, error, rows, tag_set, tags_in

BLOCKS = [b"a" * BLOCK_BYTES, bytes(BLOCK_BYTES), b"c" * BLOCK_BYTES, b"d" * 10]
OLD_KEY = f"nodepool/north/{'b' * 32}/0000000006/debian-0.raw"
NONE: dict[str, Any] = {"Snapshots": []}


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageUploader, "retry_pause_seconds", 0.0)


def snapshot(status: str, tags: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """An answer of DescribeSnapshots."""
    found = {"SnapshotId": "snap-1", "State": status, "VolumeSize": 1, "Tags": tag_set(tags or {})}
    return {"Snapshots": [{**found, **more}]}


def ami(state: str, **more: Any) -> dict[str, Any]:
    """An answer of DescribeImages."""
    devices = [{"DeviceName": "/dev/sda1", "Ebs": {"SnapshotId": "snap-1"}}]
    return {"Images": [{**IMAGE, "State": state, "BlockDeviceMappings": devices, **more}]}


DONE = snapshot("completed")
LOOKS = [NONE, snapshot("pending"), DONE]


def block_rig(directory: Path, answers: dict[str, Any] | None = None, **more: Any) -> ImageRig:
    """An upload of four blocks, of which the second is empty and the last one short."""
    rig = ImageRig(directory, {"import-method": "ebs-direct"}, **more)
    rig.path.write_bytes(b"".join(BLOCKS))
    rig.region.answers |= {"describe_snapshots": LOOKS[:], "describe_images": ami("available"), **(answers or {})}
    return rig


@pytest.mark.parametrize(("answers", "expected", "text", "deleted_things"), rows("uploads_by_blocks"))
def test_trouble(
    tmp_path: Path, answers: dict[str, Any], expected: type[Exception] | None, text: str, deleted_things: list[str]
) -> None:
    """AW-18, U-9, U-14: the error says why, and nothing is left."""
    rig = block_rig(tmp_path, answers)
    with pytest.raises(expected, match=text) if expected else contextlib.nullcontext():
        rig.upload(answers.get("format", "raw"), answers.get("sha256"))
    changes = [name for name, _ in rig.region.changes()]
    assert [name for name in changes if name.startswith("de")] == deleted_things
    assert ("complete_snapshot" in changes) is (
        "sha256" not in answers and (bool(deleted_things) or not text) and "Put" not in text
    )
    assert bool(changes) is ("format" not in answers)


# -- imports out of S3 --


def task(status: str, tags: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """An answer of DescribeImportSnapshotTasks."""
    made = {"SnapshotId": "snap-1"} if status == "completed" else {}
    detail = {"Status": status, "UserBucket": {"S3Bucket": BUCKET, "S3Key": OLD_KEY}, **made, **more}
    found = {"ImportTaskId": "import-snap-1", "SnapshotTaskDetail": detail, "Tags": tag_set(tags or {})}
    return {"ImportSnapshotTasks": [found]}


BEGUN = {"ImportTaskId": "import-snap-1", "SnapshotTaskDetail": {"Status": "active"}}
NO_TASKS: dict[str, Any] = {"ImportSnapshotTasks": []}


def import_rig(directory: Path, answers: dict[str, Any] | None = None, **more: Any) -> ImageRig:
    """An import of a snapshot."""
    rig = ImageRig(directory, **more)
    rig.region.answers |= {
        "import_snapshot": BEGUN,
        "describe_import_snapshot_tasks": [NO_TASKS, task("active"), task("completed")],
        "describe_snapshots": DONE,
        "describe_images": ami("available"),
        **(answers or {}),
    }
    return rig


def tagged(rig: ImageRig) -> list[tuple[list[str], dict[str, str]]]:
    return [(arguments["Resources"], tags_in(arguments["Tags"])) for arguments in rig.region.sent("create_tags")]


def deleted(rig: ImageRig) -> list[str]:
    return [arguments["Key"] for arguments in rig.region.sent("delete_object")]


USED = (["import-snap-1"], {IMAGE_KEY: "ami-1"})


@pytest.mark.parametrize(("status", "tags", "snapshots", "ours"), rows("interrupted_imports"))
def test_import_that_was_interrupted(
    tmp_path: Path, status: str, tags: dict[str, str], snapshots: Any, ours: bool
) -> None:
    """AW-17: it is found by its tags and taken up again; nothing is sent. It is that of this upload from then on."""
    rig = import_rig(tmp_path, {"describe_snapshots": snapshots})
    rig.region.answers["describe_import_snapshot_tasks"] = [task(status, tags), SILENCE, task("completed")]
    assert rig.upload() == "ami-1"
    sent = (rig.region.count("upload_part"), rig.region.count("import_snapshot"))
    assert sent == ((0, 0) if ours else (1, 1))
    assert tagged(rig) == [*([(["import-snap-1"], IDS)] if ours else []), (["snap-1"], IDS), USED]
    assert deleted(rig) == [OLD_KEY if ours else rig.job().key]


@pytest.mark.parametrize(("answers", "text", "snapshots", "objects"), rows("imports_that_fail"))
def test_import_that_fails(tmp_path: Path, answers: dict[str, Any], text: str, snapshots: int, objects: int) -> None:
    """AW-17, U-9, U-14: in the words of AWS. Nothing is left."""
    rig = import_rig(tmp_path, {"cancel_import_task": error("IncorrectState"), **answers})
    with pytest.raises((ImageCreateException, CloudRefused), match=text):
        rig.upload()
    assert (rig.region.count("delete_snapshot"), len(set(deleted(rig)))) == (snapshots, objects)
    assert not rig.region.count("deregister_image")


def test_size_of_parts() -> None:
    """S3 takes no more than 10,000 of an object."""
    assert part_bytes(1) == PART_BYTES
    assert -(-5 * 2**40 // part_bytes(5 * 2**40)) <= 10_000
