# SPDX-License-Identifier: Apache-2.0
"""The machines of the tutorial: Debian trees, in which what the pages tell is done."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.functional.install import debian_zookeeper
from tests.functional.install.conftest import SOURCE
from tests.support.debian_tree import DebianTree
from tests.support.ports import free_ports
from tests.support.process import ChildProcess
from tests.support.tutorial_page import Step

#: The names of the pages are addresses of this machine.
NAMES: Final = {"zk1.example.com": "127.0.0.1", "node1.example.com": "127.0.1.11", "node2.example.com": "127.0.1.12"}
#: Commands that go on, each in a terminal of its own.
DAEMON: Final = re.compile(r"(nodepool-launcher|zuul-\w+) -f$|-m (simulators\.openstack) ")


class Machines:
    """One with Nodepool, ZooKeeper and Zuul, and one that stands for both static hosts.

    :param main: a tree in which user namespaces can be made; nothing is installed yet. :param directory: for logs.
    :ivar transcript: what was done, and what was printed.
    """

    def __init__(self, main: DebianTree, directory: Path) -> None:
        self.main = main
        node = main.root.parent / "node"
        subprocess.run(["cp", "-a", main.root, node], check=True)
        self.node = DebianTree(node, {})
        self.zookeeper_port, self.ssh_port, nodepool_web, zuul_web, finger, cloud = free_ports(6)
        # Other things may listen on the ports of the pages, and this machine may be busy.
        self._differs = [
            ("2281", str(self.zookeeper_port)),
            ("127.0.0.1:9000", f"127.0.0.1:{zuul_web}"),
            ("port=9000", f"port={zuul_web}"),
            ("8774", str(cloud)),
            ("[executor]\n", f"[executor]\nfinger_port={finger}\nload_multiplier=100\n"),
            ("webapp:\n  port: 8005\n", f"webapp:\n  listen_address: 127.0.0.1\n  port: {nodepool_web}\n"),
            ("username: zuul\n", f"username: zuul\n            connection-port: {self.ssh_port}\n"),
        ]
        self._directory = directory
        self._running: list[ChildProcess] = []
        self._ssh: ChildProcess | None = None
        self.transcript: list[str] = []

    def prepare(self) -> None:
        """What the machines of a new user are like already."""
        for machine in (self.main, self.node):
            policy = machine.path("/usr/sbin/policy-rc.d")
            policy.write_text("#!/bin/sh\nexit 101\n", encoding="ascii")
            policy.chmod(0o755)
            lines = [f"{address} {name}" for name, address in {"localhost": "127.0.0.1", **NAMES}.items()]
            machine.path("/etc/hosts").write_text("\n".join([*lines, ""]), encoding="ascii")
            machine.output("apt-get", "update")

    def do(self, steps: Sequence[Step], *, machine: DebianTree | None = None) -> list[str]:
        """Do what a section tells; a command that goes on is started. Blocks.

        :returns: what each command printed. :raises AssertionError: a command failed.
        """
        where = machine or self.main
        printed = []
        for step in steps:
            if step.path:
                self._write(where, step)
            elif daemon := DAEMON.search(step.command):
                self._start(step.command, daemon[1] or daemon[2])
            else:
                printed.append(self.type(step.command, where))
        return printed

    def type(self, command: str, machine: DebianTree | None = None) -> str:
        """Type a command: what it printed. Blocks."""
        typed = self.differs(command.replace("apt-get install", "DEBIAN_FRONTEND=noninteractive apt-get install --yes"))
        out = (machine or self.main).output("sh", "-ec", f"cd /root; {typed}")
        self.transcript.append(f"$ {command}\n{out}")
        return out

    def differs(self, text: str) -> str:
        """A text of a page, with what is different here."""
        for there, here in self._differs:
            text = text.replace(there, here)
        return text

    def _write(self, machine: DebianTree, step: Step) -> None:
        machine.path(step.path).write_text(self.differs(step.text), encoding="utf-8")
        self.transcript.append(f"wrote {step.path}\n")

    def _start(self, command: str, name: str) -> None:
        # The simulator is a part of the source, and not installed.
        place = SOURCE if name.startswith("simulators.") else "/"
        script = f"cd {place}; exec {self.differs(command)}"
        process = self.main.daemon(["sh", "-ec", script], self._directory / f"{name}.log")
        self._running.append(process)
        self.transcript.append(f"$ {command}\n")

    def log(self, name: str) -> str:
        """What a command that goes on has written."""
        return (self._directory / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def start_zookeeper(self) -> None:
        """The sections of tutorial/zookeeper about packages and files."""
        debian_zookeeper.start(self.main, self.zookeeper_port)

    def start_ssh(self) -> None:
        """As Debian's package does on a machine with systemd."""
        self.node.output("mkdir", "-p", "/run/sshd")
        command = ["/usr/sbin/sshd", "-D", "-e", "-p", str(self.ssh_port)]
        self._ssh = self.node.daemon(command, self._directory / "sshd.log", with_children=True)

    def start_database(self) -> None:
        """The same."""
        version, cluster, port, *_ = self.main.output("pg_lsclusters", "--no-header").split()
        self.main.output("pg_ctlcluster", version, cluster, "start")
        self._differs.append(("host=/run/postgresql", f"host=/run/postgresql&port={port}"))

    def stop(self) -> None:
        """End everything. Blocks."""
        for process in reversed(self._running):
            process.stop(seconds=60)
        if self._ssh is not None:
            self._ssh.kill()
        if self.main.path("/usr/bin/pg_lsclusters").exists():
            self.main("sh", "-c", "set -- $(pg_lsclusters --no-header); pg_ctlcluster --mode immediate $1 $2 stop")
        debian_zookeeper.stop(self.main)
