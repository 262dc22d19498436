# SPDX-License-Identifier: Apache-2.0
"""Finds threads that a test left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

#: A thread that was told to stop may need a moment.
GRACE_SECONDS = 5.0


def leaked_threads(before: Iterable[threading.Thread]) -> list[str]:
    """Names of threads that were not there ``before`` and do not end within a grace time. Blocks at most that long."""
    known = set(before)
    new = [thread for thread in threading.enumerate() if thread not in known]
    deadline = time.monotonic() + GRACE_SECONDS
    for thread in new:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [repr(thread) for thread in new if thread.is_alive()]
