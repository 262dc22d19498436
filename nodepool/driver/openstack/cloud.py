# SPDX-License-Identifier: Apache-2.0
"""What the parts of one OpenStack provider share.

First the API, its servers and what is known of the cloud (`OpenStackCloud`), then how servers are listed, then volumes,
then floating IPs, then what seldom changes, then a server and its addresses.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound, CloudRefused, or_none
from nodepool.driver.framework.fact import MAX_AGE_SECONDS, Fact
from nodepool.driver.openstack.api import ACTIVE, VOLUME, Address, Api, Flavor, FloatingIp, Image, Network, Port, Server
from nodepool.driver.openstack.clouds import host_has_ipv6
from nodepool.driver.openstack.config import CloudImage, OpenStackLabel, OpenStackProviderConfig
from nodepool.driver.openstack.transport import DEFAULT_TIMEOUT_SECONDS, Transport
from nodepool.driver.statemachine import CloudInstance
from nodepool.driver.statemachine import instance as tags
from nodepool.driver.statemachine.inventory import ChangesNotListed
from nodepool.exceptions import LaunchError, LaunchNetworkException, LaunchNodepoolException
from nodepool.guard import OnError
from nodepool.model.node import QuotaInformation


class OpenStackCloud(tags.InstanceCloud[Server]):
    """One provider's cloud.

    :param transport: how to make calls.
    :param settings: of the cloud, from clouds.yaml.
    """

    lists_changes = True
    resumes_launches = True

    def __init__(
        self, config: OpenStackProviderConfig, transport: Transport, settings: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(config.name)
        self.config = config
        self.transport = transport
        self.api = Api(transport)
        self._lists = ServerLists(self.api)
        self.networks = CloudNetworks(settings or {}, host_has_ipv6=host_has_ipv6())
        #: Not what clouds.yaml says: host variables and metrics of a site go by what nodepool.yaml says.
        self.region = config.region_name or None
        timeout = (settings or {}).get("api_timeout")
        # openstacksdk makes texts of some numbers.
        self.call_seconds = float(str(timeout)) if timeout is not None else DEFAULT_TIMEOUT_SECONDS
        #: From version 2.37 on requests to Nova must say when it may choose the network.
        self.names_networks = _minor((settings or {}).get("compute_default_microversion")) >= 37
        self.facts = Facts(config.name, self.api)
        self.floating = FloatingIps(config.name, self.api, self.facts, self.networks)
        self.volumes = VolumeMarks(config.name, self.api, lambda work: self.others.submit(work))
        #: GiB, by id, as far as volumes count. One thread lists, and uses it.
        self._volume_sizes: Mapping[str, int] = {}

    def close(self) -> None:
        self.transport.close()

    # -- servers --

    def list_instances(self, since: str | None) -> list[Server]:
        return self._lists.list(since)

    def changes_since(self, latest: str) -> str | None:
        return self._lists.changes_since(latest)

    def get_instance(self, record_id: str) -> Server:
        return self.api.server(record_id)

    def why_ended(self, record: Server) -> tuple[str, str] | None:
        if not record.deleting:
            return None
        return tags.GONE, f"the cloud shows server {record.id} as {record.task_state or record.status}"

    def delete_instance(self, record_id: str) -> None:
        """Order the deletion; its volume says whose it is before, in case that it stays. Blocks.

        Raises CloudNotFound and other errors of the API.
        """
        server = self.inventory.get(record_id)
        if self.config.uses_volumes and server is None:
            # What it says of a server that is not there does not count: only the answer to the order does.
            with contextlib.suppress(CloudNotFound):
                server = self.api.server(record_id)
        if server is not None:
            # Its label may be deleted from the configuration.
            self.volumes.mark(server)
        self.api.delete_server(record_id)

    # -- small questions --

    def known_flavor(self, label: OpenStackLabel) -> Flavor | None:
        """The flavor of a label as far as is known. Does not block."""
        return choose_flavor(self.facts.flavors.known() or [], label.flavor_name, label.min_ram)

    def default_network(self) -> str | None:
        """Id of the network that clouds.yaml names as ``default_interface``, for labels without networks."""
        name = self.networks.default
        return next((n.id for n in self.facts.networks.known() or [] if name and name in (n.id, n.name)), None)

    # -- instances --

    def learn(self, records: Sequence[Server]) -> None:
        volumes = self.api.volumes() if self.config.uses_volumes and any(server.volumes for server in records) else ()
        self._volume_sizes = {volume.id: volume.size for volume in volumes}

    def instance(self, record: Server) -> CloudInstance:
        """A server of a list; blocks only for flavors that were not asked for yet."""
        cores, ram = record.cores, record.ram
        if not ram and record.flavor_id:
            flavor = self.facts.flavor(record.flavor_id)
            cores, ram = (flavor.cores, flavor.ram) if flavor is not None else (0, 0)
        size = sum(self._volume_sizes.get(volume_id, 0) for volume_id in record.volumes)
        return self.shown(record, usage(cores, ram, len(record.volumes), size))

    def shown(self, server: Server, used: QuotaInformation, floating_ip: FloatingIp | None = None) -> CloudInstance:
        """A server as the framework sees it. Does not block.

        :param floating_ip: its floating IP, if the server does not show it yet.
        """
        seen = server if floating_ip is None else with_floating_ip(server, floating_ip)
        found = classify(seen, self.facts.networks.known() or [], self.networks)
        return CloudInstance(
            server,
            used,
            ready=server.status == ACTIVE,
            deleted=server.gone,
            az=server.az,
            cloud=self.config.cloud,
            region=self.region,
            host_id=server.host_id,
            public_ipv4=found.public_v4,
            public_ipv6=found.public_v6,
            # O-9: playbooks of long ago rely on it.
            private_ipv4=found.private_v4 or found.public_v4,
            interface_ip=found.interface,
        )


def _minor(version: object) -> int:
    """Of a version such as ``2.79``, or ``latest``; 0 = there is none."""
    if version == "latest":
        return sys.maxsize
    minor = str(version or "").partition(".")[2]
    return int(minor) if minor.isdecimal() else 0


# How Nova lists servers, for the provider's `Inventory` (O-8).

#: A wide list asks for changes from so long before the latest one that was seen: services round to seconds, clocks
#: differ.
OVERLAP: Final = timedelta(seconds=5)
#: From one wide list to the next. The lists in between are narrow: they show again what changed in the latest second.
WIDE_SECONDS: Final = 1.0
#: For so long after a new second was seen a narrow list asks for the second before, too: a change is listed when its
#: transaction has ended, and says when it began.
COMMIT_SECONDS: Final = 0.5
#: Once a narrow list was too narrow, all are wide for so long.
LATE_SECONDS: Final = 60.0


class ServerLists:
    """Lists of the servers of one provider. `list` may be called by several threads, `changes_since` by one at a time.

    In a burst lists come many times a second, and most of what a wide one shows was shown before. So most of them are
    narrow. A change that a narrow list did not show, because clocks differ or the cloud is slow, is in the next wide
    one: then the narrow ones are not used for a while.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        #: The latest second that was seen, and when it was seen first.
        self._latest = ""
        self._latest_at = 0.0
        self._next_wide_at = float("-inf")
        self._wide_until = float("-inf")
        #: What a narrow list in place of the next one would ask for; "" = it is not known.
        self._narrow = ""
        #: id -> ``updated``, as last seen.
        self._updated: dict[str, str] = {}

    def list(self, since: str | None) -> list[Server]:
        """All servers of the project (None), or those that changed since a time, deleted ones too. Blocks.

        :param since: as `changes_since` made it.
        :raises ChangesNotListed: the cloud refuses the second.
        """
        with OnError(lambda _: self._widen()):
            try:
                servers = self._api.servers(since)
            except CloudRefused as error:
                if since is None:
                    raise
                raise ChangesNotListed(str(error)) from error
        if since is None:
            # What changed before it is in the next one, and in no later one.
            self._updated.clear()
            self._widen()
        elif since != self._narrow and self._too_late(servers):
            self._wide_until = monotonic() + LATE_SECONDS
        self._updated.update((server.id, server.updated) for server in servers)
        return servers

    def _widen(self) -> None:
        """The next list of changes is a wide one."""
        self._next_wide_at = float("-inf")

    def changes_since(self, latest: str) -> str | None:
        """The time to ask for changes from, now; None when the latest time that was seen is none.

        :param latest: as Nova writes it.
        """
        now = monotonic()
        if latest != self._latest:
            self._latest, self._latest_at = latest, now
        second = timedelta(seconds=1 if now - self._latest_at < COMMIT_SECONDS else 0)
        narrow = _before(latest, second)
        if narrow is None:
            return None
        self._narrow = narrow
        if self._next_wide_at <= now or now < self._wide_until:
            self._next_wide_at = now + WIDE_SECONDS
            return _before(latest, OVERLAP)
        return narrow

    def _too_late(self, servers: Iterable[Server]) -> bool:
        """Does a wide list have changes that a narrow one would not have had?"""
        return any(server.updated < self._narrow and self._is_news(server) for server in servers)

    def _is_news(self, server: Server) -> bool:
        known = self._updated.get(server.id)
        # What does not exist any more may have ended before the last list of all, which does not show it.
        return not server.gone if known is None else known != server.updated


def _before(latest: str, overlap: timedelta) -> str | None:
    """A time as Nova understands it; None when ``latest`` is none."""
    try:
        when = datetime.fromisoformat(latest.replace("Z", "+00:00"))
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return (when - overlap).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# Volumes that Nova makes for our servers do not say whose they are. We write it into them (O-6, D-2).
#
# A volume without it that stays behind is never recognised as ours. So what could not be written, because the cloud had
# an error or the launcher died, is written with the next search for leaks, or before the server is deleted.

log = logging.getLogger("nodepool.driver.openstack.cloud")

_KEYS: Final = (tags.NODE_KEY, tags.POOL_KEY, tags.PROVIDER_KEY, tags.INSTALLATION_KEY)


class VolumeMarks:
    """Of one provider. Thread-safe.

    :param provider: its name.
    :param submit: does something in another thread.
    """

    def __init__(self, provider: str, api: Api, submit: Callable[[Callable[[], None]], object]) -> None:
        self._provider = provider
        self._api = api
        self._submit = submit
        #: Ids of volumes.
        self._marked: set[str] = set()
        #: What could not be written because the cloud was away, by the id of the volume.
        self._open: dict[str, Mapping[str, str]] = {}

    def begin(self, volume_ids: Iterable[str], mark: Mapping[str, str]) -> None:
        """Mark volumes that have just been made. Does not block."""
        self._submit(lambda: self._write(volume_ids, mark))

    def mark(self, server: Server) -> None:
        """Mark the volume that a server boots from, unless that was done. Blocks; errors are logged."""
        volume_id, found = server.boot_volume, server.metadata
        if volume_id is not None and volume_id not in self._marked and found.get(tags.PROVIDER_KEY) == self._provider:
            self._write([volume_id], {key: found[key] for key in _KEYS if key in found})

    def catch_up(self) -> None:
        """Mark those for which the cloud was away; their servers may be deleted. Blocks; errors are logged."""
        for volume_id in list(self._open):
            self._write([volume_id], self._open.pop(volume_id))

    def seen(self, marked: Collection[str], unmarked: Collection[str], servers: Iterable[Server]) -> None:
        """All volumes of the cloud were listed: marks those of our servers that are not marked. Blocks."""
        self._marked = set(marked)
        for server in servers:
            if server.boot_volume in unmarked:
                self.mark(server)

    def _write(self, volume_ids: Iterable[str], mark: Mapping[str, str]) -> None:
        for volume_id in volume_ids:
            try:
                if self._api.transport.has(VOLUME):
                    self._api.mark_volume(volume_id, mark)
                    self._marked.add(volume_id)
                    self._open.pop(volume_id, None)
            except LaunchError as error:
                if isinstance(error, CloudAway):
                    self._open[volume_id] = mark
                # It may be that the cloud does not know the volume yet, or is at work on it.
                level = logging.DEBUG if isinstance(error, CloudNotFound) else logging.WARNING
                log.log(level, "Provider %s: volume %s is not marked as ours: %s", self._provider, volume_id, error)


# Floating IPs of servers (O-5): made only when a server has no other way to be reached, removed before it is.


#: How old a list may be for servers that can do without; and one that shows none at all.
LIST_SECONDS: Final = 1.0
NONE_SECONDS: Final = 60.0
#: So many servers are remembered for which one was made.
MAX_MADE: Final = 10_000


class FloatingIps:
    """Floating IPs of one provider. Thread-safe: what changes a table is one operation. What changes `_made` has
    ``_lock``, which is not held while the cloud is asked.
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
                marked = self._cloud.nat_destination
                gateway = "not exactly one of them is on a network with a gateway"
                why = f"none of them is on network {marked}" if marked is not None else gateway
                raise LaunchNetworkException(
                    f"provider {self.provider}: server {server.id} has several ports, and {why}; mark the "
                    "network whose port shall get the floating IP with nat_destination: true in clouds.yaml"
                )
        return found[0] if found else None

    def _nat_networks(self) -> Collection[str]:
        """Ids of the networks that may get floating IPs: the marked one, else those with a gateway."""
        marked = self._cloud.nat_destination
        if marked is None:
            return self._facts.gateways.get()
        return {network.id for network in self._facts.networks.get() or [] if marked in (network.id, network.name)}

    def _create(self, source: Network, port: Port, fixed: str, note: str) -> FloatingIp | None:
        route = (source.id, port.network)
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
        if server_id in self._made or _shows_one(server):
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

    def release(self, server_id: str, server: Server | None) -> None:
        """Delete those of a server; blocks."""
        with self._lock:
            ids = set(self._made.get(server_id, ()))
        if not ids and not _shows_one(server) and self._facts.networks.get() is not None and not self._sources():
            return
        # No list from before has what another launcher made. Nor will there be more: no one has this server any longer.
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
            with contextlib.suppress(CloudNotFound):
                self._api.delete_floating_ip(floating_id)
        with self._lock:
            self._made.pop(server_id, None)

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


# What seldom changes in a cloud: flavors, images, networks, zones. Asked for once in a while, and after a refusal.

#: How soon something is asked for again because what was looked for is not there (O-7).
MISSING_AGE_SECONDS: Final = 300.0
#: The same before a launch is refused for good: the answer must be from about now.
REFUSAL_AGE_SECONDS: Final = 10.0


class Facts:
    """Facts about the cloud of one provider. All methods may block unless they say otherwise. Thread-safe: what changes
    a table is one operation.
    """

    def __init__(self, provider: str, api: Api) -> None:
        self.provider = provider
        self._api = api
        self.flavors: Fact[list[Flavor]] = Fact(api.flavors)
        self.networks: Fact[list[Network] | None] = Fact(api.networks)
        self.zones: Fact[list[str]] = Fact(api.zones)
        #: Ids of networks that have a gateway.
        self.gateways: Fact[frozenset[str]] = Fact(api.networks_with_gateway)
        self._images: dict[str, Fact[Image | None]] = {}
        #: Flavors that are not listed, e.g. deleted ones of old servers.
        self._hidden_flavors: dict[str, Fact[Flavor | None]] = {}

    def clear(self) -> None:
        """Something that we believed in was refused (O-2). Does not block."""
        for fact in (self.flavors, self.networks, self.zones, self.gateways):
            fact.clear()
        self._images.clear()

    # -- flavors --

    def flavor_of(self, label: OpenStackLabel) -> Flavor:
        """The flavor of a label (O-1).

        :raises LaunchNodepoolException: there is none.
        """
        for max_age in (MAX_AGE_SECONDS, REFUSAL_AGE_SECONDS):
            flavor = choose_flavor(self.flavors.get(max_age), label.flavor_name, label.min_ram)
            if flavor is not None:
                return flavor
        raise LaunchNodepoolException(f"provider {self.provider}, label {label.name}: {missing_flavor(label)}")

    def flavor(self, flavor_id: str) -> Flavor | None:
        """A flavor by its id; None if nothing is known about it."""
        for flavor in self.flavors.get():
            if flavor.id == flavor_id:
                return flavor
        fact = Fact(lambda: or_none(lambda: self._api.flavor(flavor_id)))
        return self._hidden_flavors.setdefault(flavor_id, fact).get(24 * 3600)

    # -- images --

    def image_id(self, image: CloudImage, max_missing_age: float = MISSING_AGE_SECONDS) -> str | None:
        """Id of a cloud image; None if there is none (O-7). One given by id is not looked for (O-10)."""
        if image.image_id:
            return image.image_id
        fact = self._images.setdefault(image.image_name, Fact(lambda: self._find_image(image.image_name)))
        found = fact.get() or fact.get(max_missing_age)
        return None if found is None else found.id

    def image_of(self, label: OpenStackLabel) -> str:
        """Id of the cloud image of a label. Raises LaunchNodepoolException."""
        assert label.cloud_image is not None
        found = self.image_id(label.cloud_image, REFUSAL_AGE_SECONDS)
        if found is None:
            raise LaunchNodepoolException(missing_image(self.provider, label))
        return found

    def _find_image(self, name: str) -> Image | None:
        usable = [image for image in self._api.images(name=name) if image.status == "active"]
        if usable:
            return usable[0]
        image = or_none(lambda: self._api.image(name))
        return image if image is not None and image.status == "active" else None

    # -- networks --

    def network_id(self, name: str, label: OpenStackLabel) -> str:
        """Id of a network of a label; without a network service the name is taken for the id.

        :raises LaunchNodepoolException: there is no such network, or several have the name.
        """
        for max_age in (MAX_AGE_SECONDS, REFUSAL_AGE_SECONDS):
            networks = self.networks.get(max_age)
            if networks is None:
                return name
            ids = [network.id for network in networks if network.id == name] or [
                network.id for network in networks if network.name == name
            ]
            if len(ids) == 1:
                return ids[0]
        trouble = f"has {len(ids)} networks named {name!r}; use ids in" if ids else f"has no network {name!r}; correct"
        raise LaunchNodepoolException(
            f"provider {self.provider}, label {label.name}: the cloud {trouble} networks of the label or its pool"
        )


def choose_flavor(flavors: list[Flavor], name: str | None, min_ram: int) -> Flavor | None:
    """The flavor for a label (O-1).

    :param min_ram: if given, the smallest flavor by (RAM, name) with so much and ``name`` in its name; else exactly it.
    """
    if min_ram or not name:
        ordered = sorted(flavors, key=lambda flavor: (flavor.ram, flavor.name))
        return next((f for f in ordered if f.ram >= min_ram and (not name or name in f.name)), None)
    exact = [flavor for flavor in flavors if flavor.name == name] or [f for f in flavors if f.id == name]
    return exact[0] if exact else None


def missing_flavor(label: OpenStackLabel) -> str:
    """What to tell about a label for which the cloud has no flavor."""
    named = f" {'with' if label.min_ram else 'named'} {label.flavor_name!r}" if label.flavor_name else ""
    named += " in its name and" if label.min_ram and label.flavor_name else ""
    size = f" with at least {label.min_ram} MiB" if label.min_ram else ""
    return f"the cloud has no flavor{named}{size}; correct flavor-name or min-ram, or create the flavor"


def missing_image(provider: str, label: OpenStackLabel) -> str:
    """What to tell about a label whose cloud image is not there."""
    image = label.cloud_image
    name = "" if image is None else image.image_name
    return (
        f"provider {provider}, label {label.name}: the cloud has no usable image {name!r}; "
        "correct cloud-image, or upload the image"
    )


# A server as the framework sees it, and what it uses of the quota; then which of its addresses is which.


def usage(cores: int, ram: int, volumes: int = 0, volume_gb: int = 0) -> QuotaInformation:
    """What one server uses; volumes are only named where there are some."""
    more: dict[str, Any] = {"volumes": volumes, "volume-gb": volume_gb} if volumes else {}
    return QuotaInformation(cores=cores, instances=1, ram=ram, **more)


# Which address of a server is which: public, private, and the one to connect to (L-13, O-9, O-12). Pure functions.
#
# The same choice as ``interface_ip`` of openstacksdk; what clouds.yaml says under ``networks`` comes first.


class CloudNetworks:
    """What clouds.yaml says about a cloud's networks; names or ids. Tolerates what is not there.

    :param settings: of the cloud.
    """

    def __init__(self, settings: Mapping[str, Any], *, host_has_ipv6: bool = False) -> None:
        entries = settings.get("networks")
        networks = [n for n in entries if isinstance(n, dict) and n.get("name")] if isinstance(entries, list) else []

        def first(key: str) -> str | None:
            return next((str(n["name"]) for n in networks if n.get(key)), None)

        #: Are the launcher and Zuul inside the cloud?
        self.private = bool(settings.get("private"))
        self.routed = [str(n["name"]) for n in networks if n.get("routes_ipv4_externally", n.get("routes_externally"))]
        self.internal = [str(n["name"]) for n in networks if str(n["name"]) not in self.routed]
        #: The network to connect through; that which floating IPs come from; that of the port that gets one (O-13).
        self.default, self.nat_source = first("default_interface"), first("nat_source")
        self.nat_destination = first("nat_destination")
        no_source = str(settings.get("floating_ip_source", "neutron")).lower() == "none"
        #: Are there floating IPs?
        self.floating = not no_source and settings.get("requires_floating_ip") is not False
        #: Are public IPv4 addresses looked for, and private ones?
        self.external = bool(settings.get("use_external_network", True))
        self.inside = bool(settings.get("use_internal_network", True))
        #: Are addresses of IPv6 not used at all? What is no bool counts as for openstacksdk.
        self.only_v4 = bool(settings.get("force_ipv4"))
        self.prefer_v6 = host_has_ipv6 and not self.only_v4


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
        # Of networks that no one reported: better than none.
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
