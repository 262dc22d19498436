# SPDX-License-Identifier: Apache-2.0
"""Spans go to a collector, in a thread of their own: a thread that records one never waits.

First `Exporter`, then the target that speaks OpenTelemetry's protocol.
"""

from __future__ import annotations

import importlib.util
import logging
import math
import os
import socket
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nodepool.clock import monotonic
from nodepool.guard import Guard
from nodepool.metrics.catalog import SPANS
from nodepool.metrics.registry import REGISTRY
from nodepool.tracing.spans import Span
from nodepool.version import release_string

if TYPE_CHECKING:
    import requests
    from opentelemetry.sdk.trace.export import SpanExporter

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
    """What the library said last: it returns no cause."""

    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        if self.last and record.levelno > logging.WARNING and "due to timeout" in record.getMessage():
            # It says less than the warning before it.
            return
        self.last = " ".join(record.getMessage().split())[:_MAX_CAUSE]


class OtlpTarget:
    """Where spans are sent.

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
        # What others have written into a record, or a cloud has said, may be no text or time of the protocol. The
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
