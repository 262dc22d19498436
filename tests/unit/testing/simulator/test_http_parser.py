# SPDX-License-Identifier: Apache-2.0
"""Requests are the same however the network cuts them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodepool.testing.simulator.http_parser import RequestParser
from nodepool.testing.simulator.messages import Request

STREAM = (
    b"GET /compute/v2.1/servers/detail?limit=5&name=a%20b&flag= HTTP/1.1\r\nHost: x\r\nX-Auth-Token:  t \r\n\r\n"
    b"POST /a%2Fb HTTP/1.1\r\nContent-Length: 4\r\n\r\n\r\n\r\n"
    b"PUT /file HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n"
    b"DELETE /last HTTP/1.1\r\n\r\n"
)


class Collector:
    """A body sink that keeps the data."""

    def __init__(self) -> None:
        self.data = b""

    def feed(self, data: bytes) -> None:
        self.data += data


def _parse(pieces: list[bytes]) -> list[Request]:
    parser = RequestParser(lambda request: Collector() if request.method == "PUT" else None)
    found = []
    for piece in pieces:
        parser.feed(piece)
        while (request := parser.next_request()) is not None:
            found.append(request)
    return found


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_any_cut_gives_the_same_requests(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[start:end] for start, end in pairwise(edges)]
    first, second, third, fourth = _parse(pieces)
    assert (first.method, first.path) == ("GET", "/compute/v2.1/servers/detail")
    assert first.query == {"limit": ["5"], "name": ["a b"], "flag": [""]}
    assert first.headers == {"host": "x", "x-auth-token": "t"}
    assert (second.path, second.body) == ("/a/b", b"\r\n\r\n")
    assert isinstance(third.sink, Collector)
    assert (third.sink.data, third.body) == (b"abc0123456789", b"")
    assert (fourth.method, fourth.path) == ("DELETE", "/last")


@pytest.mark.parametrize("data", [b"no http\r\n\r\n", b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", b"x" * 70_000])
def test_what_is_not_http_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        _parse([data])
