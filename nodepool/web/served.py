# SPDX-License-Identifier: Apache-2.0
"""What every daemon serves: health, what Nodepool 11.0.0 serves, and metrics.

First the application, then health, then the listings, then which form of an answer a client prefers, then the build
logs of a builder. Last ``/metrics``, in Prometheus' text format or as OpenMetrics (reference/metrics 8, 9): the route
with the metrics of the process, families as Prometheus has them, gauges of what a snapshot shows.
"""

from __future__ import annotations

import ipaddress
import itertools
import json
import logging
import math
import re
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.utils import formatdate, parsedate_to_datetime
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

import anyio
import anyio.to_thread
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, UnknownMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nodepool.builder.image_files import all_logs, open_log
from nodepool.clock import monotonic, wall_time
from nodepool.config.webapp import wrong_host
from nodepool.guard import Guard
from nodepool.listing.images import build_table, image_status_table, upload_table
from nodepool.listing.nodes import NodeFacts, host_state, node_table
from nodepool.listing.pools import tenant_table
from nodepool.listing.requests import label_table, request_table
from nodepool.listing.table import Place, Table, render, selected, shown
from nodepool.metrics import catalog, reports
from nodepool.metrics.registry import (
    MAX_SERIES,
    REGISTRY,
    Distribution,
    Metric,
    MetricKind,
    Registry,
    Series,
    Value,
    labels_of,
)
from nodepool.metrics.reports import Gauges
from nodepool.model import states
from nodepool.model.image import ImagesView
from nodepool.model.status import LauncherStatus, LimitStatus
from nodepool.plan.explain import causes
from nodepool.plan.images import rolled_back
from nodepool.plan.observed import Observed, ownerless
from nodepool.plan.pool_summary import PoolSummary, newest, summarize
from nodepool.runtime.daemon import ConnectedDaemon
from nodepool.web.answers import KEPT_SECONDS, KeptAnswer, KeptAnswers
from nodepool.web.server import ON_STOP
from nodepool.web.snapshot import SnapshotMaker, WebSnapshot
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.nodes import NodepoolCache

#: Answers are made in so many threads at most, so that they leave room for the daemon.
THREADS: Final = 2


def make_app(routes: Sequence[BaseRoute]) -> Starlette:
    """The application of a launcher or a builder; nothing runs yet."""

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[Mapping[str, Any]]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        stop = anyio.Event()
        yield {_STOP: stop, ON_STOP: [stop.set]}

    app = Starlette(routes=routes, lifespan=lifespan)
    # A path with a slash too many is another path, as in Nodepool 11.0.0.
    app.router.redirect_slashes = False
    app.add_middleware(Pieces)
    return app


# Parts of an answer that are sent one after the other, each when the client has read the one before.

PIECE: Final = 64 * 1024
_BODY: Final = "http.response.body"


class Pieces:
    """Middleware. All clients of one answer share its text; without pieces the server copies it for each of them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_pieces(message: Message) -> None:
            body = message.get("body", b"") if message["type"] == _BODY else b""
            if len(body) <= PIECE:
                await send(message)
                return
            for begin in range(0, len(body), PIECE):
                more = begin + PIECE < len(body) or message.get("more_body", False)
                await send({"type": _BODY, "body": body[begin : begin + PIECE], "more_body": more})

        await self._app(scope, receive, send_pieces if scope["type"] == "http" else send)


# `AllowedHosts`: requests for a name that is not ours are refused: the defence against DNS rebinding (ADR 21).

#: For probes of load balancers, which often send no name that means something.
OPEN_PATHS: Final = ("/health/", "/ready")


class AllowedHosts(TrustedHostMiddleware):
    """Middleware.

    :param hosts: names of these pages; ``*.example.org`` = all below it. What cannot be a name allows none. Addresses
        and ``localhost`` are always allowed: no attacker can make them mean another host.
    """

    def __init__(self, app: ASGIApp, hosts: Sequence[str]) -> None:
        names = [host.lower().rstrip(".") for host in hosts if wrong_host(host) is None]
        super().__init__(app, [*names, "localhost"], www_redirect=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            host = Headers(scope=scope).get("host", "")
            if scope["path"].startswith(OPEN_PATHS) or _is_address(host):
                await self.app(scope, receive, send)
                return
        await super().__call__(scope, receive, send)


def _is_address(host: str) -> bool:
    """Is the host of a header ``Host`` an address?"""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


# ``/health/live``, ``/health/ready`` and ``/health/status``, as Zuul's components have them.

#: A main loop that has not turned for so long is stuck.
STUCK_SECONDS: Final = 120.0


def health(daemon: ConnectedDaemon, version: str, complete: Callable[[], bool] = lambda: True) -> list[BaseRoute]:
    """For load balancers, systemd and orchestrators. None of them blocks or makes a snapshot.

    :param version: of this release.
    :param complete: are the caches complete?
    """

    def loop_age_seconds() -> float:
        return max(0.0, monotonic() - daemon.last_loop)

    def is_alive() -> bool:
        # A main loop that has not begun yet is not stuck.
        return not daemon.ready.is_set() or loop_age_seconds() < STUCK_SECONDS

    def is_ready() -> bool:
        return daemon.ready.is_set() and daemon.connected and complete()

    def probe(path: str, is_ok: Callable[[], bool]) -> Route:
        async def answer(_request: Request) -> Response:
            return PlainTextResponse("OK", 200) if is_ok() else PlainTextResponse("not ok", 503)

        return Route(path, answer)

    async def status(_request: Request) -> Response:
        return JSONResponse(
            {
                "kind": daemon.kind,
                "version": version,
                "state": "running" if daemon.ready.is_set() else "initializing",
                "live": is_alive(),
                "ready": is_ready(),
                "connected": daemon.connected,
                "reload_errors": list(daemon.reload_errors),
                "loop_age_seconds": round(loop_age_seconds(), 3),
            }
        )

    return [probe("/health/live", is_alive), probe("/health/ready", is_ready), Route("/health/status", status)]


# The endpoints of Nodepool 11.0.0, as its clients know them (reference/commands 6; WP-1 to WP-8).

#: All of them do the same.
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")
#: For so long an answer is given again, see `KeptAnswers`.
CACHE_SECONDS: Final = int(KEPT_SECONDS)
_TEXT: Final = "text/plain; charset=UTF-8"
_JSON: Final = "application/json"


@dataclass(frozen=True)
class Question:
    """What a client asks for.

    :param fields: keys of the columns of a text table; empty = all.
    :param node_id: the only node that is wanted; empty = all.
    """

    as_json: bool
    fields: tuple[str, ...] = ()
    node_id: str = ""


#: The snapshot, and what is asked for -> all columns of the table that Nodepool 11.0.0 has.
_Look = Callable[["WebSnapshot", Question], Table]


def _nodes(snapshot: WebSnapshot, question: Question) -> Table:
    seen = snapshot.observed
    found = [seen.nodes.get(question.node_id)] if question.node_id else seen.nodes.values()
    return node_table([node for node in found if node is not None], NodeFacts(set(seen.locked)), seen.now, detail=True)


_LOOKS: Final[Mapping[str, _Look]] = {
    "/image-list": lambda shown, asked: upload_table(shown.observed.images, shown.observed.now, moments=asked.as_json),
    "/dib-image-list": lambda shown, asked: build_table(
        shown.observed.images, shown.observed.now, moments=asked.as_json, pauses=False
    ),
    "/image-status": lambda shown, asked: image_status_table(
        shown.observed.images, shown.observed.now, moments=asked.as_json
    ),
    "/node-list": _nodes,
    "/request-list": lambda shown, _asked: request_table(shown.observed.requests.values(), shown.observed.now),
    "/label-list": lambda shown, _asked: label_table(shown.observed.registered),
}


def listings(daemon: ConnectedDaemon, snapshots: SnapshotMaker) -> list[BaseRoute]:
    """The listings, and ``/ready``."""
    recent = KeptAnswers()

    def listing(path: str, look: _Look) -> Route:
        def endpoint(request: Request) -> Response:
            question = question_of(request)
            answer = recent.get((path, question))
            if answer is None:
                answer = recent.put((path, question), _body(look(snapshots.latest(), question), question))
            return _response(request, answer, as_json=question.as_json)

        return Route(path, endpoint, methods=_METHODS)

    def ready(request: Request) -> Response:
        if not daemon.ready.is_set():
            return PlainTextResponse("503 Service Unavailable\n", 503)
        return _response(request, KeptAnswer(wall_time(), b"OK"), as_json=question_of(request).as_json)

    return [
        *(listing(path, look) for path, look in _LOOKS.items()),
        Route("/ready", ready, methods=_METHODS),
    ]


def question_of(request: Request) -> Question:
    """What a request asks for; of a parameter that is there twice the last one counts."""
    query = request.scope["query_string"].decode("latin-1").replace(";", "&")
    given = dict(parse_qsl(query, keep_blank_values=True))
    fields = tuple(given["fields"].split(",")) if given.get("fields") else ()
    return Question(prefers_json(request.headers.get("accept")), fields, given.get("node_id", ""))


def _body(table: Table, question: Question) -> bytes:
    table = shown(table, Place.TABLE)
    if question.as_json:
        keys = [column.key for column in table.columns]
        return json.dumps([dict(zip(keys, row, strict=True)) for row in table.rows]).encode()
    if question.fields:
        wanted = [column.key for column in table.columns if column.key in question.fields]
        if not wanted:
            # What the table of no column of Nodepool 11.0.0 looks like: with a line for each row.
            return b"++\n||\n++\n" + b"\n" * len(table.rows) + b"++"
        table = selected(table, wanted)
    return render(table).encode("utf-8", "replace")


def _response(request: Request, answer: KeptAnswer, *, as_json: bool) -> Response:
    made_at = int(answer.made_at)
    headers = {
        "Access-Control-Allow-Origin": "*",
        "Cache-Control": f"max-age={CACHE_SECONDS}, public",
        "Last-Modified": formatdate(made_at, usegmt=True),
        "Expires": formatdate(made_at + CACHE_SECONDS, usegmt=True),
    }
    if _has(request, made_at):
        return Response(status_code=304, headers=headers)
    return Response(answer.body, headers={**headers, "Content-Type": _JSON if as_json else _TEXT})


def _has(request: Request, made_at: int) -> bool:
    """Does the client have an answer of that time already (If-Modified-Since)?"""
    text = request.headers.get("if-modified-since")
    if text is None or request.method not in ("GET", "HEAD"):
        return False
    try:
        return made_at <= parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return False


# Which form of an answer a client prefers (RFC 9110, Accept).

_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_RANGE: Final = re.compile(rf"(\*/\*|{_TOKEN}/(?:\*|{_TOKEN}))((?:\s*;\s*{_TOKEN}=(?:{_TOKEN}|\"[^\"]*\"))*)")
_WEIGHT: Final = re.compile(r";\s*q=([^\s;]*)", re.IGNORECASE)
_QUALITY: Final = re.compile(r"0(?:\.\d{0,3})?|1(?:\.0{0,3})?")
_TEXTS: Final = ("text/html", "text/plain")


def prefers_json(header: str | None) -> bool:
    """Does a client want JSON more than text?

    :param header: value of ``Accept``; None, and one that cannot be read, is no preference.
    """
    weights = _weights(header or "")

    def weight(media_type: str) -> float:
        """Of the range that names the type most exactly."""
        ranges = (media_type, f"{media_type.partition('/')[0]}/*", "*/*")
        return next((weights[name] for name in ranges if name in weights), 0.0)

    return weight(_JSON) > max(map(weight, _TEXTS))


def _weights(header: str) -> dict[str, float]:
    """Each range of media types -> its weight, 0 to 1; empty if the header cannot be read. Parameters do not count."""
    found: dict[str, float] = {}
    for part in header.split(","):
        text = part.strip()
        if not text:
            continue
        match = _RANGE.fullmatch(text)
        weight = _WEIGHT.search(text)
        quality = "1" if weight is None else weight[1]
        if match is None or not _QUALITY.fullmatch(quality):
            return {}
        found[match[1].lower()] = float(quality)
    return found


# The build logs of a builder, as text. That of a running build grows while a client reads it.

#: Logs that the list has; the newest are in it.
MOST_LOGS: Final = 500
#: What is read at a time, in bytes.
_CHUNK: Final = 1 << 16
#: Between two looks at a log that grows.
LOOK_SECONDS: Final = 0.5
_STOP: Final = "stop_event"


def build_logs(directory: str, running: Callable[[], Collection[str]]) -> list[BaseRoute]:
    """The list of logs, and each log.

    :param directory: ``build-log-dir``.
    :param running: ids of the builds that run; any thread.
    """

    def listing(_request: Request) -> Response:
        return PlainTextResponse("".join(f"{name}\n" for name in all_logs(directory)[:MOST_LOGS]))

    def log(request: Request) -> Response:
        name = request.path_params["name"]
        try:
            file = open_log(directory, name)
        except OSError:
            return PlainTextResponse("There is no such log.\n", 404)

        async def chunks() -> AsyncIterator[bytes]:
            with file:
                while True:
                    # Asked first: what was written before the build ended is read below.
                    grows = name.rpartition("-")[2] in running()
                    while chunk := await anyio.to_thread.run_sync(file.read, _CHUNK):
                        yield chunk
                    if not grows or stop.is_set():
                        return
                    with anyio.move_on_after(LOOK_SECONDS):
                        await stop.wait()

        stop: anyio.Event = getattr(request.state, _STOP)
        headers = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
        return StreamingResponse(chunks(), media_type="text/plain; charset=utf-8", headers=headers)

    return [Route("/", listing), Route("/logs/{name}", log)]


# ``/metrics``.

log = logging.getLogger("nodepool.web")

_OPENMETRICS: Final = "application/openmetrics-text"
#: Of the name of a thread: its kind. The rest names what it works for, or is a number.
_THREAD_KIND: Final = re.compile(r"[A-Za-z_]+")


def metrics_route(
    daemon: ConnectedDaemon,
    version: str,
    cache: NodepoolCache | None,
    snapshots: SnapshotMaker | None,
    registry: Registry = REGISTRY,
) -> Route:
    """``/metrics`` of a daemon.

    :param version: of this release.
    :param cache: None = the daemon has none, and no snapshots either.
    :param registry: what the process counted.
    """

    def of_snapshot() -> Mapping[Series, Value]:
        if snapshots is None:
            return {}
        snapshot = snapshots.latest()
        return {catalog.COMPLETE.series(): int(snapshot.complete), **computed_gauges(snapshot)}

    sources: Sequence[Callable[[], Mapping[Series, Value]]] = (
        lambda: {**daemon_gauges(daemon, version)},
        of_snapshot,
        lambda: connection_metrics(daemon.client, cache),
    )
    recomputed = () if snapshots is None else catalog.RECOMPUTED

    class DaemonCollector(Collector):
        """What a process counted, and what is computed when it is asked for."""

        def collect(self) -> Iterator[Family]:
            """For any thread. Does not block; an error in one source does not hide the others."""
            counted = registry.snapshot().items()
            values: dict[Series, Value] = {one: value for one, value in counted if one.metric not in recomputed}
            for source in sources:
                with Guard(log, "Some metrics could not be computed"):
                    values.update(source())
            return families(values)

    collectors = CollectorRegistry()
    collectors.register(DaemonCollector())
    for of_process in (ProcessCollector, PlatformCollector, GCCollector):
        of_process(registry=collectors)

    def metrics(request: Request) -> Response:
        # Not as it came: a version that is no number is an error for the library.
        accepted = request.headers.get("accept", "")
        encode, content_type = choose_encoder(_OPENMETRICS if _OPENMETRICS in accepted else "")
        return Response(encode(collectors), headers={"Content-Type": content_type, "Cache-Control": "no-store"})

    return Route("/metrics", metrics)


def daemon_gauges(daemon: ConnectedDaemon, version: str) -> Gauges:
    """What each daemon has. Does not block."""
    names = (thread.name for thread in threading.enumerate())
    kinds = Counter(match[0] if (match := _THREAD_KIND.match(name)) else "other" for name in names)
    return {
        catalog.BUILD_INFO.series(version, daemon.kind): 1,
        catalog.CONNECTED.series(): int(daemon.connected),
        catalog.LOOP_AGE.series(): max(0.0, monotonic() - daemon.last_loop),
        **{catalog.THREADS.series(kind): count for kind, count in kinds.items()},
    }


def connection_metrics(client: ZooKeeperClient, cache: NodepoolCache | None) -> Mapping[Series, Value]:
    """Of the connection and the caches (reference/metrics 5, 9). Nothing while there was no connection yet."""
    latency = client.latency
    if latency is None:
        return {}
    counts = list(latency.counts)
    answers = Distribution(sum(counts), latency.sum_seconds, counts)
    queues: Gauges = {}
    if cache is not None:
        reads = cache.nodes.pending_reads, cache.requests.pending_reads
        queues = reports.internal_gauges(socket.gethostname(), client.queued_calls, *reads)
    return {catalog.ZOOKEEPER_LATENCY.series(): answers, **queues}


# Metrics as families of prometheus_client, with the names of Nodepool's mapping for statsd_exporter.

T = TypeVar("T", bound=Value)

#: Longer values of labels are cut, in characters.
MOST_CHARACTERS: Final = 200


def families(values: Mapping[Series, Value]) -> Iterator[Family]:
    """All metrics that have a series, each once. Does not block.

    :param values: of each metric at most `MAX_SERIES` are shown.
    """
    by_metric: dict[Metric, dict[tuple[str, ...], Value]] = {}
    for series, value in values.items():
        by_metric.setdefault(series.metric, {})[series.values] = value
    for metric, found in by_metric.items():
        if metric.kind is MetricKind.TIMER:
            yield from _timers(metric, found)
        else:
            yield _numbers(metric, found)


def _numbers(metric: Metric, found: Mapping[tuple[str, ...], Value]) -> Family:
    make = GaugeMetricFamily if metric.kind is MetricKind.GAUGE else CounterMetricFamily
    family = make(metric.name, metric.help, labels=metric.labels)
    for labels, value in _shown(found):
        assert not isinstance(value, Distribution)
        family.add_metric(labels, value)
    return family


def _timers(metric: Metric, found: Mapping[tuple[str, ...], Value]) -> Iterator[Family]:
    """Of each view the number of events under its name, and the distribution under the name with ``_timer``."""
    if not metric.views:
        yield _histogram(metric, metric.name, metric.labels, found)
    for name, form in metric.views.items():
        labels = labels_of(form)
        summed = _summed([metric.labels.index(label) for label in labels], found)
        # Its name must not end in "_total", because dashboards know it without: so it cannot be a counter.
        counts = UnknownMetricFamily(name, f"{metric.help} How many there were.", labels=labels)
        for values, value in _shown(summed):
            counts.add_metric(values, value.count)
        yield counts
        yield _histogram(metric, f"{name}_timer", labels, summed)


def _summed(places: Sequence[int], found: Mapping[tuple[str, ...], Value]) -> dict[tuple[str, ...], Distribution]:
    """Series that agree in some of their labels together; those that have no value for one of them are left out."""
    summed: dict[tuple[str, ...], Distribution] = {}
    for values, one in found.items():
        assert isinstance(one, Distribution)
        if all(key := tuple(values[place] for place in places)):
            known = summed.get(key)
            summed[key] = one if known is None else known.added_to(one)
    return summed


def _histogram(metric: Metric, name: str, labels: Sequence[str], found: Mapping[tuple[str, ...], Value]) -> Family:
    family = HistogramMetricFamily(name, metric.help, labels=labels)
    bounds = [*(str(float(bound)) for bound in metric.buckets), "+Inf"]
    for values, one in _shown(found):
        assert isinstance(one, Distribution)
        buckets = list(zip(bounds, itertools.accumulate(one.buckets), strict=True))
        family.add_metric(values, buckets, one.sum_seconds)
    return family


def _shown(found: Mapping[tuple[str, ...], T]) -> Iterable[tuple[tuple[str, ...], T]]:
    """Series with values as an exposition may have them: any text can be sent, each combination once, not too many."""
    shown: dict[tuple[str, ...], T] = {}
    for values, one in found.items():
        shown.setdefault(tuple(text[:MOST_CHARACTERS].encode("utf-8", "replace").decode() for text in values), one)
    return itertools.islice(shown.items(), MAX_SERIES)


# Gauges of what a `WebSnapshot` shows, as pure functions: series and numbers (reference/metrics 9).

Found = Iterator[tuple["Series", float]]
_TENANT: Final = "tenant:"
#: Scopes of limits that all pools of a provider share.
_OF_PROVIDER: Final = ("provider", "cloud")


def computed_gauges(snapshot: WebSnapshot) -> Gauges:
    """All gauges of a snapshot. Does not block."""
    seen = snapshot.observed
    pools = summarize(seen.statuses)
    return {
        **reports.node_gauges(seen.nodes.values(), seen.registered),
        **reports.request_gauges(seen.requests.values(), seen.registered),
        **_configured_limits(pools, snapshot.observed.launchers),
        **dict(_waiting_gauges(seen)),
        **dict(_limit_gauges(pools)),
        **dict(_tenant_gauges(seen)),
        **dict(_pool_gauges(seen, pools)),
        **dict(_host_gauges(pools)),
        **dict(_launcher_gauges(snapshot.observed.launchers)),
        **{
            catalog.MAINTENANCE.series(one.kind, one.name, one.mode.value): 1
            for one in seen.maintenance
            if not one.is_over(seen.now)
        },
        **{catalog.OWNERLESS.series(one.kind, one.name): one.count for one in ownerless(seen)},
        **dict(_image_gauges(snapshot.observed.images)),
    }


def _waiting_gauges(seen: Observed) -> Found:
    """Requests by state; of those that wait, for what."""
    by_state = Counter(str(request.state) for request in seen.requests.values())
    yield from ((catalog.REQUESTS.series(state), by_state[state]) for state in states.REQUEST_STATES)
    why = causes([request for request in seen.waiting if request.state == states.REQUESTED], seen)
    # A series that comes and goes cannot be averaged.
    oldest = dict.fromkeys(sorted(seen.labels), 0.0)
    waiting: Counter[tuple[str, str]] = Counter()
    for request in seen.waiting:
        age = max(0.0, seen.now - (request.created_time or seen.now))
        for label in sorted(set(request.node_types)):
            oldest[label] = max(oldest.get(label, 0.0), age)
            if request.state == states.REQUESTED:
                waiting[label, why[request.key].code] += 1
    yield from ((catalog.OLDEST.series(label), age) for label, age in oldest.items())
    yield from ((catalog.WAITING.series(*key), count) for key, count in waiting.items())


def _limit_gauges(pools: Iterable[PoolSummary]) -> Found:
    """Limits, and what is used of them; what several pools share is there once, as it was reported last."""
    for key, limit in newest((_limit_labels(pool, limit), limit) for pool in pools for limit in pool.limits).items():
        if limit.limit is not None:
            yield catalog.LIMIT.series(*key), limit.limit
        yield catalog.LIMIT_USED.series(*key), limit.used
        yield catalog.LIMIT_OTHERS.series(*key), limit.others


def _tenant_gauges(seen: Observed) -> Found:
    """Of each tenant that uses or wants anything."""
    for tenant, resource, _, used, _, _, _, _, since in tenant_table(seen).rows:
        yield catalog.TENANT_USED.series(tenant, resource), used
        yield catalog.TENANT_OLDEST.series(tenant), 0.0 if since is None else max(0.0, seen.now - since)
        if seen.order is not None:
            standing = seen.order.standing(tenant)
            yield catalog.TENANT_SHARE.series(tenant, standing.resource), standing.part


def _limit_labels(pool: PoolSummary, limit: LimitStatus) -> tuple[str, ...]:
    """Scope, provider, pool, tenant and resource; '' = it is not of one."""
    if limit.scope.startswith(_TENANT):
        return "tenant", "", "", limit.scope.removeprefix(_TENANT), limit.resource
    of_pool = "" if limit.scope in _OF_PROVIDER else pool.pool
    return limit.scope, pool.provider, of_pool, "", limit.resource


def _configured_limits(pools: Iterable[PoolSummary], launchers: Iterable[LauncherStatus]) -> Gauges:
    """With the names that statsd has, of all launchers together."""
    max_servers: dict[str, list[float]] = {}
    for pool in pools:
        limits = (one.limit for one in pool.limits if (one.scope, one.resource) == ("pool", "instances"))
        limit = next(limits, None)
        max_servers.setdefault(pool.provider, []).append(math.inf if limit is None else limit)
    tenants: dict[str, Mapping[str, float]] = {}
    for launcher in launchers:
        tenants.update(launcher.tenant_limits)
    return reports.limit_gauges(max_servers, tenants)


def _pool_gauges(seen: Observed, pools: Iterable[PoolSummary]) -> Found:
    by_state = Counter((one.provider, one.pool, one.state, one.code or "") for one in seen.statuses)
    yield from ((catalog.POOL_STATE.series(*key), count) for key, count in by_state.items())
    for pool in pools:
        yield catalog.POOL_LAUNCHES.series(pool.provider, pool.pool), pool.launches.running
        yield catalog.POOL_SLOW.series(pool.provider, pool.pool), sum(launch.slow for launch in pool.launching)
        for name, label in pool.labels.items():
            yield catalog.LABEL_BROKEN.series(pool.provider, pool.pool, name, label.code), 1


def _host_gauges(pools: Iterable[PoolSummary]) -> Found:
    hosts = [(pool.provider, host.pool or pool.pool, host) for pool in pools for host in pool.hosts]
    by_state = Counter((provider, pool, host_state(host)) for provider, pool, host in hosts)
    for (provider, pool, state), count in by_state.items():
        yield catalog.HOSTS.series(provider, pool, "unknown" if state == "not checked" else state), count
    for provider, pool, host in hosts:
        if host.up is not None:
            yield catalog.HOST_UP.series(provider, pool, host.name), int(host.up)


def _launcher_gauges(launchers: Sequence[LauncherStatus]) -> Found:
    for launcher in launchers:
        name = launcher.host
        yield catalog.LAUNCHER_INFO.series(name, launcher.version, launcher.config, launcher.state), 1
        yield catalog.LAUNCHER_START.series(name), launcher.since
        yield from ((catalog.ABSENT.series(name, absent.name), 1) for absent in launcher.absent)
        if launcher.reload is not None:
            yield catalog.RELOAD_OK.series(name), int(launcher.reload.ok)
            yield catalog.RELOAD_TIME.series(name), launcher.reload.at


def _image_gauges(images: ImagesView) -> Found:
    """Builds and uploads by state, how new the newest are, and new images that were rolled back."""
    yield from ((catalog.ROLLED_BACK.series(name, provider), 1) for name, provider, _ in rolled_back(images))
    for name, image in images.images.items():
        by_state = Counter(build.state for build in image.builds.values())
        yield from ((catalog.BUILDS.series(name, state), by_state[state]) for state in states.BUILD_STATES)
        if ready := image.ready_builds():
            yield catalog.BUILD_TIME.series(name), ready[0].time
        all_uploads = (upload for build in image.builds.values() for upload in build.all_uploads())
        uploads = Counter((upload.provider_name, str(upload.state)) for upload in all_uploads)
        for provider in sorted({provider for provider, _ in uploads}):
            for state in states.UPLOAD_STATES:
                yield catalog.UPLOADS.series(name, provider, state), uploads[provider, state]
            if (current := image.current_upload(provider)) is not None:
                yield catalog.UPLOAD_TIME.series(name, provider), current.state_time or 0.0
