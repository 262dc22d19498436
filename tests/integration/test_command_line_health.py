# SPDX-License-Identifier: Apache-2.0
"""``nodepool health`` with a real ZooKeeper and real daemons (reference/commands 2)."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import CommandLine
from tests.support.launcher_config import StaticProvider, static_hosts, write_config
from tests.support.ports import free_ports
from tests.support.serving_process import ServingProcess
from tests.support.zookeeper import ZooKeeperServer

Start = Callable[[str, dict[str, Any]], ServingProcess]


@pytest.fixture
def start(tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str, nodepool: CommandLine) -> Iterator[Start]:
    """Starts the daemon of a module with these settings of ``webapp``; the commands have the same configuration."""
    processes: list[ServingProcess] = []

    def start(module: str, webapp: dict[str, Any]) -> ServingProcess:
        write_config(nodepool.config, zookeeper, chroot, [StaticProvider(static_hosts(1))], extra={"webapp": webapp})
        processes.append(ServingProcess(module, nodepool.config))
        processes[-1].start()
        return processes[-1]

    yield start
    for process in processes:
        process.stop()


@pytest.mark.parametrize("kind", ["launcher", "web"])
def test_by_http(start: Start, nodepool: CommandLine, kind: str) -> None:
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}/health"
    process = start(f"nodepool.cmd.{kind}", {"listen_address": "127.0.0.1", "port": port})
    process.wait_ready()
    told = nodepool("health", f"--{kind}")
    assert (told.status, told.out) == (0, f"{kind}: {address}/ready: OK\n")
    process.stop()
    told = nodepool("health", f"--{kind}", "--live")
    assert told.status == 1
    assert told.out.startswith(f"{kind}: ")


def test_without_pages(start: Start, nodepool: CommandLine) -> None:
    """Any free port: the configuration does not tell which, and ZooKeeper does that there is a launcher."""
    process = start("nodepool.cmd.launcher", {"listen_address": "127.0.0.1", "port": 0})
    process.wait_ready()
    told = nodepool("health")
    assert (told.status, told.err) == (0, "")
    assert told.out == f"launcher: registered in ZooKeeper for {socket.gethostname()}\n"
