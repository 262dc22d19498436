# SPDX-License-Identifier: Apache-2.0
"""How soon a client finds a server again: its session must not be over before (F-1)."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.wire.threading_handler import TlsHandler
from tests.support.ports import free_ports
from tests.support.zookeeper import ZooKeeperServer

MakeClient = Callable[..., ZooKeeperClient]


def test_each_server_has_its_share_of_the_time(make_client: MakeClient, zookeeper: ZooKeeperServer) -> None:
    """One that is silent must not use up the time in which another one could be found."""
    ports = free_ports(2)
    client = make_client(",".join([zookeeper.tls_hosts(), *(f"127.0.0.1:{port}" for port in ports)]))
    assert client.kazoo.handler.servers == 3


@pytest.mark.parametrize("tls", [True, False])
def test_a_silent_server_takes_no_longer_than_its_share(zookeeper: ZooKeeperServer, tls: bool) -> None:
    """Without it the attempt would take so long that the test is ended."""
    handler = TlsHandler()
    handler.servers = 100_000
    files = zookeeper.certificates
    options = {
        "use_ssl": tls,
        "ca": str(files.ca),
        "certfile": str(files.client_cert),
        "keyfile": str(files.client_key),
    }
    with ExitStack() as opened:
        # The kernel drops the first packet of a connection to a full backlog.
        silent = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        filler = opened.enter_context(socket.socket())
        filler.setblocking(False)
        filler.connect_ex(silent.getsockname())
        with pytest.raises(TimeoutError):
            handler.create_connection(silent.getsockname(), timeout=30_000.0, **options)
