# SPDX-License-Identifier: Apache-2.0
"""What SIGUSR2 does beside the stacks: profiler and growth of objects (reference/commands 4).

Both need packages that an operator may install: ``yappi`` and ``objgraph``. Without one its part is left out.
"""

from __future__ import annotations

import code
import importlib
import io
import logging
import socketserver
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Final, TextIO

from nodepool import log_names
from nodepool.cmd.app import CommandError
from nodepool.guard import Guard

log = logging.getLogger(log_names.STACK_DUMP)

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
        with Guard(log, "Profiler and growth of objects: error"):
            yappi, objgraph = self._load("yappi"), self._load("objgraph")
            if yappi is not None:
                self._toggle_profiler(yappi)
            if objgraph is not None:
                report_growth(objgraph)

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


def report_growth(objgraph: Any) -> None:
    """Log the types of which there are more objects than at the last call. Takes seconds in a large process."""
    text = io.StringIO()
    objgraph.show_growth(limit=GROWTH_LINES, file=text)
    write(f"Types with more objects than at the last signal:\n{text.getvalue()}")


# ``--repl``: a Python console inside the running daemon, on localhost:3000.
#
# There is no authentication: whoever can connect can do everything the daemon can. For debugging only.

HOST: Final = "localhost"
PORT: Final = 3000

repl_log = logging.getLogger("nodepool.cmd.debugging")


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
                repl_log.info("A console was closed")
            except OSError as error:
                repl_log.info("A console's connection ended: %s", error)


class ReplServer(socketserver.ThreadingTCPServer):
    """Serves consoles until `stop`.

    :param names: what a console starts with.
    :param port: TCP port on localhost; 0 = any free one.
    :raises CommandError: somebody else has the port.
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

    def start(self) -> None:
        """Serve in a thread of its own. Does not block."""
        repl_log.warning("An unauthenticated Python console listens on %s:%s", *self.server_address[:2])
        sys.stdout = self.output
        self._thread.start()

    def stop(self) -> None:
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
