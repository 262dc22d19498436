# SPDX-License-Identifier: Apache-2.0
"""`OpenStackCloud`: what the parts of one provider share: the API, its threads, what is known of the cloud."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from nodepool.driver.openstack.addresses import CloudNetworks
from nodepool.driver.openstack.api import Api
from nodepool.driver.openstack.claims import Claims
from nodepool.driver.openstack.errors import CloudNotFound
from nodepool.driver.openstack.facts import Facts, choose_flavor
from nodepool.driver.openstack.floating import FloatingIps
from nodepool.driver.openstack.instance import OpenStackInstance, usage
from nodepool.driver.openstack.server_list import changes_since, list_servers
from nodepool.driver.openstack.session import DEFAULT_TIMEOUT_SECONDS
from nodepool.driver.openstack.transport import Transport
from nodepool.driver.openstack.views import Flavor, Server, Volume
from nodepool.driver.openstack.volumes import VolumeMarks
from nodepool.driver.statemachine.inventory import Inventory
from nodepool.exceptions import LaunchError
from nodepool.metrics import leaks

if TYPE_CHECKING:
    from nodepool.driver.openstack.config import OpenStackLabel, OpenStackProviderConfig

log = logging.getLogger("nodepool.driver.openstack")

#: Calls under way at once: those that make servers, and all others, which must not wait for them.
CREATE_THREADS: Final = 12
OTHER_THREADS: Final = 8


class OpenStackCloud:
    """One provider's cloud. Threads begin with the first piece of work.

    :param transport: how to make calls.
    :param settings: of the cloud, from clouds.yaml.
    """

    def __init__(
        self, config: OpenStackProviderConfig, transport: Transport, settings: Mapping[str, object] | None = None
    ) -> None:
        self.config = config
        self.transport = transport
        self.api = Api(transport)
        self.networks = CloudNetworks.of(settings or {})
        self.region = config.region_name or str((settings or {}).get("region_name") or "") or None
        timeout = (settings or {}).get("api_timeout")
        self.api_timeout = float(timeout) if isinstance(timeout, (int, float)) else DEFAULT_TIMEOUT_SECONDS
        self.facts = Facts(config.name, self.api)
        self.inventory = Inventory(config.name, lambda since: list_servers(self.api, since), changes_since)
        self.inventory.on_news = self._look_for_strays
        self.claims = Claims(config.name)
        self.floating = FloatingIps(config.name, self.api, self.facts, self.networks)
        self.creators = ThreadPoolExecutor(CREATE_THREADS, thread_name_prefix=f"openstack-create-{config.name}")
        self.others = ThreadPoolExecutor(OTHER_THREADS, thread_name_prefix=f"openstack-call-{config.name}")
        self.volumes = VolumeMarks(config.name, self.api, lambda work: self.others.submit(work))

    def stop(self) -> None:
        """End everything; blocks until calls that are under way have ended."""
        self.inventory.stop()
        self.transport.close()
        for executor in (self.creators, self.others):
            executor.shutdown(wait=False, cancel_futures=True)
        for executor in (self.creators, self.others):
            executor.shutdown(wait=True)
        self.inventory.join()

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
        return [self.instance(server, sizes) for server in servers]

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

    def delete_server(self, server_id: str) -> None:
        """Order the deletion; its volume says whose it is before, in case that it stays. Blocks.

        Raises CloudNotFound and other errors of the API.
        """
        server = self.inventory.get(server_id)
        if self.config.uses_volumes and server is None:
            # What it says of a server that is not there does not count: only the answer to the order does.
            with contextlib.suppress(CloudNotFound):
                server = self.api.server(server_id)
        if server is not None:
            # Its label may be gone from the configuration.
            self.volumes.mark(server)
        self.api.delete_server(server_id)

    # -- in the background --

    def _look_for_strays(self, servers: Iterable[Server]) -> None:
        """A server whose creation was given up as lost showed up late."""
        for server in self.claims.strays(servers):
            log.warning(
                "Provider %s: server %s of node %s was made by a call that was not answered, deleting it",
                self.config.name,
                server.id,
                server.metadata.get("nodepool_node_id"),
            )
            self.others.submit(self._delete_stray, server.id)

    def _delete_stray(self, server_id: str) -> None:
        try:
            self.delete_server(server_id)
        except CloudNotFound:
            log.debug("Server %s is gone already", server_id)
        except LaunchError as error:
            # The search for leaks comes by later.
            log.warning("Server %s could not be deleted: %s", server_id, error)
            return
        leaks.report(self.config.name, "instances")
