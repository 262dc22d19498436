# SPDX-License-Identifier: Apache-2.0
"""The table of maintenance records (reference/commands 2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nodepool.listing import styles, times
from nodepool.listing.table import Column, Table

if TYPE_CHECKING:
    from nodepool.model.maintenance import Maintenance


def maintenance_table(records: Iterable[Maintenance], now: float) -> Table:
    """The table of records that hold, by kind and name.

    :param now: seconds since the epoch.
    """
    columns = (
        Column("Kind", "kind"),
        Column("Name", "name"),
        Column("State", "state", style=styles.state),
        Column("Reason", "reason", priority=1),
        Column("By", "by", priority=2),
        Column("Since", "since", times.since(now), priority=3, moves=True),
        Column("Until", "until", lambda at: times.moment(at, now)),
    )
    holding = sorted((record for record in records if not record.is_over(now)), key=lambda each: (each.kind, each.name))
    rows = [
        [
            *(record.kind, record.name, record.mode.done, record.reason or None, record.by or None),
            *(record.since or None, record.until),
        ]
        for record in holding
    ]
    return Table(columns, rows)
