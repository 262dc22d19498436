# SPDX-License-Identifier: Apache-2.0
"""The table of ``nodepool check`` (reference/commands 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from nodepool.listing import styles
from nodepool.listing.table import Column, Table

if TYPE_CHECKING:
    from nodepool.driver.framework.check_result import CheckResult

_COLOURS: Final = {"ok": styles.GOOD, "warning": styles.WAITING, "failed": styles.BAD}


def check_table(results: Mapping[str, Sequence[CheckResult]]) -> Table:
    """A row for each result.

    :param results: where it was looked at, such as ``cloud-1`` -> what was found.
    """
    columns = (
        Column("Result", "result", style=lambda value: _COLOURS.get(value, "")),
        Column("Where", "where"),
        Column("What", "subject"),
        Column("Found", "text", least=40),
        Column("Remedy", "remedy", least=30),
    )
    rows: list[list[Any]] = [
        [result.status, where, result.subject, result.text, result.remedy or None]
        for where, found in results.items()
        for result in found
    ]
    return Table(columns, rows)
