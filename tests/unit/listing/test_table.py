# SPDX-License-Identifier: Apache-2.0
"""nodepool.listing.table: tables, JSON and CSV of reference/commands 2."""

from __future__ import annotations

import csv
import io
import json

from hypothesis import given
from hypothesis import strategies as st
from prettytable import PrettyTable

from nodepool.listing.table import Column, Table, render

COLUMNS = (Column("ID", "id"), Column("Node Types", "node_types"), Column("User Data", "user_data"))
TABLE = Table(COLUMNS, [["1", ["a", "b"], None], ["22", [], {"k": "v"}]])


def test_table_is_left_aligned_with_lists_joined_and_null_empty() -> None:
    """reference/commands 2: ASCII boxes, left aligned, lists joined by ",", null shown empty."""
    assert render(TABLE).splitlines() == [
        "+----+------------+------------+",
        "| ID | Node Types | User Data  |",
        "+----+------------+------------+",
        "| 1  | a,b        |            |",
        "| 22 |            | {'k': 'v'} |",
        "+----+------------+------------+",
    ]


def test_empty_table_has_only_headers() -> None:
    assert len(render(Table(COLUMNS, [])).splitlines()) == 4


ASCII = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=8)


@given(st.lists(ASCII, min_size=1, max_size=4, unique=True), st.data())
def test_boxes_are_those_of_the_library(headers: list[str], data: st.DataObject) -> None:
    """Characters that are all as wide as any other are laid out without it."""
    width = len(headers)
    rows = data.draw(st.lists(st.lists(ASCII, min_size=width, max_size=width), max_size=4))
    pretty = PrettyTable(headers)
    pretty.align = "l"
    pretty.add_rows(rows)
    assert render(Table([Column(header, header) for header in headers], rows)) == pretty.get_string()


def test_wide_characters() -> None:
    """They take two places."""
    assert render(Table((Column("C", "c"),), [["\u6f22"], ["abc"]])).splitlines()[3:5] == ["| \u6f22  |", "| abc |"]


def test_no_control_characters_reach_the_terminal() -> None:
    """A comment of a Zuul user may hold anything."""
    text = render(Table((Column("C", "c"),), [["a\x1b[31mb\nc"]]))
    assert "\x1b" not in text
    assert len(text.splitlines()) == 5


def test_json_keeps_types() -> None:
    """reference/commands 2: a list of objects; lists stay lists, null stays null."""
    assert json.loads(render(TABLE, "json")) == [
        {"id": "1", "node_types": ["a", "b"], "user_data": None},
        {"id": "22", "node_types": [], "user_data": {"k": "v"}},
    ]
    assert json.loads(render(Table(COLUMNS, []), "json")) == []


def test_csv_can_be_read_back() -> None:
    rows = list(csv.reader(io.StringIO(render(TABLE, "csv"))))
    assert rows == [["id", "node_types", "user_data"], ["1", "a,b", ""], ["22", "", '{"k": "v"}']]


def test_a_column_may_show_its_values_in_another_form() -> None:
    """A table has the number with its unit, JSON the number."""
    table = Table((Column("Size", "size", lambda value: f"{value} B"),), [[7], [None]])
    assert [line.strip("| ") for line in render(table).splitlines()[3:5]] == ["7 B", ""]
    assert json.loads(render(table, "json")) == [{"size": 7}, {"size": None}]
    assert render(table, "csv").splitlines() == ["size", "7", '""']
