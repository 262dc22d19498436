# SPDX-License-Identifier: Apache-2.0
"""The OpenStack driver of the released package on the simulated cloud."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from simulators.openstack import CLOUD_NAME, OpenStackSimulator
from tests.functional.released_drivers.cloud import Cloud, Surroundings


class OpenStack(Cloud):
    """It hides our driver of that name."""

    driver: ClassVar[str] = "openstack"
    kind: ClassVar[str] = "simulator of OpenStack"

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self._simulator = OpenStackSimulator()
        self._foreign = ""

    def section(self) -> dict[str, Any]:
        port = self.surroundings.sshd.port
        image = {"name": "debian", "image-name": "cloud-image", "username": "debian", "connection-port": port}
        label = {
            "name": self.label,
            "cloud-image": "debian",
            "flavor-name": "medium",
            "dynamic-instance-properties": {"tenant": "{request.tenant_name}"},
        }
        pool = {"name": self.pool, "max-servers": 5, "networks": ["provider"], "labels": [label]}
        return {"cloud": CLOUD_NAME, "rate": 0.01, "cloud-images": [image], "pools": [pool]}

    def prepare(self) -> None:
        self._simulator.start()
        file = self._simulator.write_clouds_yaml(self.directory / "clouds.yaml")
        self.environment["OS_CLIENT_CONFIG_FILE"] = str(file)

    def stop(self) -> None:
        self._simulator.stop()

    def machines(self) -> set[str]:
        return {metadata.get("nodepool_node_id", "") for metadata in self._servers().values()}

    def check_node(self, node: Mapping[str, Any]) -> None:
        assert node["host_keys"]
        assert set(node["host_keys"]) <= set(self.surroundings.sshd.host_keys)
        assert (node["cloud"], node["username"]) == (CLOUD_NAME, "debian")
        assert node["resources"] == {"instances": 1, "cores": 2, "ram": 4096}
        metadata = self._servers()[node["external_id"]]
        assert (metadata["tenant"], metadata["nodepool_provider_name"]) == ("tenant", self.provider)

    def leave(self) -> set[str]:
        """Two servers: of ours, and of somebody else's."""
        with self._simulator.cloud() as cloud:
            self._foreign = cloud.add_server(metadata={"nodepool_provider_name": "other"}).id
            ours = {"nodepool_provider_name": self.provider, "nodepool_node_id": "9999999999"}
            return {cloud.add_server(metadata=ours).id}

    def left(self) -> set[str]:
        there = set(self._servers())
        if self._foreign not in there:
            raise RuntimeError("a server that is not ours was deleted")
        return there

    def _servers(self) -> dict[str, dict[str, str]]:
        """Metadata of each server."""
        with self._simulator.cloud() as cloud:
            return {server.id: server.metadata for server in cloud.compute.servers}


class RenamedOpenStack(OpenStack):
    """The same under another name, as a site has it that made a copy to change it."""

    driver: ClassVar[str] = "openstack_copy"
    original: ClassVar[str] = "openstack"
