# SPDX-License-Identifier: Apache-2.0
"""Shows on stderr what a run does: one line a step, and on a terminal a counter that moves."""

from __future__ import annotations

import sys
import time
from typing import TextIO

#: A counter is shown at most this often, seconds.
PACE_SECONDS = 0.2
WIDTH = 118


class Progress:
    """Belongs to the thread that runs the scenarios.

    :param stream: where to; counters are shown only if that is a terminal.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._start = time.monotonic()
        self._step = ""
        self._shown = 0.0
        self._open = False

    def step(self, text: str) -> None:
        """Begin a step."""
        self._step = f"[{self.elapsed()}] {text}"
        self._write(f"{self._step}\n")

    def count(self, done: int, total: int, what: str = "") -> None:
        """So much of the step is done. Cheap enough to call for each request."""
        now = time.monotonic()
        if not self._terminal or (now < self._shown + PACE_SECONDS and done < total):
            return
        self._shown = now
        self._write(f"  {done}/{total} {what}"[:WIDTH].ljust(WIDTH), counter=True)

    def elapsed(self) -> str:
        """Time since the start of the run, as mm:ss."""
        minutes, seconds = divmod(int(time.monotonic() - self._start), 60)
        return f"{minutes:02}:{seconds:02}"

    def _write(self, text: str, counter: bool = False) -> None:
        if self._open:
            self._stream.write("\r")
            if not counter:
                self._stream.write(" " * WIDTH + "\r")
        self._open = counter
        self._stream.write(text)
        self._stream.flush()
