# SPDX-License-Identifier: Apache-2.0
"""Directories of the files that a daemon in the background writes: its pid file and its log."""

from __future__ import annotations

import os
import pwd
from pathlib import Path


def make_directory_of(path: Path, mode: int) -> None:
    """Make the directory of a file if it is missing and its parent lets us: ``/var/run`` is empty after a boot.

    Who opens the file reports what could not be made.

    :param mode: of a new directory, whatever the umask.
    """
    try:
        path.parent.mkdir()
    except OSError:
        return
    path.parent.chmod(mode)


def remedy(path: Path) -> str:
    """What lets us write a file: a command, or which directory is meant."""
    user = _user_name()
    if path.parent.is_dir():
        return f"let the user {user} write to {path.parent}"
    return f"make the directory: install -d -o {user} {path.parent}"


def _user_name() -> str:
    number = os.geteuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        # Containers may run as a user that is in no file.
        return str(number)
