# SPDX-License-Identifier: Apache-2.0
"""The operator's commands: ``nodepool list`` and ``nodepool explain`` with many nodes, and ``nodepool --help``."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.suite.goals import Bound
from benchmarks.suite.model import LIMIT, Metric, Row, Scenario
from benchmarks.suite.statistics import median, rounded
from benchmarks.support.candidates import Candidate
from benchmarks.support.costs import Costs
from benchmarks.support.place import Place, Stage
from benchmarks.support.populate import create_nodes, create_requests
from tests.support.launcher import OUR_COMMAND, ROOT
from tests.support.launcher_config import write_config

NAME = "commands"
HELP, LIST, EXPLAIN = "--help", "list", "explain"


def run(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    with stage.place(candidate) as place:
        create_nodes(place.znodes, size["nodes"], "small", provider="cloud", pool="main")
        config = place.directory / "nodepool.yaml"
        write_config(config, place.zookeeper, place.workplace.chroot, [])
        commands = {HELP: ["--help"], LIST: ["-c", str(config), "list"]}
        if place.candidate.command == OUR_COMMAND:
            last = create_requests(place.znodes, size["requests"], "small")[-1]
            commands[EXPLAIN] = ["-c", str(config), "explain", last]
        rows = []
        for case, arguments in commands.items():
            seconds = []
            for number in range(size["rounds"]):
                seconds.append(_seconds(place, arguments))
                place.progress.count(number + 1, size["rounds"], f"nodepool {case}")
            rows.append(Row(NAME, case, candidate.name, rounded({"seconds": median(seconds)})))
    return rows


def _seconds(place: Place, arguments: Sequence[str]) -> float:
    """Time of one call. :raises subprocess.CalledProcessError: it failed."""
    # An installed package has its bytecode.
    left_out = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    if place.candidate.command == OUR_COMMAND:
        environment["PYTHONPATH"] = str(ROOT)
    start = time.monotonic()
    with Path(place.directory / "output").open("wb") as output:
        subprocess.run([*place.candidate.tool, *arguments], check=True, stdout=output, stderr=output, env=environment)
    return time.monotonic() - start


def limit(costs: Costs, _rows: Sequence[Row]) -> list[Row]:
    return [Row(NAME, LIST, LIMIT, rounded({"seconds": costs.kazoo_seconds + NODES / costs.reads_per_second}))]


NODES, REQUESTS = 6000, 2000
SCENARIO = Scenario(
    name=NAME,
    title=f"nodepool --help, nodepool list with {NODES} nodes, nodepool explain with {REQUESTS} requests as well",
    metrics=(Metric("seconds", "time", "s", plot=True),),
    goals=(
        Bound("seconds", at_most=0.3, case=HELP),
        Bound("seconds", at_most=1, case=LIST),
        Bound("seconds", at_most=0.3, case=EXPLAIN),
    ),
    run=run,
    sizes={"nodes": NODES, "requests": REQUESTS, "rounds": 7},
    quick={"nodes": 300, "requests": 100, "rounds": 3},
    limit=limit,
    limit_note="an interpreter that imports Kazoo, and one read a node, all sent at once",
)
