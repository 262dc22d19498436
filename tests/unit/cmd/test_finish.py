# SPDX-License-Identifier: Apache-2.0
"""The end of a daemon whose threads still wait for a cloud."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.launcher import ROOT

PROGRAM = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from nodepool.cmd.daemon import finish

begun = threading.Event()

def hang():
    begun.set()
    threading.Event().wait()

def begin():
    ThreadPoolExecutor(1).submit(hang)

{start}
begun.wait()
sys.exit(finish(3))
"""
STARTS = {
    "thread": "threading.Thread(target=hang).start()",
    "daemon": "threading.Thread(target=hang, daemon=True).start()",
    "pool": "begin()",
    "pool-of-daemon": "threading.Thread(target=begin, daemon=True).start()",
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_nothing_is_waited_for(start: str) -> None:
    """The end is bounded, whatever a thread waits for."""
    command = [sys.executable, "-c", PROGRAM.format(start=start)]
    ended = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60, check=False)
    assert ended.returncode == 3
