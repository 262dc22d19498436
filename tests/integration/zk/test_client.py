# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.client: TLS, several servers, chroot, state of the session, and why there is no connection."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from kazoo.protocol.serialization import GetChildren

from nodepool.cmd import tls
from nodepool.config.zookeeper import ZooKeeperServer as Server
from nodepool.config.zookeeper import connection_string
from nodepool.exceptions import ConfigError, ZKConnectionError, ZKException
from nodepool.model.node import Node
from nodepool.zk import transactions
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.connection import Reply, TlsFiles
from nodepool.zk.nodes import NodepoolCache
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.certificates import Certificates, make_certificates
from tests.support.pool_znodes import PoolZnodes
from tests.support.ports import free_ports
from tests.support.tables import rows
from tests.support.tcp_proxy import TcpProxy
from tests.support.wait import present, wait_for
from tests.support.zookeeper import ZooKeeperServer
from tests.support.zookeeper_ensemble import ZooKeeperEnsemble

MakeClient = Callable[..., ZooKeeperClient]
CutOff = Callable[[], AbstractContextManager[None]]
STATS = "/nodepool/elections/stats"


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
    with pytest.raises(ConfigError, match="same chroot, not /a, /b"):
        connection_string([Server("a", chroot="/a"), Server("zk"), Server("b", chroot="/b")])


def test_several_servers_and_a_chroot(
    make_client: MakeClient, zookeeper: ZooKeeperServer, chroot: str, znodes: PoolZnodes
) -> None:
    """Servers that are down do not matter, and all have the one chroot. It is made with its parents.

    A cache that was there before finds its records in it and nowhere else.
    """
    znodes.create_node(b'{"state": "ready"}')
    [dead] = free_ports(1)
    servers = [Server("127.0.0.1", port, f"{chroot}/deep/er") for port in (dead, zookeeper.tls_port, dead)]
    client = make_client(connection_string(servers), connect=False)
    cache = NodepoolCache(client)
    client.connect(30)
    assert (cache.wait_ready(30), cache.nodes.ids(), znodes.children("/deep")) == (True, [], ["er"])
    again = make_client(zookeeper.tls_hosts(f"{chroot}/deep/er"))
    again.kazoo.create("/nodepool/nodes/", b'{"state": "ready"}', sequence=True, makepath=True)
    wait_for("the node is known", lambda: cache.nodes.ids() == ["0000000000"])
    with pytest.raises(ZKException, match="chroot"):
        again.reset_hosts(zookeeper.tls_hosts("/elsewhere"))
    assert (again.hosts, again.connected) == (zookeeper.tls_hosts(f"{chroot}/deep/er"), True)


# -- why there is no connection: server, key and remedy


@pytest.fixture
def good(zookeeper: ZooKeeperServer) -> TlsFiles:
    made = zookeeper.certificates
    return TlsFiles(str(made.client_cert), str(made.client_key), str(made.ca))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    """Of a CA that the server does not know."""
    made = make_certificates(tmp_path_factory.mktemp("foreign"))
    return TlsFiles(str(made.client_cert), str(made.client_key), str(made.ca))


def refusal(hosts: str, files: TlsFiles | None) -> str:
    """Tries to connect until a cause is known for each server, and returns it. On a busy machine that takes longer."""
    tls_files = {f"tls_{name}": path for name, path in files._asdict().items()} if files else {}
    for seconds in (3.0, 10.0, 40.0):
        client = ZooKeeperClient(hosts, **tls_files)
        with pytest.raises(ZKConnectionError) as caught:
            client.connect(timeout=seconds)
        assert (client.trouble(), client.lost) == ([], True)
        if str(caught.value).count("(zookeeper-servers[") > hosts.count(","):
            break
    return str(caught.value)


@rows(__file__, "refusals")
def test_refusals(
    good: TlsFiles,
    foreign: TlsFiles,
    zookeeper: ZooKeeperServer,
    monkeypatch: pytest.MonkeyPatch,
    server: str,
    changed: list[str] | None,
    words: list[str],
) -> None:
    """``changed``: files of another CA; None = no TLS of ours. CAs of the system do not count."""
    # Where OpenSSL looks for the CAs of the system.
    monkeypatch.setenv("SSL_CERT_FILE", good.ca)
    (port,) = free_ports(1)
    for name, hosts in (
        ("dead", f"127.0.0.1:{port}"),
        ("plain", zookeeper.plain_hosts()),
        ("tls", zookeeper.tls_hosts()),
    ):
        server = server.replace(name, hosts)
    own = None if changed is None else good._replace(**{name: getattr(foreign, name) for name in changed})
    text = refusal(server, own)
    assert [word for word in words if word.format(server=server, files=own) not in text] == []


def test_files_that_cannot_be_used(good: TlsFiles, zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    garbage, missing = tmp_path / "garbage.key", str(tmp_path / "client.pem")
    garbage.write_text("garbage\n", encoding="ascii")
    text = refusal(zookeeper.tls_hosts(), good._replace(key=str(garbage)))
    assert f"zookeeper-tls.key: {garbage} is no private key in PEM form" in text
    assert f"there is no file {missing}" in refusal(zookeeper.tls_hosts(), good._replace(cert=missing))
    with pytest.raises(ZKConnectionError, match="needs cert, key and ca"):
        ZooKeeperClient("127.0.0.1:1", tls_ca="ca.pem").connect(1)


def test_daemon_that_waits_for_zookeeper(
    good: TlsFiles, zookeeper: ZooKeeperServer, caplog: pytest.LogCaptureFixture
) -> None:
    """J-4: the cause is known as long as there is no connection, and logged once; that it is over, too."""
    caplog.set_level("INFO")
    (port,) = free_ports(1)
    client = ZooKeeperClient(f"127.0.0.1:{port}", tls_cert=good.cert, tls_key=good.key, tls_ca=good.ca)
    assert client.trouble() == []
    with ThreadPoolExecutor(1) as daemon:
        connecting = daemon.submit(client.connect)
        wait_for("the attempt failed", lambda: any("connection refused" in text for text in client.trouble()))
        wait_for("it is logged", lambda: "No connection to ZooKeeper" in caplog.text)
        assert not client.hopeless
        client.look_after()
        client.reset_hosts(zookeeper.tls_hosts())
        connecting.result(30)
        assert (client.trouble(), client.connected) == ([], True)
        client.look_after()
        client.disconnect()
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    begin = f"No connection to ZooKeeper: ZooKeeper 127.0.0.1:{port} (zookeeper-servers[0]): connection refused"
    assert [line.startswith(begin) for line in warnings] == [True]
    assert re.search(r"ZooKeeper connected, after \d+ s without", caplog.text)


# -- coming and going


def test_disconnect_ends_the_wait() -> None:
    [port] = free_ports(1)
    client = ZooKeeperClient(f"127.0.0.1:{port}")
    with ThreadPoolExecutor(1) as pool:
        connecting = pool.submit(client.connect)
        wait_for("the client tries", client.trouble)
        client.disconnect()
        with pytest.raises(ZKConnectionError):
            connecting.result(30)


def test_not_connected() -> None:
    client = ZooKeeperClient("127.0.0.1:1")
    assert (client.connected, client.suspended, client.lost) == (False, False, True)
    with pytest.raises(ZKConnectionError):
        _ = client.kazoo
    client.reset_hosts("127.0.0.1:2")
    for _ in range(2):
        client.disconnect()


def test_states_and_listeners(
    shaky: ZooKeeperClient, cut_off: CutOff, proxy: TcpProxy, caplog: pytest.LogCaptureFixture
) -> None:
    """A lost connection is no lost session; a listener that raises does not keep others from hearing of it."""
    states: list[str] = []

    def broken(state: str) -> None:
        raise KeyError(state)

    shaky.add_session_listener(broken)
    shaky.add_session_listener(states.append)
    session = shaky.kazoo.client_id
    shaky.kazoo.create("/a", b"1")
    with ThreadPoolExecutor(1) as pool:
        with cut_off():
            assert (shaky.connected, shaky.wait_connected(0.01)) == (False, False)
            reading = pool.submit(shaky.kazoo.retry, shaky.kazoo.get, "/a")
        assert reading.result(30)[0] == b"1", "calls wait for the connection"
    wait_for("all are told", lambda: states == ["suspended", "connected"])
    assert (shaky.session_epoch, shaky.kazoo.client_id) == (0, session)
    assert "Error in a session listener" in caplog.text


def test_lost_session(client: ZooKeeperClient, lose_session: Callable[..., None]) -> None:
    """A new session begins by itself, and owners of locks can tell."""
    states: list[str] = []
    client.add_session_listener(states.append)
    old = client.kazoo.client_id
    lose_session(client)
    wait_for("it is told", lambda: states[-1:] == ["connected"] and "lost" in states)
    assert (client.session_epoch, client.kazoo.client_id == old) == (1, False)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_connection_thread_that_ends(
    client: ZooKeeperClient,
    cache: NodepoolCache,
    znodes: PoolZnodes,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever ended it, the main thread of a daemon connects anew: what was locked is lost, caches follow again."""
    lock = transactions.acquire(client, STATS)

    def broken(*_: Any) -> Any:
        monkeypatch.undo()
        raise SystemExit

    # Kazoo's own: nothing of ours lets such an error through.
    monkeypatch.setattr(client.kazoo._connection, "_read_response", broken)  # noqa: SLF001
    with pytest.raises(ZKConnectionError):
        transactions.contenders(client, STATS)
    assert not client.connected
    client.look_after()
    assert client.wait_connected(30)
    assert "The thread of the ZooKeeper connection has ended, connecting anew" in caplog.text
    assert client.session_epoch == lock.epoch + 1
    node_id = znodes.add_node("ready", type=["small"])
    wait_for("the cache knows the node", lambda: cache.nodes.get(node_id) is not None)
    client.look_after()
    assert client.session_epoch == lock.epoch + 1


def test_answer_that_makes_no_sense(client: ZooKeeperClient, cache: NodepoolCache, znodes: PoolZnodes) -> None:
    """The caller gets the error; in the same session there is a new connection, with which the caches are read anew."""
    lost: list[str] = []

    class Odd(GetChildren):  # type: ignore[misc]
        @classmethod
        def deserialize(cls, data: bytes, offset: int) -> Any:
            raise ValueError("nonsense")

    client.add_session_listener(lost.append)
    reply = Reply()
    client.kazoo.call(Odd("/", None), reply)
    with pytest.raises(ValueError, match="nonsense"):
        reply.get(30)
    wait_for("the connection is another one", lambda: {"suspended", "connected"} <= {*lost})
    node_id = znodes.add_node("ready", type=["small"])
    wait_for("the cache knows the node", lambda: cache.nodes.get(node_id) is not None)
    assert client.session_epoch == 0


def test_other_hosts(shaky: ZooKeeperClient, proxy: TcpProxy, zookeeper: ZooKeeperServer, chroot: str) -> None:
    """G-13: the next connection goes to the new servers; the session stays."""
    session = shaky.kazoo.client_id
    shaky.reset_hosts(zookeeper.tls_hosts(chroot))
    proxy.take_down()
    wait_for("the loss is seen", lambda: not shaky.connected or shaky.kazoo.last_zxid)
    assert shaky.wait_connected(30)
    wait_for("it is usable", lambda: shaky.kazoo.retry(shaky.kazoo.exists, "/") is not None)
    assert shaky.kazoo.client_id == session


def test_disconnect_removes_what_is_ephemeral(make_client: MakeClient, znodes: PoolZnodes) -> None:
    client = make_client()
    client.kazoo.create("/mine", ephemeral=True)
    client.disconnect()
    wait_for("the session ended", lambda: znodes.children("/") == [])
    before = threading.active_count()
    client.disconnect()
    assert threading.active_count() == before


def test_connection_that_ends_while_it_comes_back(make_client: MakeClient, caplog: pytest.LogCaptureFixture) -> None:
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


# -- three servers: a client goes on while most of them live, and waits while they do not


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    found = ZooKeeperEnsemble(tmp_path_factory.mktemp("ensemble"), links=True)
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.fixture
def connect(ensemble: ZooKeeperEnsemble) -> Iterator[Callable[[str, float], ZooKeeperClient]]:
    """Connects to these servers, with a session that lives for so many seconds."""
    # All serve, whatever the test before has done to them.
    ensemble.start()
    made = []

    def connect(hosts: str, timeout: float) -> ZooKeeperClient:
        client = ZooKeeperClient(hosts, timeout=timeout, **ensemble.certificates.options())
        made.append(client)
        client.connect(60)
        return client

    yield connect
    for client in made:
        client.disconnect()


def test_leader_and_quorum_lost(ensemble: ZooKeeperEnsemble, connect: Callable[[str, float], ZooKeeperClient]) -> None:
    """F-3: the session, its locks and what the cache knows survive the leader; without a quorum calls wait."""
    client = connect(ensemble.tls_hosts(), 60.0)
    cache = NodepoolCache(client)
    assert cache.wait_ready(60)
    zk = ZooKeeper(client, cache)
    node = Node("small")
    zk.storeNode(node)
    node.state = "building"
    zk.nodes.lock_and_save(node)

    leader = present(ensemble.leader())
    ensemble.servers[leader].kill()
    zk.storeNode(node)
    wait_for("two of them are enough", ensemble.serves)
    assert client.session_epoch == 0
    wait_for("the others have a leader", lambda: ensemble.leader() not in (None, leader))

    ensemble.servers[present(ensemble.leader())].kill()
    wait_for("the one that is left serves nobody", lambda: not ensemble.modes() and not client.connected)
    assert not ensemble.serves()
    ensemble.start()
    zk.deleteNode(node)
    assert client.session_epoch == 0
    wait_for("the cache knows", lambda: cache.ready and cache.nodes.get(node.key) is None)


def test_server_that_the_leader_has_lost(
    ensemble: ZooKeeperEnsemble, connect: Callable[[str, float], ZooKeeperClient]
) -> None:
    """A server answers pings after the leader has ended the session: they prove nothing."""
    leader = present(ensemble.leader())
    follower = (leader + 1) % len(ensemble.servers)
    client = connect(ensemble.servers[follower].tls_hosts(), 1.5)
    client.kazoo.create("/alive", ephemeral=True)
    others = PoolZnodes(ensemble.servers[leader].plain_hosts())
    others.start()
    try:
        wait_for("the session is certain", lambda: client.session_is_certain(client.session_epoch))
        ensemble.links[follower, leader].silence()
        epoch = client.session_epoch
        wait_for("the leader has ended the session", lambda: not others.kazoo.exists("/alive"))
        assert not client.session_is_certain(epoch)
    finally:
        others.stop()
        ensemble.links[follower, leader].resume()


# -- the certificates of ``nodepool-tls``: at first, renewed, and of a new authority


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
