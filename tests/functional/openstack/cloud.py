# SPDX-License-Identifier: Apache-2.0
"""A cloud of clouds.yaml, looked at with openstacksdk and never through the code under test."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

import openstack
import pytest
from openstack.connection import Connection

from tests.support.wait import wait_for

#: How long deleted things may go on to be listed, in seconds. On a busy machine the rig needs minutes for many.
GONE_SECONDS = 300.0


class RealCloud:
    """One project of a cloud. All methods ask the cloud and block.

    Nobody else may use the project meanwhile: what appears in it during a test counts as left by the test.

    :param name: in clouds.yaml.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        #: Its type hints make of every answer a union that tests would have to take apart.
        self.connection: Any = self._connect(name)

    @staticmethod
    def _connect(name: str) -> Connection:
        return openstack.connect(cloud=name)

    def close(self) -> None:
        self.connection.close()
        # keystoneauth leaves the sessions' sockets to the garbage collector.
        self.connection.session.session.close()

    # -- what the cloud offers --

    @property
    def has_volumes(self) -> bool:
        """Is there a block storage service in the catalog?"""
        return bool(self.connection.has_service("block-storage"))

    def flavor(self) -> str:
        """Name of the flavor for test nodes: what the environment says, else the smallest one."""
        named = os.environ.get("NODEPOOL_TEST_OPENSTACK_FLAVOR")
        if named:
            return named
        return str(min(self.connection.compute.flavors(), key=lambda flavor: (flavor.ram, flavor.disk)).name)

    def image(self) -> str:
        """Name of the image for test nodes: what the environment says, else the smallest one."""
        named = os.environ.get("NODEPOOL_TEST_OPENSTACK_IMAGE")
        if named:
            return named
        images = [image for image in self.connection.image.images() if image.status == "active"]
        assert images, f"cloud {self.name} has no image; upload one, or name one in NODEPOOL_TEST_OPENSTACK_IMAGE"
        return str(min(images, key=lambda image: image.size or 0).name)

    def networks(self) -> list[str]:
        """Networks for test nodes: what the environment says, else none: the driver or the cloud chooses."""
        named = os.environ.get("NODEPOOL_TEST_OPENSTACK_NETWORK")
        return [named] if named else []

    def need_flavor(self, name: str) -> None:
        """Skips the test where there is no such flavor."""
        if not any(flavor.name == name for flavor in self.connection.compute.flavors()):
            pytest.skip(f"cloud {self.name} has no flavor {name!r}; the rig has")

    # -- what others do in it --

    def create_server(self, name: str, network: str | None = None, **metadata: str) -> str:
        """Makes a server that the launcher knows nothing of; returns its id when it is ACTIVE."""
        connection = self.connection
        wanted = network or next(iter(self.networks()), None)
        found = connection.network.find_network(wanted) if wanted else None
        server = connection.compute.create_server(
            name=name,
            image_id=connection.image.find_image(self.image()).id,
            flavor_id=connection.compute.find_flavor(self.flavor()).id,
            networks=[{"uuid": found.id}] if found else "auto",
            metadata=metadata,
        )
        connection.compute.wait_for_server(server, interval=0.5, wait=GONE_SECONDS)
        return str(server.id)

    def delete_server(self, server_id: str) -> None:
        """Deletes a server; does not wait for the end."""
        self.connection.compute.delete_server(server_id)

    # -- what is in it --

    def servers(self) -> list[Any]:
        """All servers of the project, with everything that is known of them."""
        return list(self.connection.compute.servers())

    def server_of(self, node_id: str) -> Any:
        """The one server of a node; waits for it. One of an attempt that failed may still be listed for a while."""
        return self.servers_of([node_id])[0]

    def servers_of(self, node_ids: Collection[str]) -> list[Any]:
        """The servers of nodes, one of each; waits until there are just these."""

        def found() -> list[Any]:
            servers = [server for server in self.servers() if server.metadata.get("nodepool_node_id") in node_ids]
            listed = sorted(server.metadata["nodepool_node_id"] for server in servers)
            assert listed == sorted(node_ids), f"servers of nodes {listed}"
            return servers

        return wait_for(f"one server of each of the nodes {sorted(node_ids)}", found, GONE_SECONDS)

    def contents(self) -> dict[str, set[str]]:
        """Ids of all that the project owns, by kind."""
        connection = self.connection
        project = connection.current_project_id
        ports = list(connection.network.ports(project_id=project))
        return {
            "servers": {server.id for server in connection.compute.servers(details=False)},
            "ports": {port.id for port in ports if not (port.device_owner or "").startswith("network:")},
            "floating IPs": {ip.id for ip in connection.network.ips(project_id=project)},
            "volumes": {volume.id for volume in connection.block_storage.volumes()} if self.has_volumes else set(),
            "images": {image.id for image in connection.image.images(owner=project)},
            "key pairs": {pair.name for pair in connection.compute.keypairs()},
        }

    def wait_only(self, before: Mapping[str, set[str]]) -> None:
        """Waits until the project holds nothing that it did not hold before."""

        def nothing_new() -> bool:
            now = self.contents()
            left = {kind: sorted(ids - before[kind]) for kind, ids in now.items() if ids - before[kind]}
            assert not left, f"left in cloud {self.name}: {left}"
            return True

        wait_for(f"nothing is left in cloud {self.name}", nothing_new, GONE_SECONDS)

    def remove_all_but(self, before: Mapping[str, set[str]]) -> None:
        """Deletes what the project did not hold before, and waits until it is gone."""
        connection = self.connection
        delete: dict[str, Callable[[str], Any]] = {
            "servers": connection.compute.delete_server,
            "floating IPs": connection.network.delete_ip,
            "ports": connection.network.delete_port,
            # Where there is no such service, even its name is an error.
            "volumes": lambda key: connection.block_storage.delete_volume(key),
            "images": connection.image.delete_image,
            "key pairs": connection.compute.delete_keypair,
        }
        now = self.contents()
        left = {kind: now[kind] - before[kind] for kind in delete if now[kind] - before[kind]}
        for kind, ids in left.items():
            for key in ids:
                delete[kind](key)
            self.wait_only({**self.contents(), kind: before[kind]})
