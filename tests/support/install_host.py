# SPDX-License-Identifier: Apache-2.0
"""A machine for tools/install in a directory: accounts in memory, and commands that only leave their traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from install_lib.errors import InstallError
from install_lib.host import Host
from install_lib.pages import PAGES


class InstallHost(Host):
    """In a directory, but with accounts and owners, as on a real machine.

    :ivar commands: what was run. :ivar fails: a command with this word in it fails.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.accounts: set[str] = set()
        self.owners: dict[str, str] = {}
        self.commands: list[list[str]] = []
        self.fails = ""
        self.systemd = False
        self.running: dict[str, int] = {}

    @property
    def is_tree(self) -> bool:
        return False

    def run(self, command: Sequence[str], *, env: Mapping[str, str] | None = None, log: Path | None = None) -> str:
        self.commands.append(list(command))
        if self.fails and self.fails in command:
            raise InstallError(f"{command[0]} failed")
        if command[0] in {"groupadd", "useradd"}:
            self.accounts.add(f"{command[0][:-3]} {command[-1]}")
        if command[0] in {"groupdel", "userdel"}:
            self.accounts.discard(f"{command[0][:-3]} {command[-1]}")
        if command[-2] == "venv":
            (Path(command[-1]) / "bin").mkdir(parents=True)
            (Path(command[-1]) / "pyvenv.cfg").touch()
        if "sphinx" in command:
            pages = Path(command[-1])
            pages.mkdir(parents=True)
            for page in PAGES:
                (pages / f"{page}.1").write_text(page, encoding="utf-8")
        return ""

    def has_user(self, name: str) -> bool:
        return f"user {name}" in self.accounts

    def has_group(self, name: str) -> bool:
        return f"group {name}" in self.accounts

    def owner(self, path: Path) -> str:
        return self.owners.get(str(path), "root")

    def own(self, path: Path, user: str, group: str) -> None:
        self.owners[str(path)] = user

    def has_systemd(self) -> bool:
        return self.systemd

    def processes(self, text: str) -> list[int]:
        return [number for place, number in self.running.items() if place.startswith(text)]

    def ran(self, word: str) -> list[list[str]]:
        """The commands with a word in them."""
        return [command for command in self.commands if word in command]


def snapshot(root: Path) -> dict[str, tuple[int, object]]:
    """Everything below a directory: mode, and content or target."""
    found: dict[str, tuple[int, object]] = {}
    for path in sorted(root.rglob("*")):
        content: object = None
        if path.is_symlink():
            content = path.readlink()
        elif path.is_file():
            content = (path.read_bytes(), path.stat().st_mtime_ns)
        found[str(path.relative_to(root))] = (path.lstat().st_mode, content)
    return found
