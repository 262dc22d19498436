# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from nodepool.listing.nodes import host_table
from nodepool.model.status import HostStatus, PoolStatus
from nodepool.plan.pool_summary import summarize

HOSTS = (
    HostStatus("a", True, "", 10.0, None, None, 2, ("0000000001",)),
    HostStatus("b", False, "cannot connect", 20.0, 60.0),
    HostStatus("c", None),
    HostStatus("d", True, "", 30.0, quarantine="flaps"),
)


def test_what_is_not_up_comes_first() -> None:
    table = host_table(summarize([PoolStatus(host="l1", provider="lab", pool="rack", hosts=HOSTS)]), 50.0)
    assert [column.key for column in table.columns] == [
        *("host", "pool", "state", "since", "slots", "nodes", "error", "next")
    ]
    assert table.rows == [
        ["b", "lab/rack", "down", 20.0, 1, [], "cannot connect", 60.0],
        ["c", "lab/rack", "not checked", None, 1, [], None, None],
        ["d", "lab/rack", "quarantined", 30.0, 1, [], "flaps", None],
        ["a", "lab/rack", "up", 10.0, 2, ["0000000001"], None, None],
    ]
