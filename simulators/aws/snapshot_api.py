# SPDX-License-Identifier: Apache-2.0
"""Operations of EC2 on snapshots, and those that make and remove AMIs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from simulators.aws.core import ACCOUNT
from simulators.aws.filters import Table, matching, one_page, tag_list, tags_for
from simulators.aws.snapshots import COMPLETED, SimulatedSnapshot
from simulators.base.messages import ApiError, Json

if TYPE_CHECKING:
    from simulators.aws.cloud import Region

FILTERS: Final[Table[SimulatedSnapshot]] = {
    "snapshot-id": lambda snapshot: [snapshot.id],
    "status": lambda snapshot: [snapshot.state],
    "description": lambda snapshot: [snapshot.description],
    "volume-size": lambda snapshot: [snapshot.size_gib],
    "owner-id": lambda _snapshot: [ACCOUNT],
}


class SnapshotOperations:
    """:ivar operations: handlers by name of operation."""

    def __init__(self, cloud: Region) -> None:
        self.cloud = cloud
        self.operations: dict[str, Callable[[Json], Json]] = {
            "DescribeSnapshots": self._describe,
            "DeleteSnapshot": self._delete,
            "RegisterImage": self._register,
            "DeregisterImage": self._deregister,
        }

    def _describe(self, arguments: Json) -> Json:
        snapshots = self.cloud.snapshots
        ids = arguments.get("SnapshotIds")
        asked = list(snapshots.snapshots.values()) if ids is None else [snapshots.get(given) for given in ids]
        found = matching(asked, arguments.get("Filters", ()), FILTERS, lambda snapshot: snapshot.tags)
        page, token = one_page(self.cloud.core, found, lambda snapshot: snapshot.id, arguments)
        return {"Snapshots": [_shown(snapshot) for snapshot in page], "NextToken": token}

    def _delete(self, arguments: Json) -> Json:
        self.cloud.snapshots.delete(arguments["SnapshotId"])
        return {}

    def _register(self, arguments: Json) -> Json:
        core, images = self.cloud.core, self.cloud.images
        name, root = arguments.get("Name", ""), arguments.get("RootDeviceName", "/dev/sda1")
        for image in images.images.values():
            if image.name == name and image.owner == ACCOUNT:
                text = f"AMI name {name} is already in use by AMI {image.id}"
                raise ApiError(400, text, "InvalidAMIName.Duplicate")
        devices = [self._device(given) for given in arguments.get("BlockDeviceMappings", ())]
        if root not in {device["DeviceName"] for device in devices}:
            raise ApiError(400, "The root device has no snapshot", "InvalidBlockDeviceMapping")
        image = images.add(
            name,
            devices=devices,
            state="pending",
            root_device=root,
            architecture=arguments.get("Architecture", "i386"),
            ena_support=arguments.get("EnaSupport", False),
            imds_support=arguments.get("ImdsSupport"),
            tags=tags_for("image", arguments.get("TagSpecifications", ())),
        )
        core.after(core.knobs.register_seconds, "register", lambda: setattr(image, "state", "available"))
        core.events["images registered"] += 1
        return {"ImageId": image.id}

    def _device(self, given: Json) -> Json:
        ebs = dict(given.get("Ebs", {}))
        snapshot = self.cloud.snapshots.get(ebs.get("SnapshotId", ""))
        if snapshot.state != COMPLETED:
            raise ApiError(400, f"Snapshot {snapshot.id} is {snapshot.state}", "IncorrectState")
        if ebs.setdefault("VolumeSize", snapshot.size_gib) < snapshot.size_gib:
            text = (
                f"Volume of size {ebs['VolumeSize']}GB is smaller than snapshot, expect size >= {snapshot.size_gib}GB"
            )
            raise ApiError(400, text, "InvalidBlockDeviceMapping")
        ebs.setdefault("VolumeType", "standard")
        ebs.setdefault("DeleteOnTermination", True)
        ebs.setdefault("Encrypted", False)
        return {"DeviceName": given["DeviceName"], "Ebs": ebs}

    def _deregister(self, arguments: Json) -> Json:
        image = self.cloud.images.get(arguments["ImageId"])
        if image.owner != ACCOUNT:
            raise ApiError(403, f"You do not own {image.id}", "AuthFailure")
        del self.cloud.images.images[image.id]
        self.cloud.core.events["images deregistered"] += 1
        return {"Return": True}


def _shown(snapshot: SimulatedSnapshot) -> Json:
    return {
        "SnapshotId": snapshot.id,
        "State": snapshot.state,
        "StateMessage": snapshot.message or None,
        "VolumeSize": snapshot.size_gib,
        "VolumeId": "vol-ffffffff",
        "StartTime": snapshot.created,
        "Progress": "100%" if snapshot.state == COMPLETED else "",
        "OwnerId": ACCOUNT,
        "Description": snapshot.description,
        "Encrypted": False,
        "Tags": tag_list(snapshot.tags),
    }
