# SPDX-License-Identifier: Apache-2.0
"""Calls to OpenID Connect providers (WP-103)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests

from nodepool.web import tokens
from nodepool.web.tokens import MOST_ANSWER_BYTES, provider_json


class Server(ThreadingHTTPServer):
    def __init__(self) -> None:
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), Answer)

    def address(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{path}"


class Answer(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.path == "/elsewhere":
            self.send_response(302)
            self.send_header("Location", self.server.address("/object"))
            self.end_headers()
            return
        self.send_response(200)
        if self.path == "/broken":
            self.send_header("Content-Length", "100")
        self.end_headers()
        if self.path == "/long":
            try:
                self.wfile.write(b'{"a": "' + b"x" * (2 * MOST_ANSWER_BYTES) + b'"}')
            except ConnectionError:
                # Nobody reads all of it.
                return
        else:
            self.wfile.write({"/list": b"[]", "/text": b"<html>"}.get(self.path, b'{"a": 1}'))

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_object(server: Server) -> None:
    assert provider_json(server.address("/object")) == {"a": 1}


@pytest.mark.parametrize("path", ["/list", "/text"])
def test_no_object(server: Server, path: str) -> None:
    with pytest.raises(ValueError, match=r"no JSON object|Expecting value"):
        provider_json(server.address(path))


def test_long_answer(server: Server) -> None:
    """WP-103: a provider cannot fill the memory."""
    with pytest.raises(requests.RequestException, match="more than 1024 KiB"):
        provider_json(server.address("/long"))


def test_slow_answer(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-103: a provider that sends a byte now and then does not keep a thread."""
    monkeypatch.setattr(tokens, "ANSWER_SECONDS", -1.0)
    with pytest.raises(requests.Timeout, match="takes more than"):
        provider_json(server.address("/object"))


def test_broken_answer(server: Server) -> None:
    with pytest.raises(requests.RequestException, match="not complete"):
        provider_json(server.address("/broken"))


def test_redirect(server: Server) -> None:
    """WP-103: only the address is asked that the configuration or the provider names."""
    with pytest.raises(requests.TooManyRedirects, match="leads to another address"):
        provider_json(server.address("/elsewhere"))
    assert server.asked == ["/elsewhere"]


@pytest.mark.parametrize("url", ["http://192.0.2.1/", "http://keycloak.example/x", "file:///etc/passwd"])
def test_without_https(url: str) -> None:
    """WP-103: whoever is on the way could let anybody in. Nothing is asked."""
    with pytest.raises(requests.RequestException, match=r"must begin with https|No connection adapters"):
        provider_json(url)
