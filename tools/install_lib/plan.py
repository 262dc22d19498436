# SPDX-License-Identifier: Apache-2.0
"""All steps of an installation, in their order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from install_lib.accounts import USER, Group, User
from install_lib.directories import RUN, directories
from install_lib.files import EditedFile, Link
from install_lib.host import Host
from install_lib.pages import COMPLETION, MAN, PAGES, SHELLS
from install_lib.record import Record
from install_lib.release import OldReleases, Release
from install_lib.steps import Look, Step

UNITS: Final = ("nodepool-launcher", "nodepool-builder", "nodepool-web")
PROGRAMS: Final = (*UNITS, "nodepool", "nodepool-tls")
UNIT_DIRECTORY: Final = "/etc/systemd/system"
CONFIGURATION: Final = "/etc/nodepool/nodepool.yaml"
_TMPFILES: Final = "/etc/tmpfiles.d/nodepool.conf"
_TMPFILES_TEXT: Final = f"""\
# For the pid files of daemons in the background. The units for systemd do not need it.
d {RUN[0]} {RUN[2]:04o} {RUN[1]} {USER} -
"""
#: Where each shell looks for completion besides its own packages.
_COMPLETION_PLACES: Final = {
    "bash": "/usr/local/share/bash-completion/completions/nodepool",
    "zsh": "/usr/local/share/zsh/site-functions/_nodepool",
    "fish": "/usr/local/share/fish/vendor_completions.d/nodepool.fish",
}


@dataclass(frozen=True)
class Reload:
    """systemd reads its units again, if one has changed.

    :param changed: one is written in this run.
    """

    host: Host
    changed: bool

    @property
    def name(self) -> str:
        return "systemd has read its units"

    def look(self) -> Look:
        if not self.host.has_systemd():
            return Look(remark="systemd does not run here")
        return Look("have systemd read its units") if self.changed or self._is_due() else Look()

    def do(self) -> None:
        self.host.run(["systemctl", "daemon-reload"])

    def _is_due(self) -> bool:
        """Did a run that failed leave it undone?"""
        units = [f"{name}.service" for name in UNITS]
        return "yes" in self.host.run(["systemctl", "show", "--property=NeedDaemonReload", "--value", *units]).split()


def edited_files(host: Host, record: Record, top: Path) -> list[EditedFile]:
    """The files that an operator may edit: units, configuration and what makes ``/run/nodepool``."""
    etc = top / "etc"
    units = [
        EditedFile(host, record, f"{UNIT_DIRECTORY}/{name}.service", (etc / f"{name}.service").read_bytes())
        for name in UNITS
    ]
    first = (etc / "nodepool-first.yaml").read_bytes()
    return [
        *units,
        EditedFile(host, record, _TMPFILES, _TMPFILES_TEXT.encode()),
        EditedFile(host, record, CONFIGURATION, first, 0o640, USER),
    ]


def links(host: Host, record: Record, release: Release) -> list[Link]:
    """The link to the virtual environment, and those into it: programs, completion, man pages."""
    directory = release.directory
    inside = {f"/usr/local/bin/{name}": f"bin/{name}" for name in PROGRAMS}
    inside |= {place: f"{COMPLETION}/{SHELLS[shell]}" for shell, place in _COMPLETION_PLACES.items()}
    if release.man_pages:
        inside |= {f"/usr/local/share/man/man1/{page}.1": f"{MAN}/{page}.1" for page in PAGES}
    first = Link(host, record, directory, os.path.basename(release.place))
    return [first, *(Link(host, record, place, f"{directory}/{target}") for place, target in inside.items())]


def steps(host: Host, record: Record, release: Release) -> Iterator[Step]:
    """What is installed, in an order in which each step finds what it needs."""
    yield Group(host, record)
    yield User(host, record)
    yield from directories(host, record)
    yield release
    yield from links(host, record, release)
    files = edited_files(host, record, release.source.top)
    units = [file for file in files if file.place.startswith(UNIT_DIRECTORY)]
    changed = any(unit.look().todo.startswith("write") for unit in units)
    yield from files
    yield Reload(host, changed)
    yield OldReleases(host, release)
