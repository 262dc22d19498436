# SPDX-License-Identifier: Apache-2.0
"""Reading the logs of launchers."""

from __future__ import annotations

import logging
import sys

from nodepool.logconfig import MultiLineFormatter
from tests.chaos.launcher_logs import exceeded_quota, tracebacks, used_up


def logged(message: str) -> list[str]:
    """A record, with the exception that is being handled, as our formatter writes it."""
    name, error = "nodepool.PoolWorker[host-1: x]", sys.exc_info()
    record = logging.LogRecord(name, logging.ERROR, "file", 1, message, None, error if error[0] else None)
    return MultiLineFormatter().format(record).splitlines(keepends=True)


def test_tracebacks() -> None:
    lines = logged("Traceback is a word")
    try:
        raise ValueError("one\nwith another line")
    except ValueError:
        lines += logged("Something failed")
    try:
        raise OSError(28, "No space left on device")
    except OSError:
        lines += logged("Again")
    lines += logged("No error")
    assert list(tracebacks(lines)) == ["ValueError: one", "OSError: [Errno 28] No space left on device"]


def test_without_logging() -> None:
    """An interpreter that writes to stderr itself."""
    text = [
        "Traceback (most recent call last):\n",
        '  File "x.py", line 1, in <module>\n',
        "    f()\n",
        "NameError: f\n",
    ]
    assert list(tracebacks(text)) == ["NameError: f"]
    assert list(tracebacks(text[:3])) == []


def test_attempts() -> None:
    lines = [
        "INFO [node_request: 200-7] Attempt 2 of 3 failed: x\n",
        "INFO [node_request: 200-8] Attempt 3 of 3 failed\n",
    ]
    assert used_up(lines, "200-8")
    assert not used_up(lines, "200-7")


def test_too_little_quota() -> None:
    lines = [
        "INFO [node_request: 200-7] Declining node request: it would exceed quota\n",
        "INFO [node_request: 200-8] Declining node request: node 3 failed to launch\n",
    ]
    assert exceeded_quota(lines, "200-7")
    assert not exceeded_quota(lines, "200-8")
