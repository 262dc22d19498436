# SPDX-License-Identifier: Apache-2.0
"""All calls of EC2 that the driver makes for instances (`Ec2`), for subnets, and for uploaded images, in this order.

Lists always say how long their pages are: AWS takes twice as many of these.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from nodepool.driver.aws import transport as t
from nodepool.driver.aws.errors import AwsNotFound, instance_ids_in
from nodepool.driver.aws.types import (
    AccountQuota,
    AwsImage,
    AwsRecord,
    AwsSnapshot,
    AwsVolume,
    ImportTask,
    InstanceType,
    tag_list,
)
from nodepool.driver.framework.cloud_errors import CloudAway, CloudRefused
from nodepool.driver.framework.rate import Call

#: Longest pages.
INSTANCES_A_PAGE: Final = 1000
VOLUMES_A_PAGE: Final = 500
IMAGES_A_PAGE: Final = 1000
QUOTAS_A_PAGE: Final = 100


class Ec2:
    """One region. All methods block; any thread may call them. They raise what `nodepool.driver.aws.errors` has."""

    def __init__(self, transport: t.AwsTransport) -> None:
        self.transport = transport

    # -- instances --

    def instances(self) -> list[AwsRecord]:
        """All of the region."""
        pages = self._list("DescribeInstances", {"MaxResults": INSTANCES_A_PAGE}, "Reservations")
        return [AwsRecord.of(data) for reservation in pages for data in reservation.get("Instances") or ()]

    def instance(self, instance_id: str) -> AwsRecord:
        """One instance, as it is now; raises AwsNotFound."""
        found = self._instances_where("instance-id", instance_id)
        if not found:
            raise AwsNotFound(f"there is no instance {instance_id}", code="InvalidInstanceID.NotFound")
        return found[0]

    def instances_of_token(self, token: str) -> list[AwsRecord]:
        """What a creation with this client token made."""
        return self._instances_where("client-token", token)

    def _instances_where(self, name: str, value: str) -> list[AwsRecord]:
        # An id that is not known (yet) is an error in a list of ids, but not in a filter.
        filters = [{"Name": name, "Values": [value]}]
        found = self._list("DescribeInstances", {"Filters": filters, "MaxResults": INSTANCES_A_PAGE}, "Reservations")
        return [AwsRecord.of(data) for reservation in found for data in reservation.get("Instances") or ()]

    def wait_to_run(self) -> Call:
        """Block until instances may be made: for `run_instances`."""
        return self.transport.wait_turn(t.RUN, "RunInstances")

    def run_instances(
        self, arguments: dict[str, Any], count: int, permit: Callable[[], None], turn: Call | None = None
    ) -> list[AwsRecord]:
        """Make instances, at least one; returns them as they are then.

        :param count: so many at most.
        """
        given = {**arguments, "MinCount": 1, "MaxCount": count}
        answer = self.transport.call("ec2", t.RUN, "RunInstances", given, permit, turn)
        if not answer.get("Instances"):
            # What became of them, lists will show.
            raise CloudAway(f"Provider {self.transport.provider}: RunInstances failed: the answer has no instances")
        return [AwsRecord.of(data) for data in answer["Instances"]]

    def terminate(self, take: Callable[[], list[str]]) -> dict[str, Exception]:
        """Order the end of instances in one call; returns the errors of those that are refused.

        :param take: asked for the ids when the call's turn has come.
        """
        ids: list[str] = []

        def arguments() -> dict[str, Any]:
            ids[:] = take()
            return {"InstanceIds": ids}

        try:
            self.transport.call("ec2", t.TERMINATE, "TerminateInstances", arguments)
        except CloudRefused as error:
            return self._one_refused(ids, error)
        return {}

    def _one_refused(self, ids: list[str], error: CloudRefused) -> dict[str, Exception]:
        """One id that AWS does not take makes it refuse all: the others are sent again without it."""
        if len(ids) == 1:
            return {ids[0]: error}
        named = instance_ids_in(str(error)).intersection(ids)
        if isinstance(error, AwsNotFound) and named and len(named) < len(ids):
            rest = [instance_id for instance_id in ids if instance_id not in named]
            return {**dict.fromkeys(named, error), **self.terminate(lambda: rest)}
        half = len(ids) // 2
        return {**self.terminate(lambda: ids[:half]), **self.terminate(lambda: ids[half:])}

    def console(self, instance_id: str) -> str | None:
        """What an instance wrote to its console; None = nothing so far, or it is gone."""
        with contextlib.suppress(AwsNotFound):
            answer = self.transport.call("ec2", t.READ, "GetConsoleOutput", {"InstanceId": instance_id})
            return answer.get("Output") or None
        return None

    # -- volumes --

    def volumes(self) -> list[AwsVolume]:
        """All of the region."""
        found = self._list("DescribeVolumes", {"MaxResults": VOLUMES_A_PAGE}, "Volumes")
        return [AwsVolume.of(data) for data in found]

    def delete_volume(self, volume_id: str) -> None:
        self.transport.call("ec2", t.CHANGE, "DeleteVolume", {"VolumeId": volume_id})

    def tag_now(self, ids: Iterable[str], tags: Mapping[str, str]) -> None:
        """Set tags of things of any kind."""
        self.tag(lambda: (ids, tags))

    def tag(self, wanted: Callable[[], tuple[Iterable[str], Mapping[str, str]]]) -> None:
        """Set tags of things of any kind.

        :param wanted: asked for their ids, and the tags, when the call's turn has come.
        """

        def arguments() -> dict[str, Any]:
            ids, tags = wanted()
            return {"Resources": list(ids), "Tags": tag_list(tags)}

        self.transport.call("ec2", t.TAG, "CreateTags", arguments)

    # -- limits --

    def quotas(self, service: str) -> list[AccountQuota]:
        """Limits of the account.

        :param service: ``ec2`` or ``ebs``.
        """
        given = {"ServiceCode": service, "MaxResults": QUOTAS_A_PAGE}
        found = self.transport.pages("service-quotas", t.QUOTAS, "ListServiceQuotas", given, "Quotas")
        # One that AWS could not find out has a reason in place of its value.
        told = (quota for quota in found if "Value" in quota)
        return [AccountQuota(quota["QuotaCode"], quota.get("QuotaName", ""), quota["Value"]) for quota in told]

    # -- images and types --

    def image(self, image_id: str) -> AwsImage:
        """One AMI; raises AwsNotFound."""
        answer = self.transport.call("ec2", t.READ, "DescribeImages", {"ImageIds": [image_id]})
        if not answer.get("Images"):
            raise AwsNotFound(f"there is no image {image_id}; correct image-id", code="InvalidAMIID.NotFound")
        return AwsImage.of(answer["Images"][0])

    def images_where(self, filters: list[dict[str, Any]]) -> list[AwsImage]:
        """AMIs of anybody for which all filters hold."""
        found = self._list("DescribeImages", {"Filters": filters, "MaxResults": IMAGES_A_PAGE}, "Images")
        return [AwsImage.of(data) for data in found]

    def instance_type(self, name: str) -> InstanceType:
        """One type; an CloudRefused with the code ``InvalidInstanceType`` if AWS does not know it in the region."""
        answer = self.transport.call("ec2", t.READ, "DescribeInstanceTypes", {"InstanceTypes": [name]})
        if not answer.get("InstanceTypes"):
            raise CloudRefused(f"there is no instance type {name}", code="InvalidInstanceType")
        return InstanceType.of(answer["InstanceTypes"][0])

    def _list(self, operation: str, arguments: dict[str, Any], key: str) -> list[dict[str, Any]]:
        return list(self.transport.pages("ec2", t.READ, operation, arguments, key))


# `SubnetClient`: which subnets there are.


class Subnet(NamedTuple):
    """A subnet."""

    id: str
    zone: str
    vpc: str
    #: Addresses that are left.
    free: int
    ipv6: bool

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Subnet:
        return cls(
            id=data["SubnetId"],
            zone=data.get("AvailabilityZone", ""),
            vpc=data.get("VpcId", ""),
            free=data.get("AvailableIpAddressCount", 1),
            ipv6=bool(data.get("Ipv6CidrBlockAssociationSet")),
        )


class SubnetClient:
    """One region. All methods block; any thread may call them. They raise what `nodepool.driver.aws.errors` has.

    What is not there is missing in the answers: ids are sent as filters.
    """

    def __init__(self, transport: t.AwsTransport) -> None:
        self._transport = transport

    def subnets(self, ids: Iterable[str]) -> dict[str, Subnet]:
        """Subnets, by id."""
        return self._subnets("subnet-id", list(ids))

    def default_subnets(self) -> dict[str, Subnet]:
        """Those of the default VPC, which instances get that name none."""
        return self._subnets("default-for-az", ["true"])

    def _subnets(self, name: str, values: list[str]) -> dict[str, Subnet]:
        given = {"Filters": [{"Name": name, "Values": values}], "MaxResults": 1000}
        found = self._transport.pages("ec2", t.READ, "DescribeSubnets", given, "Subnets")
        return {subnet.id: subnet for subnet in map(Subnet.of, found)}


# `ImageCalls`: the calls of EC2 and of EBS that are made for uploaded images.

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
