# SPDX-License-Identifier: Apache-2.0
"""Volumes of the simulated region. Those that instances boot from are the only ones that clients make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simulators.base.messages import Json
from simulators.ibmvpc.core import IbmCore, VpcError, crn, href, zone_reference
from simulators.ibmvpc.groups import ResourceGroup
from simulators.ibmvpc.network import reference
from simulators.ibmvpc.resources import VOLUMES, VpcResource, VpcTable


class VpcVolumes:
    """All volumes. The caller holds the core's lock."""

    def __init__(self, core: IbmCore, resources: VpcTable) -> None:
        self.core = core
        self._resources = resources

    def add(
        self, name: str, zone: str, group: ResourceGroup, tags: Sequence[str] = (), capacity: int = 100
    ) -> VpcResource:
        """A volume that is attached to nothing; the caller has looked at the name.

        :param capacity: GB.
        """
        identity = self.core.new_id()
        document = {
            "active": False,
            "adjustable_capacity_states": ["attached"],
            "adjustable_iops_states": [],
            "attachment_state": "unattached",
            "bandwidth": 393,
            "busy": False,
            "capacity": capacity,
            "created_at": self.core.stamp(),
            "crn": crn("volume", identity, zone),
            "encryption": "provider_managed",
            "health_reasons": [],
            "health_state": "ok",
            "href": href(f"{VOLUMES}/{identity}"),
            "id": identity,
            "iops": 3000,
            "name": name,
            "profile": {"href": href("volume/profiles/general-purpose"), "name": "general-purpose"},
            "resource_group": group.reference,
            "resource_type": "volume",
            "software_attachments": [],
            "status": "available",
            "status_reasons": [],
            "storage_generation": 1,
            "user_tags": list(tags),
            "volume_attachments": [],
            "zone": zone_reference(zone),
        }
        self.core.events["volumes made"] += 1
        return self._resources.add(VpcResource(VOLUMES, self.core.number(), document))

    def attach(self, volume: VpcResource, instance: Json, attachment: Json, delete: bool) -> None:
        """To an instance, as its boot volume."""
        # The reference of an instance, and only that, does not say what it is.
        owner = {name: value for name, value in reference(instance).items() if name != "resource_type"}
        volume.document |= {
            "active": True,
            "attachment_state": "attached",
            "volume_attachments": [
                {
                    **attachment,
                    "delete_volume_on_instance_delete": delete,
                    "instance": owner,
                    "type": "boot",
                }
            ],
        }

    def detach(self, volume: VpcResource) -> None:
        """Its instance is gone."""
        volume.document |= {"active": False, "attachment_state": "unattached", "volume_attachments": []}

    def delete(self, volume: VpcResource) -> None:
        """Accepts a DELETE.

        :raises VpcError: it is attached, or deleted already.
        """
        if volume.document["volume_attachments"]:
            text = f"The volume {volume.id} is attached to an instance."
            raise VpcError(409, "volume_in_use", text, "id", volume.id)
        if volume.status not in ("available", "failed"):
            raise VpcError(409, "volume_not_deletable", "Delete failed.", "id", volume.id)
        volume.document["status"] = "pending_deletion"
        self.core.after(self.core.knobs.delete_seconds, "volumes", lambda: self.remove(volume))

    def remove(self, volume: VpcResource) -> None:
        self._resources.remove(volume)
        self.core.events["volumes deleted"] += 1


def user_tags(told: Any) -> list[str]:
    """:raises VpcError: these are no tags."""
    tags = told or []
    if not isinstance(tags, list) or not all(isinstance(tag, str) and 0 < len(tag) <= 128 for tag in tags):
        raise VpcError(400, "invalid_value", "The user tags are not valid.", "user_tags")
    return [tag.lower() for tag in tags]
