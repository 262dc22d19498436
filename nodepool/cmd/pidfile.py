# SPDX-License-Identifier: Apache-2.0
"""The pid file of a daemon in the background: one instance at a time.

The lock is an flock(2) on the open file. The kernel releases it however the daemon ends, so the file of a
daemon that was killed never has to be judged by its content; a fork keeps the lock. Only for a daemon that
does not use flock (the released Nodepool) the process number in the file is looked at.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Final

from nodepool.clock import monotonic, sleep
from nodepool.cmd.file_places import make_directory_of, remedy

#: Of a new directory: whoever watches the daemon may read its pid file.
DIRECTORY_MODE: Final = 0o755
ACQUIRE_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 0.1
#: Names of the daemons' programs, and of the modules that ``python -m`` runs for them.
_DAEMONS: Final = frozenset(
    f"{prefix}{name}" for prefix in ("nodepool-", "nodepool.cmd.") for name in ("launcher", "builder", "web")
)


class PidFileError(Exception):
    """The pid file cannot be had. The text says why, in one line."""


class PidFile:
    """A locked pid file; a context manager that keeps it while the daemon runs.

    :param path: the file.
    :param timeout: how long to wait for another daemon to end, in seconds.
    """

    def __init__(self, path: str, timeout: float = ACQUIRE_SECONDS) -> None:
        self.path = Path(path)
        self.timeout = timeout
        self._fd: int | None = None

    def fileno(self) -> int:
        """The descriptor that holds the lock; must stay open over a fork."""
        if self._fd is None:
            raise PidFileError(f"{self.path}: not locked")
        return self._fd

    def acquire(self) -> None:
        """Lock the file and write our process number; a stale file is taken over. Blocks up to ``timeout``.

        A missing directory is made, if its parent lets us.

        :raises PidFileError: another daemon has it, or it cannot be written.
        """
        make_directory_of(self.path, DIRECTORY_MODE)
        deadline = monotonic() + self.timeout
        while not self._try():
            if monotonic() >= deadline:
                raise PidFileError(f"{self.path}: another daemon is running (process {self.read() or 'unknown'})")
            # A lock of a file tells nobody when it is free.
            sleep(_RETRY_SECONDS)
        self.write()

    def _try(self) -> bool:
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            hint = f"{remedy(self.path)}, or name another file with -p"
            raise PidFileError(f"{self.path}: cannot write the pid file: {error.strerror}; {hint}") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        # The previous owner may have removed the file between our open and our lock.
        if not _same_file(fd, self.path) or _is_other_daemon(self.read()):
            os.close(fd)
            return False
        self._fd = fd
        # Whoever watches the daemon may read it, whatever the umask; it may be somebody else's file.
        with contextlib.suppress(PermissionError):
            os.fchmod(fd, 0o644)
        return True

    def read(self) -> int | None:
        """The process number in the file, or None."""
        try:
            return int(self.path.read_text(encoding="ascii").strip())
        except (OSError, ValueError):
            return None

    def write(self) -> None:
        """Write our process number, also after a fork."""
        fd = self.fileno()
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Remove the file and give up the lock."""
        if self._fd is None:
            return
        with contextlib.suppress(OSError):
            self.path.unlink()
        os.close(self._fd)
        self._fd = None

    def __enter__(self) -> PidFile:
        self.write()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _same_file(fd: int, path: Path) -> bool:
    try:
        ours, theirs = os.fstat(fd), path.stat()
    except OSError:
        return False
    return (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino)


def _is_other_daemon(pid: int | None) -> bool:
    """Is this the number of a Nodepool daemon that runs? Numbers are used again, so the program counts too."""
    if pid is None or pid <= 0 or pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        pass
    except (ProcessLookupError, OverflowError):
        return False
    try:
        words = os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")
    except OSError:
        # Nothing to look at: better no second daemon.
        return True
    return _program(words) in _DAEMONS


def _program(words: list[str]) -> str:
    """The program or module that this command line runs; for one of Python's the script, not the interpreter."""
    names = [os.path.basename(word) for word in words]
    if names[0].startswith("python"):
        names = [name for name in names[1:] if not name.startswith("-")]
    return names[0] if names else ""
