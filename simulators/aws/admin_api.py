# SPDX-License-Identifier: Apache-2.0
"""``/admin`` of the simulated region: mishaps, and things that no client made.

`simulators.aws.client` is its client.
"""

from __future__ import annotations

from simulators.aws.cloud import Region
from simulators.aws.instance_record import SimulatedInstance
from simulators.base.admin import AdminApi
from simulators.base.application import SimulatedApplication
from simulators.base.messages import Json


class AwsAdminApi(AdminApi):
    """Adds its handlers to the common ones."""

    def __init__(self, cloud: Region, application: SimulatedApplication) -> None:
        instances = cloud.instances
        super().__init__(cloud, application, instances.observer, "instances")
        self.cloud = cloud
        self.handlers["GET", "/admin/instances"] = self._instances
        self.add_makers(
            "id",
            {
                "instance": lambda **given: cloud.add_instance(**given).id,
                "volume": lambda **given: cloud.add_volume(**given).id,
            },
        )
        self.add_deeds(
            {
                "vanish": lambda body: instances.forget(self._named(body)),
                "interrupt": lambda body: instances.interrupt(self._named(body)),
                "release-stuck": lambda _body: instances.release_stuck(),
            }
        )

    def _instances(self, _body: Json) -> Json:
        """Those that have not ended, also where lists do not show them."""
        return {
            "instances": [
                {"id": instance.id, "state": instance.name, "metadata": instance.node_metadata}
                for instance in self.cloud.instances.instances.values()
                if instance.name != "terminated"
            ]
        }

    def _named(self, body: Json) -> SimulatedInstance:
        return self.cloud.instances.get([str(body.get("id", ""))])[0]
