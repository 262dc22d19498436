# SPDX-License-Identifier: Apache-2.0
"""The disk of a builder, which can be full.

As root it is a small file system in memory. Another user has a directory, and a limit on the size of files that the
builder and what it starts may write: each write fails, too.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import subprocess
from pathlib import Path

DISK_BYTES = 24 * 1024 * 1024
FILLER = "filler"
#: As `nodepool.builder.image_files` names them; released builders do so, too.
BUILD_FILE = re.compile(r"(?P<image>.+)-(?P<build_id>[0-9a-f]{32}|[0-9]{10})\.(?P<extension>.+)")


class Disk:
    """:param directory: ``images-dir`` of a builder."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._mounted = False

    def make(self) -> None:
        """Mounts it if that is allowed."""
        self.directory.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "chaos", str(self.directory)]
        self._mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True, timeout=30).returncode == 0

    def remove(self) -> None:
        """Unmounts it; its files are gone then."""
        if self._mounted:
            subprocess.run(["umount", "-l", str(self.directory)], check=False, capture_output=True, timeout=30)
            self._mounted = False

    def fill(self, pid: int) -> str:
        """No byte more fits. :param pid: of the builder. :return: how it was done."""
        if not self._mounted:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            return "by a limit on files"
        with (self.directory / FILLER).open("wb", buffering=0) as filler, contextlib.suppress(OSError):
            while True:
                filler.write(bytes(4096))
        return "by a file"

    def make_room(self, pid: int) -> None:
        """The end of `fill`; the builder may be another one by now."""
        if self._mounted:
            (self.directory / FILLER).unlink(missing_ok=True)
        else:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    def builds(self) -> dict[tuple[str, str], list[Path]]:
        """Image and id of each build that has files -> the files."""
        found: dict[tuple[str, str], list[Path]] = {}
        for path in sorted(self.directory.iterdir()):
            if match := BUILD_FILE.fullmatch(path.name):
                found.setdefault((match["image"], match["build_id"]), []).append(path)
        return found
