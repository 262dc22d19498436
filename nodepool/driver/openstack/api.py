# SPDX-License-Identifier: Apache-2.0
"""The calls that the driver makes. All block; errors are those of `nodepool.driver.openstack.errors`."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound, CloudRefused, one_line
from nodepool.driver.openstack.errors import ServiceAbsent
from nodepool.driver.openstack.transport import Transport
from nodepool.driver.openstack.views import (
    FLOATING_IP_FIELDS,
    NETWORK_FIELDS,
    PORT_FIELDS,
    SUBNET_FIELDS,
    Flavor,
    FloatingIp,
    Image,
    Network,
    Port,
    Server,
    Volume,
    available_zones,
)

COMPUTE: Final = "compute"
NETWORK: Final = "network"
IMAGE: Final = "image"
VOLUME: Final = "block-storage"
#: More pages than any list can have: a cloud that links in circles must not keep us for ever.
MAX_PAGES: Final = 1000
#: How many servers of earlier lists of changes are remembered.
REMEMBERED_SERVERS: Final = 1000

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")


class Api:
    """Calls of one provider. Thread-safe."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._call = transport.call
        #: id -> a server in the latest lists of changes, as it came and as it was understood. Never changed in place.
        self._latest: Mapping[Any, tuple[Mapping[str, Any], Server]] = {}

    # -- servers --

    def servers(self, changes_since: str | None = None) -> list[Server]:
        """All servers of the project; with ``changes_since`` those that changed, deleted ones too."""
        if not changes_since:
            return self._all(COMPUTE, "/servers/detail", "servers", Server.of)
        before, latest = self._latest, {}

        def parse(data: Mapping[str, Any]) -> Server:
            # Such lists overlap, and come many times a second in a burst: most of what they say was said before.
            known = before.get(data["id"])
            server = known[1] if known is not None and known[0] == data else Server.of(data)
            latest[data["id"]] = (data, server)
            return server

        found = self._all(COMPUTE, "/servers/detail", "servers", parse, {"changes-since": changes_since})
        # A list may begin earlier than the one before it, and tell again what that one had no need to.
        self._latest = {**before, **latest} if len(before) <= len(latest) + REMEMBERED_SERVERS else latest
        return found

    def server(self, server_id: str) -> Server:
        """One server. Raises CloudNotFound."""
        return Server.of(self._thing(self._get(COMPUTE, f"/servers/{_quoted(server_id)}", "server"), "server"))

    def create_server(self, body: Mapping[str, Any], permit: Callable[[], None] = lambda: None) -> str:
        """Begin to make a server; returns its id.

        :param permit: see `Transport.call`.
        :raises CloudQuota: over quota.
        :raises CloudAway: it may have been made all the same, see ``maybe_done``.
        """
        wanted = {"server": dict(body)}
        answer = self._call(COMPUTE, "POST", "/servers", "creating a server", body=wanted, permit=permit)
        return str(self._thing(answer.data, "server")["id"])

    def delete_server(self, server_id: str) -> None:
        """Begin to delete a server. Raises CloudNotFound."""
        self._call(COMPUTE, "DELETE", f"/servers/{_quoted(server_id)}", "deleting a server")

    def console(self, server_id: str) -> str | None:
        """What a server wrote to its console; None = the cloud does not tell."""
        body = {"os-getConsoleOutput": {"length": None}}
        try:
            answer = self._call(
                COMPUTE, "POST", f"/servers/{_quoted(server_id)}/action", "reading a console", body=body
            )
        except CloudRefused:
            return None
        output = answer.data.get("output") if isinstance(answer.data, dict) else None
        return output if isinstance(output, str) else None

    def flavors(self) -> list[Flavor]:
        """All flavors that the project can use."""
        return self._all(COMPUTE, "/flavors/detail", "flavors", Flavor.of)

    def flavor(self, flavor_id: str) -> Flavor:
        """One flavor, also one that is not listed. Raises CloudNotFound."""
        return Flavor.of(self._thing(self._get(COMPUTE, f"/flavors/{_quoted(flavor_id)}", "flavor"), "flavor"))

    def zones(self) -> list[str]:
        """Names of the availability zones that take servers."""
        try:
            data = self._get(COMPUTE, "/os-availability-zone", "availability zones")
        except CloudRefused:
            return []
        return available_zones(data)

    def has_key_pair(self, name: str) -> bool:
        """Has the user a key pair of this name?"""
        try:
            self._get(COMPUTE, f"/os-keypairs/{_quoted(name)}", "key pair")
        except CloudNotFound:
            return False
        return True

    def compute_limits(self) -> dict[str, Any]:
        """``absolute`` limits of Nova."""
        return self._limits(COMPUTE)

    def volume_limits(self) -> dict[str, Any]:
        """``absolute`` limits of Cinder; {} when there is none."""
        return self._if_there(VOLUME, lambda: self._limits(VOLUME), {})

    def _limits(self, service: str) -> dict[str, Any]:
        limits = self._object(self._get(service, "/limits", "limits"), "limits")
        absolute = limits.get("absolute")
        return absolute if isinstance(absolute, dict) else {}

    # -- networks --

    def networks(self) -> list[Network] | None:
        """All visible networks; None when there is no network service."""
        query = {"fields": NETWORK_FIELDS}
        return self._if_there(NETWORK, lambda: self._all(NETWORK, "/networks", "networks", Network.of, query), None)

    def security_groups(self) -> set[str] | None:
        """Names and ids of all visible security groups; None when there is no network service."""
        query = {"fields": ("id", "name")}

        def named() -> set[str]:
            found = self._all(NETWORK, "/security-groups", "security_groups", lambda data: data, query)
            return {str(group[field]) for group in found for field in ("id", "name") if group.get(field)}

        return self._if_there(NETWORK, named, None)

    def networks_with_gateway(self) -> frozenset[str]:
        """Ids of networks of which a subnet has a gateway."""
        query = {"fields": SUBNET_FIELDS}
        found = self._if_there(NETWORK, lambda: self._all(NETWORK, "/subnets", "subnets", dict, query), [])
        return frozenset(str(subnet.get("network_id")) for subnet in found if subnet.get("gateway_ip"))

    def ports(self, device: str | None = None, status: str | None = None) -> list[Port]:
        """Ports of the project, or those of one server; [] without a network service."""
        query: dict[str, Any] = {"fields": PORT_FIELDS}
        if device:
            query["device_id"] = device
        if status:
            query["status"] = status
        return self._if_there(NETWORK, lambda: self._all(NETWORK, "/ports", "ports", Port.of, query), [])

    def delete_port(self, port_id: str) -> None:
        """Raises CloudNotFound."""
        self._call(NETWORK, "DELETE", f"/ports/{_quoted(port_id)}", "deleting a port")

    def floating_ips(self) -> list[FloatingIp]:
        """All of the project; [] when the cloud has no floating IPs."""
        query = {"fields": FLOATING_IP_FIELDS}
        try:
            return self._if_there(
                NETWORK, lambda: self._all(NETWORK, "/floatingips", "floatingips", FloatingIp.of, query), []
            )
        except CloudNotFound:
            return []

    def create_floating_ip(self, network_id: str, port: Port, fixed_address: str, note: str) -> FloatingIp:
        """Make one and attach it, in one call.

        :raises CloudNotFound: that network cannot be reached from the port, or the cloud has no floating IPs.
        """
        body = {
            "floating_network_id": network_id,
            "port_id": port.id,
            "fixed_ip_address": fixed_address,
            "description": note,
        }
        answer = self._call(NETWORK, "POST", "/floatingips", "creating a floating IP", body={"floatingip": body})
        return FloatingIp.of(self._thing(answer.data, "floatingip"))

    def delete_floating_ip(self, floating_ip_id: str) -> None:
        """Raises CloudNotFound."""
        self._call(NETWORK, "DELETE", f"/floatingips/{_quoted(floating_ip_id)}", "deleting a floating IP")

    # -- volumes --

    def volumes(self) -> list[Volume]:
        """All of the project; [] when there is no block storage."""
        return self._if_there(VOLUME, lambda: self._all(VOLUME, "/volumes/detail", "volumes", Volume.of), [])

    def mark_volume(self, volume_id: str, metadata: Mapping[str, str]) -> None:
        """Add metadata to a volume. Raises CloudNotFound."""
        path = f"/volumes/{_quoted(volume_id)}/metadata"
        self._call(VOLUME, "POST", path, "marking a volume", body={"metadata": dict(metadata)})

    def delete_volume(self, volume_id: str) -> None:
        """Raises CloudNotFound."""
        self._call(VOLUME, "DELETE", f"/volumes/{_quoted(volume_id)}", "deleting a volume")

    # -- images --

    def images(self, **filters: str) -> list[Image]:
        """Visible images, e.g. those of a ``name`` or a ``status``."""
        return self._all(IMAGE, "/images", "images", Image.of, filters)

    def image(self, image_id: str) -> Image:
        """Raises CloudNotFound."""
        return Image.of(self._thing({"image": self._get(IMAGE, f"/images/{_quoted(image_id)}", "image")}, "image"))

    def create_image(self, body: Mapping[str, Any]) -> Image:
        """Make the record of an image, without its data."""
        answer = self._call(IMAGE, "POST", "/images", "creating an image", body=dict(body))
        return Image.of(self._thing({"image": answer.data}, "image"))

    def upload_image_data(self, image_id: str, data: Any, timeout: tuple[float, float], staged: bool = False) -> None:
        """Send the content of an image.

        :param data: an iterable of bytes with a length; it is iterated anew when the call has to be made again.
        :param timeout: seconds for one piece of the data to be taken, and for the answer after them.
        :param staged: to the staging area, from where `import_image` takes it.
        """
        headers = {"Content-Type": "application/octet-stream"}
        path = f"/images/{_quoted(image_id)}/{'stage' if staged else 'file'}"
        # keystoneauth would send all of it again after 503, without a look at what has become of the image.
        arguments = {"data": data, "headers": headers, "timeout": timeout, "status_code_retries": 0}
        self._call(IMAGE, "PUT", path, "uploading an image", arguments=arguments)

    def import_methods(self) -> list[str]:
        """Of the interoperable import; [] = the cloud has none."""
        try:
            data = self._get(IMAGE, "/info/import", "methods of import")
        except CloudRefused:
            return []
        found = data.get("import-methods") if isinstance(data, dict) else None
        names = found.get("value") if isinstance(found, dict) else None
        return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []

    def import_image(self, image_id: str, method: str) -> None:
        """Begin to make an image of what is in the staging area."""
        path = f"/images/{_quoted(image_id)}/import"
        self._call(IMAGE, "POST", path, "importing an image", body={"method": {"name": method}})

    def image_failures(self, image_id: str) -> str:
        """What the cloud says of imports of an image that failed; "" = nothing."""
        try:
            data = self._get(IMAGE, f"/images/{_quoted(image_id)}/tasks", "tasks of an image")
        except CloudRefused:
            return ""
        tasks = data.get("tasks") if isinstance(data, dict) else None
        listed = tasks if isinstance(tasks, list) else []
        failed = [task for task in listed if isinstance(task, dict) and task.get("status") == "failure"]
        return one_line("; ".join(str(task.get("message") or "") for task in failed))

    def set_image_properties(self, image_id: str, properties: Mapping[str, Any], replace: bool = False) -> None:
        """Add properties to an image, or replace them. Raises CloudNotFound."""
        changes = [
            {
                "op": "replace" if replace else "add",
                "path": f"/{key.replace('~', '~0').replace('/', '~1')}",
                "value": value,
            }
            for key, value in properties.items()
        ]
        headers = {"Content-Type": "application/openstack-images-v2.1-json-patch"}
        path = f"/images/{_quoted(image_id)}"
        self._call(IMAGE, "PATCH", path, "changing an image", arguments={"json": changes, "headers": headers})

    def delete_image(self, image_id: str) -> None:
        """Raises CloudNotFound."""
        self._call(IMAGE, "DELETE", f"/images/{_quoted(image_id)}", "deleting an image")

    # -- inside --

    def _if_there(self, service: str, ask: Callable[[], A], absent: B) -> A | B:
        """What a service says; ``absent`` where the cloud has no such service.

        It may be in the catalog and all the same be absent: in a version that the driver does not speak.
        """
        try:
            return ask() if self.transport.has(service) else absent
        except ServiceAbsent:
            return absent

    def _get(self, service: str, path: str, what: str, query: Mapping[str, Any] | None = None) -> Any:
        return self._call(service, "GET", path, f"reading {what}", query=query).data

    def _object(self, data: Any, key: str) -> Mapping[str, Any]:
        found = data.get(key) if isinstance(data, dict) else None
        if not isinstance(found, dict):
            raise CloudAway(f"Provider {self.transport.provider}: the answer of the cloud has no {key!r}")
        return found

    def _thing(self, data: Any, key: str) -> Mapping[str, Any]:
        """An object with an id."""
        found = self._object(data, key)
        if not _has_id(found):
            raise CloudAway(f"Provider {self.transport.provider}: the {key} in the answer of the cloud has no id")
        return found

    def _all(
        self,
        service: str,
        path: str,
        key: str,
        parse: Callable[[Mapping[str, Any]], T],
        query: Mapping[str, Any] | None = None,
    ) -> list[T]:
        """Every page of a list."""
        found: list[T] = []
        more = dict(query or {})
        for _ in range(MAX_PAGES):
            data = self._call(service, "GET", path, f"listing {key}", query=more).data
            page = data.get(key) if isinstance(data, dict) else None
            if not isinstance(page, list):
                raise CloudAway(f"Provider {self.transport.provider}: the answer of the cloud has no list {key!r}")
            found.extend(_parsed(page, parse))
            marker = _next_marker(data, key, page)
            if marker is None:
                return found
            more["marker"] = marker
        raise CloudAway(f"Provider {self.transport.provider}: the list of {key} has no end")


def _parsed(page: Sequence[Any], parse: Callable[[Mapping[str, Any]], T]) -> Iterator[T]:
    for entry in page:
        if isinstance(entry, dict) and _has_id(entry):
            yield parse(entry)


def _has_id(entry: Mapping[str, Any]) -> bool:
    found = entry.get("id")
    return bool(found) and isinstance(found, (str, int))


def _next_marker(data: Mapping[str, Any], key: str, page: Sequence[Any]) -> str | None:
    """What the next page begins after: Nova, Neutron and Cinder have ``<key>_links``, Glance has ``next``.

    The link of an empty page is followed, too: servers that are missing in a list count as gone.
    """
    link = data.get("next")
    links = data.get(f"{key}_links")
    if isinstance(links, list):
        link = next((item.get("href") for item in links if isinstance(item, dict) and item.get("rel") == "next"), None)
    if not isinstance(link, str):
        return None
    marker = urllib.parse.parse_qs(urllib.parse.urlsplit(link).query).get("marker")
    last = page[-1] if page else None
    return marker[0] if marker else str(last["id"]) if isinstance(last, dict) and "id" in last else None


def _quoted(value: str) -> str:
    return urllib.parse.quote(str(value), safe="")
