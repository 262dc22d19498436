# SPDX-License-Identifier: Apache-2.0
"""Things of the VPC service: their names, which are unique in the region, and what lists show of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from simulators.base.messages import Json
from simulators.ibmvpc.core import VpcError, not_found

#: Kinds, as their collections are called.
INSTANCES, ADDRESSES, VOLUMES, IMAGES = "instances", "floating_ips", "volumes", "images"
VPCS, SUBNETS, KEYS = "vpcs", "subnets", "keys"
_TITLES: Final = {
    INSTANCES: "Instance",
    ADDRESSES: "Floating IP",
    VOLUMES: "Volume",
    IMAGES: "Image",
    VPCS: "VPC",
    SUBNETS: "Subnet",
    KEYS: "Key",
}
_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


@dataclass
class VpcResource:
    """One thing.

    :param number: what was made later has a higher one.
    :param document: as GET shows it.
    :param listed: lists have it.
    """

    kind: str
    number: int
    document: Json
    listed: bool = True

    @property
    def id(self) -> str:
        return str(self.document["id"])

    @property
    def name(self) -> str:
        return str(self.document["name"])

    @property
    def zone(self) -> str:
        return str(self.document["zone"]["name"])

    @property
    def status(self) -> str:
        return str(self.document["status"])

    @property
    def group_name(self) -> str:
        return str(self.document["resource_group"]["name"])


class VpcTable:
    """All things, by kind and id."""

    def __init__(self) -> None:
        self._all: dict[str, dict[str, VpcResource]] = {}

    def add(self, resource: VpcResource) -> VpcResource:
        self._all.setdefault(resource.kind, {})[resource.id] = resource
        return resource

    def find(self, kind: str, identity: str) -> VpcResource | None:
        return self._all.get(kind, {}).get(identity)

    def get(self, kind: str, identity: str, status: int = 404) -> VpcResource:
        """One of them.

        :param status: of the refusal.
        :raises VpcError: there is none.
        """
        found = self.find(kind, identity)
        if found is None:
            raise not_found(_TITLES[kind], identity, status)
        return found

    def named(self, kind: str, name: str) -> VpcResource | None:
        return next((found for found in self.of(kind) if found.name == name), None)

    def remove(self, resource: VpcResource) -> None:
        self._all[resource.kind].pop(resource.id, None)

    def of(self, kind: str) -> Iterator[VpcResource]:
        """In the order in which they were made."""
        return iter(list(self._all.get(kind, {}).values()))

    def count(self, kind: str) -> int:
        return len(self._all.get(kind, {}))

    def check_name(self, kind: str, name: Any, longest: int = 63) -> str:
        """The name that something new is to have.

        :raises VpcError: it is none, or another one has it.
        """
        if not isinstance(name, str) or len(name) > longest or not _NAME.fullmatch(name) or "--" in name:
            raise VpcError(400, "validation_invalid_name", f"The value ({name}) is not a valid name.", "name", name)
        if self.named(kind, name) is not None:
            text = f"Provided Name ({name}) is not unique"
            raise VpcError(400, "validation_unique_failed", text, "name", name)
        return name


def identity_of(body: Json, name: str, keys: tuple[str, ...] = ("id",)) -> str:
    """What ``{name: {"id": ...}}`` names.

    :param keys: what the inner object may have; the first that is there counts.
    :raises VpcError: it is missing.
    """
    inner = body.get(name)
    found = next((inner[key] for key in keys if inner.get(key)), None) if isinstance(inner, dict) else None
    if found is None:
        raise VpcError(400, "validation_required_field", f"Missing a required field: {name}.", name)
    return str(found)
