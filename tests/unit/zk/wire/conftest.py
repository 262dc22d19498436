# SPDX-License-Identifier: Apache-2.0
"""Connections as the handler makes them, and the other end of each."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nodepool.zk.wire.threading_handler import BufferedSocket, TlsSocket, WakeReader, WakeWriter, wake_pair
from tests.support.certificates import make_certificates

Pair = tuple[BufferedSocket, socket.socket]


@pytest.fixture
def plain_pair() -> Iterator[Pair]:
    ours, other = socket.socketpair()
    with BufferedSocket(ours) as connection, other:
        connection.setblocking(False)
        yield connection, other


@pytest.fixture
def tls_pair(tmp_path: Path) -> Iterator[Pair]:
    files = make_certificates(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files.client_cert, files.client_key)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    ours, other = socket.socketpair()
    with ThreadPoolExecutor(1) as other_end:
        wrapped = other_end.submit(server.wrap_socket, other, server_side=True)
        with TlsSocket(ours, client, None, 30.0) as connection, wrapped.result() as theirs:
            connection.setblocking(False)
            yield connection, theirs


@pytest.fixture(params=["plain", "tls"])
def pair(request: pytest.FixtureRequest) -> Pair:
    found: Pair = request.getfixturevalue(f"{request.param}_pair")
    return found


@pytest.fixture
def wake() -> Iterator[tuple[WakeReader, WakeWriter]]:
    """By which Kazoo wakes its connection thread."""
    reader, writer = wake_pair()
    yield reader, writer
    reader.close()
    writer.close()
