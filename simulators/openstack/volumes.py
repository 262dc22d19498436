# SPDX-License-Identifier: Apache-2.0
"""The simulated Cinder: volumes that servers boot from, and their quota."""

from __future__ import annotations

from simulators.openstack.collection import Collection
from simulators.openstack.core import Core
from simulators.openstack.messages import ApiError, Json, new_id

DELETING = "deleting"
#: How long a volume is overwritten before it goes.
DELETING_SECONDS = 0.3


class Volumes:
    """All of Cinder's state. The caller holds the core's lock."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.volumes = Collection("Volume", "volumes")

    def used_gigabytes(self) -> int:
        """The sum of all sizes."""
        return sum(volume["size"] for volume in self.volumes)

    def create(self, size: int, server_id: str | None = None, name: str = "", metadata: Json | None = None) -> Json:
        """Makes a volume of ``size`` GiB, attached to the server if one is given.

        :raises ApiError: 413 in Cinder's two texts for a quota.
        """
        quota = self.core.knobs.quota
        if 0 <= quota.volumes <= len(self.volumes):
            text = f"Maximum number of volumes allowed ({quota.volumes}) exceeded for quota 'volumes'."
            raise ApiError(413, f"VolumeLimitExceeded: {text}")
        used = self.used_gigabytes()
        if quota.gigabytes >= 0 and used + size > quota.gigabytes:
            text = "Requested volume or snapshot exceeds allowed gigabytes quota. "
            text += f"Requested {size}G, quota is {quota.gigabytes}G and {used}G has been consumed."
            raise ApiError(413, f"VolumeSizeExceedsAvailableQuota: {text}")
        volume: Json = {
            "id": new_id(),
            "name": name,
            "description": "",
            "size": size,
            "status": "in-use" if server_id else "available",
            "bootable": "true",
            "encrypted": False,
            "multiattach": False,
            "availability_zone": "nova",
            "volume_type": "simulated",
            "metadata": metadata or {},
            "attachments": [],
            "snapshot_id": None,
            "source_volid": None,
            "user_id": self.core.user_id,
            "os-vol-tenant-attr:tenant_id": self.core.project_id,
            "created_at": self.core.stamp().rstrip("Z") + ".000000",
            "updated_at": self.core.stamp().rstrip("Z") + ".000000",
        }
        if server_id:
            volume["attachments"] = [{"server_id": server_id, "volume_id": volume["id"], "device": "/dev/vda"}]
        self.core.accepted("Volume", volume["id"])
        return self.volumes.add(volume)

    def detach(self, volume: Json) -> None:
        """Makes it available."""
        volume["status"] = "available"
        volume["attachments"] = []
        self.volumes.changed(volume)

    def delete(self, key: str) -> None:
        """Deletes it, at once or soon.

        :raises ApiError: 404; 400, it is in use, or being deleted.
        """
        volume = self.volumes.get(key)
        if volume["status"] in ("in-use", DELETING):
            text = "Volume status must be available or error or error_restoring or error_extending or error_managing"
            raise ApiError(400, f"Invalid volume: {text} and must not be migrating, attached.")
        if self.core.turn("deleted volume", False, True):
            volume["status"] = DELETING
            self.volumes.changed(volume)
            self.core.at(self.core.now() + DELETING_SECONDS, lambda: self._end(key))
        else:
            self._end(key)

    def _end(self, key: str) -> None:
        self.volumes.remove(key)
