# SPDX-License-Identifier: Apache-2.0
"""`read_answer`: one HTTP answer from a socket, read with httptools: a tenth of what http.client costs."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import httptools
from requests.structures import CaseInsensitiveDict

from nodepool import fast_json
from nodepool.clock import monotonic

_READ_BYTES: Final = 64 * 1024


class ClosedBefore(ConnectionError):
    """The connection was closed before the answer began."""


class BrokenAnswer(ConnectionError):
    """The answer ends in the middle, or is no HTTP."""


class Bounds(NamedTuple):
    """Of an answer.

    :param most_bytes: of head and body. ``most_seconds``: for the whole, from when it is waited for.
    """

    most_bytes: int
    most_seconds: float


class QuickAnswer(NamedTuple):
    """What is used of `requests.Response`.

    :param keep: may another call go over the connection?
    """

    status_code: int
    headers: CaseInsensitiveDict[str]
    content: bytes
    keep: bool

    def json(self) -> Any:
        """The value in the content. Raises ValueError, RecursionError."""
        return fast_json.loads_any(self.content)


class _Message:
    """What the parser finds. httptools calls its methods."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.body: list[bytes] = []
        self.parser = httptools.HttpResponseParser(self)
        self.begun = False
        self.head_done = False
        self.status = 0
        self._done = False
        #: There is more than one answer.
        self.more = False
        self.keep = False

    def on_message_begin(self) -> None:
        # It belongs to no call: nothing of it may get into this answer.
        self.more = self._done
        self.begun = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._done:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if not self._done:
            self.head_done, self.status = True, self.parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        if not self._done:
            self.body.append(data)

    def on_message_complete(self) -> None:
        if self._done:
            return
        if self.status < 200:
            # 100 or 103: the answer follows.
            self.headers.clear()
            self.head_done = False
            return
        self._done = True
        self.keep = self.parser.should_keep_alive()

    def complete(self) -> bool:
        """Is all of the answer there?"""
        return self._done

    @property
    def ends_with_the_connection(self) -> bool:
        """Has the answer no length of its own?"""
        names = {name.lower() for name, _ in self.headers}
        return self.head_done and not names & {b"content-length", b"transfer-encoding"}


def read_answer(sock: Any, bounds: Bounds) -> QuickAnswer:
    """Read one answer, but not one to HEAD; blocks.

    :param sock: its time-out is that of each read. It is changed towards the end of the whole time.
    :raises ClosedBefore: the connection was closed or reset before the first byte.
    :raises BrokenAnswer: it makes no sense, ends in the middle, or is too long.
    :raises TimeoutError: nothing came for the time-out, or it took too long.
    """
    message, left = _Message(), bounds.most_bytes
    deadline = monotonic() + bounds.most_seconds
    usual = sock.gettimeout() or bounds.most_seconds
    while not message.complete():
        data = _receive(sock, message.begun, usual, deadline)
        left -= len(data)
        if left < 0:
            raise BrokenAnswer(f"the answer has more than {bounds.most_bytes >> 20} MiB")
        if not data:
            if not message.ends_with_the_connection:
                raise BrokenAnswer("the connection was closed in the middle of the answer")
            break
        try:
            message.parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            # What follows an answer is of no interest, but the connection is not to be used again.
            if not message.complete():
                raise BrokenAnswer(f"the answer is no HTTP: {error}") from error
            message.more = True
    headers: CaseInsensitiveDict[str] = CaseInsensitiveDict()
    for name, value in message.headers:
        text = value.decode("latin-1")
        key = name.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    keep = message.complete() and message.keep and not message.more
    return QuickAnswer(message.status, headers, b"".join(message.body), keep)


def _receive(sock: Any, begun: bool, usual: float, deadline: float) -> bytes:
    """The next bytes; empty = the connection was closed after the answer had begun."""
    left = deadline - monotonic()
    if left <= 0:
        raise TimeoutError("the answer takes too long")
    if left < usual:
        sock.settimeout(left)
    try:
        data: bytes = sock.recv(_READ_BYTES)
    except ConnectionError as error:
        if begun:
            raise
        raise ClosedBefore(str(error)) from error
    if not data and not begun:
        raise ClosedBefore("the connection was closed before the answer")
    return data
