# SPDX-License-Identifier: Apache-2.0
"""The machine that is changed, or the tree of ``--root`` that stands for one."""

from __future__ import annotations

import grp
import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from install_lib.errors import InstallError

#: How much is shown of the output of a command that failed, in lines.
_SHOWN_LINES: Final = 20
#: Where useradd is, also for who became root without root's own PATH.
_ADMIN_PATH: Final = "/usr/local/sbin:/usr/sbin:/sbin"


class Host:
    """Paths, accounts and commands of a machine.

    :param root: a tree that stands for ``/``; None = this machine. A tree has neither accounts nor services: nothing
        in it changes its owner, and no right of root is needed.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = root

    @property
    def is_tree(self) -> bool:
        """Is it a tree, and not this machine?"""
        return self.root is not None

    def path(self, place: str) -> Path:
        """Where a place of the machine, e.g. ``/etc/nodepool``, is now."""
        return Path(place) if self.root is None else self.root / place.lstrip("/")

    def run(self, command: Sequence[str], *, env: Mapping[str, str] | None = None, log: Path | None = None) -> str:
        """Run a command. Blocks. Returns what it printed.

        :param env: variables besides those of this process. :param log: its output is added to this file, too.
        :raises InstallError: it failed; with the end of its output.
        """
        path = f"{os.environ.get('PATH', '/usr/bin:/bin')}:{_ADMIN_PATH}"
        variables = {**os.environ, "PATH": path, **(env or {})}
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=variables,
                check=False,
            )
        except OSError as error:
            raise InstallError(f"cannot run {command[0]}: {error.strerror}") from error
        if log is not None:
            with log.open("a", encoding="utf-8") as file:
                file.write(done.stdout)
        if done.returncode != 0:
            end = "\n".join(done.stdout.strip().splitlines()[-_SHOWN_LINES:])
            raise InstallError(f"{' '.join(command)}: exit code {done.returncode}\n{end}")
        return done.stdout

    def has_user(self, name: str) -> bool:
        """Is there such a user?"""
        try:
            pwd.getpwnam(name)
        except KeyError:
            return False
        return True

    def has_group(self, name: str) -> bool:
        """Is there such a group?"""
        try:
            grp.getgrnam(name)
        except KeyError:
            return False
        return True

    def owner(self, path: Path) -> str:
        """User of a file, by name, or by number if it has none."""
        number = path.stat().st_uid
        try:
            return pwd.getpwuid(number).pw_name
        except KeyError:
            return str(number)

    def own(self, path: Path, user: str, group: str) -> None:
        """Give a file to a user and a group. In a tree nothing happens."""
        if not self.is_tree:
            os.chown(path, pwd.getpwnam(user).pw_uid, grp.getgrnam(group).gr_gid, follow_symlinks=False)

    def has_systemd(self) -> bool:
        """Does systemd run here?"""
        return not self.is_tree and Path("/run/systemd/system").is_dir()

    def processes(self, text: str) -> list[int]:
        """Ids of the processes that have a text in their command line."""
        if self.is_tree:
            return []
        found = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = file.read_bytes()
            except OSError:
                # It has ended meanwhile.
                continue
            if text.encode() in words and int(file.parent.name) != os.getpid():
                found.append(int(file.parent.name))
        return sorted(found)
