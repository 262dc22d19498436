# SPDX-License-Identifier: Apache-2.0
"""The ends of the log files that a failed test leaves: those of daemons, which pytest does not see."""

from __future__ import annotations

import re
from pathlib import Path

#: Files of a test, the newest ones; lines that tell of trouble, and lines of the end, of each.
FILES = 4
TROUBLE_LINES = 12
END_LINES = 6
#: A line that is longer is cut.
COLUMNS = 300
TROUBLE = re.compile(r"\b(WARNING|ERROR|CRITICAL)\b|Traceback|^\S*(Error|Exception)\b")


def log_ends(directory: Path) -> list[tuple[str, str]]:
    """Name and end of each of the newest log files below a directory; what is no trouble is left out before the end."""
    files = sorted((path for path in directory.rglob("*.log") if path.is_file()), key=lambda path: path.stat().st_mtime)
    return [(str(path.relative_to(directory)), _end(path)) for path in files[-FILES:]]


def _end(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    trouble = [line for line in lines[:-END_LINES] if TROUBLE.search(line)]
    return "\n".join(line[:COLUMNS] for line in [*trouble[-TROUBLE_LINES:], "...", *lines[-END_LINES:]])
