# SPDX-License-Identifier: Apache-2.0
"""What builds may leave on a machine: mounts, loop devices, files, processes."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Remains:
    """Mounts, loop devices and processes that have to do with one directory, and what lies in it."""

    mounts: list[str]
    loop_devices: list[str]
    processes: list[str]
    files: list[str]

    def __bool__(self) -> bool:
        return any((self.mounts, self.loop_devices, self.processes, self.files))


def remains(directory: Path) -> Remains:
    """What is there of builds whose temporary files are below a directory."""
    prefix = f"{directory}/"
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    listed = subprocess.run(
        ["losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"], capture_output=True, text=True, check=True
    )
    return Remains(
        [mount for mount in mounts if mount.startswith(prefix)],
        [line for line in listed.stdout.splitlines() if prefix in line],
        [line for line in _command_lines() if prefix in line],
        sorted(path.name for path in directory.iterdir()),
    )


def _command_lines() -> list[str]:
    lines = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            # It has ended.
            continue
        lines.append(words.replace(b"\0", b" ").decode(errors="replace"))
    return lines
