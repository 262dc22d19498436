# SPDX-License-Identifier: Apache-2.0
"""Several launchers whose pools offer the same labels: requests of different sizes, each used and returned."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.suite.goals import Bound, TimesReleased
from benchmarks.suite.model import LIMIT, Metric, Row, Scenario, find
from benchmarks.suite.statistics import rounded
from benchmarks.support.candidates import Candidate
from benchmarks.support.costs import Costs
from benchmarks.support.load import Load
from benchmarks.support.place import Place, Stage, per_request
from benchmarks.support.static_hosts import COSTS, RATE, all_ready, latencies
from benchmarks.support.transaction_log import count_work, read
from tests.support.launcher_config import StaticProvider, static_hosts
from tests.support.wait import wait_for

NAME = "fleet"
LABELS = [f"label-{number}" for number in range(10)]


def run(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    with stage.place(candidate) as place:
        pools = _pools(size["pools"], size["hosts_a_pool"])
        for number in range(size["launchers"]):
            place.launch(pools[number :: size["launchers"]])
        load = Load(place.client, place.progress)
        load.run(size["warm_up"], LABELS[0], load.use_and_return)
        _wait_idle(place, pools)
        first = _zxid(place)
        before = place.read()
        requests = _requests(size.get(f"requests_{candidate.name}", size["requests"]), size["nodes"])
        batch = load.run_all(requests, load.use_and_return)
        _wait_idle(place, pools)
        cost = place.read() - before
        others = (place.client.session[0], place.znodes.kazoo.client_id[0])
        work = count_work(read(place.zookeeper.directory / "data", first), others)
    count = len(requests)
    values = {
        "rate": count / (batch.end - batch.start),
        "double_percent": 100 * work.double / count,
        "failed_writes": work.failed,
        "extra_lockers": work.extra_lockers,
        "declines": work.declines,
        "writes": work.writes / count,
        **latencies([batch]),
        **per_request(cost, count),
    }
    return [Row(NAME, "", candidate.name, rounded(values))]


def _pools(count: int, hosts: int) -> list[StaticProvider]:
    """Each pool has all labels, on each of its hosts."""
    all_hosts = static_hosts(count * hosts, LABELS)
    return [
        StaticProvider(all_hosts[number * hosts : (number + 1) * hosts], name=f"static-{number}")
        for number in range(count)
    ]


def _requests(count: int, most: int) -> list[list[str]]:
    """Labels of each request: 1 to ``most`` nodes, of one label or of several."""
    dice = random.Random(4)
    return [[dice.choice(LABELS) for _ in range(dice.randint(1, most))] for _ in range(count)]


def _wait_idle(place: Place, pools: Sequence[StaticProvider]) -> None:
    wait_for("all nodes are free", lambda: all_ready(place, sum(pool.slots for pool in pools)), 120)


def _zxid(place: Place) -> int:
    """Of the last write."""
    (line,) = [line for line in place.zookeeper.command("srvr").splitlines() if line.startswith("Zxid:")]
    return int(line.split()[1], 16)


def limit(costs: Costs, rows: Sequence[Row]) -> list[Row]:
    ours = find(rows, "ours", "")
    if ours is None:
        return []
    # Each node comes back by a write of its own: a static host's next node.
    least = 1 + (1 + SCENARIO.sizes["nodes"]) / 2
    client_seconds = ours.values["client_cpu_ms"] / 1000
    rate = 1 / (least / costs.writes_per_second + client_seconds)
    return [Row(NAME, "", LIMIT, rounded({"rate": rate, "writes": least}))]


SCENARIO = Scenario(
    name=NAME,
    title="10 pools x 10 labels, 3 launchers, requests of 1-5 nodes, each used and returned",
    metrics=(
        RATE,
        Metric("double_percent", "double work", "%", plot=True),
        Metric("failed_writes", "failed writes", more_is_better=None),
        Metric("extra_lockers", "extra lockers", more_is_better=None),
        Metric("declines", "declines", more_is_better=None),
        Metric("writes", "launchers' writes"),
        # Not compared: the released launcher is asked for fewer at once.
        Metric("p50_ms", "p50", "ms", more_is_better=None),
        Metric("p99_ms", "p99", "ms", more_is_better=None),
        *COSTS,
    ),
    goals=(TimesReleased("rate", 5), Bound("double_percent", at_most=5), Bound("failed", at_most=0)),
    run=run,
    sizes={
        "launchers": 3,
        "pools": 10,
        "hosts_a_pool": 10,
        "requests": 600,
        # It serves one in three seconds.
        "requests_released": 60,
        "nodes": 5,
        "warm_up": 20,
    },
    quick={"pools": 4, "hosts_a_pool": 5, "requests": 40, "requests_released": 10, "nodes": 3, "warm_up": 5},
    limit=limit,
    limit_note="the load's own CPU on one core, and one write for each request and each node",
)
