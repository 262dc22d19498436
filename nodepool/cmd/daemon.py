# SPDX-License-Identifier: Apache-2.0
"""What daemons share: their options, logging, and the way into the background (reference/commands 3 and 7)."""

from __future__ import annotations

import argparse
import logging
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nodepool import logconfig
from nodepool.cmd import app, service_runner
from nodepool.cmd.file_places import make_directory_of, remedy
from nodepool.cmd.pidfile import PidFile, PidFileError

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
    from nodepool.cmd.garbage import look_less_often
    from nodepool.cmd.sdnotify import Notifier

    runner = service_runner.ServiceRunner(service, Notifier(), on_loaded=look_less_often, **settings)
    service.configuration.on_reload = runner.on_reload
    if names is None:
        return runner.run()
    from nodepool.cmd.repl import ReplServer

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
