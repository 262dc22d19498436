# SPDX-License-Identifier: Apache-2.0
"""What a build mounted below its work directory, and the loop devices whose files are there: their removal."""

from __future__ import annotations

import logging
import os
import re
import shutil
from pathlib import Path
from typing import Final

from nodepool.builder.as_root import run_as_root

log = logging.getLogger("nodepool.builder.mounts")

MOUNTS: Final = Path("/proc/self/mountinfo")
BLOCK_DEVICES: Final = Path("/sys/block")
#: Blanks and the like in paths of mountinfo: a backslash and three octal digits.
_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")
#: Removals of a directory with an image in it take long.
_REMOVAL_SECONDS: Final = 300.0


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")


def mount_points(directory: Path, table: bytes | None = None) -> list[str]:
    """Where something is mounted at or below a directory, the one mounted last first.

    :param table: text of ``/proc/self/mountinfo``; None = read it.
    """
    lines = (MOUNTS.read_bytes() if table is None else table).splitlines()
    points = [os.fsdecode(_ESCAPED.sub(lambda match: bytes([int(match[1], 8)]), line.split()[4])) for line in lines]
    return [point for point in reversed(points) if _is_below(point, str(directory))]


def loop_devices(directory: Path, devices: Path = BLOCK_DEVICES) -> list[str]:
    """Names of loop devices, e.g. ``loop3``, whose file is below a directory, also when it was removed already.

    :param directory: its name is that of no other one. The kernel tells whole paths only as long as the file system is
        mounted where the device was set up: a mount namespace of a service ends with it.
    """
    found = []
    for device in sorted(devices.glob("loop*")):
        try:
            file = (device / "loop" / "backing_file").read_text(encoding="utf-8", errors="surrogateescape").strip()
        except OSError:
            continue
        if _is_below(file.removesuffix(" (deleted)"), str(directory)) or f"/{directory.name}/" in file:
            found.append(device.name)
    return found


def clear(directory: Path) -> list[str]:
    """Unmount whatever is mounted below a directory and give its loop devices back. Blocks.

    :return: what could not be undone, in words.
    """
    problems = []
    for point in mount_points(directory):
        problem = run_as_root("umount", "--", point)
        # What is still used is taken out of the tree all the same: nobody can write to it by a path any more.
        if problem and point in mount_points(directory):
            problem = run_as_root("umount", "--lazy", "--", point)
        if problem and point in mount_points(directory):
            problems.append(f"{point} is still mounted: {problem}")
        else:
            log.info("Unmounted %s", point)
    return problems + [problem for name in loop_devices(directory) for problem in _detach(name)]


def _detach(name: str) -> list[str]:
    """Give back a loop device, with the partitions that device mapper made of it."""
    for holder in sorted((BLOCK_DEVICES / name / "holders").glob("dm-*")):
        try:
            mapped = (BLOCK_DEVICES / holder.name / "dm" / "name").read_text(encoding="utf-8").strip()
        except OSError:
            continue
        run_as_root("dmsetup", "remove", "--retry", mapped)
    problem = run_as_root("losetup", "--detach", f"/dev/{name}")
    if problem and (BLOCK_DEVICES / name / "loop").exists():
        return [f"/dev/{name} is still in use: {problem}"]
    log.info("Detached /dev/%s", name)
    return []


def remove(directory: Path) -> list[str]:
    """Remove a work directory with all that is in it, root's files, too; first `clear` it. Blocks.

    :return: what is in the way, in words. While something is mounted there, nothing is removed: it is not ours.
    """
    problems = clear(directory)
    if mount_points(directory):
        return problems
    if directory.is_symlink() or not directory.exists():
        return problems
    if os.geteuid() != 0:
        # Perhaps nothing of it is root's.
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            return problems
    problem = run_as_root("rm", "-rf", "--one-file-system", "--", str(directory), timeout=_REMOVAL_SECONDS)
    return [*problems, f"{directory}: {problem}"] if problem else problems
