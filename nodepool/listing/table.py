# SPDX-License-Identifier: Apache-2.0
"""A listing as an ASCII table, JSON, CSV or names (reference/commands 2). Terminals: `listing.terminal`.

First tables, then reports of several of them, then how single values are written: colours, moments, numbers, texts.
"""

from __future__ import annotations

import enum
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Final

from nodepool.model.config_keys import did_you_mean
from nodepool.model.event import short

FORMATS: Final = ("table", "wide", "json", "csv", "name")


class Place(enum.Flag):
    """Where a column is shown. JSON has all columns."""

    #: Tables that do not go to a terminal, and CSV: what scripts read.
    TABLE = enum.auto()
    TERMINAL = enum.auto()
    #: ``-o wide``
    WIDE = enum.auto()


EVERYWHERE: Final = Place.TABLE | Place.TERMINAL | Place.WIDE
#: Not in what scripts of released Nodepool read, so that a new column changes nothing for them.
PEOPLE: Final = Place.TERMINAL | Place.WIDE
ONLY_JSON: Final = Place(0)
#: `Column.least` of ids and names that are arguments of commands: they are not cut.
WHOLE: Final = 10_000


class UnknownColumn(LookupError):
    """A listing has no column with a key. The text says which there are."""

    def __init__(self, key: str, table: Table) -> None:
        keys = [column.key for column in table.columns]
        super().__init__(f"there is no column {key!r}{did_you_mean(key, keys)} (there are: {', '.join(keys)})")


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


@dataclass(frozen=True)
class Column:
    """One column: its header in a table, and its key in JSON and CSV.

    :param show: makes the text in a table of a value that is not null, e.g. of a number with a unit.
    :param places: where it is shown.
    :param priority: on a terminal without room for all columns those with only zeros go first, then the one with the
        highest; 0 = it stays.
    :param least: columns go before this one is cut to fewer characters; `WHOLE` = it is not cut.
    :param style: name of the library ``rich`` for the colour of a value on a terminal, e.g. ``red``; empty = none.
    :param of: gets the value of a record, or is the name of its attribute; empty = the key is that. For `table_of`.
    """

    header: str
    key: str
    show: Callable[[Any], str] = _shown
    places: Place = EVERYWHERE
    priority: int = 0
    least: int = 16
    style: Callable[[Any], str] = lambda value: ""
    of: Callable[[Any], Any] | str = ""


@dataclass(frozen=True)
class Table:
    """Rows of JSON values: text, numbers, booleans, None, lists, objects.

    :param order: key of the column by which a terminal shows them sorted; None = as they are.
    :param people: keys of columns in the order in which people read them: on a terminal and with ``-o wide``. Others
        follow.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    order: str | None = None
    people: Sequence[str] = ()


def table_of(
    columns: Iterable[Column],
    records: Iterable[Any],
    order: str | None = None,
    people: Sequence[str] = (),
    place: Place = ONLY_JSON,
) -> Table:
    """A table with a row for each record. Parameters that are not described here are those of `Table`.

    :param place: only with columns that are shown there; by default with all.
    """
    columns = [column for column in columns if place in column.places]
    values = [attrgetter(column.of or column.key) if isinstance(column.of, str) else column.of for column in columns]
    return Table(columns, [[value(record) for value in values] for record in records], order, people)


def render(table: Table, form: str = "table", *, headers: bool = True) -> str:
    """A listing as text, without a line break at the end.

    :param form: one of `FORMATS`.
    :param headers: False: no headers, and a table has no box, as other programs like to read it.
    """
    if form == "json":
        return _as_json(table)
    if form == "name":
        return "\n".join(cell(table.columns[0], row[0]) for row in table.rows)
    table = shown(table, Place.WIDE if form == "wide" else Place.TABLE)
    if form == "csv":
        return _as_csv(table, headers=headers)
    return _as_table(table) if headers else _plain(table)


def shown(table: Table, place: Place) -> Table:
    """Only the columns that are shown in a place."""
    numbers = [n for n, column in enumerate(table.columns) if place in column.places]
    if place in PEOPLE:
        ranks = {key: rank for rank, key in enumerate(table.people)}
        numbers.sort(key=lambda n: ranks.get(table.columns[n].key, len(ranks)))
    return _only(table, numbers)


def without_empty(table: Table) -> Table:
    """Without columns that may go and that have no value in any row."""
    kept = [
        n
        for n, column in enumerate(table.columns)
        if column.priority == 0 or any(row[n] is not None and row[n] != [] for row in table.rows)
    ]
    return _only(table, kept)


def selected(table: Table, keys: Sequence[str]) -> Table:
    """The columns with these keys, in this order, shown everywhere.

    :raises UnknownColumn: there is no such column.
    """
    chosen = _only(table, [_number(table, key) for key in keys])
    return replace(
        chosen, people=(), columns=[replace(column, places=EVERYWHERE, priority=0) for column in chosen.columns]
    )


def _number(table: Table, key: str) -> int:
    for number, column in enumerate(table.columns):
        if column.key == key:
            return number
    raise UnknownColumn(key, table)


def _only(table: Table, numbers: Sequence[int]) -> Table:
    columns = [table.columns[n] for n in numbers]
    return replace(table, columns=columns, rows=[[row[n] for n in numbers] for row in table.rows])


def in_order(table: Table, key: str) -> Table:
    """Rows sorted by a column; those without a value come last.

    :param key: of the column; with ``-`` before it, in descending order.
    :raises UnknownColumn: there is no such column.
    """
    number = _number(table, key.removeprefix("-"))
    there = [row for row in table.rows if row[number] is not None]
    there.sort(key=lambda row: sort_key(row[number]), reverse=key.startswith("-"))
    return replace(table, rows=[*there, *(row for row in table.rows if row[number] is None)])


def sort_key(value: Any) -> tuple[bool, float, str]:
    """Numbers by their size, before all else by its text."""
    if type(value) is str:
        return (True, 0.0, value)
    if isinstance(value, (int, float)):
        return (False, value, "")
    return (True, 0.0, _shown(value))


def _plain(table: Table) -> str:
    """Columns side by side without a box; a cell without a text is ``-``, so that each line has as many words."""
    lines = [[cell(*pair) or "-" for pair in zip(table.columns, row, strict=True)] for row in table.rows]
    return "\n".join("  ".join(line).rstrip() for line in padded(lines))


def _as_table(table: Table) -> str:
    lines = [[column.header for column in table.columns]]
    lines += [[cell(*pair) for pair in zip(table.columns, row, strict=True)] for row in table.rows]
    lines = padded(lines)
    rule = f"+{'+'.join('-' * (len(header) + 2) for header in lines[0])}+"
    head, *rows = [f"|{'|'.join([f' {text} ' for text in line])}|" for line in lines]
    return "\n".join([rule, head, rule, *rows, rule])


def padded(lines: Sequence[Sequence[str]]) -> list[list[str]]:
    """Texts of columns, filled with blanks until all of a column are as wide as the widest of it."""
    measure: Callable[[str], int] = len
    pad: Callable[[str, int], str] = str.ljust
    if not all(text.isascii() for line in lines for text in line):
        # Characters of other scripts may take two places, or none.
        from rich.cells import cell_len, set_cell_size

        measure, pad = cell_len, set_cell_size
    widths = [max(map(measure, texts)) for texts in zip(*lines, strict=True)]
    return [list(map(pad, line, widths)) for line in lines]


def cell(column: Column, value: Any) -> str:
    """A value as text without control characters."""
    if value is None:
        return ""
    return printable(column.show(value))


def _as_json(table: Table) -> str:
    """Each row is an object in one line: readable, and json's fast encoder is only used without an indent."""
    keys = [column.key for column in table.columns]
    lines = [json.dumps(dict(zip(keys, row, strict=True))) for row in table.rows]
    return "[\n" + ",\n".join(lines) + "\n]" if lines else "[]"


def _as_csv(table: Table, *, headers: bool) -> str:
    import csv
    import io

    def text(value: Any) -> Any:
        if isinstance(value, list):
            return _shown(value)
        return json.dumps(value) if isinstance(value, dict) else value

    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    if headers:
        writer.writerow([column.key for column in table.columns])
    writer.writerows([text(value) for value in row] for row in table.rows)
    return output.getvalue().rstrip("\n")


# A report: paragraphs and listings one below the other, e.g. of ``nodepool status``. `listing.terminal` shows it.


@dataclass(frozen=True)
class Paragraph:
    """Text without line breaks; long ones are wrapped where they are drawn again and again.

    :param spans: text, and its style on a terminal: a name of the library ``rich``, empty = none.
    """

    spans: Sequence[tuple[str, str]] = ()

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.spans)


BLANK = Paragraph()


#: One picture.
Report = Sequence[Paragraph | Table]


def as_text(report: Report) -> str:
    """A report as it is printed where no terminal is."""
    return "\n".join(part.text if isinstance(part, Paragraph) else render(part) for part in report)


# Colours of values on a terminal: names that the library ``rich`` knows.

GOOD: Final = "green"
BUSY: Final = "cyan"
WAITING: Final = "yellow"
BAD: Final = "red"
QUIET: Final = "dim"
HEADING: Final = "bold"

#: States of nodes, requests, builds, uploads, pools, providers and hosts.
_STATES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("ready", "fulfilled", "running", "up", "current"), GOOD),
    **dict.fromkeys(("allocated", "in-use", "building", "testing", "init", "uploading", "pending", "starting"), BUSY),
    "full": BUSY,
    **dict.fromkeys(("requested", "hold", "paused", "draining", "drained", "maintenance", "quarantined"), WAITING),
    **dict.fromkeys(("failed", "aborted", "unavailable", "down", "broken"), BAD),
    **dict.fromkeys(("used", "deleting", "deleted", "stopped"), QUIET),
}
#: Kinds of problems with which requests are served: an operator wanted it so, or launchers differ.
_WEAK: Final = frozenset({"maintenance", "version", "configuration"})


def state(value: Any) -> str:
    """Colour of a state; empty = none."""
    return _STATES.get(value, "") if isinstance(value, str) else ""


def problem(kind: str) -> str:
    """Colour of what needs attention, by the kind of a `plan.attention.StatusProblem`."""
    return WAITING if kind in _WEAK else BAD


# Moments as people read them, and durations as people write them.

#: What a date can show, in seconds since the epoch: records of other programs may have any number.
_FIRST: Final = 86400.0
_LAST: Final = 253_370_000_000.0
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_LONGEST: Final = 100 * 365 * 86400
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_WHOLE: Final = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+")


def duration(text: str) -> float:
    """The seconds of e.g. ``90s``, ``15m``, ``1h30m`` or ``2d``.

    :raises ValueError: it is no duration, or too long. The text says what one is.
    """
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is no duration; write e.g. 90s, 15m, 1h30m or 2d")
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
    if seconds > _LONGEST:
        raise ValueError(f"{text!r} is longer than 100 years")
    return seconds


def moment(at: float, now: float) -> str:
    """A moment in local time: the time alone when it is of today, else with the date.

    :param at: and ``now``: seconds since the epoch.
    """
    when, today = _local(at), _local(now)
    return f"{when:%H:%M:%S}" if when.date() == today.date() else date_and_time(at)


def date_and_time(at: float) -> str:
    """A moment in local time, with its date.

    :param at: seconds since the epoch.
    """
    return f"{_local(at):%Y-%m-%d %H:%M:%S}"


def with_zone(at: float) -> str:
    """The same with the name of the zone.

    :param at: seconds since the epoch.
    """
    return f"{_local(at):%Y-%m-%d %H:%M:%S %Z}"


@dataclass(frozen=True)
class since:
    """Shows when something began and how long ago that is, e.g. ``02:41:07 (3 h)``. For `Column.show`.

    :param now: seconds since the epoch.
    """

    now: float

    def __call__(self, at: float) -> str:
        """:param at: seconds since the epoch; 0 = not known."""
        return f"{moment(at, self.now)} ({self.ago(at)})" if at else ""

    def ago(self, at: float) -> str:
        """How long ago it began alone."""
        return short(self.now - at) if at else ""


def until(now: float) -> Callable[[float], str]:
    """Shows how long it is until a moment, e.g. ``in 12 s`` or ``in 2 h``, rounded up. For `Column.show`."""

    def show(at: float) -> str:
        unit = 1 if at - now <= 60 else 60
        return f"in {short(math.ceil((at - now) / unit) * unit)}" if at > now else "now"

    return show


def _local(at: float) -> datetime:
    return datetime.fromtimestamp(min(max(at, _FIRST), _LAST), UTC).astimezone()


# Numbers with units, as people read them.

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def size(count: float) -> str:
    """Bytes in the unit that suits them, e.g. ``1.5 GiB``."""
    unit = 0
    while abs(count) >= 1024 and unit < len(_UNITS) - 1:
        count /= 1024
        unit += 1
    return f"{count:.0f} B" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"


def speed(bytes_per_second: float) -> str:
    """E.g. ``12.0 MiB/s``."""
    return f"{size(bytes_per_second)}/s"


def percent(value: float) -> str:
    """A whole number; 100% only when nothing is left."""
    return f"{int(max(0.0, min(100.0, value)))}%"


# Texts of other programs on a terminal.


def printable(text: str) -> str:
    """A text in which no character can do anything but be printed: no escape sequence may reach the terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " for char in text)


def printable_lines(text: str) -> str:
    """A text of several lines, in which no other character can do anything but be printed."""
    return "\n".join(map(printable, text.splitlines()))


def printable_log(text: str) -> str:
    """The same of a log, with its tabs. Packages write what they like into one."""
    return "".join(char if char.isprintable() or char in "\n\t" else " " for char in text)
