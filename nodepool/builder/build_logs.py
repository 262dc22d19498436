# SPDX-License-Identifier: Apache-2.0
"""Logs of builds: ``<build-log-dir>/<image>-<build id>.log`` (rule B-7, ``build-log-retention``)."""

from __future__ import annotations

import logging
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

log = logging.getLogger("nodepool.builder.build_logs")

#: What follows the image's name in the name of a log.
_REST: Final = re.compile(r"-(?:[0-9a-f]{32}|[0-9]{10})\.log")
_SUFFIX: Final = ".log"
#: The whole name of a log. Names of images have no ``/``.
_LOG: Final = re.compile(rf"[^/\0]+{_REST.pattern}")


def log_path(directory: str | os.PathLike[str], image: str, build_id: str) -> Path:
    return Path(directory) / f"{image}-{build_id}.log"


def logs_of(directory: str | os.PathLike[str], image: str) -> list[Path]:
    """The logs of exactly this image, the newest first. Blocks for the file system."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    found = []
    for name in names:
        if name.startswith(image) and _REST.fullmatch(name[len(image) :]):
            path = Path(directory) / name
            try:
                found.append((path.stat().st_mtime, path))
            except FileNotFoundError:
                continue
    return [path for _, path in sorted(found, reverse=True)]


@dataclass(frozen=True)
class LogFile:
    """:param name: ``<image>-<build id>``. ``modified``: seconds since the epoch. ``size``: in bytes."""

    name: str
    modified: float
    size: int


def all_logs(directory: str | os.PathLike[str]) -> list[LogFile]:
    """The logs of all images, the newest first. Blocks for the file system."""
    try:
        entries = list(os.scandir(directory))
    except FileNotFoundError:
        return []
    found = []
    for entry in entries:
        if _LOG.fullmatch(entry.name):
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode):
                found.append(LogFile(entry.name.removesuffix(_SUFFIX), status.st_mtime, status.st_size))
    return sorted(found, key=lambda log: (log.modified, log.name), reverse=True)


def open_log(directory: str | os.PathLike[str], name: str) -> BinaryIO:
    """Open a log to read it. Blocks for the file system.

    :param name: ``<image>-<build id>``, of whoever asks: nothing else in the directory, or outside of it, is opened.
    :raises OSError: there is no such log.
    """
    file_name = f"{name}{_SUFFIX}"
    if not _LOG.fullmatch(file_name):
        raise FileNotFoundError(f"{name!r} is no name of a log")
    number = os.open(Path(directory) / file_name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise FileNotFoundError(f"{name!r} is no log")
    return os.fdopen(number, "rb")


def prune(directory: str | os.PathLike[str], image: str, retention: int) -> None:
    """Before a build: remove logs, so that ``retention`` are left beside the new one. Blocks for the file system.

    :param retention: negative = keep all; 0 is as 1.
    """
    if retention < 0:
        return
    for path in logs_of(directory, image)[max(1, retention) :]:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            log.error("Cannot remove the old log %s: %s", path, error)


class BuildLog:
    """The log of one build, for one thread.

    Each line is in the file at once, so that others may follow it. If the disk is full, the end of the log is lost, but
    the build goes on.

    :raises OSError: it cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb", buffering=0)
        self._failed = False

    def write(self, data: bytes) -> None:
        """Append. Does not raise."""
        if self._failed:
            return
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError as error:
            self._failed = True
            log.error("The rest of the log %s is missing: %s", self.path, error)

    def write_line(self, text: str) -> None:
        """Append a line of our own. Does not raise."""
        self.write(f"{text}\n".encode("utf-8", "replace"))

    def close(self) -> None:
        self._file.close()
