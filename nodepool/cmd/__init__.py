# SPDX-License-Identifier: Apache-2.0
"""The programs. Here: signals that end a daemon, from its first moment on (reference/commands 4).

Imports next to nothing: what is here is in force while all the rest is imported.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

#: Signals that end a daemon in order. SIGUSR1 is an old name for SIGINT.
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


#: What is done about a signal: its number and where the program was.
Handler = Callable[[int, FrameType | None], None]


@contextlib.contextmanager
def stop_handler(handler: Handler) -> Iterator[None]:
    """Inside, the signals that stop a daemon go to this handler; afterwards to the one before. For the main thread."""
    previous = {number: signal.signal(number, handler) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, old in previous.items():
            signal.signal(number, old)


def exit_at_once() -> contextlib.AbstractContextManager[None]:
    """Inside, a signal that stops a daemon ends the process with status 0, where nothing else handles it.

    For times at which there is nothing to clean up. For the main thread.
    """
    return stop_handler(_exit)


def _exit(number: int, frame: FrameType | None) -> None:
    os._exit(0)
