# SPDX-License-Identifier: Apache-2.0
"""`OpenStackCloud`: what the parts of one provider share: the API, its servers, what is known of the cloud."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from nodepool.driver.framework.cloud_errors import CloudNotFound
from nodepool.driver.openstack.addresses import CloudNetworks
from nodepool.driver.openstack.api import Api
from nodepool.driver.openstack.clouds import host_has_ipv6
from nodepool.driver.openstack.facts import Facts, choose_flavor
from nodepool.driver.openstack.floating import FloatingIps
from nodepool.driver.openstack.instance import OpenStackInstance, usage
from nodepool.driver.openstack.server_list import ServerLists
from nodepool.driver.openstack.session import DEFAULT_TIMEOUT_SECONDS
from nodepool.driver.openstack.transport import Transport
from nodepool.driver.openstack.views import Flavor, Server, Volume
from nodepool.driver.openstack.volumes import VolumeMarks
from nodepool.driver.statemachine.instance_cloud import GONE, InstanceCloud

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
