# SPDX-License-Identifier: Apache-2.0
"""What services say, as small values: only what the driver uses, and whatever is odd about it made harmless."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

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
#: The second is kept for a while by clouds with deferred deletion; for its user it is gone.
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


class Server(NamedTuple):
    """A server as a list or ``GET`` shows it.

    :param flavor_id: "" when the cloud writes the flavor out.
    :param cores: 0 when only the id of the flavor is known; so is ``ram`` (MiB).
    :param boot_volume: the volume that it boots from; None = none, or there are others, too.
    :param fault: of a server in ERROR, "" = none.
    :param updated: in the one form in which texts can be compared, Nova's: ``2024-05-01T12:00:00Z``; "" = not known.
    """

    id: str
    name: str
    status: str
    task_state: str
    metadata: Mapping[str, str]
    addresses: tuple[Address, ...]
    access_ipv4: str
    access_ipv6: str
    az: str | None
    host_id: str | None
    flavor_id: str
    cores: int
    ram: int
    volumes: tuple[str, ...]
    boot_volume: str | None
    fault: str
    updated: str

    @property
    def gone(self) -> bool:
        return self.status in GONE

    @property
    def deleting(self) -> bool:
        """Has the cloud begun to delete it?"""
        return self.task_state in ("deleting", "soft-deleting") or self.gone

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Server:
        """Raises KeyError when not even an id is there."""
        flavor = _mapping(data.get("flavor"))
        fault = _mapping(data.get("fault"))
        volumes = tuple(
            str(volume["id"])
            for volume in _list(data.get("os-extended-volumes:volumes_attached"))
            if isinstance(volume, dict) and volume.get("id")
        )
        return cls(
            id=str(data["id"]),
            name=str(data.get("name") or ""),
            status=str(data.get("status") or "UNKNOWN").upper(),
            task_state=str(data.get("OS-EXT-STS:task_state") or ""),
            metadata={str(key): str(value) for key, value in _mapping(data.get("metadata")).items()},
            addresses=tuple(_addresses(_mapping(data.get("addresses")))),
            access_ipv4=_ip(data.get("accessIPv4")),
            access_ipv6=_ip(data.get("accessIPv6")),
            az=_text(data.get("OS-EXT-AZ:availability_zone")),
            host_id=_text(data.get("hostId")),
            flavor_id=str(flavor.get("id") or ""),
            cores=_whole(flavor.get("vcpus")),
            ram=_whole(flavor.get("ram")),
            volumes=volumes,
            boot_volume=volumes[0] if len(volumes) == 1 and not data.get("image") else None,
            fault=" ".join(str(fault.get(key)) for key in ("message", "details") if fault.get(key)),
            updated=_AFTER_SECONDS.sub("Z", str(data.get("updated") or ""), count=1),
        )


class Flavor(NamedTuple):
    """A size of servers; ``ram`` in MiB."""

    id: str
    name: str
    cores: int
    ram: int

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Flavor:
        return cls(str(data["id"]), str(data.get("name") or ""), _whole(data.get("vcpus")), _whole(data.get("ram")))


class Network(NamedTuple):
    """A network.

    :param routable: its addresses can be reached from outside.
    """

    id: str
    name: str
    external: bool
    routable: bool

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Network:
        external = data.get("router:external") is True
        return cls(
            str(data["id"]),
            str(data.get("name") or ""),
            external,
            external or bool(data.get("provider:physical_network")),
        )


class Image(NamedTuple):
    """An image."""

    id: str
    name: str
    status: str
    properties: Mapping[str, Any]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Image:
        return cls(str(data["id"]), str(data.get("name") or ""), str(data.get("status") or "").lower(), dict(data))


class Port(NamedTuple):
    """A network port; ``owner`` and ``device`` may be ""."""

    id: str
    network: str
    status: str
    owner: str
    device: str
    addresses: tuple[str, ...]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Port:
        return cls(
            str(data["id"]),
            str(data.get("network_id") or ""),
            str(data.get("status") or "").upper(),
            str(data.get("device_owner") or ""),
            str(data.get("device_id") or ""),
            tuple(
                str(fixed["ip_address"])
                for fixed in _list(data.get("fixed_ips"))
                if isinstance(fixed, dict) and fixed.get("ip_address")
            ),
        )


class FloatingIp(NamedTuple):
    """A floating IP; ``port`` is "" while it is attached to no port.

    :param forwards: it forwards single ports; then it is in use without a ``port``.
    """

    id: str
    address: str
    port: str
    fixed_address: str
    forwards: bool = False

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> FloatingIp:
        return cls(
            str(data["id"]),
            str(data.get("floating_ip_address") or ""),
            str(data.get("port_id") or ""),
            str(data.get("fixed_ip_address") or ""),
            bool(data.get("port_forwardings")),
        )


class Volume(NamedTuple):
    """A volume; ``size`` in GB."""

    id: str
    status: str
    size: int
    metadata: Mapping[str, str]
    attached: bool

    @property
    def deleting(self) -> bool:
        """Has the cloud begun to delete it? That may take long: some overwrite it."""
        return self.status == "deleting"

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Volume:
        return cls(
            str(data["id"]),
            str(data.get("status") or "").lower(),
            _whole(data.get("size")),
            {str(key): str(value) for key, value in _mapping(data.get("metadata")).items()},
            bool(data.get("attachments")),
        )


def limit(value: Any) -> float:
    """A quota limit: a negative one means that there is none, and so does one that is missing."""
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    # Not "value < 0": there is NaN in JSON, too.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        return math.inf
    return value


def available_zones(data: Any) -> list[str]:
    """Names of the zones in an answer that take servers."""
    zones = [_mapping(zone) for zone in _list(_mapping(data).get("availabilityZoneInfo"))]
    return [str(z["zoneName"]) for z in zones if z.get("zoneName") and _mapping(z.get("zoneState")).get("available")]


def _text(value: Any) -> str | None:
    """What goes into a node's record, where only a text or null may stand."""
    return value if isinstance(value, str) and value else None


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
