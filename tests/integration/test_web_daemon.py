# SPDX-License-Identifier: Apache-2.0
"""What a launcher serves, and the pages of ``nodepool-web``, each as a process; clients with many connections."""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx2 as httpx
import pytest

from nodepool.web.server import MOST_OF_DAEMON
from tests.support.certificates import make_certificates
from tests.support.cloud_site import CloudSite
from tests.support.kazoo_lock import Competitor
from tests.support.launcher_config import StaticProvider, static_hosts, write_config
from tests.support.openstack_place import Place
from tests.support.pool_znodes import PoolZnodes
from tests.support.serving_process import ServingProcess
from tests.support.tcp_proxy import TcpProxy
from tests.support.wait import wait_for
from tests.support.web_tokens import OPERATORS, SECTION, token
from tests.support.zookeeper import ZooKeeperServer

MODULES = ("nodepool.cmd.launcher", "nodepool.cmd.web")
JSON = {"Accept": "application/json"}


StartServing = Callable[[str], ServingProcess]


@pytest.fixture
def relay(zookeeper: ZooKeeperServer) -> Iterator[TcpProxy]:
    """On the way to ZooKeeper."""
    relay = TcpProxy(zookeeper.tls_port)
    relay.start()
    yield relay
    relay.stop()


@pytest.fixture
def settings() -> dict[str, Any]:
    """The section ``webapp``; a test may add to it before it starts anything."""
    return {"listen_address": "127.0.0.1", "port": 0}


@pytest.fixture
def start(
    tmp_path: Path, zookeeper: ZooKeeperServer, relay: TcpProxy, chroot: str, settings: dict[str, Any]
) -> Iterator[StartServing]:
    """Starts the daemon of a module, with one static host."""
    config = tmp_path / "nodepool.yaml"
    provider = StaticProvider(static_hosts(1))
    processes: list[ServingProcess] = []

    def start(module: str) -> ServingProcess:
        extra = {"webapp": settings}
        write_config(config, zookeeper, chroot, [provider], extra=extra, zookeeper_ports=[relay.port])
        processes.append(ServingProcess(module, config))
        processes[-1].start()
        return processes[-1]

    yield start
    for process in processes:
        process.stop()


@pytest.mark.parametrize("module", MODULES)
def test_serves_until_a_signal(start: StartServing, module: str) -> None:
    process = start(module)
    told = httpx.get(f"{process.wait_ready()}/health/status").json()
    assert told["kind"] == ("launcher" if module == MODULES[0] else "web")
    assert told["live"]
    # WP-70 and WP-77: what the process has itself, and what ZooKeeper has.
    metrics = httpx.get(f"{process.wait_ready()}/metrics").text
    assert f'nodepool_build_info{{kind="{told["kind"]}"' in metrics
    assert "nodepool_zookeeper_latency_seconds_count" in metrics
    assert 'nodepool_nodes{state="ready"}' in metrics
    process.send_signal(signal.SIGTERM)
    assert process.wait(45) == 0
    assert "Traceback" not in process.log_text()


def test_api_shows_what_zookeeper_has(start: StartServing) -> None:
    """WP-20: the node of the static host, its pool, and the launcher, in a process without drivers."""
    launcher, url = (start(module).wait_ready() for module in MODULES)

    def totals() -> list[int]:
        found = [httpx.get(f"{url}/api/v1/{path}").json() for path in ("nodes?state=ready", "providers", "launchers")]
        assert all(answer["complete"] for answer in found)
        return [answer["total"] for answer in found]

    wait_for("it shows all", lambda: totals() == [1, 1, 1])
    # A launcher has what 11.0.0 had, and no pages.
    assert [row["state"] for row in httpx.get(f"{launcher}/node-list", headers=JSON).json()] == ["ready"]
    for path in ("/", "/nodes", "/api/v1/nodes", "/login", "/static/live.js"):
        assert httpx.get(f"{launcher}{path}").status_code == 404


def test_history_survives_a_restart(start: StartServing, settings: dict[str, Any], tmp_path: Path) -> None:
    """WP-48: the samples of the process before are in the pictures of the next one."""
    settings["history"] = str(tmp_path / "history.sqlite")
    start(MODULES[0]).wait_ready()

    def times(url: str) -> list[int]:
        found = httpx.get(f"{url}/charts.json?range=1h").json()
        full = [at for at, nodes in zip(found["times"], found["providers"][0]["ready"], strict=True) if nodes == 1]
        return full if found["providers"][0]["limit"][-1:] == [1] else []

    process = start(MODULES[1])
    wait_for("a sample is taken of the static host and its slot", lambda: bool(times(process.wait_ready())))
    before = times(process.wait_ready())
    process.send_signal(signal.SIGTERM)
    assert process.wait(45) == 0
    # Its address is the first one there.
    (tmp_path / f"{MODULES[1]}.log").unlink()
    assert times(start(MODULES[1]).wait_ready())[: len(before)] == before


def test_login_is_required(start: StartServing, settings: dict[str, Any]) -> None:
    """WP-88: a launcher has no page to log in; it takes tokens."""
    settings["auth"] = {"authenticators": [SECTION], "require-login": True}
    url = start(MODULES[0]).wait_ready()
    assert httpx.get(f"{url}/ready").status_code == 200
    for path in ("/node-list", "/metrics"):
        refused = httpx.get(f"{url}{path}", headers={"Accept": "text/html"})
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert httpx.get(f"{url}{path}", headers={"Authorization": f"Bearer {token()}"}).status_code == 200


def test_zookeeper_goes(start: StartServing, relay: TcpProxy) -> None:
    """The pages stay, and tell; when it is back, so are they."""
    process = start(MODULES[1])
    url = process.wait_ready()
    relay.take_down()
    wait_for("it is not ready", lambda: httpx.get(f"{url}/health/ready").status_code == 503)
    assert httpx.get(f"{url}/health/live").status_code == 200
    relay.bring_up()
    wait_for("it is ready again", lambda: httpx.get(f"{url}/health/ready").status_code == 200)


@pytest.fixture
def guarded(start: StartServing, settings: dict[str, Any], znodes: PoolZnodes) -> Iterator[tuple[str, httpx.Client]]:
    """The address of pages that operators can change something with, and a client of an operator."""
    settings["auth"] = {"authenticators": [SECTION], "operators": [OPERATORS]}
    start(MODULES[0])
    with httpx.Client(headers={"Authorization": f"Bearer {token()}"}) as client:
        yield start(MODULES[1]).wait_ready(), client


def test_nodes_are_changed(guarded: tuple[str, httpx.Client], znodes: PoolZnodes, add_node: Callable[..., str]) -> None:
    """WP-95: as the commands do it; a node that somebody has the lock of is left alone."""
    url, client = guarded
    node_id = add_node(state="ready", provider="elsewhere", pool="main", type=["small"])
    answer = client.post(f"{url}/api/v1/nodes/{node_id}/hold", json={"reason": "look at it", "until": "8h"})
    assert (answer.status_code, answer.json()) == (200, {"id": node_id, "state": "hold"})
    held = znodes.node(node_id) or {}
    assert (held["state"], held["comment"], held["hold_by"]) == ("hold", "look at it", "alice (web)")
    assert 8 * 3600 - 60 < held["hold_expiration"] <= 8 * 3600
    lock = Competitor(znodes.kazoo).hold(f"/nodepool/nodes/{node_id}/lock")
    refused = client.post(f"{url}/api/v1/nodes/{node_id}/delete", json={"reason": "enough"})
    assert refused.status_code == 409
    assert "has its lock" in refused.json()["detail"]
    lock.release()
    assert client.post(f"{url}/api/v1/nodes/{node_id}/delete", json={"reason": "enough"}).status_code == 200
    assert client.post(f"{url}/api/v1/nodes/0000009999/hold", json={"reason": "r"}).status_code == 404


def test_maintenance(guarded: tuple[str, httpx.Client], znodes: PoolZnodes) -> None:
    """WP-96: a record as that of ``nodepool pause``; the page of the provider has it."""
    url, client = guarded
    wait_for("the pool is registered", znodes.pools)
    (pool,) = znodes.pools()
    subject = f"{url}/api/v1/maintenance/provider/{pool['provider_name']}"
    wait_for("the pages know it", lambda: client.get(f"{url}/providers/{pool['provider_name']}").status_code == 200)
    answer = client.put(subject, json={"reason": "upgrade", "until": "2h"})
    assert answer.status_code == 200, answer.text
    record = answer.json()
    assert (record["mode"], record["by"], record["reason"]) == ("pause", "alice (web)", "upgrade")
    wait_for("the page tells it", lambda: "upgrade" in client.get(f"{url}/providers/{pool['provider_name']}").text)
    assert client.delete(subject).status_code == 200
    assert client.delete(subject).status_code == 404
    assert client.put(f"{url}/api/v1/maintenance/provider/none", json={"reason": "r"}).status_code == 404


def test_stream_of_events(start: StartServing) -> None:
    """WP-60: a launcher comes, with its pool and its host's node."""
    url = start(MODULES[1]).wait_ready()
    missing = {"hello", "launchers", "providers", "nodes"}
    with httpx.Client(timeout=45) as client, client.stream("GET", f"{url}/api/v1/events/stream") as answer:
        for line in answer.iter_lines():
            name = line.removeprefix("event: ")
            if name == "hello":
                start(MODULES[0])
            missing.discard(name)
            if not missing:
                break
    assert not missing


# -- clients that hold a thousand connections of a launcher, while it makes servers in a cloud (WP-66)


HELD: Final = 1000
#: What a client sends that stops in the TLS handshake: the begin of a record of 512 bytes.
HELLO: Final = b"\x16\x03\x01\x02\x00\x01"
REQUESTS: Final = 40
#: Key of ``webapp.tls`` -> suffix of its file.
TLS_FILES: Final = (("cert", "pem"), ("key", "key"))
#: File descriptors that the launcher may have: fewer than there are connections.
MOST_FILES: Final = 400


@contextmanager
def held(port: int, sent: bytes) -> Iterator[None]:
    """So many connections of one client, each of which sends this and waits. One that is closed is opened again."""
    stop = threading.Event()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * HELD)), hard))
    there: list[socket.socket] = []
    filled = threading.Event()

    def connect() -> socket.socket:
        made = socket.create_connection(("127.0.0.1", port), 30)
        made.sendall(sent)
        return made

    def hold() -> None:
        while len(there) < HELD:
            there.append(connect())
        filled.set()
        poll = select.poll()
        for one in there:
            poll.register(one, select.POLLIN)
        by_number = {one.fileno(): number for number, one in enumerate(there)}
        while not stop.wait(0.02):
            for number, _ in poll.poll(0):
                poll.unregister(number)
                place = by_number.pop(number)
                there[place].close()
                there[place] = connect()
                by_number[there[place].fileno()] = place
                poll.register(there[place], select.POLLIN)

    thread = threading.Thread(target=hold, name="held connections")
    thread.start()
    try:
        assert filled.wait(60)
        yield
    finally:
        stop.set()
        thread.join()
        for one in there:
            one.close()


@pytest.mark.parametrize("sent", [b"", HELLO], ids=["they send nothing", "they stop in the TLS handshake"])
def test_launcher_serves_on(place: Place, site: CloudSite, sent: bytes) -> None:
    """Requests are served, no file is missing for cloud and ZooKeeper, and probes get their answers."""
    webapp: dict[str, Any] = {"listen_address": "127.0.0.1", "port": 0}
    if sent:
        make_certificates(site.directory / "tls")
        webapp["tls"] = {name: str(site.directory / "tls" / f"server.{suffix}") for name, suffix in TLS_FILES}
    # The image of the cloud alone is used.
    del place.section["diskimages"]
    config = site.directory / "nodepool.yaml"
    labels = [{"name": "small"}]
    extra = {"webapp": webapp, "labels": labels, "providers": [place.section]}
    write_config(config, site.zookeeper, site.chroot, [], extra=extra)
    launcher = ServingProcess("nodepool.cmd.launcher", config)
    launcher.start()
    try:
        url = httpx.URL(launcher.url)
        resource.prlimit(launcher.pid, resource.RLIMIT_NOFILE, (MOST_FILES, MOST_FILES))
        wait_for("the pool is registered", site.znodes.pools)
        with held(url.port or 0, sent):
            requests = [site.znodes.submit(["small"]) for _ in range(REQUESTS)]
            files = 0

            def served() -> bool:
                nonlocal files
                files = max(files, len(os.listdir(f"/proc/{launcher.pid}/fd")))
                assert httpx.get(f"{url}/health/live", verify=False, timeout=10).status_code == 200
                return all(site.znodes.request_state(one) == "fulfilled" for one in requests)

            wait_for("all are served", served)
            assert MOST_OF_DAEMON < files < MOST_FILES
        assert "Too many open files" not in launcher.log_text()
        assert "Traceback" not in launcher.log_text()
    finally:
        launcher.stop()
