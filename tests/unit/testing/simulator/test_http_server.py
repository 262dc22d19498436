# SPDX-License-Identifier: Apache-2.0
"""The server of the simulators."""

from __future__ import annotations

import socket

from nodepool.testing.simulator.http_server import HttpServer
from nodepool.testing.simulator.messages import Answer, BodySink, Request
from tests.support.wait import DEADLINE_SECONDS


class Silent:
    """Nobody gets as far as this."""

    def body_sink(self, request: Request) -> BodySink | None:
        return None

    def delay(self, request: Request) -> float:
        return 0.0

    def handle(self, request: Request) -> Answer:
        return Answer()


def test_stop_closes_connections_that_were_just_accepted() -> None:
    """A client must not wait for a server that is gone."""
    for _ in range(10):
        server = HttpServer(Silent())
        server.start()
        clients = [socket.create_connection((server.host, server.port), DEADLINE_SECONDS) for _ in range(8)]
        server.stop()
        for client in clients:
            with client:
                try:
                    assert client.recv(1) == b""
                except ConnectionError:
                    continue
