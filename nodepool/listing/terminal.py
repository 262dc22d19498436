# SPDX-License-Identifier: Apache-2.0
"""Listings where people read them: as wide as the terminal, sorted, in colour, and redrawn while they change.

What does not go to a terminal is printed as `listing.table` renders it; the library ``rich`` is not imported then.
After the display comes the width of columns.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TextIO

from nodepool.listing import table as forms
from nodepool.listing.table import WHOLE, Column, Paragraph, Place, Report, Table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.segment import Segment

#: Between two pictures of a listing that is watched, in seconds: ages grow.
REDRAW_SECONDS: Final = 1.0
_HEADER: Final = "bold"


@dataclass(frozen=True)
class Display:
    """How a listing is shown.

    :param form: one of `table.FORMATS`. Only ``table`` and ``wide`` look different on a terminal.
    :param sort: key of a column, with ``-`` before it for descending order; None = the listing's own order.
    :param columns: keys of the columns that are shown; empty = those of the form.
    """

    form: str = "table"
    sort: str | None = None
    columns: Sequence[str] = ()
    headers: bool = True


def show(what: Table | Report, display: Display | None = None, stream: TextIO | None = None) -> None:
    """Print a listing or a report; on a terminal in colour.

    :param stream: standard output if None.
    :raises UnknownColumn: ``sort`` or ``columns`` name a column that there is not.
    """
    display, stream = display or Display(), stream or sys.stdout
    if _is_drawn(stream, display):
        console = console_of(stream)
        _print(console, _picture(console, what, display))
    elif not isinstance(what, Table):
        print(forms.as_text(what), file=stream)
    else:
        text = forms.render(arranged(what, display, terminal=False), display.form, headers=display.headers)
        if text or display.form != "name":
            print(text, file=stream)


def can_follow(display: Display) -> bool:
    """Can standard output be drawn again and again?"""
    return _is_drawn(sys.stdout, display) and not console_of(sys.stdout).is_dumb_terminal


def follow(
    look: Callable[[], Table | Report],
    wait: Callable[[float], Any],
    display: Display | None = None,
    stream: TextIO | None = None,
) -> None:
    """Draw a listing or a report on a terminal for ever, each time anew.

    Ends with what ``look`` or ``wait`` raises, KeyboardInterrupt among it; the terminal is as before then.

    :param look: what there is now.
    :param wait: blocks for at most as many seconds, less when something has changed.
    """
    from rich.live import Live
    from rich.segment import Segments

    console = console_of(stream or sys.stdout)
    with Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        while True:
            lines = _in_height(_picture(console, look(), display or Display(), wrapped=True), console.height)
            # Live ends the last line by itself.
            live.update(Segments([part for line in lines for part in line][:-1]), refresh=True)
            wait(REDRAW_SECONDS)


def hint(text: str) -> None:
    """Say on standard error, if it is a terminal, what to do next. Programs do not get it."""
    if sys.stderr is not None and sys.stderr.isatty():
        print(text, file=sys.stderr)


def arranged(table: Table, display: Display, *, terminal: bool) -> Table:
    """The rows and columns that were asked for, in the order that was asked for.

    :param terminal: for people at a terminal: the listing's own order, if none is asked for.
    :raises UnknownColumn: as `show`.
    """
    order = display.sort or (table.order if terminal else None)
    if order is not None:
        table = forms.in_order(table, order)
    return forms.selected(table, display.columns) if display.columns else table


def _is_drawn(stream: TextIO, display: Display) -> bool:
    return display.form in ("table", "wide") and stream.isatty()


def console_of(stream: TextIO) -> Console:
    """It knows the terminal: width, height, and colours unless NO_COLOR is set or TERM is "dumb"."""
    from rich.console import Console

    return Console(file=stream, force_terminal=True, markup=False, emoji=False, highlight=False)


def _print(console: Console, lines: list[list[Segment]]) -> None:
    from rich.segment import Segments

    console.print(Segments([part for line in lines for part in line]), end="", soft_wrap=True)


def _in_height(lines: list[list[Segment]], height: int) -> list[list[Segment]]:
    """As many lines as there is room for; the last one says how many there are besides."""
    from rich.segment import Segment

    room = max(2, height - 1)
    if len(lines) <= room:
        return lines
    return [*lines[: room - 1], [Segment(f"... and {len(lines) - room + 1} more"), Segment.line()]]


def _lines(console: Console, table: Table, display: Display) -> list[list[Segment]]:
    """The listing as lines of styled texts, each with its line break."""
    from rich.cells import cell_len
    from rich.segment import Segment
    from rich.style import Style

    wide = display.form == "wide"
    table = forms.shown(table, Place.WIDE) if wide else forms.without_empty(forms.shown(table, Place.TERMINAL))
    texts = [[forms.cell(*pair) or "-" for pair in zip(table.columns, row, strict=True)] for row in table.rows]
    headers = [column.header.upper() for column in table.columns] if display.headers else [""] * len(table.columns)
    natural = [max(map(cell_len, column)) for column in zip(headers, *texts, strict=True)]
    idle = {n for n, column in enumerate(zip(*table.rows, strict=True)) if not any(column)}
    widths = fit(table.columns, natural, None if wide else console.width, idle)
    ellipsis = "…" if console.encoding.startswith("utf") else "~"
    styles = {"": None, _HEADER: Style.parse(_HEADER)}
    last = max(widths, default=-1)

    def segments(line: Sequence[str], names: Sequence[str]) -> list[Segment]:
        parts = []
        for number, width in widths.items():
            name = names[number]
            if name not in styles:
                styles[name] = Style.parse(name)
            text = cut(line[number], width, ellipsis)
            parts.append(Segment(text.rstrip() if number == last else text, styles[name]))
            if number != last:
                parts.append(Segment(GAP))
        return [*parts, Segment.line()]

    lines = [segments(headers, [_HEADER] * len(headers))] if display.headers else []
    for row, line in zip(table.rows, texts, strict=True):
        lines.append(segments(line, [column.style(value) for column, value in zip(table.columns, row, strict=True)]))
    return lines


def _picture(console: Console, what: Table | Report, display: Display, *, wrapped: bool = False) -> list[list[Segment]]:
    """Lines of styled texts, each with its line break.

    :param wrapped: no paragraph is wider than the terminal, so that the next picture finds where this one begins.
    """
    if isinstance(what, Table):
        return _lines(console, arranged(what, display, terminal=True), display)
    lines = []
    for part in what:
        if isinstance(part, Table):
            lines += _picture(console, part, Display())
        else:
            lines += _paragraph_lines(console, part, wrapped=wrapped)
    return lines


def _paragraph_lines(console: Console, part: Paragraph, *, wrapped: bool) -> list[list[Segment]]:
    from rich.segment import Segment
    from rich.style import Style
    from rich.text import Text

    if wrapped and part.text:
        lines = console.render_lines(Text.assemble(*part.spans), pad=False)
    else:
        lines = [[Segment(text, Style.parse(style)) for text, style in part.spans]]
    return [[*line, Segment.line()] for line in lines]


# How a listing fits the width of a terminal: which columns stay, and how wide they are.

#: Between two columns.
GAP: Final = "  "
#: No column is cut to fewer characters, whatever the terminal.
_NARROWEST: Final = 4


def fit(
    columns: Sequence[Column], natural: Sequence[int], room: int | None, idle: Collection[int] = ()
) -> dict[int, int]:
    """Number of each column that stays -> its width.

    Columns go until the rest has room, with long texts cut to the column's ``least``: first those that have only zeros,
    then by their priority. Then the widest are cut until all fit. What is not to be cut may be too wide all the same.

    :param natural: width of the longest text of each column.
    :param room: width of the terminal; None = without bounds.
    :param idle: numbers of columns that have only zeros, or nothing.
    """
    if room is None:
        return dict(enumerate(natural))
    kept = list(range(len(columns)))
    while _total([min(natural[n], columns[n].least) for n in kept]) > room:
        ranks = {n: (n in idle, columns[n].priority, n) for n in kept if columns[n].priority > 0}
        if not ranks:
            break
        kept.remove(max(ranks, key=ranks.__getitem__))
    # What can never have so much room need not be cut one by one.
    widths = {n: natural[n] if columns[n].least == WHOLE else min(natural[n], max(room, _NARROWEST)) for n in kept}
    mercy = {n: columns[n].least for n in kept}
    for least in (mercy, {n: most if most == WHOLE else _NARROWEST for n, most in mercy.items()}):
        while _total(list(widths.values())) > room:
            wide = [n for n in kept if widths[n] > least[n]]
            if not wide:
                break
            widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * max(0, len(widths) - 1)


def cut(text: str, width: int, ellipsis: str = "…") -> str:
    """A text of exactly a width: filled with blanks, or cut, with an ellipsis at its end."""
    from rich.cells import cell_len, set_cell_size

    return set_cell_size(text, width) if cell_len(text) <= width else set_cell_size(text, width - 1) + ellipsis
