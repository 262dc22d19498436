# SPDX-License-Identifier: Apache-2.0
"""An HTTP server in a thread that a test answers with, and that keeps what it was asked.

It answers plain requests, and as a proxy those to any host by TLS, with a certificate of its own: libraries that know
only the addresses of the real cloud reach it through ``HTTPS_PROXY``.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.support.tls_tunnel import open_tunnel


@dataclass(frozen=True)
class Call:
    """One request. :param host: empty: it came without the proxy. :param query: the last value of each name."""

    method: str
    host: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    """:param body: becomes JSON, unless it is bytes; None: an empty body."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


def encoded(body: Any) -> bytes:
    """The body of an answer as it is sent."""
    if body is None or isinstance(body, bytes):
        return body or b""
    return json.dumps(body).encode()


class HttpDouble:
    """A context manager. ``calls`` has what came, in order.

    :param answer: called in a thread of each connection, one at a time.
    :param certificate: PEM files with certificate and key for the hosts behind the proxy; None: it is no proxy.
    """

    def __init__(self, answer: Callable[[Call], Answer], certificate: tuple[str, str] | None = None) -> None:
        self._answer = answer
        self._lock = threading.Lock()
        self.calls: list[Call] = []
        self._context: ssl.SSLContext | None = None
        if certificate is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(*certificate)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler_class())
        self._thread = threading.Thread(target=self._server.serve_forever, name="http-double")
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Blocks until it has ended."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def reply(self, call: Call) -> Answer:
        """Keeps a call and answers it. The lock: answers look at and change what the test made of the cloud."""
        with self._lock:
            self.calls.append(call)
            return self._answer(call)

    def _handler_class(self) -> type[BaseHTTPRequestHandler]:
        double = self
        context = self._context

        class Handler(BaseHTTPRequestHandler):
            """HTTP/1.0: a connection, and its thread, ends with its first answer."""

            host = ""

            def do_CONNECT(self) -> None:
                if context is None:
                    self.send_error(405)
                    return
                self.host = open_tunnel(self, context)
                self.handle_one_request()
                self.close_connection = True

            def finish(self) -> None:
                super().finish()
                # What was wrapped has no socket of its own any more, so the server cannot close this one.
                self.connection.close()

            def do_any(self) -> None:
                url = urlsplit(self.path)
                length = int(self.headers.get("Content-Length") or 0)
                headers = {name.lower(): value for name, value in self.headers.items()}
                query = dict(parse_qsl(url.query, keep_blank_values=True))
                body = self.rfile.read(length) if length else b""
                answer = double.reply(Call(self.command, self.host, url.path, query, headers, body))
                text = encoded(answer.body)
                self.send_response(answer.status)
                for name, value in {"Content-Type": "application/json", **answer.headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_PUT = do_POST = do_DELETE = do_PATCH = do_HEAD = do_any

            def log_message(self, format: str, *arguments: Any) -> None:
                """Not to stderr."""

        return Handler
