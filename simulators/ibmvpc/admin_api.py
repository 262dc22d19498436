# SPDX-License-Identifier: Apache-2.0
"""``/admin`` of the simulated region: mishaps, and things that no client made.

`simulators.ibmvpc.client` is its client.
"""

from __future__ import annotations

from simulators.base.admin import AdminApi
from simulators.base.application import SimulatedApplication
from simulators.base.messages import Json
from simulators.ibmvpc.cloud import VpcRegion
from simulators.ibmvpc.instances import node_metadata
from simulators.ibmvpc.resources import ADDRESSES, INSTANCES, VpcResource


class IbmVpcAdminApi(AdminApi):
    """Adds its handlers to the common ones."""

    def __init__(self, cloud: VpcRegion, application: SimulatedApplication) -> None:
        instances = cloud.instances
        super().__init__(cloud, application, instances.observer, "instances")
        self.cloud = cloud
        self.handlers["GET", "/admin/instances"] = self._instances
        self.add_makers(
            "id",
            {
                "instance": lambda **given: cloud.add_instance(**given).id,
                "floating_ip": lambda **given: cloud.add_address(**given).id,
                "volume": lambda **given: cloud.add_volume(**given).id,
                "image": lambda **given: cloud.add_image(**given).id,
                "resource_group": lambda **given: cloud.groups.ensure(**given).id,
            },
        )
        self.add_deeds(
            {
                "vanish": lambda body: instances.forget(self._named(body)),
                "preempt": lambda body: instances.stop(self._named(body)),
                "release-stuck": lambda _body: instances.release_stuck(),
            }
        )

    def state(self) -> Json:
        """How many floating IPs are free, too."""
        free = sum("target" not in found.document for found in self.cloud.resources.of(ADDRESSES))
        return super().state() | {"free_floating_ips": free}

    def _instances(self, _body: Json) -> Json:
        """All of them, also where lists do not show them."""
        return {
            "instances": [
                {
                    "id": instance.id,
                    "name": instance.name,
                    "state": instance.status,
                    "metadata": node_metadata(instance),
                }
                for instance in self.cloud.resources.of(INSTANCES)
            ]
        }

    def _named(self, body: Json) -> VpcResource:
        return self.cloud.resources.get(INSTANCES, str(body.get("id", "")))
