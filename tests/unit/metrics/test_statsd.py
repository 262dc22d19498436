# SPDX-License-Identifier: Apache-2.0
"""The statsd client on a real socket (reference/metrics)."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator

import pytest

from nodepool.metrics.statsd import MAX_DATAGRAM_BYTES, StatsdClient, get_client
from tests.support.statsd_server import StatsdServer


@pytest.fixture
def server() -> Iterator[StatsdServer]:
    with StatsdServer() as running:
        yield running


@pytest.fixture
def client(server: StatsdServer) -> Iterator[StatsdClient]:
    made = get_client(server.environ)
    assert made is not None
    yield made
    made.close()


def test_off_without_configuration() -> None:
    """Without STATSD_HOST and STATSD_PORT there is no client."""
    assert get_client({}) is None
    assert get_client({"STATSD_HOST": "", "STATSD_PORT": ""}) is None


@pytest.mark.parametrize(
    ("environ", "host", "port"),
    [
        ({"STATSD_HOST": "127.0.0.9"}, "127.0.0.9", 8125),
        ({"STATSD_PORT": "9999"}, "localhost", 9999),
        ({"STATSD_HOST": "::1", "STATSD_PORT": "9"}, "::1", 9),
    ],
)
def test_missing_half_has_a_default(environ: dict[str, str], host: str, port: int) -> None:
    """The variable that is missing means localhost or 8125."""
    client = get_client(environ)
    assert client is not None
    assert (client.host, client.port) == (host, port)
    client.close()


@pytest.mark.parametrize("port", ["statsd", "0", "65536", "-1", "٣"])
def test_bad_port_turns_metrics_off(port: str, caplog: pytest.LogCaptureFixture) -> None:
    """A port that is none is named in the log; the daemon goes on without metrics."""
    assert get_client({"STATSD_PORT": port}) is None
    assert "STATSD_PORT" in caplog.text


def test_wire_format(server: StatsdServer, client: StatsdClient) -> None:
    """Gauges, counters and timers as statsd reads them."""
    client.gauge("nodepool.a", 3)
    client.incr("nodepool.b")
    client.timing("nodepool.c", 12.5)
    assert server.drain() == ["nodepool.a:3|g", "nodepool.b:1|c", "nodepool.c:12.500000|ms"]


def test_many_gauges_fill_few_datagrams(server: StatsdServer, client: StatsdClient) -> None:
    """Gauges are grouped, and no datagram is larger than a network frame."""
    values = {f"nodepool.label.label-{i}.nodes.ready": float(i) for i in range(200)}
    client.gauges(values)
    assert server.drain() == [f"{name}:{value}|g" for name, value in values.items()]
    assert 1 < len(server.datagrams) < 20
    assert max(len(data) for data in server.datagrams) <= MAX_DATAGRAM_BYTES


def test_no_gauges_send_nothing(server: StatsdServer, client: StatsdClient) -> None:
    """An empty set of gauges is no datagram."""
    client.gauges({})
    assert server.drain() == []


def test_names_outside_ascii(server: StatsdServer, client: StatsdClient) -> None:
    """No name can make the sender fail."""
    client.gauge("nodepool.label.größe", 1)
    client.gauge("nodepool.label.\ud800", 1)
    assert server.drain() == ["nodepool.label.größe:1|g", "nodepool.label.?:1|g"]


def test_unknown_host_hurts_nobody(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A name that cannot be resolved is logged once; sending drops the value; a later attempt works."""
    real = socket.getaddrinfo

    def broken(*args: object, **kwargs: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with StatsdServer() as server:
        monkeypatch.setattr(socket, "getaddrinfo", broken)
        with caplog.at_level(logging.WARNING):
            client = get_client({"STATSD_HOST": "127.0.0.1", "STATSD_PORT": str(server.port)})
            assert client is not None
            assert not client.resolve()
        assert len(caplog.records) == 1
        client.gauge("nodepool.lost", 1)

        monkeypatch.setattr(socket, "getaddrinfo", real)
        assert client.resolve()
        client.gauge("nodepool.found", 1)
        assert server.drain() == ["nodepool.found:1|g"]
        client.close()


def test_nobody_listens(caplog: pytest.LogCaptureFixture) -> None:
    """A server that is down, or a client that was closed, is no error for the sender."""
    with StatsdServer() as server:
        environ = server.environ
    client = get_client(environ)
    assert client is not None
    for _ in range(3):
        client.gauge("nodepool.x", 1)
    client.close()
    client.gauge("nodepool.x", 1)
    client.close()
    assert not caplog.records


def test_send_error_is_dropped() -> None:
    """An error of the socket does not reach the sender: a datagram that is too large."""
    with StatsdServer() as server:
        client = get_client(server.environ)
        assert client is not None
        client.gauge("x" * 100_000, 1)
        client.gauge("y", 1)
        assert server.drain() == ["y:1|g"]
        client.close()


def test_threads_may_share_a_client(server: StatsdServer, client: StatsdClient) -> None:
    """What several threads send arrives whole."""
    threads = [threading.Thread(target=lambda n=n: client.gauges({f"t{n}.{i}": 1 for i in range(100)})) for n in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(server.drain()) == sorted(f"t{n}.{i}:1|g" for n in "abcd" for i in range(100))
