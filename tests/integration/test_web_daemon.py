# SPDX-License-Identifier: Apache-2.0
"""The web pages of a launcher and of ``nodepool-web``, each as a process."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.support.launcher_config import StaticProvider, static_hosts, write_config
from tests.support.serving_process import ServingProcess
from tests.support.tcp_proxy import TcpProxy
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer

MODULES = ("nodepool.cmd.launcher", "nodepool.cmd.web")


StartServing = Callable[[str], ServingProcess]


@pytest.fixture
def relay(zookeeper: ZooKeeperServer) -> Iterator[TcpProxy]:
    """On the way to ZooKeeper."""
    relay = TcpProxy(zookeeper.tls_port)
    relay.start()
    yield relay
    relay.stop()


@pytest.fixture
def start(tmp_path: Path, zookeeper: ZooKeeperServer, relay: TcpProxy, chroot: str) -> Iterator[StartServing]:
    """Starts the daemon of a module, with one static host."""
    config = tmp_path / "nodepool.yaml"
    webapp = {"webapp": {"listen_address": "127.0.0.1", "port": 0}}
    provider = StaticProvider(static_hosts(1))
    write_config(config, zookeeper, chroot, [provider], extra=webapp, zookeeper_ports=[relay.port])
    processes: list[ServingProcess] = []

    def start(module: str) -> ServingProcess:
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
    process.send_signal(signal.SIGTERM)
    assert process.wait(45) == 0
    assert "Traceback" not in process.log_text()


def test_zookeeper_goes(start: StartServing, relay: TcpProxy) -> None:
    """The pages stay, and tell; when it is back, so are they."""
    process = start(MODULES[1])
    url = process.wait_ready()
    relay.take_down()
    wait_for("it is not ready", lambda: httpx.get(f"{url}/health/ready").status_code == 503)
    assert httpx.get(f"{url}/health/live").status_code == 200
    relay.bring_up()
    wait_for("it is ready again", lambda: httpx.get(f"{url}/health/ready").status_code == 200)
