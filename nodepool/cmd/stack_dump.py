# SPDX-License-Identifier: Apache-2.0
"""The stack of every thread, on demand (SIGUSR2, reference/commands 4)."""

from __future__ import annotations

import logging
import sys
import threading
import traceback

from nodepool import log_names


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
