# SPDX-License-Identifier: Apache-2.0
"""Reads HTTP/1.1 requests out of a stream of bytes (RFC 9112). No I/O."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qs, unquote

from simulators.base.messages import BodySink, Request, SteeredSink

MAX_HEAD_BYTES = 64 * 1024


class RequestParser:
    """Takes bytes as they come and gives complete requests, in order.

    :param open_sink: called with each request's head; where its body shall go, None for ``request.body``.
    """

    def __init__(self, open_sink: Callable[[Request], BodySink | None]) -> None:
        self._open_sink = open_sink
        self._buffer = bytearray()
        self._request: Request | None = None
        self._body = bytearray()
        self._chunked = False
        #: Takes the body of the request that is being read; the last one afterwards.
        self.sink: BodySink | None = None
        #: Bytes of the body, or of the present chunk with its line end, that are still to come.
        self._missing = 0
        self._last_chunk = False

    def feed(self, data: bytes) -> None:
        """Takes the next bytes."""
        if self._request is not None and self._missing and not self._chunked and not self._buffer:
            # An image: without a detour.
            body, data = data[: self._missing], data[self._missing :]
            self._missing -= len(body)
            self._store(body)
        self._buffer += data

    def next_request(self) -> Request | None:
        """The next complete request, None while it is incomplete.

        A request whose sink is over is given at once; its connection is of no more use then.

        :raises ValueError: this is not HTTP; the connection is of no more use.
        """
        if self._request is None:
            self._request = self._read_head()
        if self._request is None:
            return None
        complete = self._read_chunks() if self._chunked else self._read_plain()
        if not complete and not (isinstance(self.sink, SteeredSink) and self.sink.over):
            return None
        request = self._request
        if request.sink is None:
            request.body = bytes(self._body)
        self._request = None
        self._body = bytearray()
        return request

    def _read_head(self) -> Request | None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise ValueError("the head of the request is too long")
            return None
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        method, target, _version = lines[0].split(" ")
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        path, _, query = target.partition("?")
        request = Request(method, unquote(path), parse_qs(query, keep_blank_values=True) if query else {}, headers)
        self._chunked = "chunked" in headers.get("transfer-encoding", "")
        self._missing = 0 if self._chunked else int(headers.get("content-length", "0"))
        self._last_chunk = False
        request.sink = self.sink = self._open_sink(request)
        return request

    def _read_plain(self) -> bool:
        if self._missing:
            data = bytes(self._buffer[: self._missing])
            del self._buffer[: self._missing]
            self._missing -= len(data)
            self._store(data)
        return self._missing == 0

    def _read_chunks(self) -> bool:
        while True:
            if self._missing > 2:
                data = bytes(self._buffer[: self._missing - 2])
                del self._buffer[: self._missing - 2]
                self._missing -= len(data)
                self._store(data)
            if self._missing:
                if self._missing > 2 or len(self._buffer) < self._missing:
                    return False
                del self._buffer[: self._missing]
                self._missing = 0
                if self._last_chunk:
                    return True
            line_end = self._buffer.find(b"\r\n")
            if line_end < 0:
                return False
            size = int(bytes(self._buffer[:line_end]).split(b";")[0], 16)
            del self._buffer[: line_end + 2]
            # Trailers are not read: no client of ours sends any.
            self._last_chunk = size == 0
            self._missing = size + 2

    def _store(self, data: bytes) -> None:
        if self._request is not None and self._request.sink is not None:
            self._request.sink.feed(data)
        else:
            self._body += data
