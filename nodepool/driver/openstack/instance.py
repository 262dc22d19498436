# SPDX-License-Identifier: Apache-2.0
"""A server as the framework sees it, and what it uses of the quota; then which of its addresses is which."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from nodepool.driver.openstack.views import ACTIVE, Address, FloatingIp, Network, Server
from nodepool.driver.statemachine import Instance
from nodepool.model.quota import QuotaInformation


class OpenStackInstance(Instance):
    """One server.

    :param quota: what it uses.
    :param floating_ip: its floating IP, if the server does not show it yet.
    """

    def __init__(
        self,
        server: Server,
        quota: QuotaInformation,
        networks: Iterable[Network],
        cloud: CloudNetworks,
        *,
        cloud_name: str,
        region: str | None,
        floating_ip: FloatingIp | None = None,
    ) -> None:
        super().__init__()
        self.ready = server.status == ACTIVE
        self.deleted = server.gone
        self.external_id = server.id
        self.metadata = dict(server.metadata)
        self.az = server.az
        self.cloud = cloud_name
        self.region = region
        self.host_id = server.host_id
        found = classify(server if floating_ip is None else with_floating_ip(server, floating_ip), networks, cloud)
        self.public_ipv4 = found.public_v4
        self.public_ipv6 = found.public_v6
        # O-9: playbooks of long ago rely on it.
        self.private_ipv4 = found.private_v4 or self.public_ipv4
        self.interface_ip = found.interface
        self._quota = quota

    def getQuotaInformation(self) -> QuotaInformation:
        return self._quota


def usage(cores: int, ram: int, volumes: int = 0, volume_gb: int = 0) -> QuotaInformation:
    """What one server uses; volumes are only named where there are some."""
    more: dict[str, Any] = {"volumes": volumes, "volume-gb": volume_gb} if volumes else {}
    return QuotaInformation(cores=cores, instances=1, ram=ram, **more)


# Which address of a server is which: public, private, and the one to connect to (L-13, O-9, O-12). Pure functions.
#
# The same choice as ``interface_ip`` of openstacksdk; what clouds.yaml says under ``networks`` comes first.


class CloudNetworks(NamedTuple):
    """What clouds.yaml says about a cloud's networks; names or ids.

    :param private: ``private: true``: the launcher and Zuul are inside the cloud.
    :param default: the network to connect through, or None.
    :param nat_source: the network that floating IPs come from, or None.
    :param nat_destination: the network of the port that gets a floating IP, or None (O-13).
    :param floating: False: there are no floating IPs (``floating_ip_source: None``, ``requires_floating_ip: false``).
    :param external: False: public IPv4 addresses are not looked for (``use_external_network: false``).
    :param inside: False: private addresses are not looked for (``use_internal_network: false``).
    :param only_v4: ``force_ipv4: true``: addresses of IPv6 are not used at all.
    :param prefer_v6: the launcher's host has IPv6, and `only_v4` is not set.
    """

    private: bool = False
    routed: Collection[str] = ()
    internal: Collection[str] = ()
    default: str | None = None
    nat_source: str | None = None
    nat_destination: str | None = None
    floating: bool = True
    external: bool = True
    inside: bool = True
    only_v4: bool = False
    prefer_v6: bool = False

    @classmethod
    def of(cls, settings: Mapping[str, Any], *, host_has_ipv6: bool = False) -> CloudNetworks:
        """Read the settings of a cloud; tolerates what is not there."""
        entries = settings.get("networks")
        networks = [n for n in entries if isinstance(n, dict) and n.get("name")] if isinstance(entries, list) else []

        def named(key: str) -> list[str]:
            return [str(n["name"]) for n in networks if n.get(key)]

        routed = [str(n["name"]) for n in networks if n.get("routes_ipv4_externally", n.get("routes_externally"))]
        no_source = str(settings.get("floating_ip_source", "neutron")).lower() == "none"
        # What is no bool counts as for openstacksdk; ``check`` tells of it.
        only_v4 = bool(settings.get("force_ipv4"))
        return cls(
            private=bool(settings.get("private")),
            routed=routed,
            internal=[str(n["name"]) for n in networks if str(n["name"]) not in routed],
            default=next(iter(named("default_interface")), None),
            nat_source=next(iter(named("nat_source")), None),
            nat_destination=next(iter(named("nat_destination")), None),
            floating=not no_source and settings.get("requires_floating_ip") is not False,
            external=bool(settings.get("use_external_network", True)),
            inside=bool(settings.get("use_internal_network", True)),
            only_v4=only_v4,
            prefer_v6=host_has_ipv6 and not only_v4,
        )


class ServerAddresses(NamedTuple):
    """The addresses of one server; None = it has none of the kind."""

    public_v4: str | None
    public_v6: str | None
    private_v4: str | None
    interface: str | None


def classify(server: Server, networks: Iterable[Network], cloud: CloudNetworks) -> ServerAddresses:
    """Tell the addresses of a server apart.

    :param networks: as the network service shows them; none if there is no such service.
    """
    networks = list(networks)
    public_v4 = _public_v4(server, networks, cloud)
    any_v6 = server.access_ipv6 or _first_of(a for a in server.addresses if a.version == 6)
    public_v6 = None if cloud.only_v4 else any_v6
    private_v4 = told = _private_v4(server, networks, cloud)
    if private_v4 is None and public_v4 is None:
        # Of networks that nobody told us of: better than none.
        private_v4 = _first(a for a in server.addresses if a.version == 4 and not a.floating)
    interface = _default_address(server, networks, cloud)
    if interface is None and cloud.private:
        interface = told
    if interface is None and cloud.prefer_v6:
        interface = public_v6
    interface = interface or public_v4 or private_v4 or public_v6
    return ServerAddresses(public_v4, public_v6, private_v4, interface)


def with_floating_ip(server: Server, floating: FloatingIp) -> Server:
    """A server that shows its floating IP, which may come late."""
    if any(address.ip == floating.address for address in server.addresses):
        return server
    own = next((address for address in server.addresses if address.ip == floating.fixed_address), None)
    shown = Address(own.network if own else "", floating.address, 4, True, own.mac if own else "")
    return server._replace(addresses=(*server.addresses, shown))


def _default_address(server: Server, networks: list[Network], cloud: CloudNetworks) -> str | None:
    """The address on the network that clouds.yaml marks with ``default_interface``."""
    if cloud.default is None:
        return None
    names = _names([cloud.default], networks)
    mine = [address for address in server.addresses if address.network in names]
    for version in (6, 4) if cloud.prefer_v6 else (4,):
        found = _first_of(address for address in mine if address.version == version)
        if found is not None:
            return found
    return None


def _public_v4(server: Server, networks: list[Network], cloud: CloudNetworks) -> str | None:
    if not cloud.external:
        return None
    if server.access_ipv4:
        return server.access_ipv4
    v4 = [address for address in server.addresses if address.version == 4]
    inside = _names(cloud.internal, networks)
    routed = _names(cloud.routed, networks)
    outside = [n.name for n in networks if n.name in routed or (n.routable and n.name not in inside)]
    return (
        _first_on(v4, [*outside, *routed.difference(outside)])
        or _first(address for address in v4 if address.floating)
        or _first(address for address in v4 if address.network == "public")
        or _first(address for address in v4 if _is_global(address.ip))
    )


def _private_v4(server: Server, networks: list[Network], cloud: CloudNetworks) -> str | None:
    if not cloud.inside:
        return None
    v4 = [address for address in server.addresses if address.version == 4]
    mac = next((address.mac for address in v4 if address.floating), "")
    # With a floating IP, that which it leads to.
    own = [address for address in v4 if not address.floating and (not mac or address.mac == mac)]
    routed = _names(cloud.routed, networks)
    named = _names(cloud.internal, networks)
    inside = [n.name for n in networks if n.name in named or (not n.routable and n.name not in routed)]
    return _first_on(own, [*inside, *named.difference(inside), "private"]) or _first_on(v4, ["private"])


def _names(wanted: Iterable[str], networks: Iterable[Network]) -> set[str]:
    """Names of networks that are given by name or id; addresses of servers have names."""
    names = set(wanted)
    return names | {network.name for network in networks if network.id in names}


def _first_on(addresses: list[Address], names: Iterable[str]) -> str | None:
    """Of the first of these networks on which there is any address."""
    for name in names:
        found = _first_of(address for address in addresses if address.network == name)
        if found is not None:
            return found
    return None


def _first_of(addresses: Iterable[Address]) -> str | None:
    """The first one, floating IPs before others."""
    found = list(addresses)
    return _first(address for address in found if address.floating) or _first(found)


def _first(addresses: Iterable[Address]) -> str | None:
    return next((address.ip for address in addresses), None)


def _is_global(ip: str) -> bool:
    try:
        return not ipaddress.ip_address(ip).is_private
    except ValueError:
        return False
