# SPDX-License-Identifier: Apache-2.0
"""What is installed: this directory, or a wheel; with which extras and which other packages."""

from __future__ import annotations

import configparser
import hashlib
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path
from typing import Final

from install_lib.errors import InstallError

#: What the package, its man pages and its completion are made of.
_PARTS: Final = (
    *("LICENSE", "README.rst", "pyproject.toml", "setup.cfg", "setup.py", "requirements.txt"),
    *("nodepool", "etc", "contrib"),
    *("doc/requirements.txt", "doc/source/conf.py", "doc/source/extensions", "doc/source/reference/man"),
)
#: Neither left-overs of runs nor keys that somebody has put beside the examples.
_LEFT_OUT: Final = (".*", "__pycache__", "*.py[cod]", "*.egg-info", "*.key", "*.pem", "*.p12", "tls")
#: Directory and the names in it -> those that are left out.
_Ignored = Callable[[str, list[str]], set[str]]
#: Of a name of an extra.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Source:
    """Sources and what is wanted of them.

    :param top: the checkout. :param wheel: installed in its place, or None. :param extras: names, sorted.
    :param also: further packages, as pip takes them, sorted.
    """

    top: Path
    wheel: Path | None = None
    extras: Sequence[str] = ()
    also: Sequence[str] = ()

    def check(self) -> None:
        """Can it be installed? :raises InstallError: no; with what is allowed."""
        if self.wheel is not None and not (self.wheel.is_file() and zipfile.is_zipfile(self.wheel)):
            raise InstallError(f"{self.wheel} is no wheel")
        known = self._known_extras()
        if unknown := sorted(set(self.extras) - set(known)):
            raise InstallError(f"there is no extra {', '.join(unknown)}; there are: {', '.join(sorted(known))}")

    def release(self) -> str:
        """The release, e.g. ``12.0.0``."""
        if self.wheel is not None:
            return str(_metadata(self.wheel)[0])
        return self._settings()["metadata"]["version"]

    def stamp(self, interpreter: str) -> str:
        """A text that differs when anything differs that is installed. Reads all of it.

        :param interpreter: which Python it is for.
        """
        total = hashlib.sha256()
        total.update("\0".join([interpreter, *self.extras, "", *self.also, ""]).encode())
        for path in self._files():
            total.update(f"\0{path.relative_to(self.top)}\0".encode() if path != self.wheel else b"\0wheel\0")
            total.update(hashlib.sha256(path.read_bytes()).digest())
        return total.hexdigest()

    def copy(self, target: Path) -> None:
        """Copy what is needed: a build writes files beside the sources. Blocks."""
        for part in _PARTS:
            path = self.top / part
            (target / part).parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                shutil.copytree(path, target / part, ignore=shutil.ignore_patterns(*_LEFT_OUT))
            else:
                shutil.copy(path, target / part)

    def requirements(self, copied: Path) -> list[str]:
        """What pip is told to install. :param copied: where `copy` put it."""
        # Debian 12's pip does not find one whose name has an underscore.
        extras = f"[{','.join(self.extras).replace('_', '-')}]" if self.extras else ""
        return [f"{self.wheel or copied}{extras}", *self.also]

    def _files(self) -> Iterator[Path]:
        ignored: _Ignored = shutil.ignore_patterns(*_LEFT_OUT)
        pages = [part for part in _PARTS if part.startswith("doc/")]
        for part in pages if self.wheel is not None else _PARTS:
            yield from _below(self.top / part, ignored)
        if self.wheel is not None:
            yield self.wheel

    def _known_extras(self) -> list[str]:
        if self.wheel is not None:
            return _metadata(self.wheel)[1]
        return list(self._settings()["options.extras_require"])

    def _settings(self) -> configparser.ConfigParser:
        settings = configparser.ConfigParser(interpolation=None)
        if not settings.read(self.top / "setup.cfg"):
            raise InstallError(f"{self.top} is no source of Nodepool: it has no setup.cfg")
        return settings


def _below(path: Path, ignored: _Ignored) -> Iterator[Path]:
    """The files below a directory in a fixed order, without what is left out; the path itself if it is a file."""
    if not path.is_dir():
        yield path
        return
    names = sorted(one.name for one in path.iterdir())
    left_out = ignored(str(path), names)
    for name in names:
        if name not in left_out:
            yield from _below(path / name, ignored)


def _metadata(wheel: Path) -> tuple[str, list[str]]:
    """Release and extras of a wheel of Nodepool. :raises InstallError: it is none."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if re.fullmatch(r"nodepool-[^/]+\.dist-info/METADATA", name)]
        if not names:
            raise InstallError(f"{wheel} is no wheel of Nodepool")
        read = Parser().parsestr(archive.read(names[0]).decode())
    return str(read["Version"]), [str(name) for name in read.get_all("Provides-Extra") or ()]


def extras_of(text: str) -> list[str]:
    """Names of extras in a list with commas. :raises ValueError: one is no name."""
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    if not names or not all(map(_NAME.fullmatch, names)):
        raise ValueError(text)
    return names
