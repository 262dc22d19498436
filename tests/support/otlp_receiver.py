# SPDX-License-Identifier: Apache-2.0
"""A collector of OpenTelemetry in this process: keeps the spans that it is sent, by HTTP or gRPC."""

from __future__ import annotations

import gzip
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as trace_grpc

from tests.support.certificates import Certificates


@dataclass(frozen=True)
class ReceivedSpan:
    """Ids are numbers, 0 = none; times are seconds since the epoch.

    :param service: ``service.name`` of the resource.
    """

    name: str
    trace_id: int
    span_id: int
    parent_id: int
    begin: float
    end: float
    attributes: dict[str, Any]
    error: str
    service: str


@dataclass
class Received:
    """What was sent. ``endpoint`` is for the configuration."""

    endpoint: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list)
    #: Answer with this status instead; None = take all.
    refuse: int | None = None

    def named(self, name: str) -> list[ReceivedSpan]:
        return [span for span in list(self.spans) if span.name == name]

    def take(self, request: Any) -> None:
        for resource in request.resource_spans:
            about = {item.key: _value(item.value) for item in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [_received(span, str(about["service.name"])) for span in scope.spans]


def _received(span: Any, service: str) -> ReceivedSpan:
    attributes = {item.key: _value(item.value) for item in span.attributes}
    error = span.status.message if span.status.code == span.status.STATUS_CODE_ERROR else ""
    return ReceivedSpan(
        span.name,
        int.from_bytes(span.trace_id, "big"),
        int.from_bytes(span.span_id, "big"),
        int.from_bytes(span.parent_span_id, "big"),
        span.start_time_unix_nano / 1e9,
        span.end_time_unix_nano / 1e9,
        attributes,
        error,
        service,
    )


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind)


@contextmanager
def http_receiver(certificates: Certificates | None = None) -> Iterator[Received]:
    """Serves HTTP, or HTTPS that asks for a client's certificate."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if received.refuse is None:
                received.take(trace_pb2.ExportTraceServiceRequest.FromString(body))
            self.send_response(received.refuse or 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            """The test tells what matters."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificates is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.keystore)
        context.load_verify_locations(certificates.ca)
        context.verify_mode = ssl.CERT_REQUIRED
        server.socket = context.wrap_socket(server.socket, server_side=True)
    scheme = "http" if certificates is None else "https"
    received.endpoint = f"{scheme}://127.0.0.1:{server.server_address[1]}/v1/traces"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="otlp-receiver")
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def grpc_receiver(certificates: Certificates | None = None) -> Iterator[Received]:
    """Serves gRPC, or gRPC with TLS that asks for a client's certificate."""
    received = Received()

    class Service(trace_grpc.TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            received.take(request)
            return trace_pb2.ExportTraceServiceResponse()

    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        trace_grpc.add_TraceServiceServicer_to_server(Service(), server)  # type: ignore[no-untyped-call]
        if certificates is None:
            port = server.add_insecure_port("127.0.0.1:0")
            received.endpoint = f"http://127.0.0.1:{port}"
        else:
            both = certificates.keystore.read_bytes()
            ca = certificates.ca.read_bytes()
            credentials = grpc.ssl_server_credentials([(both, both)], ca, require_client_auth=True)
            port = server.add_secure_port("127.0.0.1:0", credentials)
            received.endpoint = f"https://localhost:{port}"
        server.start()
        try:
            yield received
        finally:
            server.stop(None).wait(20)
