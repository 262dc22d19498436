# SPDX-License-Identifier: Apache-2.0
"""The work of `burst` again and again, with and without traces that go to a collector."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.scenarios.viewers import Side
from benchmarks.suite.goals import Bound
from benchmarks.suite.model import Row, Scenario
from benchmarks.support.candidates import OURS, Candidate
from benchmarks.support.place import Stage
from benchmarks.support.static_hosts import COSTS, LABEL, LATENCIES, RATE, ReadyHosts
from tests.support.launcher_config import StaticProvider, static_hosts, write_config
from tests.support.otlp_receiver import http_receiver
from tests.support.wait import wait_for

NAME = "traces"


def run(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    """The launcher follows its configuration: traces are turned on and off in turn."""
    if candidate is not OURS:
        return []
    jitter, count = random.Random(3), size["requests"]
    sides = {"without traces": (Side(0), False), "with traces": (Side(0), True)}
    provider = StaticProvider(static_hosts(size["hosts"], [LABEL]))
    with stage.place(candidate) as place, http_receiver() as collector:
        launcher = place.launch(provider)
        ready = ReadyHosts(place, provider)
        ready.warm_up(size["warm_up"])
        for _ in range(size["rounds"]):
            for side, traced in sides.values():
                reloads = launcher.log_text().count("Configuration changed")
                tracing = {"enabled": traced, "protocol": "http/protobuf", "endpoint": collector.endpoint}
                # The name changes each time, so that each turn begins with a reload.
                extra = {"tracing": {**tracing, "service_name": f"nodepool{reloads}"}}
                write_config(launcher.config_path, place.zookeeper, place.workplace.chroot, [provider], extra=extra)
                wait_for("the reload", lambda reloads=reloads: _reloaded(launcher, reloads))  # type: ignore[misc]
                for _ in range(size["bursts"]):
                    time.sleep(jitter.uniform(0.1, 1.1))
                    fulfilled: list[Any] = []
                    before = place.read()
                    side.runs.append(ready.load.run(count, LABEL, fulfilled.append))
                    for request in fulfilled:
                        ready.load.use_and_return(request)
                    ready.wait_idle()
                    # What is sent comes after the burst, and counts.
                    time.sleep(2.0)
                    side.cost += place.read() - before
        wait_for(
            "all spans", lambda: len(collector.named("nodepool.request")) >= size["rounds"] * size["bursts"] * count
        )
    return [
        Row(NAME, name, candidate.name, side.row(candidate.name, count).values) for name, (side, _) in sides.items()
    ]


def _reloaded(launcher: Any, before: int) -> bool:
    count: int = launcher.log_text().count("Configuration changed")
    return count > before


SCENARIO = Scenario(
    name=NAME,
    title="80 requests at once, 100 static nodes are ready, and traces are recorded; CPU with the return of the nodes",
    metrics=(RATE, *LATENCIES, *COSTS),
    goals=(Bound("failed", at_most=0),),
    run=run,
    sizes={"hosts": 100, "requests": 80, "rounds": 6, "bursts": 3, "warm_up": 200},
    quick={"hosts": 20, "requests": 15, "rounds": 1, "bursts": 1, "warm_up": 10},
)
