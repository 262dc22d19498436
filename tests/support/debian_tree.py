# SPDX-License-Identifier: Apache-2.0
"""A small Debian in a directory, and commands that run in it (root)."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.support.command_line import Result
from tests.support.process import ChildProcess

#: One command, also one with many packages; seconds.
DEADLINE_SECONDS: Final = 1800.0
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def debootstrap(directory: Path, packages: Sequence[str], release: str = "bookworm") -> None:
    """Make a small Debian, by default Debian 12. Blocks for a minute.

    :param packages: what it has besides the least.
    """
    directory.mkdir(parents=True)
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}", release]
    log = directory.parent / "debootstrap.log"
    with log.open("wb") as output:
        done = subprocess.run(
            [*command, str(directory)], stdout=output, stderr=output, timeout=DEADLINE_SECONDS, check=False
        )
    assert done.returncode == 0, log.read_text(encoding="utf-8", errors="replace")[-2000:]
    # It is thrown away: dpkg need not wait for the disk.
    (directory / "etc" / "dpkg" / "dpkg.cfg.d" / "unsafe-io").write_text("force-unsafe-io\n", encoding="ascii")
    for archive in (directory / "var" / "cache" / "apt" / "archives").glob("*.deb"):
        archive.unlink()


def pip_files(directory: Path) -> dict[Path, str]:
    """What pip elsewhere needs to reach the index of packages as on this machine, which may be behind a proxy.

    :param directory: for the files. Returns file -> where it has to be.
    """
    files = {}
    lines = ["[global]"]
    bundle = Path(os.environ.get("PIP_CERT") or os.environ.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt")
    if bundle.is_file():
        shutil.copy(bundle, directory / "authorities.pem")
        files[directory / "authorities.pem"] = "/run/authorities.pem"
        lines.append("cert = /run/authorities.pem")
    if index := os.environ.get("PIP_INDEX_URL"):
        lines.append(f"index-url = {index}")
    (directory / "pip.conf").write_text("\n".join([*lines, ""]), encoding="utf-8")
    return {**files, directory / "pip.conf": "/etc/pip.conf"}


class Machine:
    """Runs commands in a Debian."""

    def into(self) -> list[str]:
        """What stands before a command."""
        raise NotImplementedError

    def __call__(self, *command: str) -> Result:
        """Run a command to its end. Blocks."""
        done = subprocess.run(
            [*self.into(), *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def output(self, *command: str) -> str:
        """The same for a command that has to succeed: what it printed."""
        done = self(*command)
        assert done.status == 0, f"{' '.join(command)}:\n{done.out[-4000:]}\n{done.err[-4000:]}"
        return done.out


class DebianTree(Machine):
    """Runs commands in the tree, with the network of this machine.

    :param root: the tree. :param mounts: path of this machine -> where it can be read, and only read, in the tree.
    :param user_namespaces: commands may make some, as bubblewrap does; the tree has the package mount then. The kernel
        refuses them after chroot.
    """

    def __init__(self, root: Path, mounts: Mapping[Path, str], *, user_namespaces: bool = False) -> None:
        self.root = root
        lines = ["mount --make-rprivate /"]
        if user_namespaces:
            lines.append(f"mount --bind {root} {root}")
        lines += [f"mount -t proc proc {root}/proc", f"mount --rbind /dev {root}/dev"]
        for source, place in mounts.items():
            target = self.path(place)
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                target.mkdir(exist_ok=True)
            else:
                target.touch()
            lines += [f"mount --bind {source} {target}", f"mount -o remount,bind,ro {target}"]
        environment = ["env", "-i", f"PATH={_PATH}", "HOME=/root", "LANG=C.UTF-8"]
        if user_namespaces:
            lines += [f"cd {root}", "pivot_root . .", "umount -l .", "cd /"]
            into = environment
        else:
            into = ["chroot", str(root), *environment]
        # The mounts are gone with the last process of the command.
        lines.append(f'exec {shlex.join(into)} "$@"')
        self._before = ["sh", "-ec", "\n".join(lines), "tree"]

    def path(self, place: str) -> Path:
        """Where a place of the tree is on this machine."""
        return self.root / place.lstrip("/")

    def into(self) -> list[str]:
        return ["unshare", "--mount", *self._before]

    def daemon(self, command: Sequence[str], log: Path, *, with_children: bool = False) -> ChildProcess:
        """Start a command that goes on; the caller stops it.

        :param with_children: what it leaves running ends with it. It is ended by SIGKILL only.
        """
        options = ["--mount", "--pid", "--fork", "--kill-child"] if with_children else ["--mount"]
        process = ChildProcess(["unshare", *options, *self._before, *command], log)
        process.start()
        return process
