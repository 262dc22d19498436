# SPDX-License-Identifier: Apache-2.0
"""The launch of one server: what it consists of, and what Nova says of it.

::

    ... -> building -> addressing -> complete
              |  ^
              v  |
             broken     (status ERROR: ask why)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, Final

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudRefused
from nodepool.driver.openstack import spec, verdicts
from nodepool.driver.openstack.instance import OpenStackInstance, usage
from nodepool.driver.openstack.views import ACTIVE, BUILD, ERROR, Flavor, FloatingIp, Server
from nodepool.driver.statemachine.creation_machine import CreationMachine
from nodepool.driver.statemachine.inventory_machine import Step
from nodepool.driver.statemachine.lost_creations import CreationKey
from nodepool.exceptions import LaunchError, LaunchNetworkException

if TYPE_CHECKING:
    from nodepool.driver.openstack.cloud import OpenStackCloud
    from nodepool.driver.openstack.config import OpenStackLabel
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.model.request import NodeRequest

#: How long an active server may have no address.
NO_ADDRESS_SECONDS: Final = 15.0


class ServerCreation(CreationMachine[Server]):
    """See the module. Nova does not know a creation again: a lost one is looked for by its metadata.

    :param image_id: of the upload; None = the label's cloud image.
    :param metadata: keys that say whose the server is; they win over those of the user (D-1, O-11).
    :param az: availability zone, or None.
    """

    ADDRESSING: ClassVar[str] = "addressing"
    BROKEN: ClassVar[str] = "broken"

    cloud: OpenStackCloud

    def __init__(
        self,
        cloud: OpenStackCloud,
        hostname: str,
        label: OpenStackLabel,
        image_id: str | None,
        metadata: Mapping[str, str],
        request: NodeRequest | None,
        az: str | None,
        log: Log,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__(cloud, label.name, metadata, log, clock)
        self._hostname = hostname
        self._label = label
        self._image_id = image_id
        self._request = request
        self._az = az
        self._flavor: Flavor | None = None
        self._floating_ip: FloatingIp | None = None
        self._marked = False

    def steps(self) -> Mapping[str, Step]:
        return {**super().steps(), self.ADDRESSING: self._addressing, self.BROKEN: self._ask_why}

    # -- the creation; in a thread of the cloud --

    def create(self, key: CreationKey) -> str:
        label, facts = self._label, self.cloud.facts
        flavor = facts.flavor_of(label)
        image_id = self._image_id or facts.image_of(label)
        facts.networks.get()
        networks = facts.network_ids(label) or [n for n in [self.cloud.default_network()] if n]
        chosen = [{"uuid": network} for network in networks] or ("auto" if self.cloud.names_networks else None)
        metadata = spec.server_metadata(self.cloud.provider, label, self.metadata, self._request, self.log)
        body = spec.server_body(self._hostname, label, flavor, image_id, chosen, metadata, self._az)
        server_id = self.cloud.api.create_server(body, self.permit)
        self._flavor = flavor
        return server_id

    def refused(self, error: Exception) -> Exception:
        """What a refused creation means (O-2, O-3)."""
        if not isinstance(error, CloudRefused):
            return error
        if error.status in (400, 404):
            self.cloud.facts.clear()
        return verdicts.refusal_of(self.where, self._label, self._az, error)

    def found(self) -> None:
        self._flavor = self.cloud.known_flavor(self._label)

    # -- steps --

    def lets_go_on(self, record: Server | None) -> bool:
        building = record is not None and record.status == BUILD and self.state == self.BUILDING
        return not building or self._label.boot_from_volume

    def seen(self, record: Server) -> bool:
        if record.status == ERROR:
            return self.go(self.BROKEN)
        self._mark_volumes(record)
        return record.status == ACTIVE and self.go(self.ADDRESSING)

    def _ask_why(self) -> bool:
        """Status ERROR: raise the reason.

        Lists seldom have it: Nova looks for faults in one of its databases only, so those of servers that found no
        host, or those of all others, are missing there. The server itself has it.
        """
        server_id = self.external_id
        server = self.cloud.inventory.get(server_id)
        if server is None or server.status != ERROR:
            self.forget_call()
            return self.go(self.BUILDING)
        if server.fault:
            raise verdicts.error_status(self.where, server)
        if not self.calling:
            self.call(lambda: self.cloud.api.server(server_id))
        if not self.answered:
            return False
        try:
            server = self.answer()
        except LaunchError as error:
            self.log.debug("Server %s: its fault is not known: %s", server_id, error)
        raise verdicts.error_status(self.where, server)

    def _addressing(self) -> OpenStackInstance | bool:
        server = self.cloud.inventory.get(self.external_id)
        if server is None or server.status == ERROR:
            return self.go(self.BUILDING)
        if self.calling:
            if not self.answered:
                return False
            self._floating_ip = self.answer()
            return self._instance(server)
        if not server.addresses:
            return self._no_address()
        if self._label.pool.auto_floating_ip and self.cloud.floating.needed(server):
            note = f"nodepool {self.cloud.provider} node {self.node_id}"
            self.call(lambda: self.cloud.floating.attach(server, note))
            return False
        return self._instance(server)

    def _no_address(self) -> bool:
        # What Nova knows of addresses may come late, and not show as a change.
        self.need_complete_lists()
        if self.clock() - self.since > NO_ADDRESS_SECONDS:
            raise LaunchNetworkException(
                f"{self.where}: server {self.external_id} is active, but has no address; "
                "check the networks of the label and their subnets"
            )
        return False

    def _instance(self, server: Server) -> OpenStackInstance:
        flavor = self._flavor
        volume = self._label.volume_size if self._label.boot_from_volume else 0
        return OpenStackInstance(
            server,
            usage(
                server.cores or (flavor.cores if flavor else 0),
                server.ram or (flavor.ram if flavor else 0),
                len(server.volumes) or (1 if volume else 0),
                volume,
            ),
            self.cloud.facts.networks.known() or [],
            self.cloud.networks,
            cloud_name=self.cloud.config.cloud,
            region=self.cloud.region,
            floating_ip=self._floating_ip,
        )

    def _mark_volumes(self, server: Server) -> None:
        """A volume that Nova made for us must say whose it is, or nobody could tell when it is left over."""
        if self._marked or not self._label.boot_from_volume or not server.volumes:
            return
        self._marked = True
        self.cloud.volumes.begin(server.volumes, self.metadata)
