# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.aws.images` (AW-17 to AW-19)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError

from nodepool.driver.aws import images
from nodepool.driver.aws.images import BlockUpload
from nodepool.driver.framework.cloud_errors import CloudRefused
from nodepool.driver.framework.uploads import UploadInterrupted
from nodepool.exceptions import ImageCreateException
from tests.unit.driver.aws.image_support import IDS, NAME, ImageRig, tag_set
from tests.unit.driver.aws.support import IMAGE, error

SILENCE = ReadTimeoutError(endpoint_url="https://ec2")
GONE = error("InvalidAMIID.NotFound")


def ami(state: str, **more: Any) -> dict[str, Any]:
    """An answer of DescribeImages."""
    devices = [{"DeviceName": "/dev/sda1", "Ebs": {"SnapshotId": "snap-1"}}]
    return {"Images": [{**IMAGE, "State": state, "BlockDeviceMappings": devices, **more}]}


class DirectRig(ImageRig):
    """Uploads by ebs-direct."""

    def __init__(self, directory: Path, **more: Any) -> None:
        super().__init__(directory, {"import-method": "ebs-direct"}, **more)
        done = {"Snapshots": [{"SnapshotId": "snap-1", "State": "completed", "VolumeSize": 1}]}
        self.region.answers |= {
            "start_snapshot": {"SnapshotId": "snap-1"},
            "put_snapshot_block": {},
            "complete_snapshot": {"Status": "completed"},
            "describe_snapshots": [{"Snapshots": []}, done],
            "register_image": {"ImageId": "ami-1"},
            "describe_images": ami("available"),
            "deregister_image": {},
            "delete_snapshot": {},
        }

    def upload(self, image_format: str = "raw") -> str:
        path = self.directory / "image"
        path.write_bytes(b"content")
        image = self.config.diskimages["debian"]
        return self.images.upload(image, NAME, str(path), image_format, IDS, None)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DirectRig:
    monkeypatch.setattr(BlockUpload, "retry_pause_seconds", 0.0)
    return DirectRig(tmp_path)


def test_by_blocks(rig: DirectRig) -> None:
    """AW-18: a snapshot, then the AMI, which is given when it can be used; a new one may not be known at once."""
    rig.region.answers["describe_images"] = [GONE, ami("pending"), ami("available")]
    assert rig.upload() == "ami-1"
    assert rig.region.last("register_image")["Name"] == NAME
    assert rig.region.count("describe_images") == 3


def test_only_raw_by_blocks(rig: DirectRig) -> None:
    """AW-18: a volume of other bytes would not boot."""
    with pytest.raises(ImageCreateException, match="set image-format to raw"):
        rig.upload("vmdk")
    assert not rig.region.calls


def test_lost_answer_of_the_registration(rig: DirectRig) -> None:
    """AW-17: the name is taken then, by the image of this upload, which may not be listed at once."""
    rig.region.answers |= {
        "register_image": [SILENCE, error("InvalidAMIName.Duplicate")],
        "describe_images": [{"Images": []}, ami("available", Tags=tag_set(IDS)), ami("available")],
    }
    assert rig.upload() == "ami-1"


@pytest.mark.parametrize(
    ("code", "listed"),
    [("InvalidParameterValue", []), ("InvalidAMIName.Duplicate", ami("available")["Images"])],
)
def test_registration_that_is_refused(rig: DirectRig, code: str, listed: list[Any]) -> None:
    """U-9: the snapshot goes; the image of somebody else with the same name stays."""
    rig.region.answers |= {"register_image": error(code), "describe_images": {"Images": listed}}
    with pytest.raises(CloudRefused, match=code):
        rig.upload()
    assert rig.region.last("delete_snapshot") == {"SnapshotId": "snap-1"}
    assert not rig.region.count("deregister_image")


def test_image_that_fails(rig: DirectRig) -> None:
    """U-9: image and snapshot go."""
    rig.region.answers["describe_images"] = ami("failed")
    with pytest.raises(ImageCreateException, match="ami-1 has become failed"):
        rig.upload()
    assert rig.region.count("deregister_image") == 1
    assert rig.region.last("delete_snapshot") == {"SnapshotId": "snap-1"}


def test_end_of_the_provider(rig: DirectRig) -> None:
    """AW-18: the next upload of the build goes on with it."""

    def ends(_: object) -> Any:
        rig.stopped.set()
        return SILENCE

    rig.region.answers["put_snapshot_block"] = ends
    with pytest.raises(UploadInterrupted):
        rig.upload()
    assert not rig.region.count("delete_snapshot")


def test_missing_file(rig: DirectRig) -> None:
    with pytest.raises(FileNotFoundError):
        rig.images.upload(rig.config.diskimages["debian"], NAME, str(rig.directory / "none"), "raw", IDS, None)
    assert not rig.region.calls


def test_deletion(rig: DirectRig) -> None:
    """AW-19"""
    rig.images.delete("ami-1")
    assert rig.region.last("delete_snapshot") == {"SnapshotId": "snap-1"}


class SentRig(ImageRig):
    """Uploads by import of a snapshot; what is sent to S3 is not looked at."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, size_gib: int = 1) -> None:
        super().__init__(directory)
        self.deleted: list[str] = []
        monkeypatch.setattr(images, "send_file", lambda store, job, wait: job.key)
        monkeypatch.setattr(self.images.store, "delete", self.deleted.append)
        done = {"Status": "completed", "SnapshotId": "snap-1"}
        tasks = [[], [{"ImportTaskId": "import-snap-1", "SnapshotTaskDetail": done}]]
        self.region.answers |= {
            "import_snapshot": {"ImportTaskId": "import-snap-1", "SnapshotTaskDetail": {"Status": "active"}},
            "describe_import_snapshot_tasks": [{"ImportSnapshotTasks": found} for found in tasks],
            "describe_snapshots": {"Snapshots": [{"SnapshotId": "snap-1", "VolumeSize": size_gib}]},
            "register_image": {"ImageId": "ami-1"},
            "describe_images": ami("available"),
            "cancel_import_task": error("IncorrectState"),
            "delete_snapshot": {},
        }

    def upload(self) -> str:
        path = self.directory / "image"
        path.write_bytes(b"content")
        return self.images.upload(self.config.diskimages["debian"], NAME, str(path), "raw", IDS, None)


def test_by_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AW-17: the task is marked as used in the end."""
    rig = SentRig(tmp_path, monkeypatch)
    assert rig.upload() == "ami-1"
    assert rig.region.last("create_tags")["Resources"] == ["import-snap-1"]
    assert len(rig.deleted) == 1


def test_import_of_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-14: the volume has no room for the file. Nothing is left."""
    rig = SentRig(tmp_path, monkeypatch, size_gib=0)
    with pytest.raises(ImageCreateException, match="the snapshot has 0 GiB, the file has 1"):
        rig.upload()
    assert rig.region.last("delete_snapshot") == {"SnapshotId": "snap-1"}


def test_paused_image_without_a_bucket(tmp_path: Path) -> None:
    """AW-17: the configuration is refused unless the image is paused; then it says what is missing."""
    rig = ImageRig(tmp_path, {"pause": True}, **{"object-storage": {}})
    (tmp_path / "image").touch()
    with pytest.raises(ImageCreateException, match="add object-storage"):
        rig.images.upload(rig.config.diskimages["debian"], NAME, str(tmp_path / "image"), "raw", IDS, None)
