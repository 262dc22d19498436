# SPDX-License-Identifier: Apache-2.0
"""A launcher in a process that a test can kill. It is a fork of one that has all modules: it starts at once."""

from __future__ import annotations

import logging
import multiprocessing
import os
from multiprocessing.synchronize import Event
from pathlib import Path

from nodepool.launcher.supervisor import NodePool
from tests.support.wait import DEADLINE_SECONDS

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([__name__, "nodepool.driver.statemachine"])


class LauncherInProcess:
    """:param path: of its configuration."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._serving = _context.Event()
        self._process = _context.Process(target=_run, args=(str(path), dict(os.environ), self._serving), daemon=True)

    def start(self) -> None:
        """Blocks until it serves."""
        self._process.start()
        assert self._serving.wait(DEADLINE_SECONDS), self.path.with_suffix(".log").read_text()

    def kill(self) -> None:
        """It has no time to do anything more. Twice does nothing."""
        self._process.kill()
        self._process.join()


def _run(path: str, environment: dict[str, str], serving: Event) -> None:
    os.environ.update(environment)
    logging.basicConfig(filename=Path(path).with_suffix(".log"), level=logging.DEBUG)
    launcher = NodePool(path)
    launcher.start()
    serving.set()
    launcher.run()
