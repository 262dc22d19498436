# SPDX-License-Identifier: Apache-2.0
"""What the programs share: common options, how a program ends, and how durations and moments are read.

A mistake of the user ends in one line and exit status 1 (2 for wrong usage, from argparse), never in a
traceback. With ``--debug`` or ``-d`` the traceback is logged as well.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any, Final, TextIO, TypeVar

from nodepool.exceptions import ConfigError, ZKException
from nodepool.listing import table
from nodepool.listing.table import UnknownColumn, printable_lines
from nodepool.logconfig import LogConfigError

T = TypeVar("T")

DEFAULT_CONFIG: Final = "/etc/nodepool/nodepool.yaml"

#: Exit status of ``status --fail-on-problems`` when something needs attention.
PROBLEMS: Final = 3
#: Exit status after Ctrl-C, as a shell reports it (128 + SIGINT).
INTERRUPTED: Final = 130

#: Kinds of what is quarantined.
HOST: Final = ("host",)
#: Names that an error lists at most.
_MANY: Final = 20

log = logging.getLogger("nodepool.cmd")


class CommandError(Exception):
    """A command cannot do what was asked. The text is what the user reads.

    :param text: one line.
    :param answer: the text is the command's answer and goes to stdout, where scripts of the released
        Nodepool look for it (e.g. ``Node id X not found``). Other errors go to stderr.
    :param hint: one more line for stderr: what there is instead.
    """

    def __init__(self, text: str, *, answer: bool = False, hint: str = "") -> None:
        super().__init__(text)
        self.answer = answer
        self.hint = hint


def listed(what: str, names: Iterable[str]) -> str:
    """What there is, in a line."""
    found = list(names)
    if not found:
        return f"{what}: none"
    more = f" and {len(found) - _MANY} more" if len(found) > _MANY else ""
    return f"{what}: {', '.join(found[:_MANY])}{more}"


class Stopped(BaseException):
    """A signal ends a daemon that has not begun its work yet. It is no error, and no code on the way handles it."""


class _VersionAction(argparse.Action):
    """``--version``, with the drivers of other distributions. Nothing of it is looked up before it is asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str, **kwargs: Any) -> None:
        super().__init__(option_strings, dest=argparse.SUPPRESS, nargs=0, help=kwargs.get("help"))

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from nodepool.driver.registry import installed_drivers
        from nodepool.version import release_string

        print(f"Nodepool version: {release_string()}")
        for point in installed_drivers():
            brought = f" of {point.dist.name} {point.dist.version}" if point.dist else ""
            print(f"Driver {point.name}{brought}")
        parser.exit()


def absolute_path(value: str) -> str:
    """An option's path as it must be kept: ``~`` expanded, absolute, so that a change of directory is harmless."""
    return os.path.abspath(Path(value).expanduser())


def seconds(value: str) -> float:
    """A number of seconds, 0 or more. Raises ValueError."""
    number = float(value)
    if not 0 <= number < float("inf"):
        raise ValueError
    return number


def make_parser(prog: str, description: str) -> argparse.ArgumentParser:
    """A parser with the options that all three programs have (reference/commands 1)."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    add_version_option(parser)
    add_file_options(parser)
    parser.set_defaults(config=DEFAULT_CONFIG, secure=None, logconfig=None)
    return parser


def add_version_option(parser: argparse.ArgumentParser) -> None:
    """Give a program ``--version``."""
    parser.add_argument("--version", action=_VersionAction, help="show the version and exit")


def add_file_options(parser: argparse.ArgumentParser) -> None:
    """Give a program, or one of its commands, the options that name files. Defaults: see `make_parser`."""
    group = parser.add_argument_group("files")
    for option, name, text in (
        ("-c", "config", f"configuration file (default: {DEFAULT_CONFIG})"),
        ("-s", "secure", "secure file with credentials (default: none)"),
        ("-l", "logconfig", "logging configuration file"),
    ):
        group.add_argument(option, dest=name, metavar="FILE", type=absolute_path, default=argparse.SUPPRESS, help=text)


def run(prog: str, function: Callable[[], int]) -> int:
    """Run a program's work and turn every way it may end into an exit status, which is the interpreter's own, too.

    Output that cannot be written, as on a full disk, is dropped here. A function that prints an answer flushes it.

    :param prog: name of the program, put before errors.
    :param function: the work; returns the exit status.
    :return: the status for `sys.exit`.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What other programs stored may have characters that this terminal does not know.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return _outcome(prog, function)
    finally:
        for stream in _streams():
            _write(stream)


def _outcome(prog: str, function: Callable[[], int]) -> int:
    try:
        return function()
    except KeyboardInterrupt:
        return INTERRUPTED
    except Stopped:
        return 0
    except BrokenPipeError:
        # The reader of our output has ended (`| head`).
        return 1
    except CommandError as error:
        _print(str(error), sys.stdout if error.answer else sys.stderr)
        if error.hint:
            _complain(prog, error.hint)
    except UnknownColumn as error:
        _print(str(error), sys.stderr)
    except (ConfigError, ZKException, LogConfigError, OSError) as error:
        log.debug("The reason in full:", exc_info=True)
        _complain(prog, error)
    except Exception as error:
        # A mistake of ours, or of a driver: one line for the operator all the same.
        log.debug("The reason in full:", exc_info=True)
        _complain(prog, f"unexpected error: {type(error).__name__}: {error}")
    return 1


def warn(text: str) -> None:
    """Say on standard error what is not as it should be, while the command goes on."""
    _complain("nodepool", f"warning: {text}")


def _complain(prog: str, error: object) -> None:
    text = str(error).strip() or type(error).__name__
    _print("\n".join(f"{prog}: {line}" for line in text.splitlines()), sys.stderr)


def _print(text: str, stream: TextIO) -> None:
    if stream in _streams():
        # Causes come from other programs, too: no escape sequence of theirs may reach the terminal.
        _write(stream, f"{printable_lines(text)}\n")


def _streams() -> list[TextIO]:
    """Standard output and error, but those that were closed before we began (Python has none then)."""
    return [stream for stream in (sys.stdout, sys.stderr) if stream is not None]


def _write(stream: TextIO, text: str = "") -> None:
    """Write all that is to be written to a stream. Where that is impossible, it and all that follows goes nowhere.

    Otherwise the interpreter tries again at its exit, and makes a traceback and a status of its own of the failure.
    """
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


# Files that commands write.


def write_file(path: Path, data: bytes, mode: int | None) -> None:
    """Write a file as a whole; the one that was there stays until then. A key is never readable by others.

    :param mode: of the file; None = there is one, which keeps mode and owner.
    :raises OSError: it cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if mode is None:
                old = path.stat()
                os.fchown(descriptor, old.st_uid, old.st_gid)
                mode = old.st_mode & 0o777
            os.fchmod(descriptor, mode)
            file.flush()
            os.fsync(descriptor)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


# How often daemons and commands look for reference cycles.

#: New objects that make the interpreter look at the young ones; 700 by default. One list of 300 servers has 10,000.
YOUNG_OBJECTS: Final = 10_000
#: The same for a command: only one that goes on for a while, such as ``nodepool list -w``, ever makes so many.
COMMAND_OBJECTS: Final = 100_000


def look_less_often() -> None:
    """What is there now is not looked at any more, and new objects less often. To be called when all is loaded.

    When it is called again, after a reload, what was there is looked at once more.

    Modules, configuration and the cache of ZooKeeper are 100,000 objects and more, which stay. Looking at them again
    and again was a tenth of the CPU of a burst of cloud nodes. Blocks for about 0.05 s for each 100,000.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    _, middle, old = gc.get_threshold()
    gc.set_threshold(YOUNG_OBJECTS, middle, old)


@contextlib.contextmanager
def in_a_command() -> Iterator[None]:
    """Inside, young objects are looked at less often. The process is to end after that, without a last look.

    Both together are a sixth of the CPU of a command that reads thousands of records.
    """
    _, middle, old = gc.get_threshold()
    gc.set_threshold(COMMAND_OBJECTS, middle, old)
    try:
        yield
    finally:
        gc.freeze()


# Durations and moments: ``90s``, ``15m``, ``1h30m``, ``2d``; ``18:30``.

_CLOCK: Final = re.compile(r"\d{1,2}:\d{2}")


def checked(read: Callable[[str], T]) -> Callable[[str], T]:
    """For ``type`` of an argument: the text of a ValueError is what the user reads."""

    def parsed(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


#: The seconds of a duration.
duration: Final = checked(table.duration)


@checked
def moment(text: str) -> float:
    """A moment, in seconds since the epoch, of e.g. ``18:30``, ``2026-12-24`` or ``2026-12-24T18:30``.

    In local time, unless the text has an offset. A time without a date is the next one.
    """
    now = datetime.now(UTC).astimezone()
    try:
        if _CLOCK.fullmatch(text):
            clock = time.fromisoformat(text.zfill(5))
            when = _at(now, clock) if _at(now, clock) > now else _at(now + timedelta(days=1), clock)
        else:
            when = datetime.fromisoformat(text)
        return when.timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text!r} is no moment; write e.g. 18:30, 2026-12-24 or 2026-12-24T18:30") from None


def _at(day: datetime, clock: time) -> datetime:
    return datetime.combine(day.date(), clock).astimezone()


def some_seconds(text: str) -> float:
    """A number of seconds, above 0. Raises ValueError."""
    if not (number := seconds(text)):
        raise ValueError
    return number
