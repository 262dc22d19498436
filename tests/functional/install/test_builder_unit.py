# SPDX-License-Identifier: Apache-2.0
"""etc/nodepool-builder.service in a booted systemd: builds by diskimage-builder as root, and as a user with sudo."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.functional.install.conftest import INSTALL, booted_tree, configure
from tests.support.booted_debian import BootedDebian, why_not
from tests.support.debian_tree import DebianTree
from tests.support.image_znodes import Build, ImageZnodes
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer

ELEMENTS: Final = Path(__file__).parents[1] / "builder" / "elements"
UNIT: Final = "nodepool-builder"
DROP_IN: Final = f"/etc/systemd/system/{UNIT}.service.d/test.conf"
#: What diskimage-builder needs (how-to/install), and the element ``busybox-root``.
PACKAGES: Final = (
    *("busybox-static", "e2fsprogs", "kpartx", "dmsetup", "parted", "procps", "qemu-utils", "sudo", "python3-venv"),
    "mount",
)
TEMPORARY: Final = "/var/lib/nodepool/tmp"
#: A build on a busy machine; ends of a builder, which waits for traps and then kills; seconds.
PATIENCE: Final = 240.0
#: systemd ends a builder that is silent for so long, instead of the unit's time.
WATCHDOG_SECONDS: Final = 20

#: A Debian, many packages from PyPI, and some builds.
pytestmark = [
    pytest.mark.timeout(3000),
    pytest.mark.skipif(bool(why_not()), reason="no systemd can be booted here"),
    pytest.mark.skipif(not Path("/dev/loop-control").exists(), reason="there are no loop devices"),
]


class Site:
    """The builder of a Debian that is booted, and what it stored.

    :param booted: with Nodepool, not started yet.
    """

    def __init__(self, booted: BootedDebian, zookeeper: ZooKeeperServer, chroot: str) -> None:
        self.booted = booted
        self.records = ImageZnodes(zookeeper.plain_hosts(chroot))
        self._zookeeper = zookeeper
        self._chroot = chroot

    def configure(self, *, sleep_in: str = "") -> None:
        """:param sleep_in: phase of a build that does not end."""
        variables = {"DIB_JOURNAL_SIZE": "4", "DIB_IMAGE_EXTRA_SIZE": "16", "NODEPOOL_TEST_SLEEP": sleep_in}
        image = {
            "name": "small",
            "formats": ["qcow2"],
            "dib-cmd": "disk-image-create -n",
            "elements": ["busybox-root", "sleeper"],
            "env-vars": variables,
        }
        sections = {
            "images-dir": "/var/lib/nodepool/images",
            "build-log-dir": "/var/log/nodepool/builds",
            "elements-dir": "/etc/nodepool/elements",
            "diskimages": [image],
        }
        configure(self.booted.tree, self._zookeeper, self._chroot, sections)

    def settings(self, **settings: object) -> None:
        """A drop-in with settings of ``[Service]``."""
        path = self.booted.tree.path(DROP_IN)
        path.parent.mkdir(exist_ok=True)
        lines = [f"{name}={value}" for name, value in settings.items()]
        path.write_text("\n".join(["[Service]", *lines, ""]), encoding="ascii")
        self.booted.output("systemctl", "daemon-reload")

    def build(self, state: str, *but: str) -> Build:
        """Blocks until there is a build in a state. :param but: ids of others."""

        def found() -> Build | None:
            there = self.records.image("small").builds
            return next((build for build in there if build.state == state and build.build_id not in but), None)

        build = wait_for(f"a build is {state}", found, PATIENCE)
        assert build is not None
        return build

    def begin_to_sleep(self) -> Build:
        """Starts the builder; blocks until a build of it sleeps while its image is mounted."""
        # Not while one runs, which might build as before.
        self.booted.output("systemctl", "stop", UNIT)
        self.configure(sleep_in="finalise")
        self.records.request_build("small")
        self.booted.output("systemctl", "start", UNIT)
        build = self.build("building")
        log = self.booted.tree.path(f"/var/log/nodepool/builds/small-{build.build_id}.log")
        step = "dib-run-parts Running /tmp/in_target.d/finalise.d/50-sleep"
        wait_for("it sleeps", lambda: log.exists() and step in log.read_text(errors="replace"), PATIENCE)
        assert self.loop_devices()
        return build

    def loop_devices(self) -> list[str]:
        """Those of builds; their files' names tell, wherever these are mounted."""
        listed = self.booted.output("losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE")
        return [line for line in listed.splitlines() if "/nodepool-small-" in line]

    def wait_nothing_remains(self) -> None:
        """Blocks until no build has left a loop device, a file or a process."""
        directory = self.booted.tree.path(TEMPORARY)

        def nothing() -> bool:
            processes = self.booted("pgrep", "--list-full", "--full", "disk-image-create|50-sleep").out
            left = [*self.loop_devices(), *(entry.name for entry in directory.iterdir()), processes]
            assert not any(left), left
            return True

        wait_for("nothing of a build is left", nothing, PATIENCE)

    def journal(self) -> str:
        return self.booted.output("journalctl", "--no-pager", "--output=cat", f"--unit={UNIT}")


@pytest.fixture
def site(make_debian: Callable[..., DebianTree], zookeeper: ZooKeeperServer, chroot: str) -> Iterator[Site]:
    """Debian runs, and the builder is installed."""
    tree = make_debian(*PACKAGES)
    tree.output(*INSTALL)
    prepare(tree)
    with booted_tree(tree) as booted:
        site = Site(booted, zookeeper, chroot)
        site.records.start()
        yield site
    site.records.stop()


def prepare(tree: DebianTree) -> None:
    """Files that an operator makes once."""
    shutil.copytree(ELEMENTS, tree.path("/etc/nodepool/elements"))
    # The unit says which line.
    unit = tree.path(f"/usr/lib/systemd/system/{UNIT}.service").read_text(encoding="ascii")
    (line,) = (line[4:] for line in unit.splitlines() if line.startswith("#   nodepool ALL"))
    tree.path(f"/etc/sudoers.d/{UNIT}").write_text(f"{line}\n", encoding="ascii")
    # A file system of its own, as many machines have one.
    with tree.path("/etc/fstab").open("a", encoding="ascii") as table:
        table.write("tmpfs /var/lib/nodepool tmpfs mode=755,uid=nodepool,gid=nodepool 0 0\n")
    with tree.path("/etc/hosts").open("a", encoding="ascii") as hosts:
        hosts.write(f"127.0.1.1 {socket.gethostname()}\n")


def check_life(site: Site, user: str) -> None:
    """What the unit promises, for a user."""
    booted = site.booted
    site.settings(User=user, Group=user)
    site.configure()
    known = [build.build_id for build in site.records.image("small").builds]
    site.records.request_build("small")
    booted.output("systemctl", "start", UNIT)
    # It has said so itself (Type=notify).
    assert booted.property(UNIT, "ActiveState") == "active"
    build = site.build("ready", *known)
    file = f"/var/lib/nodepool/images/small-{build.build_id}.qcow2"
    assert booted.output("stat", "--format=%U:%G", file) == f"{user}:{user}\n"
    assert "QCOW" in booted.output("qemu-img", "info", file).upper()
    site.wait_nothing_remains()
    sleeping = site.begin_to_sleep()
    # Its mounts are its own.
    assert TEMPORARY not in booted.output("cat", "/proc/self/mounts")
    booted.output("systemctl", "stop", UNIT)
    assert (booted.property(UNIT, "ActiveState"), booted.property(UNIT, "Result")) == ("inactive", "success")
    site.wait_nothing_remains()
    assert site.records.image("small").lockers == []
    assert sleeping.build_id in [one.build_id for one in site.records.image("small").builds if one.state == "failed"]


def check_watchdog(site: Site) -> None:
    """A builder that stands still while it builds is ended and started again; it cleans up, and builds."""
    booted = site.booted
    site.settings(WatchdogSec=WATCHDOG_SECONDS)
    stuck = site.begin_to_sleep()
    known = [build.build_id for build in site.records.image("small").builds]
    site.configure()
    first = booted.property(UNIT, "MainPID")
    booted.output("kill", "-STOP", first)
    wait_for("systemd has started another one", lambda: booted.property(UNIT, "NRestarts") == "1", PATIENCE)
    assert booted.property(UNIT, "MainPID") != first
    assert "Watchdog timeout" in site.journal()
    site.build("ready", *known)
    site.wait_nothing_remains()
    wait_for(
        "the record of the build that it made is gone",
        lambda: stuck.build_id not in [one.build_id for one in site.records.image("small").builds],
        PATIENCE,
    )
    booted.output("systemctl", "stop", UNIT)


def test_unit(site: Site) -> None:
    """It starts, builds, stops and is watched: as the unit is, for a user with sudo, and then for root."""
    check_life(site, "nodepool")
    check_watchdog(site)
    site.booted.output("chown", "-R", "root:root", "/var/lib/nodepool", "/var/log/nodepool")
    check_life(site, "root")
    assert "Traceback" not in site.journal()
