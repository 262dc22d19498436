# SPDX-License-Identifier: Apache-2.0
"""`Registry`: the metrics of this process. What counts goes to the registry, which passes it on to statsd.

A metric is declared once (`nodepool.metrics.catalog`). A *series* is a metric with a value for each of its labels.
After both comes the client of statsd, then what is kept, and the registry of this process.
"""

from __future__ import annotations

import bisect
import enum
import functools
import logging
import os
import re
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from statsd.client.base import StatsClientBase
from statsd.client.udp import Pipeline

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
        metric = self.metric
        labels = {
            label: value.translate(_NORMALISED if label in _FREE_LABELS else _PLAIN)
            for label, value in zip(metric.labels, self.values, strict=True)
        }
        names = [form.format(**labels) for form in metric.views.values() if all(labels[one] for one in labels_of(form))]
        return [*names, metric.statsd.format(**labels)] if metric.statsd else names


def labels_of(form: str) -> list[str]:
    """The labels in a statsd name, see `Metric`."""
    return _LABEL.findall(form)


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


# The client of statsd: configured by the environment, and harmless to the threads that send.
#
# A metric must never delay or break a worker. So the socket does not block, a datagram that cannot be sent is dropped,
# and a host name is only resolved at the start and, after a failure, by callers of `StatsdClient.resolve`.

DEFAULT_HOST: Final = "localhost"
DEFAULT_PORT: Final = 8125

#: Fits into one Ethernet frame over IPv4 and IPv6, so that datagrams are not fragmented.
MAX_DATAGRAM_BYTES: Final = 1432


class StatsdClient(StatsClientBase):  # type: ignore[misc]
    """Sends gauges, counters and timers by UDP; safe to use from any thread.

    Methods as in the `statsd` package: ``gauge(name, value)``, ``incr(name, count)``, ``timing(name, ms)``,
    ``pipeline()``. None of them raises or blocks.

    :param host: name or address (IPv4 or IPv6) of the server.
    :param port: UDP port.
    """

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        # Names of the statsd package; its Pipeline reads them.
        self._prefix = None
        self._maxudpsize = MAX_DATAGRAM_BYTES
        self._target: tuple[socket.socket, Any] | None = None
        self._warned = False

    def resolve(self) -> bool:
        """Look the address up if that has not worked yet. For one thread. May block as long as the resolver takes.

        :return: is it known? Until then everything sent is dropped. A failure is logged once, not raised.
        """
        if self._target is None:
            try:
                family, _, _, _, address = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_DGRAM)[0]
                endpoint = socket.socket(family, socket.SOCK_DGRAM)
            except (OSError, UnicodeError) as error:
                if not self._warned:
                    text = "statsd server %s:%s cannot be reached: %s. It is tried again"
                    log.warning(text, self.host, self.port, error)
                    self._warned = True
                return False
            endpoint.setblocking(False)
            self._target = endpoint, address
        return True

    def close(self) -> None:
        """Close the socket; what is sent afterwards is dropped."""
        target, self._target = self._target, None
        if target is not None:
            target[0].close()

    def pipeline(self) -> Any:
        """Collects metrics and sends them in few datagrams: ``with client.pipeline() as pipe: pipe.gauge(...)``."""
        return Pipeline(self)

    def gauges(self, values: Mapping[str, float]) -> None:
        """Send many gauges: name -> value."""
        with self.pipeline() as pipe:
            for name, value in values.items():
                pipe.gauge(name, value)

    def _send(self, data: str) -> None:
        """Called by the base class and by pipelines with one datagram."""
        target = self._target
        if target is None:
            return
        try:
            # A stray surrogate in a name must not raise.
            target[0].sendto(data.encode("utf-8", "replace"), target[1])
        except OSError as error:
            # A full buffer, no route, or a socket that was just closed: the next value comes soon.
            log.debug("Metric not sent: %s", error)


def get_client(environ: Mapping[str, str] = os.environ) -> StatsdClient | None:
    """The client that ``STATSD_HOST`` and ``STATSD_PORT`` ask for, or None when neither is set.

    The one that is missing is localhost or 8125. May block while the host name is looked up; a name that cannot
    be resolved now is tried again with `StatsdClient.resolve` (the stats worker does that).
    """
    host = environ.get("STATSD_HOST", "")
    port_text = environ.get("STATSD_PORT", "")
    if not host and not port_text:
        return None
    port = int(port_text) if port_text.isascii() and port_text.isdigit() else 0 if port_text else DEFAULT_PORT
    if not 0 < port < 65536:
        log.error("No metrics are sent: STATSD_PORT is %r, but must be a number from 1 to 65535", port_text)
        return None
    client = StatsdClient(host or DEFAULT_HOST, port)
    client.resolve()
    return client


@functools.cache
def shared_client() -> StatsdClient | None:
    """The client of this process, made by `get_client` at the first call. Later calls do not block."""
    return get_client()


# What is kept.


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


# The metrics of this process.

#: What everything in this process counts with. statsd gets it when its environment variables are set.
REGISTRY: Final = Registry(lambda: shared_client())
