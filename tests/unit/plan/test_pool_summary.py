# SPDX-License-Identifier: Apache-2.0
"""Records of several launchers as one (OV-3)."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from nodepool.model.status import (
    FailedLaunch,
    HostStatus,
    LabelStatus,
    LaunchesStatus,
    LimitStatus,
    PoolStatus,
    RequestStatus,
    WaitingStatus,
)
from nodepool.plan.pool_summary import by_provider, free, fullness, limit_owner, limiting, newest_limits, summarize

POOL = PoolStatus(host="l1", provider="cloud", pool="main", driver="openstack", state="running", since=10.0)


def test_none() -> None:
    assert summarize([]) == []


def test_one_launcher() -> None:
    waiting = (WaitingStatus(("a",), count=2), WaitingStatus(("b",), count=3))
    labels = {"gpu": LabelStatus("label.broken", "no flavor", 5.0)}
    (found,) = summarize([replace(POOL, waiting=waiting, labels=labels)])
    assert (found.name, found.launchers, found.affected, found.waiting) == ("cloud/main", ["l1"], 1, 5)
    assert found.labels == labels


def test_what_waits_for_the_pool() -> None:
    """Not what only others serve, but also the request that was begun and has no room."""
    waiting = (WaitingStatus(("a",), count=2), WaitingStatus(("b",), count=3, code="turn.of-label"))
    requests = (RequestStatus("200-1", "paused", "room.cores"), RequestStatus("200-2", "launching"))
    one = replace(POOL, waiting=waiting, requests=requests)
    (found,) = summarize([one, replace(one, host="l2", requests=())])
    assert found.waiting == 3


def test_the_worst_state_of_several_launchers() -> None:
    gone = replace(POOL, host="l2", state="unavailable", since=50.0, text="HTTP 503", next=60.0)
    (found,) = summarize([POOL, gone, replace(gone, host="l3", since=40.0)])
    assert (found.state, found.since, found.text, found.next) == ("unavailable", 40.0, "HTTP 503", 60.0)
    assert (found.affected, found.launchers) == (2, ["l1", "l2", "l3"])


def test_what_adds_up_and_what_is_the_same() -> None:
    error = FailedLaunch("error.quota", "no room", 60.0)
    one = replace(POOL, waiting=(WaitingStatus(("a",), count=7),), launches=LaunchesStatus(1, 2, 3, error))
    two = replace(POOL, host="l2", launches=LaunchesStatus(10, 20, 30, replace(error, at=61.0)))
    (found,) = summarize([one, two])
    assert found.waiting == 7
    assert found.launches == LaunchesStatus(11, 22, 33, replace(error, at=61.0))


def test_a_host_that_one_launcher_cannot_reach() -> None:
    up = HostStatus("h", True, "", 5.0, nodes=("1",))
    down = HostStatus("h", False, "refused", 7.0)
    (found,) = summarize([replace(POOL, hosts=(up,)), replace(POOL, host="l2", hosts=(down,))])
    assert found.hosts == [HostStatus("h", False, "for launcher l2: refused", 7.0, nodes=["1"])]
    (found,) = summarize([replace(POOL, hosts=(down,)), replace(POOL, host="l2", hosts=(down,))])
    assert found.hosts[0].text == "refused"


def test_a_quarantined_host_is_worse_than_one_that_is_down() -> None:
    hosts = [HostStatus("h", False, "refused", 1.0), HostStatus("h", True, "", 2.0, quarantine="flaps")]
    (found,) = summarize([replace(POOL, host=str(number), hosts=(host,)) for number, host in enumerate(hosts)])
    assert found.hosts[0].quarantine == "flaps"


def test_pools_in_order_and_by_provider() -> None:
    found = summarize([replace(POOL, pool="b"), replace(POOL, provider="a"), POOL])
    assert [pool.name for pool in found] == ["a/main", "cloud/b", "cloud/main"]
    assert {name: len(pools) for name, pools in by_provider(found).items()} == {"a": 1, "cloud": 2}


def test_the_newest_answer_of_a_cloud_counts() -> None:
    old, new = LimitStatus("cloud", "cores", 80, 1, 0, 100.0), LimitStatus("cloud", "cores", 90, 1, 0, 200.0)
    pool = LimitStatus("pool", "instances", 20, 3)
    assert newest_limits([old, pool, new]) == [new, pool]
    assert newest_limits([new, old]) == [new]


@pytest.mark.parametrize(
    ("limit", "left", "part"),
    [
        (LimitStatus("pool", "cores", 80, 72, 4), 4, 0.95),
        (LimitStatus("pool", "cores", 80, 90), 0, 1.0),
        (LimitStatus("pool", "cores", 0, 0), 0, 1.0),
        (LimitStatus("pool", "cores", None, 5), None, 0.0),
        (LimitStatus("pool", "cores", math.inf, 5), None, 0.0),
    ],
)
def test_what_is_free(limit: LimitStatus, left: float | None, part: float) -> None:
    assert free(limit) == left
    assert fullness(limit) == pytest.approx(part)


def test_the_limiting_resource() -> None:
    cores, ram = LimitStatus("cloud", "cores", 80, 40), LimitStatus("cloud", "ram", 100, 51)
    assert limiting([cores, ram, LimitStatus("pool", "instances", None, 99)]) == ram
    assert limiting([LimitStatus("pool", "instances")]) is None
    others = [LimitStatus("provider", "launches", 1, 1), LimitStatus("tenant:t1", "cores", 1, 1)]
    assert limiting([cores, *others]) == cores


def test_whose_limit_it_is() -> None:
    (pool,) = summarize([POOL])
    owners = [limit_owner(pool, LimitStatus(scope)) for scope in ("pool", "provider", "cloud", "tenant:t1")]
    assert owners == ["cloud/main", "cloud", "cloud", "t1"]
