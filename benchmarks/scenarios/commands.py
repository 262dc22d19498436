# SPDX-License-Identifier: Apache-2.0
"""The operator's commands: ``nodepool list`` and ``nodepool explain`` with many nodes, and ``nodepool --help``."""

from __future__ import annotations

import os
import resource
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
from tests.support.clouds import aws_section
from tests.support.launcher import OUR_COMMAND, ROOT
from tests.support.launcher_config import write_config
from tests.support.section_provider import SectionProvider

NAME = "commands"
HELP, LIST, EXPLAIN, WITH_AWS = "--help", "list", "explain", "list, aws configured"
#: Few, so that what is seen is what the command loads.
NODES_WITH_AWS = 20


def run(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    return [*_with_many_nodes(stage, candidate, size), _with_aws(stage, candidate, size["rounds"])]


def _with_aws(stage: Stage, candidate: Candidate, rounds: int) -> Row:
    """The library of a cloud that is configured, 30 MB of it, is nothing that this command needs."""
    with stage.place(candidate) as place:
        create_nodes(place.znodes, NODES_WITH_AWS, "small", provider="region-a", pool="main")
        config = place.directory / "nodepool.yaml"
        provider = SectionProvider(aws_section("ami-1") | {"name": "region-a"})
        write_config(config, place.zookeeper, place.workplace.chroot, [provider])
        return _row(place, WITH_AWS, ["-c", str(config), "list"], rounds)


def _with_many_nodes(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    with stage.place(candidate) as place:
        create_nodes(place.znodes, size["nodes"], "small", provider="cloud", pool="main")
        config = place.directory / "nodepool.yaml"
        write_config(config, place.zookeeper, place.workplace.chroot, [])
        commands = {HELP: ["--help"], LIST: ["-c", str(config), "list"]}
        if place.candidate.command == OUR_COMMAND:
            last = create_requests(place.znodes, size["requests"], "small")[-1]
            commands[EXPLAIN] = ["-c", str(config), "explain", last]
        return [_row(place, case, arguments, size["rounds"]) for case, arguments in commands.items()]


def _row(place: Place, case: str, arguments: Sequence[str], rounds: int) -> Row:
    calls = []
    for number in range(rounds):
        calls.append(_call(place, arguments))
        place.progress.count(number + 1, rounds, f"nodepool {case}")
    seconds, cpu_seconds = (median(values) for values in zip(*calls, strict=True))
    return Row(NAME, case, place.candidate.name, rounded({"seconds": seconds, "cpu_seconds": cpu_seconds}))


def _call(place: Place, arguments: Sequence[str]) -> tuple[float, float]:
    """Time and CPU of one call, in seconds. :raises subprocess.CalledProcessError: it failed."""
    # An installed package has its bytecode.
    left_out = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    if place.candidate.command == OUR_COMMAND:
        environment["PYTHONPATH"] = str(ROOT)
    start, cpu_before = time.monotonic(), _cpu_of_children()
    with Path(place.directory / "output").open("wb") as output:
        subprocess.run([*place.candidate.tool, *arguments], check=True, stdout=output, stderr=output, env=environment)
    return time.monotonic() - start, _cpu_of_children() - cpu_before


def _cpu_of_children() -> float:
    """Seconds of all processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def limit(costs: Costs, _rows: Sequence[Row]) -> list[Row]:
    return [Row(NAME, LIST, LIMIT, rounded({"seconds": costs.kazoo_seconds + NODES / costs.reads_per_second}))]


NODES, REQUESTS = 6000, 2000
SCENARIO = Scenario(
    name=NAME,
    title=f"nodepool --help, nodepool list with {NODES} nodes, nodepool explain with {REQUESTS} requests as well",
    metrics=(Metric("seconds", "time", "s", plot=True), Metric("cpu_seconds", "CPU", "s")),
    goals=(
        Bound("seconds", at_most=0.3, case=HELP),
        Bound("seconds", at_most=1, case=LIST),
        Bound("seconds", at_most=0.3, case=EXPLAIN),
        Bound("seconds", at_most=0.3, case=WITH_AWS),
    ),
    run=run,
    sizes={"nodes": NODES, "requests": REQUESTS, "rounds": 7},
    quick={"nodes": 300, "requests": 100, "rounds": 3},
    limit=limit,
    limit_note="an interpreter that imports Kazoo, and one read a node, all sent at once",
)
