# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from nodepool.listing.records import launcher_table
from nodepool.listing.table import render
from nodepool.model.status import LauncherStatus, ReloadStatus
from nodepool.plan.attention import Registered

L1 = LauncherStatus(
    host="l1",
    pid=42,
    version="12.0.0",
    config_file="/etc/np.yaml",
    config="9f3c",
    since=10.0,
    servers="zk:2281",
    pools=("cloud/main",),
    reload=ReloadStatus(20.0, False, "unknown key"),
    maintenance="launcher l1 is drained by alice",
    leader=True,
)


def test_with_those_of_older_releases() -> None:
    table = launcher_table([L1], [Registered("l1", "12.0.0"), Registered("old", "11.0.0", "paused")], 50.0)
    assert [column.key for column in table.columns] == [
        *("host", "pid", "version", "state", "since", "config", "pools", "reload", "maintenance"),
        *("leader", "config_file", "servers"),
    ]
    assert table.rows == [
        [
            *("l1", 42, "12.0.0", "running", 10.0, "9f3c", ["cloud/main"]),
            {"at": 20.0, "ok": False, "text": "unknown key"},
            *("launcher l1 is drained by alice", True, "/etc/np.yaml", "zk:2281"),
        ],
        ["old", None, "11.0.0", "paused", *[None] * 8],
    ]


def test_a_reload_as_text() -> None:
    assert "failed: unknown key" in render(launcher_table([L1], [], 50.0))


def test_one_that_tells_little() -> None:
    (row,) = launcher_table([LauncherStatus(host="l2")], [], 50.0).rows
    assert row[4:] == [None, None, [], None, None, False, None, None]
