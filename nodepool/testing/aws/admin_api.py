# SPDX-License-Identifier: Apache-2.0
"""``/admin`` of the simulated region: mishaps, and things that no client made.

`nodepool.testing.aws.client` is its client.
"""

from __future__ import annotations

from nodepool.testing.aws.cloud import Region
from nodepool.testing.simulator.admin import AdminApi
from nodepool.testing.simulator.application import SimulatedApplication
from nodepool.testing.simulator.messages import ApiError, Json


class AwsAdminApi(AdminApi):
    """Adds its handlers to the common ones."""

    def __init__(self, cloud: Region, application: SimulatedApplication) -> None:
        super().__init__(cloud.core, application)
        self.cloud = cloud
        self.handlers |= {
            ("GET", "/admin/instances"): self._instances,
            ("POST", "/admin/add"): self._add,
            ("POST", "/admin/vanish"): self._vanish,
            ("POST", "/admin/interrupt"): self._interrupt,
            ("POST", "/admin/release-stuck"): self._release_stuck,
        }

    def state(self) -> Json:
        """Calls, events, contents and peaks."""
        observer = self.cloud.instances.observer
        own = {"contents": self.cloud.contents(), "peak_instances": observer.peak_machines}
        return super().state() | own | observer.state()

    def reset_counters(self) -> Json:
        """Peaks begin anew, too."""
        before = super().reset_counters()
        self.cloud.instances.observer.reset()
        return before

    def _instances(self, _body: Json) -> Json:
        """Those that have not ended, also where lists do not show them."""
        return {
            "instances": [
                {"id": instance.id, "state": instance.name, "metadata": instance.node_metadata}
                for instance in self.cloud.instances.instances.values()
                if instance.name != "terminated"
            ]
        }

    def _add(self, body: Json) -> Json:
        arguments = dict(body)
        kind = arguments.pop("kind", None)
        if kind == "instance":
            return {"id": self.cloud.add_instance(**arguments).id}
        if kind == "volume":
            return {"id": self.cloud.add_volume(**arguments).id}
        raise ApiError(400, "kind must be one of instance, volume")

    def _vanish(self, body: Json) -> Json:
        self.cloud.instances.forget(self.cloud.instances.get([str(body.get("id", ""))])[0])
        return {}

    def _interrupt(self, body: Json) -> Json:
        self.cloud.instances.interrupt(self.cloud.instances.get([str(body.get("id", ""))])[0])
        return {}

    def _release_stuck(self, _body: Json) -> Json:
        self.cloud.instances.release_stuck()
        return {}
