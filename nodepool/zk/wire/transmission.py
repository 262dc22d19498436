# SPDX-License-Identifier: Apache-2.0
"""What Kazoo's connection sends and receives, with fewer system calls.

Kazoo 2.11 waits for the socket, reads the length of a packet, then the packet, and sends one request at a time after
one more wait. Each request is a TLS record of its own then, for the server too. A launcher in a burst has dozens of
them ready, and as many answers. So here

* a read takes what is there, up to a TLS record, and all packets in it are handled before the next wait;
* requests that wait are sent together;
* a socket is only waited for when it said that it is not ready.

Hard case: packets that were read must be handled before the next wait, because the socket does not tell of them again.
The beginning of a packet may stay: the rest makes the socket ready.

This file uses Kazoo's private names ``_read``, ``_write``, ``_read_socket``, ``_send_request``, ``_submit``,
``_connect``, ``_socket``, ``_read_sock``, ``_xid``, ``_queue`` and ``_pending``.
"""

from __future__ import annotations

import ssl
import struct
from typing import Any, Final

from kazoo.exceptions import ConnectionDropped
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Auth, Close, int_struct

#: What a TLS record has at most: a read that takes less leaves data that no wait for the socket tells of.
_READ_BYTES: Final = 16384
#: Requests that are sent together at most, and from how many bytes on no more are added.
_MOST_REQUESTS: Final = 64
_MANY_BYTES: Final = 65536
_LENGTH_BYTES: Final = 4
#: Length of what follows, xid, type (RequestHeader in zookeeper.jute).
_HEAD: Final = struct.Struct("!iii")
_NOT_READY: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Transmission(ConnectionHandler):  # type: ignore[misc]
    """Everything here happens in the connection thread."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        #: What was received, and how much of it was used.
        self._received = b""
        self._used = 0
        self._xid: int

    def _sending(self, request: Any) -> None:
        """A request is about to be sent."""

    def _connect(self, *arguments: Any) -> tuple[int, int]:
        self._received, self._used = b"", 0
        read_ms, connect_ms = super()._connect(*arguments)
        return read_ms, connect_ms

    # -- receive --

    def _read_socket(self, timeout: float) -> Any:
        response = super()._read_socket(timeout)
        while response is None and self._has_packet():
            response = super()._read_socket(timeout)
        return response

    def _has_packet(self) -> bool:
        left = len(self._received) - self._used - _LENGTH_BYTES
        return left >= 0 and left >= int_struct.unpack_from(self._received, self._used)[0]

    def _read(self, length: int, timeout: float) -> bytes:
        if len(self._received) - self._used < length:
            self._receive(length, timeout)
        begin = self._used
        self._used += length
        return self._received[begin : self._used]

    def _receive(self, length: int, timeout: float) -> None:
        """Receive until there are so many bytes."""
        parts = [self._received[self._used :]]
        missing = length - len(parts[0])
        while missing > 0:
            try:
                part = self._socket.recv(_READ_BYTES)
            except _NOT_READY as reason:
                self._wait(reason, timeout)
                continue
            except OSError as error:
                raise _dropped(error) from None
            if not part:
                raise ConnectionDropped("socket connection broken")
            parts.append(part)
            missing -= len(part)
        self._received, self._used = b"".join(parts), 0

    def _wait(self, reason: Exception, timeout: float, *, writing: bool = False) -> None:
        """Wait until the socket is ready for what it was not ready for. TLS may have to read in order to write."""
        if isinstance(reason, ssl.SSLWantReadError):
            writing = False
        elif isinstance(reason, ssl.SSLWantWriteError):
            writing = True
        try:
            ready = self.handler.select(
                [] if writing else [self._socket], [self._socket] if writing else [], [], timeout
            )
        except OSError as error:
            raise _dropped(error) from None
        if not any(ready):
            raise self.handler.timeout_exception(f"socket time-out during {'write' if writing else 'read'}")

    # -- send --

    def _write(self, msg: bytes | bytearray, timeout: float) -> None:
        left = memoryview(msg)
        while left:
            try:
                sent = self._socket.send(left)
            except _NOT_READY as reason:
                self._wait(reason, timeout, writing=True)
                continue
            except OSError as error:
                raise _dropped(error) from None
            if not sent:
                raise ConnectionDropped("socket connection broken")
            left = left[sent:]

    def _submit(self, request: Any, *arguments: Any, **options: Any) -> None:
        self._sending(request)
        super()._submit(request, *arguments, **options)

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        """Send what waits. Kazoo adds to its queue in other threads, and takes from it only here."""
        queue = self.client._queue
        batch: list[tuple[Any, Any, int]] = []
        packets = bytearray()
        while len(batch) < min(len(queue), _MOST_REQUESTS) and len(packets) < _MANY_BYTES:
            request, reply = queue[len(batch)]
            if getattr(request, "type", Auth.type) == Auth.type:
                # Kazoo numbers them otherwise; and there are marks that are no requests at all.
                break
            xid = self._xid = int(self._xid) % 0x7FFFFFFF + 1
            body = request.serialize()
            packets += _HEAD.pack(len(body) + 8, xid, request.type) + body
            batch.append((request, reply, xid))
            self._sending(request)
            if isinstance(request, Close):
                break
        if not batch:
            super()._send_request(read_timeout, connect_timeout)
            return
        self._write(packets, connect_timeout)
        # A byte for each request announces it. That of the latest ones may be on its way: then it wakes us for nothing.
        self._read_sock.recv(len(batch))
        for sent in batch:
            queue.popleft()
            self.client._pending.append(sent)
            self.logger.debug("Sent request(xid=%s): %s", sent[2], sent[0])


def _dropped(error: OSError) -> ConnectionDropped:
    """As Kazoo names what is wrong with a socket."""
    return ConnectionDropped(f"socket connection error: {error.strerror or error}")
