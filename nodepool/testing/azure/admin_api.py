# SPDX-License-Identifier: Apache-2.0
"""``/admin`` of the simulated subscription: mishaps, and things that no client made.

`nodepool.testing.azure.client` is its client.
"""

from __future__ import annotations

from nodepool.testing.azure.cloud import Subscription
from nodepool.testing.azure.machines import VMS
from nodepool.testing.simulator.admin import AdminApi
from nodepool.testing.simulator.application import SimulatedApplication
from nodepool.testing.simulator.messages import ApiError, Json


class AzureAdminApi(AdminApi):
    """Adds its handlers to the common ones."""

    def __init__(self, cloud: Subscription, application: SimulatedApplication) -> None:
        super().__init__(cloud.core, application)
        self.cloud = cloud
        self.handlers |= {
            ("GET", "/admin/vms"): self._vms,
            ("POST", "/admin/add"): self._add,
            ("POST", "/admin/vanish"): self._vanish,
            ("POST", "/admin/evict"): self._evict,
            ("POST", "/admin/release-stuck"): self._release_stuck,
        }

    def state(self) -> Json:
        """Calls, events, contents and peaks."""
        observer = self.cloud.machines.observer
        own = {"contents": self.cloud.contents(), "peak_vms": observer.peak_machines}
        return super().state() | own | observer.state()

    def reset_counters(self) -> Json:
        """Peaks begin anew, too."""
        before = super().reset_counters()
        self.cloud.machines.observer.reset()
        return before

    def _vms(self, _body: Json) -> Json:
        """All of them, also where lists do not show them."""
        return {
            "vms": [
                {"name": vm.name, "state": vm.properties["provisioningState"], "tags": vm.tags}
                for vm in self.cloud.resources.of(VMS)
            ]
        }

    def _add(self, body: Json) -> Json:
        arguments = dict(body)
        kind = arguments.pop("kind", None)
        if kind == "vm":
            return {"name": self.cloud.add_vm(**arguments).name}
        if kind == "disk":
            return {"name": self.cloud.add_disk(**arguments).name}
        if kind == "image":
            return {"name": self.cloud.add_image(**arguments).name}
        raise ApiError(400, "kind must be one of vm, disk, image")

    def _vanish(self, body: Json) -> Json:
        self.cloud.machines.forget(self.cloud.resources.get(VMS, str(body.get("name", ""))))
        return {}

    def _evict(self, body: Json) -> Json:
        self.cloud.machines.evict(self.cloud.resources.get(VMS, str(body.get("name", ""))))
        return {}

    def _release_stuck(self, _body: Json) -> Json:
        self.cloud.machines.release_stuck()
        return {}
