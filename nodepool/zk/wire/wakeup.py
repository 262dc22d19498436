# SPDX-License-Identifier: Apache-2.0
"""By which Kazoo wakes its connection thread, with a system call only when that thread sleeps.

For each request Kazoo sends a byte through a pair of sockets, and its connection thread reads it: two system calls that
give the interpreter away. And a pair of sockets holds some 280 bytes: whoever sends one more waits until the connection
thread has read some, which that thread itself can never do. Here a byte is only counted.

While the connection thread sleeps another thread may use its connection: to wake it costs more than to send a request.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque


class WakeReader:
    """The connection thread's end."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        #: One for each byte that was sent and not read; operations of a deque are atomic.
        self.sent: deque[None] = deque()
        #: Is the connection thread about to wait for sockets, or waiting? Then a byte goes through the socket, too.
        #: Whoever sets this asks `readable` afterwards: a byte may have been counted just before.
        self.asleep = False
        #: Does the connection thread use nothing of its connection? Ends under `_use` only.
        self._resting = False
        self._use = threading.Lock()

    def readable(self) -> bool:
        """Was a byte sent?"""
        return bool(self.sent)

    def recv(self, buflen: int = 1, flags: int = 0) -> bytes:
        """Reads one byte. :raises BlockingIOError: none was sent."""
        try:
            self.sent.popleft()
        except IndexError:
            raise BlockingIOError("nothing was sent") from None
        return b"\0"

    def rest(self) -> None:
        """The connection thread is about to sleep: until `resume` it uses nothing of its connection."""
        self._resting = self.asleep = True

    def resume(self) -> None:
        """The connection thread goes on, after the end of a `borrow`."""
        self.asleep = False
        with self._use:
            self._resting = False

    def borrow(self) -> bool:
        """Another thread may use the connection until `give_back`. Does not block; False = its thread is at work."""
        if not self._use.acquire(blocking=False):
            return False
        if self._resting:
            return True
        self._use.release()
        return False

    def give_back(self) -> None:
        """Ends what `borrow` began."""
        self._use.release()

    def drain(self) -> None:
        """Take what came through the socket. Does not block."""
        with contextlib.suppress(BlockingIOError):
            self._socket.recv(4096)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()


class WakeWriter:
    """The end of everybody else; any thread."""

    def __init__(self, connection: socket.socket, reader: WakeReader) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._reader = reader

    def send(self, data: bytes, flags: int = 0) -> int:
        """Sends one byte; does not block. :raises OSError: it is closed."""
        if self._socket.fileno() < 0:
            raise OSError("closed")
        reader = self._reader
        reader.sent.append(None)
        self.wake()
        return 1

    def wake(self) -> None:
        """The connection thread looks at its connection again, if it sleeps. Does not block; raises OSError."""
        if self._reader.asleep:
            self._reader.asleep = False
            # A full socket wakes it all the same.
            with contextlib.suppress(BlockingIOError):
                self._socket.send(b"\0")

    def close(self) -> None:
        self._socket.close()


def wake_pair() -> tuple[WakeReader, WakeWriter]:
    """As `socket.socketpair`, for one reader."""
    ours, theirs = socket.socketpair()
    reader = WakeReader(ours)
    return reader, WakeWriter(theirs, reader)
