# SPDX-License-Identifier: Apache-2.0
"""From an empty Debian 12 to the first own job: pages about ZooKeeper, hosts, Zuul and a cloud, command by command."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.functional.install import debian_zookeeper
from tests.functional.install.conftest import SOURCE
from tests.support.debian_tree import DebianTree
from tests.support.ports import free_ports
from tests.support.process import ChildProcess
from tests.support.tutorial_page import Step, sections
from tests.support.wait import wait_for

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


#: Two Debians, many packages, and all Ansible releases that Zuul knows.
pytestmark = pytest.mark.timeout(3000)

#: A daemon or a job on a busy machine; seconds.
PATIENCE: Final = 300.0


@pytest.fixture
def machines(make_debian: Callable[..., DebianTree], tmp_path: Path) -> Iterator[Machines]:
    both = Machines(make_debian("mount", user_namespaces=True), tmp_path)
    try:
        both.prepare()
        yield both
    finally:
        both.stop()
        (tmp_path / "transcript.txt").write_text("\n".join(both.transcript), encoding="utf-8")


def test_from_nothing_to_the_first_own_job(machines: Machines) -> None:
    zookeeper(machines)
    hosts(machines)
    zuul(machines)
    cloud(machines)


def zookeeper(machines: Machines) -> None:
    """A ZooKeeper with TLS answers to Nodepool."""
    page = sections("zookeeper.rst")
    (install,) = page["Install Nodepool"]
    machines.type(install.command)
    machines.do(page["Make the certificates"])
    machines.start_zookeeper()
    *steps, look = page["Look"]
    machines.do(steps)
    wait_until(machines, look, "", "ZooKeeper answers")


def hosts(machines: Machines) -> None:
    """Nodes of two machines are ready, and one of them leaves and comes back."""
    page = sections("hosts.rst")
    steps = page["Prepare the machines"]
    on_machines = next(index for index, step in enumerate(steps) if "openssh-server" in step.command)
    machines.do(steps[:on_machines])
    public = machines.main.path("/root/zuul-executor.pub").read_text(encoding="ascii")
    machines.node.path("/root/zuul-executor.pub").write_text(public, encoding="ascii")
    machines.do(steps[on_machines:], machine=machines.node)
    machines.start_ssh()
    machines.do(page["Write the configuration"])
    validate, check = page["Check it"]
    machines.do([validate])
    wait_until(machines, check, "", "both machines answer")
    machines.do(page["Start the launcher"])
    wait_until(machines, page["Look"][0], r"(?s)( ready .*){3}", "three nodes are ready")
    machines.do(page["Look"])
    quarantine, listing, release = page["Take a machine out of service"]
    machines.do([quarantine])
    wait_until(machines, listing, " hold ", "a node is on hold")
    machines.do([release])
    wait_until(machines, listing, r"(?s)( ready .*){3}", "three nodes are ready again")


def zuul(machines: Machines) -> None:
    """A job runs on a node, and the node is ready again afterwards."""
    page = sections("zuul.rst")
    packages, *rest = page["Install Zuul"]
    machines.do([packages])
    machines.start_database()
    machines.do(rest)
    for title in ("Configure Zuul", "Make the repositories", "Ask for a node"):
        machines.do(page[title])
    *daemons, projects = page["Start Zuul"]
    machines.do(daemons)
    wait_until(machines, projects, '"name": ?"example"', "Zuul has read its configuration")
    pause, commit, listing, explain, builds = page["Run the job"]
    before = ready(machines)
    machines.do([pause, commit])
    wait_until(machines, listing, r" in-use .* example .* localhost/example ", "the node is used")
    machines.do([explain])
    shown = wait_until(machines, builds, '"result": ?"[A-Z]', "Zuul has a result")
    (build,) = json.loads(shown)
    assert (build["job_name"], build["result"]) == ("first-own-job", "SUCCESS"), machines.log("zuul-executor")[-6000:]
    wait_until(machines, listing, r"(?s)( ready .*){3}", "three nodes are ready again")
    (used,), (new,) = before - ready(machines), ready(machines) - before
    log = machines.log("nodepool-launcher")
    assert f"Fulfilled node request with ready nodes {used}" in log
    assert f"Removed node; its slot is node {new} now" in log
    for name in ("nodepool-launcher", "zuul-executor"):
        assert "Traceback" not in machines.log(name)


def cloud(machines: Machines) -> None:
    """Two nodes of a simulated cloud; one is used up, and the cloud fails and comes back."""
    page = sections("cloud.rst")
    directory, simulator, *rest = page["Start the cloud"]
    machines.do([directory, simulator])
    file = machines.main.path("/etc/openstack/clouds.yaml")
    wait_for("the cloud has written how to log in", file.exists, PATIENCE)
    machines.do(rest)
    (added,) = page["Add a provider"]
    path = machines.main.path(added.path)
    config, more = yaml.safe_load(path.read_text(encoding="utf-8")), yaml.safe_load(added.text)
    path.write_text(yaml.safe_dump({**config, **{key: config[key] + more[key] for key in more}}), encoding="utf-8")
    validate, check, listing, providers = page["Look"]
    both = r"(?s)( ready .*){2}"
    machines.do([validate, check])
    wait_until(machines, listing, both, "two servers are ready")
    machines.do([providers])
    delete, _ = page["Use a node up"]
    machines.type(re.sub(r"0{5,}\d+", min(ready(machines, "cloud-1")), delete.command))
    wait_until(machines, listing, both, "another server is ready")
    install, fail, delete, providers, events = page["Let the cloud fail"]
    machines.do([install, fail])
    machines.type(re.sub(r"0{5,}\d+", min(ready(machines, "cloud-1")), delete.command))
    wait_until(machines, providers, r"\| unavailable +\|", "the circuit breaker is open")
    assert "cloud-1" in machines.type(events.command)
    come_back, providers, _ = page["Let it come back"]
    machines.do([come_back])
    wait_until(machines, providers, r"\| running +\|", "the provider is back")
    wait_until(machines, listing, both, "two servers are ready again")


def ready(machines: Machines, provider: str = "lab") -> set[str]:
    """Ids of the nodes that are ready."""
    nodes: list[dict[str, Any]] = json.loads(machines.main.output("nodepool", "list", "--format", "json"))
    return {node["id"] for node in nodes if (node["state"], node["provider"]) == ("ready", provider)}


def wait_until(machines: Machines, step: Step, pattern: str, what: str) -> str:
    """Blocks until a command succeeds and prints a pattern; then it is typed once more: what it printed."""

    def holds() -> bool:
        told = machines.main("sh", "-c", machines.differs(step.command))
        return told.status == 0 and re.search(pattern, told.out) is not None

    wait_for(what, holds, PATIENCE)
    return machines.type(step.command)
