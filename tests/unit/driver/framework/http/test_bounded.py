# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.http.connections`: no answer takes more memory or time than it may."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from nodepool.driver.framework.http import connections
from simulators.openstack import OpenStackSimulator
from tests.support.slow_server import Pieces, SlowServer, drip

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
ENDLESS = HEAD + b"\r\n"
#: Far below what the server would need for its answer, and far above what one read takes.
TIMEOUT_SECONDS = 0.25


def zipped(layers: int) -> bytes:
    data = b" " * (8 << 20)
    for _ in range(layers):
        data = gzip.compress(data)
    encoding = b", ".join([b"gzip"] * layers)
    return HEAD + b"Content-Encoding: %s\r\nContent-Length: %d\r\n\r\n" % (encoding, len(data)) + data


ENDLESS_ANSWERS: dict[str, tuple[Pieces, float]] = {
    "nothing": (list, 0.0),
    "drips its head": (lambda: drip(HEAD + b"X: x"), 0.05),
    "drips a body": (lambda: drip(ENDLESS + b'{"a": "b'), 0.05),
    "drips a chunk": (lambda: drip(HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffff\r\nx"), 0.05),
    "goes on for ever": (lambda: itertools.chain([ENDLESS], itertools.repeat(b"x" * 65536)), 0.0),
    "always continues": (lambda: itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n" * 100), 0.0),
    "is long": (lambda: [HEAD + b"Content-Length: 4000000\r\n\r\n", b"x" * 4_000_000], 0.0),
    "unpacks to a lot": (lambda: [zipped(1)], 0.0),
    "is packed twice": (lambda: [zipped(2)], 0.0),
}


@pytest.fixture(params=sorted(ENDLESS_ANSWERS))
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowServer]:
    monkeypatch.setattr(connections, "MAX_ANSWER_BYTES", 1 << 20)
    pieces, pause = ENDLESS_ANSWERS[request.param]
    with SlowServer(pieces, pause) as running:
        yield running


@pytest.mark.parametrize("stream", [False, True])
def test_requests(server: SlowServer, stream: bool) -> None:
    """Any use of the session ends with an error that libraries know."""
    with requests.Session() as session:
        connections.mount(session, 4)
        with pytest.raises(requests.RequestException):
            session.get(server.url, timeout=TIMEOUT_SECONDS, stream=stream)


def test_good_answers() -> None:
    """Compressed, in chunks, without a length, over a connection that is used again: all as before."""
    body = gzip.compress(b'{"a": 1}')
    answers = [
        HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body,
        HEAD + b'Transfer-Encoding: chunked\r\n\r\n4\r\n{"a"\r\n4\r\n: 1}\r\n0\r\n\r\n',
        HEAD + b'Content-Length: 8\r\n\r\n{"a": 1}',
        b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b'\r\n{"a": 1}',
    ]
    for answer in answers:
        with SlowServer(lambda answer=answer: [answer]) as server, requests.Session() as session:  # type: ignore[misc]
            connections.mount(session, 4)
            assert session.get(server.url, timeout=30, stream=True).json() == {"a": 1}


def test_the_time_of_an_answer_begins_with_it() -> None:
    """A connection is kept; what was left of the time of one answer is not what the next one has."""
    with OpenStackSimulator() as simulator, requests.Session() as session:
        connections.mount(session, 4)
        url = simulator.clouds_yaml_entry()["auth"]["auth_url"]
        for timeout in (30, 60, 30):
            found: Any = session.get(url, timeout=timeout)
            assert found.ok
            assert found.json()


def test_mounted_once() -> None:
    with requests.Session() as session:
        connections.mount(session, 7)
        mounted = dict(session.adapters)
        connections.mount(session, 7)
        assert dict(session.adapters) == mounted
        assert {type(adapter) for adapter in mounted.values()} == {connections.BoundedAdapter}
