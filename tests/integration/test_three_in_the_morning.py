# SPDX-License-Identifier: Apache-2.0
"""The page about failures (how-to/troubleshoot.rst): its commands say what it shows (OV-1 to OV-5).

With the variable REWRITE_TRANSCRIPTS the page gets what the commands say now.
"""

from __future__ import annotations

import getpass
import os
import re
import shlex
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from simulators.openstack import OpenStackSimulator
from tests.support.command_line import CommandLine
from tests.support.openstack_place import Place
from tests.support.pool_status import pool_statuses
from tests.support.pool_znodes import PoolZnodes
from tests.support.ports import free_ports
from tests.support.sshd import SshServer
from tests.support.wait import wait_for

_BLOCK: Final = re.compile(r"^\.\. code-block:: console\n\n((?:   .*\n|\n)+)", re.MULTILINE)
#: What is another one each time, and what stands for it in a comparison.
_VARIABLE: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d(?= )"), "DATE"),
    (re.compile(r"\b(?:\d\d:)+\d\d\b"), "TIME"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"\b[0-9a-f]{8}[0-9a-f-]*…"), "UUID"),
    (re.compile(r"\b(?:[0-9a-f]{32}|[0-9a-f]{12})\b"), "HEX"),
    (re.compile(r"\b\d+\.\d+\.\d+(?:\.dev\d+)?(?![\d.])"), "VERSION"),
    (re.compile(r"\b(?:now|(?:in )?\d+ (?:s|min|h|d)(?: \d+ (?:s|min|h))?)(?![\w/])"), "AGE"),
    (re.compile(r"DATE TIME"), "TIME"),
    (re.compile(r"\bfailed +\d+ times"), "failed N times"),
    (re.compile(r"\b(?:listing|creating|deleting|showing) (?:a )?\w+ failed"), "CALL failed"),
    (re.compile(r"(?<=l1  ) *\d+\b"), "PID"),
    # Deletions that are tried again are locked now and then.
    (re.compile(r"\b(?:un)?locked\b|(?<=Locked {9})(?:yes|no)"), "LOCK"),
    # Which pool is the last to decline a request.
    (re.compile(r"\bl1 [\w-]+/[\w-]+"), "POOL"),
)
#: A cell of a table that is cut: where depends on the other columns.
_CUT: Final = re.compile(r"(?:(?<=  )|^)((?:\S| (?=\S))+)…", re.MULTILINE)
_CUT_KEPT: Final = 10


class Said(NamedTuple):
    """A command of a page, with what it says there."""

    arguments: list[str]
    output: str


def transcript(page: str) -> list[Said]:
    """All commands ``$ nodepool ...`` of a page, in order."""
    found: list[Said] = []
    for block in _BLOCK.findall(page):
        for part in re.split(r"^   \$ nodepool ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            lines = [line.removeprefix("   ").rstrip() for line in output.splitlines()]
            found.append(Said(shlex.split(command), "\n".join(lines).strip("\n")))
    return found


def rewrite(page: Path, run: Callable[[list[str]], str]) -> None:
    """Put the present output of all commands into a page."""

    def block(match: re.Match[str]) -> str:
        lines = []
        for command in re.findall(r"^   (\$ nodepool .*)$", match[1], re.MULTILINE):
            output = run(shlex.split(command.removeprefix("$ nodepool ")))
            lines += [command, *output.splitlines()]
        return ".. code-block:: console\n\n" + "".join(f"   {line}".rstrip() + "\n" for line in lines) + "\n"

    page.write_text(_BLOCK.sub(block, page.read_text(encoding="utf-8")), encoding="utf-8")


def comparable(text: str) -> list[str]:
    """The lines of a text, each once and in their own order, without what is another one each time."""
    text = _CUT.sub(lambda match: f"{match[1][:_CUT_KEPT]}…", text)
    for variable, word in _VARIABLE:
        text = variable.sub(word, text)
    return sorted({" ".join(line.split()) for line in text.strip().splitlines()})


PAGE = Path(__file__).parents[2] / "doc" / "source" / "how-to" / "troubleshoot.rst"
COLUMNS = 170


class Night:
    """A launcher in trouble of every kind that the page is about."""

    def __init__(self, place: Place, cloud_b: OpenStackSimulator, znodes: PoolZnodes, sshd: SshServer) -> None:
        self.place = place
        self.cloud_b = cloud_b
        self.znodes = znodes
        self.sshd = sshd
        self.dead_port = free_ports(1)[0]
        self.locks: list[Any] = []
        self._configure()
        self.launcher = place.launch()
        self.command = CommandLine(self.launcher.path)
        self._happen()

    def _configure(self) -> None:
        place = self.place
        place.simulator.change(quota={"cores": 2})
        broken = {key: value for key, value in place.label.items() if key != "min-ram"}
        place.pool["labels"].append({**broken, "name": "gpu", "flavor-name": "m1.gpu"})
        place.others[0]["pools"][0]["labels"][0]["name"] = "arm"
        # However slow this machine is, its circuit breaker opens before its request fails.
        place.others[0]["launch-retries"] = 100
        common = {"labels": ["metal"], "username": "zuul", "host-key-checking": True}
        nodes = [
            {"name": "127.0.0.11", "connection-port": self.sshd.port, **common},
            {"name": "127.0.0.12", "connection-port": self.dead_port, **common},
        ]
        place.others.append({"name": "lab", "driver": "static", "pools": [{"name": "rack", "nodes": nodes}]})

    def _happen(self) -> None:
        place, znodes = self.place, self.znodes
        wait_for("the host that is up is registered", lambda: len(znodes.nodes("ready")) == 1)
        # Nodes 1 and 2 fill cloud-a; 3 is in cloud-b. The first one waits for its job, the second one runs it.
        for label in ("small", "small", "arm"):
            place.fulfilled(self.submit(label))
        self.locks.append(znodes.kazoo.Lock("/nodepool/nodes/0000000002/lock", "executor-1"))
        self.locks[-1].acquire()
        znodes.change_node("0000000002", state="in-use")
        self.submit("small")
        # One from before its start is not declined by a launcher that has just started.
        place.failed(self.submit("gpu", ago=0.0))
        self.cloud_b.change(errors=[{"operation": "*", "kind": "503", "message": "no server is available"}])
        self.submit("arm")
        wait_for("a launch fails, and its deletion, too", lambda: self._told("deletion failed", "node 0000000004"))
        znodes.change_node("0000000003", state="used")
        znodes.delete_request("200-0000000002")
        place.pool["max-servers"] = 10
        place.rewrite()
        held = self.command("hold", "0000000000", "--reason", "the disk is slow", "--for", "4h")
        assert (held.status, held.err) == (0, "")
        wait_for("the deletion keeps failing", lambda: self._told("deletion failed", "node 0000000003"))
        wait_for("the reload is told", lambda: self._told("reloaded"))
        wait_for("the provider is away", lambda: self._told("unavailable", "provider cloud-b"))
        wait_for("it is published", self._published, seconds=150)

    def _published(self) -> bool:
        """Do pools tell that the provider is away, and has a request that waits?"""
        found = {status.provider: status for status in pool_statuses(self.znodes)}
        waiting = {name: sum(kind.count for kind in status.waiting) for name, status in found.items()}
        assert waiting == {"cloud-a": 1, "cloud-b": 1, "lab": 1}, f"{waiting}"
        return found["cloud-b"].state == "unavailable"

    def _told(self, what: str, subject: str = "") -> bool:
        events = self.launcher.nodepool.events.last(1000)
        return any(event.what == what and subject in event.subject for event in events)

    def submit(self, label: str, ago: float = 900.0) -> str:
        """A request of a job, submitted so many seconds ago."""
        origin = {"tenant_name": "example", "job_name": f"unit-{label}", "pipeline": {"name": "check"}}
        created = time.time() - ago
        return self.znodes.submit([label], created_time=created, requestor_data=origin, tenant_name="example")

    def run(self, arguments: list[str]) -> str:
        """What a command says, with the names of the page instead of those of this machine."""
        names = {"l1": socket.gethostname(), "zuul@127.0.0.11:22": f"zuul@127.0.0.11:{self.sshd.port}"}
        result = self.command.on_terminal(*(names.get(word, word) for word in arguments), columns=COLUMNS)
        assert "Traceback" not in result.out
        return self.with_names(result.out)

    def with_names(self, text: str) -> str:
        names = {
            # On a busy machine.
            r"waiting for ZooKeeper at .*\s": "",
            re.escape(str(self.launcher.path)): "/etc/nodepool/nodepool.yaml",
            rf"\b({re.escape(socket.getfqdn())}|{re.escape(socket.gethostname())})\b": "l1",
            # In a column: blanks take the place of the other digits.
            rf"127\.0\.0\.(\d+):({self.sshd.port}|{self.dead_port})\b(?=  )": r"127.0.0.\1:22   ",
            rf"127\.0\.0\.(\d+):({self.sshd.port}|{self.dead_port})\b": r"127.0.0.\1:22",
            rf"\b{re.escape(getpass.getuser())}@": "alice@",
            r"http://127\.0\.0\.1:\d+": "https://cloud.example.org",
        }
        for pattern, name in names.items():
            text = re.sub(pattern, name, text)
        return text

    def end(self) -> None:
        """Nothing may be left."""
        for lock in self.locks:
            lock.release()
        self.cloud_b.change(errors=[])


@pytest.mark.timeout(300)
def test_commands_of_the_page(place: Place, neighbour: OpenStackSimulator, znodes: PoolZnodes, sshd: SshServer) -> None:
    night = Night(place, neighbour, znodes, sshd)
    try:
        if "REWRITE_TRANSCRIPTS" in os.environ:
            rewrite(PAGE, night.run)
            # The last commands have changed what the first ones say.
            return
        page = transcript(PAGE.read_text(encoding="utf-8"))
        assert len(page) >= 17
        for said in page:
            shown = comparable(night.run(said.arguments))
            assert shown == comparable(said.output), f"nodepool {' '.join(said.arguments)}"
    finally:
        night.end()
