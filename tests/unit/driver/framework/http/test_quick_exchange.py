# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.http.connections`: quick calls are those that requests would make."""

from __future__ import annotations

import gzip
import socket
import urllib.parse
from collections.abc import Iterator

import pytest
from urllib3.connection import HTTPConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError

from nodepool.driver.framework.http import connections as http_connections
from nodepool.driver.framework.http.plain_http import HttpAnswer, NoAnswer, PlainHttp
from tests.support.recording_server import OK, RecordingServer, Sent

#: Calls until one is quick: the first opens the connection, the second goes over it.
WARM_UP = 2


class Counted(PlainHttp):
    """Counts the calls that take the way of requests."""

    slow = 0

    def __init__(self, connections: int = 4) -> None:
        super().__init__(connections)
        inner = self._session.request

        def counted(*arguments: object, **named: object) -> object:
            self.slow += 1
            return inner(*arguments, **named)

        self._session.request = counted  # type: ignore[method-assign,assignment]


@pytest.fixture
def http() -> Iterator[Counted]:
    made = Counted()
    yield made
    made.close()


def answer(content: bytes, *lines: str) -> bytes:
    head = "\r\n".join(["HTTP/1.1 200 OK", *lines, f"Content-Length: {len(content)}", "", ""])
    return head.encode() + content


def warm_up(http: Counted, server: RecordingServer) -> None:
    for _ in range(WARM_UP):
        http.send("GET", f"{server.url}/", {})
    http.slow = 0
    server.sent.clear()


@pytest.mark.parametrize(
    ("method", "body"), [("GET", None), ("PUT", b'{"a": 1}'), ("POST", b""), ("POST", None), ("DELETE", None)]
)
def test_same_call(http: Counted, method: str, body: bytes | None) -> None:
    """What is sent does not depend on the way."""
    with RecordingServer() as server:
        headers = {"Authorization": "Bearer t", "if-none-match": "*", "accept": "application/json"}
        made: list[Sent] = []
        for quick in (False, True):
            if quick:
                warm_up(http, server)
            target = f"{server.url}/a/b-c_d~e?api-version=1&$filter=f%20g"
            assert http.send(method, target, headers, body, {"h": "i j/k"}).json() == {}
            assert http.slow == (not quick)
            made += server.sent[-1:]
        slow, quick_one = made
        assert quick_one.first == slow.first
        assert quick_one.body == slow.body
        assert {**slow.headers, "accept-encoding": "gzip"} == quick_one.headers


@pytest.mark.parametrize("target", ["/a b", "/a#b", "/ä", "/a/../b", "/a/./b", "/a/..", "/a%zz?b=[c]"])
def test_unusual_addresses(http: Counted, target: str) -> None:
    """requests quotes and shortens them."""
    with RecordingServer() as server:
        warm_up(http, server)
        http.send("GET", f"{server.url}{target}", {})
        assert http.slow == 1


@pytest.mark.parametrize("headers", [{"Host": "other.test"}, {"Content-Length": "0"}, {"Accept-Encoding": "br"}])
def test_unusual_heads(http: Counted, headers: dict[str, str]) -> None:
    with RecordingServer() as server:
        warm_up(http, server)
        http.send("GET", f"{server.url}/", headers)
        assert http.slow == 1


def test_nothing_is_smuggled(http: Counted) -> None:
    """A line ending in a header is refused, as requests does it."""
    with RecordingServer() as server:
        warm_up(http, server)
        with pytest.raises(NoAnswer):
            http.send("GET", f"{server.url}/", {"X": "a\r\nY: b"})
        assert not server.sent


def test_login_in_the_address(http: Counted) -> None:
    with RecordingServer() as server:
        warm_up(http, server)
        place = urllib.parse.urlsplit(server.url).netloc
        http.send("GET", f"http://me:secret@{place}/", {})
        assert http.slow == 1
        assert server.sent[0].headers["authorization"].startswith("Basic ")


def test_compressed(http: Counted) -> None:
    """Long lists are; the content is as it was before."""
    with RecordingServer(lambda _: answer(gzip.compress(b'{"a": 1}'), "Content-Encoding: gzip")) as server:
        warm_up(http, server)
        assert http.send("GET", f"{server.url}/", {}).json() == {"a": 1}
        assert http.slow == 0


@pytest.mark.parametrize(
    ("content", "how", "told"),
    [
        (b"abc", "br", "compressed with br, which was not asked for"),
        (b"abc", "gzip", "not compressed as it says"),
        (gzip.compress(b"abcdef" * 100)[:-9], "gzip", "ends in the middle"),
        (gzip.compress(b"a" * (1 << 21)), "gzip", "more than 1 MiB"),
    ],
)
def test_badly_compressed(http: Counted, content: bytes, how: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer takes more memory than it may; what was asked for may be done."""
    monkeypatch.setattr(http_connections, "MAX_ANSWER_BYTES", 1 << 20)
    answers = [OK] * WARM_UP
    bad = answer(content, f"Content-Encoding: {how}")
    with RecordingServer(lambda _: answers.pop() if answers else bad) as server:
        warm_up(http, server)
        with pytest.raises(NoAnswer, match=told) as caught:
            http.send("PUT", f"{server.url}/", {}, b"{}")
        assert caught.value.maybe_done
        assert http.slow == 0


def test_closed_connection(http: Counted) -> None:
    """O-19: a call that only reads is sent again over a new connection; another one may have been carried out."""
    answers = [OK, OK, b"", OK, OK, b""]
    with RecordingServer(lambda _: answers.pop(0)) as server:
        warm_up(http, server)
        assert http.send("GET", f"{server.url}/", {}).status == 200
        assert http.slow == 1
        http.send("GET", f"{server.url}/", {})
        with pytest.raises(NoAnswer, match=r"no answer from http://127\.0\.0\.1") as caught:
            http.send("DELETE", f"{server.url}/", {})
        assert caught.value.maybe_done


#: The connection is closed after it.
LAST = answer(b"{}", "Connection: close")


def test_opens_a_connection(http: Counted) -> None:
    """A call for which no connection is open need not take the way of requests."""
    answers = [OK, LAST, LAST, LAST]
    with RecordingServer(lambda _: answers.pop(0)) as server:
        warm_up(http, server)
        for method in ("GET", "PUT"):
            assert http.send(method, f"{server.url}/", {}, b"").status == 200
        assert http.slow == 0
        assert [sent.first[:3] for sent in server.sent] == ["GET", "PUT"]


def test_nobody_there_any_more(http: Counted) -> None:
    """Surely not done, and not tried twice."""
    answers = [OK, LAST]
    with RecordingServer(lambda _: answers.pop(0)) as server:
        warm_up(http, server)
        url = server.url
    with pytest.raises(NoAnswer, match=r"no answer from 127\.0\.0\.1:\d+: connection refused") as caught:
        http.send("PUT", f"{url}/", {}, b"{}")
    assert not caught.value.maybe_done
    assert http.slow == 0


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ConnectTimeoutError(None, "Connection to cloud.test timed out."), "timed out"),
        (NameResolutionError("cloud.test", HTTPConnection("cloud.test"), socket.gaierror()), "cannot be resolved"),
        (TimeoutError("handshake"), "ConnectTimeout: handshake"),
    ],
    ids=["connect", "name", "handshake"],
)
def test_connection_that_fails(http: Counted, monkeypatch: pytest.MonkeyPatch, error: Exception, told: str) -> None:
    """Surely not done, and not tried twice."""

    def fail(_: object) -> None:
        raise error

    answers = [OK, LAST]
    with RecordingServer(lambda _: answers.pop(0)) as server:
        warm_up(http, server)
        monkeypatch.setattr(HTTPConnection, "connect", fail)
        with pytest.raises(NoAnswer, match=told) as caught:
            http.send("PUT", f"{server.url}/", {}, b"{}")
        assert not caught.value.maybe_done
        assert http.slow == 0


def test_forgotten_host() -> None:
    """Of hosts that are used for a while, such as those of uploads, no connection stays open."""
    http = Counted(1)
    with RecordingServer() as one, RecordingServer() as other:
        warm_up(http, one)
        http.send("GET", f"{other.url}/", {})
        assert one.is_left()
        http.send("GET", f"{one.url}/", {})
        assert http.slow == 2
    http.close()


def test_statuses_and_headers(http: Counted) -> None:
    """Of any answer."""
    missing = b"HTTP/1.1 404 Not Found\r\nRetry-After: 3\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n"
    with RecordingServer(lambda _: missing) as server:
        warm_up(http, server)
        found = http.send("GET", f"{server.url}/", {})
        assert found == HttpAnswer(404, found.headers, b"")
        assert found.headers["retry-after"] == "3"
        http.send("GET", f"{server.url}/", {})
        assert "cookie" not in server.sent[-1].headers
        assert http.slow == 0
