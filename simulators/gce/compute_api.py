# SPDX-License-Identifier: Apache-2.0
"""Compute Engine, version 1: how each call is answered.

Methods have the names, the paths and the shapes of Google's discovery document, which a test compares.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from simulators.base.messages import Answer, ApiError, Json, Request, json_answer
from simulators.base.routing import Route, Routes
from simulators.gce import catalog, quotas
from simulators.gce.call_groups import CallLimits
from simulators.gce.cloud import Project
from simulators.gce.errors import already_exists, error_answer, invalid, not_found
from simulators.gce.field_mask import masked, read_mask
from simulators.gce.instance_spec import check_name, read_instance_spec, read_labels
from simulators.gce.instances import RUNNING, ProjectInstance
from simulators.gce.links import (
    GLOBAL,
    IMAGE_PROJECT,
    PROJECT,
    REGIONS,
    ZONES,
    link,
    path_of,
    region_scope,
    zone_scope,
)
from simulators.gce.lists import ProjectLists
from simulators.gce.operations import ProjectOperation
from simulators.gce.resources import ProjectResource

PREFIX: Final = "/compute/v1/"
Method = Callable[[Request, list[str]], Json]
#: What one of a collection is called.
_KINDS: Final = {"instances": "instance", "disks": "disk", "addresses": "address", "images": "image"}


class GoogleComputeApi:
    """Serves what is below ``/compute/v1``."""

    def __init__(self, cloud: Project) -> None:
        self.cloud = cloud
        self.limits = CallLimits(cloud.core.now)
        self.lists = ProjectLists(cloud)
        self.routes = Routes()
        #: Method and template by name.
        self.table: dict[str, tuple[str, str]] = {}
        zone, region, everywhere = "projects/{}/zones/{}", "projects/{}/regions/{}", "projects/{}/global"
        self._add("GET", "projects/{}", "projects.get", self._project)
        self._add("GET", zone, "zones.get", self._zone)
        self._add("GET", "projects/{}/zones", "zones.list", self._zones)
        self._add("GET", region, "regions.get", self._region)
        self._add("GET", "projects/{}/regions", "regions.list", self._regions)
        self._add("GET", f"{zone}/machineTypes/{{}}", "machineTypes.get", self._machine_type)
        self._add("GET", f"{zone}/machineTypes", "machineTypes.list", self._machine_types)
        self._add("GET", f"{everywhere}/networks/{{}}", "networks.get", self._network)
        self._add("GET", f"{region}/subnetworks/{{}}", "subnetworks.get", self._subnetwork)
        self._add("POST", f"{zone}/instances", "instances.insert", self._insert_instance)
        self._add("GET", f"{zone}/instances/{{}}/serialPort", "instances.getSerialPortOutput", self._serial_port)
        self._add("POST", f"{region}/addresses", "addresses.insert", self._insert_address)
        self._add("POST", f"{everywhere}/images", "images.insert", self._insert_image)
        self._add("GET", f"{everywhere}/images/family/{{}}", "images.getFromFamily", self._family)
        self._add("DELETE", f"{everywhere}/images/{{}}", "images.delete", self._delete_image)
        places = {"instances": zone, "disks": zone, "addresses": region, "images": everywhere}
        deleting: dict[str, Method] = {
            "instances": self._delete_instance,
            "disks": self._delete_unused,
            "addresses": self._delete_unused,
        }
        for collection, place in places.items():
            self._add("GET", f"{place}/{collection}", f"{collection}.list", self._list)
            self._add("GET", f"{place}/{collection}/{{}}", f"{collection}.get", self._get)
            if collection in deleting:
                self._add("GET", f"projects/{{}}/aggregated/{collection}", f"{collection}.aggregatedList", self._all)
                self._add("DELETE", f"{place}/{collection}/{{}}", f"{collection}.delete", deleting[collection])
            if collection != "addresses":
                path = f"{place}/{collection}/{{}}/setLabels"
                self._add("POST", path, f"{collection}.setLabels", self._set_labels)
        for name, place in (("zone", zone), ("region", region), ("global", everywhere)):
            self._add("GET", f"{place}/operations", f"{name}Operations.list", self._list)
            self._add("GET", f"{place}/operations/{{}}", f"{name}Operations.get", self._operation)
            self._add("POST", f"{place}/operations/{{}}/wait", f"{name}Operations.wait", self._operation)
        self._add("GET", "projects/{}/aggregated/operations", "globalOperations.aggregatedList", self._all)

    def _add(self, method: str, template: str, name: str, handler: Method) -> None:
        def serve(request: Request, values: list[str]) -> Answer:
            return json_answer(masked(handler(request, values), read_mask(request.argument("fields"))))

        self.table[name] = (method, template)
        self.routes.route(method, template, name, serve)

    def find(self, request: Request) -> tuple[Route, list[str]] | None:
        """The method of a request, and the variable parts of its path; None = there is none."""
        if not request.path.startswith(PREFIX):
            return None
        return self.routes.find(request.method, request.path.removeprefix(PREFIX).split("/"))

    def serve(self, request: Request, route: Route, values: list[str]) -> Answer:
        """Does it; refusals have Google's shape."""
        try:
            self._check_project(route.name, values[0])
            place = route.parts[2] if len(route.parts) > 3 else ""
            region = self.cloud.region_of(values[1]) if place == "zones" else values[1] if place == "regions" else ""
            if region and region not in REGIONS:
                raise invalid("region", region, "Unknown region.")
            knobs = self.cloud.core.knobs
            if place == "zones" and knobs.unreachable_seconds is not None and values[1] in knobs.unreachable:
                return Answer(silence=knobs.unreachable_seconds)
            if knobs.throttles:
                self.limits.take(route.name, region)
            return route.handler(request, values)
        except ApiError as error:
            self.cloud.core.events[f"refused {error.kind}"] += 1
            return error_answer(error, self.cloud.core.turn)

    @staticmethod
    def _check_project(method: str, project: str) -> None:
        if project != PROJECT and not (project == IMAGE_PROJECT and method.startswith("images.get")):
            raise not_found(f"projects/{project}")

    # -- of all kinds --

    @staticmethod
    def _scope(request: Request) -> tuple[str, str]:
        """Scope and collection that a path names."""
        parts = request.path.removeprefix(PREFIX).split("/")[2:]
        return (GLOBAL, parts[1]) if parts[0] == GLOBAL else (f"{parts[0]}/{parts[1]}", parts[2])

    def _resource(self, request: Request, values: list[str]) -> ProjectResource:
        scope, collection = self._scope(request)
        return self.cloud.resources.get(path_of(values[0], scope, collection, values[-1]))

    def _get(self, request: Request, values: list[str]) -> Json:
        return self.lists.shown(self._resource(request, values).document)

    def _list(self, request: Request, values: list[str]) -> Json:
        scope, collection = self._scope(request)
        return self.lists.of_scope(request, collection, values[0], scope, _KINDS.get(collection, "operation"))

    def _all(self, request: Request, values: list[str]) -> Json:
        collection = request.path.rpartition("/")[2]
        return self.lists.of_all(request, collection, values[0], _KINDS.get(collection, "operation"))

    def _set_labels(self, request: Request, values: list[str]) -> Json:
        scope, collection = self._scope(request)
        resource = self.cloud.resources.get(path_of(values[0], scope, collection, values[-1]))
        body = request.json()
        if body.get("labelFingerprint") != resource.document["labelFingerprint"]:
            raise ApiError(412, "Labels fingerprint either invalid or resource labels have changed", "conditionNotMet")
        resource.set_labels(read_labels(body.get("labels"), "labels"))
        return self.cloud.operations.done("setLabels", resource, request.argument("requestId")).document

    def _operation(self, request: Request, values: list[str]) -> Json:
        """Also for ``wait``, which promises to wait at best."""
        scope, collection = self._scope(request)
        name = values[-1]
        found = self.cloud.operations.get(path_of(values[0], scope, collection, name))
        if not found.over and self.cloud.core.turn("operation", *[False] * 3, True):
            # Not all of Google knows it yet.
            raise not_found(found.path)
        return found.document

    def _once(self, request: Request, begin: Callable[[str], ProjectOperation]) -> Json:
        """An operation, or that of an earlier call with the same ``requestId``."""
        request_id = request.argument("requestId")
        call = f"{request.method} {request.path}"
        found = self.cloud.operations.repeated(call, request_id)
        if found is not None:
            self.cloud.core.events["calls repeated"] += 1
            return found.document
        operation = begin(request_id)
        self.cloud.operations.remember(call, request_id, operation)
        return operation.document

    # -- instances --

    def _insert_instance(self, request: Request, values: list[str]) -> Json:
        return self._once(
            request,
            lambda request_id: self.cloud.instances.create(
                read_instance_spec(self.cloud, values[1], request.json()), request_id
            ),
        )

    def _instance(self, request: Request, values: list[str]) -> ProjectInstance:
        path = path_of(values[0], zone_scope(values[1]), "instances", values[2])
        found = self.cloud.resources.get(path)
        assert isinstance(found, ProjectInstance)
        return found

    def _delete_instance(self, request: Request, values: list[str]) -> Json:
        return self._once(
            request,
            lambda request_id: self.cloud.instances.delete(self._instance(request, values), request_id),
        )

    def _serial_port(self, request: Request, values: list[str]) -> Json:
        instance = self._instance(request, values)
        text = f"Booting {instance.name}\n"
        if instance.status == RUNNING:
            text += f"{instance.name} login: \n"
        start = int(request.argument("start") or 0)
        return {
            "kind": "compute#serialPortOutput",
            "selfLink": f"{instance.link}/serialPort",
            "contents": text[start:],
            "start": str(start),
            "next": str(len(text)),
        }

    # -- disks and addresses --

    def _delete_unused(self, request: Request, values: list[str]) -> Json:
        def begin(request_id: str) -> ProjectOperation:
            resource = self._resource(request, values)
            users = resource.document.get("users")
            if users:
                user = users[0].partition("/compute/v1/")[2]
                kind = resource.collection[:-1] if resource.collection == "disks" else "address"
                text = f"The {kind} resource '{resource.path}' is already being used by '{user}'"
                raise ApiError(400, text, "resourceInUseByAnotherResource")
            self.cloud.resources.remove(resource)
            if resource.collection == "addresses":
                self.cloud.give_back_public_address(resource.document["address"])
            return self.cloud.operations.done("delete", resource, request_id)

        return self._once(request, begin)

    def _insert_address(self, request: Request, values: list[str]) -> Json:
        def begin(request_id: str) -> ProjectOperation:
            body = request.json()
            path = path_of(values[0], region_scope(values[1]), "addresses", check_name(body))
            if self.cloud.resources.find(path) is not None:
                raise already_exists(path)
            address = self.cloud.add_address(body["name"], body.get("labels"), values[1])
            return self.cloud.operations.done("insert", address, request_id)

        return self._once(request, begin)

    # -- images --

    def _insert_image(self, request: Request, values: list[str]) -> Json:
        return self._once(request, lambda wanted: self.cloud.images.insert(request.json(), wanted))

    def _delete_image(self, request: Request, values: list[str]) -> Json:
        return self._once(request, lambda wanted: self.cloud.images.delete(self._resource(request, values), wanted))

    def _family(self, request: Request, values: list[str]) -> Json:
        found = self.cloud.images.newest(values[0], values[1])
        if found is None:
            raise not_found(path_of(values[0], GLOBAL, "images/family", values[1]))
        return found.document

    # -- what seldom changes --

    def _project(self, _request: Request, values: list[str]) -> Json:
        used, limits = quotas.used(self.cloud), quotas.project_limits(self.cloud)
        return {
            "kind": "compute#project",
            "id": "7000000000000000001",
            "creationTimestamp": "2020-01-01T00:00:00.000-08:00",
            "name": values[0],
            "commonInstanceMetadata": {"kind": "compute#metadata", "fingerprint": "AAAAAAAAAAA="},
            "quotas": [catalog.quota(metric, limit, used[metric]) for metric, limit in limits.items()],
            "selfLink": link(f"projects/{values[0]}"),
            "defaultServiceAccount": self.cloud.email,
            "xpnProjectStatus": "UNSPECIFIED_XPN_PROJECT_STATUS",
            "defaultNetworkTier": "PREMIUM",
        }

    def _zone(self, _request: Request, values: list[str]) -> Json:
        return {
            "kind": "compute#zone",
            "id": str(2000 + list(ZONES).index(values[1])),
            "creationTimestamp": "1969-12-31T16:00:00.000-08:00",
            "name": values[1],
            "description": values[1],
            "status": "DOWN" if values[1] in self.cloud.core.knobs.unreachable else "UP",
            "region": link(f"projects/{values[0]}/{region_scope(ZONES[values[1]])}"),
            "availableCpuPlatforms": ["AMD Rome", "Intel Cascade Lake"],
            "selfLink": link(f"projects/{values[0]}/{zone_scope(values[1])}"),
        }

    def _region(self, _request: Request, values: list[str]) -> Json:
        used, limits = quotas.used(self.cloud, values[1]), quotas.limits(self.cloud)
        return {
            "kind": "compute#region",
            "id": str(1000 + list(REGIONS).index(values[1])),
            "creationTimestamp": "1969-12-31T16:00:00.000-08:00",
            "name": values[1],
            "description": values[1],
            "status": "UP",
            "zones": [link(f"projects/{values[0]}/{zone_scope(zone)}") for zone in REGIONS[values[1]]],
            "quotas": [catalog.quota(metric, limit, used[metric]) for metric, limit in limits.items()],
            "selfLink": link(f"projects/{values[0]}/{region_scope(values[1])}"),
        }

    def _zones(self, request: Request, values: list[str]) -> Json:
        items = [self._zone(request, [values[0], zone]) for zone in ZONES]
        return self.lists.fixed(request, items, "zone", f"projects/{values[0]}/zones")

    def _regions(self, request: Request, values: list[str]) -> Json:
        items = [self._region(request, [values[0], region]) for region in REGIONS]
        return self.lists.fixed(request, items, "region", f"projects/{values[0]}/regions")

    def _machine_types(self, request: Request, values: list[str]) -> Json:
        items = [machine.shown(values[1]) for machine in catalog.TYPES.values() if machine.offered(values[1])]
        where = f"projects/{values[0]}/{zone_scope(values[1])}/machineTypes"
        return self.lists.fixed(request, items, "machineType", where)

    def _machine_type(self, _request: Request, values: list[str]) -> Json:
        machine = catalog.TYPES.get(values[2])
        if machine is None or not machine.offered(values[1]):
            raise not_found(path_of(values[0], zone_scope(values[1]), "machineTypes", values[2]))
        return machine.shown(values[1])

    def _network(self, _request: Request, values: list[str]) -> Json:
        path = path_of(values[0], GLOBAL, "networks", values[1])
        if path not in self.cloud.networks:
            raise not_found(path)
        own = {"kind": "compute#network", "id": "3001", "name": values[1], "autoCreateSubnetworks": True}
        subnetworks = [link(subnetwork) for subnetwork in sorted(self.cloud.subnetworks)]
        return {**own, "subnetworks": subnetworks, "selfLink": link(path)}

    def _subnetwork(self, _request: Request, values: list[str]) -> Json:
        path = path_of(values[0], region_scope(values[1]), "subnetworks", values[2])
        if path not in self.cloud.subnetworks:
            raise not_found(path)
        return {
            "kind": "compute#subnetwork",
            "id": "4001",
            "name": values[2],
            "network": link(path_of(values[0], GLOBAL, "networks", "default")),
            "ipCidrRange": "10.128.0.0/16",
            "region": link(f"projects/{values[0]}/{region_scope(values[1])}"),
            "selfLink": link(path),
        }
