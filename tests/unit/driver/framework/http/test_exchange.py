# SPDX-License-Identifier: Apache-2.0
"""One HTTP call to a cloud: it has a bounded answer, or says that it has none, over new connections and kept ones."""

from __future__ import annotations

import gzip
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from nodepool.driver.framework.http.plain_http import BoundedAdapter, NoAnswer, PlainHttp, mount
from nodepool.driver.framework.uploads import CountingFile
from tests.support.ports import free_ports
from tests.support.recording_server import OK, Pieces, RecordingServer, SlowServer, drip

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
FIRST = HEAD + b"Content-Length: 2\r\n\r\n{}"
#: Far below what a server would need for its answer, and far above what one read takes.
SHORT_SECONDS = 0.25


# -- calls, over new connections and over those that are open --


@pytest.fixture
def http() -> Iterator[PlainHttp]:
    made = PlainHttp(4)
    yield made
    made.close()


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


# -- what is sent --


def test_redirects_cookies_and_netrc(http: PlainHttp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token must not go elsewhere, and no other login into a call, whichever way it takes."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n", encoding="utf-8")
    (tmp_path / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    moved = b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere.test/\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n"
    with RecordingServer(lambda _: moved) as server:
        for _ in range(2):
            found = http.send("GET", f"{server.url}/", {})
            assert (found.status, found.content, found.headers["location"]) == (302, b"", "http://elsewhere.test/")
            assert not server.sent[-1].headers.keys() & {"cookie", "authorization"}


def test_proxy_of_the_environment(http: PlainHttp, monkeypatch: pytest.MonkeyPatch) -> None:
    with RecordingServer() as server:
        monkeypatch.setenv("http_proxy", server.url)
        monkeypatch.setenv("no_proxy", "")
        for _ in range(2):
            assert http.send("GET", "http://cloud.test/a", {}).status == 200
            assert server.sent[-1].first == "GET http://cloud.test/a HTTP/1.1"


def test_bodies(http: PlainHttp, tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(b"abc")
    with RecordingServer() as server, (tmp_path / "image").open("rb") as file:
        for body in (None, b"", b"abc", CountingFile(file)):
            http.send("PUT", f"{server.url}/", {"Accept": "text/plain"}, body)
    assert [sent.body for sent in server.sent] == [b"", b"", b"abc", b"abc"]
    assert [sent.headers.get("content-length") for sent in server.sent] == ["0", "0", "3", "3"]
    heads = [(sent.headers["accept"], sent.headers["accept-encoding"]) for sent in server.sent]
    assert heads == [("text/plain", "gzip")] * 4


@pytest.mark.usefixtures("small_answers")
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (gzip.compress(b"{}"), ""),
        (b"abc", "failed to decode it"),
        (gzip.compress(b"a" * (1 << 21)), "more than 1 MiB"),
    ],
)
def test_compressed_answers(http: PlainHttp, content: bytes, reason: str) -> None:
    """No answer takes more memory than it may; what was asked for may be done."""
    with RecordingServer(lambda _: packed(content)) as server:
        if reason:
            text, maybe_done = failure(http, "PUT", f"{server.url}/")
            assert reason in text
            assert maybe_done
        else:
            assert http.send("PUT", f"{server.url}/", {}, b"{}").json() == {}


@pytest.mark.parametrize(("method", "calls"), [("GET", 3), ("PUT", 2)])
def test_kept_connection_that_is_closed(http: PlainHttp, method: str, calls: int) -> None:
    """O-19: what only reads is made once more; anything else may have been done."""
    answers = [OK, b"", OK]
    with RecordingServer(lambda _: answers.pop(0)) as server:
        http.send("GET", f"{server.url}/", {})
        if method == "GET":
            assert http.send(method, f"{server.url}/", {}).status == 200
        else:
            assert failure(http, method, f"{server.url}/")[1]
        assert len(server.sent) == calls


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


def test_header_that_is_none(http: PlainHttp) -> None:
    """A token with a line break in it."""
    with RecordingServer() as server, pytest.raises(NoAnswer, match=r"no answer from \S+: ValueError$") as caught:
        http.send("POST", f"{server.url}/", {"Authorization": "Bearer s3cr3t\nx"})
    assert not caught.value.maybe_done


def test_handshake_that_does_not_end(http: PlainHttp) -> None:
    with SlowServer(list) as server:
        text, maybe_done = failure(http, "POST", server.url.replace("http:", "https:"), seconds=SHORT_SECONDS)
    assert re.fullmatch(r"no answer from 127\.0\.0\.1:\d+: timed out", text)
    assert not maybe_done
