# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.aws.images` (AW-17)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError

from nodepool.driver.aws import images as aws_uploads
from nodepool.driver.aws.images import IMAGE_KEY, ImportUpload
from nodepool.driver.aws.types import ImportTask
from nodepool.driver.framework import uploads
from nodepool.driver.framework.uploads import UploadGivenUp, UploadInterrupted
from nodepool.exceptions import ImageCreateException
from tests.unit.driver.aws.image_support import BEFORE, BUCKET, IDS, ImageRig, tag_set, tags_in
from tests.unit.driver.aws.support import error

SILENCE = ReadTimeoutError(endpoint_url="https://ec2")
OLD_KEY = f"nodepool/north/{'b' * 32}/0000000006/debian-0.raw"


class StubStore:
    """A bucket of which only the calls are noted."""

    bucket = BUCKET

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.deleted: list[str] = []
        self.trouble: Exception | None = None
        #: Of an object that was there before.
        self.key = ""

    def send(self, job: Any, wait: Any) -> str:
        """Instead of `nodepool.driver.aws.image_store.send_file`."""
        self.sent.append(job.key)
        wait.sent(job.size)
        if self.trouble is not None:
            raise self.trouble
        return self.key or str(job.key)

    def delete(self, key: str) -> None:
        self.deleted.append(key)


def snapshot_task(status: str, task_id: str = "import-snap-1", **more: Any) -> dict[str, Any]:
    """As DescribeImportSnapshotTasks shows it."""
    detail = {"Status": status, "UserBucket": {"S3Bucket": BUCKET, "S3Key": OLD_KEY}, **more}
    if status == "completed":
        detail["SnapshotId"] = "snap-1"
    return {"ImportTaskId": task_id, "SnapshotTaskDetail": detail}


def shown(*tasks: dict[str, Any]) -> dict[str, Any]:
    return {"ImportSnapshotTasks": list(tasks)}


class ImportRig(ImageRig):
    """An import of a snapshot, which takes two looks."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.store = StubStore()
        #: Answers to looks at tasks; the first is the list of all.
        self.looks: list[Any] = [shown(), shown(snapshot_task("active")), shown(snapshot_task("completed"))]
        self.region.answers |= {
            "import_snapshot": {"ImportTaskId": "import-snap-1", "SnapshotTaskDetail": {"Status": "active"}},
            "describe_import_snapshot_tasks": self.looks,
            "describe_snapshots": {"Snapshots": [{"SnapshotId": "snap-1", "State": "completed"}]},
            "cancel_import_task": {},
            "delete_snapshot": {},
        }
        self.given = self.job()

    def upload(self, whole: bool = False, limit: float | None = None) -> ImportUpload:
        store: Any = self.store
        calls, ec2 = self.images.calls, self.adapter.client
        return ImportUpload(calls, ec2, store, self.given, self.wait(self.given), limit, whole)

    def tagged(self) -> list[tuple[list[str], dict[str, str]]]:
        calls = [arguments for name, arguments in self.region.calls if name == "create_tags"]
        return [(arguments["Resources"], tags_in(arguments)) for arguments in calls]


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ImportRig:
    monkeypatch.setattr(aws_uploads, "send_file", lambda store, job, wait: store.send(job, wait))
    return ImportRig(tmp_path)


def test_object_of_an_interrupted_upload(rig: ImportRig) -> None:
    """AW-17: the import reads the object that was there, and it goes after it."""
    rig.store.key = OLD_KEY
    rig.upload().run()
    assert rig.region.last("import_snapshot")["DiskContainer"]["UserBucket"]["S3Key"] == OLD_KEY
    assert rig.store.deleted == [OLD_KEY]


def test_interruption_before_the_import(rig: ImportRig) -> None:
    """AW-17: the object stays for the next upload of the build."""
    rig.store.trouble = UploadInterrupted("the builder stops")
    with pytest.raises(UploadInterrupted):
        rig.upload().run()
    assert rig.store.sent
    assert not rig.store.deleted
    assert not rig.region.count("import_snapshot")


def test_import(rig: ImportRig) -> None:
    """AW-17: object, import, tags of the result; the object goes."""
    task = rig.upload().run()
    assert task.snapshot_ids == ("snap-1",)
    assert rig.store.sent == [rig.given.key]
    assert rig.region.last("import_snapshot")["DiskContainer"]["UserBucket"]["S3Key"] == rig.given.key
    assert rig.tagged() == [(["snap-1"], IDS)]
    assert rig.store.deleted
    assert not rig.region.count("cancel_import_task")


def test_import_of_an_image(rig: ImportRig) -> None:
    """AW-17: AMI and snapshots get the tags."""
    disks = [{"SnapshotId": "snap-1"}]
    done = {"ImportTaskId": "import-ami-1", "Status": "completed", "ImageId": "ami-1", "SnapshotDetails": disks}
    rig.region.answers |= {
        "import_image": {"ImportTaskId": "import-ami-1", "Status": "active"},
        "describe_import_image_tasks": [{"ImportImageTasks": []}, {"ImportImageTasks": [done]}],
    }
    assert rig.upload(whole=True).run().image_id == "ami-1"
    assert rig.tagged() == [(["ami-1", "snap-1"], IDS)]
    assert rig.store.deleted == [rig.given.key]


@pytest.mark.parametrize("status", ["active", "completed"])
def test_import_that_was_interrupted(rig: ImportRig, status: str) -> None:
    """AW-17: it is found by its tags and taken up again; nothing is sent. It is that of this upload from then on."""
    found = {**snapshot_task(status), "Tags": tag_set(BEFORE)}
    rig.looks[:] = [shown(found), shown(snapshot_task("completed"))]
    assert rig.upload().run().snapshot_ids == ("snap-1",)
    assert rig.store.sent == []
    assert not rig.region.count("import_snapshot")
    assert rig.tagged() == [(["import-snap-1"], IDS), (["snap-1"], IDS)]
    assert rig.store.deleted == [OLD_KEY], "the object is that of the other upload"


@pytest.mark.parametrize(
    ("status", "tags", "snapshots"),
    [
        ("active", {**BEFORE, "nodepool_build_id": "c" * 32}, ["snap-1"]),
        ("active", {**BEFORE, "nodepool_provider_name": "south"}, ["snap-1"]),
        ("active", {}, ["snap-1"]),
        ("deleting", BEFORE, ["snap-1"]),
        ("completed", {**BEFORE, IMAGE_KEY: "ami-1"}, ["snap-1"]),
        ("completed", BEFORE, []),
    ],
)
def test_other_imports(rig: ImportRig, status: str, tags: dict[str, str], snapshots: list[str]) -> None:
    """AW-17: those of others, of other builds, that failed, were used, or whose result is gone."""
    rig.looks[0] = shown({**snapshot_task(status, "import-snap-2"), "Tags": tag_set(tags)})
    rig.region.answers["describe_snapshots"] = {"Snapshots": [{"SnapshotId": found} for found in snapshots]}
    rig.upload().run()
    assert rig.store.sent == [rig.given.key]
    assert rig.tagged() == [(["snap-1"], IDS)]


def test_import_that_fails(rig: ImportRig) -> None:
    """U-9: in the words of AWS. Nothing is left."""
    rig.looks[:] = [shown(), shown(snapshot_task("deleted", StatusMessage="ClientError: Disk validation failed"))]
    rig.region.answers["cancel_import_task"] = error("IncorrectState")
    with pytest.raises(ImageCreateException, match="import-snap-1 is deleted: ClientError: Disk validation failed"):
        rig.upload().run()
    assert len(rig.store.deleted) == 1


def test_object_that_was_not_sent(rig: ImportRig) -> None:
    """AW-17: on every way out the object goes."""
    rig.store.trouble = ImageCreateException("it broke off")
    with pytest.raises(ImageCreateException, match="it broke off"):
        rig.upload().run()
    assert rig.store.deleted == [rig.given.key]
    assert not rig.region.count("import_snapshot")


def test_lost_answers(rig: ImportRig) -> None:
    """It is ordered again with its token, and goes on while AWS is away."""
    rig.region.answers["import_snapshot"] = [SILENCE, rig.region.answers["import_snapshot"]]
    rig.looks.insert(1, SILENCE)
    assert rig.upload().run().snapshot_ids == ("snap-1",)
    tokens = {arguments["ClientToken"] for name, arguments in rig.region.calls if name == "import_snapshot"}
    assert tokens == {rig.given.token}


def test_limit(rig: ImportRig) -> None:
    """AW-17: ``ResourceCountLimitExceeded`` waits for image-import-timeout."""
    rig.region.answers["import_snapshot"] = [
        error("ResourceCountLimitExceeded"),
        rig.region.answers["import_snapshot"],
    ]
    assert rig.upload(limit=100.0).run().snapshot_ids == ("snap-1",)
    rig = ImportRig(rig.directory)
    rig.region.answers["import_snapshot"] = error("ResourceCountLimitExceeded")
    with pytest.raises(ImageCreateException, match="set image-import-timeout"):
        rig.upload().run()
    assert rig.store.deleted == [rig.given.key]


def test_interruption(rig: ImportRig) -> None:
    """AW-17: the import goes on, with its object."""
    reports = []

    def report(done: int, total: int) -> None:
        reports.append(done)
        if len(reports) == 3:
            raise UploadInterrupted("the builder stops")

    with uploads.watched(report):
        upload = rig.upload()
    with pytest.raises(UploadInterrupted):
        upload.run()
    assert rig.store.sent
    assert not rig.store.deleted
    assert not rig.region.count("cancel_import_task")


def test_upload_that_nobody_wants(rig: ImportRig) -> None:
    """U-12: the import ends, and the object goes."""
    reports = []

    def report(done: int, total: int) -> None:
        reports.append(done)
        if len(reports) == 3:
            rig.looks[:] = [shown(snapshot_task("deleting"))]
            raise UploadGivenUp("a newer build is ready")

    with uploads.watched(report):
        upload = rig.upload()
    with pytest.raises(UploadGivenUp):
        upload.run()
    assert rig.region.last("cancel_import_task") == {"ImportTaskId": "import-snap-1"}
    assert len(rig.store.deleted) == 1


def test_mark_of_use(rig: ImportRig, caplog: pytest.LogCaptureFixture) -> None:
    """AW-17: nobody takes it up again; that it cannot be marked is no error."""
    upload = rig.upload()
    upload.run()
    upload.used_for("ami-7")
    assert rig.tagged()[-1] == (["import-snap-1"], {IMAGE_KEY: "ami-7"})
    rig.region.answers["create_tags"] = error("UnauthorizedOperation")
    upload.used_for("ami-7")
    assert "import import-snap-1 is not marked as used" in caplog.text


def test_result_that_is_not_wanted(rig: ImportRig) -> None:
    """U-9: it could not be registered."""
    upload = rig.upload()
    upload.run()
    rig.region.answers["cancel_import_task"] = error("IncorrectState")
    upload.undo()
    assert rig.region.last("delete_snapshot") == {"SnapshotId": "snap-1"}


def test_source_of_an_image() -> None:
    """Where its object is stands with the disk."""
    source = {"S3Bucket": BUCKET, "S3Key": OLD_KEY}
    task = ImportTask.of_image({"ImportTaskId": "import-ami-1", "SnapshotDetails": [{"UserBucket": source}]})
    assert (task.bucket, task.key, task.status, task.result_ids) == (BUCKET, OLD_KEY, "", ())
