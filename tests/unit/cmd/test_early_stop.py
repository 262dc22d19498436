# SPDX-License-Identifier: Apache-2.0
"""Signals that come before the launcher waits for them (reference/commands 4)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nodepool.cmd.app import Stopped
from nodepool.cmd.daemon import early_stop
from nodepool.cmd.stop_signals import STOP_SIGNALS, exit_at_once
from tests.support.launcher import ROOT

#: Python imports it before anything else. It sends the signal when the launcher imports what it needs for its work.
HOOK = """
import os, signal, sys

class Hook:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["STOP_AT_IMPORT"]:
            os.kill(os.getpid(), signal.SIGTERM)

sys.meta_path.insert(0, Hook())
"""


@pytest.mark.parametrize("module", ["argparse", "nodepool.cmd.daemon", "nodepool.launcher.supervisor"])
def test_stop_while_the_launcher_is_imported(tmp_path: Path, module: str) -> None:
    """`systemctl stop` right after the start: exit status 0, and nothing to say."""
    (tmp_path / "sitecustomize.py").write_text(HOOK, encoding="utf-8")
    command = [sys.executable, "-m", "nodepool.cmd.launcher", "-f", "-c", str(tmp_path / "nodepool.yaml")]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}", "STOP_AT_IMPORT": module}
    ended = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "")


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_signals(number: signal.Signals) -> None:
    """All that stop a daemon in order later on; the handlers are put back."""
    before = signal.getsignal(number)
    with pytest.raises(Stopped), early_stop():
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_exit_at_once(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is to be cleaned up: status 0; the handlers are put back."""
    before = signal.getsignal(number)
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    with exit_at_once():
        os.kill(os.getpid(), number)
    assert ended == [0]
    assert signal.getsignal(number) is before
