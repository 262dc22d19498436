# SPDX-License-Identifier: Apache-2.0
"""What belongs to the account and not to the VPC service: resource groups, service instances and tags.

https://cloud.ibm.com/apidocs/resource-controller/resource-manager,
https://cloud.ibm.com/apidocs/resource-controller/resource-controller, https://cloud.ibm.com/apidocs/tagging
"""

from __future__ import annotations

from typing import Final

from simulators.base.messages import Answer, ApiError, Request, json_answer, new_id
from simulators.base.routing import Routes
from simulators.ibmvpc.cloud import VpcRegion
from simulators.ibmvpc.core import ACCOUNT
from simulators.ibmvpc.groups import STORAGE_NAME, storage_instance
from simulators.ibmvpc.resources import VOLUMES

_PREFIXES: Final = ("/v2/", "/v3/")


class PlatformApi:
    """The resource manager, the resource controller and Global Tagging at one address."""

    name = "platform"

    def __init__(self, cloud: VpcRegion) -> None:
        self.cloud = cloud
        #: Tags of things, by CRN; those of volumes are with the volumes.
        self.tags: dict[str, list[str]] = {}
        self._routes = Routes()
        route = self._routes.route
        route("GET", "v2/resource_groups", "list_resource_groups", self._groups)
        route("POST", "v2/resource_groups", "create_resource_group", self._create_group)
        route("GET", "v2/resource_instances", "list_resource_instances", self._instances)
        route("GET", "v3/tags", "list_tags", self._tags)
        route("POST", "v3/tags/attach", "attach_tag", self._attach)
        route("POST", "v3/tags/detach", "detach_tag", self._detach)

    @staticmethod
    def serves(path: str) -> bool:
        return path.startswith(_PREFIXES)

    def operation(self, request: Request) -> str:
        found = self._routes.find(request.method, request.path.removeprefix("/").split("/"))
        return "unknown" if found is None else found[0].name

    def serve(self, request: Request) -> Answer:
        """Does it.

        :raises ApiError: it is refused.
        """
        found = self._routes.find(request.method, request.path.removeprefix("/").split("/"))
        if found is None:
            raise ApiError(404, "The requested route does not exist.", "not_found")
        route, values = found
        return route.handler(request, values)

    @staticmethod
    def error(error: ApiError) -> Answer:
        content = {
            "status_code": error.status,
            "error_code": error.kind or "ERROR",
            "message": error.message,
            "transaction_id": new_id(),
        }
        answer = json_answer(content, error.status)
        answer.headers |= error.headers
        return answer

    # -- groups and service instances --

    def _groups(self, request: Request, _values: list[str]) -> Answer:
        name, account = request.argument("name"), request.argument("account_id", ACCOUNT)
        groups = self.cloud.groups.listed() if account == ACCOUNT else []
        return json_answer({"resources": [group.shown() for group in groups if name in ("", group.name)]})

    def _create_group(self, request: Request, _values: list[str]) -> Answer:
        body = request.json()
        name = body.get("name")
        if body.get("account_id", ACCOUNT) != ACCOUNT or not isinstance(name, str) or not name:
            raise ApiError(400, "account_id is wrong, or there is no name", "RESGROUP_BAD_REQUEST")
        group = self.cloud.groups.create(name).shown()
        return json_answer({"id": group["id"], "crn": group["crn"]}, 201)

    def _instances(self, request: Request, _values: list[str]) -> Answer:
        wanted = request.argument("name", STORAGE_NAME) == STORAGE_NAME
        wanted = wanted and request.argument("type", "service_instance") == "service_instance"
        found = [storage_instance(self.cloud.core.stamp(), self.cloud.groups.default)] if wanted else []
        return json_answer({"rows_count": len(found), "next_url": None, "resources": found})

    # -- tags --

    def _of(self, whole: str) -> list[str]:
        volume = next((found for found in self.cloud.resources.of(VOLUMES) if found.document["crn"] == whole), None)
        tags: list[str] = self.tags.setdefault(whole, []) if volume is None else volume.document["user_tags"]
        return tags

    def _tags(self, request: Request, _values: list[str]) -> Answer:
        found = self._of(request.argument("attached_to"))
        items = [{"name": tag} for tag in found]
        return json_answer({"total_count": len(items), "offset": 0, "limit": 100, "items": items})

    def _attach(self, request: Request, _values: list[str]) -> Answer:
        return self._change(request, attach=True)

    def _detach(self, request: Request, _values: list[str]) -> Answer:
        return self._change(request, attach=False)

    def _change(self, request: Request, attach: bool) -> Answer:
        body = request.json()
        names = [str(tag).lower() for tag in body.get("tag_names") or [body.get("tag_name")] if tag]
        resources = [str(resource.get("resource_id")) for resource in body.get("resources") or []]
        if not names or not resources:
            raise ApiError(400, "Tags and resources are needed.", "TAG0001")
        for whole in resources:
            tags = self._of(whole)
            tags[:] = [tag for tag in tags if tag not in names] + (names if attach else [])
        self.cloud.core.events["tags changed"] += 1
        return json_answer({"results": [{"resource_id": whole, "is_error": False} for whole in resources]})
