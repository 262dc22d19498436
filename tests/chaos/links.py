# SPDX-License-Identifier: Apache-2.0
"""The network between one launcher and what it talks to.

A relay in the harness for each link, not a network namespace: it drops what a cut wire drops (data, the end of a
connection, new connections; see `TcpProxy.silence`) and delays what a slow wire delays, on any machine and for any
user. Network namespaces would need root, ``tc netem`` is missing in many kernels, and a launcher in a namespace could
not reach the servers of the simulated cloud, which have loopback addresses. All traffic stays on 127.0.0.1, and nothing
is left behind when a run is killed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.tcp_proxy import TcpProxy


class Links:
    """What one launcher has instead of the ports of ZooKeeper and the cloud.

    :param zookeeper_ports: TLS ports of the servers.
    :param cloud_url: the address of the simulator. It answers with links to the address that it was asked through.
    """

    def __init__(self, seed: str, zookeeper_ports: Sequence[int], cloud_url: str) -> None:
        cloud_port = urlsplit(cloud_url).port
        assert cloud_port is not None, cloud_url
        self._cloud_url = cloud_url
        self.zookeeper = [TcpProxy(port, seed=f"{seed} {number}") for number, port in enumerate(zookeeper_ports)]
        self.cloud = [TcpProxy(cloud_port, seed=f"{seed} cloud")]

    def start(self) -> None:
        for link in (*self.zookeeper, *self.cloud):
            link.start()

    def stop(self) -> None:
        """Closes all connections."""
        for link in (*self.zookeeper, *self.cloud):
            link.stop()

    @property
    def zookeeper_ports(self) -> list[int]:
        """Of this launcher's ends, on 127.0.0.1."""
        return [link.port for link in self.zookeeper]

    @property
    def cloud_url(self) -> str:
        """Of this launcher's end."""
        return f"http://127.0.0.1:{self.cloud[0].port}"

    def write_clouds(self, source: Path, target: Path) -> None:
        """Writes the clouds.yaml of this launcher, from the one that the simulator wrote."""
        text = source.read_text(encoding="utf-8")
        assert self._cloud_url in text, f"{source} does not name {self._cloud_url}"
        target.write_text(text.replace(self._cloud_url, self.cloud_url), encoding="utf-8")
