# SPDX-License-Identifier: Apache-2.0
"""What SIGUSR2 does beside the stacks: profiler and growth of objects (reference/commands 4).

Both need packages that an operator may install: ``yappi`` and ``objgraph``. Without one its part is left out.
"""

from __future__ import annotations

import importlib
import io
import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from nodepool import log_names
from nodepool.cmd import stack_dump
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
            stack_dump.write("Profiler and growth of objects: the last signal is not served yet, this one is ignored")
            return
        thread = threading.Thread(target=self._work, name="DebugTools", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            # The system has no more threads just now: a good moment to ask for stacks, and none to end.
            stack_dump.write(f"Profiler and growth of objects: {error}")
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
            stack_dump.write("Started the profiler (yappi); the next SIGUSR2 shows what it found")
            return
        yappi.stop()
        self._profiling = False
        text = io.StringIO()
        yappi.get_func_stats().print_all(out=text)
        yappi.get_thread_stats().print_all(out=text)
        yappi.clear_stats()
        stack_dump.write(f"Stopped the profiler (yappi):\n{text.getvalue()}")


def report_growth(objgraph: Any) -> None:
    """Log the types of which there are more objects than at the last call. Takes seconds in a large process."""
    text = io.StringIO()
    objgraph.show_growth(limit=GROWTH_LINES, file=text)
    stack_dump.write(f"Types with more objects than at the last signal:\n{text.getvalue()}")
