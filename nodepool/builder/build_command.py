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
    from nodepool.driver.config import ImageConversion

COMMAND: Final = "disk-image-create"
#: Makes an image of another one.
CONVERTER: Final = "qemu-img"
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

    :param formats: all that diskimage-builder is to make: one build makes them.
    :param conversions: formats that are made of these afterwards.
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
    conversions: Mapping[str, ImageConversion] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """``<image>-<build id>``, as in paths."""
        return f"{self.image}-{self.build_id}"


def make_job(
    image: DiskImage,
    build_id: str,
    formats: Iterable[str],
    output: Path,
    elements_dir: str | None,
    conversions: Mapping[str, ImageConversion],
) -> BuildJob:
    """The job for an image of the configuration.

    :param conversions: how some formats are made of others.
    """
    needed = {name: conversions[name] for name in sorted(formats) if name in conversions}
    return BuildJob(
        image.name,
        build_id,
        sorted({*formats, *(one.source for one in needed.values())} - needed.keys()),
        output,
        image.dib_cmd,
        image.release,
        tuple(image.elements),
        elements_dir,
        dict(image.env_vars),
        image.build_timeout,
        needed,
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


def conversion_commands(conversion: ImageConversion, source: Path, target: Path, size: int) -> list[list[str]]:
    """The words of the commands that make an image of another one, in their order.

    :param size: of the disk in ``source``, in bytes. The new one may be larger; what is behind the disk is zero.
    """
    whole = -(-size // conversion.multiple) * conversion.multiple
    options = ["-o", conversion.options] if conversion.options else []
    # Into the disk that is there already, because a converted one would be as large as its source. It is known to be
    # empty: else each zero of the source would be written, and take room.
    into = ["-n", "--target-is-zero", "-f", conversion.source, "-O", conversion.driver]
    return [
        [CONVERTER, "create", "-q", "-f", conversion.driver, *options, str(target), str(whole)],
        [CONVERTER, "convert", *into, str(source), str(target)],
    ]


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
