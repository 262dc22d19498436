# SPDX-License-Identifier: Apache-2.0
"""openstacksdk connected to the simulator, and short cuts for what tests do with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from openstack.config import OpenStackConfig
from openstack.connection import Connection

from simulators.openstack import CLOUD_NAME, OpenStackSimulator
from tests.support.wait import wait_for


@contextmanager
def connected(simulator: OpenStackSimulator, directory: Path, **settings: object) -> Iterator[Connection]:
    """A connection to the running simulator, made from a clouds.yaml in ``directory`` and closed at the end."""
    file = simulator.write_clouds_yaml(directory / "clouds.yaml", CLOUD_NAME, **settings)
    config = OpenStackConfig(config_files=[str(file)], secure_files=[], load_envvars=False)
    connection = Connection(config=config.get_one(CLOUD_NAME))
    try:
        yield connection
    finally:
        connection.close()
        # keystoneauth leaves the sessions' sockets to the garbage collector.
        connection.session.session.close()


class SimulatedCloud:
    """The simulator and a connection to it."""

    def __init__(self, simulator: OpenStackSimulator, connection: Connection) -> None:
        self.simulator = simulator
        #: Its type hints make of every answer a union that tests would have to take apart.
        self.connection: Any = connection

    def create(self, name: str = "np1", network: str = "provider", **arguments: Any) -> Any:
        """Creates a server without waiting for it."""
        arguments = {"flavor": "small", "image": "cloud-image"} | arguments
        return self.connection.create_server(name, network=network, auto_ip=False, wait=False, **arguments)

    def server(self, key: str) -> Any:
        """The server as the cloud has it now, None when it is gone."""
        return next((server for server in self.connection.compute.servers() if server.id == key), None)

    def reaches(self, key: str, status: str) -> Any:
        """Waits until the server has this status and returns it, with its fault."""

        def look() -> bool:
            server = self.server(key)
            return server is not None and server.status == status

        wait_for(f"server {key} is {status}", look)
        return self.connection.compute.get_server(key)

    def active(self, name: str = "np1", network: str = "provider", **arguments: Any) -> Any:
        """Creates a server and waits until it is ACTIVE."""
        return self.reaches(self.create(name, network, **arguments).id, "ACTIVE")

    def delete(self, key: str) -> None:
        """Deletes a server and waits until it is gone."""
        self.connection.compute.delete_server(key)
        wait_for(f"server {key} is gone", lambda: self.server(key) is None)

    def contents(self) -> dict[str, int]:
        """How many servers, ports, ... there are, without asking the API."""
        with self.simulator.cloud() as cloud:
            return cloud.contents()

    def calls(self) -> dict[str, int]:
        """Calls by operation."""
        calls: dict[str, int] = self.simulator.state()["calls"]
        return calls
