# SPDX-License-Identifier: Apache-2.0
"""VpcQuotas of the simulated region, with IBM's words when one is reached."""

from __future__ import annotations

from simulators.ibmvpc.catalog import PROFILES, SimulatedProfile
from simulators.ibmvpc.core import IbmCore, VpcError
from simulators.ibmvpc.resources import ADDRESSES, IMAGES, INSTANCES, VOLUMES, VpcTable

_VCPUS = (
    "A non-dedicated host VSI with this profile ({wanted} vCPUs) will put user over quota. "
    "Allocated to instances: {used}, Allocated to dedicated hosts: 0, Quota: {limit}"
)
_MEMORY = "A VSI with this profile ({wanted}GB memory) will put user over quota. Allocated: {used}GB, Quota: {limit}GB"
_OTHER = "Creating a new {what} will put the user over quota. Allocated: {used}, Requested: {wanted}, Quota: {limit}"
#: Limit -> what IBM calls one of them.
_TITLES = {
    "instances": "instance",
    "volumes": "volume",
    "images": "image",
    "floating_ips": "floating IP address",
}


class VpcQuotas:
    """Limits are those of the settings. The caller holds the core's lock."""

    def __init__(self, core: IbmCore, resources: VpcTable) -> None:
        self.core = core
        self._resources = resources

    def check_instance(self, profile: SimulatedProfile) -> None:
        """:raises VpcError: an instance with the profile is one too many."""
        living = [PROFILES[found.document["profile"]["name"]] for found in self._resources.of(INSTANCES)]
        self._check("vcpus", sum(found.vcpus for found in living), profile.vcpus)
        self._check("memory", sum(found.memory for found in living), profile.memory)
        self._check("instances", len(living), 1)
        self._check(VOLUMES, self._resources.count(VOLUMES), 1)

    def check_image(self) -> None:
        """:raises VpcError: another image of the account is one too many."""
        own = sum(found.document["visibility"] == "private" for found in self._resources.of(IMAGES))
        self._check(IMAGES, own, 1)

    def check_address(self, zone: str) -> None:
        """:raises VpcError: another floating IP in the zone is one too many."""
        self._check(ADDRESSES, sum(found.zone == zone for found in self._resources.of(ADDRESSES)), 1)

    def _check(self, name: str, used: int, wanted: int) -> None:
        limit = self.core.knobs.quotas.get(name)
        if limit is None or used + wanted <= limit:
            return
        words = {"vcpus": _VCPUS, "memory": _MEMORY}.get(name, _OTHER)
        text = words.format(what=_TITLES.get(name, ""), used=used, wanted=wanted, limit=limit)
        raise VpcError(400, "over_quota", text)
