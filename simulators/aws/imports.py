# SPDX-License-Identifier: Apache-2.0
"""Imports of the simulated region: of a snapshot or an AMI, out of an object in a bucket."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from simulators.aws.filters import one_page, tag_list, tags_for
from simulators.base.messages import ApiError, Json
from simulators.base.tokens import CreateTokens, TokenMismatch

if TYPE_CHECKING:
    from simulators.aws.cloud import Region

ACTIVE, COMPLETED, DELETING, DELETED = "active", "completed", "deleting", "deleted"
SNAPSHOT, IMAGE = "import-snap", "import-ami"
_FORMATS: Final = {SNAPSHOT: ("VHD", "VMDK", "RAW"), IMAGE: ("OVA", "VHD", "VHDX", "VMDK", "RAW")}


@dataclass
class SimulatedImport:
    """One import. ``snapshot_id``, ``image_id``: what it has made."""

    id: str
    bucket: str
    key: str
    format: str
    architecture: str = "x86_64"
    status: str = ACTIVE
    message: str = "pending"
    progress: int = 1
    snapshot_id: str | None = None
    image_id: str | None = None
    tags: dict[str, str] = field(default_factory=dict)


class Imports:
    """Import tasks by id; they stay for ever. The caller holds the core's lock.

    :ivar operations: handlers by name of operation.
    """

    def __init__(self, cloud: Region) -> None:
        self.cloud = cloud
        self.core = cloud.core
        self.tasks: dict[str, SimulatedImport] = {}
        self._tokens: CreateTokens[SimulatedImport] = CreateTokens()
        self.operations: dict[str, Callable[[Json], Json]] = {
            "ImportSnapshot": self._import_snapshot,
            "ImportImage": self._import_image,
            "DescribeImportSnapshotTasks": self._describe_snapshots,
            "DescribeImportImageTasks": self._describe_images,
            "CancelImportTask": self._cancel,
        }

    def get(self, task_id: str) -> SimulatedImport:
        """A task.

        :raises ApiError: 400.
        """
        if task_id not in self.tasks:
            text = f"The specified conversion task ID ({task_id}) is not valid"
            raise ApiError(400, text, "InvalidConversionTaskId.Malformed")
        return self.tasks[task_id]

    # -- operations --

    def _import_snapshot(self, arguments: Json) -> Json:
        return _snapshot_task(self._begin(SNAPSHOT, "import-snapshot-task", arguments, arguments["DiskContainer"]))

    def _import_image(self, arguments: Json) -> Json:
        containers = arguments.get("DiskContainers", ())
        if len(containers) != 1:
            raise ApiError(400, "This region imports images of one disk", "InvalidParameter")
        return _image_task(self._begin(IMAGE, "import-image-task", arguments, containers[0]))

    def _begin(self, kind: str, resource: str, arguments: Json, container: Json) -> SimulatedImport:
        token = arguments.get("ClientToken")
        try:
            known = self._tokens.find(token, arguments) if token else None
        except TokenMismatch:
            raise ApiError(400, "The token was used with other parameters", "IdempotentParameterMismatch") from None
        if known is not None:
            return known
        self._check(kind, container)
        if sum(task.status == ACTIVE for task in self.tasks.values()) >= self.core.knobs.import_limit:
            text = "The maximum number of concurrent import tasks has been reached"
            raise ApiError(400, text, "ResourceCountLimitExceeded")
        source = container["UserBucket"]
        task = SimulatedImport(
            self.core.new_id(kind),
            source["S3Bucket"],
            source["S3Key"],
            str(container["Format"]).upper(),
            arguments.get("Architecture", "x86_64"),
            tags=tags_for(resource, arguments.get("TagSpecifications", ())),
        )
        self.tasks[task.id] = task
        if token:
            self._tokens.remember(token, arguments, task)
        self.core.events["imports begun"] += 1
        self.core.after(self.core.knobs.import_seconds, "import", lambda: self.end(task))
        return task

    def _check(self, kind: str, container: Json) -> None:
        image_format, source = str(container.get("Format", "")).upper(), container.get("UserBucket", {})
        if image_format not in _FORMATS[kind]:
            raise ApiError(400, f"The disk container format {image_format} is not supported", "InvalidParameter")
        self.cloud.objects.get(source.get("S3Bucket", ""), source.get("S3Key", ""))

    def end(self, task: SimulatedImport) -> None:
        """Its time is over, unless it has ended."""
        if task.status != ACTIVE:
            return
        for rule in self.core.knobs.imports:
            if fnmatchcase(task.key, rule.key) and self.core.applies(rule, "imports"):
                self._fail(task, rule.message)
                return
        try:
            stored = self.cloud.objects.get(task.bucket, task.key)
        except ApiError as error:
            self._fail(task, f"ClientError: {error.message}")
            return
        text = f"Created by AWS-VMImport service for {task.id}"
        snapshot = self.cloud.snapshots.add(max(1, -(-stored.size // 2**30)), description=text)
        task.snapshot_id, task.status, task.message, task.progress = snapshot.id, COMPLETED, "", 100
        if task.id.startswith(IMAGE):
            ebs = {"SnapshotId": snapshot.id, "VolumeSize": snapshot.size_gib, "VolumeType": "gp2"}
            device = {"DeviceName": "/dev/sda1", "Ebs": {**ebs, "DeleteOnTermination": True, "Encrypted": False}}
            images, root = self.cloud.images, "/dev/sda1"
            made = images.add(task.id, devices=[device], architecture=task.architecture, root_device=root)
            task.image_id = made.id
        self.core.events["imports completed"] += 1

    def _fail(self, task: SimulatedImport, message: str) -> None:
        task.status, task.message = DELETED, message
        self.core.events["imports failed"] += 1

    def _cancel(self, arguments: Json) -> Json:
        task = self.get(arguments.get("ImportTaskId", ""))
        before = task.status
        if before != ACTIVE:
            raise ApiError(400, f"Task {task.id} is {before}", "IncorrectState")
        task.status, task.message = DELETING, "User triggered cancel"
        self.core.after(self.core.knobs.end_seconds, "cancel", lambda: setattr(task, "status", DELETED))
        self.core.events["imports cancelled"] += 1
        return {"ImportTaskId": task.id, "PreviousState": before, "State": task.status}

    def _describe_snapshots(self, arguments: Json) -> Json:
        page, token = self._page(SNAPSHOT, arguments)
        return {"ImportSnapshotTasks": [_snapshot_task(task) for task in page], "NextToken": token}

    def _describe_images(self, arguments: Json) -> Json:
        page, token = self._page(IMAGE, arguments)
        return {"ImportImageTasks": [_image_task(task) for task in page], "NextToken": token}

    def _page(self, kind: str, arguments: Json) -> tuple[Any, str | None]:
        if arguments.get("Filters"):
            raise ApiError(400, "This region does not filter tasks", "InvalidParameterValue")
        ids = arguments.get("ImportTaskIds")
        found = [task for task in self.tasks.values() if task.id.startswith(kind)]
        if ids is not None:
            found = [self.get(task_id) for task_id in ids]
        return one_page(self.core, found, lambda task: task.id, arguments, least=1)


def _detail(task: SimulatedImport) -> Json:
    done = task.status == COMPLETED
    return {
        "Status": task.status,
        "StatusMessage": task.message or None,
        "Progress": None if done else str(task.progress),
        "SnapshotId": task.snapshot_id,
        "Format": task.format,
        "UserBucket": {"S3Bucket": task.bucket, "S3Key": task.key},
    }


def _snapshot_task(task: SimulatedImport) -> Json:
    return {"ImportTaskId": task.id, "SnapshotTaskDetail": _detail(task), "Tags": tag_list(task.tags)}


def _image_task(task: SimulatedImport) -> Json:
    detail = _detail(task)
    return {
        "ImportTaskId": task.id,
        "Architecture": task.architecture,
        "ImageId": task.image_id,
        "Status": detail.pop("Status"),
        "StatusMessage": detail.pop("StatusMessage"),
        "Progress": detail.pop("Progress"),
        "SnapshotDetails": [detail],
        "Tags": tag_list(task.tags),
    }
