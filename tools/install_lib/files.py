# SPDX-License-Identifier: Apache-2.0
"""Files that an operator may edit, and links to what belongs to the programs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from install_lib.host import Host
from install_lib.record import Record, digest
from install_lib.steps import Look, free_name


@dataclass(frozen=True)
class EditedFile:
    """A file that is written once, and replaced as long as nobody has edited it.

    One that was edited stays. If the one of this source is another one than was written, it is laid beside it, once, as
    ``.new``.

    :param content: what is to be in it. :param group: None = root's.
    """

    host: Host
    record: Record
    place: str
    content: bytes
    mode: int = 0o644
    group: str = "root"

    @property
    def name(self) -> str:
        return f"file {self.place}"

    def look(self) -> Look:
        path = self.host.path(self.place)
        if path.is_symlink() and not path.exists():
            return Look(remark=f"it is a link to {path.readlink()}, and stays so")
        if not path.exists():
            return Look(f"write {self.place}")
        if path.read_bytes() == self.content:
            return Look()
        if self._is_as_written(path):
            return Look(f"write {self.place} anew")
        if self.record.files.get(self.place) == digest(self.content):
            # Only the operator has changed something: there is no news to lay beside it.
            return Look(remark="it was edited, so it stays")
        if self.record.offered.get(self.place) == digest(self.content):
            beside = self.record.beside[self.place]
            there = f"; the new one is {beside}" if self.host.path(beside).exists() else ""
            return Look(remark=f"it was edited, so it stays{there}")
        return Look(f"keep {self.place}, which was edited, and write the new one beside it as {self._beside()[1]}")

    def do(self) -> None:
        path = self.host.path(self.place)
        if not path.exists() or self._is_as_written(path):
            self._write(path)
            self.record.files[self.place] = digest(self.content)
            return
        target, place = self._beside()
        self._write(target)
        self.record.offered[self.place] = digest(self.content)
        self.record.beside[self.place] = place

    def _is_as_written(self, path: Path) -> bool:
        """Has nobody edited it, or put a link in its place?"""
        return not path.is_symlink() and digest(path.read_bytes()) == self.record.files.get(self.place)

    def _beside(self) -> tuple[Path, str]:
        """Where the new one is laid: over an older new one of ours, never over anything else."""
        place = self.record.beside.get(self.place)
        if place is not None:
            path = self.host.path(place)
            if path.is_file() and digest(path.read_bytes()) == self.record.offered[self.place]:
                return path, place
        path = free_name(self.host.path(self.place), "new")
        return path, str(Path(self.place).with_name(path.name))

    def _write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_name(path.name + ".part")
        half.write_bytes(self.content)
        half.chmod(self.mode)
        self.host.own(half, "root", self.group)
        half.replace(path)


@dataclass(frozen=True)
class Link:
    """A symbolic link. What stood there before is kept beside it as ``.old``.

    :param target: what it points to.
    """

    host: Host
    record: Record
    place: str
    target: str

    @property
    def name(self) -> str:
        return f"link {self.place}"

    def look(self) -> Look:
        path = self.host.path(self.place)
        if path.is_symlink() and str(path.readlink()) == self.target:
            return Look()
        if self._in_the_way(path):
            return Look(f"move {self.place} to {free_name(path, 'old').name}, and link it to {self.target}")
        return Look(f"link {self.place} to {self.target}")

    def do(self) -> None:
        path = self.host.path(self.place)
        path.parent.mkdir(parents=True, exist_ok=True)
        if self._in_the_way(path):
            old = free_name(path, "old")
            path.rename(old)
            self.record.moved.setdefault(self.place, str(Path(self.place).with_name(old.name)))
        half = path.with_name(path.name + ".part")
        half.unlink(missing_ok=True)
        half.symlink_to(self.target)
        self.record.links[self.place] = self.target
        half.replace(path)

    def _in_the_way(self, path: Path) -> bool:
        """Is there something that is no link of ours?"""
        if path.is_symlink():
            return str(path.readlink()) != self.record.links.get(self.place)
        return path.exists()
