# SPDX-License-Identifier: Apache-2.0
"""`Registry`: the metrics of this process. What counts goes to the registry, which passes it on to statsd.

A metric is declared once (`nodepool.metrics.catalog`). A *series* is a metric with a value for each of its labels.
"""

from __future__ import annotations

import bisect
import enum
import functools
import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from nodepool.metrics.statsd import StatsdClient

log = logging.getLogger("nodepool.Stats")

#: Series that are kept for one metric, but for groups. Labels of records come from other programs: memory must have a
#: bound.
MAX_SERIES: Final = 10_000
#: Upper bounds of the buckets of a timer, in seconds.
DEFAULT_BUCKETS: Final = (0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)


class MetricKind(enum.Enum):
    """What the values of a metric are."""

    #: A value that goes up and down.
    GAUGE = "gauge"
    #: A number of events; only grows.
    COUNTER = "counter"
    #: How long events took, in seconds; also counts them.
    TIMER = "timer"


@dataclass(frozen=True, eq=False)
class Metric:
    """The declaration of a metric.

    :param name: as Prometheus wants it, e.g. ``nodepool_launch``.
    :param labels: names of its labels; `series` wants a value for each.
    :param help: one sentence for people.
    :param statsd: the name under which statsd gets it, with ``{label}`` for the value of a label; empty = it does not.
    :param views: of a timer that has several names: Prometheus' name -> that of statsd, from which its labels follow.
        Series that agree in these are added up; one without a value for one of them is left out.
    :param buckets: of a timer: upper bounds in seconds, growing.
    :param statsd_counts: of a timer: does statsd get a counter beside it?
    """

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    help: str
    statsd: str = ""
    views: Mapping[str, str] = field(default_factory=dict)
    buckets: tuple[float, ...] = DEFAULT_BUCKETS
    statsd_counts: bool = True

    def series(self, *values: str) -> Series:
        """:param values: of the labels, in their order; '' = it has none."""
        if len(values) != len(self.labels):
            raise TypeError(f"{self.name} has the labels {', '.join(self.labels)}, not {len(values)} values")
        return Series(self, values)


class Series(NamedTuple):
    """A metric with values for its labels."""

    metric: Metric
    values: tuple[str, ...]

    def statsd_names(self) -> Sequence[str]:
        """The names under which statsd gets it; none if it does not."""
        names = []
        for form, make, places in _forms(self.metric):
            texts = [self.values[place].translate(table) for place, table in places]
            if form == self.metric.statsd or all(texts):
                names.append(make(*texts))
        return names


def labels_of(form: str) -> list[str]:
    """The labels in a statsd name, see `Metric`."""
    return _LABEL.findall(form)


@functools.cache
def _forms(metric: Metric) -> Sequence[tuple[str, Callable[..., str], Sequence[tuple[int, Mapping[int, str]]]]]:
    """Of each statsd name: itself, what makes it of its labels, and of these the place and what is replaced in them."""
    forms = [*metric.views.values(), *([metric.statsd] if metric.statsd else [])]
    return [
        (
            form,
            _LABEL.sub("{}", form).format,
            [
                (metric.labels.index(label), _NORMALISED if label in _FREE_LABELS else _PLAIN)
                for label in labels_of(form)
            ],
        )
        for form in forms
    ]


# The rules for text of others as a part of a statsd name (reference/metrics).

_LABEL: Final = re.compile(r"{(\w+)}")
#: Named freely by clients: what has a meaning in a name or in the protocol is replaced.
_FREE_LABELS: Final = frozenset({"requestor", "tenant", "limit"})
_NORMALISED: Final = str.maketrans(dict.fromkeys(".:|\r\n", "_"))
# Labels and providers of nodes come from ZooKeeper, where any program may have written them. They are kept as they are,
# dots included, but for what would end a line early and make a wrong metric of the rest.
_PLAIN: Final = str.maketrans(dict.fromkeys("|\r\n", "_"))


def normalise(text: str) -> str:
    """Text of a requestor or tenant as one part of a name: ``.`` and ``:`` become ``_``."""
    return text.translate(_NORMALISED)


@dataclass
class Distribution:
    """The values of one timer."""

    count: int = 0
    sum_seconds: float = 0.0
    #: By bucket, the last one for what is above all bounds; not cumulative.
    buckets: list[int] = field(default_factory=list)

    def add(self, seconds: float, bounds: Sequence[float]) -> None:
        if not self.buckets:
            self.buckets = [0] * (len(bounds) + 1)
        self.count += 1
        self.sum_seconds += seconds
        self.buckets[bisect.bisect_left(bounds, seconds)] += 1

    def copy(self) -> Distribution:
        return Distribution(self.count, self.sum_seconds, list(self.buckets))

    def added_to(self, other: Distribution) -> Distribution:
        """Both together; they have the same bounds."""
        buckets = [one + another for one, another in zip(self.buckets, other.buckets, strict=True)]
        return Distribution(self.count + other.count, self.sum_seconds + other.sum_seconds, buckets)


Value = float | Distribution


class Registry:
    """Keeps the last value of each series. Any thread; nothing blocks. ``_lock`` is held for dictionary work only.

    :param statsd: gives the client that gets every change, without the lock; None = there is none.
    """

    def __init__(self, statsd: Callable[[], StatsdClient | None] = lambda: None) -> None:
        self._statsd = statsd
        self._lock = threading.Lock()
        self._values: dict[Metric, dict[tuple[str, ...], Value]] = {}
        self._groups: dict[str, Mapping[Series, float]] = {}
        self._full: set[Metric] = set()

    def set(self, series: Series, value: float) -> None:
        """Set a gauge."""
        with self._lock:
            self._store(series, value)
        self._send_gauges({series: value})

    def count(self, series: Series, amount: float = 1) -> None:
        """Add to a counter."""
        with self._lock:
            before = self._values.get(series.metric, {}).get(series.values, 0.0)
            assert not isinstance(before, Distribution)
            self._store(series, before + amount)
        if (client := self._statsd()) is not None:
            for name in series.statsd_names():
                client.incr(name, amount)

    def time(self, series: Series, seconds: float) -> None:
        """Note how long an event took."""
        with self._lock:
            known = self._values.get(series.metric, {}).get(series.values)
            if known is None:
                known = Distribution()
                self._store(series, known)
            assert isinstance(known, Distribution)
            known.add(seconds, series.metric.buckets)
        if (client := self._statsd()) is not None and (names := series.statsd_names()):
            with client.pipeline() as pipe:
                for name in names:
                    pipe.timing(name, seconds * 1000)
                    if series.metric.statsd_counts:
                        pipe.incr(name)

    def replace(self, group: str, values: Mapping[Series, float]) -> None:
        """Make the gauges of a group these. One that was there before and is not any more is 0 for statsd, once.

        A statsd server keeps a gauge at its last value for ever, e.g. of a label that only a deleted node had.
        """
        with self._lock:
            gone = [series for series in self._groups.get(group, {}) if series not in values]
            # Sent once. A gauge that was 0 already needs no second one.
            zeros: dict[Series, float] = {
                series: 0 for series in gone if self._values.get(series.metric, {}).get(series.values)
            }
            for series in gone:
                self._values.get(series.metric, {}).pop(series.values, None)
            for series, value in values.items():
                # Without a bound: these replace the ones before, so they do not grow with time.
                self._values.setdefault(series.metric, {})[series.values] = value
            self._groups[group] = dict(values)
        self._send_gauges({**zeros, **values})

    def forget(self, group: str) -> None:
        """Drop the gauges of a group: another process reports them from now on. Nothing is sent."""
        with self._lock:
            for series in self._groups.pop(group, {}):
                self._values.get(series.metric, {}).pop(series.values, None)

    def snapshot(self) -> dict[Series, Value]:
        """All series with their values, as a copy; each metric as it was at one moment."""
        with self._lock:
            metrics = list(self._values)
        found: dict[Series, Value] = {}
        for metric in metrics:
            # Not all at once: threads that count would wait for it.
            with self._lock:
                values = {
                    labels: value.copy() if isinstance(value, Distribution) else value
                    for labels, value in self._values[metric].items()
                }
            found.update((Series(metric, labels), value) for labels, value in values.items())
        return found

    def _send_gauges(self, values: Mapping[Series, float]) -> None:
        if (client := self._statsd()) is not None:
            client.gauges({name: value for series, value in values.items() for name in series.statsd_names()})

    def _store(self, series: Series, value: Value) -> None:
        """Call with ``_lock`` held."""
        values = self._values.setdefault(series.metric, {})
        if series.values not in values and len(values) >= MAX_SERIES:
            if series.metric not in self._full:
                self._full.add(series.metric)
                log.warning("Metric %s has %d series: no more are kept", series.metric.name, MAX_SERIES)
            return
        values[series.values] = value
