# SPDX-License-Identifier: Apache-2.0
"""Kazoo's thread handler, with connections and waits that cost less, and that do not leave sockets open.

Kazoo 2.11 forgets to close the socket of an attempt over TLS that fails, so every attempt while ZooKeeper is down
costs a file descriptor until the garbage collector comes. It also reads the system's certificates each time. It waits
for a silent server as long as the session lives, so that the session is over before the next one is tried. And it waits
for sockets more often than there is anything to wait for, each time with an epoll object of its own.
"""

from __future__ import annotations

import functools
import logging
import math
import os
import select
import socket
import ssl
from collections.abc import Sequence
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from nodepool import log_names
from nodepool.clock import monotonic
from nodepool.guard import Guard, OnError
from nodepool.zk.connect_failure import ConnectStep
from nodepool.zk.wire.buffered_socket import BufferedSocket, TlsSocket
from nodepool.zk.wire.wakeup import WakeReader, WakeWriter, wake_pair

Readable = BufferedSocket | WakeReader

log = logging.getLogger(log_names.ZOOKEEPER)


@functools.lru_cache(maxsize=8)
def _context(ca: str, certfile: str, keyfile: str, _changed: tuple[float, ...]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # As in earlier releases: whoever has a certificate of this CA is ZooKeeper, whatever its name. So it has to be
    # this CA alone: Kazoo takes those of the system too, and thereby the certificate of anybody's web server.
    context.check_hostname = False
    context.load_verify_locations(ca)
    context.load_cert_chain(certfile=certfile, keyfile=keyfile)
    return context


def _milliseconds(seconds: float) -> int | None:
    """For poll(). None = for ever."""
    return None if seconds == math.inf else max(0, math.ceil(seconds * 1000))


class _Sockets:
    """A connection, and maybe what wakes its thread, with what waits for them."""

    __slots__ = ("connection", "poll", "readers", "wake", "wake_number", "wake_poll")

    def __init__(self, readers: Sequence[Readable]) -> None:
        self.readers = list(readers)
        (self.connection,) = (each for each in readers if isinstance(each, BufferedSocket))
        self.wake = next((each for each in readers if isinstance(each, WakeReader)), None)
        self.wake_number = -1 if self.wake is None else self.wake.fileno()
        self.poll = self._make_poll(select.POLLIN)
        #: For a connection that gathers what comes.
        self.wake_poll = self._make_poll(None)

    def _make_poll(self, events: int | None) -> Any:
        """:param events: of the connection; None = it is not waited for."""
        poll = select.poll()
        if events is not None:
            poll.register(self.connection, events)
        if self.wake is not None:
            poll.register(self.wake_number, select.POLLIN)
        return poll

    def poll_to_send(self) -> Any:
        """For a connection that has something to send for which there was no room."""
        return self._make_poll(select.POLLIN | select.POLLOUT)


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Used by Kazoo to connect, to wake its connection thread, and to wait; the rest is Kazoo's."""

    def __init__(self) -> None:
        super().__init__()
        #: How many servers there are: each has its share of the time in which one must be found.
        self.servers = 1
        #: How far the last attempt to connect came.
        self.stage = ConnectStep.CONNECT
        #: What was waited for the last time.
        self._sockets: _Sockets | None = None

    def dispatch_callback(self, callback: Any) -> None:
        """Have a watch function called in Kazoo's thread, by which waiting for locks ends, too. Does not block."""

        def call() -> None:
            # It may be a driver's: not even its sys.exit() ends the thread.
            with Guard(log, "Error in a function that watches ZooKeeper"):
                callback.func(*callback.args)

        self.callback_queue.put(call)

    def create_socket_pair(self) -> tuple[WakeReader, WakeWriter]:
        return wake_pair()

    def select(
        self,
        readers: Sequence[Readable],
        writers: Sequence[BufferedSocket],
        _others: Sequence[object],
        timeout: float | None = None,
    ) -> tuple[list[Readable], list[BufferedSocket], list[object]]:
        """Wait until a connection or calls can be read, or until a connection has room; see select() of the system.

        A socket with an error counts as ready: whoever uses it is told. So does one with data that was read and not
        asked for yet. What a connection has still to send is sent before anybody waits, and as soon as nobody has
        anything to add for the moment. A connection that gathers what comes is not ready before it is told that there
        is something to send, or the time is over. Raises OSError.

        :param readers: one connection, and maybe what wakes its thread; or ``writers``: one connection.
        :param timeout: seconds; None = wait for ever.
        """
        deadline = math.inf if timeout is None else monotonic() + timeout
        if writers:
            (connection,) = writers
            return [], [connection] if self._wait_for_room(connection, deadline) else [], []
        sockets = self._sockets
        if sockets is None or sockets.readers != readers:
            sockets = self._sockets = _Sockets(readers)
        return self._wait_to_read(sockets, deadline), [], []

    def _wait_for_room(self, connection: BufferedSocket, deadline: float) -> bool:
        if not connection.has_room:
            connection.flush()
        while not connection.has_room and (left := deadline - monotonic()) > 0:
            poll = select.poll()
            poll.register(connection, select.POLLOUT)
            poll.poll(_milliseconds(left))
            connection.flush()
        return connection.has_room

    def _wait_to_read(self, sockets: _Sockets, deadline: float) -> list[Readable]:
        connection, wake = sockets.connection, sockets.wake
        adds = wake is not None and wake.readable()
        if not adds or not connection.has_room:
            connection.flush()
            if adds:
                # While there is always something to send, now and then a look at what has come.
                self._wait(sockets, monotonic())
            elif not connection.readable():
                self._wait(sockets, deadline)
        return [each for each in sockets.readers if each.readable()]

    def _wait(self, sockets: _Sockets, deadline: float) -> None:
        """Wait until there is something to read, and take what the system has; go on with what is to be sent."""
        connection, wake = sockets.connection, sockets.wake
        while True:
            poll, until = sockets.poll, deadline
            if connection.unsent:
                poll = sockets.poll_to_send()
            elif wake is not None and monotonic() < connection.gathers_until:
                poll, until = sockets.wake_poll, min(deadline, connection.gathers_until)
            if wake is not None:
                wake.rest()
            try:
                # A call may have come just before.
                now = wake is not None and wake.readable()
                found = poll.poll(0 if now else _milliseconds(until - monotonic()))
            finally:
                if wake is not None:
                    wake.resume()
            for number, _ in found:
                if wake is not None and number == sockets.wake_number:
                    wake.drain()
                else:
                    connection.flush()
                    connection.fill()
            if connection.readable() or (wake is not None and wake.readable()) or monotonic() >= deadline:
                return

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
