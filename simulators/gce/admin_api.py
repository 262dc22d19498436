# SPDX-License-Identifier: Apache-2.0
"""``/admin`` of the simulated project: mishaps, and things that no client made.

`simulators.gce.client` is its client.
"""

from __future__ import annotations

from simulators.base.admin import AdminApi
from simulators.base.application import SimulatedApplication
from simulators.base.messages import ApiError, Json
from simulators.gce.cloud import Project
from simulators.gce.instances import ProjectInstance


class GceAdminApi(AdminApi):
    """Adds its handlers to the common ones."""

    def __init__(self, cloud: Project, application: SimulatedApplication) -> None:
        instances = cloud.instances
        super().__init__(cloud, application, instances.observer, "instances")
        self.cloud = cloud
        self.handlers["GET", "/admin/instances"] = self._instances
        self.add_makers(
            "name",
            {
                "instance": lambda **given: cloud.add_instance(**given).name,
                "disk": lambda **given: cloud.add_disk(**given).name,
                "address": lambda **given: cloud.add_address(**given).name,
                "image": lambda **given: cloud.images.add(**given).name,
            },
        )
        self.add_deeds(
            {
                "vanish": lambda body: instances.forget(self._named(body)),
                "preempt": lambda body: instances.preempt(self._named(body)),
                "terminate": lambda body: instances.terminate(self._named(body)),
                "release-stuck": lambda _body: instances.release_stuck(),
            }
        )

    def _instances(self, _body: Json) -> Json:
        """All of them, also where lists do not show them."""
        return {
            "instances": [
                {
                    "id": one.name,
                    "name": one.name,
                    "zone": one.spec.zone,
                    "status": one.status,
                    "metadata": one.spec.metadata,
                    "labels": one.document.get("labels", {}),
                }
                for one in self.cloud.instances.all()
            ]
        }

    def _named(self, body: Json) -> ProjectInstance:
        name = str(body.get("name", ""))
        found = next((one for one in self.cloud.instances.all() if one.name == name), None)
        if found is None:
            raise ApiError(404, f"there is no instance {name!r}")
        return found
