# SPDX-License-Identifier: Apache-2.0
"""Azure at the addresses of the public cloud: the released driver knows no others.

A proxy for HTTPS that stands for all hosts behind it, with a certificate of its own, and hands what it gets to the
simulated subscription. It answers HTTPS without a proxy, too: our launcher reads from the file of credentials where
Azure is. So both use TLS, and each its own way to handle connections.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.support.certificates import make_certificates

HOSTS: Final = ("login.microsoftonline.com", "management.azure.com")
#: The older endpoint for tokens, which the released driver asks.
_OLD_TOKENS, _TOKENS = "/oauth2/token", "/oauth2/v2.0/token"
#: Headers of one connection.
_OWN: Final = ("connection", "content-length", "transfer-encoding", "host", "server", "date")


def _handler_class(url: str, context: ssl.SSLContext) -> type[BaseHTTPRequestHandler]:
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
            path, old = self.path, self.path.partition("?")[0].endswith(_OLD_TOKENS)
            if old:
                path, body = path.replace(_OLD_TOKENS, _TOKENS), _with_scope(body)
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _OWN}
            headers |= {"Host": self.host or self.headers["Host"], "X-Forwarded-Proto": "https"}
            self._behind.request(self.command, path, body, headers)
            answer = self._behind.getresponse()
            content = answer.read()
            if old and answer.status == 200:
                content = _with_end(content)
            elif self.command == "GET" and answer.status == 200 and "/networkinterfaces" in path.lower():
                content = _with_versions(content)
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _OWN:
                    self.send_header(name, value)
            if answer.status != 204:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_DELETE = do_PATCH = do_any

        def log_message(self, format: str, *arguments: Any) -> None:
            """Not to stderr."""

    return Handler


def _with_scope(form: bytes) -> bytes:
    """The older endpoint has a resource in place of a scope."""
    given = {name: values[0] for name, values in parse_qs(form.decode()).items()}
    resource = given.pop("resource", "https://management.azure.com/")
    return urlencode({"scope": f"{resource.rstrip('/')}/.default", **given}).encode()


def _with_end(answer: bytes) -> bytes:
    """The older endpoint tells when a token ends, and all numbers as texts."""
    found = json.loads(answer)
    return json.dumps(
        {**found, "expires_in": str(found["expires_in"]), "expires_on": str(int(time.time()) + 3600)}
    ).encode()


def _with_versions(answer: bytes) -> bytes:
    """In lists of the version of 2020 an interface has its addresses, of which the released driver reads the family."""
    found = json.loads(answer)
    for interface in found.get("value", [found]):
        for configuration in interface["properties"]["ipConfigurations"]:
            properties = configuration["properties"]
            if "publicIPAddress" in properties:
                version = {"publicIPAddressVersion": properties["privateIPAddressVersion"]}
                properties["publicIPAddress"] |= {
                    "name": properties["publicIPAddress"]["id"].rpartition("/")[2],
                    "type": "Microsoft.Network/publicIPAddresses",
                    "properties": {"provisioningState": "Succeeded", **version},
                }
    return json.dumps(found).encode()


class _TlsServer(ThreadingHTTPServer):
    """Without a proxy."""

    daemon_threads = True
    context: ssl.SSLContext

    def finish_request(self, request: Any, client_address: Any) -> None:
        # In the thread of the connection: a client that does not go on holds up nobody.
        with self.context.wrap_socket(request, server_side=True) as wrapped:
            super().finish_request(wrapped, client_address)


@contextmanager
def public_azure(directory: Path, url: str, hosts: Sequence[str] = HOSTS) -> Iterator[str]:
    """Runs it, and tells launchers, which inherit the environment, of it. Gives its address without the proxy.

    :param url: of the simulated subscription.
    :param hosts: that the certificate is for; another simulated cloud has others.
    """
    made = make_certificates(directory / "public", hosts)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(made.keystore))
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_class(url, context))
    server.daemon_threads = True
    direct = _TlsServer(("127.0.0.1", 0), _handler_class(url, context))
    direct.context = context
    threads = [threading.Thread(target=one.serve_forever, name="public-azure") for one in (server, direct)]
    for thread in threads:
        thread.start()
    proxy = f"http://127.0.0.1:{server.server_address[1]}"
    variables = dict.fromkeys(("HTTPS_PROXY", "https_proxy"), proxy)
    variables |= dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1") | {"REQUESTS_CA_BUNDLE": str(made.ca)}
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield f"https://127.0.0.1:{direct.server_address[1]}"
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        for one, thread in zip((server, direct), threads, strict=True):
            one.shutdown()
            thread.join()
            one.server_close()


def write_public_auth_file(path: Path, private: Path, url: str) -> Path:
    """The credentials of a file, with the address of `public_azure`; the released launcher does not read that."""
    given = json.loads(private.read_text(encoding="utf-8"))
    addresses = {name: url for name in given if "Endpoint" in name}
    path.write_text(json.dumps({**given, **addresses}), encoding="utf-8")
    return path
