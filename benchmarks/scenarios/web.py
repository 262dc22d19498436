# SPDX-License-Identifier: Apache-2.0
"""``nodepool-web`` with many nodes: what its pages take, and what it costs when many people look while nodes change."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import httpx2 as httpx

from benchmarks.suite.goals import Bound
from benchmarks.suite.model import Metric, Row, Scenario
from benchmarks.suite.statistics import median, percentile, rounded
from benchmarks.support.candidates import OURS, Candidate
from benchmarks.support.node_changes import NodeChanges
from benchmarks.support.place import Place, Stage
from benchmarks.support.populate import create_nodes, create_requests
from benchmarks.support.static_hosts import LABEL
from benchmarks.support.viewers import address_of, viewers
from tests.support.launcher_config import StaticProvider, static_hosts
from tests.support.process import ChildProcess
from tests.support.wait import wait_for

NAME: Final = "web"
WEBAPP: Final = {"webapp": {"listen_address": "127.0.0.1", "port": 0}}
PAGES: Final = ("", "requests", "nodes", "providers", "labels", "launchers", "tenants")
ANSWERS: Final = ("nodes?limit=100", "requests?limit=100", "summary")
#: As `nodepool.web.snapshot.LIFETIME_SECONDS`, and more: each answer is made of another snapshot.
APART_SECONDS: Final = 0.6
#: More of them are in no list of changed ids: then only that some have changed is told.
CHANGING: Final = 1000


def run(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    if candidate is not OURS:
        return []
    with stage.place(candidate) as place:
        stage.progress.step(f"  creating {size['nodes']} nodes and {size['requests']} requests")
        nodes = _populate(place, size)
        provider = StaticProvider(static_hosts(1, [LABEL]))
        # The pages of a large site come from a process of their own.
        command = (*OURS.command[:-1], "nodepool.cmd.web")
        web = place.launch(provider, command=command, web=True, extra=WEBAPP, wait=False)
        url = address_of(web)
        wait_for("the pages are ready", lambda: httpx.get(f"{url}/health/ready").status_code == 200)
        changes = NodeChanges(place.znodes, nodes[:CHANGING], size["changes"])
        with changes.running():
            stage.progress.step("  pages")
            taken = _answers(url, size["repeats"])
            stage.progress.step("  nobody looks")
            alone = _cpu_percent(web, size["seconds"])
            stage.progress.step(f"  {size['viewers']} people look")
            with viewers(web, size["viewers"], place.directory):
                busy = _cpu_percent(web, size["seconds"])
                delays = _delays(url, changes, size["seconds"])
    values = {
        **{f"{kind}_ms": 1000 * max(times) for kind, times in taken.items()},
        "alone_percent": alone,
        "viewers_percent": busy,
        "delay_ms": 1000 * median(delays),
        "late_ms": 1000 * percentile(delays, 1),
        "memory_mib": float(web.usage()["memory"]) if web.running else None,
    }
    return [Row(NAME, "", candidate.name, rounded(values))]


def _populate(place: Place, size: Mapping[str, Any]) -> Sequence[str]:
    """Nodes of ten pools and labels, and requests that wait. Returns the ids of the nodes."""
    nodes: list[str] = []
    for number in range(10):
        pool = {"provider": f"cloud-{number}", "pool": "main"}
        nodes += create_nodes(place.znodes, size["nodes"] // 10, f"{LABEL}-{number}", **pool)
        create_requests(place.znodes, size["requests"] // 10, f"{LABEL}-{number}")
    return nodes


def _answers(url: str, repeats: int) -> Mapping[str, Sequence[float]]:
    """Kind of an answer -> median seconds of each of that kind."""
    kinds: Mapping[str, Iterable[tuple[str, Mapping[str, str]]]] = {
        "page": [(f"/{path}", {}) for path in PAGES],
        "part": [(f"/{path}", {"HX-Request": "true"}) for path in PAGES],
        "api": [(f"/api/v1/{path}", {}) for path in ANSWERS],
    }
    taken: dict[str, list[float]] = {}
    with httpx.Client(base_url=url, timeout=60) as client:
        for kind, wanted in kinds.items():
            for path, headers in wanted:
                taken.setdefault(kind, []).append(median(_seconds(client, path, headers, repeats)))
    return taken


def _seconds(client: httpx.Client, path: str, headers: Mapping[str, str], repeats: int) -> list[float]:
    found = []
    for _ in range(repeats):
        time.sleep(APART_SECONDS)
        start = time.monotonic()
        client.get(path, headers=headers).raise_for_status()
        found.append(time.monotonic() - start)
    return found


def _cpu_percent(process: ChildProcess, seconds: float) -> float:
    """Of a core, all threads. Blocks for ``seconds``."""
    before, start = process.cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    return 100 * (process.cpu_seconds() - before) / (time.monotonic() - start)


def _delays(url: str, changes: NodeChanges, seconds: float) -> list[float]:
    """How long after a change was stored a viewer has the part of the page that shows it. Blocks for ``seconds``."""
    found: list[float] = []
    end = time.monotonic() + seconds
    changes.forget()
    with httpx.Client(base_url=url, timeout=60) as client, client.stream("GET", "/api/v1/events/stream") as stream:
        names = (line.removeprefix("event: ") for line in stream.iter_lines() if line.startswith(("event: ", "data: ")))
        for name, data in zip(names, names, strict=False):
            if time.monotonic() > end:
                return found
            if name != "nodes":
                continue
            client.get("/nodes", headers={"HX-Request": "true"}).raise_for_status()
            told = json.loads(data.removeprefix("data: "))["ids"]
            found += [delay for delay in map(changes.seen, told) if delay is not None]
    return found


SCENARIO = Scenario(
    name=NAME,
    title="Web pages of 10000 nodes, 50 of which change in a second",
    metrics=(
        Metric("page_ms", "slowest page", "ms", plot=True),
        Metric("part_ms", "slowest live part", "ms", plot=True),
        Metric("api_ms", "slowest answer of the API", "ms"),
        Metric("alone_percent", "CPU, nobody looks", "% of a core"),
        Metric("viewers_percent", "CPU, 50 people look", "% of a core", plot=True),
        Metric("delay_ms", "change to its page", "ms", plot=True),
        Metric("late_ms", "the latest", "ms"),
        Metric("memory_mib", "memory", "MiB"),
    ),
    goals=(
        Bound("page_ms", at_most=300),
        Bound("part_ms", at_most=150),
        Bound("viewers_percent", at_most=5),
        Bound("late_ms", at_most=1000),
    ),
    run=run,
    sizes={"nodes": 10_000, "requests": 200, "repeats": 5, "seconds": 20, "viewers": 50, "changes": 50},
    quick={"nodes": 500, "requests": 20, "repeats": 1, "seconds": 3, "viewers": 5},
)
