# SPDX-License-Identifier: Apache-2.0
"""``nodepool list``, ``request-list``, ``hold``, ``delete``: what released Nodepool has not (reference/commands 2)."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from nodepool.model.status import PoolStatus, WaitingStatus
from tests.support.command_line import CommandLine
from tests.support.pool_znodes import PoolZnodes
from tests.support.terminal import without_escapes
from tests.support.wait import wait_for

EXECUTOR = "/zuul/components/executor/e1"


def names(result: Any) -> list[str]:
    assert result.status == 0, result.err
    return list(result.out.split())


class TestFilters:
    def test_nodes(self, nodepool: CommandLine, add_node: Callable[..., str]) -> None:
        old = add_node(pool="side", tenant_name="t1")
        given = add_node(allocated_to="200-0000000001", state_time=time.time())
        used = add_node(state="used", provider="cloud", type=["gpu-large"])
        for options, wanted in (
            ([], [old, given, used]),
            (["--state", "used,hold"], [used]),
            (["--state", "allocated"], [given]),
            (["--label", "gpu-*"], [used]),
            (["--provider", "lab", "--older-than", "10m"], [old]),
            (["--pool", "lab/side"], [old]),
            (["--tenant", "t1,t2"], [old]),
        ):
            assert sorted(names(nodepool("list", "-o", "name", *options))) == wanted, options
        # The name of the new form, and options after the command that come before it in released Nodepool.
        assert names(nodepool("nodes", "-o", "name", "--state", "used", "-c", str(nodepool.config))) == [used]

    def test_an_unknown_state(self, nodepool: CommandLine) -> None:
        result = nodepool("list", "--state", "redy")
        assert result.status == 2
        assert "there is no state 'redy', did you mean 'ready'?" in result.err

    def test_requests(self, nodepool: CommandLine, znodes: PoolZnodes) -> None:
        old = znodes.submit(["gpu"], created_time=time.time() - 900)
        young = znodes.submit(["small"], tenant_name="t1", requestor_data=None)
        for options, wanted in (
            (["--older-than", "10m"], [old]),
            (["--tenant", "t1"], [young]),
            (["--label", "gpu"], [old]),
            (["--sort", "age_seconds"], [young, old]),
            (["--sort=-age_seconds"], [old, young]),
        ):
            assert names(nodepool("requests", "-o", "name", *options)) == wanted, options

    def test_columns(self, nodepool: CommandLine, add_node: Callable[..., str]) -> None:
        add_node()
        assert nodepool("list", "--columns", "state,provider", "--no-headers").out == "ready  lab\n"
        result = nodepool("list", "--columns", "sate")
        assert (result.status, result.out) == (1, "")
        assert result.err.startswith("there is no column 'sate', did you mean 'state'? (there are: id, ")


class TestMoreKeys:
    def test_node(self, nodepool: CommandLine, add_node: Callable[..., str], znodes: PoolZnodes) -> None:
        """For whom a node is, since when, and who has it."""
        request_id = znodes.submit(
            ["small"], event_id="E", requestor_data={"job_name": "unit", "pipeline_name": "gate"}
        )
        node_id = add_node(state="ready", allocated_to=request_id, created_time=5.0, tenant_name="t1")
        znodes.kazoo.create(EXECUTOR, b'{"hostname": "e1"}', ephemeral=True, makepath=True)
        znodes.kazoo.Lock(f"/nodepool/nodes/{node_id}/lock").acquire()
        result = nodepool("list", "--format", "json")
        (node,) = json.loads(result.out)
        assert list(node)[:9] == [
            "id",
            "provider",
            "label",
            "server_id",
            "public_ipv4",
            "ipv6",
            "state",
            "age",
            "locked",
        ]
        assert (node["status"], node["job"], node["pipeline"], node["tenant"]) == ("allocated", "unit", "gate", "t1")
        assert (node["event_id"], node["allocated_to"], node["created_time"]) == ("E", request_id, 5.0)
        assert node["locked_by"] == "Zuul executor e1"
        assert 3600 <= node["age_seconds"] < 3700
        assert yaml.safe_load(nodepool("list", "-o", "yaml").out)[0]["id"] == node_id

    def test_why_a_request_waits(self, nodepool: CommandLine, znodes: PoolZnodes) -> None:
        request_id = znodes.submit(["gpu"], created_time=time.time() - 60)
        numbers = {"limit": 80.0, "used": 80.0, "needed": 8.0}
        waiting = WaitingStatus(("gpu",), None, "tenant", 1, time.time(), "room.cores", "no cores", numbers)
        pool = PoolStatus(id="p1", host="l1", provider="cloud", pool="main", state="running", waiting=(waiting,))
        znodes.kazoo.create("/nodepool/status/pool/p1", json.dumps(pool.to_dict()).encode(), makepath=True)
        component = {"kind": "pool", "id": "p1", "hostname": "l1", "provider_name": "cloud", "name": "main"}
        component["supported_labels"] = ["gpu"]  # type: ignore[assignment]
        znodes.kazoo.create(
            "/nodepool/components/pool/l1", json.dumps(component).encode(), ephemeral=True, makepath=True
        )
        (request,) = json.loads(nodepool("request-list", "--format", "json").out)
        assert (request["id"], request["tenant"], request["job"]) == (request_id, "tenant", "job")
        assert (request["pool"], request["code"]) == ("cloud/main", "room.cores")
        assert request["reason"] == "cores 80 of 80, 8 needed"
        assert 60 <= request["age_seconds"] < 160


class TestHoldMore:
    def test_reason_and_end(self, nodepool: CommandLine, add_node: Callable[..., str], znodes: PoolZnodes) -> None:
        ids = [add_node(), add_node(state="in-use")]
        result = nodepool("hold", *ids, "--reason", "bug 17", "--for", "2h")
        assert result.status == 0
        assert [(row[0], row[6]) for row in result.rows] == [(ids[0], "hold"), (ids[1], "hold")]
        for node_id in ids:
            node = znodes.node(node_id) or {}
            assert (node["comment"], node["hold_expiration"]) == ("bug 17", 7200)
            assert "@" in node["hold_by"]
        (shown, _) = json.loads(nodepool("list", "--state", "hold", "-o", "json", "--sort", "id").out)
        assert shown["hold_reason"] == "bug 17"
        assert 7100 < shown["hold_until"] - time.time() <= 7200

    def test_one_of_several_fails(
        self, nodepool: CommandLine, add_node: Callable[..., str], znodes: PoolZnodes
    ) -> None:
        """reference/commands 2.2: the others are changed, and the status says that one was not."""
        good, locked = add_node(), add_node(state="in-use", user_data={"project_name": "p"}, tenant_name="t1")
        znodes.kazoo.create(EXECUTOR, b'{"hostname": "e1"}', ephemeral=True, makepath=True)
        znodes.kazoo.Lock(f"/nodepool/nodes/{locked}/lock").acquire()
        result = nodepool("hold", "0000000099", locked, good)
        assert result.status == 1
        assert result.out.splitlines()[0] == "Node id 0000000099 not found"
        assert "is locked by another process (waited 5 s): Zuul executor e1 has it, in-use, project p" in result.err
        assert [(row[0], row[6]) for row in result.rows] == [(locked, "in-use"), (good, "hold")]


class TestDeleteMore:
    def test_wait_without_a_launcher(
        self, nodepool: CommandLine, add_node: Callable[..., str], znodes: PoolZnodes
    ) -> None:
        node_id = add_node()
        result = nodepool("delete", node_id, "--wait")
        assert (result.status, result.out) == (1, "")
        assert result.err == f"No launcher serves provider lab: node {node_id} is deleted when one does\n"
        assert (znodes.node(node_id) or {})["state"] == "deleting"

    def test_wait(self, nodepool: CommandLine, add_node: Callable[..., str], znodes: PoolZnodes) -> None:
        component = {"kind": "pool", "id": "p1", "hostname": "l1", "provider_name": "lab", "name": "main"}
        znodes.kazoo.create(
            "/nodepool/components/pool/l1", json.dumps(component).encode(), ephemeral=True, makepath=True
        )
        node_id = add_node()
        process = nodepool.start("delete", node_id, "--wait")
        assert process.stderr is not None
        assert process.stderr.readline().startswith(f"node {node_id}: deleting")
        assert process.poll() is None
        wait_for("its lock is free", lambda: znodes.node_lockers(node_id) == [])
        znodes.kazoo.delete(f"/nodepool/nodes/{node_id}", recursive=True)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert "| Provider |" in out
        assert node_id not in out


class TestTerminal:
    """With a terminal: see tests/unit/listing/test_terminal.py for what it looks like."""

    def run(self, nodepool: CommandLine, *arguments: str, stop: Callable[[str], bool] | None = None) -> tuple[int, str]:
        """Status and what a person sees; with ``stop`` Ctrl-C as soon as that has come true."""
        leader, follower = pty.openpty()
        command = [sys.executable, "-m", "nodepool.cmd.cli", "-c", str(nodepool.config), *arguments]
        environment = {**nodepool.environment, "TERM": "xterm", "COLUMNS": "100", "LINES": "24"}
        text = b""
        with subprocess.Popen(
            command, stdin=follower, stdout=follower, stderr=follower, env=environment, cwd="/"
        ) as process:
            os.close(follower)
            while True:
                try:
                    part = os.read(leader, 4096)
                except OSError:
                    # All ends of the other side are closed.
                    break
                text += part
                if stop is not None and stop(without_escapes(text.decode())):
                    process.send_signal(signal.SIGINT)
                    stop = None
            status = process.wait(60)
        os.close(leader)
        return status, without_escapes(text.decode())

    def test_list(self, nodepool: CommandLine, add_node: Callable[..., str]) -> None:
        ids = sorted((add_node(), add_node(state="in-use", user_data={"project_name": "zuul/\x1b[31mred"})))
        status, text = self.run(nodepool, "list")
        assert status == 0
        lines = text.splitlines()
        assert lines[0].split()[:5] == ["ID", "STATE", "AGE", "LABEL", "PROVIDER"]
        assert [line.split()[:2] for line in lines[1:]] == [[ids[0], "ready"], [ids[1], "in-use"]]
        assert "zuul/ [31mred" in lines[2]

    def test_watch(self, nodepool: CommandLine, add_node: Callable[..., str], znodes: PoolZnodes) -> None:
        node_id = add_node()

        def seen(text: str) -> bool:
            if "ready" in text and "used" not in text:
                node = znodes.node(node_id) or {}
                znodes.kazoo.set(f"/nodepool/nodes/{node_id}", json.dumps({**node, "state": "used"}).encode())
            return "used" in text

        status, text = self.run(nodepool, "list", "-w", stop=seen)
        assert status == 0
        assert "Traceback" not in text

    def test_hint_for_an_empty_list(self, nodepool: CommandLine) -> None:
        assert "No launcher is registered in ZooKeeper" in self.run(nodepool, "list")[1]
        assert nodepool("list").err == ""

    @pytest.mark.parametrize("command", ["list", "request-list"])
    def test_watch_without_a_terminal(
        self, nodepool: CommandLine, add_node: Callable[..., str], znodes: PoolZnodes, command: str
    ) -> None:
        """Rows that are new or have changed follow; Ctrl-C is the end that was asked for."""
        wanted = add_node() if command == "list" else znodes.submit(["small"])
        process = nodepool.start(command, "-w", "-o", "name")
        assert process.stdout is not None
        assert process.stdout.readline().strip() == wanted
        another = add_node() if command == "list" else znodes.submit(["small"])
        assert process.stdout.readline().strip() == another
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (0, "", "")
