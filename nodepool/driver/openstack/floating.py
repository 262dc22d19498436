# SPDX-License-Identifier: Apache-2.0
"""Floating IPs of servers (O-5): made only when a server has no other way to be reached, removed before it is."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudNotFound, CloudRefused
from nodepool.driver.framework.fact import Fact
from nodepool.driver.openstack.instance import CloudNetworks, classify
from nodepool.driver.openstack.views import FloatingIp, Network, Port, Server
from nodepool.exceptions import LaunchNetworkException

if TYPE_CHECKING:
    from nodepool.driver.openstack.api import Api
    from nodepool.driver.openstack.facts import Facts

log = logging.getLogger("nodepool.driver.openstack.floating")

#: How old a list may be for servers that can do without; and one that shows none at all.
LIST_SECONDS: Final = 1.0
NONE_SECONDS: Final = 60.0
#: So many servers are remembered for which one was made.
MAX_MADE: Final = 10_000


class FloatingIps:
    """Floating IPs of one provider. Thread-safe.

    ``_lock`` guards what was made and what cannot be routed; it is not held while the cloud is asked.
    """

    def __init__(self, provider: str, api: Api, facts: Facts, cloud: CloudNetworks) -> None:
        self.provider = provider
        self._api = api
        self._facts = facts
        self._cloud = cloud
        self._lock = threading.Lock()
        self._list: Fact[list[FloatingIp]] = Fact(api.floating_ips)
        #: server id -> floating IP ids.
        self._made: dict[str, list[str]] = {}
        #: (external network, network of a port): there is no router between them.
        self._unroutable: dict[tuple[str, str], float] = {}

    # -- making --

    def needed(self, server: Server) -> bool:
        """Does a server need one to be reached? Does not ask the cloud."""
        if not self._cloud.floating or self._cloud.private:
            return False
        found = classify(server, self._facts.networks.known() or [], self._cloud)
        if found.public_v4 or any(address.floating for address in server.addresses):
            return False
        return found.private_v4 is not None and bool(self._sources())

    def attach(self, server: Server, note: str) -> FloatingIp | None:
        """Make one for a server; blocks. None = no external network can be reached from the server.

        :param note: description of the floating IP, for operators.
        :raises CloudQuota: there are no more.
        :raises LaunchNetworkException: it is not clear which port is to get it.
        """
        found = self._destination(server)
        if found is None:
            return None
        port, fixed = found
        for source in self._sources():
            made = self._create(source, port, fixed, note)
            if made is not None:
                with self._lock:
                    self._made.setdefault(server.id, []).append(made.id)
                    if len(self._made) > MAX_MADE:
                        # Of a server that another launcher has deleted; others are found at their servers.
                        del self._made[next(iter(self._made))]
                return made._replace(fixed_address=fixed)
        log.debug("Provider %s: no external network is routed to server %s", self.provider, server.id)
        return None

    def _destination(self, server: Server) -> tuple[Port, str] | None:
        """The port that gets it, with its address (O-13); None = no port has one of IPv4. Blocks."""
        found = [
            (port, next(address for address in port.addresses if ":" not in address))
            for port in self._api.ports(device=server.id)
            if any(":" not in address for address in port.addresses)
        ]
        if len({port.network for port, _ in found}) > 1:
            wanted = self._nat_networks()
            found = [(port, fixed) for port, fixed in found if port.network in wanted]
            if len({port.network for port, _ in found}) != 1:
                raise LaunchNetworkException(
                    f"provider {self.provider}: server {server.id} has several ports, and {self._why_none()}; mark the "
                    "network whose port shall get the floating IP with nat_destination: true in clouds.yaml"
                )
        return found[0] if found else None

    def _nat_networks(self) -> Collection[str]:
        """Ids of the networks that may get floating IPs: the marked one, else those with a gateway."""
        marked = self._cloud.nat_destination
        if marked is None:
            return self._facts.gateways.get()
        return {network.id for network in self._facts.networks.get() or [] if marked in (network.id, network.name)}

    def _why_none(self) -> str:
        if self._cloud.nat_destination is None:
            return "not exactly one of them is on a network with a gateway"
        return f"none of them is on network {self._cloud.nat_destination}"

    def _create(self, source: Network, port: Port, fixed: str, note: str) -> FloatingIp | None:
        route = (source.id, port.network)
        with self._lock:
            if monotonic() < self._unroutable.get(route, 0.0):
                return None
        try:
            return self._api.create_floating_ip(source.id, port, fixed, note)
        except CloudNotFound as error:
            if error.said.startswith(f"404 Port {port.id} could not be found"):
                # It went with its server; of the route this says nothing.
                raise
            # "External network is not reachable from subnet", or no floating IPs at all.
            log.info("Provider %s: no floating IP from network %s: %s", self.provider, source.name, error)
            with self._lock:
                self._unroutable[route] = monotonic() + 300.0
            return None

    def _sources(self) -> list[Network]:
        networks = self._facts.networks.known() or []
        if self._cloud.nat_source:
            return [n for n in networks if self._cloud.nat_source in (n.name, n.id)]
        return [network for network in networks if network.external]

    # -- removing --

    def may_have(self, server_id: str, server: Server | None) -> bool:
        """Could there be one at a server? Does not ask the cloud."""
        with self._lock:
            if server_id in self._made:
                return True
        if _shows_one(server):
            return True
        if not self._cloud.floating:
            return False
        # An address that came late, or before our time, does not show at the server.
        if self._facts.networks.known() is not None and not self._sources():
            return False
        return self._unsure(server) or self._list.known(NONE_SECONDS) != []

    def _unsure(self, server: Server | None) -> bool:
        """Another launcher may have made one a moment ago, for a server that we have not seen or that needs one."""
        return server is None or not server.addresses or _shows_one(server) or self.needed(server)

    def release(self, server_id: str, server: Server | None) -> int:
        """Delete those of a server; blocks. Returns how many."""
        with self._lock:
            ids = set(self._made.get(server_id, ()))
        if not ids and not _shows_one(server) and self._facts.networks.get() is not None and not self._sources():
            return 0
        # No list from before has what another launcher made. Nor will there be more: nobody has this server any longer.
        present = self._list.get_new() if self._unsure(server) else self._list.get(LIST_SECONDS)
        if server is None or not server.addresses:
            near = [floating for floating in present if floating.port]
        else:
            own = {address.ip for address in server.addresses}
            near = [floating for floating in present if floating.fixed_address in own or floating.address in own]
        if near and not ids.issuperset(floating.id for floating in near):
            # Networks of others may have the same addresses: the port decides.
            ports = {port.id for port in self._api.ports(device=server_id)}
            ids.update(floating.id for floating in near if floating.port in ports)
        for floating_id in ids:
            self.delete(floating_id)
        with self._lock:
            self._made.pop(server_id, None)
        return len(ids)

    def delete(self, floating_id: str) -> None:
        """Delete one; blocks. One that is gone is no error."""
        try:
            self._api.delete_floating_ip(floating_id)
        except CloudNotFound:
            log.debug("Floating IP %s is gone already", floating_id)

    # -- leaks --

    def unattached(self) -> list[FloatingIp]:
        """Those that are attached to nothing; blocks."""
        try:
            self._list.clear()
            return [floating for floating in self._list.get() if not floating.port and not floating.forwards]
        except CloudRefused as error:
            log.debug("Provider %s: floating IPs cannot be listed: %s", self.provider, error)
            return []


def _shows_one(server: Server | None) -> bool:
    return server is not None and any(address.floating for address in server.addresses)
