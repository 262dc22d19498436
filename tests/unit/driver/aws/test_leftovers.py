# SPDX-License-Identifier: Apache-2.0
"""What may be left in a region, and how it is deleted (AW-18 to AW-20, D-1, R-4)."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.aws.images import AwsResource
from nodepool.driver.framework.cloud_errors import CloudRefused, CloudSetup
from tests.unit.driver.aws import support as aws
from tests.unit.driver.aws.support import rows

KEY = f"nodepool/north/{aws.BUILD}/0000000007/debian-1.raw"
DENIED = aws.error("UnauthorizedOperation")
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
        return [(found.type, found.id, found.usable) for found in self.adapter.listResources()]


def test_images_that_cannot_be_listed(tmp_path: Path) -> None:
    """R-4: the builder must not take them for deleted; objects may be the business of others."""
    rig = LeakRig(tmp_path)
    rig.region.answers["list_objects_v2"] = aws.error("AccessDenied")
    assert [image.id for image in rig.adapter.listImages()] == ["ami-1"]
    rig.region.answers["describe_images"] = DENIED
    with pytest.raises(CloudSetup):
        list(rig.adapter.listImages())
    assert rig.found() == [], "a launcher sweeps the rest"


@pytest.mark.parametrize(("found", "answers", "calls"), rows("deletions"))
def test_deletions(tmp_path: Path, found: str, answers: dict[str, Any], calls: list[Any]) -> None:
    """AW-18, AW-19, AW-20, R-7: what is not there is no error; None = an error."""
    rig, refused = LeakRig(tmp_path), calls[-1:] == [None]
    rig.region.answers |= answers
    kind, _, name = found.partition(" ")
    with pytest.raises(CloudRefused) if refused else contextlib.nullcontext():
        rig.adapter.deleteResource(AwsResource(aws.IDS, kind, name))
    assert rig.region.changes() == [call for call in calls if call is not None]
    for given in rig.region.sent("abort_multipart_upload"):
        assert given == {"Bucket": "images", "Key": KEY, "UploadId": "u1"}


def test_console_and_end() -> None:
    """The console is read only for labels that want it. A provider that ends closes its connections."""
    answers = [{"Output": "login:"}, {}, aws.error("InvalidInstanceID.NotFound")]
    rig = aws.Rig(aws.section({"console-log": True}), get_console_output=answers)
    found = [rig.adapter.getConsoleLog(rig.label, {"instance": "i-1"}) for _ in range(3)]
    assert found == ["login:", None, None]
    assert rig.adapter.getConsoleLog(rig.label, None) is None
    assert aws.Rig().adapter.getConsoleLog(aws.Rig().label, {"instance": "i-1"}) is None
    rig.adapter.stop()
    assert rig.region.closed
