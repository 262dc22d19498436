# SPDX-License-Identifier: Apache-2.0
"""`OpenStackInstance`: a server as the framework sees it; and what it uses of the quota."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nodepool.driver.openstack.addresses import CloudNetworks, classify, with_floating_ip
from nodepool.driver.openstack.views import ACTIVE, FloatingIp, Network, Server
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
