# SPDX-License-Identifier: Apache-2.0
"""How listings are written: boxes, JSON, CSV, YAML, lines and a terminal that is drawn again."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable

import pytest

from nodepool.cmd.configuration import as_frame, as_github, as_json
from nodepool.cmd.configuration import as_text as problem_text
from nodepool.config.problems import Problem, Severity
from nodepool.listing.overview import sentence
from nodepool.listing.records import event_line
from nodepool.listing.table import (
    ONLY_JSON,
    PEOPLE,
    WHOLE,
    Column,
    Place,
    Table,
    UnknownColumn,
    moment,
    percent,
    render,
    since,
    size,
    speed,
    until,
)
from nodepool.listing.table import state as state_style
from nodepool.listing.terminal import Display, cut, fit, follow, show
from nodepool.model.event import Event, amount
from nodepool.plan.attention import StatusProblem
from nodepool.plan.explain import LongWait, WaitCause
from tests.support.tables import rows
from tests.support.terminal import TerminalStream

#: 2026-11-23 12:00:00 UTC
NOON = 1795435200.0
COLUMNS = (
    Column("ID", "id"),
    Column("State", "state", style=state_style),
    Column("Age", "age", places=Place.TABLE),
    Column("Seconds", "age_seconds", places=PEOPLE),
    Column("Reason", "reason", places=PEOPLE, priority=1),
    Column("Server", "server", places=Place.TABLE | Place.WIDE),
    Column("Created", "created_time", places=ONLY_JSON),
)
TABLE = Table(
    COLUMNS,
    [["2", "ready", "x", 5, None, "s", 1.5], ["1", "failed", "x", 70, "no room in the whole cloud", "t", 2.5]],
    "id",
)
ODD = Table(
    (Column("ID", "id"), Column("Types", "types"), Column("Data", "data"), Column("Size", "size", lambda n: f"{n} B")),
    [["1", ["a", "b"], None, 7], ["漢", [], {"k": "v"}, None], ["a\x1b[31mb\nc", [], "", 0]],
)
Resize = Callable[[int, int], None]


@pytest.fixture(autouse=True)
def resize(monkeypatch: pytest.MonkeyPatch) -> Resize:
    """Sets the size of the terminal; 80 by 25 at the beginning. Local time is UTC."""

    def set_size(columns: int, lines: int) -> None:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("LINES", str(lines))

    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    set_size(80, 25)
    return set_size


def test_forms() -> None:
    """reference/commands 2: ASCII boxes, left aligned, lists joined by ",", null shown empty; JSON keeps types."""
    assert render(ODD).splitlines() == [
        "+-----------+-------+------------+------+",
        "| ID        | Types | Data       | Size |",
        "+-----------+-------+------------+------+",
        "| 1         | a,b   |            | 7 B  |",
        "| 漢        |       | {'k': 'v'} |      |",
        "| a [31mb c |       |            | 0 B  |",
        "+-----------+-------+------------+------+",
    ]
    assert [list(row.values()) for row in json.loads(render(ODD, "json"))] == ODD.rows
    assert list(csv.reader(io.StringIO(render(ODD, "csv")))) == [
        ["id", "types", "data", "size"],
        ["1", "a,b", "", "7"],
        ["漢", "", '{"k": "v"}', ""],
        ["a\x1b[31mb\nc", "", "", "0"],
    ]
    assert (json.loads(render(Table(COLUMNS, []), "json")), len(render(Table(COLUMNS, [])).splitlines())) == ([], 4)


@rows(__file__, "test_fit")
def test_fit(priorities: list[int], natural: list[int], room: int | None, widths: dict[int, int]) -> None:
    assert fit([Column("C", "c", priority=one, least=16) for one in priorities], natural, room) == widths
    # A column that needs more room.
    assert fit([Column("A", "a", priority=1), Column("B", "b", least=30)], [10, 40], 35) == {1: 35}
    # Ids are not cut; columns of zeros go first, if they may.
    assert fit([Column("A", "a", least=WHOLE), Column("B", "b")], [40, 40], 50) == {0: 40, 1: 8}
    assert fit([Column("A", "a", least=WHOLE), Column("B", "b")], [40, 40], 20) == {0: 40, 1: 4}
    zeros = [Column("A", "a"), Column("B", "b", priority=1), Column("C", "c", priority=2)]
    assert [list(fit(zeros, [9, 9, 9], 20, idle)) for idle in ((), (0, 1))] == [[0, 1], [0, 2]]


@pytest.mark.parametrize(
    ("text", "width", "result"),
    [("abc", 5, "abc  "), ("abc", 3, "abc"), ("abcdef", 4, "abc…"), ("日本語", 4, "日 …")],
)
def test_cut(text: str, width: int, result: str) -> None:
    assert cut(text, width) == result


def drawn(table: Table = TABLE, display: Display | None = None, encoding: str = "utf-8") -> list[str]:
    stream = TerminalStream(encoding)
    show(table, display, stream)
    return stream.lines


def test_a_terminal(resize: Resize, monkeypatch: pytest.MonkeyPatch) -> None:
    """No box; columns for people in the order of the listing. Columns go, and texts are cut, where there is no room."""
    wide = ["ID  STATE   SECONDS  REASON", "1   failed  70       no room in the whole cloud", "2   ready   5        -"]
    assert drawn() == wide
    assert drawn(display=Display(sort="-id", columns=["reason", "id"], headers=False)) == [
        "-                           2",
        "no room in the whole cloud  1",
    ]
    resize(42, 25)
    assert drawn()[1] == "1   failed  70       no room in the whole…"
    assert drawn(encoding="latin-1")[1].endswith("no room in the whole~")
    resize(30, 25)
    assert drawn()[1] == "1   failed  70"
    assert drawn(display=Display("wide"))[1] == "1   failed  70       no room in the whole cloud  t"
    table = Table((Column("Name", "name"), Column("ID", "id")), [["日本", "1"], ["abcd", "2"]])
    assert drawn(table) == ["NAME  ID", "日本  1", "abcd  2"]
    # Texts of others do nothing to it: neither escape sequences nor what rich takes for markup.
    odd = Table((Column("C", "c"),), [["a\x1b[31mb\n\u202ec [red]d[/red] :smile:"]])
    assert drawn(odd, Display("wide")) == ["C", "a [31mb  c [red]d[/red] :smile:"]
    assert drawn(display=Display("json")) == render(TABLE, "json").splitlines()
    for display in (Display(sort="ag"), Display(columns=["ag"])):
        with pytest.raises(UnknownColumn, match="there is no column 'ag', did you mean 'age'"):
            drawn(display=display)
    resize(80, 25)
    for name, value in (("", ""), ("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as changed:
            if name:
                changed.setenv(name, value)
            stream = TerminalStream()
            show(TABLE, None, stream)
        assert stream.lines == wide
        assert ["\x1b[31mfailed" in stream.raw_text, "\x1b[32mready" in stream.raw_text] == [not name] * 2


class Stop(Exception):
    """Ends a listing that is watched."""


def followed(stream: io.TextIOBase, rows: int = 1) -> None:
    """A listing of rows whose state changes with each look but the second, and that ends after four."""
    looks = 0

    def look() -> Table:
        nonlocal looks
        looks += 1
        state = ("init", "init", "building", "ready")[looks - 1]
        return Table(COLUMNS, [[str(n), state, "x", looks, None, None, None] for n in range(1, rows + 1)])

    def wait(seconds: float) -> None:
        assert 0 < seconds <= 2
        if looks == 4:
            raise Stop

    with pytest.raises(Stop):
        follow(look, wait, None, stream)  # type: ignore[arg-type]


def test_watched(resize: Resize) -> None:
    """A terminal is drawn again, no higher than it is; each picture begins where the last one did."""
    stream = TerminalStream()
    followed(stream)
    assert stream.raw_text.index("\x1b[?25l") < stream.raw_text.rindex("\x1b[?25h")
    assert stream.raw_text.count("\x1b[1A") >= 3
    assert [line.split() for line in stream.lines if "1   " in line][-1][:2] == ["1", "ready"]
    resize(80, 5)
    stream = TerminalStream()
    followed(stream, rows=10)
    assert [line.split()[0] for line in stream.lines[:4]] == ["ID", "1", "2", "..."]
    assert "... and 8 more" in stream.lines[3]


GPU = LongWait(("gpu",), WaitCause("cloud-1/main", "room.cores", "cores 80 of 80"), 9, NOON - 900, ["200-1", "200-2"])
ARM = LongWait(("arm",), WaitCause("cloud-2/main", "provider.circuit-open", "HTTP 503"), 3, NOON - 800, ["200-9"])
ONE = LongWait(("a", "b"), WaitCause(text="no pool tells why"), 1, NOON, ["200-1"])
LONG = LongWait(("a",), WaitCause(text="x" * 100), 1, NOON, ["200-1"])
AWAY = StatusProblem("provider", "provider cloud-2 is unavailable: HTTP 503", NOON - 7200, NOON + 12, "explain cloud-2")


@pytest.mark.parametrize(
    ("waits", "problems", "young", "text"),
    [
        (
            [GPU, ARM],
            [AWAY],
            0,
            "12 requests wait longer than 5 min: 9 for gpu (cloud-1/main: cores 80 of 80), "
            "3 for arm (cloud-2/main: HTTP 503).",
        ),
        ([ONE], [], 0, "1 request waits longer than 5 min: 1 for a,b (no pool tells why)."),
        ([LONG], [], 0, f"1 request waits longer than 5 min: 1 for a ({'x' * 80}...)."),
        ([GPU, ARM, ONE, ONE, ONE], [], 0, "1 for a,b (no pool tells why), 2 for others."),
        ([], [], 2, "All is well. No request waits longer than 5 min (2 wait now)."),
        ([], [AWAY], 1, "No request waits longer than 5 min (1 waits now); 1 thing needs attention."),
        ([], [AWAY, AWAY], 0, "2 things need attention."),
    ],
)
def test_the_sentence(waits: list[LongWait], problems: list[StatusProblem], young: int, text: str) -> None:
    """Commands and pages begin with it."""
    found = sentence(waits, problems, young)
    assert found.endswith(text)
    assert ("(2 wait now, 3 more for min-ready)" in sentence(waits, problems, young, 3)) is (young == 2)
    assert "others" in text or "2 things" in text or found == text


ERROR = Problem("n.yaml", 3, "labels[0].min-redy", "unknown key", Severity.UNKNOWN_KEY, column=5)
WARNING = Problem("n.yaml", None, "", "odd: 100%, really", Severity.WARNING)


def test_problems_of_a_configuration() -> None:
    """As lines, JSON, and for GitHub, whose own characters are written as it wants them."""
    assert problem_text(ERROR) == "n.yaml:3:5: labels[0].min-redy: unknown key"
    assert problem_text(WARNING) == "n.yaml: warning: odd: 100%, really"
    assert [list(one.values()) for one in json.loads(as_json("", [ERROR, WARNING]))] == [
        ["n.yaml", 3, 5, "labels[0].min-redy", "error", "unknown key"],
        ["n.yaml", None, None, "", "warning", "odd: 100%, really"],
    ]
    assert list(json.loads(as_json("", [ERROR]))[0]) == ["file", "line", "column", "key", "severity", "message"]
    assert as_github("", [ERROR]) == "::error file=n.yaml,line=3,col=5,title=labels[0].min-redy::unknown key\n"
    odd = Problem("a,b:c.yaml", 1, "", "100%\nx", Severity.ERROR)
    assert as_github("", [odd]) == "::error file=a%2Cb%3Ac.yaml,line=1::100%25%0Ax\n"


@pytest.mark.parametrize(
    ("problem", "line", "lines"),
    [
        (ERROR, "    min-redy: 1", ["  3 |     min-redy: 1", "    |     ^^^^^^^^"]),
        *((ERROR, line, []) for line in (None, "", "   ", "    min-redy: 1 # password", "    token: abc")),
        (WARNING, "no line is known", []),
        (Problem("n.yaml", 3, "k", "text", column=500), "y" * 1000, []),
    ],
)
def test_frames(problem: Problem, line: str | None, lines: list[str]) -> None:
    """The line, and a caret for each letter of the key. No secrets; nothing but what can be printed; not too long."""
    assert as_frame(problem, lambda path, number: line, colour=False).splitlines() == [problem_text(problem), *lines]
    frame = as_frame(ERROR, lambda path, number: "    \x1b]0;x" + "y" * 1000, colour=False).splitlines()[1]
    assert "\x1b" not in frame
    assert len(frame) < 200
    for one, code in ((ERROR, "\x1b[31m"), (WARNING, "\x1b[33m")):
        assert code in as_frame(one, lambda path, number: "    min-redy: 1", colour=True)


def test_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    """In local time. Records of other programs may have any number; the listing is shown all the same."""
    assert [moment(at, NOON) for at in (NOON - 60, NOON - 86400)] == ["11:59:00", "2026-11-22 12:00:00"]
    assert [moment(at, NOON)[:4] for at in (1e300, -1e300)] == ["9998", "1970"]
    assert [since(NOON)(at) for at in (NOON - 7200, 0)] == ["10:00:00 (2 h)", ""]
    assert [until(NOON)(at) for at in (NOON + 11.1, NOON - 1, NOON + 7199)] == ["in 12 s", "now", "in 2 h"]
    monkeypatch.setenv("TZ", "UTC-5")
    time.tzset()
    assert moment(NOON - 60, NOON) == "16:59:00"
    event = Event(NOON - 60, "l1 c/main", "request 200-2", "failed", "label.broken", "no\x1b flavor", 3)
    assert event_line(event, NOON).endswith(" l1 c/main: request 200-2 (and 2 more) failed [label.broken]: no  flavor")


def test_units() -> None:
    """100% only when nothing is left. RAM is counted in MiB."""
    of_ram = {0: "0", 512: "512 MiB", 1536: "1.5 GiB", 8192: "8 GiB", 200_000_000: "190.7 TiB"}
    assert {count: amount(count, "ram") for count in of_ram} == of_ram
    assert [amount(count, "cores") for count in (72, 0.5, 2048.0, 4e7)] == ["72", "0.5", "2048", "40000000"]
    counts = {0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 20 * 1024**3: "20.0 GiB", 5 * 1024**5: "5120.0 TiB"}
    assert {count: size(count) for count in counts} == counts
    assert [speed(count) for count in counts] == [f"{text}/s" for text in counts.values()]
    assert [percent(value) for value in (0, 99.9, 100, -1, 120)] == ["0%", "99%", "100%", "0%", "100%"]
