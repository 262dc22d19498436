# SPDX-License-Identifier: Apache-2.0
"""``/charts.json``: curves of the last hours, which ``static/charts.js`` draws on the first page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from nodepool.web import history

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

#: Title, and of each curve its name for people and its key, see `nodepool.web.history.Sample`.
CHARTS: Final = (
    ("Requests that wait", (("waiting", history.WAITING),)),
    ("Oldest request, in seconds", (("age", history.OLDEST_SECONDS),)),
    ("Nodes", tuple((state, state) for state in history.NODE_STATES)),
    ("Launches within 15 minutes", (("ready", history.LAUNCHED), ("failed", history.FAILED))),
)


def routes(samples: history.History) -> list[BaseRoute]:
    """The endpoint. It computes what takes a millisecond."""

    def answer(_request: Request) -> Response:
        return JSONResponse(charts_of(samples.samples()), headers={"Cache-Control": "no-cache"})

    return [Route("/charts.json", answer)]


def charts_of(samples: Sequence[history.Sample]) -> dict[str, Any]:
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
