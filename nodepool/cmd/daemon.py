# SPDX-License-Identifier: Apache-2.0
"""What daemons share (reference/commands 3, 4 and 7).

First options, logging and the way into the background, with pid file and directories. Then the run until a signal ends
it (`ServiceRunner`) and the messages to systemd. Last what helps to find faults: SIGUSR2, profiler, console, stacks.
"""

from __future__ import annotations

import argparse
import code
import contextlib
import fcntl
import importlib
import io
import logging
import os
import pwd
import queue
import signal
import socket
import socketserver
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Self, TextIO

from nodepool import log_names, logconfig
from nodepool.clock import monotonic, monotonic_microseconds, sleep
from nodepool.cmd import STOP_SIGNALS, app, stop_handler
from nodepool.cmd.app import CommandError, Stopped, look_less_often
from nodepool.guard import Guard

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.runtime.daemon import ConnectedDaemon

log = logging.getLogger("nodepool.cmd.daemon")

#: Of a new directory for the log: logs are not for everybody.
LOG_DIRECTORY_MODE: Final = 0o750
#: Bits of a mode that new files do not get: all of others, and writing of the group.
NOT_FOR_OTHERS: Final = 0o027


def add_options(parser: argparse.ArgumentParser, pidfile: str, *, repl: bool = True) -> None:
    """Add the options that daemons share.

    :param pidfile: default of ``-p``.
    :param repl: does it have a console?
    """
    text = "pid file, used only in the background (default: %(default)s)"
    parser.add_argument("-p", dest="pidfile", metavar="FILE", type=app.absolute_path, default=pidfile, help=text)
    text = "stay in the foreground and log at DEBUG to stdout"
    parser.add_argument("-d", dest="debug", action="store_true", help=text)
    parser.add_argument("-f", dest="foreground", action="store_true", help="stay in the foreground and log to stdout")
    if repl:
        text = f"serve an unauthenticated Python console on {HOST}:{PORT}, for debugging"
        parser.add_argument("--repl", action="store_true", help=text)


def check_configuration(options: argparse.Namespace) -> Config:
    """Refuse a configuration that a daemon could not start with.

    :raises ConfigError: every problem, one a line.
    """
    from nodepool.config.loader import load_config
    from nodepool.config.zookeeper import refuse_bad_tls_files

    config = load_config(options.config, options.secure)
    refuse_bad_tls_files(config)
    return config


def main(
    prog: str,
    options: argparse.Namespace,
    logfile: str,
    serve: Callable[[argparse.Namespace], int],
    check: Callable[[argparse.Namespace], object] = check_configuration,
) -> int:
    """The daemon ``prog`` from its command line to its end; returns the exit status. Other parameters: as for `run`."""
    return finish(app.run(prog, lambda: run(options, logfile, serve, check)))


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


def run(
    options: argparse.Namespace,
    logfile: str,
    serve: Callable[[argparse.Namespace], int],
    check: Callable[[argparse.Namespace], object],
) -> int:
    """Run a daemon in the foreground, or in the background when neither ``-d`` nor ``-f`` is given.

    :param serve: the daemon's work, called with logging set up; returns the exit status.
    :param check: called before the way into the background; raises what would stop the start.
    :return: exit status: of ``serve``. In the background the first process ends with 0 inside this function.
    :raises LogConfigError: the logging configuration cannot be used.
    :raises PidFileError: the pid file cannot be had.
    """
    # Logs have much that is not for everybody, such as the console of servers. A umask that forbids more stays.
    os.umask(os.umask(0o077) | NOT_FOR_OTHERS)
    if options.debug or options.foreground:
        with early_stop():
            set_up_logging(options, logfile)
            return serve(options)
    # While logging is not set up, warnings go to the terminal; the daemon logs them again.
    check(options)
    set_up_logging(options, logfile)
    pidfile = PidFile(options.pidfile)
    pidfile.acquire()
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
    with context, early_stop():
        try:
            set_up_logging(options, logfile)
            return serve(options)
        except Exception:
            # Any error ends the daemon. Standard error leads nowhere now, so the log must have it.
            log.exception("The daemon ends after an error")
            return 1


def run_service(service: ConnectedDaemon, name: str | None, drain: Callable[[int], bool] = lambda number: False) -> int:
    """Run a daemon until a signal ends it; returns the exit status. Raises ConfigError.

    :param name: of the daemon in a Python console that is served; None = there is none.
    :param drain: as for `ServiceRunner`.
    """
    runner = ServiceRunner(service, Notifier(), drain)
    service.configuration.on_reload = runner.on_reload
    with contextlib.nullcontext() if name is None else ReplServer({name: service}):
        return runner.run()


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
# The lock is an flock(2) on the open file. The kernel releases it however the daemon ends, so the file of a daemon that
# was killed never has to be judged by its content; a fork keeps the lock. Only for a daemon that does not use flock
# (the released Nodepool) the process number in the file is looked at.

#: Of a new directory: programs that watch the daemon may read its pid file.
DIRECTORY_MODE: Final = 0o755
ACQUIRE_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 0.1
#: Names of the daemons' programs, and of the modules that ``python -m`` runs for them.
_DAEMONS: Final = frozenset(
    f"{prefix}{name}" for prefix in ("nodepool-", "nodepool.cmd.") for name in ("launcher", "builder", "web")
)


class PidFileError(CommandError):
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
            # A lock of a file does not report when it is free.
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
        # Programs that watch the daemon may read it, whatever the umask; the file may belong to another user.
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

    def __exit__(self, *_: object) -> None:
        self.release()


def _same_file(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except OSError:
        return False


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
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        # Containers may run as a user that is in no file.
        user = str(os.geteuid())
    if path.parent.is_dir():
        return f"let the user {user} write to {path.parent}"
    return f"make the directory: install -d -o {user} {path.parent}"


# Runs a service until a signal ends it: signals, readiness, watchdog, bounded shutdown (reference/commands 4).

DUMP_SIGNAL: Final = signal.SIGUSR2

#: How long an orderly stop may take at least, in seconds. systemd waits 90 s by default before it kills.
STOP_SECONDS: Final = 30.0
_TICK_SECONDS: Final = 1.0

#: The thread that stops the service ends a moment after the service; it is waited for no longer than this, in seconds.
_STOPPER_SECONDS: Final = 1.0


def _log_end_of_thread(args: threading.ExceptHookArgs) -> None:
    name = "?" if args.thread is None else args.thread.name
    log.error("Thread %s ended by an error", name, exc_info=args.exc_value)


def early_stop() -> contextlib.AbstractContextManager[None]:
    """Inside, a signal that stops a daemon ends it by `Stopped`, until a `ServiceRunner` takes the signals over.

    Much is imported before that. For the main thread.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped(signal.Signals(number).name)

    return stop_handler(stop)


class ServiceRunner:
    """Runs a service in a thread and stays free for signals in the main thread.

    :param notifier: informs systemd.
    :param drain: called in the main thread with a signal to stop that comes first. True = the service finishes what it
        does, and ends by itself; False = it is stopped now, as with a further signal.
    """

    def __init__(
        self,
        service: ConnectedDaemon,
        notifier: Notifier,
        drain: Callable[[int], bool] = lambda number: False,
    ) -> None:
        self._service = service
        self._notifier = notifier
        self._drain = drain
        #: Was `look_less_often` called for what is loaded now?
        self._loaded_noted = False
        # SimpleQueue.put may be called from a signal handler at any point; a lock or an Event may not.
        self._events: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._ready_sent = False
        self._last_ping = float("-inf")
        self.debug_tools = DebugTools()
        #: The service did not end in time, or a second signal came: its threads may still be running.
        self.abandoned = False

    def run(self) -> int:
        """Run the service until a signal comes or it ends by itself. Call it in the main thread.

        :return: exit status: 0 after a signal, 1 when the service did not end in time.
        :raises Exception: what ended the service.
        """
        previous = {number: signal.signal(number, self.post) for number in (*STOP_SIGNALS, DUMP_SIGNAL)}
        threading.excepthook, hook = _log_end_of_thread, threading.excepthook
        worker = threading.Thread(target=self._work, name="Service", daemon=True)
        try:
            worker.start()
            if self._wait_for_signal(worker):
                return self._stop(worker)
            worker.join()
            if self._error is not None:
                raise self._error
            if self._service.finished:
                log.info("Stopped")
                return 0
            log.error("The daemon ended unexpectedly")
            return 1
        finally:
            threading.excepthook = hook
            for number, handler in previous.items():
                signal.signal(number, handler)

    def post(self, number: int, frame: FrameType | None = None) -> None:
        """Handle a signal, or behave as if it had come."""
        self._events.put(number)

    def _work(self) -> None:
        try:
            self._service.start()
            self._service.run()
        except Exception as error:  # noqa: BLE001 - raised again in the main thread
            self._error = error
        finally:
            self._events.put(None)

    def _wait_for_signal(self, worker: threading.Thread) -> bool:
        """Wait until a stop signal comes (True) or the service ends by itself (False)."""
        draining, watchdog = False, self._notifier.watchdog_seconds
        while True:
            event = self._next(_TICK_SECONDS if watchdog is None else min(_TICK_SECONDS, watchdog / 4))
            if event is not None and event in STOP_SIGNALS and not draining and self._drain(event):
                draining = True
                log.info("%s: finishing what is being served; another signal ends it now", signal.Signals(event).name)
            elif event is not None and event in STOP_SIGNALS:
                log.info("Stopping after %s", signal.Signals(event).name)
                self._service.on_stop_signal(event)
                return True
            if event is None and not worker.is_alive():
                return False
            self.notify()

    def _next(self, seconds: float) -> int | None:
        """The next stop signal, or None after a while. Requests for a stack dump are served here."""
        try:
            event = self._events.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None
        if event == DUMP_SIGNAL:
            dump()
            self.debug_tools.begin()
            return None
        return event

    def on_reload(self, phase: str) -> None:
        """Tell systemd that the configuration is read again ("reloading"), and then how that ended. Does not block."""
        if not self._ready_sent:
            return
        if phase == "reloading":
            self._notifier.reloading()
        else:
            self._loaded_noted = False
            self._notifier.ready(phase)

    def notify(self) -> None:
        """Tell systemd once when the service is ready, then that it lives while its main loop really turns."""
        if not self._service.ready.is_set():
            return
        if not self._ready_sent:
            self._ready_sent = True
            self._notifier.ready()
            log.info("Ready")
        if not self._loaded_noted:
            self._loaded_noted = True
            look_less_often()
        seconds, now = self._notifier.watchdog_seconds, monotonic()
        if seconds is None or now - self._last_ping < seconds / 4:
            return
        silent = now - self._service.last_loop
        if silent < seconds / 2:
            self._last_ping = now
            self._notifier.watchdog()
        else:
            log.warning("The main loop has not run for %.0f s", silent)

    def _stop(self, worker: threading.Thread) -> int:
        self._notifier.stopping()
        stopper = threading.Thread(target=self._service_stop, name="Stop", daemon=True)
        stopper.start()
        seconds = max(STOP_SECONDS, self._service.stop_seconds)
        deadline = monotonic() + seconds
        # Once the service's thread has ended there is nothing left to stop, whatever `stop` still waits for.
        while worker.is_alive():
            left = deadline - monotonic()
            if left <= 0:
                self.abandoned = True
                log.error("Not stopped within %g s, ending now. What the threads do:", seconds)
                dump()
                return 1
            again = self._next(min(0.5, left))
            if again is not None and again in STOP_SIGNALS and not self._service.on_stop_signal(again):
                self.abandoned = True
                log.warning("Ending at once after another signal")
                return 0
        stopper.join(_STOPPER_SECONDS)
        if self._error is not None:
            log.error("Error while stopping", exc_info=self._error)
        log.info("Stopped")
        return 0

    def _service_stop(self) -> None:
        # The process must end all the same, and is about to.
        with Guard(log, "Error while stopping"):
            self._service.stop()
        self._events.put(None)


# Messages to systemd: sd_notify(3), the datagram protocol that needs no library.


class Notifier:
    """Informs systemd about the state of the daemon; does nothing when systemd did not start us.

    :param environment: where ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and ``WATCHDOG_PID`` are looked up.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._address = _address(environment.get("NOTIFY_SOCKET", ""))
        #: Seconds after which systemd kills us without a `watchdog` message; None = never.
        self.watchdog_seconds = _watchdog_seconds(environment) if self._address else None

    def ready(self, status: str = "serving") -> None:
        """The daemon is up, or has finished a reload.

        :param status: one line for ``systemctl status``.
        """
        self._send(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        """The daemon reads its configuration again; `ready` must follow."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={monotonic_microseconds()}")

    def stopping(self) -> None:
        """The daemon is on its way out."""
        self._send("STOPPING=1\nSTATUS=stopping")

    def watchdog(self) -> None:
        """The daemon is alive."""
        self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                # A full socket must not hold up the daemon.
                sock.setblocking(False)
                sock.sendto(message.encode(), self._address)
        except OSError as error:
            log.warning("Cannot notify systemd at %s: %s", self._address, error)


def _address(value: str) -> str:
    """The socket's address: a path, or with a leading ``@`` a name in the abstract namespace."""
    if value.startswith("@"):
        return "\0" + value[1:]
    return value if value.startswith("/") else ""


def _watchdog_seconds(environment: Mapping[str, str]) -> float | None:
    pid = environment.get("WATCHDOG_PID")
    if pid is not None and pid != str(os.getpid()):
        return None
    try:
        seconds = int(environment.get("WATCHDOG_USEC", "")) / 1e6
    except ValueError:
        return None
    return seconds if seconds > 0 else None


# What SIGUSR2 does beside the stacks: profiler and growth of objects (reference/commands 4).
#
# Both need packages that an operator may install: ``yappi`` and ``objgraph``. Without one its part is left out.

debugging_log = logging.getLogger(log_names.STACK_DUMP)

#: Longest list of types that grew.
GROWTH_LINES: Final = 100


def load_package(name: str) -> Any:
    """A package, or None if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


class DebugTools:
    """For the main thread, which stays free for signals: the work is done by a thread that ends with it.

    :param load: gives a package by its name, None if it is not there.
    """

    def __init__(self, load: Callable[[str], Any] = load_package) -> None:
        self._load = load
        self._thread: threading.Thread | None = None
        #: Owned by the thread, of which there is one at a time.
        self._profiling = False

    def begin(self) -> None:
        """Start or stop the profiler, and look for growth. Does not block. Nothing happens without the packages."""
        if self._thread is not None and self._thread.is_alive():
            write("Profiler and growth of objects: the last signal is not served yet, this one is ignored")
            return
        thread = threading.Thread(target=self._work, name="DebugTools", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            # The system has no more threads just now: a good moment to ask for stacks, and none to end.
            write(f"Profiler and growth of objects: {error}")
            return
        self._thread = thread

    def join(self) -> None:
        """Wait for the work that `begin` began."""
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        # Of a package that is not ours; the daemon is not affected.
        with Guard(debugging_log, "Profiler and growth of objects: error"):
            yappi, objgraph = self._load("yappi"), self._load("objgraph")
            if yappi is not None:
                self._toggle_profiler(yappi)
            if objgraph is not None:
                # Takes seconds in a large process.
                text = io.StringIO()
                objgraph.show_growth(limit=GROWTH_LINES, file=text)
                write(f"Types with more objects than at the last signal:\n{text.getvalue()}")

    def _toggle_profiler(self, yappi: Any) -> None:
        """Start the profiler; or stop it, log what it found, and forget that."""
        if not self._profiling:
            yappi.start()
            self._profiling = True
            write("Started the profiler (yappi); the next SIGUSR2 shows what it found")
            return
        yappi.stop()
        self._profiling = False
        text = io.StringIO()
        yappi.get_func_stats().print_all(out=text)
        yappi.get_thread_stats().print_all(out=text)
        yappi.clear_stats()
        write(f"Stopped the profiler (yappi):\n{text.getvalue()}")


# ``--repl``: a Python console inside the running daemon, on localhost:3000.
#
# There is no authentication: a user who can connect can do everything that the daemon can. For debugging only.

HOST: Final = "localhost"
PORT: Final = 3000


class _ThreadOutput(io.TextIOBase):
    """Stands in for ``sys.stdout``: what a console's thread prints goes to its own connection."""

    def __init__(self, default: TextIO) -> None:
        self.default = default
        self.local = threading.local()

    def write(self, text: str) -> int:
        stream: TextIO = getattr(self.local, "stream", self.default)
        return stream.write(text)

    def flush(self) -> None:
        getattr(self.local, "stream", self.default).flush()


class _Console(code.InteractiveConsole):
    def __init__(self, names: dict[str, Any], source: TextIO, output: TextIO) -> None:
        super().__init__(names)
        self._source = source
        self._output = output

    def raw_input(self, prompt: str = "") -> str:
        self.write(prompt)
        line = self._source.readline()
        if not line:
            raise EOFError
        return line.rstrip("\r\n")

    def write(self, data: str) -> None:
        self._output.write(data)
        self._output.flush()


def _leave() -> None:
    """``exit()`` of a console. Python's own would close the daemon's stdin."""
    raise SystemExit


class _Handler(socketserver.BaseRequestHandler):
    server: ReplServer

    def handle(self) -> None:
        # One file for each direction: writing to one for both would drop what was read ahead.
        with (
            self.request.makefile("r", encoding="utf-8", errors="replace") as source,
            self.request.makefile("w", encoding="utf-8", errors="replace") as output,
        ):
            self.server.output.local.stream = output
            names = {**self.server.names, "exit": _leave, "quit": _leave}
            try:
                _Console(names, source, output).interact(exitmsg="")
            except SystemExit:
                log.info("A console was closed")
            except OSError as error:
                log.info("A console's connection ended: %s", error)


class ReplServer(socketserver.ThreadingTCPServer):
    """Serves consoles; a context manager.

    :param names: what a console starts with.
    :param port: TCP port on localhost; 0 = any free one.
    :raises CommandError: another process has the port.
    """

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, names: Mapping[str, Any], port: int = PORT) -> None:
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise CommandError(
                f"--repl: the console cannot listen on {HOST}:{port}: {error.strerror}; "
                "leave out --repl, or end what has the port, e.g. another daemon with --repl"
            ) from error
        self.names = names
        self.output = _ThreadOutput(sys.stdout)
        self._thread = threading.Thread(target=self.serve_forever, name="Repl", daemon=True)

    def __enter__(self) -> Self:
        """Serve in a thread of its own. Does not block."""
        log.warning("An unauthenticated Python console listens on %s:%s", *self.server_address[:2])
        sys.stdout = self.output
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Accept no more connections; open ones end with the process."""
        self.shutdown()
        self.server_close()
        self._thread.join()
        sys.stdout = self.output.default


# The stack of every thread, on demand (SIGUSR2, reference/commands 4).


def stacks() -> str:
    """What every thread is doing right now. Does not block."""
    threads = {thread.ident: thread for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        thread = threads.get(ident)
        name, daemon = (thread.name, thread.daemon) if thread else ("?", "?")
        parts.append(f"Thread: {ident} {name} d: {daemon}\n{''.join(traceback.format_stack(frame))}")
    return "\n".join(parts)


def dump() -> None:
    """Write the stack of every thread to logger ``nodepool.stack_dump``."""
    write(f"Stacks of all threads:\n{stacks()}")


def write(text: str) -> None:
    """Write a text to logger ``nodepool.stack_dump``.

    At DEBUG. An operator who asks wants to see it, so a logger that is set to a higher level gets it at that
    level.
    """
    log = logging.getLogger(log_names.STACK_DUMP)
    log.log(max(logging.DEBUG, log.getEffectiveLevel()), "%s", text)
