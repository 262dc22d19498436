# SPDX-License-Identifier: Apache-2.0
"""How many processes run the tests (pytest-xdist's ``-n auto``)."""

from __future__ import annotations

#: Two thirds of their time the tests wait: for a server, a process, an answer.
PROCESSES_PER_CORE = 2
#: Each has a ZooKeeper of its own.
MOST_PROCESSES = 8


def worker_count(cores: int) -> int:
    """Processes for a machine with so many cores."""
    return min(MOST_PROCESSES, PROCESSES_PER_CORE * cores)
