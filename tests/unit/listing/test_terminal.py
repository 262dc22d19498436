# SPDX-License-Identifier: Apache-2.0
"""nodepool.listing.terminal: listings on a terminal and elsewhere."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable

import pytest

from nodepool.listing import table as listing_table
from nodepool.listing import terminal
from nodepool.listing.table import (
    BLANK,
    ONLY_JSON,
    PEOPLE,
    Column,
    Paragraph,
    Place,
    Report,
    Table,
    UnknownColumn,
    as_text,
    render,
)
from nodepool.listing.terminal import Display
from tests.support.terminal import TerminalStream

COLUMNS = (
    Column("ID", "id"),
    Column("State", "state", style=listing_table.state),
    Column("Age", "age", places=Place.TABLE, moves=True),
    Column("Seconds", "age_seconds", places=PEOPLE, moves=True),
    Column("Reason", "reason", places=PEOPLE, priority=1),
    Column("Server", "server", places=Place.TABLE | Place.WIDE),
    Column("Created", "created_time", places=ONLY_JSON),
)
TABLE = Table(
    COLUMNS,
    [["2", "ready", "x", 5, None, "s", 1.5], ["1", "failed", "x", 70, "no room in the whole cloud", "t", 2.5]],
    "id",
)


class Stop(Exception):
    """Ends a listing that is watched."""


@pytest.fixture(autouse=True)
def size(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Sets the size of the terminal; 80 by 25 at the beginning."""

    def set_size(columns: int, lines: int) -> None:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("LINES", str(lines))

    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    set_size(80, 25)
    return set_size


def drawn(table: Table = TABLE, display: Display | None = None) -> list[str]:
    stream = TerminalStream()
    terminal.show(table, display, stream)
    return stream.lines


def test_no_box_and_the_columns_for_people_in_the_order_of_the_listing() -> None:
    assert drawn() == [
        "ID  STATE   SECONDS  REASON",
        "1   failed  70       no room in the whole cloud",
        "2   ready   5        -",
    ]


def test_columns_go_and_texts_are_cut_where_there_is_no_room(size: Callable[[int, int], None]) -> None:
    size(42, 25)
    assert drawn()[1] == "1   failed  70       no room in the whole…"
    size(30, 25)
    assert drawn()[1] == "1   failed  70"


def test_an_ellipsis_that_the_terminal_does_not_know(size: Callable[[int, int], None]) -> None:
    size(42, 25)
    stream = TerminalStream("latin-1")
    terminal.show(TABLE, None, stream)
    assert stream.lines[1].endswith("no room in the whole~")


def test_wide_has_more_columns_and_cuts_nothing(size: Callable[[int, int], None]) -> None:
    size(20, 25)
    assert drawn(display=Display("wide"))[1] == "1   failed  70       no room in the whole cloud  t"


def test_wide_characters_take_two_places() -> None:
    table = Table((Column("Name", "name"), Column("ID", "id")), [["日本", "1"], ["abcd", "2"]])
    assert drawn(table) == ["NAME  ID", "日本  1", "abcd  2"]


def test_states_have_colours() -> None:
    stream = TerminalStream()
    terminal.show(TABLE, None, stream)
    assert "\x1b[31mfailed" in stream.raw_text
    assert "\x1b[32mready" in stream.raw_text


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_colours(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    stream = TerminalStream()
    terminal.show(TABLE, None, stream)
    assert "\x1b[3" not in stream.raw_text
    assert stream.lines == drawn()


def test_texts_of_others_do_nothing_to_the_terminal() -> None:
    """Neither escape sequences nor what ``rich`` takes for markup."""
    stream = TerminalStream()
    terminal.show(Table((Column("C", "c"),), [["a\x1b[31mb\n\u202ec [red]d[/red] :smile:"]]), None, stream)
    assert stream.lines == ["C", "a [31mb  c [red]d[/red] :smile:"]


def test_sorted_and_chosen_columns() -> None:
    assert drawn(display=Display(sort="-id", columns=["reason", "id"], headers=False)) == [
        "-                           2",
        "no room in the whole cloud  1",
    ]


@pytest.mark.parametrize("display", [Display(sort="ag"), Display(columns=["ag"])])
def test_unknown_column(display: Display) -> None:
    with pytest.raises(UnknownColumn, match="there is no column 'ag', did you mean 'age'"):
        drawn(display=display)


@pytest.mark.parametrize("form", ["table", "json", "csv", "yaml"])
def test_elsewhere_it_is_as_it_was(form: str) -> None:
    stream = io.StringIO()
    terminal.show(TABLE, Display(form), stream)
    assert stream.getvalue() == render(TABLE, form) + "\n"


def test_json_is_no_picture_on_a_terminal_either() -> None:
    assert drawn(display=Display("json")) == render(TABLE, "json").splitlines()


def test_no_names_are_no_line() -> None:
    stream = io.StringIO()
    terminal.show(Table(COLUMNS, []), Display("name"), stream)
    assert stream.getvalue() == ""


def test_without_a_terminal_the_library_is_not_imported() -> None:
    code = (
        "import sys, io; from nodepool.listing import terminal, table;"
        "terminal.show(table.Table((table.Column('A', 'a'),), [['x']]), terminal.Display(), io.StringIO());"
        "sys.exit('rich' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


class Watched:
    """A listing of one row whose state changes with each look but the second, and that ends after four."""

    def __init__(self) -> None:
        self.looks = 0

    def look(self) -> Table:
        self.looks += 1
        state = ("init", "init", "building", "ready")[self.looks - 1]
        return Table(COLUMNS, [["1", state, "x", self.looks, None, None, None]])

    def wait(self, seconds: float) -> None:
        assert 0 < seconds <= 2
        if self.looks == 4:
            raise Stop


def followed(stream: io.TextIOBase, display: Display | None = None) -> None:
    watched = Watched()
    with pytest.raises(Stop):
        terminal.follow(watched.look, watched.wait, display, stream)  # type: ignore[arg-type]


def test_a_terminal_is_drawn_again() -> None:
    stream = TerminalStream()
    followed(stream)
    # Each picture begins where the last one did.
    assert stream.raw_text.count("\x1b[1A") >= 3
    assert [line.split() for line in stream.lines if "1   " in line][-1][:2] == ["1", "ready"]
    assert stream.raw_text.index("\x1b[?25l") < stream.raw_text.rindex("\x1b[?25h"), "the cursor is there again"


def test_a_picture_is_not_higher_than_the_terminal(size: Callable[[int, int], None]) -> None:
    size(80, 5)
    stream = TerminalStream()
    table = Table(COLUMNS, [[str(n), "ready", "x", 1, None, None, None] for n in range(10)])

    def wait(seconds: float) -> None:
        raise Stop

    with pytest.raises(Stop):
        terminal.follow(lambda: table, wait, None, stream)
    assert [line.split()[0] for line in stream.lines[:4]] == ["ID", "0", "1", "..."]
    assert "... and 8 more" in stream.lines[3]


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (
            "table",
            "ID  STATE  SECONDS  REASON\n1   init   1        -\n1   building  3        -\n1   ready  4        -\n",
        ),
        ("name", "1\n1\n1\n"),
    ],
)
def test_elsewhere_changed_rows_follow(form: str, text: str) -> None:
    stream = io.StringIO()
    followed(stream, Display(form))
    assert stream.getvalue() == text


def test_a_dumb_terminal_cannot_be_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    stream = TerminalStream()
    followed(stream)
    assert [line.split()[1] for line in stream.lines] == ["STATE", "init", "building", "ready"]


REPORT = Report(
    [Paragraph([("- ", ""), ("the cloud is [red]down[/red] for good", "red")]), BLANK, TABLE], {"problems": 1}
)


def test_a_report_on_a_terminal(size: Callable[[int, int], None]) -> None:
    """In colour, its listings as others; a line that is printed once is for the terminal to wrap."""
    size(20, 25)
    stream = TerminalStream()
    terminal.show_report(REPORT, stream)
    assert stream.lines[:2] == ["- the cloud is [red]down[/red] for good", ""]
    assert "\x1b[31mthe cloud is" in stream.raw_text
    assert stream.lines[2:] == drawn()


def test_a_report_elsewhere() -> None:
    stream = io.StringIO()
    terminal.show_report(REPORT, stream)
    assert stream.getvalue() == f"- the cloud is [red]down[/red] for good\n\n{render(TABLE)}\n"


def followed_report(stream: io.TextIOBase, form: str) -> None:
    """Two pictures of the same."""
    looks: list[Report] = []

    def look() -> Report:
        looks.append(REPORT)
        return REPORT

    def wait(seconds: float) -> None:
        assert 0 < seconds <= 2
        if len(looks) == 2:
            raise Stop

    with pytest.raises(Stop):
        terminal.follow_report(look, wait, form, stream)  # type: ignore[arg-type]


def test_a_report_is_drawn_again(size: Callable[[int, int], None]) -> None:
    """OV-6: no line is wider than the terminal, or the next picture would not cover this one."""
    size(24, 25)
    stream = TerminalStream()
    followed_report(stream, "table")
    assert stream.lines[:2] == ["- the cloud is ", "[red]down[/red] for good"]
    height = len([REPORT.parts[0], *drawn()]) + 2
    assert stream.raw_text.count("\x1b[1A") >= height - 1
    assert stream.raw_text.index("\x1b[?25l") < stream.raw_text.rindex("\x1b[?25h"), "the cursor is there again"


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_report_that_a_program_watches(form: str) -> None:
    """OV-6."""
    stream = io.StringIO()
    followed_report(stream, form)
    assert stream.getvalue() == ('{"problems": 1}\n' if form == "json" else f"{as_text(REPORT)}\n")


def test_hints_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (io.StringIO(), TerminalStream()):
        monkeypatch.setattr(sys, "stderr", stream)
        terminal.hint("Start a launcher.")
        told = stream.raw_text if isinstance(stream, TerminalStream) else stream.getvalue()
        assert told == ("Start a launcher.\n" if stream.isatty() else "")
