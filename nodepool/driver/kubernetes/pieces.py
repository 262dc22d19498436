# SPDX-License-Identifier: Apache-2.0
"""`pieces`: the body of an answer that goes on for minutes, as it comes.

urllib3 reads a chunked body (RFC 9112, 7.1) line by line, with several calls for each chunk. For a watch, where each
chunk is an event, that costs as much as all that is done with the event. Here one read takes what has come, at most a
TLS record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import httptools

#: What a TLS record holds at most.
_READ_BYTES: Final = 16_384
#: Of an answer, for the parser: the real head was read by urllib3.
_HEAD: Final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def pieces(response: Any) -> Iterator[bytes]:
    """What has come of the body each time, until its end. Blocks in between, as long as the read time-out lets it.

    :param response: of urllib3, with ``preload_content=False``; nothing of its body was read yet. It can be closed
        afterwards, but not be used again.
    :raises OSError: the connection ended before the body, was silent for too long, or sent what is no HTTP.
    :raises urllib3.exceptions.HTTPError: the same, where urllib3 reads.
    """
    file = getattr(getattr(response, "_fp", None), "fp", None)
    sock = getattr(response.connection, "sock", None)
    if file is None or sock is None or not response.chunked or "content-encoding" in response.headers:
        yield from response.stream(1 << 16, decode_content=True)
        return
    body = _Body()
    # What came with the head is in the buffer of the file. Its buffer is empty from then on.
    data = file.read1(1 << 16)
    while data:
        piece = body.feed(data)
        if piece:
            yield piece
        if body.complete:
            return
        data = sock.recv(_READ_BYTES)
    raise ConnectionError("the connection was closed in the middle of the answer")


class _Body:
    """Takes a chunked body apart. httptools calls its methods."""

    def __init__(self) -> None:
        self.complete = False
        self._found: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)
        self._parser.feed_data(_HEAD)

    def feed(self, data: bytes) -> bytes:
        """What these bytes add to the body. Raises ConnectionError."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            # What follows the body is of no interest.
            if not self.complete:
                raise ConnectionError(f"the answer is no HTTP: {error}") from error
        piece = b"".join(self._found)
        self._found.clear()
        return piece

    def on_body(self, data: bytes) -> None:
        if not self.complete:
            self._found.append(data)

    def on_message_complete(self) -> None:
        self.complete = True
