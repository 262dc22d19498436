# SPDX-License-Identifier: Apache-2.0
"""Reads the tables that the command lines print."""

from __future__ import annotations


def rows_of(text: str) -> list[dict[str, str]]:
    """The rows of an ASCII table, by the headers of its columns.

    :raises ValueError: a row has other columns than the header.
    """
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    header, *rows = [[cell.strip() for cell in cells] for cells in lines]
    return [dict(zip(header, cells, strict=True)) for cells in rows]
