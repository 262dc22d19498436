# SPDX-License-Identifier: Apache-2.0
"""A statsd server that remembers what it was sent."""

from __future__ import annotations

import socket
from typing import Self

from tests.support.wait import DEADLINE_SECONDS

#: Sent by `StatsdServer.drain` to itself, to know that everything before it has been read.
_MARK = b"end-of-drain"


class StatsdServer:
    """A UDP socket on loopback. Use it as a context manager.

    ``lines`` has every metric received so far, as sent: ``name:value|type``.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(DEADLINE_SECONDS)
        self.lines: list[str] = []
        self.datagrams: list[bytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    @property
    def port(self) -> int:
        port: int = self._socket.getsockname()[1]
        return port

    @property
    def environ(self) -> dict[str, str]:
        """The variables that make a daemon send its metrics here."""
        return {"STATSD_HOST": "127.0.0.1", "STATSD_PORT": str(self.port)}

    def drain(self) -> list[str]:
        """All lines that were sent before this call, in order. Loopback keeps the order of datagrams."""
        self._socket.sendto(_MARK, self._socket.getsockname())
        before = len(self.lines)
        while (data := self._socket.recv(65536)) != _MARK:
            self.datagrams.append(data)
            self.lines += data.decode().split("\n")
        return self.lines[before:]

    def wait_for(self, line: str) -> None:
        """Read until this line has been received. :raises TimeoutError: nothing more came."""
        while line not in self.lines:
            self.datagrams.append(self._socket.recv(65536))
            self.lines += self.datagrams[-1].decode().split("\n")
