# SPDX-License-Identifier: Apache-2.0
"""Each way in which a connection to a real ZooKeeper fails is told with server, key and remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nodepool.exceptions import ZKConnectionError
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.connect_failure import TlsFiles
from tests.support.certificates import make_certificates
from tests.support.ports import free_ports
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer

Connect = Callable[..., str]


@pytest.fixture
def good(zookeeper: ZooKeeperServer) -> TlsFiles:
    files = zookeeper.certificates
    return TlsFiles(str(files.client_cert), str(files.client_key), str(files.ca))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    """Of a CA that the server does not know."""
    made = make_certificates(tmp_path_factory.mktemp("foreign"))
    return TlsFiles(str(made.client_cert), str(made.client_key), str(made.ca))


@pytest.fixture
def refusal() -> Iterator[Connect]:
    """Tries to connect until a cause is known for each server, and returns it. On a busy machine that takes longer."""
    clients: list[ZooKeeperClient] = []

    def connect(hosts: str, files: TlsFiles | None) -> str:
        tls = {f"tls_{name}": path for name, path in files._asdict().items()} if files else {}
        for seconds in (3.0, 10.0, 40.0):
            client = ZooKeeperClient(hosts, **tls)
            clients.append(client)
            with pytest.raises(ZKConnectionError) as caught:
                client.connect(timeout=seconds)
            assert client.trouble() == []
            if str(caught.value).count("(zookeeper-servers[") > hosts.count(","):
                break
        return str(caught.value)

    yield connect
    for client in clients:
        client.disconnect()


def test_nobody_listens(refusal: Connect, good: TlsFiles) -> None:
    (port,) = free_ports(1)
    text = refusal(f"127.0.0.1:{port}", good)
    assert text.startswith(f"no connection to ZooKeeper 127.0.0.1:{port} (zookeeper-servers[0]): connection refused")


def test_unknown_name(refusal: Connect, good: TlsFiles) -> None:
    text = refusal("nohost.invalid:2281", good)
    assert "ZooKeeper nohost.invalid:2281 (zookeeper-servers[0]): the name cannot be resolved" in text


def test_port_without_tls(refusal: Connect, good: TlsFiles, zookeeper: ZooKeeperServer) -> None:
    text = refusal(zookeeper.plain_hosts(), good)
    assert "does not speak TLS on this port" in text
    assert "zookeeper-servers[0].port" in text


def test_port_with_tls_and_no_tls_of_ours(refusal: Connect, zookeeper: ZooKeeperServer) -> None:
    assert "set zookeeper-tls: cert, key and ca" in refusal(zookeeper.tls_hosts(), None)


def test_other_ca(refusal: Connect, good: TlsFiles, foreign: TlsFiles, zookeeper: ZooKeeperServer) -> None:
    text = refusal(zookeeper.tls_hosts(), good._replace(ca=foreign.ca))
    assert "its certificate is not accepted" in text
    assert f"zookeeper-tls.ca ({foreign.ca})" in text


def test_certificate_of_another_ca(
    refusal: Connect, good: TlsFiles, foreign: TlsFiles, zookeeper: ZooKeeperServer
) -> None:
    text = refusal(zookeeper.tls_hosts(), foreign._replace(ca=good.ca))
    assert "it does not accept our certificate" in text
    assert f"zookeeper-tls.cert ({foreign.cert})" in text


def test_garbage_for_a_key(refusal: Connect, good: TlsFiles, zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.key"
    garbage.write_text("garbage\n", encoding="ascii")
    text = refusal(zookeeper.tls_hosts(), good._replace(key=str(garbage)))
    assert f"zookeeper-tls.key: {garbage} is no private key in PEM form" in text


def test_key_of_another_certificate(
    refusal: Connect, good: TlsFiles, foreign: TlsFiles, zookeeper: ZooKeeperServer
) -> None:
    text = refusal(zookeeper.tls_hosts(), good._replace(key=foreign.key))
    assert f"zookeeper-tls.key: {foreign.key} does not belong to the certificate {good.cert}" in text


def test_several_servers(refusal: Connect, good: TlsFiles, zookeeper: ZooKeeperServer) -> None:
    """Each has its own line."""
    (port,) = free_ports(1)
    lines = refusal(f"127.0.0.1:{port},{zookeeper.plain_hosts()}", good).splitlines()
    assert [line.partition("): ")[0].rpartition(" ")[2] for line in lines[1:]] == [
        "(zookeeper-servers[0]",
        "(zookeeper-servers[1]",
    ]


def test_daemon_may_ask_while_it_waits(good: TlsFiles, zookeeper: ZooKeeperServer) -> None:
    """The cause is there as long as there is no connection, and gone with it."""
    (port,) = free_ports(1)
    client = ZooKeeperClient(f"127.0.0.1:{port}", tls_cert=good.cert, tls_key=good.key, tls_ca=good.ca)
    assert client.trouble() == []
    with ThreadPoolExecutor(1) as daemon:
        connecting = daemon.submit(client.connect)
        wait_for("the attempt failed", lambda: any("connection refused" in text for text in client.trouble()))
        assert not client.hopeless
        client.reset_hosts(zookeeper.tls_hosts())
        connecting.result(30)
        assert client.trouble() == []
        client.disconnect()


def test_daemon_tells_it_while_it_waits(
    good: TlsFiles, zookeeper: ZooKeeperServer, caplog: pytest.LogCaptureFixture
) -> None:
    """J-4: once, with server and cause, and that it is over; Kazoo does not warn of each attempt."""
    caplog.set_level("INFO")
    (port,) = free_ports(1)
    client = ZooKeeperClient(f"127.0.0.1:{port}", tls_cert=good.cert, tls_key=good.key, tls_ca=good.ca)
    with ThreadPoolExecutor(1) as daemon:
        connecting = daemon.submit(client.connect)
        wait_for("it is told", lambda: "No connection to ZooKeeper" in caplog.text)
        client.look_after()
        client.reset_hosts(zookeeper.tls_hosts())
        connecting.result(30)
        client.look_after()
        client.disconnect()
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert warnings[0].startswith(
        f"No connection to ZooKeeper: ZooKeeper 127.0.0.1:{port} (zookeeper-servers[0]): connection refused"
    )
    assert re.search(r"ZooKeeper connected, after \d+ s without", caplog.text)
