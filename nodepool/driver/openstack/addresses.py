# SPDX-License-Identifier: Apache-2.0
"""Which address of a server is which: public, private, and the one to connect to (L-13, O-9). Pure.

The same order of preference as openstacksdk has; what clouds.yaml says under ``networks`` comes first.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from nodepool.driver.openstack.views import Address, Network, Server


class CloudNetworks(NamedTuple):
    """What clouds.yaml says about a cloud's networks; names or ids.

    :param private: ``private: true``: the launcher and Zuul are inside the cloud.
    :param default: the network to connect through, or None.
    :param nat_source: the network that floating IPs come from, or None.
    :param floating: False: there are no floating IPs (``floating_ip_source: None``, ``requires_floating_ip: false``).
    """

    private: bool = False
    routed: Collection[str] = ()
    routed6: Collection[str] = ()
    internal: Collection[str] = ()
    default: str | None = None
    nat_source: str | None = None
    floating: bool = True

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> CloudNetworks:
        """Read the settings of a cloud; tolerates what is not there."""
        entries = settings.get("networks")
        networks = [n for n in entries if isinstance(n, dict) and n.get("name")] if isinstance(entries, list) else []

        def named(key: str) -> list[str]:
            return [str(n["name"]) for n in networks if n.get(key)]

        routed = [str(n["name"]) for n in networks if n.get("routes_ipv4_externally", n.get("routes_externally"))]
        return cls(
            private=settings.get("private") is True,
            routed=routed,
            routed6=[str(n["name"]) for n in networks if n.get("routes_ipv6_externally", n.get("routes_externally"))],
            internal=[str(n["name"]) for n in networks if str(n["name"]) not in routed],
            default=next(iter(named("default_interface")), None),
            nat_source=next(iter(named("nat_source")), None),
            floating=settings.get("floating_ip_source", "neutron") not in (None, "None")
            and settings.get("requires_floating_ip") is not False,
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
    public_v6 = server.access_ipv6 or _first(a for a in server.addresses if a.version == 6)
    private_v4 = _private_v4(server, networks, cloud, public_v4)
    interface = None
    if cloud.default is not None:
        on_default = [a for a in server.addresses if a.network in _names([cloud.default], networks)]
        interface = _first(a for a in on_default if a.version == 4) or _first(on_default)
    if interface is None and cloud.private:
        interface = private_v4
    interface = interface or public_v4 or public_v6 or private_v4
    return ServerAddresses(public_v4, public_v6 or None, private_v4, interface)


def _public_v4(server: Server, networks: list[Network], cloud: CloudNetworks) -> str | None:
    if server.access_ipv4:
        return server.access_ipv4
    v4 = [address for address in server.addresses if address.version == 4]
    inside = _names(cloud.internal, networks)
    outside = _names(cloud.routed, networks) | {n.name for n in networks if n.routable and n.name not in inside}
    routed = [address for address in v4 if address.network in outside]
    return (
        _first(address for address in routed if address.floating)
        or _first(routed)
        or _first(address for address in v4 if address.floating)
        or _first(address for address in v4 if address.network == "public")
        or _first(address for address in v4 if _is_global(address.ip))
    )


def _private_v4(server: Server, networks: list[Network], cloud: CloudNetworks, public_v4: str | None) -> str | None:
    own = [address for address in server.addresses if address.version == 4 and not address.floating]
    outside = _names(cloud.routed, networks) | {n.name for n in networks if n.routable}
    inside = _names(cloud.internal, networks) | {n.name for n in networks if n.name not in outside}
    return (
        _first(address for address in own if address.network in inside)
        or _first(address for address in own if address.network == "private")
        or _first(address for address in own if address.ip != public_v4)
    )


def _names(wanted: Iterable[str], networks: Iterable[Network]) -> set[str]:
    """Names of networks that are given by name or id; addresses of servers have names."""
    names = set(wanted)
    return names | {network.name for network in networks if network.id in names}


def _first(addresses: Iterable[Address]) -> str | None:
    return next((address.ip for address in addresses), None)


def _is_global(ip: str) -> bool:
    try:
        return not ipaddress.ip_address(ip).is_private
    except ValueError:
        return False
