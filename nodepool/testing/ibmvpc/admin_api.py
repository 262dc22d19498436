# SPDX-License-Identifier: Apache-2.0
"""``/admin`` of the simulated region: mishaps, and things that no client made.

`nodepool.testing.ibmvpc.client` is its client.
"""

from __future__ import annotations

from typing import Any

from nodepool.testing.ibmvpc.cloud import VpcRegion
from nodepool.testing.ibmvpc.instances import node_metadata
from nodepool.testing.ibmvpc.resources import ADDRESSES, INSTANCES, VpcResource
from nodepool.testing.simulator.admin import AdminApi
from nodepool.testing.simulator.application import SimulatedApplication
from nodepool.testing.simulator.messages import ApiError, Json


class IbmVpcAdminApi(AdminApi):
    """Adds its handlers to the common ones."""

    def __init__(self, cloud: VpcRegion, application: SimulatedApplication) -> None:
        super().__init__(cloud.core, application)
        self.cloud = cloud
        self.handlers |= {
            ("GET", "/admin/instances"): self._instances,
            ("POST", "/admin/add"): self._add,
            ("POST", "/admin/vanish"): self._vanish,
            ("POST", "/admin/preempt"): self._preempt,
            ("POST", "/admin/release-stuck"): self._release_stuck,
        }

    def state(self) -> Json:
        """Calls, events, contents and peaks."""
        observer = self.cloud.instances.observer
        own: dict[str, Any] = {
            "contents": self.cloud.contents(),
            "free_floating_ips": sum("target" not in found.document for found in self.cloud.resources.of(ADDRESSES)),
            "peak_instances": observer.peak_machines,
        }
        return super().state() | own | observer.state()

    def reset_counters(self) -> Json:
        """Peaks begin anew, too."""
        before = super().reset_counters()
        self.cloud.instances.observer.reset()
        return before

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

    def _add(self, body: Json) -> Json:
        arguments = dict(body)
        kind = arguments.pop("kind", None)
        if kind == "instance":
            return {"id": self.cloud.add_instance(**arguments).id}
        if kind == "floating_ip":
            return {"id": self.cloud.add_address(**arguments).id}
        if kind == "volume":
            return {"id": self.cloud.add_volume(**arguments).id}
        if kind == "image":
            return {"id": self.cloud.add_image(**arguments).id}
        if kind == "resource_group":
            return {"id": self.cloud.groups.ensure(**arguments).id}
        raise ApiError(400, "kind must be one of instance, floating_ip, volume, image, resource_group")

    def _named(self, body: Json) -> VpcResource:
        return self.cloud.resources.get(INSTANCES, str(body.get("id", "")))

    def _vanish(self, body: Json) -> Json:
        self.cloud.instances.forget(self._named(body))
        return {}

    def _preempt(self, body: Json) -> Json:
        self.cloud.instances.stop(self._named(body))
        return {}

    def _release_stuck(self, _body: Json) -> Json:
        self.cloud.instances.release_stuck()
        return {}
