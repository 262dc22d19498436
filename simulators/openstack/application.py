# SPDX-License-Identifier: Apache-2.0
"""Takes each request through faults, token check and its service."""

from __future__ import annotations

from simulators.base.application import SimulatedApplication
from simulators.base.faults import fault_answer
from simulators.openstack.admin_api import OpenStackAdminApi
from simulators.openstack.cloud import Cloud
from simulators.openstack.compute_api import ComputeApi
from simulators.openstack.identity_api import IdentityApi
from simulators.openstack.image_api import ImageApi
from simulators.openstack.image_data import BrokenOff, Upload, expect
from simulators.openstack.messages import Answer, ApiError, BodySink, Request, json_answer
from simulators.openstack.network_api import NetworkApi
from simulators.openstack.object_api import ObjectApi
from simulators.openstack.routing import Route, Service
from simulators.openstack.volume_api import VolumeApi

MESSAGES = {
    401: "The request you have made requires authentication.",
    403: "Policy doesn't allow this operation to be performed.",
    429: "Too many requests.",
    500: "Unexpected API Error. Please report this at http://bugs.launchpad.net/nova/.",
    503: "The server is currently unavailable. Please try again at a later time.",
}


class CloudApplication(SimulatedApplication):
    """All services below their prefixes, and ``/admin``."""

    def __init__(self, cloud: Cloud) -> None:
        super().__init__(cloud.core)
        self.cloud = cloud
        self.identity = IdentityApi(cloud)
        self.admin = OpenStackAdminApi(cloud, self, self.identity)
        services: list[Service] = [
            self.identity,
            ComputeApi(cloud),
            NetworkApi(cloud),
            ImageApi(cloud),
            VolumeApi(cloud),
            ObjectApi(cloud),
        ]
        self._services = {service.name: service for service in services}

    def body_sink(self, request: Request) -> BodySink | None:
        """Image data are not kept."""
        parts = [part for part in request.path.split("/") if part]
        if request.method != "PUT" or len(parts) < 5:
            return None
        status = {"file": "saving", "stage": "uploading"}.get(parts[4])
        with self.cloud.core.lock:
            if parts[0] == "object":
                return None if "multipart-manifest" in request.query else expect(self.cloud.core, parts[4])
            if len(parts) > 5 or parts[:3] != ["image", "v2", "images"] or status is None:
                return None
            if not self.identity.valid(request.headers.get("x-auth-token", "")):
                return Upload(checksums=False)
            length = request.headers.get("content-length", "")
            return self.cloud.images.expect(parts[3], status, int(length) if length.isdigit() else None)

    def operation(self, request: Request) -> str | None:
        """``<service>.<operation>``; None = ``/admin``."""
        service, parts = self._service(request)
        if service is None:
            return None
        found = service.find(request.method, parts)
        return f"{service.name}.{found[0].name if found else 'unknown'}"

    def serve(self, request: Request) -> Answer:
        service, parts = self._service(request)
        if service is None:
            return self.admin.handle(request)
        found = service.find(request.method, parts) if service.available() else None
        rule = self.fault(f"{service.name}.{found[0].name if found else 'unknown'}")
        if rule is not None and not rule.after:
            return fault_answer(rule, service.told, MESSAGES)
        answer = self._serve(service, found, request)
        return answer if rule is None else fault_answer(rule, service.told, MESSAGES)

    def _service(self, request: Request) -> tuple[Service | None, list[str]]:
        parts = [part for part in request.path.split("/") if part]
        return (self._services.get(parts[0]) if parts else None), parts[1:]

    def _serve(self, service: Service, found: tuple[Route, list[str]] | None, request: Request) -> Answer:
        if found is None:
            return json_answer({"message": "The resource could not be found."}, 404)
        route, values = found
        try:
            if not route.open and not self.identity.valid(request.headers.get("x-auth-token", "")):
                raise ApiError(401, "The request you have made requires authentication.")
            return route.handler(request, values)
        except ApiError as error:
            return service.told(error)
        except BrokenOff:
            return Answer(silence=0.0)
