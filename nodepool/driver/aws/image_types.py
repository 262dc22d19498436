# SPDX-License-Identifier: Apache-2.0
"""What AWS says of snapshots and of imports, as small values: only what the driver uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from nodepool.driver.aws.types import tags_of

#: States of snapshots.
PENDING: Final = "pending"
COMPLETED: Final = "completed"
ERROR: Final = "error"
#: States of an AMI.
AVAILABLE: Final = "available"
#: States of import tasks that have come to nothing.
FAILED_TASKS: Final = ("deleting", "deleted")


class AwsSnapshot(NamedTuple):
    """A snapshot of EBS."""

    id: str
    status: str
    #: Why it is in its state.
    reason: str
    metadata: Mapping[str, str]
    size_gib: int

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> AwsSnapshot:
        return cls(
            id=data["SnapshotId"],
            status=data.get("State", ""),
            reason=data.get("StateMessage", ""),
            metadata=tags_of(data),
            size_gib=data.get("VolumeSize", 0),
        )


class ImportTask(NamedTuple):
    """An import out of S3, of a snapshot or of an AMI."""

    id: str
    #: ``active``, ``completed``, ``deleting``, ``deleted``.
    status: str
    #: What it is doing, or why it failed.
    message: str
    #: Percent, as a text; "" = AWS does not say.
    progress: str
    metadata: Mapping[str, str]
    #: What it has made.
    image_id: str
    snapshot_ids: tuple[str, ...]
    #: What it reads; "" = AWS does not say.
    bucket: str
    key: str

    @classmethod
    def of_snapshot(cls, data: Mapping[str, Any]) -> ImportTask:
        """Out of DescribeImportSnapshotTasks or ImportSnapshot."""
        return cls._of(data, data.get("SnapshotTaskDetail") or {}, [data.get("SnapshotTaskDetail") or {}])

    @classmethod
    def of_image(cls, data: Mapping[str, Any]) -> ImportTask:
        """Out of DescribeImportImageTasks or ImportImage."""
        return cls._of(data, data, data.get("SnapshotDetails") or [])

    @classmethod
    def _of(cls, data: Mapping[str, Any], state: Mapping[str, Any], disks: list[Mapping[str, Any]]) -> ImportTask:
        source: Mapping[str, Any] = next((disk["UserBucket"] for disk in disks if disk.get("UserBucket")), {})
        return cls(
            id=data["ImportTaskId"],
            status=state.get("Status", ""),
            message=state.get("StatusMessage", ""),
            progress=state.get("Progress", ""),
            metadata=tags_of(data),
            image_id=data.get("ImageId", ""),
            snapshot_ids=tuple(disk["SnapshotId"] for disk in disks if disk.get("SnapshotId")),
            bucket=source.get("S3Bucket", ""),
            key=source.get("S3Key", ""),
        )

    @property
    def result_ids(self) -> tuple[str, ...]:
        """What it has made: AMI and snapshots."""
        return (self.image_id, *self.snapshot_ids) if self.image_id else self.snapshot_ids
