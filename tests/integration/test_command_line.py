# SPDX-License-Identifier: Apache-2.0
"""``nodepool`` as operators use it, against a real ZooKeeper with TLS (cli.md 2)."""

from __future__ import annotations

import csv
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.launcher_config import StaticHost, StaticProvider, write_config
from tests.support.pool_znodes import PoolZnodes
from tests.support.ports import free_ports
from tests.support.zookeeper import ZooKeeperServer

ROOT = Path(__file__).resolve().parents[2]
PROVIDER = StaticProvider([StaticHost("127.1.0.1")], name="lab")


@dataclass
class Result:
    status: int
    out: str
    err: str

    @property
    def rows(self) -> list[list[str]]:
        """Cells of an ASCII table, without its headers."""
        lines = [line for line in self.out.splitlines() if line.startswith("|")]
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


@dataclass
class CommandLine:
    config: Path
    environment: dict[str, str] = field(default_factory=lambda: {**os.environ, "PYTHONPATH": str(ROOT)})

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "nodepool.cmd.cli", "-c", str(self.config), *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=self.environment, cwd="/", **options
        )

    def __call__(self, *arguments: str, answer: str = "") -> Result:
        process = self.start(*arguments)
        out, err = process.communicate(answer, timeout=60)
        return Result(process.returncode, out, err)


@pytest.fixture
def nodepool(tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str) -> CommandLine:
    write_config(tmp_path / "nodepool.yaml", zookeeper, chroot, [PROVIDER])
    return CommandLine(tmp_path / "nodepool.yaml")


@pytest.fixture
def add_node(znodes: PoolZnodes) -> Callable[..., str]:
    def add(**fields: Any) -> str:
        node = {
            "state": "ready",
            "state_time": time.time() - 3600,
            "type": ["small", "big"],
            "provider": "lab",
            "pool": "main",
            "external_id": "host-1",
            "public_ipv4": "127.1.0.1",
            "connection_port": 22,
            "username": "zuul",
            **fields,
        }
        return znodes.create_node(json.dumps(node).encode())

    return add


@pytest.fixture
def lock_node(znodes: PoolZnodes) -> Iterator[Callable[[str], None]]:
    locks = []

    def lock(node_id: str) -> None:
        locks.append(znodes.kazoo.Lock(f"/nodepool/nodes/{node_id}/lock", "somebody"))
        locks[-1].acquire()

    yield lock
    for held in locks:
        held.release()


class TestList:
    def test_table(self, nodepool: CommandLine, add_node: Callable[..., str], lock_node: Callable[[str], None]) -> None:
        """cli.md 2: columns of list."""
        free, used = add_node(), add_node(state="in-use", external_id={"instance": "i-1"})
        lock_node(used)
        result = nodepool("list")
        assert (result.status, result.err) == (0, "")
        headers = [cell.strip() for cell in result.out.splitlines()[1].strip("|").split("|")]
        assert headers == ["ID", "Provider", "Label", "Server ID", "Public IPv4", "IPv6", "State", "Age", "Locked"]
        first, second = sorted(result.rows)
        assert first[:7] == [free, "lab", "small,big", "host-1", "127.1.0.1", "", "ready"]
        assert first[7].startswith("00:01:0")
        assert first[8] == "unlocked"
        assert (second[0], second[3], second[8]) == (used, "{'instance': 'i-1'}", "locked")

    def test_detail_as_json(self, nodepool: CommandLine, add_node: Callable[..., str]) -> None:
        """cli.md 2 and 6: all keys, with their types; a port that is no number is redacted."""
        node_id = add_node(
            connection_port={"token": "secret"}, user_data={"a": 1}, allocated_to="200-1", az="az1", comment="why"
        )
        (node,) = json.loads(nodepool("list", "--detail", "--format", "json").out)
        assert node.pop("age").startswith("00:01:0")
        assert node == {
            "id": node_id,
            "provider": "lab",
            "label": ["small", "big"],
            "server_id": "host-1",
            "public_ipv4": "127.1.0.1",
            "ipv6": None,
            "state": "ready",
            "locked": "unlocked",
            "pool": "main",
            "hostname": None,
            "private_ipv4": None,
            "AZ": "az1",
            "username": "zuul",
            "connection_port": "redacted",
            "launcher": None,
            "allocated_to": "200-1",
            "hold_job": None,
            "comment": "why",
            "user_data": {"a": 1},
            "driver_data": None,
        }

    def test_csv(self, nodepool: CommandLine, add_node: Callable[..., str]) -> None:
        node_id = add_node()
        header, row = csv.reader(nodepool("list", "--format", "csv").out.splitlines())
        assert header[0] == "id"
        assert (row[0], row[2]) == (node_id, "small,big")

    def test_empty_pool(self, nodepool: CommandLine) -> None:
        assert nodepool("list").rows == []
        assert json.loads(nodepool("list", "--format", "json").out) == []

    def test_bad_znodes_are_skipped(
        self, nodepool: CommandLine, add_node: Callable[..., str], znodes: PoolZnodes
    ) -> None:
        """Foreign data is logged and skipped; the others are shown."""
        good = add_node()
        bad = [znodes.create_node(value) for value in (b"", b"\xff", b"[]", b'{"state": 1}')]
        result = nodepool("list")
        assert [row[0] for row in result.rows] == [good]
        assert result.status == 0
        assert all(node_id in result.err for node_id in bad[1:])
        assert "Traceback" not in result.err

    def test_reader_that_leaves_is_no_error(self, nodepool: CommandLine, add_node: Callable[..., str]) -> None:
        add_node()
        process = nodepool.start("list")
        with process:
            assert process.stdout is not None
            process.stdout.close()
            assert process.stderr is not None
            assert process.stderr.read() == ""


class TestHold:
    @pytest.mark.parametrize("state", ["ready", "in-use", "building", "deleting"])
    def test_any_state_becomes_hold(
        self, nodepool: CommandLine, add_node: Callable[..., str], znodes: PoolZnodes, state: str
    ) -> None:
        node_id = add_node(state=state, something_new=1)
        result = nodepool("hold", node_id)
        assert result.status == 0
        ((row),) = result.rows
        assert (row[0], row[6], row[7], row[8]) == (node_id, "hold", "00:00:00:00", "unlocked")
        stored = znodes.node(node_id)
        assert stored is not None
        assert (stored["state"], stored["something_new"]) == ("hold", 1)
        assert znodes.node_lockers(node_id) == []

    @pytest.mark.parametrize("command", ["hold", "delete"])
    @pytest.mark.parametrize("node_id", ["0000000099", "../requests", ".", ""])
    def test_unknown_id(self, nodepool: CommandLine, command: str, node_id: str) -> None:
        """cli.md 2: the text of the released Nodepool, with status 1."""
        assert nodepool(command, node_id) == Result(1, f"Node id {node_id} not found\n", "")

    @pytest.mark.parametrize("command", ["hold", "delete"])
    def test_locked_node(
        self,
        nodepool: CommandLine,
        add_node: Callable[..., str],
        lock_node: Callable[[str], None],
        znodes: PoolZnodes,
        command: str,
    ) -> None:
        """cli.md 2: the lock is not free within 5 s: one line, status 1, nothing changed."""
        node_id = add_node()
        lock_node(node_id)
        result = nodepool(command, node_id)
        assert result.status == 1
        assert len(result.err.splitlines()) == 1
        assert "is locked by somebody else" in result.err
        assert (znodes.node(node_id) or {})["state"] == "ready"
        assert len(znodes.node_lockers(node_id)) == 1


class TestDelete:
    def test_node_becomes_deleting(
        self, nodepool: CommandLine, add_node: Callable[..., str], znodes: PoolZnodes
    ) -> None:
        node_id = add_node()
        result = nodepool("delete", node_id)
        assert (result.status, result.rows[0][6]) == (0, "deleting")
        assert (znodes.node(node_id) or {})["state"] == "deleting"
        assert znodes.node_lockers(node_id) == []

    def test_now(self, nodepool: CommandLine, add_node: Callable[..., str], znodes: PoolZnodes) -> None:
        """delete --now: the node is gone when the command ends."""
        node_id = add_node(hostname="127.1.0.9", external_id="127.1.0.9", state="used")
        result = nodepool("delete", "--now", node_id)
        assert (result.status, result.rows) == (0, [])
        assert znodes.node(node_id) is None

    def test_now_without_provider(
        self, nodepool: CommandLine, add_node: Callable[..., str], znodes: PoolZnodes
    ) -> None:
        node_id = add_node(provider="elsewhere")
        result = nodepool("delete", "--now", node_id)
        assert (result.status, result.out) == (
            1,
            f"Provider elsewhere for node {node_id} not defined on this launcher\n",
        )
        assert (znodes.node(node_id) or {})["state"] == "ready"


class TestRequestsAndLabels:
    def test_requests(self, nodepool: CommandLine, znodes: PoolZnodes) -> None:
        """cli.md 2: columns of request-list."""
        request_id = znodes.submit(["small", "small"], relative_priority=3, event_id="E", declined_by=["p1", "p2"])
        znodes.submit_raw(b"foreign")
        result = nodepool("request-list")
        headers = [cell.strip() for cell in result.out.splitlines()[1].strip("|").split("|")]
        assert headers == [
            *("Request ID", "Priority", "State", "Requestor"),
            *("Node Types", "Nodes", "Declined By", "Event ID"),
        ]
        assert result.rows == [[request_id, "3", "requested", "test", "small,small", "", "p1,p2", "E"]]
        assert json.loads(nodepool("request-list", "--format", "json").out) == [
            {
                "id": request_id,
                "relative_priority": 3,
                "state": "requested",
                "requestor": "test",
                "node_types": ["small", "small"],
                "nodes": [],
                "declined_by": ["p1", "p2"],
                "event_id": "E",
            }
        ]

    def test_labels(self, nodepool: CommandLine, znodes: PoolZnodes) -> None:
        """cli.md 6: the union of the labels of registered pools."""
        assert nodepool("label-list").rows == []
        for number, labels in enumerate((["small", "big"], ["small", "tiny"])):
            pool = {"kind": "pool", "id": f"p{number}", "hostname": "h", "supported_labels": labels}
            znodes.kazoo.create(
                "/nodepool/components/pool/h", json.dumps(pool).encode(), sequence=True, ephemeral=True, makepath=True
            )
        assert nodepool("label-list").rows == [["big"], ["small"], ["tiny"]]
        assert json.loads(nodepool("label-list", "--format", "json").out)[0] == {"label": "big"}


@pytest.fixture
def upload(znodes: PoolZnodes) -> str:
    """An image with a build that is uploaded to the providers lab and other; the build's path."""
    build = "/nodepool/images/img/builds/0123456789abcdef0123456789abcdef"
    record = json.dumps({"state": "ready", "state_time": 1.0}).encode()
    znodes.kazoo.create(build, record, makepath=True)
    for provider in ("lab", "other"):
        znodes.kazoo.create(f"{build}/providers/{provider}/images/0000000001", record, makepath=True)
    znodes.kazoo.create("/nodepool/images/img/builds/lock", b"", makepath=True)
    return build


class TestProvider:
    def test_info(self, nodepool: CommandLine, add_node: Callable[..., str], upload: str) -> None:
        """cli.md 2: two tables."""
        node_id = add_node()
        add_node(provider="other")
        result = nodepool("info", "lab")
        assert result.out.startswith("ZooKeeper data for provider lab\n\nImage data:\n+")
        build_id = upload.rsplit("/", 1)[1]
        assert ["img", build_id, "0000000001"] in result.rows
        assert [node_id, "host-1"] in result.rows
        assert json.loads(nodepool("info", "lab", "--format", "json").out) == {
            "images": [{"image": "img", "build_id": build_id, "upload_ids": ["0000000001"]}],
            "nodes": [{"id": node_id, "server_id": "host-1"}],
        }

    @pytest.mark.parametrize("answer", ["n\n", "\n", ""])
    def test_erase_asks(
        self, nodepool: CommandLine, add_node: Callable[..., str], znodes: PoolZnodes, answer: str
    ) -> None:
        node_id = add_node()
        result = nodepool("erase", "lab", answer=answer)
        assert result.status == 0
        assert "Erase ZooKeeper data for provider lab? [N/y]" in result.out
        assert result.out.endswith("Aborting. No data erased.\n")
        assert znodes.node(node_id) is not None

    @pytest.mark.parametrize(("arguments", "answer"), [(["--force"], ""), ([], "y\n")])
    def test_erase(
        self,
        nodepool: CommandLine,
        add_node: Callable[..., str],
        upload: str,
        znodes: PoolZnodes,
        arguments: list[str],
        answer: str,
    ) -> None:
        """Nodes and uploads of this provider go, nothing else."""
        mine, other = add_node(), add_node(provider="other")
        result = nodepool("erase", "lab", *arguments, answer=answer)
        assert result.status == 0
        assert result.out.endswith("Erasing build data for lab...\nErasing node data for lab...\n")
        assert znodes.node(mine) is None
        assert znodes.node(other) is not None
        assert znodes.children(f"{upload}/providers") == ["other"]


class TestMistakes:
    def test_zookeeper_that_does_not_answer(self, nodepool: CommandLine, zookeeper: ZooKeeperServer) -> None:
        """One clear line with the hosts after a bounded wait."""
        (port,) = free_ports(1)
        text = nodepool.config.read_text(encoding="utf-8").replace(str(zookeeper.tls_port), str(port))
        nodepool.config.write_text(text, encoding="utf-8")
        result = nodepool("list")
        assert result.status == 1
        assert len(result.err.splitlines()) == 1
        assert f"127.0.0.1:{port}" in result.err

    def test_interrupt_is_quiet(self, nodepool: CommandLine, zookeeper: ZooKeeperServer) -> None:
        """Ctrl-C while ZooKeeper does not answer: no output, the status that shells expect."""
        with socket.create_server(("127.0.0.1", 0)) as mute:
            port = mute.getsockname()[1]
            text = nodepool.config.read_text(encoding="utf-8").replace(str(zookeeper.tls_port), str(port))
            nodepool.config.write_text(text, encoding="utf-8")
            process = nodepool.start("list")
            mute.settimeout(60)
            connection, _ = mute.accept()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
            connection.close()
        assert (process.returncode, out, err) == (130, "", "")

    @pytest.mark.parametrize("arguments", [["list"], ["config-validate"]])
    def test_missing_configuration(self, nodepool: CommandLine, arguments: list[str]) -> None:
        nodepool.config.unlink()
        result = nodepool(*arguments)
        assert result.status == 1
        assert str(nodepool.config) in result.err
        assert "Traceback" not in result.err

    def test_missing_tls_file(self, nodepool: CommandLine) -> None:
        text = nodepool.config.read_text(encoding="utf-8").replace("client.pem", "missing.pem")
        nodepool.config.write_text(text, encoding="utf-8")
        result = nodepool("list")
        assert result.status == 1
        assert "missing.pem" in result.err
        assert len(result.err.splitlines()) == 1

    def test_no_servers(self, nodepool: CommandLine) -> None:
        nodepool.config.write_text("labels: []\n", encoding="utf-8")
        result = nodepool("list")
        assert result.status == 1
        assert "zookeeper-servers" in result.err

    def test_bad_provider_section_does_not_matter(self, nodepool: CommandLine) -> None:
        """Only the ZooKeeper part is needed to look at nodes."""
        with nodepool.config.open("a", encoding="utf-8") as file:
            file.write("diskimages: 17\n")
        assert nodepool("list").status == 0

    def test_debug_log(self, nodepool: CommandLine) -> None:
        result = nodepool("--debug", "list")
        assert result.status == 0
        assert " DEBUG " in result.err


class TestValidate:
    def test_good(self, nodepool: CommandLine) -> None:
        result = nodepool("config-validate")
        assert result.status == 0
        assert "ERROR" not in result.err

    def test_every_problem(self, nodepool: CommandLine) -> None:
        """Every problem is a line with file and line number, and the status is 1."""
        with nodepool.config.open("a", encoding="utf-8") as file:
            file.write("max-hold-agee: 1\nelements-dir: [1]\n")
        result = nodepool("config-validate")
        assert result.status == 1
        problems = [line for line in result.err.splitlines() if f"{nodepool.config}:" in line]
        assert any("max-hold-agee" in line for line in problems)
        assert any("elements-dir" in line for line in problems)
