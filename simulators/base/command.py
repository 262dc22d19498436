# SPDX-License-Identifier: Apache-2.0
"""``python -m simulators.<cloud>``: what the command lines of all simulators share."""

from __future__ import annotations

import argparse
import json
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from simulators.base.settings import SimulatorSettings
from simulators.base.simulator import Simulator

T = TypeVar("T", bound=SimulatorSettings)
S = TypeVar("S", bound=Simulator[Any])


class SimulatorCommand(argparse.ArgumentParser):
    """The options that each simulator has: ``--port``, ``--seed`` and ``--settings``. A cloud adds its own.

    :param cloud: name of the package below ``simulators``.
    :param description: for ``--help``.
    """

    def __init__(self, cloud: str, description: str | None) -> None:
        super().__init__(prog=f"python -m simulators.{cloud}", description=description)
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

    def run(
        self,
        arguments: Sequence[str] | None,
        settings: T,
        make: Callable[[T, int, int], S],
        begin: Callable[[S, argparse.Namespace], object],
    ) -> int:
        """Runs a simulator until SIGTERM or SIGINT; writes its address to stdout when it answers. Returns 0.

        :param arguments: None = those of the process.
        :param settings: as they are without ``--settings``.
        :param make: gets settings, seed and port.
        :param begin: gets the options, too, before the address is written: it writes what clients need.
        """
        options = self.parse_args(arguments)
        self.fill(settings, options.settings)
        with end_signal() as ended, make(settings, options.seed, options.port) as simulator:
            begin(simulator, options)
            print(simulator.url, flush=True)
            ended.wait()
        return 0


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
