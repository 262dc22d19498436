# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from nodepool.listing import table as listing_table
from nodepool.listing.table import ONLY_JSON, Column, Table
from nodepool.web.pages.frame import MAX_CELL, MAX_NAMES, CellText, table_view

COLUMNS = (
    Column("Name", "name"),
    Column("State", "state", style=listing_table.state),
    Column("Nodes", "nodes", priority=3),
    Column("Secret", "secret", places=ONLY_JSON),
    Column("Empty", "empty", priority=1),
)


def test_values_lead_somewhere() -> None:
    table = Table(COLUMNS, [["a", "failed", ["1", "2"], "x", None]])
    view = table_view(
        "Things",
        table,
        {"name": lambda value, row: f"{value}/{row['secret']}", "nodes": lambda value, _row: f"n/{value}"},
    )
    assert [head.text for head in view.heads] == ["Name", "State", "Nodes"]
    name, state, nodes = view.rows[0]
    assert name.parts == [CellText("a", "a/x")]
    assert (state.parts, state.css) == ([CellText("failed")], "state bad")
    assert (nodes.parts, nodes.css) == ([CellText("1", "n/1"), CellText("2", "n/2")], "p3")


def test_what_is_not_known_has_no_link() -> None:
    view = table_view("Things", Table(COLUMNS[:1], [[None]]), {"name": lambda _value, _row: "x"})
    assert view.rows[0][0].parts == []


def test_long_values_are_cut() -> None:
    table = Table(COLUMNS, [["x" * 1000, "", [str(number) for number in range(100)], "", None]])
    name, _, nodes = table_view("Things", table, {"nodes": lambda value, _row: value}).rows[0]
    assert len(name.parts[0].text) == MAX_CELL + 3
    assert len(nodes.parts) == MAX_NAMES + 1
    assert nodes.parts[-1] == CellText(f"{100 - MAX_NAMES} more")


def test_heads() -> None:
    view = table_view("Things", Table(COLUMNS[:1], []), head=lambda column: (f"?sort={column.key}", "ascending"))
    assert (view.heads[0].sort, view.heads[0].direction) == ("?sort=name", "ascending")
