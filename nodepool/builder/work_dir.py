# SPDX-License-Identifier: Apache-2.0
"""`WorkDir`: where one build has its temporary files, and a note of it that outlives the builder.

The note is ``<images-dir>/.builds/<image>-<build id>.json``. Who builds holds a lock of the file (flock(2)), which ends
with the process. So the next builder in the same directory knows which builds were interrupted, and ends what is left
of them: processes, mounts, loop devices, files.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Final

from nodepool.builder import dib
from nodepool.builder.image_files import BUILDER_ID_FILE, ImageFiles
from nodepool.exceptions import ConfigError
from nodepool.guard import Guard, OnError

log = logging.getLogger("nodepool.builder.work_dir")

#: Below ``images-dir``. Who lists images finds no image in it.
NOTES: Final = ".builds"
#: Time between SIGTERM and SIGKILL for processes of an interrupted build, in seconds.
LEFTOVER_SECONDS: Final = 10.0
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Note:
    """What is known of a build's temporary things.

    :param directory: work directory.
    :param output: path of the image files without what follows the build's id.
    :param session: of its processes; 0 = it has none.
    :param started: of the process that began the session; see `process_session.Process`.
    :param machine: on which one, and in which namespace of process ids, these numbers mean anything.
    """

    directory: str
    output: str
    session: int = 0
    started: int = 0
    machine: str = ""


def this_machine() -> str:
    """Where process ids are those that this process sees, since the machine was started."""
    try:
        boot = _BOOT_ID.read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError as error:
        log.debug("The machine does not say which it is: %s", error)
        return ""


class WorkDir:
    """For the thread that builds. Make it under the lock of the image's builds.

    :param parent: below which directory the temporary files go.
    :raises OSError: it cannot be made, or the note cannot be written.
    """

    def __init__(self, images_dir: Path, parent: Path, name: str) -> None:
        # The table of mounts has paths without links.
        self.path = parent.resolve() / f"nodepool-{name}"
        self._note = Note(str(self.path), str(images_dir / name))
        notes = images_dir / NOTES
        notes.mkdir(parents=True, exist_ok=True)
        self._note_path = notes / f"{name}.json"
        self._file = _open_note(self._note_path, create=True)
        if self._file is None:
            raise FileExistsError(f"another builder works on {name}")
        with OnError(lambda _: self._forget()):
            self._write()
            # Nobody else may look at what is in the making, or put something there before.
            self.path.mkdir(mode=0o700, parents=True)

    def started(self, pid: int) -> None:
        """The build runs, in the session of this process. Raises OSError."""
        process = dib.process(pid)
        if process is not None:
            self._note = Note(self._note.directory, self._note.output, pid, process.started, this_machine())
            self._write()

    def remove(self) -> list[str]:
        """Unmount and remove everything, after the end of the processes. Blocks.

        :return: what could not be done, in words; then the note stays for the next start.
        """
        problems = dib.remove(self.path)
        if not problems:
            self._note_path.unlink(missing_ok=True)
        self._unlock()
        return problems

    def _forget(self) -> None:
        self._note_path.unlink(missing_ok=True)
        self._unlock()

    def _unlock(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self) -> None:
        assert self._file is not None
        _write_note(self._file, self._note)


def _open_note(path: Path, create: bool = False) -> IO[str] | None:
    """The note, locked; None: its builder works. Raises OSError."""
    file = open(path, "a+" if create else "r+", encoding="utf-8")  # noqa: SIM115 - it is closed with the lock
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def _write_note(file: IO[str], note: Note) -> None:
    file.seek(0)
    file.truncate()
    json.dump(asdict(note), file)
    file.flush()


def clean_interrupted(images_dir: Path) -> list[str]:
    """End what is left of builds whose builders are gone. Blocks.

    :return: what could not be undone, in words. It is tried again at the next start.
    """
    problems = []
    for path in sorted((images_dir / NOTES).glob("*.json")):
        # One note that makes no sense must not keep the others.
        with Guard(log, "Error with what an interrupted build left, %s", path):
            problems += _clean(path)
    return problems


def _clean(path: Path) -> list[str]:
    with _locked(path) as file:
        if file is None:
            return []
        note = _read_note(file)
        if note is None:
            log.error("%s cannot be understood, it is removed", path)
            path.unlink()
            return []
        log.warning("Removing what the interrupted build %s left", path.stem)
        _end_processes(note)
        problems = dib.remove(Path(note.directory))
        if not problems:
            path.unlink(missing_ok=True)
        return problems


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[IO[str] | None]:
    try:
        file = _open_note(path)
    except FileNotFoundError:
        file = None
    if file is None:
        yield None
        return
    with file:
        yield file


def _read_note(file: IO[str]) -> Note | None:
    """None: it was not written to its end, or by somebody else."""
    file.seek(0)
    try:
        note = Note(**json.load(file))
    except (ValueError, TypeError):
        return None
    directory = Path(note.directory)
    # What is removed as root is only what this program has named.
    return (
        note
        if directory.is_absolute() and directory.name.startswith("nodepool-") and ".." not in directory.parts
        else None
    )


def _end_processes(note: Note) -> None:
    if not note.session or note.machine != this_machine():
        return
    if _is_ours(note):
        left = dib.end(note.session, LEFTOVER_SECONDS)
        if left:
            log.error("Processes %s of an interrupted build do not end", ", ".join(str(one.pid) for one in left))


def _is_ours(note: Note) -> bool:
    """Is the session of that number still the build's, and not one of somebody else who got the number?"""
    first = dib.process(note.session)
    if first is not None:
        return first.started == note.started
    # The first process has ended. Its number is not given out again while somebody is in its session.
    mark = f"TMPDIR={note.directory}".encode()
    return any(mark in one.environment() for one in dib.members(note.session))


# `OwnDirectory`: ``images-dir`` belongs to one builder process at a time (rule B-10).


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
            self._fd = _lock_directory(directory / BUILDER_ID_FILE)
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


def _lock_directory(path: Path) -> int:
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
