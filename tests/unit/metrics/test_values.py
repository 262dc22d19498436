# SPDX-License-Identifier: Apache-2.0
"""What is counted, and how it is sent to statsd (reference/metrics 1-7)."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nodepool.metrics import registry, reports
from nodepool.model.image import ImagesView, ImageView
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.model.states import NODE_STATES
from nodepool.model.status import PoolComponent
from tests.support.image_views import build
from tests.support.statsd_server import StatsdServer
from tests.support.tables import rows, table


def sent(values: Mapping[registry.Series, registry.Value]) -> dict[str, registry.Value]:
    """By their names for statsd, without `nodepool.`"""
    return {name.removeprefix("nodepool."): value for series, value in values.items() for name in series.statsd_names()}


# -- gauges


def node(state: str, *labels: str, provider: str | None = "p1") -> Node:
    made = Node(list(labels))
    made.state, made.provider = state, provider
    return made


def pool(provider: str, name: str, *labels: str) -> PoolComponent:
    made = PoolComponent("host", "1")
    made.provider_name, made.name, made.supported_labels = provider, name, list(labels)
    return made


def request(state: str, *labels: str) -> NodeRequest:
    made = NodeRequest()
    made.node_types, made.state = list(labels), state
    return made


def test_nodes() -> None:
    """Metrics 1: all states of registered labels and providers, from 0; each node once for all that it belongs to."""
    nodes = [node("ready", "small", "any"), node("ready", "small", "small"), node("in-use", "large", provider="p.2")]
    found = sent(reports.node_gauges([*nodes, node("deleting", provider=None)], [pool("eu.west", "main", "d-12.5")]))
    zero = {f"{place}nodes.{state}": 0 for place in ("", "label.d-12.5.", "provider.eu.west.") for state in NODE_STATES}
    assert zero.keys() <= found.keys()
    assert {name: value for name, value in found.items() if value} == table(__file__, "nodes")
    odd = sent(reports.node_gauges([node("ready", "a\nnodepool.fake:1|g")], []))
    assert not [name for name in odd if "\n" in name or "|" in name], "a label adds no metric of its own"


def test_addressable_requests() -> None:
    """Metrics 1: requests in any state, if the pool supports all their labels; of several launchers once."""
    pools = [pool("p1", "main", "small"), pool("p1", "big", "small", "large"), pool("p2", "main")]
    requests = [request("requested", "small"), request("fulfilled", "small", "small"), request("pending", "large")]
    found = sent(
        reports.request_gauges([*requests, request("requested", "x")], [*pools, pool("p1", "main", "small", "large")])
    )
    numbers = {"p1.pool.main": 3, "p1.pool.big": 3, "p2.pool.main": 0}
    assert found == {f"provider.{name}.addressable_requests": number for name, number in numbers.items()}


@rows(__file__, "test_plain_gauges")
def test_plain_gauges(gauges: str, arguments: list[Any], expected: dict[str, float]) -> None:
    """Metrics 2, 5 and 6: sums over pools; three limits of a tenant always; queues of a launcher."""
    assert sent(getattr(reports, gauges)(*arguments)) == expected


def test_builds() -> None:
    """Metrics 6, zookeeper 6.3: of configured images, and requests for any; paused here or in ZooKeeper."""
    images = {
        "debian": ImageView("debian", build_requested=1.0),
        "fedora": ImageView("fedora", paused=True),
        "elsewhere": ImageView("elsewhere", build_requested=2.0),
    }
    paused = {"debian": False, "fedora": False, "ubuntu": True, "arch": False}
    assert sent(reports.build_gauges("b", 2, ImagesView(images), paused, ["arch"])) == table(__file__, "builds")
    builds = {"b1": build("b1", "building", 1.0)}
    for fields, pending in (
        ({}, False),
        ({"build_requested": 1.0, "build_locked": True}, True),
        ({"build_requested": 1.0, "build_locked": True, "builds": builds}, False),
        ({"build_requested": 1.0, "builds": builds}, True),
    ):
        assert reports.is_pending(ImageView("debian", **fields)) is pending


def test_uploads() -> None:
    """Metrics 6: every image that a provider uses has a state; one that is uploaded before its pause is uploading."""
    paused = {("debian", "a"): False, ("debian", "b"): True, ("fedora", "a"): False, ("fedora", "b"): True}
    running = [("fedora", "a"), ("fedora", "b")]
    found = reports.upload_gauges("nb", paused, running, 4)
    assert {name.removeprefix("builder.nb."): value for name, value in sent(found).items()} == {
        "current_uploads": 2,
        "upload_workers": 4,
        **{f"image.{image}.provider.{name}.upload.state": 3 if name == "b" else 0 for image, name in paused},
        **{f"image.{image}.provider.{name}.upload.state": 2 for image, name in running},
    }


@rows(__file__, "test_what_statsd_gets")
def test_what_statsd_gets(
    statsd: StatsdServer,
    monkeypatch: pytest.MonkeyPatch,
    report: str,
    calls: Any,
    fields: dict[str, Any],
    lines: list[str],
) -> None:
    """Metrics 3, 4 and 7."""
    monkeypatch.setattr(socket, "gethostname", lambda: "nl01.example.com")
    for arguments in calls:
        getattr(reports, f"report_{report}")(*arguments, **fields)
    assert sorted(statsd.drain()) == sorted(f"nodepool.{line}" for line in lines)


# -- the registry, and statsd on a real socket

LEVEL = registry.Metric("level", registry.MetricKind.GAUGE, ("where",), "A gauge.", "level.{where}")
EVENTS = registry.Metric("events", registry.MetricKind.COUNTER, ("where",), "A counter.", "events.{where}")
WORK = registry.Metric("work", registry.MetricKind.TIMER, (), "A timer.", "work", buckets=(0.1, 1.0))
A, B, C = (LEVEL.series(where) for where in "abc")


@pytest.fixture
def server() -> Iterator[StatsdServer]:
    with StatsdServer() as running:
        yield running


@pytest.fixture
def client(server: StatsdServer) -> Iterator[registry.StatsdClient]:
    made = registry.get_client(server.environ)
    assert made is not None
    yield made
    made.close()


def test_registry(server: StatsdServer, client: registry.StatsdClient) -> None:
    """It has the sums, statsd gets what is added; a value falls into the first bucket whose bound is not below it."""
    metrics = registry.Registry(lambda: client)
    metrics.set(A, 3)
    metrics.set(A, 2)
    metrics.count(EVENTS.series("a"))
    metrics.count(EVENTS.series("a"), 4)
    for seconds in (0.05, 0.1, 0.5):
        metrics.time(WORK.series(), seconds)
    before = metrics.snapshot()
    metrics.time(WORK.series(), 20.0)
    assert before == {A: 2, EVENTS.series("a"): 5, WORK.series(): registry.Distribution(3, 0.65, [2, 1, 0])}
    assert metrics.snapshot()[WORK.series()] == registry.Distribution(4, 20.65, [2, 1, 1])
    times = [one for ms in (50, 100, 500, 20_000) for one in (f"work:{ms}.000000|ms", "work:1|c")]
    assert server.drain() == ["level.a:3|g", "level.a:2|g", "events.a:1|c", "events.a:4|c", *times]
    with pytest.raises(TypeError, match="where"):
        LEVEL.series()


def test_bounds(caplog: pytest.LogCaptureFixture) -> None:
    """Labels come from other programs: what is kept has a bound, and the log says so once; a group is kept whole."""
    metrics = registry.Registry()
    for number in range(registry.MAX_SERIES + 3):
        metrics.count(EVENTS.series(str(number)))
    assert len(metrics.snapshot()) == registry.MAX_SERIES
    text = f"Metric events has {registry.MAX_SERIES} series: no more are kept"
    assert [record.getMessage() for record in caplog.records] == [text]
    many = {LEVEL.series(str(number)): 1.0 for number in range(registry.MAX_SERIES + 3)}
    metrics.replace("group", many)
    assert len(metrics.snapshot()) == 2 * registry.MAX_SERIES + 3


@rows(__file__, "test_environment")
def test_environment(environ: dict[str, str], place: list[Any] | None, caplog: pytest.LogCaptureFixture) -> None:
    """The variable that is missing has a default; a port that is none is named in the log, and there are no metrics."""
    client = registry.get_client(environ)
    assert (client and [client.host, client.port]) == place
    assert ("STATSD_PORT" in caplog.text) is (place is None and bool(environ.get("STATSD_PORT")))
    if client is not None:
        client.close()


def test_wire_format(server: StatsdServer, client: registry.StatsdClient) -> None:
    """No name can make the sender fail; gauges are grouped, and no datagram is larger than a network frame."""
    client.gauge("a", 3)
    client.incr("b")
    client.timing("c", 12.5)
    client.gauge("größe\ud800", 1)
    client.gauges({})
    client.gauge("x" * 100_000, 1)
    assert server.drain() == ["a:3|g", "b:1|c", "c:12.500000|ms", "größe?:1|g"]
    with ThreadPoolExecutor(4) as threads:
        for place in "abcd":
            threads.submit(client.gauges, {f"nodepool.label.{place}-{i}.nodes.ready": 1.0 for i in range(100)})
    expected = sorted(f"nodepool.label.{place}-{i}.nodes.ready:1.0|g" for place in "abcd" for i in range(100))
    assert sorted(server.drain()) == expected
    assert len(server.datagrams) < 40
    assert max(map(len, server.datagrams)) <= registry.MAX_DATAGRAM_BYTES


def test_trouble_is_none_of_the_sender(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A name that cannot be resolved is logged once, and found later; a server that is down, or a closed client."""

    def broken(*args: object, **kwargs: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with StatsdServer() as server:
        with monkeypatch.context() as patch:
            patch.setattr(socket, "getaddrinfo", broken)
            client = registry.get_client(server.environ)
            assert client is not None
            assert not client.resolve()
            client.gauge("lost", 1)
        assert (len(caplog.records), client.resolve()) == (1, True)
        client.gauge("found", 1)
        assert server.drain() == ["found:1|g"]
    for _ in range(3):
        client.gauge("x", 1)
    client.close()
    client.gauge("x", 1)
    client.close()
    assert len(caplog.records) == 1


def test_groups(server: StatsdServer, client: registry.StatsdClient) -> None:
    """A gauge that is not there any more is 0 for statsd, once, and not kept; a forgotten group is not sent again."""
    metrics = registry.Registry(lambda: client)

    def sent_by(group: str, values: dict[registry.Series, float]) -> set[str]:
        metrics.replace(group, values)
        return set(server.drain())

    assert sent_by("group", {A: 1, B: 2, C: 0}) == {"level.a:1|g", "level.b:2|g", "level.c:0|g"}
    assert sent_by("group", {A: 5}) == {"level.a:5|g", "level.b:0|g"}
    assert (sent_by("group", {A: 5}), metrics.snapshot()) == ({"level.a:5|g"}, {A: 5})
    assert sent_by("other", {B: 1}) == {"level.b:1|g"}
    for _ in range(2):
        metrics.forget("group")
    assert (sent_by("group", {}), metrics.snapshot()) == (set(), {B: 1})
