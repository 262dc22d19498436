# SPDX-License-Identifier: Apache-2.0
"""`ImageServer`: has image files for imports, by https with an authority of its own, and fails as a test says."""

from __future__ import annotations

import hashlib
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support.certificates import make_certificates


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class ImageServer:
    """Serves `files` from the moment it is made until `stop`.

    :param directory: for its certificates.
    """

    def __init__(self, directory: Path) -> None:
        certificates = make_certificates(directory)
        self.ca = certificates.ca
        #: Name -> what it answers.
        self.files: dict[str, bytes] = {}
        #: Answers of the next requests end after so many bytes.
        self.breaks: list[int] = []
        #: Bytes in front of which an answer waits until `go_on` is set; None = it does not wait.
        self.pause_at: int | None = None
        self.go_on = threading.Event()
        self.waiting = threading.Event()
        self.ranges = True
        #: So many bytes more are announced than there are.
        self.announced = 0
        #: After one answer it has no files any more.
        self.then_nothing = False
        #: More headers of an answer, and where requests are sent to instead.
        self.headers: dict[str, str] = {}
        self.location = ""
        #: Name and range of each request.
        self.asked: list[tuple[str, str]] = []
        self._server = _Server(("localhost", 0), _Handler)
        self._server.site = self
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.keystore)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def url(self, name: str) -> str:
        return f"https://localhost:{self._server.server_port}/{name}"

    def stop(self) -> None:
        self.go_on.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(30)


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    site: ImageServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        site, name = self.server.site, self.path[1:].partition("?")[0]
        asked = self.headers.get("Range", "")
        site.asked.append((name, asked))
        data = site.files.get(name)
        if site.then_nothing:
            site.files.clear()
        if data is None or site.location:
            self.send_response(404 if data is None else 302)
            self.send_header("Location", site.location)
            self.end_headers()
            return
        tag = f'"{sha256(data)[:8]}"'
        begin = int(asked[6:-1]) if asked and site.ranges and self.headers.get("If-Range", tag) == tag else 0
        if begin and begin >= len(data):
            self.send_response(416)
            self.end_headers()
            return
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        headers = {"Content-Length": str(len(data) - begin + site.announced), "ETag": tag, **site.headers}
        for header in headers.items():
            self.send_header(*header)
        self.end_headers()
        end = site.breaks.pop(0) if site.breaks else len(data)
        if site.pause_at is not None:
            self.wfile.write(data[begin : site.pause_at])
            begin = max(begin, site.pause_at)
            site.waiting.set()
            site.go_on.wait(60)
        self.wfile.write(data[begin : min(end, len(data))])
        self.close_connection = True

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing."""
