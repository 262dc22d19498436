# SPDX-License-Identifier: Apache-2.0
"""A simulated cloud at the addresses of the public one: released drivers know no others.

A proxy for HTTPS that stands for all hosts behind it, with a certificate of its own, and hands what it gets to the
simulator. It answers HTTPS without a proxy, too, for a launcher that is told where its cloud is. So all use TLS, and
each its own way to handle connections.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import certifi

from benchmarks.support.environment import environment_with
from tests.support.certificates import make_certificates

#: Headers of one connection.
_OWN: Final = ("connection", "content-length", "transfer-encoding", "host", "server", "date")


class Translation:
    """What is changed on the way: nothing. A cloud whose released driver speaks an older API has one of its own.

    :param closes: each answer ends its connection, and with it a thread of this process.
    """

    def __init__(self, closes: bool = False) -> None:
        self.closes = closes

    def request(self, path: str, body: bytes) -> tuple[str, bytes]:
        """Path and body that the simulator gets."""
        return path, body

    def answer(self, method: str, path: str, content: bytes) -> bytes:
        """Body that the client gets of an answer 200.

        :param path: that the client asked for.
        """
        return content


def _handler_class(url: str, context: ssl.SSLContext, translation: Translation) -> type[BaseHTTPRequestHandler]:
    where = urlsplit(url)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        host = ""

        def setup(self) -> None:
            super().setup()
            self._plain: socket.socket = self.connection
            self._behind = http.client.HTTPConnection(str(where.hostname), where.port)

        def do_CONNECT(self) -> None:
            self.host = self.path.rpartition(":")[0]
            self.send_response(200)
            self.end_headers()
            # From here on it reads and writes through TLS.
            self.connection = context.wrap_socket(self.connection, server_side=True)
            self.rfile = self.connection.makefile("rb")
            self.wfile = self.connection.makefile("wb", 0)
            self.close_connection = False
            # A client may go at any time.
            with suppress(OSError):
                while not self.close_connection:
                    self.handle_one_request()
            self.close_connection = True

        def finish(self) -> None:
            with suppress(OSError):
                super().finish()
            self._behind.close()
            self.connection.close()

        def do_any(self) -> None:
            body: bytes = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path, body = translation.request(self.path, body)
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _OWN}
            headers |= {"Host": self.host or self.headers["Host"], "X-Forwarded-Proto": "https"}
            self._behind.request(self.command, path, body, headers)
            answer = self._behind.getresponse()
            content = answer.read()
            if answer.status == 200:
                content = translation.answer(self.command, self.path, content)
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _OWN:
                    self.send_header(name, value)
            if answer.status != 204:
                self.send_header("Content-Length", str(len(content)))
            if translation.closes:
                # `send_header` notes it.
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_DELETE = do_PATCH = do_any

        def log_message(self, format: str, *arguments: Any) -> None:
            """Not to stderr."""

    return Handler


class _TlsServer(ThreadingHTTPServer):
    """Without a proxy."""

    daemon_threads = True
    context: ssl.SSLContext

    def finish_request(self, request: Any, client_address: Any) -> None:
        # In the thread of the connection: a client that does not go on holds up nobody.
        with self.context.wrap_socket(request, server_side=True) as wrapped:
            super().finish_request(wrapped, client_address)


def _authorities(path: Path, own: Path) -> Path:
    """The usual ones and one more: a file with a single one costs a launcher next to nothing to read."""
    path.write_text(certifi.contents() + own.read_text(encoding="ascii"), encoding="utf-8")
    return path


@contextmanager
def public_cloud(
    directory: Path, url: str, hosts: Sequence[str], translation: Translation | None = None
) -> Iterator[str]:
    """Runs it, and tells launchers, which inherit the environment, of it. Gives its address without the proxy.

    :param url: of the simulated cloud.
    :param hosts: of the public cloud, for which the certificate is.
    :param translation: None = nothing is changed on the way.
    """
    made = make_certificates(directory / "public", hosts)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(made.keystore))
    handler = _handler_class(url, context, translation or Translation())
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    direct = _TlsServer(("127.0.0.1", 0), handler)
    direct.context = context
    threads = [threading.Thread(target=one.serve_forever, name="public-cloud") for one in (server, direct)]
    for thread in threads:
        thread.start()
    proxy = f"http://127.0.0.1:{server.server_address[1]}"
    variables = dict.fromkeys(("HTTPS_PROXY", "https_proxy"), proxy)
    variables |= dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1")
    variables |= {"REQUESTS_CA_BUNDLE": str(_authorities(directory / "authorities.pem", made.ca))}
    try:
        with environment_with(variables):
            yield f"https://127.0.0.1:{direct.server_address[1]}"
    finally:
        for one, thread in zip((server, direct), threads, strict=True):
            one.shutdown()
            thread.join()
            one.server_close()
