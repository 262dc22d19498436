# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from dataclasses import replace

import pytest

from nodepool.listing.pools import amount, limit_table, provider_table, used_of
from nodepool.listing.table import render
from nodepool.model.status import (
    AbsentProvider,
    FailedLaunch,
    LauncherStatus,
    LaunchesStatus,
    LimitStatus,
    PoolStatus,
    WaitingStatus,
)
from nodepool.plan.pool_summary import summarize

CORES = LimitStatus("cloud", "cores", 80, 72, 8, 1000.0)
POOL = PoolStatus(
    host="l1",
    provider="cloud",
    pool="main",
    driver="openstack",
    state="running",
    since=10.0,
    limits=(LimitStatus("pool", "instances", 20, 3), CORES, LimitStatus("cloud", "ram", None, 10)),
    waiting=(WaitingStatus(("gpu",), count=4),),
    launches=LaunchesStatus(1, 5, 2, FailedLaunch("error.status", "no valid host", 5.0)),
)


def test_a_row_for_each_pool_as_json() -> None:
    gone = replace(
        POOL, host="l2", state="unavailable", code="provider.circuit-open", text="HTTP 503", since=20.0, next=60
    )
    table = provider_table(summarize([POOL, gone]), [], 50.0)
    assert json.loads(render(table, "json")) == [
        {
            "pool": "cloud/main",
            "driver": "openstack",
            "state": "unavailable (1 of 2)",
            "since": 20.0,
            "limiting": "cores 72 + 8 of 80",
            "waiting": 4,
            "launching": 2,
            "failed_15m": 4,
            "error": "HTTP 503",
            "next": 60,
            "launchers": ["l1", "l2"],
            "code": "provider.circuit-open",
        }
    ]
    assert "in 10 s" in render(table)


def test_the_last_launch_that_failed_is_the_error_of_a_pool_that_is_well() -> None:
    (row,) = provider_table(summarize([POOL]), [], 50.0).rows
    assert row[8] == "no valid host"
    (row,) = provider_table(summarize([replace(POOL, launches=LaunchesStatus(), limits=())]), [], 50.0).rows
    assert (row[4], row[8]) == (None, None)


def test_a_provider_that_no_launcher_could_start() -> None:
    absent = AbsentProvider("broken", "openstack", "no such cloud", 5.0, 60.0)
    first, _ = provider_table(summarize([POOL]), [LauncherStatus(host="l1", absent=(absent,))], 50.0).rows
    assert first[:4] == ["broken", "openstack", "not served", 5.0]
    assert first[8:11] == ["no such cloud", 60.0, ["l1"]]


def test_each_limit_once_although_all_pools_tell_those_of_the_cloud() -> None:
    old = replace(CORES, limit=1, asked_at=900.0)
    pools = summarize([POOL, replace(POOL, pool="other", limits=(old,))])
    table = limit_table(pools, 1010.0)
    assert [column.key for column in table.columns] == [
        *("owner", "scope", "resource", "limit", "used", "others", "free", "percent", "asked_at")
    ]
    assert table.rows == [
        ["cloud", "cloud", "cores", 80, 72, 8, 0, 100, 1000.0],
        ["cloud", "cloud", "ram", None, 10, 0.0, None, None, None],
        ["cloud/main", "pool", "instances", 20, 3, 0.0, 17, 15, None],
    ]


def test_limits_of_tenants() -> None:
    limits = (LimitStatus("tenant:t1", "cores", 10, 4),)
    table = limit_table(summarize([replace(POOL, limits=limits)]), 1010.0)
    assert table.rows == [["t1", "tenant", "cores", 10, 4, 0.0, 6, 40, None]]


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (LimitStatus("pool", "instances", 20, 3), "instances 3 of 20"),
        (LimitStatus("cloud", "ram", 1024, 512, 256), "ram 512 + 256 of 1024 MiB"),
        (LimitStatus("cloud", "disk", None, 1.5), "disk 1.5"),
    ],
)
def test_how_much_is_used(limit: LimitStatus, text: str) -> None:
    assert used_of(limit) == text


def test_numbers() -> None:
    assert [amount(value) for value in (8, 8.0, 0.25, 12345678.0, 10000000.5)] == [
        "8",
        "8",
        "0.25",
        "12345678",
        "10000000",
    ]
