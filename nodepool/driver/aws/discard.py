# SPDX-License-Identifier: Apache-2.0
"""How AMIs, snapshots and imports are deleted (AW-18, AW-19). What is gone already is no error."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from nodepool.driver.aws.errors import AwsNotFound
from nodepool.driver.aws.image_types import COMPLETED, PENDING
from nodepool.driver.framework.cloud_errors import CloudRefused

if TYPE_CHECKING:
    from nodepool.driver.aws.client import Ec2
    from nodepool.driver.aws.image_calls import ImageCalls, ImportKind

log = logging.getLogger("nodepool.driver.aws.images")

#: An AMI is made of the snapshot.
IN_USE: Final = "InvalidSnapshot.InUse"
_GONE: Final = "InvalidAMIID.Unavailable"


def discard_image(ec2: Ec2, calls: ImageCalls, image_id: str) -> None:
    """Delete an AMI, and the snapshots of its volumes (AW-19). Blocks; raises what the client raises."""
    try:
        image = ec2.image(image_id)
    except AwsNotFound:
        return
    try:
        calls.deregister(image_id)
    except AwsNotFound:
        log.debug("Image %s is gone already", image_id)
    except CloudRefused as error:
        if error.code != _GONE:
            raise
    for _, volume in image.devices:
        if volume.get("SnapshotId"):
            discard_snapshot(calls, volume["SnapshotId"])


def discard_snapshot(calls: ImageCalls, snapshot_id: str) -> None:
    """Delete a snapshot. Blocks; raises what the client raises.

    One that is in use by another AMI stays. One that gets its blocks from outside may have to be completed first.
    """
    try:
        calls.delete_snapshot(snapshot_id)
    except AwsNotFound:
        return
    except CloudRefused as error:
        if error.code == IN_USE:
            log.info("Snapshot %s stays, because another image is made of it", snapshot_id)
            return
        snapshot = calls.snapshot(snapshot_id)
        if snapshot is None or snapshot.status != PENDING:
            raise
        calls.complete_snapshot(snapshot_id, 0, None)
        calls.delete_snapshot(snapshot_id)


def discard_import(ec2: Ec2, calls: ImageCalls, kind: ImportKind, task_id: str) -> None:
    """End an import, and delete what it has made. Blocks; raises what the client raises."""
    try:
        calls.cancel_import(task_id)
    except AwsNotFound:
        return
    except CloudRefused as error:
        # It has ended by itself.
        log.debug("Import %s: %s", task_id, error)
    task = kind.task(task_id)
    if task.status != COMPLETED:
        return
    if task.image_id:
        discard_image(ec2, calls, task.image_id)
    for snapshot_id in task.snapshot_ids:
        discard_snapshot(calls, snapshot_id)
