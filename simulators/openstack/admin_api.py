# SPDX-License-Identifier: Apache-2.0
"""``/admin`` of the simulated OpenStack: mishaps, and things that no client made.

`simulators.openstack.client` is its client.
"""

from __future__ import annotations

from simulators.base.admin import AdminApi
from simulators.base.application import SimulatedApplication
from simulators.openstack.cloud import Cloud
from simulators.openstack.identity_api import IdentityApi
from simulators.openstack.messages import Json


class OpenStackAdminApi(AdminApi):
    """Adds its handlers to the common ones."""

    def __init__(self, cloud: Cloud, application: SimulatedApplication, identity: IdentityApi) -> None:
        compute = cloud.compute
        super().__init__(cloud, application, compute.observer, "servers")
        self.cloud = cloud
        self.handlers |= {("GET", "/admin/servers"): self._servers, ("GET", "/admin/images"): self._images}
        self.add_makers(
            "id",
            {
                "server": lambda **given: cloud.add_server(**given).id,
                "port": lambda **given: str(cloud.add_port(**given)["id"]),
                "floating_ip": lambda **given: str(cloud.add_floating_ip(**given)["id"]),
                "volume": lambda **given: str(cloud.add_volume(**given)["id"]),
                "image": lambda **given: str(cloud.add_image(**given)["id"]),
            },
        )
        self.add_deeds(
            {
                "vanish": lambda body: compute.remove(compute.servers.get(str(body.get("id", "")))),
                "release-stuck": lambda _body: compute.release_stuck(),
                "expire-tokens": lambda _body: identity.tokens.clear(),
            }
        )

    def _servers(self, _body: Json) -> Json:
        """Those that live, also where lists do not show them."""
        return {
            "servers": [
                {"id": server.id, "status": server.status, "task_state": server.task_state, "metadata": server.metadata}
                for server in self.cloud.compute.servers
            ]
        }

    def _images(self, _body: Json) -> Json:
        """All of them, as Glance shows them."""
        return {"images": list(self.cloud.images.images)}
