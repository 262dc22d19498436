# SPDX-License-Identifier: Apache-2.0
"""Reads the one SSH message that a host key scan needs and paramiko does not hand out.

Format: RFC 4253 sections 4.2 (identification), 6 (binary packet) and 7.1 (SSH_MSG_KEXINIT). The first packet
of a connection is not encrypted.
"""

from __future__ import annotations

from typing import Final

#: RFC 4253 7.1.
MSG_KEXINIT: Final = 20
#: RFC 4253 6.1: every implementation must accept this; paramiko's limit is near it.
MAX_PACKET_BYTES: Final = 35000
#: Identification plus lines before it plus the packet; more is not worth looking at.
_MAX_BUFFER: Final = 128 * 1024
_COOKIE_BYTES: Final = 16


class KexInitReader:
    """Fed with what a server sends; finds its list of host key algorithms.

    ``key_algorithms`` is empty until the list was seen, and stays so if the stream makes no sense.
    """

    def __init__(self) -> None:
        self.key_algorithms: tuple[str, ...] = ()
        self._buffer = bytearray()
        self._identified = False
        self._done = False

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream. Never raises; ignores all that follows the list."""
        if self._done:
            return
        self._buffer += data
        if not self._identified:
            self._skip_identification()
        if self._identified:
            self._read_packet()
        if len(self._buffer) > _MAX_BUFFER:
            self._finish()

    def _finish(self) -> None:
        self._done = True
        self._buffer.clear()

    def _skip_identification(self) -> None:
        """A server may send lines of text before its ``SSH-`` line."""
        while not self._identified:
            line, newline, rest = self._buffer.partition(b"\n")
            if not newline:
                return
            self._buffer = rest
            self._identified = line.startswith(b"SSH-")

    def _read_packet(self) -> None:
        if len(self._buffer) < 6:
            return
        length = int.from_bytes(self._buffer[:4])
        if length > MAX_PACKET_BYTES or self._buffer[5] != MSG_KEXINIT:
            self._finish()
            return
        if len(self._buffer) < 4 + length:
            return
        padding = self._buffer[4]
        payload = bytes(self._buffer[5 : 4 + length - padding])
        _, offset = _name_list(payload, 1 + _COOKIE_BYTES)
        self.key_algorithms, _ = _name_list(payload, offset)
        self._finish()


def _name_list(payload: bytes, offset: int) -> tuple[tuple[str, ...], int]:
    """Read a name-list (RFC 4251 5); returns it and the offset behind it. What is cut off reads as shorter."""
    end = offset + 4 + int.from_bytes(payload[offset : offset + 4])
    names = payload[offset + 4 : end].decode("ascii", "replace")
    return tuple(name for name in names.split(",") if name), end
