# SPDX-License-Identifier: Apache-2.0
"""Files of builds below ``images-dir`` (rules B-10, R-9, R-15).

``<image>-<build id>.<format>`` is an image, with ``.md5`` and ``.sha256`` beside it. In the directory
``<image>-<build id>.d`` diskimage-builder describes what it built. Only the name of a file says which image and build
it belongs to. Then come the logs of builds, and commands that only root may run.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import stat
import subprocess
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

log = logging.getLogger("nodepool.builder.image_files")

BUILDER_ID_FILE: Final = "builder_id.txt"
#: Of the directory in which diskimage-builder tells what it built.
MANIFEST: Final = "d"
#: Checksum -> its number of hexadecimal digits.
CHECKSUMS: Final = {"md5": 32, "sha256": 64}
#: Ids of builds are 32 hexadecimal digits; old ones are numbers of ten digits.
_NAME: Final = re.compile(r"(?P<image>.+)-(?P<build_id>[0-9a-f]{32}|[0-9]{10})\.(?P<extension>[^/]+)")
#: A block in the answer of stat(2), whatever the file system's are.
_BLOCK_BYTES: Final = 512
_CHUNK_BYTES: Final = 1024 * 1024


@dataclass(frozen=True)
class BuildFile:
    """A file or directory of a build.

    :param extension: what follows the id: a format, a format with a checksum, `MANIFEST`, or something else.
    """

    path: Path
    image: str
    build_id: str
    extension: str

    @property
    def format(self) -> str | None:
        """Of an image; None: it is not one."""
        tail = self.extension.rpartition(".")[2]
        return None if self.extension == MANIFEST or tail in CHECKSUMS else self.extension

    @property
    def format_it_belongs_to(self) -> str | None:
        """Of an image or of a checksum; None: it belongs to the whole build."""
        head, _, tail = self.extension.rpartition(".")
        return head if tail in CHECKSUMS and head else self.format


@dataclass(frozen=True)
class Checksums:
    """Of an image file."""

    md5: str
    sha256: str


class ImageFiles:
    """The files in ``images-dir``. Everything blocks for the file system; any thread.

    :param directory: ``images-dir``.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)

    def base(self, image: str, build_id: str) -> Path:
        """Path of all files of a build, without what follows the id."""
        return self.directory / f"{image}-{build_id}"

    def path(self, image: str, build_id: str, image_format: str) -> Path:
        """Of the image in a format, whether it is there or not."""
        return self.directory / f"{image}-{build_id}.{image_format}"

    def all(self) -> list[BuildFile]:
        """Whatever belongs to builds, by name. A directory that is not there has nothing."""
        try:
            names = sorted(os.listdir(self.directory))
        except FileNotFoundError:
            return []
        found = ((name, _NAME.fullmatch(name)) for name in names)
        return [BuildFile(self.directory / name, *match.groups()) for name, match in found if match is not None]

    def of_build(self, image: str, build_id: str) -> list[BuildFile]:
        """Whatever belongs to one build, by name."""
        return self.builds().get((image, build_id), [])

    def formats(self, image: str, build_id: str) -> set[str]:
        """Formats of a build that are on this disk."""
        return self.formats_of_builds().get((image, build_id), set())

    def builds(self) -> dict[tuple[str, str], list[BuildFile]]:
        """Image and id of each build with files -> its files."""
        found: dict[tuple[str, str], list[BuildFile]] = {}
        for file in self.all():
            found.setdefault((file.image, file.build_id), []).append(file)
        return found

    def formats_of_builds(self) -> dict[tuple[str, str], set[str]]:
        """Image and id of each build with files -> formats that are there.

        The image counts: very old builds of two images may share an id.
        """
        return {
            build: {file.format for file in files if file.format is not None} for build, files in self.builds().items()
        }

    def sizes(self, image: str, build_id: str) -> dict[str, int]:
        """Format -> bytes that its image takes on the disk."""
        files = self.of_build(image, build_id)
        return {file.format: allocated_bytes(file.path) for file in files if file.format is not None}

    def remove(self, image: str, build_id: str, formats: Collection[str] | None = None) -> list[Path]:
        """Remove files of a build. What cannot be removed is logged and stays.

        :param formats: only images of these formats with their checksums; None = everything.
        :return: what was removed.
        """
        return [
            file.path
            for file in self.of_build(image, build_id)
            if (formats is None or file.format_it_belongs_to in formats) and _remove(file.path)
        ]

    def free_bytes(self) -> int:
        """Space on the disk that this user may still fill."""
        found = os.statvfs(self.directory)
        return found.f_bavail * found.f_frsize

    def builder_id(self) -> str:
        """Identity of the builder: made at its first start, and kept beside the files (rule B-10). Raises OSError."""
        path = self.directory / BUILDER_ID_FILE
        try:
            known = path.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            known = ""
        if known:
            return known
        self.directory.mkdir(parents=True, exist_ok=True)
        made = str(uuid.uuid4())
        partial = path.with_suffix(".new")
        partial.write_text(made, encoding="utf-8")
        partial.replace(path)
        return made

    # -- checksums: those that diskimage-builder wrote, or computed (rule U-5) --

    def checksums(self, image: str, build_id: str, image_format: str) -> Checksums:
        """Both checksums of an image file. Blocks as long as the file is read, if it has to be. Raises OSError."""
        path = self.path(image, build_id, image_format)
        md5, sha256 = (_read_checksum(path, kind) for kind in CHECKSUMS)
        if md5 and sha256:
            return Checksums(md5, sha256)
        computed = _compute(path)
        return Checksums(md5 or computed.md5, sha256 or computed.sha256)


def allocated_bytes(path: Path) -> int:
    """What a file takes on the disk; one that is gone takes nothing."""
    try:
        return path.lstat().st_blocks * _BLOCK_BYTES
    except FileNotFoundError:
        return 0


def _read_checksum(path: Path, kind: str) -> str | None:
    """None: it is not there, or not whole."""
    try:
        text = path.with_name(f"{path.name}.{kind}").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    found = re.match(rf"\s*([0-9a-f]{{{CHECKSUMS[kind]}}})(?!\S)", text, re.IGNORECASE)
    return None if found is None else found[1].lower()


def _compute(path: Path) -> Checksums:
    md5, sha256 = hashlib.md5(usedforsecurity=False), hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            md5.update(chunk)
            sha256.update(chunk)
    return Checksums(md5.hexdigest(), sha256.hexdigest())


def _remove(path: Path) -> bool:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        # Of a build that was interrupted some files may be root's.
        problem = run_as_root("rm", "-rf", "--one-file-system", "--", str(path)) if os.geteuid() else str(error)
        if problem:
            log.error("Cannot remove %s: %s", path, problem)
            return False
    log.info("Removed %s", path)
    return True


# Logs of builds: ``<build-log-dir>/<image>-<build id>.log`` (rule B-7, ``build-log-retention``).


_SUFFIX: Final = ".log"
#: The whole name of a log, and which image it is of. Names of images have no ``/``.
_LOG: Final = re.compile(r"([^/\0]+)-(?:[0-9a-f]{32}|[0-9]{10})\.log")


def log_path(directory: str | os.PathLike[str], image: str, build_id: str) -> Path:
    return Path(directory) / f"{image}-{build_id}.log"


def all_logs(directory: str | os.PathLike[str]) -> list[str]:
    """``<image>-<build id>`` of the logs of all images, the newest first. Blocks for the file system."""
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
                found.append((status.st_mtime, entry.name.removesuffix(_SUFFIX)))
    return [name for _, name in sorted(found, reverse=True)]


def logs_of(directory: str | os.PathLike[str], image: str) -> list[Path]:
    """The logs of exactly this image, the newest first. Blocks for the file system."""
    found = (f"{name}{_SUFFIX}" for name in all_logs(directory))
    return [Path(directory, name) for name in found if (match := _LOG.fullmatch(name)) and match[1] == image]


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


# Commands that only root may run. diskimage-builder becomes root with sudo. The clean-up after it needs root, too.


#: Longest time of one command, in seconds. An unmount may wait for a disk.
COMMAND_SECONDS: Final = 30.0


def root_command(command: Sequence[str], user_id: int | None = None) -> list[str]:
    """The command as it has to be started: with sudo, which must not ask for a password, unless this is root.

    :param user_id: of this process; None = look.
    """
    effective = os.geteuid() if user_id is None else user_id
    return list(command) if effective == 0 else ["sudo", "-n", *command]


def run_as_root(*command: str, timeout: float = COMMAND_SECONDS) -> str:
    """Run a command; blocks. Returns what was wrong, also that it took too long; empty = nothing.

    :param timeout: seconds.
    """
    full = root_command(command)
    try:
        done = subprocess.run(
            full, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False, start_new_session=True
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    else:
        output = (done.stderr or done.stdout).decode("utf-8", "replace").strip()
        problem = "" if done.returncode == 0 else output or f"exit code {done.returncode}"
    if problem:
        log.debug("%s: %s", " ".join(full), problem)
    return problem
