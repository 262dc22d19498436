# SPDX-License-Identifier: Apache-2.0
"""``/``: the sentence of ``nodepool status``, what needs attention, pictures of what was, pools, and what waits.

Then the numbers of the pictures, ``/charts.json``. Last ``/glossary``, what the words of all pages mean.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nodepool.listing.overview import overview, problem_line
from nodepool.model.event import short
from nodepool.plan.attention import StatusProblem, registered_launchers
from nodepool.plan.explain import WAIT_KINDS
from nodepool.plan.observed import Observed
from nodepool.web.answers import WebProblem, to_json
from nodepool.web.frame import Page, fact, first_rows, table_view
from nodepool.web.history import COLUMNS, STEPS, History, Values, combined
from nodepool.web.snapshot import Links, RecordKind, WebSnapshot, address

#: Rows of each list; of more only the number is shown.
MOST_ROWS: Final = 50
#: Kind of a problem -> the page that shows more.
_PAGES: Final = {
    **{kind: f"{kind}s" for kind in ("launcher", "provider", "label", "host", "node")},
    **dict.fromkeys(("reload", "version", "configuration"), "launchers"),
    **dict.fromkeys(("launch", "maintenance"), "providers"),
}


def overview_page(request: Request, snapshot: WebSnapshot) -> Page:
    """The first page."""
    chosen = request.query_params.get("range", "")
    seen = snapshot.observed
    found = overview(seen, registered_launchers(seen.registered))
    links = Links(snapshot)
    values = {
        "sentence": found.sentence,
        "well": not (found.problems or found.waits),
        "problems": [_problem(problem, seen.now, links) for problem in found.problems[:MOST_ROWS]],
        "more_problems": max(0, len(found.problems) - MOST_ROWS),
        "pools": table_view("Pools of all providers", first_rows(found.capacity, MOST_ROWS), links),
        "more_pools": max(0, len(found.capacity.rows) - MOST_ROWS),
        "waiting": _waiting(seen)[:MOST_ROWS],
        "range": chosen if chosen in RANGES else next(iter(RANGES)),
        "ranges": [(name, f"{name[:-1]} {name[-1]}") for name in RANGES],
        "more_charts": "&providers=all" if request.query_params.get("providers") == "all" else "",
        "zone": _local_time(seen.now).tzname(),
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


# ``/charts.json``: curves of what `History` keeps, which ``static/charts.js`` draws.

#: Range of the charts -> step of its samples in seconds, and how many of them are one point.
RANGES: Final = {"1h": (10, 2), "24h": (60, 5), "7d": (600, 4)}
#: Percentiles of a point are those of so many points up to it.
WINDOW_POINTS: Final = 6
#: Providers that are shown unless all are asked for: those with most nodes.
BUSIEST: Final = 6
_FINEST: Final = min(STEPS)


class Chart(NamedTuple):
    """:param tag: another chart has another one. ``body``: JSON of `curves`."""

    tag: str
    body: bytes


def charts_route(history: History) -> Route:
    """The endpoint. All viewers get the same answers, each of which is made once in 20 s, or in a minute."""
    kept: dict[tuple[str, bool], Chart] = {}

    async def answer(request: Request) -> Response:
        name, every = request.query_params.get("range", "1h"), request.query_params.get("providers") == "all"
        if name not in RANGES:
            raise WebProblem(400, f"The parameter 'range' is one of {', '.join(RANGES)}.")
        # Curves of days do not change with each sample.
        tag = f'"{name}-{every}-{history.sampled_at // min(math.prod(RANGES[name]), 60)}"'
        found = kept.get((name, every))
        if found is None or found.tag != tag:
            found = kept[name, every] = Chart(tag, await run_in_threadpool(_chart, history, name, every=every))
        headers = {"Cache-Control": "no-cache", "ETag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(found.body, headers=headers, media_type="application/json")

    return Route("/charts.json", answer)


def _chart(history: History, name: str, *, every: bool) -> bytes:
    step, count = RANGES[name]
    samples = history.samples(step)
    if step > _FINEST:
        # What is not in a longer sample yet is shown all the same.
        begin = samples[-1][0] + step if samples else 0
        samples += [(at, values) for at, values in history.samples(_FINEST) if at >= begin]
    offset = _local_time(history.sampled_at).utcoffset() or timedelta()
    found = curves(samples, step * count, every=every)
    return to_json({"range": name, "offset": offset.total_seconds(), **found})


def _local_time(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC).astimezone()


def curves(samples: Sequence[tuple[int, Values]], step: int, *, every: bool = False) -> Values:
    """The curves of some samples over the same times. A point without any value: nothing is known of the time there.

    :param step: seconds between two points.
    :param every: of each provider, not only of the `BUSIEST` ones.
    """
    sizes: Counter[str] = Counter()
    groups: defaultdict[int, list[Values]] = defaultdict(list)
    for at, one in samples:
        sizes.update({provider: row[-1] for provider, row in one["providers"].items()})
        groups[at // step * step].append(one)
    order = sorted(sizes, key=lambda provider: (-sizes[provider], provider))
    chosen = order if every else order[:BUSIEST]
    times: list[int] = []
    found: list[Values | None] = []
    for at, some in groups.items():
        if times and at - times[-1] > step:
            times.append(times[-1] + step)
            found.append(None)
        times.append(at)
        found.append(combined([{**one, "providers": _some(one["providers"], chosen)} for one in some]))

    def table(name: str, rows: Sequence[Any]) -> Values:
        binding = samples[-1][1]["binding"].get(name, "") if samples else ""
        return {
            "name": name,
            "binding": binding,
            **{key: [row and row[place] for row in rows] for place, key in enumerate(COLUMNS)},
        }

    windows = [found[max(0, end - WINDOW_POINTS) : end] for end in range(1, len(found) + 1)]
    waits = [sum((Counter(one["waits"]) for one in window if one is not None), Counter[str]()) for window in windows]
    return {
        "step": step,
        "times": times,
        "providers": [
            table("", [one and one["all"] for one in found]),
            *(table(name, [one and one["providers"].get(name) for one in found]) for name in chosen),
        ],
        "more": len(order) - len(chosen),
        "waiting": {kind: [one and one["waiting"].get(kind, 0) for one in found] for kind in (*WAIT_KINDS, "most")},
        "p50": [percentile(one, 0.5) for one in waits],
        "p95": [percentile(one, 0.95) for one in waits],
        "ready": [one and one["launches"][0] for one in found],
        "failed": [one and one["launches"][1] for one in found],
    }


def _some(rows: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: rows[name] for name in names if name in rows}


def percentile(waits: Mapping[str, int], part: float) -> float | None:
    """About how many seconds this part of requests waited at most; None = there were none.

    :param waits: of `nodepool.web.history.sample_of`.
    """
    left = part * sum(waits.values())
    for bucket in sorted(waits, key=int):
        left -= waits[bucket]
        if left <= 0:
            return round(10 ** (int(bucket) / 10), 2)
    return None


# ``/glossary``.

#: Words and what they mean, as the documentation has them.
_WORDS: Final[Sequence[tuple[str, str]]] = re.findall(
    r"^ {3}(\S.*)\n((?: {6}.*\n)+)", (Path(__file__).parent / "glossary.rst").read_text(encoding="utf-8"), re.MULTILINE
)


def glossary_page(_request: Request, _snapshot: WebSnapshot) -> Page:
    """The words of the pages."""
    words = [fact(word, " ".join(meaning.replace("``", "").split())) for word, meaning in _WORDS]
    return Page("Glossary", {"facts": words})
