# SPDX-License-Identifier: Apache-2.0
"""Spans, what they say, and how they get to a collector.

First a span, and the ids that follow from records: a launcher that takes a request over continues its trace. Then where
spans go, then those of requests, of launches and of images. Last they are sent.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import math
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard

from nodepool.clock import monotonic, wall_time
from nodepool.guard import Guard
from nodepool.metrics.catalog import SPANS
from nodepool.metrics.registry import REGISTRY
from nodepool.model import states
from nodepool.model.request import NodeRequest, origin_of
from nodepool.plan.triage import Progress, Stage
from nodepool.version import release_string

if TYPE_CHECKING:
    import requests
    from opentelemetry.sdk.trace.export import SpanExporter

    from nodepool.model.node import Node
    from nodepool.model.reasons import Reason

#: Bits of ids, as W3C Trace Context has them.
TRACE_ID_BITS: Final = 128
SPAN_ID_BITS: Final = 64
#: Flag of a trace that is recorded.
SAMPLED: Final = 1

AttributeValue = str | int | float | tuple[str, ...]


class Trace(NamedTuple):
    """Where the spans of a request, or of a build, belong.

    :param trace_id: 128 bits, not 0.
    :param parent_id: span of the client, 64 bits; 0 = there is none.
    :param sampled: False: the client that began the trace does not want it recorded.
    """

    trace_id: int
    parent_id: int = 0
    sampled: bool = True


class Span(NamedTuple):
    """Something that took time, and has ended.

    :param parent_id: 0 = it has no parent.
    :param begin, end: seconds since the epoch.
    :param error: why it failed; empty = it did not.
    """

    name: str
    trace_id: int
    span_id: int
    parent_id: int
    begin: float
    end: float
    attributes: Mapping[str, AttributeValue] = MappingProxyType({})
    error: str = ""


def derived_id(bits: int, *parts: object) -> int:
    """An id that is the same whenever and wherever it is made of the same parts. Never 0.

    :param bits: `TRACE_ID_BITS` or `SPAN_ID_BITS`.
    """
    text = "\0".join(map(str, parts)).encode(errors="backslashreplace")
    return int.from_bytes(hashlib.blake2b(text, digest_size=bits // 8).digest(), "big") or 1


def trace_of(request: NodeRequest) -> Trace:
    """The trace of a request: that of ``span_info`` in its ``requestor_data``, else one of its own.

    Zuul 14.3 writes ``span_info`` as ``zuul.lib.tracing.getSpanInfo`` makes it.
    """
    data = request.requestor_data
    info = data.get("span_info") if isinstance(data, dict) else None
    if isinstance(info, dict):
        trace_id, parent_id = info.get("trace_id"), info.get("span_id")
        if is_id(trace_id, TRACE_ID_BITS) and is_id(parent_id, SPAN_ID_BITS):
            flags = info.get("trace_flags", SAMPLED)
            return Trace(trace_id, parent_id, not isinstance(flags, int) or bool(flags & SAMPLED))
    return Trace(derived_id(TRACE_ID_BITS, "request", request.id, request.created_time))


def is_id(value: Any, bits: int) -> TypeGuard[int]:
    """Is it a valid id? 0 is none."""
    return type(value) is int and 0 < value < 1 << bits


# Where spans go, of the whole process: nowhere, until something takes them.


#: Takes a span. Must neither block nor raise. Any thread calls it.
SpanSink = Callable[[Span], None]

_sink: SpanSink | None = None


def use(sink: SpanSink) -> None:
    """Give all spans of this process to a sink from now on."""
    global _sink
    _sink = sink


def stop_using(sink: SpanSink) -> None:
    """Record nothing from now on, unless another sink took its place."""
    global _sink
    if _sink == sink:
        _sink = None


def enabled() -> bool:
    """Are spans recorded? Asked before anything is computed for one."""
    return _sink is not None


def record(
    trace: Trace,
    name: str,
    key: tuple[object, ...],
    begin: float,
    end: float,
    parent: int | None = None,
    error: str = "",
    **attributes: AttributeValue,
) -> None:
    """Record a span that has ended. Neither blocks nor raises.

    :param key: makes it differ from others of that name in its trace, such as the id of the node: its id is made of it.
    :param begin, end: seconds since the epoch.
    :param parent: id of the parent span; None = that of the trace.
    :param error: why it failed; empty = it did not.
    :param attributes: without ``nodepool.`` before their names.
    """
    sink = _sink
    if sink is not None and trace.sampled:
        span_id, parent_id = span_id_of(trace, name, *key), trace.parent_id if parent is None else parent
        given = {f"nodepool.{name}": value for name, value in attributes.items()}
        sink(Span(name, trace.trace_id, span_id, parent_id, begin, max(begin, end), given, error))


def span_id_of(trace: Trace, name: str, *key: object) -> int:
    """The id of a span, also of one that has not ended yet."""
    return derived_id(SPAN_ID_BITS, trace.trace_id, name, *key)


def log_id(request: NodeRequest) -> str | None:
    """The id of a request's trace, for the log, as OpenTelemetry writes it; None = nothing is recorded."""
    if _sink is None:
        return None
    trace = trace_of(request)
    return f"{trace.trace_id:032x}" if trace.sampled else None


# Spans of a request: the whole of it, and what pools do with it.

REQUEST: Final = "nodepool.request"
QUEUE: Final = "nodepool.queue"
SERVICE: Final = "nodepool.service"
FULFILMENT: Final = "nodepool.fulfilment"
DECLINE: Final = "nodepool.decline"
#: Stages of a pool that have a span each.
_STAGES: Final = {
    Stage.CHECKING: "nodepool.check",
    Stage.FULFILLING: FULFILMENT,
    Stage.LOCKING: "nodepool.lock",
    Stage.PAUSED: "nodepool.wait",
}


def request_span(request: NodeRequest, trace: Trace) -> int:
    """The id of the span of the whole request, the parent of all others."""
    return span_id_of(trace, REQUEST, request.id)


def ended(request: NodeRequest, outcome: str) -> None:
    """A request has ended: the span of the whole. Does not block.

    :param outcome: ``fulfilled``, ``failed`` or ``cancelled``.
    """
    if not enabled():
        return
    trace, now = trace_of(request), wall_time()
    record(
        trace,
        REQUEST,
        (request.id,),
        now if request.created_time is None else min(request.created_time, now),
        now,
        None,
        "every pool declined it" if outcome == states.FAILED else "",
        request=request.key,
        labels=tuple(request.node_types),
        nodes=tuple(request.nodes),
        outcome=outcome,
        requestor=request.requestor or "",
        **{"event": request.event_id or "", **origin_of(request)},
    )


def declined(request: NodeRequest, reason: Reason, pool: str) -> None:
    """A pool has declined a request: a span without length. Does not block.

    :param pool: such as ``cloud-1/main``.
    """
    if enabled():
        trace, now = trace_of(request), wall_time()
        parent, key = request_span(request, trace), (request.id, pool, now)
        record(trace, DECLINE, key, now, now, parent, pool=pool, reason=reason.code.value, text=reason.text)


def fulfilment(request: NodeRequest, begin: float) -> None:
    """A request was fulfilled with nodes that were launched: how long its write took. Does not block.

    :param begin: seconds since the epoch.
    """
    if enabled():
        trace = trace_of(request)
        record(trace, FULFILMENT, (request.id, begin), begin, wall_time(), request_span(request, trace))


class ServiceSpans:
    """Spans of one pool that serves a request, from the queue on. For the thread of the pool.

    :param launcher_id: of the pool.
    :param reason: why it waited in the queue.
    """

    def __init__(self, request: NodeRequest, launcher_id: str, pool: str, reason: Reason | None) -> None:
        self._trace = trace_of(request)
        self._begin = self._since = wall_time()
        self._parent = request_span(request, self._trace)
        self._key = (request.id, launcher_id, self._begin)
        self._id = span_id_of(self._trace, SERVICE, *self._key)
        self._pool = pool
        self._reason: Reason | None = None
        #: Of a request that was given back: since then.
        waits_since = request.state_time if request.state == states.REQUESTED else None
        waits_since = waits_since or request.created_time or self._begin
        self._record(QUEUE, min(waits_since, self._begin), self._begin, self._parent, reason)

    def moved(self, progress: Progress) -> None:
        """The request went to another stage. Does not block."""
        now, left = progress.since, progress.left
        if left in _STAGES:
            self._record(_STAGES[left], self._since, now, self._id, self._reason)
        self._since, self._reason = now, progress.reason

    def end(self, stage: Stage) -> None:
        """The pool has let go of the request. Does not block."""
        now = wall_time()
        record(self._trace, SERVICE, self._key, self._begin, now, self._parent, pool=self._pool, stage=stage.value)

    def _record(self, name: str, begin: float, end: float, parent: int, reason: Reason | None) -> None:
        why = {} if reason is None else {"reason": reason.code.value, "text": reason.text}
        record(self._trace, name, (*self._key, begin), begin, end, parent, pool=self._pool, **why)


# Spans of launches: each attempt, and in it the boot and the scan.

LAUNCH: Final = "nodepool.launch"
BOOT: Final = "nodepool.boot"
SCAN: Final = "nodepool.scan"


def attempt_ended(request: NodeRequest, node: Node, provider: str, attempt: int, seconds: float, error: str) -> None:
    """An attempt to launch a node has ended just now. Does not block.

    :param attempt: from 1.
    :param seconds: how long it took.
    :param error: why it failed; empty = it did not.
    """
    if not enabled():
        return
    trace, now = trace_of(request), wall_time()
    record(
        trace,
        LAUNCH,
        (node.id, attempt),
        now - max(0.0, seconds),
        now,
        request_span(request, trace),
        error,
        node=node.key,
        provider=provider,
        label=node.type[0] if node.type else "",
        attempt=attempt,
        external_id=str(node.external_id or ""),
    )


def part_ended(name: str, request: NodeRequest, node: Node, attempt: int, seconds: float) -> None:
    """A part of an attempt has ended just now. Does not block.

    :param name: `BOOT` or `SCAN`.
    """
    if enabled():
        trace, now = trace_of(request), wall_time()
        parent = span_id_of(trace, LAUNCH, node.id, attempt)
        record(trace, name, (node.id, attempt), now - max(0.0, seconds), now, parent)


# Spans of images: each build is a trace, and its uploads belong to it.

BUILD: Final = "nodepool.build"
UPLOAD: Final = "nodepool.upload"


def build_ended(image: str, build: str, seconds: float, error: str) -> None:
    """A build has ended just now. Does not block.

    :param build: id of the build.
    :param error: why it failed; empty = it did not.
    """
    if enabled():
        trace, now = Trace(derived_id(TRACE_ID_BITS, "build", image, build)), wall_time()
        record(trace, BUILD, (image, build), now - seconds, now, None, error, image=image, build=build)


def upload_ended(image: str, build: str, provider: str, upload: str, seconds: float, outcome: str, error: str) -> None:
    """An upload has ended just now. Does not block.

    :param upload: number of the upload.
    :param outcome: in a word or two.
    :param error: why it failed; empty = it did not.
    """
    if enabled():
        trace, now = Trace(derived_id(TRACE_ID_BITS, "build", image, build)), wall_time()
        parent, key = span_id_of(trace, BUILD, image, build), (provider, upload)
        more = {"image": image, "build": build, "provider": provider, "upload": upload, "outcome": outcome}
        record(trace, UPLOAD, key, now - seconds, now, parent, error, **more)


# Spans go to a collector, in a thread of their own: a thread that records one never waits.
#
# First `Exporter`, then the target that speaks OpenTelemetry's protocol.

log = logging.getLogger("nodepool.tracing")

#: Spans that wait at most; what is beyond is dropped and counted.
MAX_WAITING: Final = 10_000
#: Spans that are sent at once.
BATCH: Final = 500
#: Seconds from a span until it is sent, so that more go with it.
DELAY_SECONDS: Final = 1.0
#: Seconds between two lines of the log about spans that are lost.
TELL_SECONDS: Final = 60.0


class Exporter:
    """A sink of the recorder, which sends from the beginning.

    :param name: of the target, for the log.
    """

    def __init__(self, target: OtlpTarget, name: str) -> None:
        self._target = target
        self._name = name
        # Appended to and taken from by different threads, which a deque allows.
        self._waiting: deque[Span] = deque()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._told_at = -math.inf
        self._lost = 0
        self._thread = threading.Thread(target=self._run, name="SpanExporter", daemon=True)
        self._thread.start()

    def record(self, span: Span) -> None:
        """A span ended; see `nodepool.tracing.spans.use`."""
        if len(self._waiting) >= MAX_WAITING:
            REGISTRY.count(SPANS.series("dropped"))
            return
        self._waiting.append(span)
        if not self._wake.is_set():
            self._wake.set()

    def stop(self, timeout_seconds: float) -> bool:
        """Send what waits; blocks at most so long. Was all tried?"""
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout_seconds)
        done = not self._thread.is_alive()
        self._target.close()
        if not done:
            # What it waits for has been ended.
            self._thread.join(1.0)
        left = len(self._waiting)
        if left:
            REGISTRY.count(SPANS.series("dropped"), left)
            log.warning("Spans that were not sent to %s before the end: %d", self._name, left)
        return done

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._stopping.wait(DELAY_SECONDS)
            # Cleared before both looks: what comes meanwhile wakes it again.
            self._wake.clear()
            stopping = self._stopping.is_set()
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
                sent = self._send(batch)
                if stopping and not sent:
                    return
            if stopping:
                return

    def _send(self, batch: Sequence[Span]) -> bool:
        """Blocks until it is sent, or is lost: False."""
        why = "an unexpected error, see above"
        # The libraries are others' and any error of theirs must not end the thread.
        with Guard(log, "Spans cannot be sent to %s", self._name):
            why = self._target.send(batch)
        REGISTRY.count(SPANS.series("dropped" if why else "sent"), len(batch))
        if not why:
            return True
        self._lost += len(batch)
        if monotonic() - self._told_at >= TELL_SECONDS:
            log.warning("Spans cannot be sent to %s, %d are lost: %s", self._name, self._lost, why)
            self._told_at, self._lost = monotonic(), 0
        return False


# `OtlpTarget`: sends spans by the OpenTelemetry protocol. The only place that imports the extra ``tracing``.

GRPC: Final = "grpc"
HTTP: Final = "http/protobuf"
#: Protocol -> module that sends by it.
_MODULES: Final[Mapping[str, str]] = {
    GRPC: "opentelemetry.exporter.otlp.proto.grpc.trace_exporter",
    HTTP: "opentelemetry.exporter.otlp.proto.http.trace_exporter",
}
#: Logger of the exporters.
_LIBRARY: Final = "opentelemetry.exporter"
#: Longest cause in a message, in characters.
_MAX_CAUSE: Final = 400
#: Nanoseconds in a second.
_NS: Final = 1_000_000_000


@dataclass(frozen=True)
class OtlpSettings:
    """The section ``tracing`` of the configuration.

    :param endpoint: of the collector; None = the protocol's default on this host.
    :param insecure: gRPC without TLS; None = as the endpoint says.
    :param timeout: seconds for one batch, with repeats; None = the default of the library.
    """

    protocol: str = GRPC
    endpoint: str | None = None
    service_name: str = "nodepool"
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_ca: str | None = None
    insecure: bool | None = None
    timeout: int | None = None
    compression: str | None = None


def missing_module(protocol: str) -> str | None:
    """The first module of the extra ``tracing`` that is not installed; None = all are."""
    for name in ("opentelemetry.sdk.trace", _MODULES[protocol]):
        try:
            found = importlib.util.find_spec(name)
        except ImportError:
            # A package above it is missing.
            found = None
        if found is None:
            return name
    return None


class _LastCause(logging.Handler):
    """What the library stated last: it returns no cause."""

    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        if self.last and record.levelno > logging.WARNING and "due to timeout" in record.getMessage():
            # It says less than the warning before it.
            return
        self.last = " ".join(record.getMessage().split())[:_MAX_CAUSE]


class OtlpTarget:
    """Where spans are sent. To make it takes 0.3 s, for the libraries.

    :raises OSError: a file with a certificate or a key cannot be read.
    :raises ValueError: the library does not accept what is in it, or another setting.
    """

    def __init__(self, settings: OtlpSettings) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        self._resource = Resource.create(
            {
                "service.name": settings.service_name,
                "service.version": release_string(),
                "service.instance.id": f"{socket.gethostname()}-{os.getpid()}",
                "host.name": socket.gethostname(),
            }
        )
        self._scope = InstrumentationScope("nodepool", release_string())
        self._exporter = _grpc_exporter(settings) if settings.protocol == GRPC else _http_exporter(settings)
        # Last: what raised has nothing to close.
        self._said = _LastCause(logging.WARNING)
        logging.getLogger(_LIBRARY).addHandler(self._said)

    def send(self, spans: Sequence[Span]) -> str:
        """Blocks for an answer. Returns why that failed, or nothing."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        result = self._exporter.export([self._readable(span) for span in spans])
        return "" if result is SpanExportResult.SUCCESS else self._said.last or "the collector refuses them"

    def close(self) -> None:
        """End what `send` waits for. Any thread; does not block for long."""
        self._exporter.shutdown()
        logging.getLogger(_LIBRARY).removeHandler(self._said)

    def _readable(self, span: Span) -> Any:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

        sampled = TraceFlags(TraceFlags.SAMPLED)
        # What others have written into a record, or a cloud has stated, may be no text or time of the protocol. The
        # library would refuse all spans that go with it.
        error = span.error.encode(errors="replace").decode()
        parent = SpanContext(span.trace_id, span.parent_id, True, sampled) if span.parent_id else None
        return ReadableSpan(
            name=span.name,
            context=SpanContext(span.trace_id, span.span_id, False, sampled),
            parent=parent,
            resource=self._resource,
            attributes=dict(span.attributes),
            kind=SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, error) if error else Status(StatusCode.UNSET),
            start_time=max(0, int(span.begin * _NS)),
            end_time=int(span.end * _NS),
            instrumentation_scope=self._scope,
        )


def _http_exporter(settings: OtlpSettings) -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    for path in (settings.tls_ca, settings.tls_cert, settings.tls_key):
        _read(path)
    return OTLPSpanExporter(
        endpoint=settings.endpoint,
        certificate_file=settings.tls_ca,
        client_key_file=settings.tls_key,
        client_certificate_file=settings.tls_cert,
        timeout=settings.timeout,
        compression=None if settings.compression is None else Compression(settings.compression),
        session=_session(),
    )


def _session() -> requests.Session:
    """A session whose authority is that of the configuration, also if ``REQUESTS_CA_BUNDLE`` names another one."""
    import requests

    class Session(requests.Session):
        def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
            configured = self.verify if isinstance(self.verify, str) and verify is None else verify
            return super().merge_environment_settings(url, proxies, stream, configured, cert)

    return Session()


def _grpc_exporter(settings: OtlpSettings) -> SpanExporter:
    import grpc
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    files = [_read(path) for path in (settings.tls_ca, settings.tls_key, settings.tls_cert)]
    credentials = grpc.ssl_channel_credentials(*files) if any(files) else None
    compressions = {None: None, "none": grpc.Compression.NoCompression, "gzip": grpc.Compression.Gzip}
    compressions["deflate"] = grpc.Compression.Deflate
    return OTLPSpanExporter(
        endpoint=settings.endpoint,
        insecure=settings.insecure,
        credentials=credentials,
        timeout=settings.timeout,
        compression=compressions[settings.compression],
    )


def _read(path: str | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()
