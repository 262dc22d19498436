# SPDX-License-Identifier: Apache-2.0
"""Kazoo's thread handler, with TLS connections that do not leave sockets open.

Kazoo 2.11 forgets to close the socket of an attempt over TLS that fails, so every attempt while ZooKeeper is down
costs a file descriptor until the garbage collector comes. It also reads the system's certificates each time.
"""

from __future__ import annotations

import functools
import os
import socket
import ssl
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler


@functools.lru_cache(maxsize=8)
def _context(ca: str, certfile: str, keyfile: str, _changed: tuple[float, ...]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # As in earlier releases: whoever has a certificate of this CA is ZooKeeper, whatever its name.
    context.check_hostname = False
    context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    context.load_verify_locations(ca)
    context.load_cert_chain(certfile=certfile, keyfile=keyfile)
    return context


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Used by Kazoo to connect; the rest is Kazoo's."""

    def create_connection(self, address: tuple[str, int], **options: Any) -> socket.socket:
        """Connect to one server; blocks. Raises OSError."""
        if not options.get("use_ssl"):
            plain: socket.socket = super().create_connection(address, **options)
            return plain
        files = (options["ca"], options["certfile"], options["keyfile"])
        # A certificate that was renewed is taken with the next connection.
        context = _context(*files, tuple(os.stat(name).st_mtime for name in files))
        connection = socket.create_connection(address, options["timeout"])
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return context.wrap_socket(connection, server_hostname=options.get("hostname"))
        except BaseException:
            connection.close()
            raise
