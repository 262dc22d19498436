# SPDX-License-Identifier: Apache-2.0
"""One HTTP call to a cloud: it has a bounded answer, or says that it has none, whichever way it takes.

The first call to a host takes the way of requests, the second goes over the connection that is open, and from the third
on calls are written as bytes. Servers of the tests see what is sent; a quick call asks for gzip alone.
"""

from __future__ import annotations

import gzip
import io
import itertools
import re
import socket
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from urllib3.connection import HTTPConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError

from nodepool.driver.framework.http.connections import (
    BoundedAdapter,
    Bounds,
    BrokenAnswer,
    HttpSession,
    QuickAnswer,
    mount,
    read_answer,
)
from nodepool.driver.framework.http.plain_http import NoAnswer, PlainHttp
from tests.support.certificates import make_certificates
from tests.support.ports import free_ports
from tests.support.recording_server import OK, RecordingServer, Sent
from tests.support.slow_server import Pieces, SlowServer, drip

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
WHOLE = HEAD + b'Content-Length: 8\r\n\r\n{"a": 1}'
FIRST = HEAD + b"Content-Length: 2\r\n\r\n{}"
LAST = HEAD + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}"
CHUNKS = HEAD + b'Transfer-Encoding: chunked\r\n\r\n4\r\n{"a"\r\n4\r\n: 1}\r\n0\r\n\r\n'
#: Far below what a server would need for its answer, and far above what one read takes.
SHORT_SECONDS = 0.25
#: A quick call is the third one.
WARM_UP = 2
Sockets = tuple[socket.socket, socket.socket]


# -- one answer from a socket --


@pytest.fixture
def pair() -> Iterator[Sockets]:
    near, far = socket.socketpair()
    near.settimeout(60.0)
    with near, far:
        yield near, far


def answered(pair: Sockets, data: bytes, end: bool, most_bytes: int = 1 << 20) -> QuickAnswer:
    near, far = pair
    far.sendall(data)
    if end:
        far.shutdown(socket.SHUT_WR)
    return read_answer(near, Bounds(most_bytes, 120.0))


@pytest.mark.parametrize(
    ("data", "end", "keep"),
    [
        (WHOLE, False, True),
        (CHUNKS, False, True),
        (b"HTTP/1.1 100 Continue\r\nX: y\r\n\r\n" + WHOLE, False, True),
        (HEAD + b'Connection: close\r\nContent-Length: 8\r\n\r\n{"a": 1}', False, False),
        (b'HTTP/1.0 200 OK\r\nContent-Length: 8\r\n\r\n{"a": 1}', False, False),
        (HEAD + b'\r\n{"a": 1}', True, False),
        # More than was asked for: status, head and content are those of the first answer.
        (WHOLE + b"HTTP/1.1 500 No\r\nX: y\r\nContent-Length: 3\r\n\r\nbad", False, False),
        (WHOLE + b"garbage", False, False),
    ],
)
def test_answers(pair: Sockets, data: bytes, end: bool, keep: bool) -> None:
    found = answered(pair, data, end)
    assert (found.status_code, found.json(), found.keep) == (200, {"a": 1}, keep)
    assert "X" not in found.headers


@pytest.mark.parametrize(
    ("data", "end"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", False),
        (HEAD + b"Content-Length: 9\r\n\r\n{", True),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n4\r\n{", True),
        (b"HTTP/1.1 200", True),
        (HEAD + b"Content-Length: -1\r\n\r\n", False),
        (HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n", False),
        (HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}", False),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", False),
        (HEAD + b"X: " + b"x" * 70_000, True),
        (WHOLE.replace(b" 8\r\n", b" 200\r\n") + b" " * 192, False),
    ],
)
def test_no_answer(pair: Sockets, data: bytes, end: bool) -> None:
    """Garbage, an end in the middle, and what is longer than it may be."""
    with pytest.raises(BrokenAnswer):
        answered(pair, data, end, most_bytes=200 if len(data) < 1000 else 1 << 20)


def test_time_of_an_answer(pair: Sockets) -> None:
    """It is that of the whole answer, however often a byte comes; no wait is longer than what is left of it."""

    waits = [60.0]

    class Drips:
        pieces = drip(HEAD + b"\r\nx")
        gettimeout = staticmethod(lambda: 60.0)
        settimeout = staticmethod(waits.append)

        def recv(self, _: int) -> bytes:
            return next(self.pieces)

    with pytest.raises(TimeoutError, match="takes too long"):
        read_answer(Drips(), Bounds(1 << 20, 0.05))
    assert max(waits[1:]) <= 0.05
    with pytest.raises(TimeoutError):
        read_answer(pair[0], Bounds(1 << 20, 0.05))


# -- calls, over new connections and over those that are open --


@pytest.fixture
def http() -> Iterator[PlainHttp]:
    made = PlainHttp(4)
    yield made
    made.close()


@pytest.fixture
def by_requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Methods of the calls that requests made itself."""
    made: list[str] = []
    send = requests.adapters.HTTPAdapter.send

    def counted(adapter: Any, request: Any, *arguments: Any, **named: Any) -> Any:
        made.append(request.method)
        return send(adapter, request, *arguments, **named)

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", counted)
    return made


@pytest.fixture
def small_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    # The limit is a constant for all answers: to send more than it would take a test too long.
    monkeypatch.setattr(sys.modules[BoundedAdapter.__module__], "MAX_ANSWER_BYTES", 1 << 20)


def packed(content: bytes, how: str = "gzip") -> bytes:
    return HEAD + f"Content-Encoding: {how}\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content


def failure(http: PlainHttp, method: str, url: str, **named: Any) -> tuple[str, bool]:
    """Why a call has no answer, and may it have been carried out? Its error is not kept: it holds the connection."""
    try:
        http.send(method, url, {}, b"{}", **named)
    except NoAnswer as error:
        return str(error), error.maybe_done
    raise AssertionError("there is an answer")


def warm_up(http: PlainHttp, server: RecordingServer) -> None:
    for _ in range(WARM_UP):
        http.send("GET", f"{server.url}/", {})
    server.sent.clear()


def is_quick(sent: Sent) -> bool:
    return sent.headers["accept-encoding"] == "gzip"


def bomb(layers: int) -> bytes:
    data = b" " * (8 << 20)
    for _ in range(layers):
        data = gzip.compress(data)
    return packed(data, ", ".join(["gzip"] * layers))


ENDLESS: dict[str, tuple[Pieces, float]] = {
    "nothing": (list, 0.0),
    "drips its head": (lambda: drip(HEAD + b"X: x"), 0.05),
    "drips a body": (lambda: drip(HEAD + b'\r\n{"a": "b'), 0.05),
    "drips a chunk": (lambda: drip(HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffff\r\nx"), 0.05),
    "goes on for ever": (lambda: itertools.chain([HEAD + b"\r\n"], itertools.repeat(b"x" * 65536)), 0.0),
    "always continues": (lambda: itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n" * 100), 0.0),
    "is long": (lambda: [HEAD + b"Content-Length: 4000000\r\n\r\n", b"x" * 4_000_000], 0.0),
    "unpacks to a lot": (lambda: [bomb(1)], 0.0),
    "is packed twice": (lambda: [bomb(2)], 0.0),
    "ends in the middle": (lambda: [HEAD + b"Content-Length: 9\r\n\r\n{"], 0.0),
}


@pytest.mark.usefixtures("small_answers")
@pytest.mark.parametrize("way", ["of a library", "new", "kept"])
@pytest.mark.parametrize("name", ENDLESS)
def test_endless_answers(http: PlainHttp, name: str, way: str) -> None:
    """No answer takes more memory or time than it may; the call may have been carried out, and is made once."""
    pieces, pause = ENDLESS[name]
    with SlowServer(pieces, pause, first=FIRST if way == "kept" else b"") as server:
        if way == "of a library":
            with requests.Session() as session:
                mount(session, 4)
                with pytest.raises(requests.RequestException):
                    session.get(server.url, timeout=SHORT_SECONDS, stream=True)
            return
        if way == "kept":
            http.send("GET", server.url, {})
        text, maybe_done = failure(http, "POST", server.url, seconds=SHORT_SECONDS)
        assert "no answer from" in text
        assert maybe_done


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_connection_that_is_closed_during_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_requests: list[str], tls: bool, reset: bool
) -> None:
    """O-19: what only reads is made once more; anything else may have been done. Later calls are as usual."""
    made = make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.keystore)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(made.ca))
    http = PlainHttp(4)
    # Each connection is closed after the head of the second call.
    with SlowServer(list, first=FIRST, tls=context if tls else None, reset=reset) as server:
        for _ in range(3):
            assert http.send("GET", server.url, {}).json() == {}
        assert len(by_requests) == 3
        for method in ("POST", "PUT", "DELETE"):
            assert failure(http, method, server.url)[1]
            assert http.send("GET", server.url, {}).json() == {}
    http.close()


def test_closed_connection_of_a_quick_call(http: PlainHttp) -> None:
    """O-19: the same; and a call for which no connection is open opens one, and remains quick."""
    answers = [OK, OK, b"", LAST, LAST, OK, b""]
    with RecordingServer(lambda _: answers.pop(0)) as server:
        warm_up(http, server)
        for method in ("GET", "PUT", "GET"):
            assert http.send(method, f"{server.url}/", {}, b"").status == 200
        text, maybe_done = failure(http, "DELETE", f"{server.url}/")
        assert text.startswith("no answer from http://127.0.0.1")
        assert maybe_done
        assert [(sent.first[:3], is_quick(sent)) for sent in server.sent] == [
            ("GET", True),
            ("GET", False),
            ("PUT", True),
            ("GET", True),
            ("DEL", True),
        ]


# -- what is sent --


@pytest.mark.parametrize(
    ("method", "body"), [("GET", None), ("PUT", b'{"a": 1}'), ("POST", b""), ("POST", None), ("DELETE", None)]
)
def test_same_call_either_way(http: PlainHttp, method: str, body: bytes | None) -> None:
    """What is sent does not depend on the way."""
    headers = {"Authorization": "Bearer t", "if-none-match": "*", "accept": "application/json"}
    found: list[Sent] = []
    with RecordingServer() as server:
        for quick in (False, True):
            if quick:
                warm_up(http, server)
            target = f"{server.url}/a/b-c_d~e?api-version=1&$filter=f%20g"
            assert http.send(method, target, headers, body, {"h": "i j/k"}).json() == {}
            found += server.sent[-1:]
            assert is_quick(found[-1]) is quick
    first, second = found
    assert (first.first, first.body) == (second.first, second.body)
    assert {**first.headers, "accept-encoding": "gzip"} == second.headers
    assert first.first == f"{method} /a/b-c_d~e?api-version=1&$filter=f%20g&h=i+j%2Fk HTTP/1.1"
    assert first.body == (body or b"")
    assert first.headers["authorization"] == "Bearer t"
    assert first.headers["user-agent"].startswith("nodepool/")


def test_nothing_is_smuggled(http: PlainHttp) -> None:
    """A line ending in a header is refused, as requests does it."""
    with RecordingServer() as server:
        warm_up(http, server)
        with pytest.raises(NoAnswer):
            http.send("GET", f"{server.url}/", {"X": "a\r\nY: b"})
        assert not server.sent


def test_redirects_cookies_and_netrc(http: PlainHttp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token must not go elsewhere, and no other login into a call, whichever way it takes."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n", encoding="utf-8")
    (tmp_path / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    moved = b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere.test/\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n"
    with RecordingServer(lambda _: moved) as server:
        for _ in range(WARM_UP + 2):
            found = http.send("GET", f"{server.url}/", {})
            assert (found.status, found.content, found.headers["location"]) == (302, b"", "http://elsewhere.test/")
            assert not server.sent[-1].headers.keys() & {"cookie", "authorization"}


def test_proxy_of_the_environment(http: PlainHttp, monkeypatch: pytest.MonkeyPatch, by_requests: list[str]) -> None:
    with RecordingServer() as server:
        monkeypatch.setenv("http_proxy", server.url)
        monkeypatch.setenv("no_proxy", "")
        for _ in range(WARM_UP + 1):
            assert http.send("GET", "http://cloud.test/a", {}).status == 200
            assert server.sent[-1].first == "GET http://cloud.test/a HTTP/1.1"
    assert len(by_requests) == WARM_UP + 1


@pytest.mark.usefixtures("small_answers")
@pytest.mark.parametrize(
    ("content", "how", "reason"),
    [
        (gzip.compress(b"{}"), "gzip", ""),
        (b"abc", "br", "compressed with br, which was not asked for"),
        (b"abc", "gzip", "not compressed as it says"),
        (gzip.compress(b"abcdef" * 100)[:-9], "gzip", "ends in the middle"),
        (gzip.compress(b"a" * (1 << 21)), "gzip", "more than 1 MiB"),
    ],
)
def test_compressed_answer_to_a_quick_call(http: PlainHttp, content: bytes, how: str, reason: str) -> None:
    """No answer takes more memory than it may; what was asked for may be done."""
    answers = [OK] * WARM_UP
    with RecordingServer(lambda _: answers.pop() if answers else packed(content, how)) as server:
        warm_up(http, server)
        if reason:
            text, maybe_done = failure(http, "PUT", f"{server.url}/")
            assert reason in text
            assert maybe_done
        else:
            assert http.send("PUT", f"{server.url}/", {}, b"{}").json() == {}
        assert is_quick(server.sent[0])


# -- what was surely not sent --


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1:{port}/x", r"127\.0\.0\.1:{port}.*connection refused"),
        ("http://user:secret@nohost.invalid/x?sig=secret", r"nohost\.invalid.*cannot be resolved"),
        ("nonsense", "no answer from nonsense"),
    ],
)
def test_not_sent(http: PlainHttp, url: str, reason: str) -> None:
    (port,) = free_ports(1)
    text, maybe_done = failure(http, "POST", url.replace("{port}", str(port)))
    assert re.search(reason.replace("{port}", str(port)), text)
    assert not maybe_done
    assert "secret" not in text


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (None, r"no answer from 127\.0\.0\.1:\d+: connection refused"),
        (ConnectTimeoutError(None, "Connection to cloud.test timed out."), "timed out"),
        (NameResolutionError("cloud.test", HTTPConnection("cloud.test"), socket.gaierror()), "cannot be resolved"),
        (TimeoutError("handshake"), "ConnectTimeout: handshake"),
    ],
    ids=["refused", "connect", "name", "handshake"],
)
def test_quick_call_without_a_connection(
    http: PlainHttp, monkeypatch: pytest.MonkeyPatch, by_requests: list[str], error: Exception | None, reason: str
) -> None:
    """Surely not done, and not tried twice."""
    answers = [OK, LAST]
    with RecordingServer(lambda _: answers.pop(0)) as server:
        warm_up(http, server)
    by_requests.clear()

    def fail(_: object) -> None:
        assert error is not None
        raise error

    if error is not None:
        monkeypatch.setattr(HTTPConnection, "connect", fail)
    text, maybe_done = failure(http, "PUT", f"{server.url}/")
    assert re.search(reason, text)
    assert not maybe_done
    assert by_requests == []


def test_certificates_are_verified(http: PlainHttp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.keystore)
    with SlowServer(lambda: [FIRST], tls=context) as server:
        text, maybe_done = failure(http, "POST", server.url)
        assert "certificate is not accepted" in text
        assert not maybe_done
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(made.ca))
        other = PlainHttp(1)
        assert other.send("GET", server.url, {}).json() == {}
        other.close()


# -- the session that libraries use --

#: As keystoneauth makes a call.
CALL: dict[str, Any] = {"verify": True, "timeout": 60.0, "allow_redirects": False}


class Wire(requests.adapters.BaseAdapter):
    """Keeps what is sent."""

    def __init__(self, session: requests.Session) -> None:
        super().__init__()
        self.sent: list[tuple[Any, ...]] = []
        session.mount("http://", self)

    def send(self, request: Any, *arguments: Any, **named: Any) -> requests.Response:
        response = requests.Response()
        response.status_code, response.request, response.url, response.raw = 200, request, request.url, io.BytesIO()
        self.sent.append((request.method, request.url, dict(request.headers), request.body, named))
        return response

    def close(self) -> None:
        return


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"params": {"changes-since": "2024-01-01T00:00:00Z", "fields": ("id", "name")}},
        {"data": '{"server": {}}', "headers": {"Content-Type": "application/json", "X-None": None}},
        {"headers": {"User-Agent": "launcher", "X-Auth-Token": "secret"}, "stream": True},
        {"verify": "/etc/ssl/cloud.pem", "cert": ("a.pem", "b.pem")},
        {"verify": False},
        {"json": {"not": "of keystoneauth"}},
        {"cookies": {"a": "b"}},
    ],
)
@pytest.mark.parametrize("settings", [{}, {"verify": False, "params": {"always": "1"}, "headers": {"X-Ours": "yes"}}])
def test_session_sends_what_requests_sends(monkeypatch: pytest.MonkeyPatch, given: Any, settings: Any) -> None:
    """Also with what the environment says, which is asked once for a host, and with the settings of a session."""
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.test:3128")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/etc/ssl/all.pem")
    monkeypatch.setenv("NO_PROXY", "inside.test")
    asked: list[str] = []
    merge = requests.Session.merge_environment_settings

    def ask(session: Any, url: Any, *arguments: Any) -> Any:
        asked.append(url)
        return merge(session, url, *arguments)

    monkeypatch.setattr(requests.Session, "merge_environment_settings", ask)
    sent = []
    for make in (lambda plain: plain, HttpSession):
        plain = requests.Session()
        # Without netrc, which requests would read.
        plain.auth = lambda request: request
        vars(plain).update(settings)
        with make(plain) as session:
            wire = Wire(session)
            asked.clear()
            urls = ["http://cloud.test:8774/v2.1/servers", "http://inside.test/x?a=b", "http://cloud.test:8774/v2.1/x"]
            for method, url in itertools.product(("GET", "post"), urls):
                session.request(method, url, **{**CALL, **given})
                # What an adapter does with it stays its own.
                wire.sent[-1][-1]["proxies"]["changed"] = "x"
            session.cookies.set("backend", "two")
            session.request("GET", urls[0], **{**CALL, **given})
            sent.append(wire.sent)
    assert sent[0] == sent[1]
    assert ["http" in named["proxies"] for *_, named in sent[1]][:3] == [True, False, True]
    assert "backend=two" in sent[1][-1][2]["Cookie"]
    assert len(asked) == 2
