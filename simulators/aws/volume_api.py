# SPDX-License-Identifier: Apache-2.0
"""Operations on volumes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from simulators.aws.filters import Table, matching, one_page, tag_list, tags_for
from simulators.aws.volumes import SimulatedVolume
from simulators.base.messages import ApiError, Json

if TYPE_CHECKING:
    from simulators.aws.cloud import Region

FILTERS: Final[Table[SimulatedVolume]] = {
    "volume-id": lambda volume: [volume.id],
    "status": lambda volume: [volume.state],
    "volume-type": lambda volume: [volume.type],
    "snapshot-id": lambda volume: [volume.snapshot_id],
    "availability-zone": lambda volume: [volume.zone],
    "attachment.instance-id": lambda volume: [volume.instance_id],
}


class VolumeOperations:
    """:ivar operations: handlers by name of operation."""

    def __init__(self, cloud: Region) -> None:
        self.cloud = cloud
        self.operations: dict[str, Callable[[Json], Json]] = {
            "CreateVolume": self._create,
            "DescribeVolumes": self._describe,
            "DeleteVolume": self._delete,
        }

    def _create(self, arguments: Json) -> Json:
        size, kind = int(arguments.get("Size", 8)), arguments.get("VolumeType", "gp2")
        if not self.cloud.volumes.room(kind, size):
            raise ApiError(400, "You have exceeded your maximum volume storage.", "VolumeLimitExceeded")
        tags = tags_for("volume", arguments.get("TagSpecifications", ()))
        zone = arguments.get("AvailabilityZone", self.cloud.core.zones[0])
        return _shown(self.cloud.volumes.create(size, kind, zone, tags))

    def _describe(self, arguments: Json) -> Json:
        volumes = self.cloud.volumes
        ids = arguments.get("VolumeIds")
        asked = list(volumes.volumes.values()) if ids is None else [volumes.get(volume_id) for volume_id in ids]
        found = matching(asked, arguments.get("Filters", ()), FILTERS, lambda volume: volume.tags)
        page, token = one_page(self.cloud.core, found, lambda volume: volume.id, arguments)
        return {"Volumes": [_shown(volume) for volume in page], "NextToken": token}

    def _delete(self, arguments: Json) -> Json:
        self.cloud.volumes.delete(arguments["VolumeId"])
        return {}


def _shown(volume: SimulatedVolume) -> Json:
    attachment = {
        "VolumeId": volume.id,
        "InstanceId": volume.instance_id,
        "Device": volume.device,
        "State": "attached",
        "DeleteOnTermination": volume.delete_on_termination,
    }
    return {
        "VolumeId": volume.id,
        "Size": volume.size_gib,
        "VolumeType": volume.type,
        "State": volume.state,
        "AvailabilityZone": volume.zone,
        "CreateTime": volume.created,
        "SnapshotId": volume.snapshot_id,
        "Encrypted": volume.encrypted,
        "Iops": volume.iops or None,
        "Throughput": volume.throughput or None,
        "Attachments": [] if volume.instance_id is None else [attachment],
        "Tags": tag_list(volume.tags),
    }
