# SPDX-License-Identifier: Apache-2.0
"""``/admin`` of the simulated subscription: mishaps, and things that no client made.

`simulators.azure.client` is its client.
"""

from __future__ import annotations

from simulators.azure.cloud import Subscription
from simulators.azure.machines import VMS
from simulators.azure.resources import ArmResource
from simulators.base.admin import AdminApi
from simulators.base.application import SimulatedApplication
from simulators.base.messages import Json


class AzureAdminApi(AdminApi):
    """Adds its handlers to the common ones."""

    def __init__(self, cloud: Subscription, application: SimulatedApplication) -> None:
        machines = cloud.machines
        super().__init__(cloud, application, machines.observer, "vms")
        self.cloud = cloud
        self.handlers["GET", "/admin/vms"] = self._vms
        self.add_makers(
            "name",
            {
                "vm": lambda **given: cloud.add_vm(**given).name,
                "disk": lambda **given: cloud.add_disk(**given).name,
                "image": lambda **given: cloud.add_image(**given).name,
            },
        )
        self.add_deeds(
            {
                "vanish": lambda body: machines.forget(self._named(body)),
                "evict": lambda body: machines.evict(self._named(body)),
                "release-stuck": lambda _body: machines.release_stuck(),
            }
        )

    def _vms(self, _body: Json) -> Json:
        """All of them, also where lists do not show them."""
        return {
            "vms": [
                {"name": vm.name, "state": vm.properties["provisioningState"], "tags": vm.tags}
                for vm in self.cloud.resources.of(VMS)
            ]
        }

    def _named(self, body: Json) -> ArmResource:
        return self.cloud.resources.get(VMS, str(body.get("name", "")))
