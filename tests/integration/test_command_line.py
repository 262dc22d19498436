# SPDX-License-Identifier: Apache-2.0
"""``nodepool`` for nodes, requests and labels, against a real ZooKeeper with TLS (reference/commands 2)."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Callable, Iterator

import pytest

from tests.support.command_line import CommandLine, Result
from tests.support.pool_znodes import PoolZnodes


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
        """reference/commands 2: columns of list."""
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
        """reference/commands 2: all keys, with their types; a port that is no number is redacted."""
        node_id = add_node(
            connection_port={"token": "secret"}, user_data={"a": 1}, allocated_to="200-1", az="az1", comment="why"
        )
        (node,) = json.loads(nodepool("list", "--detail", "--format", "json").out)
        assert node.pop("age").startswith("00:01:0")
        released = dict(itertools.islice(node.items(), 20))
        assert released == {
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
        """reference/commands 2: the text of the released Nodepool, with status 1."""
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
        """reference/commands 2: the lock is not free within 5 s: one line, status 1, nothing changed."""
        node_id = add_node()
        lock_node(node_id)
        result = nodepool(command, node_id)
        assert result.status == 1
        assert len(result.err.splitlines()) == 1
        assert "is locked by another process" in result.err
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

    def test_now_on_a_terminal(self, nodepool: CommandLine, add_node: Callable[..., str], znodes: PoolZnodes) -> None:
        """It tells what it waits for, and lines of the log are lines of their own."""
        node_id = add_node(hostname="127.1.0.9", external_id="127.1.0.9", state="used")
        result = nodepool.on_terminal("delete", "--now", node_id)
        assert result.status == 0
        assert f"node {node_id}: starting provider lab" in result.out
        assert f"node {node_id}: stopping provider lab" in result.out
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
        """reference/commands 2: columns of request-list."""
        request_id = znodes.submit(["small", "small"], relative_priority=3, event_id="E", declined_by=["p1", "p2"])
        znodes.submit_raw(b"foreign")
        result = nodepool("request-list")
        headers = [cell.strip() for cell in result.out.splitlines()[1].strip("|").split("|")]
        assert headers == [
            *("Request ID", "Priority", "State", "Requestor"),
            *("Node Types", "Nodes", "Declined By", "Event ID"),
        ]
        assert result.rows == [[request_id, "3", "requested", "test", "small,small", "", "p1,p2", "E"]]
        (request,) = json.loads(nodepool("request-list", "--format", "json").out)
        # Other keys only follow.
        assert dict(itertools.islice(request.items(), 8)) == {
            "id": request_id,
            "relative_priority": 3,
            "state": "requested",
            "requestor": "test",
            "node_types": ["small", "small"],
            "nodes": [],
            "declined_by": ["p1", "p2"],
            "event_id": "E",
        }

    def test_labels(self, nodepool: CommandLine, znodes: PoolZnodes) -> None:
        """reference/commands 2: the union of the labels of registered pools."""
        assert nodepool("label-list").rows == []
        for number, labels in enumerate((["small", "big"], ["small", "tiny"])):
            pool = {"kind": "pool", "id": f"p{number}", "hostname": "h", "supported_labels": labels}
            znodes.kazoo.create(
                "/nodepool/components/pool/h", json.dumps(pool).encode(), sequence=True, ephemeral=True, makepath=True
            )
        assert nodepool("label-list").rows == [["big"], ["small"], ["tiny"]]
        assert json.loads(nodepool("label-list", "--format", "json").out)[0] == {"label": "big"}
