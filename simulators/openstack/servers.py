# SPDX-License-Identifier: Apache-2.0
"""Servers as records: their JSON in both forms that Nova has, and a table that serves lists cheaply."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from simulators.openstack.messages import ApiError, Json, not_found

BUILD, ACTIVE, ERROR, DELETED = "BUILD", "ACTIVE", "ERROR", "DELETED"

#: From this microversion on the flavor is written out instead of referred to.
EMBEDDED_FLAVOR = (2, 47)
#: What a status is, too: of a server that boots or was deleted.
STATUSES = {BUILD: (BUILD, BUILD, "VENDOR_STARTS"), DELETED: (DELETED, "SOFT_DELETED")}


@dataclass
class Server:
    """One server, also after its deletion."""

    id: str
    name: str
    #: Counts the servers of the cloud; lists are in its reverse order.
    number: int
    #: Ids of the project and the user.
    owner: tuple[str, str]
    flavor: Json
    #: None: it boots from a volume.
    image_id: str | None
    metadata: dict[str, str]
    key_name: str | None
    zone: str
    config_drive: bool
    security_groups: list[str]
    created: str
    updated: str
    listed: bool = True
    status: str = BUILD
    task_state: str | None = "spawning"
    fault: Json | None = None
    launched: str | None = None
    terminated: str | None = None
    addresses: dict[str, list[Json]] = field(default_factory=dict)
    volumes: list[str] = field(default_factory=list)
    user_data: str | None = None
    #: By whether the flavor is embedded, and whether it is in a list.
    texts: dict[tuple[bool, bool], bytes] = field(default_factory=dict)

    @property
    def gone(self) -> bool:
        return self.status == DELETED

    def text(self, embedded_flavor: bool, in_list: bool, turn: Callable[..., Any]) -> bytes:
        """The server as JSON, made once per change. Lists lack the fault, as those of a Nova with cells often do.

        :param turn: see `SimulationCore.turn`.
        """
        key = (embedded_flavor, in_list)
        if key not in self.texts:
            document = self._document(embedded_flavor, turn)
            if self.fault is not None and not in_list:
                document["fault"] = self.fault
            self.texts[key] = json.dumps(document).encode()
        return self.texts[key]

    def _document(self, embedded_flavor: bool, turn: Callable[..., Any]) -> Json:
        active = self.status == ACTIVE
        seconds = self.updated.rstrip("Z")
        groups = [{"name": name} for name in self.security_groups]
        document: Json = {
            "id": self.id,
            "name": self.name,
            "status": turn(self.status, *STATUSES.get(self.status, (self.status,))),
            "tenant_id": self.owner[0],
            "user_id": self.owner[1],
            "metadata": self.metadata,
            "hostId": f"{self.number % 8:056x}" if active else "",
            "image": {"id": self.image_id, "links": []} if self.image_id else "",
            "flavor": self._flavor(embedded_flavor, turn),
            "created": self.created,
            "updated": turn("updated", self.updated, f"{seconds}.000000", f"{seconds}.000000Z"),
            "addresses": self.addresses,
            "accessIPv4": "",
            "accessIPv6": "",
            "links": [{"rel": "self", "href": f"/compute/v2.1/servers/{self.id}"}],
            "OS-DCF:diskConfig": "MANUAL",
            "progress": 100 if active else 0,
            "OS-EXT-AZ:availability_zone": self.zone,
            "config_drive": "True" if self.config_drive else turn("drive", "", None, "False"),
            "key_name": self.key_name,
            "OS-SRV-USG:launched_at": self.launched,
            "OS-SRV-USG:terminated_at": self.terminated,
            "OS-EXT-STS:task_state": self.task_state,
            "OS-EXT-STS:vm_state": {BUILD: "building"}.get(self.status, self.status.lower()),
            "OS-EXT-STS:power_state": 1 if active else 0,
            "os-extended-volumes:volumes_attached": [
                {"id": volume, "delete_on_termination": True} for volume in self.volumes
            ],
        }
        document |= turn(f"groups {active}", {"security_groups": groups}, *([] if active else [{}]))
        if embedded_flavor:
            document |= {"description": None, "locked": False, "tags": [], "trusted_image_certificates": None}
        document |= turn("more", {}, {"OS-EXT-SRV-ATTR:host": None, "vendor:plan": [{"hours": -1, "of": None}]})
        return {key: value for key, value in document.items() if value is not None or turn("absent", True, False)}

    def _flavor(self, embedded: bool, turn: Callable[..., Any]) -> Json:
        if not embedded:
            flavor = {"id": self.flavor["id"], "links": []}
            sizes = {name: str(self.flavor[name]) for name in ("vcpus", "ram", "disk")}
            more: Json = turn("flavor", {}, {"name": self.flavor["name"], **sizes})
            return flavor | more
        names = ("vcpus", "ram", "disk", "swap")
        sizes = {name: self.flavor[name] for name in names}
        return sizes | {
            "ephemeral": self.flavor["OS-FLV-EXT-DATA:ephemeral"],
            "original_name": self.flavor["name"],
            "extra_specs": {},
        }


class ServerTable:
    """Servers by id, living and deleted; the deleted ones stay visible for ``changes-since`` and as markers."""

    def __init__(self) -> None:
        self._all: dict[str, Server] = {}
        self._live: dict[str, Server] = {}
        #: Ordered by the last change, the latest at the end.
        self._by_change: dict[str, Server] = {}
        #: Changes with every change of any server.
        self.version = 0

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[Server]:
        return iter(list(self._live.values()))

    def add(self, server: Server) -> None:
        """Adds a new server."""
        self._all[server.id] = self._live[server.id] = server
        self.changed(server, server.created)

    def get(self, key: str) -> Server:
        """The living server of this id.

        :raises ApiError: 404.
        """
        try:
            return self._live[key]
        except KeyError:
            raise not_found("Instance", key) from None

    def find(self, key: str) -> Server | None:
        """The living server of this id."""
        return self._live.get(key)

    def touched(self, server: Server) -> None:
        """Must follow a change that leaves ``updated`` as it is, as Nova does for addresses."""
        server.texts.clear()
        self.version += 1

    def changed(self, server: Server, stamp: str) -> None:
        """Must follow any other change; once it is DELETED the server no longer lives."""
        server.updated = stamp
        self.touched(server)
        self._by_change.pop(server.id, None)
        self._by_change[server.id] = server
        if server.gone:
            self._live.pop(server.id, None)

    def newest_first(self) -> Iterator[Server]:
        """Living servers that lists show, in Nova's order."""
        return (server for server in reversed(self._live.values()) if server.listed)

    def changed_since(self, stamp: str) -> list[Server]:
        """Servers, deleted ones too, whose ``updated`` is not before ``stamp``; newest first."""
        found = []
        for server in reversed(self._by_change.values()):
            if server.updated < stamp:
                break
            if server.listed:
                found.append(server)
        return sorted(found, key=lambda server: -server.number)

    def number_of(self, marker: str) -> int:
        """Where a marker stands; a deleted server still is one, as in Nova.

        :raises ApiError: 400, there was never such a server.
        """
        if marker not in self._all:
            raise ApiError(400, f"marker [{marker}] not found")
        return self._all[marker].number
