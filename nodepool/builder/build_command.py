# SPDX-License-Identifier: Apache-2.0
"""Command line and environment of a build (rules B-5, B-6, B-15). Pure but for the search for the command."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import nodepool

if TYPE_CHECKING:
    from nodepool.config.objects import DiskImage

COMMAND: Final = "disk-image-create"
#: Stands in ``dib-cmd`` for the directory of this package.
PACKAGE_MARK: Final = "%p"
#: Where mktemp(1) of diskimage-builder makes its directories: the first that is set.
TEMPORARY: Final = ("TMPDIR", "TMP_DIR")
DEFAULT_TEMPORARY: Final = "/tmp"
#: Messages for systemd are those of the daemon.
_NOT_INHERITED: Final = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC")


@dataclass(frozen=True)
class BuildJob:
    """What is to be built. Times are in seconds.

    :param formats: all that are wanted: one build makes them.
    :param output: path of the image files without what follows the build's id.
    :param command: ``dib-cmd``.
    """

    image: str
    build_id: str
    formats: Sequence[str]
    output: Path
    command: str = COMMAND
    release: str = ""
    elements: Sequence[str] = ()
    elements_dir: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 28800

    @property
    def name(self) -> str:
        """``<image>-<build id>``, as in paths."""
        return f"{self.image}-{self.build_id}"


def make_job(
    image: DiskImage, build_id: str, formats: Iterable[str], output: Path, elements_dir: str | None
) -> BuildJob:
    """The job for an image of the configuration."""
    return BuildJob(
        image.name,
        build_id,
        sorted(formats),
        output,
        image.dib_cmd,
        image.release,
        tuple(image.elements),
        elements_dir,
        dict(image.env_vars),
        image.build_timeout,
    )


def command_line(job: BuildJob, prefix: Sequence[str] | None = None) -> list[str]:
    """The words of the command.

    :param prefix: instead of ``dib-cmd``.
    :raises ValueError: ``dib-cmd`` or an element has a quote that is not closed.
    """
    words = list(prefix) if prefix is not None else _program(job.command)
    words += ["-x", "-t", ",".join(job.formats), "--checksum", "--no-tmpfs"]
    if "qcow2" in job.formats:
        words += ["--qemu-img-options", "compat=0.10"]
    return [*words, "-o", str(job.output), *shlex.split(" ".join(job.elements))]


def _program(command: str) -> list[str]:
    words = shlex.split(command.replace(PACKAGE_MARK, os.path.dirname(nodepool.__file__)))
    if not words:
        raise ValueError("dib-cmd is empty")
    if words[0] == COMMAND:
        # Beside our Python first: a virtual environment need not be on the path.
        words[0] = shutil.which(COMMAND, path=os.path.dirname(sys.executable)) or COMMAND
    return words


def environment(job: BuildJob, base: Mapping[str, str], work_dir: Path) -> dict[str, str]:
    """All variables of the build.

    :param base: of this process.
    :param work_dir: where temporary files go; see `temporary_directory`.
    """
    variables = {name: value for name, value in base.items() if name not in _NOT_INHERITED}
    variables["DIB_RELEASE"] = job.release
    variables["DIB_IMAGE_NAME"] = job.image
    variables["DIB_IMAGE_FILENAME"] = str(job.output)
    if job.elements_dir:
        variables["ELEMENTS_PATH"] = job.elements_dir
    variables.update(job.variables)
    variables.update(dict.fromkeys(TEMPORARY, str(work_dir)))
    return variables


def temporary_directory(job: BuildJob, base: Mapping[str, str]) -> Path:
    """Below which directory the temporary files of a build are to be, as diskimage-builder chooses it."""
    for variables in (job.variables, base):
        for name in TEMPORARY:
            if variables.get(name):
                return Path(variables[name])
    return Path(DEFAULT_TEMPORARY)
