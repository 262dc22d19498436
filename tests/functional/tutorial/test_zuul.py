# SPDX-License-Identifier: Apache-2.0
"""From an empty Debian 12 to the first own job: pages about ZooKeeper, hosts, Zuul and a cloud, command by command."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.functional.install.conftest import SOURCE
from tests.functional.tutorial.machines import Machines
from tests.support.debian_tree import DebianTree
from tests.support.tutorial_page import Step, sections
from tests.support.wait import wait_for

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
    machines.type(f"cd {SOURCE} && {install.command}")
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
    fail, delete, providers, events = page["Let the cloud fail"]
    machines.do([fail])
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
