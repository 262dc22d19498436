# SPDX-License-Identifier: Apache-2.0
"""The certificates of ``nodepool-tls`` with a real ZooKeeper: at first, renewed, and of a new authority."""

from __future__ import annotations

from pathlib import Path

from nodepool.cmd import tls
from nodepool.exceptions import ZKException
from nodepool.zk.client import ZooKeeperClient
from tests.support.certificates import Certificates
from tests.support.zookeeper import ZooKeeperServer


def files(place: Path, client: str = "nodepool") -> Certificates:
    clients = place / "clients"
    server = place / "servers" / "localhost.pem"
    return Certificates(place / "ca.pem", clients / f"{client}.pem", clients / f"{client}.key", server)


def make(place: Path, *commands: list[str]) -> None:
    for command in commands:
        assert tls.main(["-d", str(place), *command]) == 0


def connects(server: ZooKeeperServer, made: Certificates) -> bool:
    client = ZooKeeperClient(server.tls_hosts(), **made.options())
    try:
        client.connect(20)
    except ZKException:
        return False
    finally:
        client.disconnect()
    return True


def test_server_and_clients(tmp_path: Path) -> None:
    """Each of them is trusted; one of another authority is not."""
    place = tmp_path / "zk-tls"
    make(place, ["init"], ["server", "localhost", "127.0.0.1"], ["client", "nodepool"], ["client", "zuul"])
    server = ZooKeeperServer(tmp_path / "zookeeper", certificates=files(place))
    server.start()
    try:
        assert connects(server, files(place))
        assert connects(server, files(place, "zuul"))
        make(place, ["renew", "--all"])
        assert connects(server, files(place))
        old = tmp_path / "old"
        old.mkdir()
        for name in ("nodepool.pem", "nodepool.key"):
            (old / name).write_bytes((place / "clients" / name).read_bytes())
        before = Certificates(place / "ca.pem", old / "nodepool.pem", old / "nodepool.key", place)
        second = tmp_path / "second"
        make(second, ["init", "--name", "second"])
        (place / "ca.pem").write_bytes((second / "ca.pem").read_bytes() + (place / "ca.pem").read_bytes())
        (second / "ca.key").rename(place / "ca.key")
        make(place, ["renew"])
        # The server trusts both after its restart: the old client goes on, and the new one begins.
        server.stop()
        server.start()
        assert connects(server, files(place))
        assert connects(server, before)
    finally:
        server.stop()
