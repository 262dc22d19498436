# SPDX-License-Identifier: Apache-2.0
"""A large configuration: loading it, idling with it, and reloading it after one change in one pool."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.suite.goals import Bound
from benchmarks.suite.model import LIMIT, Metric, Row, Scenario
from benchmarks.suite.statistics import median, rounded
from benchmarks.support.candidates import Candidate
from benchmarks.support.costs import Costs
from benchmarks.support.place import Place, Stage
from benchmarks.support.simulated_cloud import OpenStackProvider, simulated_cloud
from tests.support.pool_znodes import POOLS
from tests.support.wait import wait_for

NAME = "configuration"
PROVIDERS = 20
#: The pool with this priority is changed; the next priorities are free.
PRIORITY = 1000
#: The released package needs minutes for the larger case.
LOAD_DEADLINE_SECONDS = 600.0
RELOAD_DEADLINE_SECONDS = 300.0


class ManyLabels(OpenStackProvider):
    """A provider with many labels in its pool."""

    def __init__(self, number: int, labels: Sequence[str]) -> None:
        super().__init__(max_servers=10, name=f"cloud-{number}")
        self._labels = labels
        self._priority = PRIORITY if number == 0 else 100

    @property
    def labels(self) -> Sequence[str]:
        return self._labels

    def as_config(self) -> dict[str, Any]:
        config = super().as_config()
        (pool,) = config["pools"]
        (label,) = pool["labels"]
        pool["labels"] = [{**label, "name": name} for name in self._labels]
        pool["priority"] = self._priority
        return config


def run(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    rows = []
    for case, each in size["cases"].items():
        names = [f"label-{number:05}" for number in range(size["labels"])]
        providers = [ManyLabels(number, names if each else names[number::PROVIDERS]) for number in range(PROVIDERS)]
        with stage.place(candidate) as place, simulated_cloud(place.directory, {}):
            rows.append(_measure(place, providers, case, size))
    return rows


def _measure(place: Place, providers: Sequence[ManyLabels], case: str, size: Mapping[str, Any]) -> Row:
    place.progress.step(f"  {case}: loading")
    launcher = place.launch(providers, wait=False, labels=None)
    start = time.monotonic()
    wait_for("all pools are registered", lambda: _registered(place) == len(providers), LOAD_DEADLINE_SECONDS)
    values: dict[str, float | None] = {"load_seconds": time.monotonic() - start}
    values["parse_seconds"] = _parse_seconds(launcher.config_path)
    place.progress.step(f"  {case}: idle")
    time.sleep(size["settle"])
    before, start = place.read(), time.monotonic()
    time.sleep(size["idle"])
    values["idle_percent"] = 100 * (place.read() - before).cpu_seconds / (time.monotonic() - start)
    place.progress.step(f"  {case}: reloading")
    jitter = random.Random(3)
    reloads = [_reload(place, launcher.config_path, PRIORITY + number, jitter) for number in range(size["reloads"])]
    values["reload_seconds"] = median(seconds for seconds, _, _ in reloads)
    values["reload_cpu_seconds"] = median(cpu for _, cpu, _ in reloads)
    values["pools_written"] = max(pools for _, _, pools in reloads)
    return Row(NAME, case, place.candidate.name, rounded({**values, "memory_mib": place.memory_mib()}))


def _registered(place: Place) -> int:
    return len(place.znodes.children(POOLS))


def _parse_seconds(config: Path) -> float:
    """What the fastest parser that Python has needs for the file, alone and without building values."""
    text = config.read_text(encoding="utf-8")
    start = time.monotonic()
    for _ in yaml.parse(text, Loader=yaml.CSafeLoader):
        pass
    return time.monotonic() - start


def _reload(place: Place, config: Path, priority: int, jitter: random.Random) -> tuple[float, float, int]:
    """Changes the priority of one pool in the file.

    :return: seconds until the registry shows it, CPU of the launcher until then, and how many pools it wrote.
    """
    before = _versions(place)
    cpu = place.read().cpu_seconds
    changed = config.with_suffix(".new")
    text = config.read_text(encoding="utf-8")
    changed.write_text(text.replace(f"priority: {priority}\n", f"priority: {priority + 1}\n"), encoding="utf-8")
    # Not in step with the launcher's looks at the file.
    time.sleep(jitter.uniform(0, 1))
    start = time.monotonic()
    os.replace(changed, config)
    wait_for("a pool changes", lambda: _versions(place) != before, RELOAD_DEADLINE_SECONDS)
    seconds = time.monotonic() - start
    # Whatever else it does because of the change comes within its next looks at the file.
    time.sleep(2.0)
    after = _versions(place)
    written = sum(after.get(name) != version for name, version in before.items()) + len(after.keys() - before.keys())
    return seconds, place.read().cpu_seconds - cpu, written


def _versions(place: Place) -> dict[str, int]:
    """When each pool was written last."""
    kazoo = place.znodes.kazoo
    answers = {name: kazoo.exists_async(f"{POOLS}/{name}") for name in place.znodes.children(POOLS)}
    stats = {name: answer.get(30) for name, answer in answers.items()}
    return {name: stat.mzxid for name, stat in stats.items() if stat is not None}


def limit(costs: Costs, rows: Sequence[Row]) -> list[Row]:
    parsed = {row.case: row.values["parse_seconds"] for row in rows}
    return [
        Row(NAME, case, LIMIT, rounded({"load_seconds": costs.kazoo_seconds + seconds, "reload_seconds": seconds}))
        for case, seconds in parsed.items()
    ]


LABELS = 2000
SCENARIO = Scenario(
    name=NAME,
    title=f"Configuration of {LABELS} labels and {PROVIDERS} providers: load, idle, reload of one change",
    metrics=(
        Metric("load_seconds", "load", "s", plot=True),
        Metric("reload_seconds", "reload", "s", plot=True),
        Metric("reload_cpu_seconds", "reload's CPU", "s"),
        Metric("pools_written", "pools written"),
        Metric("idle_percent", "idle CPU", "% of a core"),
        Metric("memory_mib", "memory", "MiB"),
        Metric("parse_seconds", "bare YAML parser", "s", more_is_better=None),
    ),
    goals=(
        Bound("idle_percent", at_most=1),
        Bound("reload_seconds", at_most=1),
        Bound("pools_written", at_most=1),
    ),
    run=run,
    # Case -> does each provider have all labels?
    sizes={
        "labels": LABELS,
        "cases": {"each label in one provider": False, "each in all": True},
        "settle": 15,
        "idle": 45,
        "reloads": 5,
    },
    quick={"labels": 40, "settle": 2, "idle": 5, "reloads": 2},
    limit=limit,
    limit_note="events of Python's fastest YAML parser (libyaml), for loading also an interpreter with Kazoo",
)
