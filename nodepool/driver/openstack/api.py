# SPDX-License-Identifier: Apache-2.0
"""The calls that the driver makes, then what services say.

All calls block; errors are those of `nodepool.driver.openstack.transport`.
"""

from __future__ import annotations

import math
import re
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from nodepool.driver.framework.cloud_errors import CloudAway, CloudRefused, or_none
from nodepool.driver.openstack.transport import ServiceAbsent, Transport
from nodepool.driver.statemachine.inventory import CloudRecord

COMPUTE: Final = "compute"
NETWORK: Final = "network"
IMAGE: Final = "image"
VOLUME: Final = "block-storage"
#: More pages than any list can have: a cloud that links in circles must not keep us for ever.
MAX_PAGES: Final = 1000

T = TypeVar("T")


class Api:
    """Calls of one provider. Thread-safe."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._call = transport.call

    # -- servers --

    def servers(self, changes_since: str | None = None) -> list[Server]:
        """All servers of the project; with ``changes_since`` those that changed, deleted ones too."""
        query = {"changes-since": changes_since} if changes_since else None
        return self._all(COMPUTE, "/servers/detail", "servers", Server, query)

    def server(self, server_id: str) -> Server:
        """One server. Raises CloudNotFound."""
        return Server(self._thing(self._get(COMPUTE, f"/servers/{_quoted(server_id)}", "server"), "server"))

    def create_server(self, body: Mapping[str, Any], permit: Callable[[], None] = lambda: None) -> str:
        """Begin to make a server; returns its id.

        :param permit: see `Transport.call`.
        :raises CloudQuota: over quota.
        :raises CloudAway: it may have been made all the same, see ``maybe_done``.
        """
        wanted = {"server": dict(body)}
        data = self._call(COMPUTE, "POST", "/servers", "creating a server", body=wanted, permit=permit)
        return str(self._thing(data, "server")["id"])

    def delete_server(self, server_id: str) -> None:
        """Begin to delete a server. Raises CloudNotFound."""
        self._call(COMPUTE, "DELETE", f"/servers/{_quoted(server_id)}", "deleting a server")

    def console(self, server_id: str) -> str | None:
        """What a server wrote to its console; None = the cloud does not tell."""
        path, body = f"/servers/{_quoted(server_id)}/action", {"os-getConsoleOutput": {"length": None}}
        try:
            data = self._call(COMPUTE, "POST", path, "reading a console", body=body)
        except CloudRefused:
            return None
        return text_of(_mapping(data).get("output"), "")

    def flavors(self) -> list[Flavor]:
        """All flavors that the project can use."""
        return self._all(COMPUTE, "/flavors/detail", "flavors", Flavor)

    def flavor(self, flavor_id: str) -> Flavor:
        """One flavor, also one that is not listed. Raises CloudNotFound."""
        return Flavor(self._thing(self._get(COMPUTE, f"/flavors/{_quoted(flavor_id)}", "flavor"), "flavor"))

    def zones(self) -> list[str]:
        """Names of the availability zones that take servers."""
        try:
            found = _mapping(self._get(COMPUTE, "/os-availability-zone", "availability zones"))
        except CloudRefused:
            return []
        zones = [_mapping(zone) for zone in _list(found.get("availabilityZoneInfo"))]
        return [
            str(z["zoneName"]) for z in zones if z.get("zoneName") and _mapping(z.get("zoneState")).get("available")
        ]

    def has_key_pair(self, name: str) -> bool:
        """Has the user a key pair of this name?"""
        return or_none(lambda: self._get(COMPUTE, f"/os-keypairs/{_quoted(name)}", "key pair")) is not None

    def compute_limits(self) -> dict[str, Any]:
        """``absolute`` limits of Nova."""
        return self._limits(COMPUTE)

    def volume_limits(self) -> dict[str, Any]:
        """``absolute`` limits of Cinder; {} when there is none."""
        return self._if_there(VOLUME, lambda: self._limits(VOLUME)) or {}

    def _limits(self, service: str) -> dict[str, Any]:
        limits = self._object(self._get(service, "/limits", "limits"), "limits")
        return dict(_mapping(limits.get("absolute")))

    # -- networks --

    def networks(self) -> list[Network] | None:
        """All visible networks; None when there is no network service."""
        return self._of_neutron("networks", Network, NETWORK_FIELDS)

    def security_groups(self) -> set[str] | None:
        """Names and ids of all visible security groups; None when there is no network service."""
        groups = self._of_neutron("security_groups", dict, ("id", "name"), path="/security-groups")
        if groups is None:
            return None
        return {str(group[field]) for group in groups for field in ("id", "name") if group.get(field)}

    def networks_with_gateway(self) -> frozenset[str]:
        """Ids of networks of which a subnet has a gateway."""
        found = self._of_neutron("subnets", dict, SUBNET_FIELDS) or ()
        return frozenset(str(subnet.get("network_id")) for subnet in found if subnet.get("gateway_ip"))

    def ports(self, device: str | None = None, status: str | None = None) -> list[Port]:
        """Ports of the project, or those of one server; [] without a network service."""
        return self._of_neutron("ports", Port, PORT_FIELDS, device_id=device, status=status) or []

    def delete_port(self, port_id: str) -> None:
        """Raises CloudNotFound."""
        self._call(NETWORK, "DELETE", f"/ports/{_quoted(port_id)}", "deleting a port")

    def floating_ips(self) -> list[FloatingIp]:
        """All of the project; [] when the cloud has no floating IPs."""
        return or_none(lambda: self._of_neutron("floatingips", FloatingIp, FLOATING_IP_FIELDS)) or []

    def create_floating_ip(self, network_id: str, port: Port, fixed_address: str, note: str) -> FloatingIp:
        """Make one and attach it, in one call.

        :raises CloudNotFound: that network cannot be reached from the port, or the cloud has no floating IPs.
        """
        body = {"floating_network_id": network_id, "port_id": port.id, "description": note}
        wanted = {"floatingip": {**body, "fixed_ip_address": fixed_address}}
        data = self._call(NETWORK, "POST", "/floatingips", "creating a floating IP", body=wanted)
        return FloatingIp(self._thing(data, "floatingip"))

    def delete_floating_ip(self, floating_ip_id: str) -> None:
        """Raises CloudNotFound."""
        self._call(NETWORK, "DELETE", f"/floatingips/{_quoted(floating_ip_id)}", "deleting a floating IP")

    # -- volumes --

    def volumes(self) -> list[Volume]:
        """All of the project; [] when there is no block storage."""
        return self._if_there(VOLUME, lambda: self._all(VOLUME, "/volumes/detail", "volumes", Volume)) or []

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
        return self._all(IMAGE, "/images", "images", Image, filters)

    def image(self, image_id: str) -> Image:
        """Raises CloudNotFound."""
        return Image(self._thing({"image": self._get(IMAGE, f"/images/{_quoted(image_id)}", "image")}, "image"))

    def create_image(self, body: Mapping[str, Any]) -> Image:
        """Make the record of an image, without its data."""
        data = self._call(IMAGE, "POST", "/images", "creating an image", body=dict(body))
        return Image(self._thing({"image": data}, "image"))

    def upload_image_data(self, image_id: str, data: Any, timeout: tuple[float, float]) -> None:
        """Send the content of an image.

        :param data: an iterable of bytes with a length; it is iterated anew when the call has to be made again.
        :param timeout: seconds for one piece of the data to be taken, and for the answer after them.
        """
        headers = {"Content-Type": "application/octet-stream"}
        # keystoneauth would send all of it again after 503, without a look at what has become of the image.
        arguments = {"data": data, "headers": headers, "timeout": timeout, "status_code_retries": 0}
        self._call(IMAGE, "PUT", f"/images/{_quoted(image_id)}/file", "uploading an image", arguments=arguments)

    def set_image_properties(self, image_id: str, properties: Mapping[str, Any], replace: bool = False) -> None:
        """Add properties to an image, or replace them. Raises CloudNotFound."""
        verb, names = (
            "replace" if replace else "add",
            {key: key.replace("~", "~0").replace("/", "~1") for key in properties},
        )
        changes = [{"op": verb, "path": f"/{names[key]}", "value": value} for key, value in properties.items()]
        headers = {"Content-Type": "application/openstack-images-v2.1-json-patch"}
        path = f"/images/{_quoted(image_id)}"
        self._call(IMAGE, "PATCH", path, "changing an image", arguments={"json": changes, "headers": headers})

    def delete_image(self, image_id: str) -> None:
        """Raises CloudNotFound."""
        self._call(IMAGE, "DELETE", f"/images/{_quoted(image_id)}", "deleting an image")

    # -- inside --

    def _if_there(self, service: str, ask: Callable[[], T]) -> T | None:
        """What a service says; None where the cloud has no such service.

        It may be in the catalog and all the same be absent: in a version that the driver does not speak.
        """
        try:
            return ask() if self.transport.has(service) else None
        except ServiceAbsent:
            return None

    def _of_neutron(
        self,
        key: str,
        parse: Callable[[Mapping[str, Any]], T],
        fields: Sequence[str],
        path: str = "",
        **filters: str | None,
    ) -> list[T] | None:
        """A list of the network service; None = there is no such service."""
        query = {"fields": fields, **{name: value for name, value in filters.items() if value}}
        return self._if_there(NETWORK, lambda: self._all(NETWORK, path or f"/{key}", key, parse, query))

    def _get(self, service: str, path: str, what: str, query: Mapping[str, Any] | None = None) -> Any:
        return self._call(service, "GET", path, f"reading {what}", query=query)

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
            data = self._call(service, "GET", path, f"listing {key}", query=more)
            page = data.get(key) if isinstance(data, dict) else None
            if not isinstance(page, list):
                raise CloudAway(f"Provider {self.transport.provider}: the answer of the cloud has no list {key!r}")
            found.extend(parse(entry) for entry in page if isinstance(entry, dict) and _has_id(entry))
            marker = _next_marker(data, key, page)
            if marker is None:
                return found
            more["marker"] = marker
        raise CloudAway(f"Provider {self.transport.provider}: the list of {key} has no end")


def _has_id(entry: Mapping[str, Any]) -> bool:
    found = entry.get("id")
    return bool(found) and isinstance(found, (str, int))


def _next_marker(data: Mapping[str, Any], key: str, page: Sequence[Any]) -> str | None:
    """What the next page begins after: Nova, Neutron and Cinder have ``<key>_links``, Glance has ``next``.

    The link of an empty page is followed, too: servers that are missing in a list count as deleted.
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


# What services say, as small values: only what the driver uses, and whatever is odd about it made harmless.

_ADDRESS: Final = re.compile(r"[0-9A-Fa-f:.]{2,45}")
#: What follows the seconds of a time in UTC.
_AFTER_SECONDS: Final = re.compile(r"(?<=:\d\d)(\.\d+)?(Z|\+00:00)?$")

#: What is read of the things that Neutron lists: it can be asked for these fields alone. Nova cannot.
NETWORK_FIELDS: Final = ("id", "name", "router:external", "provider:physical_network")
PORT_FIELDS: Final = ("id", "network_id", "status", "device_owner", "device_id", "fixed_ips")
SUBNET_FIELDS: Final = ("id", "network_id", "gateway_ip")
FLOATING_IP_FIELDS: Final = ("id", "floating_ip_address", "port_id", "fixed_ip_address", "port_forwardings")

ACTIVE: Final = "ACTIVE"
BUILD: Final = "BUILD"
ERROR: Final = "ERROR"
#: The second is kept for a while by clouds with deferred deletion; for its user it is deleted.
GONE: Final = frozenset({"DELETED", "SOFT_DELETED"})


class Address(NamedTuple):
    """One address of a server.

    :param network: name of the network.
    :param floating: a floating IP, not one of the server's own.
    :param mac: of the port; "" = the cloud does not say.
    """

    network: str
    ip: str
    version: int
    floating: bool
    mac: str = ""


class Server(CloudRecord):
    """A server as a list or ``GET`` shows it.

    :ivar flavor_id: "" when the cloud writes the flavor out.
    :ivar cores: 0 when only the id of the flavor is known; so is ``ram`` (MiB).
    :ivar boot_volume: the volume that it boots from; None = none, or there are others, too.
    :ivar fault: of a server in ERROR, "" = none.
    :ivar updated: in the one form in which texts can be compared, Nova's: ``2024-05-01T12:00:00Z``; "" = not known.
    :raises KeyError: not even an id is there.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        flavor, fault = _mapping(data.get("flavor")), _mapping(data.get("fault"))
        attached = [_mapping(volume) for volume in _list(data.get("os-extended-volumes:volumes_attached"))]
        self.id = str(data["id"])
        self.name = str(data.get("name") or "")
        self.status = str(data.get("status") or "UNKNOWN").upper()
        self.task_state = str(data.get("OS-EXT-STS:task_state") or "")
        self.metadata = {str(key): str(value) for key, value in _mapping(data.get("metadata")).items()}
        self.addresses = tuple(_addresses(_mapping(data.get("addresses"))))
        self.access_ipv4, self.access_ipv6 = _ip(data.get("accessIPv4")), _ip(data.get("accessIPv6"))
        self.az = text_of(data.get("OS-EXT-AZ:availability_zone"))
        self.host_id = text_of(data.get("hostId"))
        self.flavor_id = str(flavor.get("id") or "")
        self.cores, self.ram = _whole(flavor.get("vcpus")), _whole(flavor.get("ram"))
        self.volumes = tuple(str(volume["id"]) for volume in attached if volume.get("id"))
        self.boot_volume = self.volumes[0] if len(self.volumes) == 1 and not data.get("image") else None
        self.fault = " ".join(str(fault.get(key)) for key in ("message", "details") if fault.get(key))
        self.updated = _AFTER_SECONDS.sub("Z", str(data.get("updated") or ""), count=1)
        self.gone = self.status in GONE

    @property
    def deleting(self) -> bool:
        """Has the cloud begun to delete it?"""
        return self.task_state in ("deleting", "soft-deleting") or self.gone


class Flavor(CloudRecord):
    """A size of servers; ``ram`` in MiB."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.id, self.name = str(data["id"]), str(data.get("name") or "")
        self.cores, self.ram = _whole(data.get("vcpus")), _whole(data.get("ram"))


class Network(CloudRecord):
    """A network.

    :ivar routable: its addresses can be reached from outside.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.id, self.name = str(data["id"]), str(data.get("name") or "")
        self.external = data.get("router:external") is True
        self.routable = self.external or bool(data.get("provider:physical_network"))


class Image(CloudRecord):
    """An image. ``properties``: all that Glance says of it."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.id, self.name = str(data["id"]), str(data.get("name") or "")
        self.status, self.properties = str(data.get("status") or "").lower(), dict(data)


class Port(CloudRecord):
    """A network port; ``owner`` and ``device`` may be ""."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        fixed = [_mapping(one) for one in _list(data.get("fixed_ips"))]
        self.id, self.network = str(data["id"]), str(data.get("network_id") or "")
        self.status = str(data.get("status") or "").upper()
        self.owner, self.device = str(data.get("device_owner") or ""), str(data.get("device_id") or "")
        self.addresses = tuple(str(one["ip_address"]) for one in fixed if one.get("ip_address"))


class FloatingIp(CloudRecord):
    """A floating IP; ``port`` is "" while it is attached to no port.

    :ivar forwards: it forwards single ports; then it is in use without a ``port``.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.id, self.address = str(data["id"]), str(data.get("floating_ip_address") or "")
        self.port, self.fixed_address = str(data.get("port_id") or ""), str(data.get("fixed_ip_address") or "")
        self.forwards = bool(data.get("port_forwardings"))


class Volume(CloudRecord):
    """A volume; ``size`` in GB. :ivar deleting: the cloud has begun to delete it: some overwrite it, for long."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.id, self.size = str(data["id"]), _whole(data.get("size"))
        self.metadata = {str(key): str(value) for key, value in _mapping(data.get("metadata")).items()}
        self.attached = bool(data.get("attachments"))
        self.deleting = str(data.get("status")).lower() == "deleting"


def limit(value: Any) -> float:
    """A quota limit: a negative one means that there is none, and so does one that is missing."""
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    # Not "value < 0": there is NaN in JSON, too.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        return math.inf
    return value


def text_of(value: Any, *more: str) -> str | None:
    """What goes into a node's record, where only a text or null may stand. :param more: texts that are taken, too."""
    return value if isinstance(value, str) and (value or value in more) else None


def _ip(value: Any) -> str:
    """An address; "" = it is none. It goes to Zuul, which makes lines of known_hosts and inventories of it."""
    return value if isinstance(value, str) and _ADDRESS.fullmatch(value) else ""


def _addresses(networks: Mapping[Any, Any]) -> list[Address]:
    found = []
    for network, entries in networks.items():
        for entry in _list(entries):
            if isinstance(entry, dict) and (ip := _ip(entry.get("addr"))):
                version = 6 if entry.get("version") == 6 or ":" in ip else 4
                mac = entry.get("OS-EXT-IPS-MAC:mac_addr")
                floating = entry.get("OS-EXT-IPS:type") == "floating"
                found.append(Address(str(network), ip, version, floating, mac if isinstance(mac, str) else ""))
    return found


def _mapping(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _whole(value: Any) -> int:
    """A number, or one in a text; 0 = it is none."""
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value % 1 == 0 else 0
