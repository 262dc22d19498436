# SPDX-License-Identifier: Apache-2.0
"""Output that cannot be written, as on a full disk, changes no exit status and makes no traceback."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.launcher import ROOT

FULL = "/dev/full"
DAEMON = """
import contextlib, logging, sys, threading
from types import SimpleNamespace
from nodepool.cmd import app, daemon

def serve(options):
    logging.getLogger("nodepool.test").error("one for the log")
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            print("a line", file=stream)
    {end}

options = SimpleNamespace(debug=False, foreground=True, logconfig=None)
sys.exit(daemon.finish(app.run("prog", lambda: daemon.run(options, "", serve, None))))
"""
ENDS = {
    "status": ("return 3", 3),
    "thread": ("threading.Thread(target=threading.Event().wait).start(); return 3", 3),
    "error": ("raise OSError(28, 'No space left on device')", 1),
    "bug": ("raise ValueError('odd')", 1),
    "answer": ("raise app.CommandError('not found', answer=True)", 1),
    "stopped": ("raise app.Stopped", 0),
}
COMMAND = """
import sys
from types import SimpleNamespace
from nodepool.cmd import cli
options = SimpleNamespace(run=lambda _: print("a table") or 0, logconfig=None, debug=False)
cli.make_parser = lambda _: SimpleNamespace(parse_args=lambda _: options)
sys.exit(cli.main())
"""

pytestmark = pytest.mark.skipif(not os.path.exists(FULL), reason=f"no {FULL}")


def run(redirection: str, unbuffered: str, *command: str) -> tuple[int, str]:
    """Exit status, and what was written to where ``redirection`` does not lead."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": unbuffered}
    shell = ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, *command]
    ended = subprocess.run(
        shell, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False
    )
    return ended.returncode, ended.stdout


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("redirection", [f">{FULL} 2>&1", ">&- 2>&-"], ids=["full", "closed"])
@pytest.mark.parametrize(("end", "status"), ENDS.values(), ids=ENDS)
def test_daemon(end: str, status: int, redirection: str, unbuffered: str) -> None:
    """Whatever the end is, it is what systemd sees."""
    assert run(redirection, unbuffered, "-c", DAEMON.format(end=end)) == (status, "")


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize(("end", "status"), ENDS.values(), ids=ENDS)
def test_log_of_a_daemon(end: str, status: int, unbuffered: str) -> None:
    """What can be written is, and nothing of it is about what cannot (which `logging` itself reports)."""
    returned, told = run(f">{FULL}", unbuffered, "-c", DAEMON.format(end=end))
    assert returned == status
    assert "a line" in told
    assert "Exception ignored" not in told


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_command(unbuffered: str) -> None:
    """reference/commands 2: an answer that nobody gets is a failure, told in one line."""
    assert run(f">{FULL}", unbuffered, "-c", COMMAND) == (1, "nodepool: [Errno 28] No space left on device\n")
