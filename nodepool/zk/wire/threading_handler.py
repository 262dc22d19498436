# SPDX-License-Identifier: Apache-2.0
"""Kazoo's thread handler, with connections and waits that cost less, and that do not leave sockets open.

Kazoo 2.11 forgets to close the socket of an attempt over TLS that fails, so every attempt while ZooKeeper is down
costs a file descriptor until the garbage collector comes. It also reads the system's certificates each time. It waits
for a silent server as long as the session lives, so that the session is over before the next one is tried. And it waits
for sockets more often than there is anything to wait for, each time with an epoll object of its own.
"""

from __future__ import annotations

import functools
import math
import os
import select
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from kazoo.handlers.threading import SequentialThreadingHandler

from nodepool.clock import monotonic
from nodepool.guard import OnError
from nodepool.zk.connect_failure import ConnectStep
from nodepool.zk.wire.buffered_socket import BufferedSocket, TlsSocket
from nodepool.zk.wire.wakeup import WakeReader, WakeWriter, wake_pair

Readable = BufferedSocket | WakeReader


@functools.lru_cache(maxsize=8)
def _context(ca: str, certfile: str, keyfile: str, _changed: tuple[float, ...]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # As in earlier releases: whoever has a certificate of this CA is ZooKeeper, whatever its name. So it has to be
    # this CA alone: Kazoo takes those of the system too, and thereby the certificate of anybody's web server.
    context.check_hostname = False
    context.load_verify_locations(ca)
    context.load_cert_chain(certfile=certfile, keyfile=keyfile)
    return context


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Used by Kazoo to connect, to wake its connection thread, and to wait; the rest is Kazoo's."""

    def __init__(self) -> None:
        super().__init__()
        #: How many servers there are: each has its share of the time in which one must be found.
        self.servers = 1
        #: How far the last attempt to connect came.
        self.stage = ConnectStep.CONNECT
        self._to_wake: deque[Callable[[], None]] = deque()
        #: Leave a call until the connection thread is about to wait. Whoever is woken by it then need not wait for the
        #: interpreter again. Of the connection thread.
        self.wake_later: Final = self._to_wake.append
        #: Made for the sockets beside it, of which nothing is to be sent.
        self._poll: tuple[list[Readable], Any] | None = None

    def wake_waiters(self) -> None:
        """Call what was left until now. Of the connection thread."""
        while self._to_wake:
            self._to_wake.popleft()()

    def create_socket_pair(self) -> tuple[WakeReader, WakeWriter]:
        return wake_pair()

    def select(
        self,
        readers: Sequence[Readable],
        writers: Sequence[BufferedSocket],
        _others: Sequence[object],
        timeout: float | None = None,
    ) -> tuple[list[Readable], list[BufferedSocket], list[object]]:
        """Wait until one of some sockets is ready; as select() of the standard library, for any number of files.

        A socket with an error counts as ready: whoever uses it is told. So does one with data that was read and not
        asked for yet. What connections have still to send is sent before anybody waits, and as soon as nobody has
        anything to add for the moment. Raises OSError.

        :param timeout: seconds; None = wait for ever.
        """
        can_read = [each for each in readers if each.readable()]
        can_write = [each for each in writers if each.has_room]
        connections = [each for each in (*readers, *writers) if isinstance(each, BufferedSocket)]
        adds = bool(can_write) or any(isinstance(each, WakeReader) for each in can_read)
        at_once = adds and all(each.has_room for each in connections)
        if not at_once:
            for each in connections:
                each.flush()
            # There may be room now: then nothing is left for which the system could wake anybody.
            can_write = [each for each in writers if each.has_room]
            at_once = bool(can_write or (can_read and not adds))
        if at_once:
            self.wake_waiters()
            return can_read, can_write, []
        # While there is always something to send, now and then a look at what has come.
        deadline = math.inf if timeout is None else monotonic() + (0.0 if adds else timeout)
        while True:
            self._wait(readers, connections, deadline - monotonic())
            can_read = [each for each in readers if each.readable()]
            can_write = [each for each in writers if each.has_room]
            if can_read or can_write or monotonic() >= deadline:
                return can_read, can_write, []

    def _wait(self, readers: Sequence[Readable], connections: Sequence[BufferedSocket], seconds: float) -> None:
        """Wait until the system tells of any of some sockets, and take what it has; see `select`.

        :param connections: send what they have still to send, and are not waited for otherwise.
        """
        poll = self._make_poll(readers, connections)
        wakes = [each for each in readers if isinstance(each, WakeReader)]
        for wake in wakes:
            wake.rest()
        try:
            self.wake_waiters()
            if any(wake.readable() for wake in wakes):
                seconds = 0.0
            pause = None if seconds == math.inf else max(0, math.ceil(seconds * 1000))
            found = {number for number, _ in poll.poll(pause)}
        finally:
            for wake in wakes:
                wake.resume()
        for wake in wakes:
            if wake.fileno() in found:
                wake.drain()
        for connection in connections:
            if connection.fileno() in found:
                connection.flush()
                if connection in readers:
                    connection.fill()

    def _make_poll(self, readers: Sequence[Readable], connections: Sequence[BufferedSocket]) -> Any:
        unsent = [each for each in connections if each.unsent]
        if not unsent and self._poll is not None and self._poll[0] == readers:
            return self._poll[1]
        poll = select.poll()
        for reader in readers:
            poll.register(reader, select.POLLIN)
        for connection in unsent:
            poll.register(connection, select.POLLOUT | (select.POLLIN if connection in readers else 0))
        self._poll = None if unsent else (list(readers), poll)
        return poll

    def create_connection(self, address: tuple[str, int], **options: Any) -> BufferedSocket:
        """Connect to one server; blocks. Raises OSError."""
        timeout = options["timeout"] / self.servers
        self.stage = ConnectStep.CONNECT
        connection = socket.create_connection(address, timeout)
        with OnError(lambda _: connection.close()):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not options.get("use_ssl"):
                self.stage = ConnectStep.SESSION
                return BufferedSocket(connection)
            self.stage = ConnectStep.TLS_FILES
            files = (options["ca"], options["certfile"], options["keyfile"])
            # A certificate that was renewed is taken with the next connection.
            context = _context(*files, tuple(os.stat(name).st_mtime for name in files))
            self.stage = ConnectStep.HANDSHAKE
            encrypted = TlsSocket(connection, context, options.get("hostname"), timeout)
            self.stage = ConnectStep.SESSION
            return encrypted
