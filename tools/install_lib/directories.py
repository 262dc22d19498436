# SPDX-License-Identifier: Apache-2.0
"""The directories of configuration, data and logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from install_lib.accounts import USER
from install_lib.host import Host
from install_lib.record import Record
from install_lib.steps import Look


@dataclass(frozen=True)
class Directory:
    """A directory that is Nodepool's own.

    One that is there keeps its mode. It is given to the daemons' user only if it is root's, and no link: what is
    elsewhere, or somebody else's, was so arranged by somebody.

    :param place: its last name is ``nodepool``, or that of a directory above it is.
    """

    host: Host
    record: Record
    place: str
    user: str
    mode: int

    def __post_init__(self) -> None:
        # A directory of the system, such as /run, is never given away.
        if USER not in self.place.split("/"):
            raise ValueError(self.place)

    @property
    def name(self) -> str:
        return f"directory {self.place}"

    def look(self) -> Look:
        path = self.host.path(self.place)
        if not path.is_dir():
            return Look(f"make directory {self.place} ({self.user}:{USER}, {self.mode:04o})")
        if self.host.is_tree or self.user == "root":
            return Look()
        owner = self.host.owner(path)
        if owner == self.user:
            return Look()
        if path.is_symlink() or owner != "root":
            return Look(remark=f"it belongs to {owner} and stays so; {self.user} has to be able to write there")
        return Look(f"give directory {self.place} to {self.user}")

    def do(self) -> None:
        path = self.host.path(self.place)
        if not path.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir()
            path.chmod(self.mode)
            self.record.note_made(self.place)
        self.host.own(path, self.user, USER)


#: Place, owner, mode. Those below /var and /run are as the units make them.
_ALL: Final = (
    ("/etc/nodepool", "root", 0o750),
    ("/var/lib/nodepool", USER, 0o755),
    ("/var/lib/nodepool/tmp", USER, 0o755),
    ("/var/log/nodepool", USER, 0o755),
)
#: For the pid files of daemons in the background. It is in memory: tmpfiles.d makes it again at each boot.
RUN: Final = ("/run/nodepool", USER, 0o755)


def directories(host: Host, record: Record) -> list[Directory]:
    """All of them. Not ``/run/nodepool`` in a tree: nothing of ``/run`` is packed."""
    wanted = _ALL if host.is_tree else (*_ALL, RUN)
    return [Directory(host, record, place, user, mode) for place, user, mode in wanted]
