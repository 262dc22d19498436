# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.aws.images` (AW-20, D-1, R-4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.aws.images import IMAGE_KEY, AwsResource, AwsResources, ImageLeaks
from nodepool.driver.framework.cloud_errors import CloudSetup
from tests.unit.driver.aws.image_support import BUILD, IDS, ImageRig, tag_set, tags_in
from tests.unit.driver.aws.support import IMAGE, error

KEY = f"nodepool/north/{BUILD}/0000000007/debian-1.raw"
FOREIGN = {"nodepool_provider_name": "south"}


def task(task_id: str, status: str, tags: dict[str, str], snapshot: str = "") -> dict[str, Any]:
    detail = {"Status": status, **({"SnapshotId": snapshot} if snapshot else {})}
    return {"ImportTaskId": task_id, "SnapshotTaskDetail": detail, "Tags": tag_set(tags)}


class LeakRig(ImageRig):
    """A region with an AMI of ours, whose snapshots are snap-1 and snap-2, and nothing else."""

    def __init__(self, directory: Path, image: bool = True, **more: Any) -> None:
        super().__init__(directory, None, **(more if image else {"diskimages": [], **more}))
        self.tasks: list[dict[str, Any]] = []
        self.image_tasks: list[dict[str, Any]] = []
        self.snapshots: list[str] = ["snap-1", "snap-2"]
        self.region.answers |= {
            "describe_images": {"Images": [{**IMAGE, "Tags": tag_set(IDS)}]},
            "describe_snapshots": lambda _: {
                "Snapshots": [{"SnapshotId": found, "Tags": tag_set(IDS)} for found in self.snapshots]
            },
            "describe_import_snapshot_tasks": lambda _: {"ImportSnapshotTasks": self.tasks},
            "describe_import_image_tasks": lambda _: {"ImportImageTasks": self.image_tasks},
            "list_objects_v2": {},
            "list_multipart_uploads": {},
            "delete_object": {},
            "delete_snapshot": {},
            "cancel_import_task": {},
        }
        self.leaks = ImageLeaks(self.config, self.adapter.client, self.images)
        self.resources = AwsResources(self.config.name, self.leaks.kinds(), self.clock)

    def found(self) -> list[tuple[str, str, bool]]:
        return [(found.type, found.id, found.usable) for found in self.resources.all()]


@pytest.fixture
def rig(tmp_path: Path) -> LeakRig:
    return LeakRig(tmp_path)


def test_what_is_in_use(rig: LeakRig) -> None:
    """AW-20: snapshots go with the AMI that is made of them. Only what carries our tags is asked for."""
    assert rig.found() == [("ami", "ami-1", True)]
    ours = [{"Name": "tag:nodepool_provider_name", "Values": ["north"]}]
    assert rig.region.last("describe_images") == {"Owners": ["self"], "Filters": ours, "MaxResults": 1000}
    assert rig.region.last("describe_snapshots") == {"OwnerIds": ["self"], "Filters": ours, "MaxResults": 1000}
    assert rig.region.last("list_objects_v2") == {"Bucket": "images", "Prefix": "nodepool/north/"}
    assert not rig.region.count("create_tags")


def test_what_uploads_have_left(rig: LeakRig) -> None:
    """AW-20: snapshots without an AMI, imports that run, objects, and parts of objects; each says of which upload."""
    rig.snapshots.append("snap-3")
    rig.tasks = [task("import-snap-1", "active", IDS), task("import-snap-2", "active", FOREIGN)]
    rig.region.answers |= {
        "list_objects_v2": [
            {"Contents": [{"Key": KEY}], "IsTruncated": True, "NextContinuationToken": "more"},
            {"Contents": [{"Key": f"{KEY}.2"}]},
        ],
        "list_multipart_uploads": [
            {
                "Uploads": [{"Key": KEY, "UploadId": "u1"}],
                "IsTruncated": True,
                "NextKeyMarker": KEY,
                "NextUploadIdMarker": "u1",
            },
            {"Uploads": [{"Key": KEY, "UploadId": "u2"}]},
        ],
    }
    assert rig.found() == [
        ("import", "import-snap-1", False),
        ("ami", "ami-1", True),
        ("snapshot", "snap-3", False),
        ("object", KEY, False),
        ("object", f"{KEY}.2", False),
        ("part", f"u1 {KEY}", False),
        ("part", f"u2 {KEY}", False),
    ]
    assert rig.region.last("list_objects_v2")["ContinuationToken"] == "more"
    assert rig.region.last("list_multipart_uploads")["UploadIdMarker"] == "u1"
    assert all(found.metadata == IDS for found in rig.resources.all())


def test_results_without_tags(rig: LeakRig) -> None:
    """AW-20: they get those of their task, once; those of others are not touched, nor what was used or is gone."""
    rig.tasks = [
        task("import-snap-1", "completed", IDS, "snap-7"),
        task("import-snap-2", "completed", FOREIGN, "snap-8"),
        task("import-snap-3", "completed", {**IDS, IMAGE_KEY: "ami-1"}, "snap-9"),
        task("import-snap-4", "completed", IDS, "snap-1"),
        task("import-snap-5", "deleted", IDS),
    ]
    disks = [{"SnapshotId": "snap-6"}]
    made = {"ImportTaskId": "import-ami-1", "Status": "completed", "ImageId": "ami-6", "SnapshotDetails": disks}
    rig.image_tasks = [{**made, "Tags": tag_set(IDS)}]
    gone = [error("InvalidAMIID.NotFound"), error("InvalidSnapshot.NotFound")]

    def tagged(arguments: dict[str, Any]) -> Any:
        if arguments["Resources"] == ["snap-7"]:
            rig.snapshots.append("snap-7")
            return {}
        return gone.pop(0)

    rig.region.answers["create_tags"] = tagged
    assert rig.found() == [("ami", "ami-1", True), ("snapshot", "snap-7", False)]
    calls = [arguments for name, arguments in rig.region.calls if name == "create_tags"]
    assert [arguments["Resources"] for arguments in calls] == [["snap-7"], ["ami-6"], ["snap-6"]]
    assert tags_in(calls[0]) == IDS
    rig.found()
    assert rig.region.count("create_tags") == 3


def test_deletions(rig: LeakRig) -> None:
    """AW-20"""
    rig.tasks = [task("import-snap-1", "deleting", IDS)]
    rig.image_tasks = [{"ImportTaskId": "import-ami-1", "Status": "deleted"}]
    rig.region.answers["deregister_image"] = rig.region.answers["abort_multipart_upload"] = {}
    for kind, found in (
        ("ami", "ami-1"),
        ("snapshot", "snap-3"),
        ("import", "import-snap-1"),
        ("import", "import-ami-1"),
        ("object", KEY),
        ("part", f"u1 {KEY}"),
    ):
        rig.resources.delete(AwsResource(IDS, kind, found))
    called = [name for name, _ in rig.region.calls if not name.startswith("describe")]
    assert called == [
        *("deregister_image", "delete_snapshot", "delete_snapshot"),
        *("delete_snapshot", "cancel_import_task", "cancel_import_task", "delete_object", "abort_multipart_upload"),
    ]
    assert rig.region.last("abort_multipart_upload") == {"Bucket": "images", "Key": KEY, "UploadId": "u1"}


def test_list_of_images(rig: LeakRig) -> None:
    """D-1, R-4: images, and what uploads have left, which no node can be made of."""
    rig.tasks = [task("import-snap-1", "active", IDS)]
    rig.region.answers["list_objects_v2"] = {"Contents": [{"Key": KEY}]}
    listed = list(rig.leaks.listed())
    assert [(image.shown_id, image.name, image.usable) for image in listed] == [
        ("import-snap-1", "", False),
        ("ami-1", "debian", True),
        (KEY, "", False),
    ]
    assert all(image.metadata == IDS for image in listed)


def test_images_that_cannot_be_listed(rig: LeakRig) -> None:
    """R-4: the builder must not take them for gone; objects may be somebody else's business."""
    rig.region.answers["list_objects_v2"] = error("AccessDenied")
    assert [image.id for image in rig.leaks.listed()] == ["ami-1"]
    rig.region.answers["describe_images"] = error("UnauthorizedOperation")
    with pytest.raises(CloudSetup):
        list(rig.leaks.listed())
    assert rig.found() == [], "a launcher sweeps the rest"


def test_provider_without_uploads(tmp_path: Path) -> None:
    """AW-20: earlier ones may have left something; that is looked for seldom. Without a bucket there are no imports."""
    rig = LeakRig(tmp_path, image=False, **{"object-storage": {}})
    rig.region.answers["describe_images"] = rig.region.answers["describe_snapshots"] = {}
    rig.found()
    rig.clock.now += 599
    rig.found()
    assert {name for name, _ in rig.region.calls} == {"describe_images", "describe_snapshots"}
    assert rig.region.count("describe_snapshots") == 1
