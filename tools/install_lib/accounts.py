# SPDX-License-Identifier: Apache-2.0
"""The user and the group of the daemons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from install_lib.host import Host
from install_lib.record import Record
from install_lib.steps import Look

USER: Final = "nodepool"
HOME: Final = "/var/lib/nodepool"


@dataclass(frozen=True)
class Group:
    """The system group."""

    host: Host
    record: Record

    @property
    def name(self) -> str:
        return f"group {USER}"

    def look(self) -> Look:
        if self.host.is_tree:
            return Look(remark="a tree has no accounts: the package has to make it")
        return Look() if self.host.has_group(USER) else Look(f"make group {USER}")

    def do(self) -> None:
        self.host.run(["groupadd", "--system", USER])
        self.record.note_made(self.name)


@dataclass(frozen=True)
class User:
    """The system user. One that is there stays as it is."""

    host: Host
    record: Record

    @property
    def name(self) -> str:
        return f"user {USER}"

    def look(self) -> Look:
        if self.host.is_tree:
            return Look(remark="a tree has no accounts: the package has to make it")
        return Look() if self.host.has_user(USER) else Look(f"make user {USER} (home {HOME}, no login)")

    def do(self) -> None:
        settings = ["--system", "--gid", USER, "--home-dir", HOME, "--no-create-home", "--shell", "/usr/sbin/nologin"]
        self.host.run(["useradd", *settings, USER])
        self.record.note_made(self.name)
