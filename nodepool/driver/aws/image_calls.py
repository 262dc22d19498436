# SPDX-License-Identifier: Apache-2.0
"""`ImageCalls`: the calls of EC2 and of EBS that are made for uploaded images."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final, Protocol

from nodepool.driver.aws import transport as t
from nodepool.driver.aws.errors import AwsNotFound
from nodepool.driver.aws.image_types import AwsSnapshot, ImportTask
from nodepool.driver.aws.types import AwsImage

#: Longest pages.
_PAGE: Final = 1000
_TASKS_A_PAGE: Final = 100


class ImportKind(Protocol):
    """What differs between an import of a snapshot and one of an AMI."""

    def begin(self, arguments: Mapping[str, Any]) -> ImportTask:
        """Order it."""

    def tasks(self) -> list[ImportTask]:
        """All of the region, also those that have ended some days ago."""

    def task(self, task_id: str) -> ImportTask:
        """One; raises AwsNotFound."""


class ImageCalls:
    """One region. All methods block; any thread may call them. They raise what `nodepool.driver.aws.errors` has."""

    def __init__(self, transport: t.AwsTransport) -> None:
        self.transport = transport
        self.snapshot_imports: ImportKind = _SnapshotImports(transport)
        self.image_imports: ImportKind = _ImageImports(transport)

    # -- AMIs --

    def images(self, tags: Mapping[str, str]) -> list[AwsImage]:
        """Those of the account that have these tags."""
        return self._images(_tag_filters(tags))

    def image_named(self, name: str) -> AwsImage | None:
        """The one of the account with a name; there is at most one."""
        return next(iter(self._images([{"Name": "name", "Values": [name]}])), None)

    def _images(self, filters: list[dict[str, Any]]) -> list[AwsImage]:
        given = {"Owners": ["self"], "Filters": filters, "MaxResults": _PAGE}
        return [AwsImage.of(data) for data in self.transport.pages("ec2", t.READ, "DescribeImages", given, "Images")]

    def register(self, arguments: dict[str, Any]) -> str:
        """Make an AMI of snapshots; returns its id."""
        return str(self.transport.call("ec2", t.CHANGE, "RegisterImage", arguments)["ImageId"])

    def deregister(self, image_id: str) -> None:
        self.transport.call("ec2", t.CHANGE, "DeregisterImage", {"ImageId": image_id})

    # -- snapshots --

    def snapshots(self, tags: Mapping[str, str]) -> list[AwsSnapshot]:
        """Those of the account that have these tags."""
        return self._snapshots(_tag_filters(tags))

    def snapshot(self, snapshot_id: str) -> AwsSnapshot | None:
        """One; None = it is not there, or not yet."""
        return next(iter(self._snapshots([{"Name": "snapshot-id", "Values": [snapshot_id]}])), None)

    def _snapshots(self, filters: list[dict[str, Any]]) -> list[AwsSnapshot]:
        given = {"OwnerIds": ["self"], "Filters": filters, "MaxResults": _PAGE}
        found = self.transport.pages("ec2", t.READ, "DescribeSnapshots", given, "Snapshots")
        return [AwsSnapshot.of(data) for data in found]

    def delete_snapshot(self, snapshot_id: str) -> None:
        self.transport.call("ec2", t.CHANGE, "DeleteSnapshot", {"SnapshotId": snapshot_id})

    # -- imports --

    def cancel_import(self, task_id: str) -> None:
        """Order the end of a task that runs."""
        self.transport.call("ec2", t.CHANGE, "CancelImportTask", {"ImportTaskId": task_id})

    # -- blocks of a snapshot --

    def start_snapshot(self, arguments: dict[str, Any]) -> str:
        """Begin one that is written block by block; returns its id."""
        return str(self.transport.call("ebs", t.CHANGE, "StartSnapshot", arguments)["SnapshotId"])

    def put_block(self, snapshot_id: str, index: int, data: bytes, digest: bytes) -> None:
        """Write one block.

        :param digest: its SHA-256. AWS refuses data that have another one.
        """
        arguments = {
            "SnapshotId": snapshot_id,
            "BlockIndex": index,
            "BlockData": data,
            "DataLength": len(data),
            "Checksum": base64.b64encode(digest).decode(),
            "ChecksumAlgorithm": "SHA256",
        }
        self.transport.call("ebs", t.STORE, "PutSnapshotBlock", arguments)

    def complete_snapshot(self, snapshot_id: str, blocks: int, digest: bytes | None) -> None:
        """All blocks are written. AWS compares.

        :param blocks: how many were written.
        :param digest: SHA-256 over the SHA-256 of the blocks, in their order; None = the content does not matter.
        """
        arguments: dict[str, Any] = {"SnapshotId": snapshot_id, "ChangedBlocksCount": blocks}
        if digest is not None:
            arguments |= {
                "Checksum": base64.b64encode(digest).decode(),
                "ChecksumAlgorithm": "SHA256",
                "ChecksumAggregationMethod": "LINEAR",
            }
        self.transport.call("ebs", t.CHANGE, "CompleteSnapshot", arguments)


class _SnapshotImports:
    def __init__(self, transport: t.AwsTransport) -> None:
        self._transport = transport

    def begin(self, arguments: Mapping[str, Any]) -> ImportTask:
        return ImportTask.of_snapshot(self._transport.call("ec2", t.CHANGE, "ImportSnapshot", dict(arguments)))

    def tasks(self) -> list[ImportTask]:
        return [ImportTask.of_snapshot(data) for data in self._list({"MaxResults": _TASKS_A_PAGE})]

    def task(self, task_id: str) -> ImportTask:
        return _only(task_id, [ImportTask.of_snapshot(data) for data in self._list({"ImportTaskIds": [task_id]})])

    def _list(self, given: dict[str, Any]) -> list[dict[str, Any]]:
        return list(self._transport.pages("ec2", t.READ, "DescribeImportSnapshotTasks", given, "ImportSnapshotTasks"))


class _ImageImports:
    def __init__(self, transport: t.AwsTransport) -> None:
        self._transport = transport

    def begin(self, arguments: Mapping[str, Any]) -> ImportTask:
        return ImportTask.of_image(self._transport.call("ec2", t.CHANGE, "ImportImage", dict(arguments)))

    def tasks(self) -> list[ImportTask]:
        return [ImportTask.of_image(data) for data in self._list({"MaxResults": _TASKS_A_PAGE})]

    def task(self, task_id: str) -> ImportTask:
        return _only(task_id, [ImportTask.of_image(data) for data in self._list({"ImportTaskIds": [task_id]})])

    def _list(self, given: dict[str, Any]) -> list[dict[str, Any]]:
        return list(self._transport.pages("ec2", t.READ, "DescribeImportImageTasks", given, "ImportImageTasks"))


def _only(task_id: str, found: list[ImportTask]) -> ImportTask:
    if not found:
        raise AwsNotFound(f"there is no import task {task_id}", code="InvalidConversionTaskId.NotFound")
    return found[0]


def _tag_filters(tags: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"Name": f"tag:{name}", "Values": [value]} for name, value in tags.items()]
