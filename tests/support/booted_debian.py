# SPDX-License-Identifier: Apache-2.0
"""A Debian in a directory that is booted: its systemd is the first process of a namespace (root)."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Final

from tests.support.debian_tree import DebianTree, Machine
from tests.support.process import ChildProcess
from tests.support.wait import wait_for

#: Until it has started its services; seconds, on a busy machine.
BOOT_SECONDS: Final = 120.0
_NAMESPACES: Final = ("--mount", "--uts", "--ipc", "--pid", "--cgroup")
_ENVIRONMENT: Final = ("env", "-i", "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8")
#: With a group of its own, in which systemd may do as it likes; $1 is the tree, $2 an empty directory, $3 a name.
_INTO_GROUP: Final = """
mount --make-rprivate /
mount -t cgroup2 cgroup2 "$2"
mkdir -p "$2/$3"
echo 0 > "$2/$3/cgroup.procs"
exec unshare --mount --cgroup sh -ec "$0" boot "$1"
"""
#: Loop devices are this machine's: builds need them. All else that systemd would change of the machine is read-only, or
#: the tree's own: systemd sets owners and permissions of devices.
_BOOT: Final = """
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount --bind "$1/proc/sys" "$1/proc/sys"
mount -o remount,bind,ro "$1/proc/sys"
mount -t sysfs -o ro sysfs "$1/sys"
mount -t cgroup2 cgroup2 "$1/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$1/dev"
mkdir "$1/dev/pts" "$1/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$1/dev/pts"
ln -s pts/ptmx "$1/dev/ptmx"
ln -s /proc/self/fd "$1/dev/fd"
node() { mknod -m "$1" "$2/dev/$3" "$4" "$5" "$6"; }
node 666 "$1" null c 1 3
node 600 "$1" console c 1 3
node 666 "$1" zero c 1 5
node 666 "$1" full c 1 7
node 666 "$1" random c 1 8
node 666 "$1" urandom c 1 9
node 666 "$1" tty c 5 0
node 600 "$1" loop-control c 10 237
for number in $(seq 0 63); do node 600 "$1" "loop$number" b 7 "$number"; done
for place in run tmp; do mount -t tmpfs -o mode=755 tmpfs "$1/$place"; done
chmod 1777 "$1/tmp"
exec env -i "PATH=$PATH" container=other chroot "$1" /lib/systemd/systemd --unit=multi-user.target
"""


def why_not() -> str:
    """What keeps this machine from booting one; empty = nothing does."""
    options = ["--mount", "--pid", "--fork", "--uts", "--ipc", "--cgroup"]
    command = ["unshare", *options, "mount", "-t", "cgroup2", "n", "/mnt"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"no systemd can be booted here: {done.stderr.strip()}"


class BootedDebian(Machine):
    """Runs commands beside the systemd of a tree, with the network of this machine.

    :param tree: with the packages systemd and util-linux.
    :param directory: empty; for what this needs itself.
    """

    def __init__(self, tree: DebianTree, directory: Path) -> None:
        self.tree = tree
        self._name = f"nodepool-test-{os.getpid()}"
        self._groups = directory / "groups"
        self._groups.mkdir()
        names = [option for option in _NAMESPACES if option != "--cgroup"]
        arguments = [_BOOT, str(tree.root), str(self._groups), self._name]
        self._process = ChildProcess(
            ["unshare", *names, "--fork", "sh", "-ec", _INTO_GROUP, *arguments], directory / "boot.log"
        )

    def start(self) -> None:
        """Boot it; blocks until all is started. ``systemctl`` works then."""
        # No terminals: those of this machine are somebody else's.
        for unit in (
            "console-getty.service",
            "getty.target",
            "systemd-remount-fs.service",
            "systemd-modules-load.service",
        ):
            self.tree.output("systemctl", "mask", unit)
        self._process.start()
        wait_for("systemd has booted", self._is_up, BOOT_SECONDS)

    def _is_up(self) -> bool:
        if not self._process.running:
            raise ChildProcessError(f"systemd has ended: {self._process.log_text()}")
        return self._first() is not None and self("systemctl", "is-system-running").out.strip() in (
            "running",
            "degraded",
        )

    def _first(self) -> int | None:
        """Id of its systemd on this machine; None = it is not there."""
        pid = self._process.pid
        with contextlib.suppress(OSError, ValueError):
            first = int(Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii"))
            if Path(f"/proc/{first}/comm").read_text(encoding="ascii").strip() == "systemd":
                return first
        return None

    def into(self) -> list[str]:
        return ["nsenter", f"--target={self._first()}", *_NAMESPACES, "--root", "--wd", *_ENVIRONMENT]

    def property(self, unit: str, name: str) -> str:
        """As ``systemctl show`` tells it."""
        return self.output("systemctl", "show", "--value", f"--property={name}", unit).strip()

    def stop(self) -> None:
        """End all of it, at once. Blocks."""
        first = self._first()
        if first is not None:
            os.kill(first, signal.SIGKILL)
        self._process.stop()
        script = f'mount -t cgroup2 cgroup2 "$1" && find "$1/{self._name}" -depth -type d -exec rmdir {{}} +'
        subprocess.run(["unshare", "--mount", "sh", "-ec", script, "clean", str(self._groups)], check=True)
        shutil.rmtree(self._groups)
