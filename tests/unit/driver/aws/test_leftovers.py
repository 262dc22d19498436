# SPDX-License-Identifier: Apache-2.0
"""What may be left in a region, and how it is deleted (AW-18 to AW-20, D-1, R-4)."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudRefused
from nodepool.driver.statemachine import CloudResource
from tests.unit.driver.aws import support as aws
from tests.unit.driver.aws.support import rows

KEY = f"nodepool/north/{aws.BUILD}/0000000007/debian-1.raw"
AMI = ("ami", "ami-1", True)


class LeakRig(aws.ImageRig):
    """A region with an AMI of ours, whose snapshots are snap-1 and snap-2, and nothing else."""

    def __init__(self, directory: Path, *tasks: dict[str, Any], **more: Any) -> None:
        super().__init__(directory, **more)
        self.snapshots: list[str] = ["snap-1", "snap-2"]
        self.region.answers |= {
            "describe_images": {"Images": [{**aws.IMAGE, "Tags": aws.tag_set(aws.IDS)}]},
            "describe_snapshots": lambda _: {
                "Snapshots": [{"SnapshotId": found, "Tags": aws.tag_set(aws.IDS)} for found in self.snapshots]
            },
            "describe_import_snapshot_tasks": {"ImportSnapshotTasks": list(tasks)},
        }

    def found(self) -> list[tuple[str, str, bool]]:
        return [(found.type, found.id, found.usable) for found in self.adapter.resources.all()]


@pytest.mark.parametrize(("found", "answers", "calls"), rows("deletions"))
def test_deletions(tmp_path: Path, found: str, answers: dict[str, Any], calls: list[Any]) -> None:
    """AW-18, AW-19, AW-20, R-7: what is not there is no error; None = an error."""
    rig, refused = LeakRig(tmp_path), calls[-1:] == [None]
    rig.region.answers |= answers
    with pytest.raises(CloudRefused) if refused else contextlib.nullcontext():
        rig.adapter.deleteResource(CloudResource(aws.IDS, *found.split()))
    assert rig.region.changes() == [call for call in calls if call is not None]
    for given in rig.region.sent("abort_multipart_upload"):
        assert given == {"Bucket": "images", "Key": KEY, "UploadId": "u1"}
