# SPDX-License-Identifier: Apache-2.0
"""A listing that is watched by a program: first all of it, then the rows that are new or have changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nodepool.listing.table import Place, Table, json_lines, plain, render, shown


class ChangedRows:
    """Remembers the rows that were told, by the value of their first column. For one thread.

    :param form: one of `table.FORMATS`. JSON is one object a line, YAML one document a row.
    """

    def __init__(self, form: str, *, headers: bool = True) -> None:
        self._form = form
        self._headers = headers
        self._told: dict[str, list[Any]] = {}

    def text(self, table: Table) -> str:
        """What is new in a listing; empty = nothing."""
        lasting = [n for n, column in enumerate(table.columns) if not column.moves]
        keys = [str(row[0]) for row in table.rows]
        now = {key: [row[n] for n in lasting] for key, row in zip(keys, table.rows, strict=True)}
        changed = [number for number, key in enumerate(keys) if self._told.get(key) != now[key]]
        self._told = now
        if not changed:
            return ""
        headers, self._headers = self._headers, False
        if self._form in ("table", "wide"):
            lines = plain(shown(table, Place.WIDE if self._form == "wide" else Place.TERMINAL)).splitlines()
            return "\n".join([*lines[:headers], *(lines[number + 1] for number in changed)])
        return self._records(replace(table, rows=[table.rows[number] for number in changed]), headers=headers)

    def _records(self, table: Table, *, headers: bool) -> str:
        if self._form == "json":
            return "\n".join(json_lines(table))
        if self._form == "yaml":
            return "\n".join(f"---\n{render(replace(table, rows=[row]), 'yaml')}" for row in table.rows)
        return render(table, self._form, headers=headers)
