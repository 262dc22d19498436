# SPDX-License-Identifier: Apache-2.0
"""``nodepool status`` and the listings of what launchers tell, with a real ZooKeeper (rules OV-1 to OV-5)."""

from __future__ import annotations

import hashlib
import json
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from nodepool.model.component import PoolComponent
from nodepool.model.event import Event
from nodepool.model.status import (
    AbsentProvider,
    HostStatus,
    LabelStatus,
    LauncherStatus,
    LimitStatus,
    PoolStatus,
    WaitingStatus,
)
from tests.support.command_line import CommandLine
from tests.support.pool_znodes import PoolZnodes

NOW = time.time()
CLOUD = PoolStatus(
    id="l1-PoolWorker.cloud-main-1",
    host="l1",
    version="12.0.0",
    provider="cloud",
    pool="main",
    driver="openstack",
    state="paused",
    since=NOW - 600,
    limits=(LimitStatus("cloud", "cores", 80, 72, 8, NOW - 10), LimitStatus("pool", "instances", 20, 18)),
    labels={"gpu": LabelStatus("label.broken", "the cloud has no flavor named 'm1.small'", NOW - 900)},
    waiting=(
        WaitingStatus(
            ("big",), None, "tenant", 2, code="room.cores", text="quota", numbers={"limit": 80, "used": 80, "needed": 8}
        ),
    ),
)
LAB = PoolStatus(
    id="l1-PoolWorker.lab-rack-1",
    host="l1",
    provider="lab",
    pool="rack",
    driver="static",
    state="running",
    since=NOW - 600,
    hosts=(
        HostStatus("zuul@a:22", True, "", NOW - 600, nodes=("0000000001",)),
        HostStatus("zuul@b:22", False, "cannot connect: Connection refused", NOW - 300, NOW + 30),
    ),
)
L1 = LauncherStatus(
    host="l1",
    pid=42,
    version="12.0.0",
    config="9f3c",
    since=NOW - 600,
    pools=("cloud/main", "lab/rack"),
    absent=(AbsentProvider("other", "openstack", "clouds.yaml has no cloud 'x'", NOW - 600, NOW + 5),),
    tenant_limits={"t1": {"instances": 5}},
    events=(
        Event(NOW - 7200, "l1", "provider cloud", "unavailable", "provider.circuit-open", "HTTP 503"),
        Event(NOW - 300, "l1", "host zuul@b:22", "down", "", "cannot connect: Connection refused"),
    ),
)

Tell = Callable[..., None]


@pytest.fixture
def tell(znodes: PoolZnodes) -> Tell:
    """Stores what pools and launchers tell."""

    def store(*records: PoolStatus | LauncherStatus) -> None:
        for record in records:
            kind, name = ("pool", record.id) if isinstance(record, PoolStatus) else ("launcher", f"{record.host}-1")
            data = json.dumps(record.to_dict()).encode()
            path = f"/nodepool/status/{kind}/{name}"
            if znodes.kazoo.exists(path):
                znodes.kazoo.set(path, data)
            else:
                znodes.kazoo.create(path, data, makepath=True)

    return store


def register(znodes: PoolZnodes, status: PoolStatus, *labels: str) -> None:
    """Make the entry of a pool in the registry of components."""
    entry = PoolComponent(status.host, status.version)
    entry.id, entry.provider_name, entry.name = status.id, status.provider, status.pool
    entry.state, entry.supported_labels = "running", list(labels)
    path = f"/nodepool/components/pool/{status.host}"
    znodes.kazoo.create(path, json.dumps(entry.to_dict()).encode(), makepath=True, sequence=True)


def as_json(result: Any) -> Any:
    assert (result.status, result.err) == (0, "")
    return json.loads(result.out)


class TestStatus:
    def test_problems_come_first(self, nodepool: CommandLine, tell: Tell, znodes: PoolZnodes) -> None:
        """OV-1"""
        tell(CLOUD, LAB, L1)
        register(znodes, CLOUD, "big")
        for _ in range(2):
            znodes.submit(["big"], created_time=NOW - 900)
        result = nodepool("status")
        assert (result.status, result.err) == (0, "")
        lines = result.out.splitlines()
        assert lines[0] == "2 requests wait longer than 5 min: 2 for big (cloud/main: cores 80 of 80, 8 needed)."
        assert lines[2] == "Needs attention:"
        told = [line[2:].partition(";")[0] for line in lines if line.startswith("- ")]
        assert told == [
            "provider other is not served by launcher l1: clouds.yaml has no cloud 'x'",
            "label gpu of cloud/main: the cloud has no flavor named 'm1.small'",
            "host zuul@b:22 of lab/rack is down: cannot connect: Connection refused",
        ]
        assert ["cloud/main", "paused", *["0"] * 5, "2", "cores 72 + 8 of 80"] in result.rows

    def test_exit_status(self, nodepool: CommandLine, tell: Tell) -> None:
        """OV-2: only if it is asked for."""
        tell(LAB, L1)
        assert nodepool("status").status == 0
        assert nodepool("status", "--fail-on-problems").status == 3

    def test_as_json(self, nodepool: CommandLine, tell: Tell) -> None:
        tell(CLOUD, L1)
        told = as_json(nodepool("status", "--format", "json"))
        assert set(told) == {"sentence", "waiting", "problems", "capacity"}
        assert [problem["kind"] for problem in told["problems"]] == ["provider", "label"]

    def test_watch(self, nodepool: CommandLine, tell: Tell, znodes: PoolZnodes) -> None:
        """OV-6: printed again when something has changed; Ctrl-C is the end that was asked for."""
        tell(LAB, L1)
        process = nodepool.start("status", "-w", "-o", "json", "--fail-on-problems")
        assert process.stdout is not None
        assert [row["hold"] for row in json.loads(process.stdout.readline())["capacity"]] == [0]
        znodes.add_node("hold", provider="lab", pool="rack")
        assert [row["hold"] for row in json.loads(process.stdout.readline())["capacity"]] == [1]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (3, "", "")

    def test_on_a_terminal(self, nodepool: CommandLine, tell: Tell) -> None:
        tell(LAB, L1)
        lines = nodepool.on_terminal("status").out.splitlines()
        assert lines[0] == "No request waits longer than 5 min (0 wait now); 2 things need attention."
        assert [line for line in lines if line.endswith(":")] == ["Needs attention:", "Capacity:"]
        assert any(line.startswith("lab/rack  running") for line in lines)

    def test_without_any_launcher(self, nodepool: CommandLine) -> None:
        result = nodepool("status")
        assert "- no launcher is registered: nothing serves requests" in result.out.splitlines()


class TestServedConfig:
    def test_without_a_second_file(self, nodepool: CommandLine, tell: Tell) -> None:
        """OV-7: the checksum is that of the file."""
        digest = hashlib.sha256(nodepool.config.read_bytes()).hexdigest()[:12]
        served = replace(L1, host="l2", config=digest)
        tell(served)
        result = nodepool("config-diff")
        assert (result.status, result.err) == (0, "")
        head, line = result.out.splitlines()
        assert head == f"{nodepool.config} is {digest}"
        assert line.startswith("launcher l2 (42) serves this file, loaded ")
        tell(L1)
        result = nodepool("config-diff")
        assert result.status == 1
        assert result.out.splitlines()[1].startswith("launcher l1 (42) serves another file (9f3c), loaded ")

    def test_no_launcher(self, nodepool: CommandLine) -> None:
        result = nodepool("config-diff", "-o", "json")
        assert (result.status, result.out) == (1, "")
        assert result.err.startswith("no launcher is registered")


class TestProviders:
    def test_states(self, nodepool: CommandLine, tell: Tell) -> None:
        tell(CLOUD, LAB, L1)
        told = {row["pool"]: row for row in as_json(nodepool("providers", "--format", "json"))}
        assert {name: row["state"] for name, row in told.items()} == {
            "cloud/main": "paused",
            "lab/rack": "running",
            "other": "not served",
        }
        assert told["cloud/main"]["limiting"] == "cores 72 + 8 of 80"

    def test_limits(self, nodepool: CommandLine, tell: Tell) -> None:
        """OV-3: of each limit what is used by us, by others, and free."""
        tell(CLOUD, LAB)
        told = as_json(nodepool("providers", "cloud", "--limits", "--format", "json"))
        assert [[row[key] for key in ("owner", "resource", "limit", "used", "others", "free")] for row in told] == [
            ["cloud", "cores", 80, 72, 8, 0],
            ["cloud/main", "instances", 20, 18, 0, 2],
        ]

    def test_unknown_one(self, nodepool: CommandLine, tell: Tell) -> None:
        tell(CLOUD)
        result = nodepool("providers", "typo")
        assert (result.status, result.out) == (1, "")
        assert result.err.splitlines()[0] == "no launcher serves a provider typo; there are: cloud"


class TestOthers:
    def test_hosts(self, nodepool: CommandLine, tell: Tell) -> None:
        tell(CLOUD, LAB)
        assert [(row["host"], row["state"]) for row in as_json(nodepool("hosts", "--format", "json"))] == [
            ("zuul@b:22", "down"),
            ("zuul@a:22", "up"),
        ]
        (row,) = nodepool("hosts", "--down").rows
        assert row[0] == "zuul@b:22"

    def test_launchers(self, nodepool: CommandLine, tell: Tell) -> None:
        tell(L1)
        (row,) = as_json(nodepool("launchers", "--format", "json"))
        assert (row["host"], row["pid"], row["version"], row["config"]) == ("l1", 42, "12.0.0", "9f3c")

    def test_tenants(self, nodepool: CommandLine, tell: Tell, add_node: Callable[..., str]) -> None:
        tell(L1)
        add_node(tenant_name="t1")
        add_node(tenant_name="t2")
        rows = as_json(nodepool("tenants", "--format", "json"))
        assert [(row["tenant"], row["limit"], row["used"], row["free"]) for row in rows] == [
            ("t1", 5, 1, 4),
            ("t2", None, 1, None),
        ]
        assert [row[0] for row in nodepool("tenants", "t2").rows] == ["t2"]


class TestEvents:
    def test_of_all_launchers(self, nodepool: CommandLine, tell: Tell) -> None:
        """OV-4, OV-5: what two launchers saw is there once."""
        tell(L1, LauncherStatus(host="l2", events=(Event(NOW - 299, "l2", *_rest(L1.events[1])),)))
        rows = as_json(nodepool("events", "--format", "json"))
        assert [(row["subject"], row["actor"]) for row in rows] == [
            ("provider cloud", "l1"),
            ("host zuul@b:22", "l1, l2"),
        ]
        assert [row[1] for row in nodepool("events", "--since", "1h").rows] == ["host zuul@b:22"]
        assert [row[1] for row in nodepool("events", "--subject", "cloud").rows] == ["provider cloud"]

    def test_follow(self, nodepool: CommandLine, tell: Tell) -> None:
        tell(L1)
        process = nodepool.start("events", "-f", "--since", "1h")
        assert process.stdout is not None
        assert "host zuul@b:22 down: cannot connect" in process.stdout.readline()
        new = Event(NOW, "l1", "host zuul@b:22", "up")
        tell(LauncherStatus(host="l1", events=(*L1.events, new)))
        assert process.stdout.readline().endswith("l1: host zuul@b:22 up\n")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (0, "", "")

    def test_wrong_duration(self, nodepool: CommandLine) -> None:
        result = nodepool("events", "--since", "yesterday")
        assert result.status == 2
        assert "'yesterday' is no duration; write e.g. 90s, 15m, 1h30m or 2d" in result.err


def _rest(event: Event) -> tuple[str, str, str, str]:
    return event.subject, event.what, event.code, event.text
