# SPDX-License-Identifier: Apache-2.0
"""What daemons share: their options, logging, and the way into the background (reference/commands 3 and 7)."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gc
import logging
import os
import pwd
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from nodepool import logconfig
from nodepool.clock import monotonic, sleep
from nodepool.cmd import app, service_runner

if TYPE_CHECKING:
    from nodepool.runtime.daemon import ConnectedDaemon

log = logging.getLogger("nodepool.cmd.daemon")

#: Of a new directory for the log: logs are not for everybody.
LOG_DIRECTORY_MODE: Final = 0o750
#: Bits of a mode that new files do not get: all of others, and writing of the group.
NOT_FOR_OTHERS: Final = 0o027


def add_options(parser: argparse.ArgumentParser, pidfile: str) -> None:
    """Add the options that all daemons have.

    :param pidfile: default of ``-p``.
    """
    parser.add_argument(
        "-p",
        dest="pidfile",
        metavar="FILE",
        type=app.absolute_path,
        default=pidfile,
        help="pid file, used only in the background (default: %(default)s)",
    )
    parser.add_argument(
        "-d", dest="debug", action="store_true", help="stay in the foreground and log at DEBUG to stdout"
    )
    parser.add_argument("-f", dest="foreground", action="store_true", help="stay in the foreground and log to stdout")


def set_up_logging(options: argparse.Namespace, logfile: str) -> None:
    """Use the configuration of ``-l``, or else the default one.

    :param logfile: where a daemon in the background writes without ``-l``.
    :raises LogConfigError: it cannot be used.
    """
    if options.logconfig:
        logconfig.load_config(options.logconfig)
    elif options.debug:
        logconfig.apply_config(logconfig.default_config(level="DEBUG"))
    elif options.foreground:
        logconfig.apply_config(logconfig.default_config())
    else:
        try:
            make_directory_of(Path(logfile), LOG_DIRECTORY_MODE)
            logconfig.apply_config(logconfig.default_config(filename=logfile))
        except logconfig.LogConfigError as error:
            hint = f"{remedy(Path(logfile))}, or say with -l where to log"
            raise logconfig.LogConfigError(f"cannot log to {logfile} ({error}); {hint}") from error


def restrict_new_files() -> None:
    """Files that are made from now on are not for everybody: logs tell much, e.g. what servers wrote to their console.

    For the whole process. A umask that forbids more stays as it is.
    """
    os.umask(os.umask(0o077) | NOT_FOR_OTHERS)


def run(
    options: argparse.Namespace,
    logfile: str,
    serve: Callable[[argparse.Namespace], int],
    check: Callable[[argparse.Namespace], None],
) -> int:
    """Run a daemon in the foreground, or in the background when neither ``-d`` nor ``-f`` is given.

    :param serve: the daemon's work, called with logging set up; returns the exit status.
    :param check: called before the way into the background; raises what would stop the start.
    :return: exit status: of ``serve``. In the background the first process ends with 0 inside this function.
    :raises LogConfigError: the logging configuration cannot be used.
    :raises app.CommandError: the pid file cannot be had.
    """
    restrict_new_files()
    if options.debug or options.foreground:
        with service_runner.early_stop():
            set_up_logging(options, logfile)
            return serve(options)
    # While logging is not set up, warnings go to the terminal; the daemon logs them again.
    check(options)
    set_up_logging(options, logfile)
    pidfile = PidFile(options.pidfile)
    try:
        pidfile.acquire()
    except PidFileError as error:
        raise app.CommandError(str(error)) from error
    # Every file is closed on the way; the log is opened anew behind it.
    logging.shutdown()
    return _in_background(pidfile, options, logfile, serve)


def _in_background(
    pidfile: PidFile, options: argparse.Namespace, logfile: str, serve: Callable[[argparse.Namespace], int]
) -> int:
    import daemon

    # Opened while an error can still be shown.
    nowhere = open(os.devnull, "r+b", buffering=0)  # noqa: SIM115 - for as long as the process lives
    # The user's choice is kept; the default of DaemonContext would let everybody write our files.
    umask = os.umask(0o022)
    context = daemon.DaemonContext(
        pidfile=pidfile,
        files_preserve=[pidfile.fileno()],
        stdin=nowhere,
        stdout=nowhere,
        stderr=nowhere,
        detach_process=True,
        umask=umask,
        # The supervisor of the process sets its own.
        signal_map={},
    )
    with context, service_runner.early_stop():
        try:
            set_up_logging(options, logfile)
            return serve(options)
        except Exception:
            # Whatever it is ends the daemon. Nobody sees stderr any more, so the log must have it.
            log.exception("The daemon ends after an error")
            return 1


def run_service(service: ConnectedDaemon, names: Mapping[str, object] | None, **settings: Any) -> int:
    """Run a daemon until a signal ends it; returns the exit status. Raises ConfigError.

    :param names: serve a Python console with these; None = there is none.
    :param settings: of the `ServiceRunner`.
    """
    from nodepool.cmd.service_runner import Notifier

    runner = service_runner.ServiceRunner(service, Notifier(), on_loaded=look_less_often, **settings)
    service.configuration.on_reload = runner.on_reload
    if names is None:
        return runner.run()
    from nodepool.cmd.debugging import ReplServer

    console = ReplServer(dict(names))
    console.start()
    try:
        return runner.run()
    finally:
        console.stop()


def finish(status: int) -> int:
    """End the process here if the interpreter would wait for threads; else return the status.

    Daemon threads count, too: it waits for those of a thread pool, which are daemons when a daemon thread made them.
    """
    left = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    if left:
        log.info("Ending with threads that still run: %s", ", ".join(thread.name for thread in left))
        logging.shutdown()
        os._exit(status)
    return status


# The pid file of a daemon in the background: one instance at a time.
#
# The lock is an flock(2) on the open file. The kernel releases it however the daemon ends, so the file of a
# daemon that was killed never has to be judged by its content; a fork keeps the lock. Only for a daemon that
# does not use flock (the released Nodepool) the process number in the file is looked at.

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


# Directories of the files that a daemon in the background writes: its pid file and its log.


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


# How often daemons and commands look for reference cycles.

#: New objects that make the interpreter look at the young ones; 700 by default. One list of 300 servers has 10,000.
YOUNG_OBJECTS: Final = 10_000
#: The same for a command: only one that goes on for a while, such as ``nodepool list -w``, ever makes so many.
COMMAND_OBJECTS: Final = 100_000


def look_less_often() -> None:
    """What is there now is not looked at any more, and new objects less often. To be called when all is loaded.

    When it is called again, after a reload, what was there is looked at once more.

    Modules, configuration and the cache of ZooKeeper are 100,000 objects and more, which stay. Looking at them again
    and again was a tenth of the CPU of a burst of cloud nodes. Blocks for about 0.05 s for each 100,000.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    _, middle, old = gc.get_threshold()
    gc.set_threshold(YOUNG_OBJECTS, middle, old)


@contextlib.contextmanager
def in_a_command() -> Iterator[None]:
    """Inside, young objects are looked at less often. The process is to end after that, without a last look.

    Both together are a sixth of the CPU of a command that reads thousands of records.
    """
    _, middle, old = gc.get_threshold()
    gc.set_threshold(COMMAND_OBJECTS, middle, old)
    try:
        yield
    finally:
        gc.freeze()
