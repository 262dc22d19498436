# SPDX-License-Identifier: Apache-2.0
"""Takes each request through delay, faults, token check and its service; counts the calls."""

from __future__ import annotations

import logging
from collections import Counter
from fnmatch import fnmatchcase

from nodepool.testing.openstack.admin_api import AdminApi
from nodepool.testing.openstack.cloud import Cloud
from nodepool.testing.openstack.compute_api import ComputeApi
from nodepool.testing.openstack.faults import fault_answer
from nodepool.testing.openstack.identity_api import IdentityApi
from nodepool.testing.openstack.image_api import ImageApi
from nodepool.testing.openstack.image_data import BrokenOff, Upload, expect
from nodepool.testing.openstack.knobs import ErrorRule
from nodepool.testing.openstack.messages import Answer, ApiError, BodySink, Request, SteeredSink, json_answer
from nodepool.testing.openstack.network_api import NetworkApi
from nodepool.testing.openstack.object_api import ObjectApi
from nodepool.testing.openstack.routing import Route, Service
from nodepool.testing.openstack.volume_api import VolumeApi

LOG = logging.getLogger("nodepool.testing.openstack")


class CloudApplication:
    """All services below their prefixes, and ``/admin``.

    :ivar calls: how often each operation was called, for example ``compute.list_servers``.
    :ivar bugs: exceptions inside the simulator; a test should find none.
    """

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.calls: Counter[str] = Counter()
        self.bugs: list[str] = []
        self.identity = IdentityApi(cloud)
        self.admin = AdminApi(cloud, self.calls, self.identity, self.bugs)
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

    def delay(self, request: Request) -> float:
        """The latency that the settings say."""
        service, parts = self._service(request)
        if service is None:
            return 0.0
        core = self.cloud.core
        with core.lock:
            seconds = core.knobs.latency_seconds
            if core.knobs.latencies:
                found = service.find(request.method, parts)
                operation = f"{service.name}.{found[0].name if found else 'unknown'}"
                matching = (value for pattern, value in core.knobs.latencies.items() if fnmatchcase(operation, pattern))
                seconds = next(matching, seconds)
            body = max(0.0, request.sink.pause_seconds()) if isinstance(request.sink, SteeredSink) else 0.0
            return core.draw(seconds, "latency") + body

    def handle(self, request: Request) -> Answer:
        """Serves it. Never raises."""
        try:
            with self.cloud.core.lock:
                self.cloud.core.run_due()
                answer = self._handle(request)
                if isinstance(request.sink, SteeredSink):
                    # Unless it is kept by now.
                    request.sink.abandon()
                return answer
        except Exception as error:
            # Who calls the simulator, and the test, are to see it.
            LOG.exception("Bug in the simulator: %s %s", request.method, request.path)
            self.bugs.append(f"{request.method} {request.path}: {error!r}")
            return Answer(500, f"bug in the simulator: {error!r}".encode(), content_type="text/plain")

    def _service(self, request: Request) -> tuple[Service | None, list[str]]:
        parts = [part for part in request.path.split("/") if part]
        return (self._services.get(parts[0]) if parts else None), parts[1:]

    def _handle(self, request: Request) -> Answer:
        service, parts = self._service(request)
        if service is None:
            return self.admin.handle(request)
        found = service.find(request.method, parts) if service.available() else None
        operation = f"{service.name}.{found[0].name if found else 'unknown'}"
        self.calls[operation] += 1
        rule = self._fault(operation)
        if rule is not None and not rule.after:
            return fault_answer(service, rule)
        answer = self._serve(service, found, request)
        return answer if rule is None else fault_answer(service, rule)

    def _fault(self, operation: str) -> ErrorRule | None:
        core = self.cloud.core
        for rule in core.knobs.errors:
            if fnmatchcase(operation, rule.operation) and core.applies(rule, "api faults"):
                core.events[f"calls {rule.kind}{' after' if rule.after else ''}"] += 1
                return rule
        return None

    def _serve(self, service: Service, found: tuple[Route, list[str]] | None, request: Request) -> Answer:
        if found is None:
            return json_answer({"message": "The resource could not be found."}, 404)
        route, values = found
        try:
            if not route.open and not self.identity.valid(request.headers.get("x-auth-token", "")):
                raise ApiError(401, "The request you have made requires authentication.")
            return route.handler(request, values)
        except ApiError as error:
            return service.error(error)
        except BrokenOff:
            return Answer(silence=0.0)
