# SPDX-License-Identifier: Apache-2.0
"""The units of launcher and web pages in a booted systemd: what their sandbox has to allow, and what a stop leaves."""

from __future__ import annotations

import re
import shutil
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from simulators.openstack import OpenStackSimulator
from tests.functional.install.conftest import INSTALL, ROOT, booted_tree, configure
from tests.support.booted_debian import BootedDebian, why_not
from tests.support.debian_tree import DebianTree
from tests.support.pool_znodes import NODES, PoolZnodes
from tests.support.ports import free_ports
from tests.support.wait import present, wait_for
from tests.support.zookeeper import ZooKeeperServer

PAGE: Final = ROOT / "doc" / "source" / "tutorial" / "cloud.rst"
LAUNCHER: Final = "nodepool-launcher"
WEB: Final = "nodepool-web"
PID_FILE: Final = "/run/nodepool/nodepool.pid"
#: A daemon on a busy machine; seconds.
PATIENCE: Final = 240.0

#: A Debian and many packages from PyPI.
pytestmark = [
    pytest.mark.timeout(3000),
    pytest.mark.skipif(bool(why_not()), reason="no systemd can be booted here"),
]


def cloud_of_the_tutorial() -> dict[str, Any]:
    """Its label and its provider."""
    (block,) = re.findall(r"^\.\. code-block:: yaml\n\n((?: +.*\n|\n)+)", PAGE.read_text("utf-8"), re.MULTILINE)
    read: dict[str, Any] = yaml.safe_load(textwrap.dedent(block))
    return read


@pytest.fixture
def booted(make_debian: Callable[..., DebianTree], zookeeper: ZooKeeperServer, chroot: str) -> Iterator[BootedDebian]:
    """Debian runs, Nodepool is installed, and the cloud of the tutorial is configured."""
    tree = make_debian("mount")
    tree.output(*INSTALL)
    webapp = {"listen_address": "127.0.0.1", "port": free_ports(1)[0]}
    configure(tree, zookeeper, chroot, {"webapp": webapp, **cloud_of_the_tutorial()})
    with booted_tree(tree) as machine:
        yield machine


def test_units(booted: BootedDebian) -> None:
    """Nodes of a cloud become ready under systemd; afterwards a start in the background works at once."""
    with OpenStackSimulator() as cloud:
        configure_cloud(booted, cloud)
        booted.output("systemctl", "enable", "--now", LAUNCHER)
        assert booted.property(LAUNCHER, "ActiveState") == "active"
        wait_for("the nodes of min-ready are there", lambda: listed(booted).count(" ready ") == 2, PATIENCE)
        booted.output("systemctl", "stop", LAUNCHER)
        assert (booted.property(LAUNCHER, "ActiveState"), booted.property(LAUNCHER, "Result")) == (
            "inactive",
            "success",
        )
        in_the_background(booted)
        booted.output("systemctl", "start", WEB)
        wait_for("the pages are served", lambda: booted("nodepool", "health", "--web").status == 0, PATIENCE)
        booted.output("systemctl", "stop", WEB)
    journal = booted.output("journalctl", "--no-pager", "--output=cat", f"--unit={LAUNCHER}", f"--unit={WEB}")
    assert "Traceback" not in journal
    assert " ERROR " not in journal


def test_upgrade(booted: BootedDebian, package: Path, znodes: PoolZnodes, tmp_path: Path) -> None:
    """A newer package while a job runs and a node is launched: new daemons, nothing is lost or made twice."""
    with OpenStackSimulator() as cloud:
        configure_cloud(booted, cloud)
        booted.output("systemctl", "enable", "--now", LAUNCHER, WEB)
        (held,) = znodes.served(znodes.submit(["virtual"]), PATIENCE)
        znodes.change_node(held["id"], state="in-use")
        lock = znodes.kazoo.Lock(f"{NODES}/{held['id']}/lock")
        assert lock.acquire(blocking=False)
        wait_for("the nodes of min-ready are there", lambda: len(znodes.free_nodes()) == 2, PATIENCE)
        cloud.change(boots=[{"kind": "stuck"}])
        waiting = znodes.submit(["virtual"] * 3)
        wait_for("a node of it is launched", lambda: len(servers(cloud)) == 4, PATIENCE)
        before, daemons = servers(cloud), main_processes(booted)
        newer_package(package, "99", tmp_path, booted.tree.path("/root/newer.deb"))
        configuration = booted.tree.path("/etc/nodepool/nodepool.yaml").read_bytes()
        booted.output("apt-get", "install", "--yes", "--option=Dpkg::Options::=--force-confold", "/root/newer.deb")
        assert booted.tree.path("/etc/nodepool/nodepool.yaml").read_bytes() == configuration
        assert "99" in booted.output("dpkg-query", "--show", "nodepool")
        assert not main_processes(booted) & daemons
        assert servers(cloud) == before
        cloud.change(boots=[])
        with cloud.cloud() as contents:
            contents.compute.release_stuck()
        nodes = znodes.served(waiting, PATIENCE)
        assert {node["external_id"] for node in [held, *nodes]} == servers(cloud) == before
        assert present(znodes.node(held["id"]))["state"] == "in-use"
        wait_for("the pages are served", lambda: booted("nodepool", "health", "--web").status == 0, PATIENCE)
        lock.release()


def configure_cloud(booted: BootedDebian, cloud: OpenStackSimulator) -> None:
    """Write ``clouds.yaml`` where all daemons find it."""
    file = booted.tree.path("/etc/openstack/clouds.yaml")
    file.parent.mkdir()
    cloud.write_clouds_yaml(file)
    file.chmod(0o644)


def servers(cloud: OpenStackSimulator) -> set[str]:
    """Ids of all servers."""
    with cloud.cloud() as contents:
        return {server.id for server in contents.compute.servers}


def main_processes(booted: BootedDebian) -> set[str]:
    """Of the daemons that run."""
    return {booted.property(unit, "MainPID") for unit in (LAUNCHER, WEB)} - {"0"}


def newer_package(package: Path, version: str, directory: Path, made: Path) -> None:
    """The same package with another version and another first configuration. Blocks for a minute."""
    tree = directory / "newer"
    subprocess.run(["dpkg-deb", "-R", package, tree], check=True)
    control = tree / "DEBIAN" / "control"
    text = control.read_text(encoding="utf-8")
    control.write_text(re.sub("^Version: .*", f"Version: {version}", text, flags=re.MULTILINE), encoding="utf-8")
    with (tree / "etc" / "nodepool" / "nodepool.yaml").open("a", encoding="utf-8") as first:
        first.write("# Newer.\n")
    subprocess.run(["dpkg-deb", "-Znone", "-b", tree, made], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(tree)


def listed(booted: BootedDebian) -> str:
    """The nodes, as the command line shows them."""
    return booted("nodepool", "list").out


def in_the_background(booted: BootedDebian) -> None:
    """Start, look and stop."""
    booted.output("runuser", "-u", "nodepool", "--", LAUNCHER)
    wait_for("the launcher serves", lambda: "virtual" in booted("nodepool", "label-list").out, PATIENCE)
    booted.output("sh", "-ec", f"kill $(cat {PID_FILE})")
    wait_for("it has ended", lambda: booted("test", "-e", PID_FILE).status != 0, PATIENCE)
