# SPDX-License-Identifier: Apache-2.0
"""nodepool.listing.terminal: what a program gets that watches a listing."""

from __future__ import annotations

import json

import pytest
import yaml

from nodepool.listing.table import ONLY_JSON, Column, Table
from nodepool.listing.terminal import ChangedRows

COLUMNS = (Column("ID", "id"), Column("State", "state"), Column("Age", "age", moves=True, places=ONLY_JSON))


def table(*rows: tuple[str, str, int]) -> Table:
    return Table(COLUMNS, rows)


def test_only_what_changed() -> None:
    changed = ChangedRows("table")
    assert changed.text(table(("1", "ready", 1), ("2", "ready", 1))) == "ID  STATE\n1   ready\n2   ready"
    assert changed.text(table(("1", "ready", 2), ("2", "used", 2), ("3", "init", 1))) == "2   used\n3   init"
    assert changed.text(table(("1", "ready", 3), ("2", "used", 3), ("3", "init", 2))) == "", "only ages"


def test_a_row_that_comes_back_is_new() -> None:
    changed = ChangedRows("name")
    assert changed.text(table(("1", "ready", 1))) == "1"
    assert changed.text(table()) == ""
    assert changed.text(table(("1", "ready", 1))) == "1"


def test_json_and_yaml_can_be_read_one_after_the_other() -> None:
    rows = table(("1", "ready", 1), ("2", "used", 2))
    assert [json.loads(line)["age"] for line in ChangedRows("json").text(rows).splitlines()] == [1, 2]
    assert [document[0]["age"] for document in yaml.safe_load_all(ChangedRows("yaml").text(rows))] == [1, 2]


@pytest.mark.parametrize(("headers", "lines"), [(True, ["id,state", "1,ready"]), (False, ["1,ready"])])
def test_csv_has_headers_once(headers: bool, lines: list[str]) -> None:
    changed = ChangedRows("csv", headers=headers)
    assert changed.text(table(("1", "ready", 1))).splitlines() == lines
    assert changed.text(table(("1", "used", 1))) == "1,used"
