# SPDX-License-Identifier: Apache-2.0
"""The virtual environment: each release has its own, and a link says which one is used.

So a run that fails leaves the one before as it is, and daemons that run keep their files until they are restarted.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from install_lib.accounts import USER
from install_lib.errors import InstallError
from install_lib.host import Host
from install_lib.pages import COMPLETION, write_completion, write_man_pages
from install_lib.record import Record
from install_lib.source import Source
from install_lib.steps import Look

#: Says of a directory that it is a complete virtual environment of ours. nodepool.version reads it, too.
STAMP: Final = "nodepool-install.json"
#: What a virtual environment of ours has. Where there is more somebody has put it there.
_OURS: Final = {"bin", "include", "install.log", "lib", "lib64", "pyvenv.cfg", "share", STAMP}


@dataclass(frozen=True)
class Release:
    """The virtual environment with the programs, their completion and their man pages.

    :param directory: the link to it; it stands beside the link, with release and stamp in its name.
    """

    host: Host
    source: Source
    directory: str
    man_pages: bool = True

    @cached_property
    def stamp(self) -> str:
        """Of all that it is made of."""
        return self.source.stamp(f"{sys.version} {sys._base_executable} {self.man_pages}")  # type: ignore[attr-defined]

    @cached_property
    def place(self) -> str:
        """Where it is."""
        return f"{self.directory}-{self.source.release()}-{self.stamp[:8]}"

    @property
    def name(self) -> str:
        return f"virtual environment {self.place}"

    def look(self) -> Look:
        if read_stamp(self.host.path(self.place)).get("stamp") == self.stamp:
            return Look()
        more = [*(f"extra {name}" for name in self.source.extras), *self.source.also]
        return Look(f"make {self.name} with Nodepool{''.join(f', {one}' for one in more)} (takes some minutes)")

    def do(self) -> None:
        path = self.host.path(self.place)
        # Half of one, of a run that failed.
        shutil.rmtree(path, ignore_errors=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.host.run([sys.executable, "-m", "venv", str(path)])
        with tempfile.TemporaryDirectory(prefix="nodepool-install-") as temporary:
            copied = Path(temporary) / "source"
            self.source.copy(copied)
            log = path / "install.log"
            pip = [
                str(path / "bin" / "python"),
                "-m",
                "pip",
                "install",
                "--disable-pip-version-check",
                "--no-cache-dir",
            ]
            self.host.run([*pip, *self.source.requirements(copied)], log=log)
            write_completion(self.host, path)
            if self.man_pages:
                write_man_pages(self.host, path, copied, log)
        if self.host.is_tree:
            _as_if_at_home(path, str(self.host.root))
        else:
            # The daemons' user has to get there, whatever the umask was and wherever Python is.
            self.host.run(["runuser", "-u", USER, "--", str(path / "bin" / "nodepool"), "--version"])
        wheel = str(self.source.wheel) if self.source.wheel else None
        told = {"stamp": self.stamp, "source": str(self.source.top), "wheel": wheel, "directory": self.directory}
        text = json.dumps({**told, "extras": list(self.source.extras), "also": list(self.source.also)}, indent=1)
        (path / STAMP).write_text(text + "\n", encoding="utf-8")


@dataclass(frozen=True)
class OldReleases:
    """Virtual environments that are not used any more. The one before stays, for going back."""

    host: Host
    release: Release

    @property
    def name(self) -> str:
        return "no older virtual environments"

    def look(self) -> Look:
        gone, kept = self._sorted()
        remark = "; ".join(f"{place} stays: {why}" for place, why in kept.items())
        return Look(f"remove {', '.join(gone)}" if gone else "", remark)

    def do(self) -> None:
        for place in self._sorted()[0]:
            shutil.rmtree(self.host.path(place))

    def _sorted(self) -> tuple[list[str], dict[str, str]]:
        places = [place for place in releases(self.host, self.release.directory) if place != self.release.place]
        places.sort(key=lambda place: self.host.path(place).joinpath(STAMP).stat().st_mtime)
        gone, kept = [], {}
        for place in places[:-1]:
            if more := foreign(self.host.path(place)):
                kept[place] = f"it also has {', '.join(more)}"
            elif self.host.processes(f"{place}/"):
                kept[place] = "a process uses it"
            else:
                gone.append(place)
        return gone, kept


def releases(host: Host, directory: str) -> list[str]:
    """The complete virtual environments of ours."""
    parent, name = os.path.split(directory)
    there = sorted(host.path(parent).glob(f"{name}-*"))
    return [os.path.join(parent, path.name) for path in there if not path.is_symlink() and (path / STAMP).is_file()]


def foreign(path: Path) -> list[str]:
    """What is in a virtual environment of ours that we have not put there."""
    return sorted(one.name for one in path.iterdir() if one.name not in _OURS)


def check_directory(host: Host, record: Record, directory: str) -> None:
    """:raises InstallError: something else has the name of the link."""
    path = host.path(directory)
    if path.is_symlink():
        ours = record.links.get(directory) == str(path.readlink()) or (path / STAMP).is_file()
    else:
        ours = not path.exists()
    if not ours:
        raise InstallError(
            f"{directory} is there and was not made by tools/install: move it away, or name another directory with "
            "--directory"
        )


def read_stamp(path: Path) -> dict[str, Any]:
    """What the stamp of a virtual environment says; empty = it is not complete."""
    try:
        read: dict[str, Any] = json.loads((path / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return read


def _as_if_at_home(path: Path, root: str) -> None:
    """Take the tree's own path out of programs and settings: they are for a machine whose ``/`` the tree is."""
    for file in [*(path / "bin").iterdir(), path / "pyvenv.cfg", *(path / COMPLETION).iterdir()]:
        if file.is_symlink() or not file.is_file():
            continue
        content = file.read_bytes()
        if root.encode() in content:
            file.write_bytes(content.replace(root.encode(), b""))
