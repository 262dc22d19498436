# SPDX-License-Identifier: Apache-2.0
"""The table of maintenance records."""

from __future__ import annotations

import json

from nodepool.listing.records import maintenance_table
from nodepool.listing.table import render
from nodepool.model.maintenance import Maintenance, Mode

NOW = 1763809000.0
RECORDS = [
    Maintenance("provider", "cloud-1", Mode.PAUSE, "network", "alice@desk", NOW - 60, NOW + 7200),
    Maintenance("host", "h7", Mode.QUARANTINE),
    Maintenance("label", "gpu", Mode.PAUSE, until=NOW),
]


def test_json() -> None:
    """reference/commands 2: sorted, times as numbers; what is over is left out."""
    empty = {"reason": None, "by": None, "since": None, "until": None}
    assert json.loads(render(maintenance_table(RECORDS, NOW), "json")) == [
        {"kind": "host", "name": "h7", "state": "quarantined", **empty},
        {
            "kind": "provider",
            "name": "cloud-1",
            "state": "paused",
            "reason": "network",
            "by": "alice@desk",
            "since": NOW - 60,
            "until": NOW + 7200,
        },
    ]


def test_table() -> None:
    shown = render(maintenance_table(RECORDS, NOW))
    assert "Kind" in shown
    assert "(1 min)" in shown
