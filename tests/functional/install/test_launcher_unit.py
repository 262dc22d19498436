# SPDX-License-Identifier: Apache-2.0
"""The units of launcher and web pages in a booted systemd: what their sandbox has to allow, and what a stop leaves."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import yaml

from simulators.openstack import OpenStackSimulator
from tests.functional.install.conftest import INSTALL, ROOT, booted_tree, configure
from tests.support.booted_debian import BootedDebian, why_not
from tests.support.debian_tree import DebianTree
from tests.support.ports import free_ports
from tests.support.wait import wait_for
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
        file = booted.tree.path("/etc/openstack/clouds.yaml")
        file.parent.mkdir()
        cloud.write_clouds_yaml(file)
        file.chmod(0o644)
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


def test_upgrade(booted: BootedDebian, zookeeper: ZooKeeperServer, chroot: str) -> None:
    """A newer package while a job runs and nodes are launched: the launcher is another one, nothing is lost or made twice."""
    with OpenStackSimulator() as cloud, PoolZnodes(zookeeper, chroot) as zuul:
        file = booted.tree.path("/etc/openstack/clouds.yaml")
        file.parent.mkdir()
        cloud.write_clouds_yaml(file)
        file.chmod(0o644)
        booted.output("systemctl", "enable", "--now", LAUNCHER, WEB)
        wait_for("the nodes of min-ready are there", lambda: listed(booted).count(" ready ") == 2, PATIENCE)
        (held,) = zuul.fulfilled(zuul.submit(["virtual"]))
        before = [booted.property(unit, "MainPID") for unit in (LAUNCHER, WEB)]
        waiting = zuul.submit(["virtual"])
        make = "dpkg-deb -R /root/nodepool_*.deb /root/newer && sed -i 's/^Version:.*/Version: 99/' /root/newer/DEBIAN/control"
        booted.output(
            "sh",
            "-ec",
            f"{make} && dpkg-deb -Znone -b /root/newer /root/newer.deb && apt-get install --yes /root/newer.deb",
        )
        assert not {booted.property(unit, "MainPID") for unit in (LAUNCHER, WEB)} & set(before)
        zuul.fulfilled(waiting)
        assert zuul.node(held)["state"] == "ready"
        wait_for("the nodes of min-ready are there", lambda: listed(booted).count(" ready ") == 4, PATIENCE)
        assert len(cloud.servers()) == 4


def listed(booted: BootedDebian) -> str:
    """The nodes, as the command line shows them."""
    return booted("nodepool", "list").out


def in_the_background(booted: BootedDebian) -> None:
    """Start, look and stop."""
    booted.output("runuser", "-u", "nodepool", "--", LAUNCHER)
    wait_for("the launcher serves", lambda: "virtual" in booted("nodepool", "label-list").out, PATIENCE)
    booted.output("sh", "-ec", f"kill $(cat {PID_FILE})")
    wait_for("it has ended", lambda: booted("test", "-e", PID_FILE).status != 0, PATIENCE)
