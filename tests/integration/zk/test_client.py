# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.client: TLS, several servers, chroot, state of the session."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nodepool.exceptions import ConfigError, ZKConnectionError, ZKException
from nodepool.zk import locks
from nodepool.zk.caches import NodepoolCache
from nodepool.zk.client import ZooKeeperClient, connection_string
from tests.support.certificates import Certificates, make_certificates
from tests.support.pool_znodes import PoolZnodes
from tests.support.ports import free_ports
from tests.support.session_loss import expire_session
from tests.support.tcp_proxy import TcpProxy
from tests.support.wait import DEADLINE_SECONDS, wait_for
from tests.support.zookeeper import ZooKeeperServer

MakeClient = Callable[..., ZooKeeperClient]


@dataclass
class Server:
    host: str
    port: int = 2281
    chroot: str | None = None


# -- servers and chroot


@pytest.mark.parametrize(
    ("servers", "text"),
    [
        ([Server("zk")], "zk:2281"),
        ([Server("zk", 2181, "/np")], "zk:2181/np"),
        ([Server("::1"), Server("[fe80::1]", 1)], "[::1]:2281,[fe80::1]:1"),
        ([Server("a", 1, "/np"), Server("b", 2, "/np")], "a:1,b:2/np"),
        ([Server("a", 1), Server("b", 2, "/np/deep")], "a:1,b:2/np/deep"),
        ([Server("a", 1, "np/"), Server("b", 2, "/")], "a:1,b:2/np"),
    ],
)
def test_connection_string(servers: list[Server], text: str) -> None:
    assert connection_string(servers) == text


def test_different_chroots() -> None:
    with pytest.raises(ConfigError, match="same chroot, not /a, /b"):
        connection_string([Server("a", chroot="/a"), Server("b", chroot="/b")])


def test_chroot_with_several_servers(
    make_client: MakeClient, zookeeper: ZooKeeperServer, chroot: str, znodes: PoolZnodes
) -> None:
    """The servers that are down do not matter, and all have the one chroot."""
    [dead] = free_ports(1)
    servers = [Server("127.0.0.1", port, chroot) for port in (dead, zookeeper.tls_port, dead)]
    client = make_client(connection_string(servers))
    client.kazoo.create("/here")
    assert znodes.children("/") == ["here"]


def test_chroot_is_made(make_client: MakeClient, zookeeper: ZooKeeperServer, chroot: str, znodes: PoolZnodes) -> None:
    """With parents, and a cache that was there before finds its records in it and nowhere else."""
    znodes.create_node(b'{"state": "ready"}')
    hosts = zookeeper.tls_hosts(f"{chroot}/deep/er")
    client = make_client(hosts, connect=False)
    cache = NodepoolCache(client)
    client.connect(30)
    assert cache.wait_ready(30)
    assert cache.nodes.ids() == []
    assert znodes.children("/deep") == ["er"]
    again = make_client(hosts)
    again.kazoo.create("/nodepool/nodes/", b'{"state": "ready"}', sequence=True, makepath=True)
    wait_for("the node is known", lambda: cache.nodes.ids() == ["0000000000"])


# -- TLS


def tls_client(zookeeper: ZooKeeperServer, own: Certificates, ca: Certificates) -> ZooKeeperClient:
    """A client with a certificate of ``own`` that trusts servers of ``ca``."""
    return ZooKeeperClient(
        zookeeper.tls_hosts(), tls_cert=str(own.client_cert), tls_key=str(own.client_key), tls_ca=str(ca.ca)
    )


def test_wrong_ca_is_refused(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    """A server whose certificate our CA did not sign gets nothing from us."""
    good, foreign = zookeeper.certificates, make_certificates(tmp_path)
    client = tls_client(zookeeper, good, foreign)
    with pytest.raises(ZKConnectionError, match="zookeeper-tls"):
        client.connect(DEADLINE_SECONDS)


def test_cas_of_the_system_do_not_count(
    tmp_path: Path, zookeeper: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate of a public CA does not make a ZooKeeper: only the CA that is configured does."""
    good, foreign = zookeeper.certificates, make_certificates(tmp_path)
    # Where OpenSSL looks for the CAs of the system.
    monkeypatch.setenv("SSL_CERT_FILE", str(good.ca))
    client = tls_client(zookeeper, good, foreign)
    with pytest.raises(ZKConnectionError, match="zookeeper-tls"):
        client.connect(DEADLINE_SECONDS)


def test_wrong_client_certificate_is_refused(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    good, foreign = zookeeper.certificates, make_certificates(tmp_path)
    client = tls_client(zookeeper, foreign, good)
    with pytest.raises(ZKConnectionError):
        client.connect(timeout=1)


def test_missing_file(tmp_path: Path) -> None:
    missing = str(tmp_path / "client.pem")
    client = ZooKeeperClient("127.0.0.1:1", tls_cert=missing, tls_key=missing, tls_ca=missing)
    with pytest.raises(FileNotFoundError, match=r"client\.pem"):
        client.connect(1)


def test_half_of_tls() -> None:
    with pytest.raises(ZKConnectionError, match="needs cert, key and ca"):
        ZooKeeperClient("127.0.0.1:1", tls_ca="ca.pem").connect(1)


# -- coming and going


def test_client_that_is_there_before_zookeeper(
    make_client: MakeClient, zookeeper: ZooKeeperServer, chroot: str
) -> None:
    [port] = free_ports(1)
    client = make_client(f"127.0.0.1:{port}{chroot}", connect=False)
    with ThreadPoolExecutor(1) as pool:
        connecting = pool.submit(client.connect)
        proxy = TcpProxy(zookeeper.tls_port, port)
        try:
            proxy.start()
            connecting.result(30)
            assert client.connected
        finally:
            client.disconnect()
            proxy.stop()


def test_disconnect_ends_the_wait(make_client: MakeClient) -> None:
    [port] = free_ports(1)
    client = make_client(f"127.0.0.1:{port}", connect=False)
    with ThreadPoolExecutor(1) as pool:
        connecting = pool.submit(client.connect)
        wait_for("the client tries", lambda: client._client is not None)
        client.disconnect()
        with pytest.raises(ZKConnectionError):
            connecting.result(30)


def test_nobody_answers() -> None:
    [port] = free_ports(1)
    client = ZooKeeperClient(f"127.0.0.1:{port}")
    with pytest.raises(ZKConnectionError, match=f"127.0.0.1:{port}"):
        client.connect(timeout=0.2)
    assert client.lost


def test_not_connected() -> None:
    client = ZooKeeperClient("127.0.0.1:1")
    assert (client.connected, client.suspended, client.lost) == (False, False, True)
    with pytest.raises(ZKConnectionError):
        _ = client.kazoo
    client.reset_hosts("127.0.0.1:2")
    client.disconnect()
    client.disconnect()


def test_states_and_listeners(shaky: ZooKeeperClient, proxy: TcpProxy, caplog: pytest.LogCaptureFixture) -> None:
    """A lost connection is no lost session; a listener that raises does not keep others from hearing of it."""
    states: list[str] = []

    def broken(state: str) -> None:
        raise KeyError(state)

    shaky.add_session_listener(broken)
    shaky.add_session_listener(states.append)
    session = shaky.kazoo.client_id
    proxy.take_down()
    wait_for("the loss is seen", lambda: shaky.suspended)
    assert not shaky.connected
    assert not shaky.wait_connected(0.01)
    proxy.bring_up()
    assert shaky.wait_connected(30)
    wait_for("all are told", lambda: states == ["suspended", "connected"])
    assert (shaky.session_epoch, shaky.kazoo.client_id) == (0, session)
    assert "Error in a session listener" in caplog.text


def test_lost_session(client: ZooKeeperClient, zookeeper: ZooKeeperServer) -> None:
    """A new session begins by itself, and owners of locks can tell."""
    states: list[str] = []
    client.add_session_listener(states.append)
    old = client.kazoo.client_id
    expire_session(zookeeper.plain_hosts(), old)
    wait_for("there is a new session", lambda: states[-1:] == ["connected"] and "lost" in states)
    assert client.session_epoch == 1
    assert client.kazoo.client_id != old


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_connection_thread_that_ends(
    client: ZooKeeperClient,
    cache: NodepoolCache,
    znodes: PoolZnodes,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever ended it, the main thread of a daemon connects anew: what was locked is lost, caches follow again."""
    lock = locks.acquire(client, "/nodepool/elections/stats")

    def broken(*_: Any) -> Any:
        monkeypatch.undo()
        raise SystemExit

    monkeypatch.setattr(client.kazoo._connection, "_handle", broken)
    with pytest.raises(ZKConnectionError):
        locks.contenders(client, "/nodepool/elections/stats")
    assert not client.connected
    client.look_after()
    assert client.wait_connected(30)
    assert "The thread of the ZooKeeper connection has ended, connecting anew" in caplog.text
    assert client.session_epoch == lock.epoch + 1
    node_id = znodes.add_node("ready", type=["small"])
    wait_for("the cache knows the node", lambda: cache.nodes.get(node_id) is not None)
    client.look_after()
    assert client.session_epoch == lock.epoch + 1


def test_calls_wait_for_the_connection(shaky: ZooKeeperClient, proxy: TcpProxy) -> None:
    shaky.kazoo.create("/a", b"1")
    proxy.take_down()
    wait_for("the loss is seen", lambda: shaky.suspended)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(shaky.kazoo.retry, shaky.kazoo.get, "/a")
        proxy.bring_up()
        assert reading.result(30)[0] == b"1"


def test_other_hosts(shaky: ZooKeeperClient, proxy: TcpProxy, zookeeper: ZooKeeperServer, chroot: str) -> None:
    """G-13: the next connection goes to the new servers; the session stays."""
    session = shaky.kazoo.client_id
    shaky.reset_hosts(zookeeper.tls_hosts(chroot))
    proxy.take_down()
    wait_for("the loss is seen", lambda: not shaky.connected or shaky.kazoo.last_zxid)
    assert shaky.wait_connected(30)
    wait_for("it is usable", lambda: shaky.kazoo.retry(shaky.kazoo.exists, "/") is not None)
    assert shaky.kazoo.client_id == session


def test_other_chroot(client: ZooKeeperClient, zookeeper: ZooKeeperServer) -> None:
    hosts = client.hosts
    with pytest.raises(ZKException, match="chroot"):
        client.reset_hosts(zookeeper.tls_hosts("/elsewhere"))
    assert client.hosts == hosts
    assert client.connected


def test_disconnect_removes_what_is_ephemeral(make_client: MakeClient, znodes: PoolZnodes) -> None:
    client = make_client()
    client.kazoo.create("/mine", ephemeral=True)
    client.disconnect()
    wait_for("the session ended", lambda: znodes.children("/") == [])
    before = threading.active_count()
    client.disconnect()
    assert threading.active_count() == before


# -- calls from callbacks


def test_connection_that_somebody_ends_while_it_comes_back(
    make_client: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    """A listener that would ask something then has made no mistake: no traceback."""
    client = make_client(connect=False)

    def late(state: str) -> None:
        raise ZKConnectionError("not connected to ZooKeeper")

    states: list[str] = []
    client.add_session_listener(late)
    client.add_session_listener(states.append)
    client.connect(30)
    wait_for("the others hear of it", lambda: states == ["connected"])
    assert [record for record in caplog.records if record.exc_info] == []
