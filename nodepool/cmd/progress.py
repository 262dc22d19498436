# SPDX-License-Identifier: Apache-2.0
"""Progress of work that a command waits for: bars on a terminal, elsewhere a line for each 10%; a line beside logs."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self, TextIO

from nodepool.cmd.session import ERASE_LINE
from nodepool.listing.times import printable

_BAR: Final = 20
#: Up a line, and delete what stands there.
_UP: Final = "\x1b[1A\x1b[2K"


@dataclass(frozen=True)
class Item:
    """One piece of work.

    :param short: name beside a bar, where there is little room; empty = ``name``.
    :param percent: None = nobody knows how much there is to do.
    :param text: what else there is to tell, e.g. the present step. It may change with every look.
    :param state: what changes rarely, e.g. the step; a change is worth a line when ``percent`` is None.
    """

    name: str
    percent: float | None
    text: str
    state: str = ""
    short: str = ""


class ProgressDisplay:
    """Writes to a stream; for one thread."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._bars = stream.isatty()
        self._drawn = 0
        #: Item -> what was told last: tens of percent, or the state.
        self._told: dict[str, object] = {}

    def show(self, items: Sequence[Item]) -> None:
        """Show how far the work is."""
        if self._bars:
            width = shutil.get_terminal_size().columns - 1
            lines = [_bar(item)[:width] for item in items]
            self._stream.write(_UP * self._drawn + "".join(f"{line}\n" for line in lines))
            self._drawn = len(lines)
        else:
            for item in items:
                mark = item.state if item.percent is None else int(item.percent) // 10
                if self._told.get(item.name) != mark:
                    self._told[item.name] = mark
                    self._stream.write(f"{as_line(item)}\n")
        self._stream.flush()

    def clear(self) -> None:
        """Take the bars away; the last word follows."""
        self._stream.write(_UP * self._drawn)
        self._drawn = 0
        self._stream.flush()


class ProgressLine:
    """One line on a terminal to which others log, too; what they log is never deleted. Elsewhere nothing is written.

    Any thread. To be used with ``with``: the line is removed in the end.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream if stream is not None and stream.isatty() else None
        self._lock = threading.Lock()
        self._drawn = False
        self._handlers = logging.getLogger().handlers[:] if self._stream else []

    @property
    def is_shown(self) -> bool:
        """Is there a terminal?"""
        return self._stream is not None

    def __enter__(self) -> Self:
        for handler in self._handlers:
            handler.addFilter(self._before_log_line)
        return self

    def __exit__(self, *_: object) -> None:
        for handler in self._handlers:
            handler.removeFilter(self._before_log_line)
        self.clear()

    def show(self, text: str) -> None:
        """Write this in place of what was there."""
        if self._stream is not None:
            with self._lock:
                width = shutil.get_terminal_size().columns - 1
                self._stream.write(ERASE_LINE + printable(text)[:width])
                self._stream.flush()
                self._drawn = True

    def clear(self) -> None:
        """Take the line away."""
        if self._stream is not None:
            with self._lock:
                if self._drawn:
                    self._stream.write(ERASE_LINE)
                    self._stream.flush()
                self._drawn = False

    def _before_log_line(self, _: logging.LogRecord) -> bool:
        self.clear()
        return True


def as_line(item: Item) -> str:
    """A line without a bar."""
    return _line(item.name, item)


def _line(name: str, item: Item) -> str:
    percent = "" if item.percent is None else f" {int(item.percent):3d}%"
    return printable(f"{name}:{percent} {item.text or item.state}".rstrip())


def _bar(item: Item) -> str:
    name = item.short or item.name
    if item.percent is None:
        return _line(name, item)
    done = int(item.percent * _BAR / 100)
    bar = "#" * done + "." * (_BAR - done)
    return printable(f"{name} [{bar}] {int(item.percent):3d}% {item.text or item.state}".rstrip())
