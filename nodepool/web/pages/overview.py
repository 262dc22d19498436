# SPDX-License-Identifier: Apache-2.0
"""``/``: the sentence of ``nodepool status``, what needs attention, capacity, and what waits; then the charts."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from nodepool.guard import Guard
from nodepool.listing.overview import overview, problem_line
from nodepool.listing.pools import used_of
from nodepool.listing.table import Table
from nodepool.model import states
from nodepool.model.event import short
from nodepool.plan.attention import registered_launchers
from nodepool.plan.pool_summary import by_provider, fullness, limiting, summarize
from nodepool.web.pages.frame import Links, Page, address, table_view
from nodepool.web.snapshot import RecordKind

if TYPE_CHECKING:
    from starlette.requests import Request

    from nodepool.plan.attention import StatusProblem
    from nodepool.plan.observed import Observed
    from nodepool.plan.pool_summary import PoolSummary
    from nodepool.web.snapshot import SnapshotMaker, WebSnapshot

#: Rows of each list; of more only the number is told.
MOST_ROWS: Final = 50
#: Kind of a problem -> the page that shows more.
_PAGES: Final = {
    "launcher": "launchers",
    "provider": "providers",
    "label": "labels",
    "host": "hosts",
    "node": "nodes",
    "reload": "launchers",
    "version": "launchers",
    "configuration": "launchers",
    "launch": "providers",
    "maintenance": "providers",
}
#: From these parts of a limit on its bar is yellow, and red.
_HIGH, _FULL = 0.8, 0.95


@dataclass(frozen=True)
class _Problem:
    kind: str
    line: str
    href: str


@dataclass(frozen=True)
class _Capacity:
    """:param percent: which part of the limiting resource is used; None = there is no limit."""

    provider: str
    href: str | None
    used: str
    percent: int | None
    css: str


@dataclass(frozen=True)
class _Waiting:
    labels: str
    href: str
    count: int
    oldest: str


def overview_page(_request: Request, snapshot: WebSnapshot) -> Page:
    """The first page."""
    seen = snapshot.observed
    told = overview(seen, snapshot.launchers, registered_launchers(seen.registered))
    pools, links = summarize(seen.statuses), Links(snapshot)
    values = {
        "sentence": told.sentence,
        "well": not (told.problems or told.waits),
        "problems": [_problem(problem, seen.now, links) for problem in told.problems[:MOST_ROWS]],
        "more_problems": max(0, len(told.problems) - MOST_ROWS),
        "capacity": [_capacity(name, members, links) for name, members in by_provider(pools).items()][:MOST_ROWS],
        "more_capacity": max(0, len(by_provider(pools)) - MOST_ROWS),
        "pools": table_view("Pools", _first_rows(told.capacity), {"pool": links.pool}),
        "charts": [title for title, _ in CHARTS],
        "waiting": _waiting(seen)[:MOST_ROWS],
    }
    return Page("overview.html", "Overview", values, list(RecordKind))


def _first_rows(table: Table) -> Table:
    return Table(table.columns, table.rows[:MOST_ROWS])


def _problem(problem: StatusProblem, now: float, links: Links) -> _Problem:
    # The line is a link to what the command shows.
    line = problem_line(problem, now, command=False).text.removeprefix("- ")
    return _Problem(problem.kind, line, _page_of(problem, links))


def _page_of(problem: StatusProblem, links: Links) -> str:
    """The page that shows what the command of a problem does."""
    command, _, name = problem.command.partition(" ")
    if problem.kind == "maintenance":
        return links.subject(problem.text.partition(" is ")[0]) or _PAGES["maintenance"]
    if problem.command == "list --state hold":
        return address("nodes", state="hold")
    found = (links.pool(name) or links.node(name) or links.label(name)) if command == "explain" else None
    return found or _PAGES.get(problem.kind, "")


def _capacity(provider: str, pools: Iterable[PoolSummary], links: Links) -> _Capacity:
    """Of the resource of which most is used in any pool of the provider."""
    scarce = limiting(limit for pool in pools for limit in pool.limits)
    href = links.provider(provider)
    if scarce is None:
        return _Capacity(provider, href, "no limit is known", None, "")
    part = fullness(scarce)
    css = "bad" if part >= _FULL else "waiting" if part >= _HIGH else "good"
    return _Capacity(provider, href, used_of(scarce), round(100 * part), css)


def _waiting(seen: Observed) -> list[_Waiting]:
    """Open requests by their labels, those that wait longest first."""
    counts: Counter[tuple[str, ...]] = Counter()
    oldest: dict[tuple[str, ...], float] = {}
    for request in seen.waiting:
        labels = tuple(sorted(set(request.node_types)))
        counts[labels] += 1
        oldest[labels] = min(oldest.get(labels, seen.now), request.created_time or seen.now)
    order: Any = sorted(counts, key=lambda labels: (oldest[labels], labels))
    return [
        _Waiting(
            ", ".join(labels),
            address("requests", label=",".join(labels) or None),
            counts[labels],
            short(seen.now - oldest[labels]),
        )
        for labels in order
    ]


# `History`: numbers of the last hours for charts, in memory. Metrics (Prometheus) are for longer times.

log = logging.getLogger("nodepool.web")

#: Between two samples.
INTERVAL_SECONDS: Final = 15.0
#: Samples that are kept: four hours.
MOST_SAMPLES: Final = 960
WAITING: Final = "waiting"
OLDEST_SECONDS: Final = "oldest_seconds"
LAUNCHED: Final = "launched"
FAILED: Final = "launches_failed"
#: States of nodes that have a curve of their own.
NODE_STATES: Final = (states.READY, states.IN_USE, states.BUILDING, states.DELETING, states.HOLD)


@dataclass(frozen=True)
class Sample:
    """:param at: seconds since the epoch. ``values``: by the constants above, and by state of nodes."""

    at: float
    values: Mapping[str, float]


class History:
    """The last samples. Written by one thread, read by any: what is read at a time is of one moment."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=MOST_SAMPLES)

    def add(self, sample: Sample) -> None:
        self._samples.append(sample)

    def samples(self) -> Sequence[Sample]:
        """The oldest first."""
        return list(self._samples.copy())


def sample_of(snapshot: WebSnapshot) -> Sample:
    """The numbers of one moment."""
    seen = snapshot.observed
    waiting = seen.waiting
    oldest = min((one.created_time for one in waiting if one.created_time is not None), default=seen.now)
    nodes = Counter(node.state for node in seen.nodes.values())
    return Sample(
        seen.now,
        {
            WAITING: len(waiting),
            OLDEST_SECONDS: max(0.0, seen.now - oldest),
            LAUNCHED: sum(status.launches.ok_15m for status in seen.statuses),
            FAILED: sum(status.launches.failed_15m for status in seen.statuses),
            **{state: nodes[state] for state in NODE_STATES},
        },
    )


@asynccontextmanager
async def sampling(history: History, snapshots: SnapshotMaker) -> AsyncIterator[None]:
    """A task that takes samples meanwhile, of what ZooKeeper has completely told."""
    task: asyncio.Task[Any] = asyncio.create_task(_take(history, snapshots), name="History")
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _take(history: History, snapshots: SnapshotMaker) -> None:
    def take() -> None:
        if snapshots.complete:
            history.add(sample_of(snapshots.latest()))

    while True:
        with Guard(log, "Error in the history of web pages; trying again in %g s", INTERVAL_SECONDS):
            await anyio.to_thread.run_sync(take)
        await anyio.sleep(INTERVAL_SECONDS)


# ``/charts.json``: curves of the last hours, which ``static/charts.js`` draws on the first page.

#: Title, and of each curve its name for people and its key, see `nodepool.web.pages.overview.Sample`.
CHARTS: Final = (
    ("Requests that wait", (("waiting", WAITING),)),
    ("Oldest request, in seconds", (("age", OLDEST_SECONDS),)),
    ("Nodes", tuple((state, state) for state in NODE_STATES)),
    ("Launches within 15 minutes", (("ready", LAUNCHED), ("failed", FAILED))),
)


def routes(samples: History) -> list[BaseRoute]:
    """The endpoint. It computes what takes a millisecond."""

    def answer(_request: Request) -> Response:
        return JSONResponse(charts_of(samples.samples()), headers={"Cache-Control": "no-cache"})

    return [Route("/charts.json", answer)]


def charts_of(samples: Sequence[Sample]) -> dict[str, Any]:
    """The curves of all charts over the same times, as uPlot takes them."""
    return {
        "times": [round(sample.at) for sample in samples],
        "charts": [
            {
                "title": title,
                "curves": [
                    {"label": label, "values": [round(sample.values.get(key, 0.0), 3) for sample in samples]}
                    for label, key in curves
                ],
            }
            for title, curves in CHARTS
        ],
    }
