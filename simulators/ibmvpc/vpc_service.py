# SPDX-License-Identifier: Apache-2.0
"""The VPC API: how each request is answered.

https://cloud.ibm.com/apidocs/vpc; the operations are called as in IBM's client.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from simulators.base.messages import Answer, ApiError, Json, Request, json_answer, new_id
from simulators.base.routing import Routes
from simulators.base.throttle import CallBucket, Throttle
from simulators.ibmvpc.catalog import PROFILES, SYSTEMS
from simulators.ibmvpc.cloud import VpcRegion
from simulators.ibmvpc.core import REGION, ZONES, VpcError, not_found, zone_reference
from simulators.ibmvpc.images import shown_image
from simulators.ibmvpc.instance_document import shown_instance
from simulators.ibmvpc.resources import (
    ADDRESSES,
    IMAGES,
    INSTANCES,
    KEYS,
    SUBNETS,
    VOLUMES,
    VPCS,
    VpcResource,
)
from simulators.ibmvpc.vpc_lists import VpcLists

PREFIX: Final = "/v1/"
_DATE: Final = re.compile(r"20\d\d-[01]\d-[0-3]\d")
#: Codes of errors that have none of their own.
_CODES: Final = {
    400: "bad_request",
    401: "not_authenticated",
    403: "not_authorized",
    404: "not_found",
    409: "conflict",
    429: "too_many_requests",
    503: "service_unavailable",
}


class VpcService:
    """Requests whose path begins with ``/v1/``."""

    name = "vpc"

    def __init__(self, cloud: VpcRegion) -> None:
        self.cloud = cloud
        self.core = cloud.core
        self.lists = VpcLists(cloud)
        self._throttle = Throttle(cloud.core.now)
        self._routes = Routes()
        self._add_lists()
        self._add_changes()
        self._add_interfaces()

    @staticmethod
    def serves(path: str) -> bool:
        return path.startswith(PREFIX)

    def operation(self, request: Request) -> str:
        found = self._routes.find(request.method, request.path.removeprefix(PREFIX).split("/"))
        return "unknown" if found is None else found[0].name

    def serve(self, request: Request) -> Answer:
        """Does it.

        :raises ApiError: it is refused.
        """
        found = self._routes.find(request.method, request.path.removeprefix(PREFIX).split("/"))
        if found is None:
            raise VpcError(404, "invalid_route", "The requested route does not exist.")
        version, generation = request.argument("version"), request.argument("generation")
        if not _DATE.fullmatch(version):
            text = "The `version` parameter is invalid, it must be of the form `YYYY-MM-DD`."
            raise VpcError(400, "invalid_version", text, "version", version)
        if generation != "2":
            text = "The generation query parameter is invalid."
            raise VpcError(400, "invalid_generation_parameter", text, "generation", generation)
        size = self.core.knobs.throttle_size
        if size and self._throttle.take({"calls": (CallBucket(size, self.core.knobs.throttle_refill), 1.0)}):
            raise VpcError(429, "", "Too many requests. Retry later.")
        route, values = found
        return route.handler(request, values)

    def error(self, error: ApiError) -> Answer:
        """An error in IBM's shape."""
        told: Json = {"code": error.kind or _CODES.get(error.status, "internal_error"), "message": error.message}
        if isinstance(error, VpcError) and error.target is not None:
            told["target"] = error.target
        turn, url = self.core.turn, "https://cloud.ibm.com/docs/vpc?topic=vpc-api-error-codes"
        told |= turn("about an error", {}, {"more_info": url})
        content: Json = {"errors": [told]} | turn("trace", {"trace": new_id()}, {})
        answer = json_answer(content, error.status)
        answer.headers |= error.headers
        return answer

    # -- routes --

    def _add_lists(self) -> None:
        route, lists = self._routes.route, self.lists
        for kind, one in (
            (INSTANCES, "instance"),
            (ADDRESSES, "floating_ip"),
            (VOLUMES, "volume"),
            (IMAGES, "image"),
            (VPCS, "vpc"),
            (SUBNETS, "subnet"),
            (KEYS, "key"),
        ):
            route("GET", kind, f"list_{kind}", self._list_of(kind))
            route("GET", f"{kind}/{{}}", f"get_{one}", self._get_of(kind))
        profiles = [(name, profile.shown()) for name, profile in PROFILES.items()]
        route(
            "GET",
            "instance/profiles",
            "list_instance_profiles",
            lambda request, _values: lists.page(request, "profiles", profiles),
        )
        route("GET", "instance/profiles/{}", "get_instance_profile", self._profile)
        systems = list(SYSTEMS.items())
        route(
            "GET",
            "operating_systems",
            "list_operating_systems",
            lambda request, _values: lists.page(request, "operating_systems", systems),
        )
        route("GET", "regions/{}/zones", "list_region_zones", self._zones)

    def _add_changes(self) -> None:
        route, cloud = self._routes.route, self.cloud
        create, delete = self._create_with, self._delete_with
        instances = cloud.instances
        route("POST", INSTANCES, "create_instance", create(lambda body: instances.create(cloud.specs.read(body))))
        route("DELETE", "instances/{}", "delete_instance", delete(INSTANCES, instances.delete))
        route("POST", ADDRESSES, "create_floating_ip", create(cloud.addresses.create))
        route("PATCH", "floating_ips/{}", "update_floating_ip", self._change_address)
        route("DELETE", "floating_ips/{}", "delete_floating_ip", delete(ADDRESSES, cloud.addresses.delete))
        route("DELETE", "volumes/{}", "delete_volume", delete(VOLUMES, cloud.volumes.delete))
        route("POST", IMAGES, "create_image", create(cloud.images.create))
        route("PATCH", "images/{}", "update_image", self._change_image)
        route("DELETE", "images/{}", "delete_image", delete(IMAGES, cloud.images.delete, 202))

    def _add_interfaces(self) -> None:
        route, path = self._routes.route, "instances/{}/network_interfaces"
        route("GET", path, "list_instance_network_interfaces", self._interfaces)
        one = f"{path}/{{}}/floating_ips"
        route("GET", one, "list_instance_network_interface_floating_ips", self._bound)
        route("PUT", f"{one}/{{}}", "add_instance_network_interface_floating_ip", self._bind)
        route("DELETE", f"{one}/{{}}", "remove_instance_network_interface_floating_ip", self._unbind)

    # -- what all kinds have --

    def _list_of(self, kind: str) -> Callable[[Request, list[str]], Answer]:
        shown = self._in_list if kind == IMAGES else self._shown
        return lambda request, _values: self.lists.things(request, kind, shown)

    def _get_of(self, kind: str) -> Callable[[Request, list[str]], Answer]:
        def answer(request: Request, values: list[str]) -> Answer:
            return json_answer(self._shown(self.cloud.resources.get(kind, values[0]), request))

        return answer

    def _create_with(self, make: Callable[[Json], VpcResource]) -> Callable[[Request, list[str]], Answer]:
        return lambda request, _values: json_answer(self._shown(make(request.json()), request), 201)

    def _delete_with(
        self, kind: str, delete: Callable[[VpcResource], None], status: int = 204
    ) -> Callable[[Request, list[str]], Answer]:
        def answer(_request: Request, values: list[str]) -> Answer:
            delete(self.cloud.resources.get(kind, values[0]))
            return Answer(status)

        return answer

    def _shown(self, resource: VpcResource, request: Request) -> Json:
        version = request.argument("version")
        document = resource.document
        if resource.kind == INSTANCES:
            document = shown_instance(document, version)
            if document["status"] == "pending":
                # IBM's clients are to be ready for states that come later.
                document = {**document, "status": self.core.turn("state", "pending", "what_comes_next")}
        elif resource.kind == IMAGES:
            document = shown_image(document, version)
        return document

    def _in_list(self, image: VpcResource, request: Request) -> Json:
        """IBM's list of images names the resource group by its id alone, whatever its documentation says."""
        shown = self._shown(image, request)
        return {**shown, "resource_group": {name: shown["resource_group"][name] for name in ("href", "id")}}

    # -- the others --

    @staticmethod
    def _profile(_request: Request, values: list[str]) -> Answer:
        if values[0] not in PROFILES:
            raise not_found("Instance profile", values[0])
        return json_answer(PROFILES[values[0]].shown())

    @staticmethod
    def _zones(_request: Request, values: list[str]) -> Answer:
        if values[0] != REGION:
            raise not_found("Region", values[0])
        zones = [{**zone_reference(zone), "region": {"name": REGION}, "status": "available"} for zone in ZONES]
        return json_answer({"zones": zones})

    def _change_address(self, request: Request, values: list[str]) -> Answer:
        floating = self.cloud.resources.get(ADDRESSES, values[0])
        return json_answer(self.cloud.addresses.change(floating, request.json()).document)

    def _change_image(self, request: Request, values: list[str]) -> Answer:
        image = self.cloud.resources.get(IMAGES, values[0])
        self.cloud.images.change(image, request.json())
        return json_answer(self._shown(image, request))

    def _interfaces(self, _request: Request, values: list[str]) -> Answer:
        interface = self.cloud.instances.interface(self.cloud.resources.get(INSTANCES, values[0]))
        floating = _references(self.cloud.addresses.bound_to(interface))
        return json_answer({"network_interfaces": [interface.shown(floating)]})

    def _bound(self, _request: Request, values: list[str]) -> Answer:
        bound = self.cloud.addresses.bound_to(self.cloud.instances.interface(self._instance(values)))
        return json_answer({"floating_ips": [found.document for found in bound]})

    def _bind(self, _request: Request, values: list[str]) -> Answer:
        floating = self.cloud.resources.get(ADDRESSES, values[2])
        interface = self.cloud.instances.interface(self._instance(values))
        for other in self.cloud.addresses.bound_to(interface):
            self.cloud.addresses.bind(other, None)
        self.cloud.addresses.bind(floating, interface)
        return json_answer(floating.document, 201)

    def _unbind(self, _request: Request, values: list[str]) -> Answer:
        self._instance(values)
        self.cloud.addresses.bind(self.cloud.resources.get(ADDRESSES, values[2]), None)
        return Answer(204)

    def _instance(self, values: list[str]) -> VpcResource:
        """The instance of a path that names its interface, too."""
        instance = self.cloud.resources.get(INSTANCES, values[0])
        if self.cloud.instances.interface(instance).shown_id != values[1]:
            raise not_found("Network interface", values[1])
        return instance


def _references(found: Iterable[VpcResource]) -> list[Json]:
    names = ("address", "crn", "href", "id", "name")
    return [{name: one.document[name] for name in names} for one in found]
