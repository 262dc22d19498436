# SPDX-License-Identifier: Apache-2.0
"""Lists of the VPC API: filters and pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from simulators.base.messages import Answer, Json, Request, json_answer
from simulators.base.pages import page
from simulators.ibmvpc.cloud import VpcRegion
from simulators.ibmvpc.core import VpcError
from simulators.ibmvpc.resources import ADDRESSES, IMAGES, INSTANCES, KEYS, SUBNETS, VOLUMES, VPCS, VpcResource

_DEFAULT_LIMIT: Final = 50
_MOST: Final = 100
_GROUP: Final = ("resource_group.id",)
#: The properties that a list can be filtered by.
_FILTERS: Final[dict[str, tuple[str, ...]]] = {
    INSTANCES: (*_GROUP, "name", "vpc.id", "vpc.name", "availability.class"),
    ADDRESSES: (*_GROUP, "target.id", "target.name", "target.resource_type"),
    VOLUMES: ("name", "attachment_state", "zone.name", "operating_system.family"),
    IMAGES: (*_GROUP, "name", "status", "visibility", "user_data_format"),
    VPCS: _GROUP,
    SUBNETS: (*_GROUP, "zone.name", "vpc.id", "vpc.name"),
    KEYS: _GROUP,
}
#: Filters that take several values with commas between them.
_SEVERAL: Final = ("status", "user_data_format")


class VpcLists:
    """Answers with lists. The caller holds the core's lock."""

    def __init__(self, cloud: VpcRegion) -> None:
        self.cloud = cloud

    def things(self, request: Request, kind: str, shown: Callable[[VpcResource, Request], Json]) -> Answer:
        """Those of a kind that match the filters of the request; the newest come first.

        :raises VpcError: the page is none.
        """
        found = [resource for resource in self.cloud.resources.of(kind) if resource.listed]
        if kind == INSTANCES:
            found += self.cloud.instances.ghosts
        conditions = {name: request.argument(name) for name in _FILTERS[kind] if name in request.query}
        tag = request.argument("tag") if kind == VOLUMES else ""
        found = [
            resource
            for resource in found
            if all(_matches(resource.document, name, value) for name, value in conditions.items())
            and (not tag or tag in resource.document["user_tags"])
        ]
        found.sort(key=lambda resource: -resource.number)
        return self.page(request, kind, [(_key(resource), shown(resource, request)) for resource in found])

    def page(self, request: Request, name: str, entries: Sequence[tuple[str, Json]]) -> Answer:
        """One page of the entries.

        :param name: of the list in the answer.
        :raises VpcError: limit or start are wrong.
        """
        told = request.argument("limit", str(_DEFAULT_LIMIT))
        if not told.isdigit() or not 1 <= int(told) <= _MOST:
            text = f"The value provided for the `limit` parameter must be between `1` and `{_MOST}`."
            raise VpcError(400, "invalid_value", text, "limit", told)
        limit = min(int(told), self.cloud.core.knobs.page_limit)
        try:
            start, core = request.argument("start") or None, self.cloud.core
            empty_first = core.knobs.empty_pages or (start is None and core.turn("page", False, False, False, True))
            found, token = page(entries, lambda entry: entry[0], start, limit, empty_first=empty_first)
        except ValueError:
            raise VpcError(400, "invalid_value", "The page token is not valid.", "start") from None
        # The client's own address, and its own parameters: what it asks next is to reach the same place.
        where = f"http://{request.headers.get('host', '127.0.0.1')}{request.path}"
        content: Json = {
            "first": {"href": f"{where}?limit={limit}"},
            "limit": limit,
            "total_count": len(entries),
            name: [document for _key, document in found],
        }
        if not found:
            # As services that are written in Go have it.
            content[name] = self.cloud.core.turn("no entries", [], None)
        if token is not None:
            content["next"] = {"href": f"{where}?limit={limit}&start={token}"}
        return json_answer(content)


def _key(resource: VpcResource) -> str:
    """Grows in the order of the list."""
    return f"{10**12 - resource.number}"


def _values(document: Any, path: str) -> Iterator[str]:
    for part in path.split("."):
        document = document.get(part) if isinstance(document, dict) else None
    if document is not None:
        yield str(document)


def _matches(document: Json, name: str, value: str) -> bool:
    wanted = value.split(",") if name in _SEVERAL else [value]
    return any(found in wanted for found in _values(document, name))
