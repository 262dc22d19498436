# SPDX-License-Identifier: Apache-2.0
"""Commands that wait for something, follow it, or are interrupted, with a real ZooKeeper (reference/commands 2)."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import CommandLine
from tests.support.image_znodes import IMAGES, ImageZnodes
from tests.support.pool_znodes import PoolZnodes
from tests.support.ports import free_ports
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer

#: Ids of builds.
A, B = (letter * 32 for letter in "ab")


class Waiting:
    """A command that runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def line(self) -> str:
        """The next line of its answer. Blocks."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def ends(self, number: int | None = None) -> tuple[int, str, str]:
        """Its status and what it says after this signal, or by itself. Blocks."""
        if number is not None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@pytest.fixture
def start(nodepool: CommandLine) -> Iterator[Callable[..., Waiting]]:
    """Starts commands; in the end none is left."""
    started: list[Waiting] = []

    def start(*arguments: str, of: CommandLine = nodepool) -> Waiting:
        started.append(Waiting(of.start(*arguments)))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.communicate()


@pytest.fixture
def images(znodes: PoolZnodes, nodepool: CommandLine) -> ImageZnodes:
    """An image ``debian``, and a builder."""
    with nodepool.config.open("a", encoding="utf-8") as file:
        file.write(f"\ndiskimages: [{{name: debian, formats: [raw]}}]\nbuild-log-dir: {nodepool.config.parent}\n")
    znodes.add_builder()
    return znodes


def test_build(start: Callable[..., Waiting], images: ImageZnodes) -> None:
    """--wait: ends when the build does; a line for each 10%."""
    images.add_build("debian", A)
    waiting = start("image-build", "debian", "--wait")
    wait_for("the request", lambda: images.kazoo.exists(f"{IMAGES}/debian/request-build"))
    assert waiting.line() == "debian: waiting for a builder\n"
    images.tell(builds={f"debian/{B}": {"step": "install", "estimate": 100000}})
    images.add_build("debian", B, state="building")
    assert waiting.line().startswith(f"debian-{B}:   0% install 1 min of about ")
    images.add_build("debian", B)
    assert waiting.ends() == (0, f"Build debian-{B} is ready\n", "")


def test_build_that_fails(start: Callable[..., Waiting], images: ImageZnodes) -> None:
    waiting = start("image-build", "debian", "--wait")
    wait_for("the request", lambda: images.kazoo.exists(f"{IMAGES}/debian/request-build"))
    images.add_build("debian", A, state="failed")
    status, _, err = waiting.ends()
    assert (status, err) == (1, f"Build debian-{A} has failed; its log is on b.example\n")


def test_log_of_a_build(start: Callable[..., Waiting], images: ImageZnodes, nodepool: CommandLine) -> None:
    """--follow: ends when the build has ended, with all that was written."""
    path: Path = nodepool.config.parent / f"debian-{B}.log"
    path.write_text("begin\n", encoding="utf-8")
    images.add_build("debian", B, state="building")
    waiting = start("image-log", "debian", "--follow")
    assert waiting.line() == "begin\n"
    with path.open("a", encoding="utf-8", buffering=1) as log:
        log.write("more\n")
        assert waiting.line() == "more\n"
        log.write("the end\n")
    images.add_build("debian", B)
    assert waiting.ends() == (0, "the end\n", "")


def test_deletion(start: Callable[..., Waiting], add_node: Callable[..., str], znodes: PoolZnodes) -> None:
    component = {"kind": "pool", "id": "p1", "hostname": "l1", "provider_name": "lab", "name": "main"}
    path = "/nodepool/components/pool/l1"
    znodes.kazoo.create(path, json.dumps(component).encode(), ephemeral=True, makepath=True)
    node_id = add_node()
    waiting = start("delete", node_id, "--wait")
    assert waiting.process.stderr is not None
    assert waiting.process.stderr.readline().startswith(f"node {node_id}: deleting")
    assert waiting.process.poll() is None
    wait_for("its lock is free", lambda: znodes.node_lockers(node_id) == [])
    znodes.kazoo.delete(f"/nodepool/nodes/{node_id}", recursive=True)
    status, out, _ = waiting.ends()
    assert (status, "| Provider |" in out, node_id in out) == (0, True, False)


@pytest.mark.parametrize("command", ["list", "request-list"])
def test_watch(nodepool: CommandLine, add_node: Callable[..., str], znodes: PoolZnodes, command: str) -> None:
    """A terminal is drawn again when something changes; Ctrl-C is the end that was asked for. Elsewhere: refused."""

    def add() -> str:
        return add_node() if command == "list" else znodes.submit(["small"])

    first, later = add(), list[str]()

    def look(shown: str) -> bool:
        if not later and first in shown:
            later.append(add())
        return bool(later) and later[0] in shown

    result = nodepool.on_terminal(command, "-w", until=look)
    assert result.status == 0
    result = nodepool(command, "-w")
    assert (result.status, result.out) == (1, "")
    assert "--watch needs a terminal" in result.err


def tell(znodes: PoolZnodes, kind: str, **record: Any) -> None:
    """Stores what a pool or launcher tells."""
    path, data = f"/nodepool/status/{kind}/l1", json.dumps({"host": "l1", **record}).encode()
    if znodes.kazoo.exists(path):
        znodes.kazoo.set(path, data)
    else:
        znodes.kazoo.create(path, data, makepath=True)


def test_status(nodepool: CommandLine, znodes: PoolZnodes) -> None:
    """OV-6: drawn again when something has changed; OV-2: the exit status has the problems."""
    tell(
        znodes, "launcher", pid=42, absent=[{"name": "other", "driver": "openstack", "text": "no cloud", "since": 1.0}]
    )
    tell(znodes, "pool", id="l1-lab", provider="lab", pool="rack", state="running")
    seen = list[str]()

    def look(shown: str) -> bool:
        if not seen and "no cloud" in shown:
            tell(znodes, "pool", id="l1-lab", provider="lab", pool="rack", state="paused")
            seen.append(shown)
        return bool(seen) and "paused" in shown

    assert nodepool.on_terminal("status", "-w", "--fail-on-problems", until=look).status == 3


def test_events(start: Callable[..., Waiting], znodes: PoolZnodes) -> None:
    seen = {"at": 1.0, "actor": "l1", "subject": "host zuul@b:22", "what": "down", "text": "cannot connect"}
    tell(znodes, "launcher", pid=42, events=[seen])
    waiting = start("events", "-f")
    assert "host zuul@b:22 down: cannot connect" in waiting.line()
    tell(znodes, "launcher", pid=42, events=[seen, {**seen, "at": 2.0, "what": "up", "text": ""}])
    assert waiting.line().endswith("l1: host zuul@b:22 up\n")
    assert waiting.ends(signal.SIGINT) == (0, "", "")


def test_zookeeper_that_does_not_answer(
    nodepool: CommandLine, start: Callable[..., Waiting], zookeeper: ZooKeeperServer
) -> None:
    """One clear line with the hosts after a bounded wait. Ctrl-C meanwhile: no output, and the status for it."""
    text = nodepool.config.read_text(encoding="utf-8")

    def use(port: int) -> None:
        nodepool.config.write_text(text.replace(str(zookeeper.tls_port), str(port)), encoding="utf-8")

    (dead,) = free_ports(1)
    use(dead)
    result = nodepool("list")
    assert (result.status, len(result.err.splitlines())) == (1, 1)
    assert f"127.0.0.1:{dead} (zookeeper-servers[0]): connection refused" in result.err
    with socket.create_server(("127.0.0.1", 0)) as mute:
        use(mute.getsockname()[1])
        waiting = start("list")
        mute.settimeout(60)
        with mute.accept()[0]:
            assert waiting.ends(signal.SIGINT) == (130, "", "")
