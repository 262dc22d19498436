# SPDX-License-Identifier: Apache-2.0
"""``python -m nodepool.testing.<cloud>``: what the command lines of all simulators share."""

from __future__ import annotations

import argparse
import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from nodepool.testing.simulator.settings import SimulatorSettings


class SimulatorCommand(argparse.ArgumentParser):
    """The options that each simulator has: ``--port``, ``--seed`` and ``--settings``. A cloud adds its own.

    :param cloud: name of the package below ``nodepool.testing``.
    :param description: for ``--help``.
    """

    def __init__(self, cloud: str, description: str | None) -> None:
        super().__init__(prog=f"python -m nodepool.testing.{cloud}", description=description)
        self.add_argument("--port", type=int, default=0, help="on 127.0.0.1; default: a free one")
        self.add_argument("--seed", type=int, default=0)
        self.add_argument(
            "--settings",
            "--knobs",
            default="{}",
            metavar="JSON",
            help='for example {"latency_seconds": [0.1, 0.3]}',
        )

    def fill(self, settings: SimulatorSettings, text: str) -> None:
        """Changes the settings as ``--settings`` says. Ends the process with exit code 2 when they are wrong."""
        try:
            settings.update(json.loads(text))
        except ValueError as error:
            self.error(f"--settings: {error}")


@contextmanager
def end_signal() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set. To be entered before the address is written: who reads it may end us."""
    ended = threading.Event()
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda _number, _frame: ended.set()) for number in numbers]
    try:
        yield ended
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
