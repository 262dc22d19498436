# SPDX-License-Identifier: Apache-2.0
"""`OpenStackCloud`: what the parts of one provider share: the API, its servers, what is known of the cloud."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound, CloudRefused
from nodepool.driver.openstack.api import VOLUME, Api
from nodepool.driver.openstack.clouds import host_has_ipv6
from nodepool.driver.openstack.facts import Facts, choose_flavor
from nodepool.driver.openstack.floating import FloatingIps
from nodepool.driver.openstack.instance import CloudNetworks, OpenStackInstance, usage
from nodepool.driver.openstack.transport import DEFAULT_TIMEOUT_SECONDS, Transport
from nodepool.driver.openstack.views import Flavor, Server, Volume
from nodepool.driver.statemachine.instance import INSTALLATION_KEY, NODE_KEY, POOL_KEY, PROVIDER_KEY
from nodepool.driver.statemachine.instance_cloud import GONE, InstanceCloud
from nodepool.driver.statemachine.inventory import ChangesNotListed
from nodepool.exceptions import LaunchError
from nodepool.guard import OnError

if TYPE_CHECKING:
    from nodepool.driver.openstack.config import OpenStackLabel, OpenStackProviderConfig


class OpenStackCloud(InstanceCloud[Server]):
    """One provider's cloud.

    :param transport: how to make calls.
    :param settings: of the cloud, from clouds.yaml.
    """

    lists_changes = True

    def __init__(
        self, config: OpenStackProviderConfig, transport: Transport, settings: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(config.name)
        self.config = config
        self.transport = transport
        self.api = Api(transport)
        self._lists = ServerLists(self.api)
        self.networks = CloudNetworks.of(settings or {}, host_has_ipv6=host_has_ipv6())
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
        return GONE, f"the cloud shows server {record.id} as {record.task_state or record.status}"

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
            # Its label may be gone from the configuration.
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

    def instances(self) -> list[OpenStackInstance]:
        """All servers of the project, as they are now; blocks."""
        servers = self.inventory.all(max_age=0.0)
        sizes: dict[str, Volume] = {}
        if self.config.uses_volumes and any(server.volumes for server in servers):
            sizes = {volume.id: volume for volume in self.api.volumes()}
        found = [self.instance(server, sizes) for server in servers]
        for instance, server in zip(found, servers, strict=True):
            instance.ends = self.why_ended(server)
        return found

    def instance(self, server: Server, volumes: Mapping[str, Volume]) -> OpenStackInstance:
        """A server of a list; blocks only for flavors that were not asked for yet."""
        cores, ram = server.cores, server.ram
        if not ram and server.flavor_id:
            flavor = self.facts.flavor(server.flavor_id)
            cores, ram = (flavor.cores, flavor.ram) if flavor is not None else (0, 0)
        size = sum(volumes[volume_id].size for volume_id in server.volumes if volume_id in volumes)
        return OpenStackInstance(
            server,
            usage(cores, ram, len(server.volumes), size),
            self.facts.networks.known() or [],
            self.networks,
            cloud_name=self.config.cloud,
            region=self.region,
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
#: From one wide list to the next. The lists in between are narrow: they tell again what changed in the latest second.
WIDE_SECONDS: Final = 1.0
#: For so long after a new second was seen a narrow list asks for the second before, too: a change is listed when its
#: transaction has ended, and says when it began.
COMMIT_SECONDS: Final = 0.5
#: Once a narrow list was too narrow, all are wide for so long.
LATE_SECONDS: Final = 60.0


class ServerLists:
    """Lists of the servers of one provider. `list` may be called by several threads, `changes_since` by one at a time.

    In a burst lists come many times a second, and most of what a wide one tells was told before. So most of them are
    narrow. A change that a narrow list did not show, because clocks differ or the cloud is slow, is in the next wide
    one: then the narrow ones are not used for a while.
    """

    def __init__(self, api: Api, clock: Callable[[], float] = monotonic) -> None:
        self._api = api
        self._clock = clock
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
            # Whatever went before it must be told by the next one, and by no later one.
            self._updated.clear()
            self._widen()
        elif since != self._narrow and self._too_late(servers):
            self._wide_until = self._clock() + LATE_SECONDS
        self._updated.update((server.id, server.updated) for server in servers)
        return servers

    def _widen(self) -> None:
        """The next list of changes is a wide one."""
        self._next_wide_at = float("-inf")

    def changes_since(self, latest: str) -> str | None:
        """The time to ask for changes from, now; None when the latest time that was seen is none.

        :param latest: as Nova writes it.
        """
        now = self._clock()
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
        """Does a wide list have news that a narrow one would not have had?"""
        return any(server.updated < self._narrow and self._is_news(server) for server in servers)

    def _is_news(self, server: Server) -> bool:
        known = self._updated.get(server.id)
        # What is gone may have gone before the last list of all, which does not show it.
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
# A volume without it that stays behind is nobody's for ever. So what could not be written, because the cloud had an
# error
# or the launcher died, is written later: with the next search for leaks, or before the server is deleted.

log = logging.getLogger("nodepool.driver.openstack.cloud")

_KEYS: Final = (NODE_KEY, POOL_KEY, PROVIDER_KEY, INSTALLATION_KEY)


class VolumeMarks:
    """Of one provider. Thread-safe; ``_lock`` guards the tables.

    :param provider: its name.
    :param submit: does something in another thread.
    """

    def __init__(self, provider: str, api: Api, submit: Callable[[Callable[[], None]], object]) -> None:
        self._provider = provider
        self._api = api
        self._submit = submit
        self._lock = threading.Lock()
        #: What is to be written, by the id of the volume.
        self._open: dict[str, dict[str, str]] = {}
        self._marked: set[str] = set()

    @property
    def open(self) -> bool:
        """Is something not written yet?"""
        with self._lock:
            return bool(self._open)

    def begin(self, volume_ids: Iterable[str], mark: Mapping[str, str]) -> None:
        """Mark volumes that have just been made. Does not block."""
        new = self._note(volume_ids, mark)
        if new:
            self._submit(lambda: self._write(new))

    def mark(self, server: Server) -> None:
        """Mark the volume that a server boots from, unless that was done. Blocks; trouble is logged."""
        if server.boot_volume is not None and server.metadata.get(PROVIDER_KEY) == self._provider:
            mark = {key: server.metadata[key] for key in _KEYS if key in server.metadata}
            self._write(self._note([server.boot_volume], mark))

    def catch_up(self) -> None:
        """Write what could not be written so far. Blocks; trouble is logged."""
        with self._lock:
            waiting = list(self._open)
        self._write(waiting)

    def seen(self, marked: Collection[str], unmarked: Collection[str], servers: Iterable[Server]) -> None:
        """All volumes of the cloud were listed: marks those of our servers that nobody has marked. Blocks."""
        with self._lock:
            self._marked = set(marked)
        for server in servers:
            if server.boot_volume in unmarked:
                self.mark(server)

    def _note(self, volume_ids: Iterable[str], mark: Mapping[str, str]) -> list[str]:
        with self._lock:
            new = [volume_id for volume_id in volume_ids if volume_id not in self._marked]
            self._open.update({volume_id: dict(mark) for volume_id in new})
        return new

    def _write(self, volume_ids: Iterable[str]) -> None:
        for volume_id in volume_ids:
            with self._lock:
                mark = self._open.get(volume_id)
            if mark is None:
                continue
            try:
                if self._api.transport.has(VOLUME):
                    self._api.mark_volume(volume_id, mark)
            except CloudAway as error:
                log.warning("Provider %s: volume %s is marked as ours later: %s", self._provider, volume_id, error)
                continue
            except CloudNotFound:
                # Or the cloud does not know it yet.
                log.debug("Provider %s: there is no volume %s", self._provider, volume_id)
            except LaunchError as error:
                # Or the cloud is at work on it.
                log.warning("Provider %s: volume %s is not marked as ours: %s", self._provider, volume_id, error)
            else:
                with self._lock:
                    self._marked.add(volume_id)
            # What is not marked now the deletion of the server, or the search for leaks, marks.
            with self._lock:
                self._open.pop(volume_id, None)
