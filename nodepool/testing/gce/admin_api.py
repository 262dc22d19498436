# SPDX-License-Identifier: Apache-2.0
"""``/admin`` of the simulated project: mishaps, and things that no client made.

`nodepool.testing.gce.client` is its client.
"""

from __future__ import annotations

from collections.abc import Callable

from nodepool.testing.gce.cloud import Project
from nodepool.testing.gce.instances import ProjectInstance
from nodepool.testing.gce.resources import ProjectResource
from nodepool.testing.simulator.admin import AdminApi
from nodepool.testing.simulator.application import SimulatedApplication
from nodepool.testing.simulator.messages import ApiError, Json


class GceAdminApi(AdminApi):
    """Adds its handlers to the common ones."""

    def __init__(self, cloud: Project, application: SimulatedApplication) -> None:
        super().__init__(cloud.core, application)
        self.cloud = cloud
        instances = cloud.instances
        self.handlers |= {
            ("GET", "/admin/instances"): self._instances,
            ("POST", "/admin/add"): self._add,
            ("POST", "/admin/vanish"): lambda body: self._to_one(body, instances.forget),
            ("POST", "/admin/preempt"): lambda body: self._to_one(body, instances.preempt),
            ("POST", "/admin/terminate"): lambda body: self._to_one(body, instances.terminate),
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

    def _add(self, body: Json) -> Json:
        arguments = dict(body)
        kind = arguments.pop("kind", None)
        makers: dict[object, Callable[..., ProjectResource]] = {
            "instance": self.cloud.add_instance,
            "disk": self.cloud.add_disk,
            "address": self.cloud.add_address,
            "image": self.cloud.images.add,
        }
        if kind not in makers:
            raise ApiError(400, f"kind must be one of {', '.join(map(str, makers))}")
        return {"name": makers[kind](**arguments).name}

    def _to_one(self, body: Json, do: Callable[[ProjectInstance], None]) -> Json:
        name = str(body.get("name", ""))
        found = next((one for one in self.cloud.instances.all() if one.name == name), None)
        if found is None:
            raise ApiError(404, f"there is no instance {name!r}")
        do(found)
        return {}

    def _release_stuck(self, _body: Json) -> Json:
        self.cloud.instances.release_stuck()
        return {}
