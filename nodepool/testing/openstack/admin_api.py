# SPDX-License-Identifier: Apache-2.0
"""``/admin`` of the simulated OpenStack: mishaps, and things that no client made.

`nodepool.testing.openstack.client` is its client.
"""

from __future__ import annotations

from nodepool.testing.openstack.cloud import Cloud
from nodepool.testing.openstack.identity_api import IdentityApi
from nodepool.testing.openstack.messages import ApiError, Json
from nodepool.testing.simulator.admin import AdminApi
from nodepool.testing.simulator.application import SimulatedApplication

ADDABLE = ("server", "port", "floating_ip", "volume", "image")


class OpenStackAdminApi(AdminApi):
    """Adds its handlers to the common ones."""

    def __init__(self, cloud: Cloud, application: SimulatedApplication, identity: IdentityApi) -> None:
        super().__init__(cloud.core, application)
        self.cloud = cloud
        self._identity = identity
        self.handlers |= {
            ("GET", "/admin/servers"): self._servers,
            ("GET", "/admin/images"): self._images,
            ("POST", "/admin/add"): self._add,
            ("POST", "/admin/vanish"): self._vanish,
            ("POST", "/admin/release-stuck"): self._release_stuck,
            ("POST", "/admin/expire-tokens"): self._expire_tokens,
        }

    def state(self) -> Json:
        """Calls, events, contents and peaks."""
        observer = self.cloud.compute.observer
        own = {"contents": self.cloud.contents(), "peak_servers": observer.peak_machines}
        return super().state() | own | observer.state()

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

    def _add(self, body: Json) -> Json:
        arguments = dict(body)
        kind = arguments.pop("kind", None)
        if kind not in ADDABLE:
            raise ApiError(400, f"kind must be one of {', '.join(ADDABLE)}")
        if kind == "server":
            return {"id": self.cloud.add_server(**arguments).id}
        return {"id": getattr(self.cloud, f"add_{kind}")(**arguments)["id"]}

    def _vanish(self, body: Json) -> Json:
        self.cloud.compute.remove(self.cloud.compute.servers.get(str(body.get("id", ""))))
        return {}

    def _release_stuck(self, _body: Json) -> Json:
        self.cloud.compute.release_stuck()
        return {}

    def _expire_tokens(self, _body: Json) -> Json:
        self._identity.tokens.clear()
        return {}

    def reset_counters(self) -> Json:
        """Peaks begin anew, too."""
        before = super().reset_counters()
        self.cloud.compute.observer.reset()
        return before
