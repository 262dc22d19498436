# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from nodepool.compat import modules
from nodepool.compat.modules import Attributes, Timer, iterate_timeout, nodescan, set_node_ip
from nodepool.exceptions import ConnectionTimeoutException


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(modules, "monotonic", lambda: now[0])
    monkeypatch.setattr(modules, "sleep", sleep)
    return iter([now])


def test_iterate_timeout(clock: Iterator[list[float]]) -> None:
    """A pause before each number but the first; then the error of the caller."""
    counts = iterate_timeout(5, KeyError, "a machine")
    assert [next(counts), next(counts), next(counts)] == [1, 2, 3]
    with pytest.raises(KeyError, match="Timeout waiting for a machine"):
        next(counts)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_nodescan_without_keys(listener: socket.socket) -> None:
    assert nodescan("127.0.0.1", listener.getsockname()[1], timeout=5, gather_hostkeys=False) == []


def test_nodescan_timeout(listener: socket.socket) -> None:
    """What 11.0.0 raised."""
    port = listener.getsockname()[1]
    listener.close()
    with pytest.raises(ConnectionTimeoutException):
        nodescan("127.0.0.1", port, timeout=0.1)


@pytest.mark.parametrize(("host", "v4", "v6"), [("127.0.0.1", "127.0.0.1", None), ("::1", None, "::1")])
def test_set_node_ip(host: str, v4: str | None, v6: str | None) -> None:
    node = SimpleNamespace(hostname=host, connection_port=22, public_ipv4=None, public_ipv6=None)
    set_node_ip(node)
    assert (node.public_ipv4, node.public_ipv6) == (v4, v6)


def test_timer(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), Timer(logging.getLogger("driver"), "Listed servers"):
        pass
    assert caplog.messages[0].startswith("Listed servers in ")


def test_attributes() -> None:
    assert vars(Attributes(a=1, b=2)) == {"a": 1, "b": 2}
