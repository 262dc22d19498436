# SPDX-License-Identifier: Apache-2.0
"""``/``: the sentence of ``nodepool status``, what needs attention, capacity, and what waits; then the charts."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from nodepool.guard import Guard
from nodepool.listing.overview import overview, problem_line
from nodepool.listing.pools import used_of
from nodepool.model import states
from nodepool.model.event import short
from nodepool.plan.attention import registered_launchers
from nodepool.plan.pool_summary import by_provider, fullness, limiting, summarize
from nodepool.web.frame import Links, Page, address, first_rows, table_view
from nodepool.web.snapshot import RecordKind

if TYPE_CHECKING:
    from starlette.requests import Request

    from nodepool.plan.attention import StatusProblem
    from nodepool.plan.observed import Observed
    from nodepool.plan.pool_summary import PoolSummary
    from nodepool.web.snapshot import SnapshotMaker, WebSnapshot

#: Rows of each list; of more only the number is shown.
MOST_ROWS: Final = 50
#: Kind of a problem -> the page that shows more.
_PAGES: Final = {
    **{kind: f"{kind}s" for kind in ("launcher", "provider", "label", "host", "node")},
    **dict.fromkeys(("reload", "version", "configuration"), "launchers"),
    **dict.fromkeys(("launch", "maintenance"), "providers"),
}
#: From these parts of a limit on its bar is yellow, and red.
_HIGH, _FULL = 0.8, 0.95


def overview_page(_request: Request, snapshot: WebSnapshot) -> Page:
    """The first page."""
    seen = snapshot.observed
    found = overview(seen, registered_launchers(seen.registered))
    links, providers = Links(snapshot), by_provider(summarize(seen.statuses))
    values = {
        "sentence": found.sentence,
        "well": not (found.problems or found.waits),
        "problems": [_problem(problem, seen.now, links) for problem in found.problems[:MOST_ROWS]],
        "more_problems": max(0, len(found.problems) - MOST_ROWS),
        "capacity": [_capacity(name, pools, links) for name, pools in providers.items()][:MOST_ROWS],
        "more_capacity": max(0, len(providers) - MOST_ROWS),
        "pools": table_view("Pools", first_rows(found.capacity, MOST_ROWS), links),
        "charts": [title for title, _ in CHARTS],
        "waiting": _waiting(seen)[:MOST_ROWS],
    }
    return Page("Overview", values, list(RecordKind), template="overview.html")


def _problem(problem: StatusProblem, now: float, links: Links) -> dict[str, str]:
    # The line is a link to what the command shows.
    line = problem_line(problem, now, command=False).text.removeprefix("- ")
    return {"kind": problem.kind, "line": line, "href": _page_of(problem, links)}


def _page_of(problem: StatusProblem, links: Links) -> str:
    """The page that shows what the command of a problem does."""
    command, _, name = problem.command.partition(" ")
    if problem.kind == "maintenance":
        return links.subject(problem.text.partition(" is ")[0]) or _PAGES["maintenance"]
    if problem.command == "list --state hold":
        return address("nodes", state="hold")
    found = (links.pool(name) or links.node(name) or links.label(name)) if command == "explain" else None
    return found or _PAGES.get(problem.kind, "")


def _capacity(provider: str, pools: Iterable[PoolSummary], links: Links) -> dict[str, Any]:
    """Of the resource of which most is used in any pool of the provider, the used part in percent."""
    scarce = limiting(limit for pool in pools for limit in pool.limits)
    shown: dict[str, Any] = {"provider": provider, "href": links.provider(provider), "percent": None}
    if scarce is None:
        return {**shown, "used": "no limit is known"}
    part = fullness(scarce)
    css = "bad" if part >= _FULL else "waiting" if part >= _HIGH else "good"
    return {**shown, "used": used_of(scarce), "percent": round(100 * part), "css": css}


def _waiting(seen: Observed) -> list[dict[str, Any]]:
    """Open requests by their labels, those that wait longest first."""
    begins: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for request in seen.waiting:
        begins[tuple(sorted(set(request.node_types)))].append(request.created_time or seen.now)
    return [
        {
            "labels": ", ".join(labels),
            "href": address("requests", label=",".join(labels) or None),
            "count": len(found),
            "oldest": short(max(0.0, seen.now - min(found))),
        }
        for labels, found in sorted(begins.items(), key=lambda entry: (min(entry[1]), entry[0]))
    ]


# Numbers of the last hours for charts, in memory. Metrics (Prometheus) are for longer times.

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


async def take_samples(history: deque[Sample], snapshots: SnapshotMaker) -> None:
    """Goes on until it is cancelled. Samples are taken of what ZooKeeper has completely reported."""

    def take() -> None:
        if snapshots.complete:
            history.append(sample_of(snapshots.latest()))

    while True:
        with Guard(log, "Error in the history of web pages; trying again in %g s", INTERVAL_SECONDS):
            await anyio.to_thread.run_sync(take)
        await anyio.sleep(INTERVAL_SECONDS)


# ``/charts.json``: curves of the last hours, which ``static/charts.js`` draws on the first page.

#: Title, and of each curve its name for people and its key, see `Sample`.
CHARTS: Final = (
    ("Requests that wait", (("waiting", WAITING),)),
    ("Oldest request, in seconds", (("age", OLDEST_SECONDS),)),
    ("Nodes", tuple((state, state) for state in NODE_STATES)),
    ("Launches within 15 minutes", (("ready", LAUNCHED), ("failed", FAILED))),
)


def charts_route(history: deque[Sample]) -> Route:
    """The endpoint. It computes what takes a millisecond."""

    def answer(_request: Request) -> Response:
        return JSONResponse(charts_of(list(history.copy())), headers={"Cache-Control": "no-cache"})

    return Route("/charts.json", answer)


def charts_of(samples: Sequence[Sample]) -> dict[str, Any]:
    """The curves of all charts over the same times, as uPlot takes them."""

    def curve(label: str, key: str) -> dict[str, Any]:
        return {"label": label, "values": [round(sample.values.get(key, 0.0), 3) for sample in samples]}

    return {
        "times": [round(sample.at) for sample in samples],
        "charts": [{"title": title, "curves": [curve(*one) for one in curves]} for title, curves in CHARTS],
    }
