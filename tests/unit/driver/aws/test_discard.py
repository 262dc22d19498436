# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.aws.image_store` (AW-18, AW-19)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.aws.image_store import discard_image, discard_import, discard_snapshot
from nodepool.driver.framework.cloud_errors import CloudRefused
from tests.unit.driver.aws.image_support import ImageRig
from tests.unit.driver.aws.support import error

GONE = error("InvalidAMIID.NotFound")


@pytest.fixture
def rig(tmp_path: Path) -> ImageRig:
    rig = ImageRig(tmp_path)
    rig.region.answers |= {"deregister_image": {}, "delete_snapshot": {}, "cancel_import_task": {}}
    return rig


def called(rig: ImageRig) -> list[tuple[str, str]]:
    """Changes: the method, and what it is about."""
    return [
        (name, next(iter(arguments.values()))) for name, arguments in rig.region.calls if not name.startswith("desc")
    ]


def test_image(rig: ImageRig) -> None:
    """AW-19: first the image, then the snapshots of all its volumes."""
    discard_image(rig.adapter.client, rig.images.calls, "ami-1")
    assert called(rig) == [
        ("deregister_image", "ami-1"),
        ("delete_snapshot", "snap-1"),
        ("delete_snapshot", "snap-2"),
    ]


@pytest.mark.parametrize(
    ("answers", "changes"),
    [
        ({"describe_images": GONE}, []),
        ({"describe_images": error("InvalidAMIID.Malformed")}, []),
        ({"deregister_image": GONE}, ["deregister_image", "delete_snapshot", "delete_snapshot"]),
        (
            {
                "deregister_image": error("InvalidAMIID.Unavailable"),
                "delete_snapshot": error("InvalidSnapshot.NotFound"),
            },
            ["deregister_image", "delete_snapshot", "delete_snapshot"],
        ),
    ],
)
def test_image_that_is_gone(rig: ImageRig, answers: dict[str, Any], changes: list[str]) -> None:
    """AW-19: it is no error; nor are snapshots that are."""
    rig.region.answers |= answers
    discard_image(rig.adapter.client, rig.images.calls, "ami-1")
    assert [name for name, _ in called(rig)] == changes


def test_image_that_cannot_be_deleted(rig: ImageRig) -> None:
    """R-7: the error is told, and its snapshots stay."""
    rig.region.answers["deregister_image"] = error("UnauthorizedOperation")
    with pytest.raises(CloudRefused):
        discard_image(rig.adapter.client, rig.images.calls, "ami-1")
    assert not rig.region.count("delete_snapshot")


def test_snapshot_of_another_image(rig: ImageRig) -> None:
    """It stays."""
    rig.region.answers["delete_snapshot"] = error("InvalidSnapshot.InUse")
    discard_snapshot(rig.images.calls, "snap-1")
    assert called(rig) == [("delete_snapshot", "snap-1")]


def test_snapshot_that_is_being_written(rig: ImageRig) -> None:
    """AW-18: it is completed first, where AWS wants that."""
    rig.region.answers |= {
        "delete_snapshot": [error("IncorrectState"), {}],
        "describe_snapshots": {"Snapshots": [{"SnapshotId": "snap-1", "State": "pending"}]},
        "complete_snapshot": {"Status": "completed"},
    }
    discard_snapshot(rig.images.calls, "snap-1")
    assert [name for name, _ in called(rig)] == ["delete_snapshot", "complete_snapshot", "delete_snapshot"]
    assert rig.region.last("complete_snapshot") == {"SnapshotId": "snap-1", "ChangedBlocksCount": 0}


def test_snapshot_that_cannot_be_deleted(rig: ImageRig) -> None:
    """R-7"""
    rig.region.answers |= {
        "delete_snapshot": error("UnauthorizedOperation"),
        "describe_snapshots": {"Snapshots": [{"SnapshotId": "snap-1", "State": "completed"}]},
    }
    with pytest.raises(CloudRefused, match="UnauthorizedOperation"):
        discard_snapshot(rig.images.calls, "snap-1")


def test_import_that_runs(rig: ImageRig) -> None:
    """AW-17: AWS takes away what it has made so far."""
    task = {"ImportTaskId": "import-snap-1", "SnapshotTaskDetail": {"Status": "deleting"}}
    rig.region.answers["describe_import_snapshot_tasks"] = {"ImportSnapshotTasks": [task]}
    discard_import(rig.adapter.client, rig.images.calls, rig.images.calls.snapshot_imports, "import-snap-1")
    assert called(rig) == [("cancel_import_task", "import-snap-1")]


def test_import_that_has_ended(rig: ImageRig) -> None:
    """AW-17: what it has made is deleted."""
    disks = [{"SnapshotId": "snap-1"}, {"SnapshotId": "snap-9"}]
    task = {"ImportTaskId": "import-ami-1", "Status": "completed", "ImageId": "ami-1", "SnapshotDetails": disks}
    rig.region.answers |= {
        "cancel_import_task": error("IncorrectState"),
        "describe_import_image_tasks": {"ImportImageTasks": [task]},
        "describe_images": [rig.region.answers["describe_images"], GONE],
    }
    discard_import(rig.adapter.client, rig.images.calls, rig.images.calls.image_imports, "import-ami-1")
    gone = [subject for name, subject in called(rig) if name in ("deregister_image", "delete_snapshot")]
    assert gone == ["ami-1", "snap-1", "snap-2", "snap-1", "snap-9"]


def test_import_that_nobody_knows(rig: ImageRig) -> None:
    rig.region.answers["cancel_import_task"] = error("InvalidConversionTaskId.Malformed")
    discard_import(rig.adapter.client, rig.images.calls, rig.images.calls.image_imports, "import-ami-1")
    assert [name for name, _ in rig.region.calls] == ["cancel_import_task"]
