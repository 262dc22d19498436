# SPDX-License-Identifier: Apache-2.0
"""Resource groups of the simulated account, and the instance of object storage that is in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from simulators.base.messages import ApiError, Json, new_id
from simulators.ibmvpc.core import ACCOUNT, IbmCore, VpcError

#: The group that things are in whose makers named none.
DEFAULT: Final = "Default"
STORAGE_NAME: Final = "storage"
_STORAGE_GUID: Final = "5f0e1d2c-3b4a-4958-8677-a6b5c4d3e2f1"


@dataclass
class ResourceGroup:
    """A group.

    :param listed: the resource manager lists it.
    """

    id: str
    name: str
    created: str
    listed: bool = True

    @property
    def reference(self) -> Json:
        """As things have it that are in it."""
        address = f"https://resource-controller.cloud.ibm.com/v2/resource_groups/{self.id}"
        return {"href": address, "id": self.id, "name": self.name}

    def shown(self) -> Json:
        """As the resource manager has it."""
        return {
            "id": self.id,
            "crn": f"crn:v1:bluemix:public:resource-controller::a/{ACCOUNT}::resource-group:{self.id}",
            "account_id": ACCOUNT,
            "name": self.name,
            "state": "ACTIVE",
            "default": self.name == DEFAULT,
            "created_at": self.created,
            "updated_at": self.created,
            "resource_linkages": [],
        }


class ResourceGroups:
    """All groups of the account. The caller holds the core's lock."""

    def __init__(self, core: IbmCore) -> None:
        self.core = core
        self._all: dict[str, ResourceGroup] = {}
        self.default = self._add(DEFAULT)

    def _add(self, name: str, listed: bool = True) -> ResourceGroup:
        group = ResourceGroup(new_id().replace("-", ""), name, self.core.stamp(), listed)
        self._all[group.id] = group
        return group

    def create(self, name: str) -> ResourceGroup:
        """Makes one.

        :raises ApiError: 409, there is one of the name.
        """
        if self.named(name) is not None:
            raise ApiError(409, f"A resource group with the same name {name} already exists.", "RESGROUP_DUPLICATE")
        group = self._add(name)
        self.core.events["resource groups made"] += 1
        if self.core.knobs.group_lag_seconds[1] > 0:
            group.listed = False
            self.core.after(self.core.knobs.group_lag_seconds, "groups", lambda: setattr(group, "listed", True))
        return group

    def hidden(self, name: str) -> ResourceGroup:
        """A group that the client may not see, but whose things it sees."""
        return self.named(name) or self._add(name, listed=False)

    def ensure(self, name: str) -> ResourceGroup:
        """The group of the name; it is made if there is none."""
        return self.named(name) or self._add(name)

    def named(self, name: str) -> ResourceGroup | None:
        return next((group for group in self._all.values() if group.name == name), None)

    def get(self, group_id: str) -> ResourceGroup:
        """A group that a body names.

        :raises VpcError: there is none.
        """
        found = self._all.get(group_id)
        if found is None:
            text = f"The resource group {group_id} could not be found."
            raise VpcError(400, "resource_group_not_found", text, "resource_group.id", group_id)
        return found

    def remove(self, name: str) -> None:
        """The group is deleted; things in it keep its name."""
        self._all = {group.id: group for group in self._all.values() if group.name != name}

    def of_body(self, body: Json) -> ResourceGroup:
        """The group that something new is to be in.

        :raises VpcError: there is none.
        """
        told = body.get("resource_group")
        return self.get(str(told.get("id"))) if isinstance(told, dict) else self.default

    def listed(self) -> list[ResourceGroup]:
        return [group for group in self._all.values() if group.listed]


def storage_instance(stamp: str, group: ResourceGroup) -> Json:
    """The instance of Cloud Object Storage, as the resource controller has it."""
    whole = f"crn:v1:bluemix:public:cloud-object-storage:global:a/{ACCOUNT}:{_STORAGE_GUID}::"
    return {
        "id": whole,
        "guid": _STORAGE_GUID,
        "crn": whole,
        "name": STORAGE_NAME,
        "account_id": ACCOUNT,
        "region_id": "global",
        "resource_group_id": group.id,
        "state": "active",
        "type": "service_instance",
        "created_at": stamp,
        "updated_at": stamp,
    }
