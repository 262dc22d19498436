# SPDX-License-Identifier: Apache-2.0
"""Tables of metrics, made of their declarations (`nodepool.metrics.catalog`).

In a page, ``.. metrics:: NODES LAUNCH`` becomes the table of these metrics with the names for statsd and Prometheus.
Without names it becomes the table of all that statsd does not get.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from nodepool.metrics import catalog
from nodepool.metrics.registry import Metric, MetricKind

DIRECTIVE: Final = re.compile(r"^\.\. metrics::((?:\s+[A-Z_]+)*)\n", re.MULTILINE)
_PROMETHEUS: Final = {MetricKind.GAUGE: "gauge", MetricKind.COUNTER: "counter", MetricKind.TIMER: "histogram"}
#: Keys of configurations, commands and labels in help texts, which Prometheus shows without mark-up.
_LITERAL: Final = re.compile(r"\b(max-servers|min-ready|nodepool [a-z-]+-list|NotFound)\b")


def expand(text: str) -> str:
    """A page with its tables."""
    return DIRECTIVE.sub(lambda match: "\n".join(_table(match[1].split())) + "\n", text)


def statsd_names(metric: Metric) -> Sequence[str]:
    """The names under which statsd gets it, with ``<label>`` for the value of a label."""
    return metric.series(*(f"<{label}>" for label in metric.labels)).statsd_names()


def prometheus_names(metric: Metric) -> list[str]:
    """The names at ``/metrics``, without what each histogram has."""
    if metric.views:
        return [name for view in metric.views for name in (view, f"{view}_timer")]
    return [f"{metric.name}_total" if metric.kind is MetricKind.COUNTER else metric.name]


def meaning(metric: Metric) -> str:
    """The help text with mark-up."""
    return _LITERAL.sub(r"``\1``", metric.help)


def _table(names: Sequence[str]) -> Iterator[str]:
    if names:
        yield from _head("36 7 27 30", "statsd", "Type", "Prometheus", "Meaning")
        for metric in (getattr(catalog, name) for name in names):
            timer = "ms, c" if metric.statsd_counts else "ms"
            kind = {MetricKind.GAUGE: "g", MetricKind.COUNTER: "c"}.get(metric.kind, timer)
            yield from _row(_lines(statsd_names(metric)), kind, _lines(prometheus_names(metric)), meaning(metric))
        return
    yield from _head("35 25 10 30", "Metric", "Labels", "Type", "Meaning")
    for metric in (one for one in catalog.ALL if not statsd_names(one)):
        labels = ", ".join(f"``{label}``" for label in metric.labels) or "none"
        yield from _row(_lines(prometheus_names(metric)), labels, _PROMETHEUS[metric.kind], meaning(metric))


def _lines(names: Sequence[str]) -> str:
    """Each name in a line of its own."""
    return "\n       ".join(f"| ``{name}``" for name in names) if len(names) > 1 else f"``{names[0]}``"


def _head(widths: str, *titles: str) -> Iterator[str]:
    yield from (".. list-table::", "   :header-rows: 1", f"   :widths: {widths}", "")
    yield from _row(*titles)


def _row(first: str, *others: str) -> Iterator[str]:
    yield f"   * - {first}"
    yield from (f"     - {cell}" for cell in others)


def setup(app: Any) -> dict[str, Any]:
    """For Sphinx. The tables are put into the text of a page before it is parsed."""

    def read(app: Any, page: str, source: list[str]) -> None:
        if DIRECTIVE.search(source[0]):
            app.env.note_dependency(catalog.__file__)
        source[0] = expand(source[0])

    app.connect("source-read", read)
    return {"parallel_read_safe": True}
