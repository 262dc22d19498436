# SPDX-License-Identifier: Apache-2.0
"""Resources of the simulated resource group: their ids, and what lists show of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from simulators.azure.arm_ids import PROVIDERS
from simulators.base.messages import ApiError, Json, Request

SUBSCRIPTION = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
TENANT = "99999999-8888-7777-6666-555555555555"
GROUP = "nodepool"
LOCATION = "northeurope"


def resource_id(kind: str, name: str) -> str:
    """Of a resource of the group."""
    return f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/{PROVIDERS[kind]}/{kind}/{name}"


def base_url(request: Request) -> str:
    """Scheme and authority that the client used, for links."""
    return f"{request.headers.get('x-forwarded-proto', 'http')}://{request.headers.get('host', '127.0.0.1')}"


@dataclass
class ArmResource:
    """One resource.

    :param document: as GET shows it.
    :param listed: lists show it.
    """

    kind: str
    name: str
    document: Json
    listed: bool = True
    #: Of a network interface: until when it cannot be deleted.
    reserved_until: float = field(default=float("-inf"))

    @property
    def properties(self) -> Json:
        properties: Json = self.document["properties"]
        return properties

    @property
    def tags(self) -> dict[str, str]:
        return dict(self.document.get("tags") or {})


class ResourceTable:
    """All resources, by kind and name; names ignore case."""

    def __init__(self) -> None:
        self._all: dict[str, dict[str, ArmResource]] = {}

    def add(self, kind: str, name: str, properties: Json, tags: Json | None = None, **more: object) -> ArmResource:
        """Makes one; the caller has looked whether there is one."""
        document: Json = {
            "name": name,
            "id": resource_id(kind, name),
            "type": f"{PROVIDERS[kind]}/{kind}",
            "location": LOCATION,
            **({"tags": dict(tags)} if tags else {}),
            **more,
            "properties": properties,
        }
        resource = ArmResource(kind, name, document)
        self._all.setdefault(kind, {})[name.lower()] = resource
        return resource

    def find(self, kind: str, name: str) -> ArmResource | None:
        return self._all.get(kind, {}).get(name.lower())

    def get(self, kind: str, name: str) -> ArmResource:
        """The resource of a name.

        :raises ApiError: 404.
        """
        found = self.find(kind, name)
        if found is None:
            text = f"The Resource '{PROVIDERS[kind]}/{kind}/{name}' under resource group '{GROUP}' was not found."
            raise ApiError(404, text, "ResourceNotFound")
        return found

    def remove(self, resource: ArmResource) -> None:
        self._all[resource.kind].pop(resource.name.lower(), None)

    def of(self, kind: str) -> Iterator[ArmResource]:
        return iter(list(self._all.get(kind, {}).values()))

    def count(self, kind: str, condition: Callable[[ArmResource], bool] = lambda _resource: True) -> int:
        return sum(map(condition, self._all.get(kind, {}).values()))

    def by_id(self, whole_id: str) -> ArmResource | None:
        """The resource of an id, in any case."""
        parts = whole_id.rsplit("/", 2)
        if len(parts) != 3:
            return None
        kind = next((kind for kind in PROVIDERS if kind.lower() == parts[1].lower()), "")
        found = self.find(kind, parts[2])
        return found if found is not None and found.document["id"].lower() == whole_id.lower() else None
