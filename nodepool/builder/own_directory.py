# SPDX-License-Identifier: Apache-2.0
"""`OwnDirectory`: ``images-dir`` belongs to one builder process at a time (rule B-10)."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from nodepool.builder.image_files import BUILDER_ID_FILE, ImageFiles
from nodepool.exceptions import ConfigError


class OwnDirectory:
    """A lock (flock(2)) of ``builder_id.txt``. It ends with the process; what a builder starts does not inherit it.

    Two processes with one identity would each remove files that the other one needs. Nodepool 11.0.0 does not take
    the lock.
    """

    def __init__(self, files: ImageFiles) -> None:
        self._files = files
        self._fd: int | None = None

    def take(self) -> None:
        """Make the directory and the identity if there is none, and lock it. Does not wait for others.

        :raises ConfigError: another process has it, or it cannot be used.
        """
        directory = self._files.directory
        try:
            self._files.builder_id()
            self._fd = _open_locked(directory / BUILDER_ID_FILE)
        except BlockingIOError:
            raise ConfigError(
                f"images-dir {directory}: another nodepool-builder that runs uses it; stop that one, or give this one "
                "a directory of its own"
            ) from None
        except OSError as error:
            where = error.filename or directory / BUILDER_ID_FILE
            raise ConfigError(f"images-dir {directory} cannot be used: {error.strerror}: {where}") from error

    def give_back(self) -> None:
        """Unlock it; nothing if it is not locked."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def _open_locked(path: Path) -> int:
    """Raises BlockingIOError: somebody else has the lock; OSError."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except PermissionError:
        # Of a builder that ran as somebody else. Only NFS wants to write what is locked.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd
