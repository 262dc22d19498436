# SPDX-License-Identifier: Apache-2.0
"""Snapshots, and the stream of events: messages, hub, a real server with clients that read, come back, or do not."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import httpx2 as httpx
import pytest

from nodepool.clock import monotonic, wall_time
from nodepool.fast_json import loads
from nodepool.model.image import NO_IMAGES
from nodepool.model.node import Node
from nodepool.model.status import BuilderStatus
from nodepool.plan.observed import NodeIndex, Observed
from nodepool.web.changes import Access, Actions
from nodepool.web.logins import Tokens
from nodepool.web.server import WebServer
from nodepool.web.snapshot import LIFETIME_SECONDS, MOST_IDS, RecordKind, SnapshotMaker, WebSnapshot
from nodepool.web.stream import EventHub
from tests.support.manual_clock import ManualClock
from tests.support.wait import wait_for
from tests.support.web_site import WebSite
from tests.support.web_tokens import authenticator, operator_rule, token
from tests.unit.web.rig import SECONDS, GuardedSite, bearer, serving, set_constants

PATH = "/api/v1/events/stream"
HELLO = ("hello", {"seq": 0, "version": "1.2.3", "snapshot": 0})


class Reader:
    """Reads the messages of an answer."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._lines = answer.iter_lines()
        #: Of the last message.
        self.last_id = ""

    def fields(self) -> dict[str, str]:
        """Of the next message; empty = the stream ended."""
        found: dict[str, str] = {}
        for line in self._lines:
            if not line and found:
                break
            name, _, value = line.partition(": ")
            found[name] = value
        self.last_id = found.get("id", self.last_id)
        return found

    def next(self) -> tuple[str, Mapping[str, Any]]:
        """Name and content of the next message."""
        fields = self.fields()
        return fields["event"], loads(fields["data"].encode())


@contextmanager
def viewing(server: WebServer, query: str = "", **headers: str) -> Iterator[Reader]:
    """A client of the stream."""
    url = f"http://127.0.0.1:{server.port}{PATH}{query}"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with httpx.Client(timeout=SECONDS) as client, client.stream("GET", url, headers=named) as answer:
        yield Reader(answer)


def test_stream_of_changes() -> None:
    """WP-60, WP-63: no part of the way keeps or packs what is sent; a text of another program ends no stream."""
    site = WebSite()
    with serving(site) as server:
        with viewing(server, accept_encoding="gzip") as reader:
            headers = reader.answer.headers
            assert headers["content-type"].startswith("text/event-stream")
            assert (headers["cache-control"], headers["x-accel-buffering"]) == ("no-store", "no")
            assert "content-encoding" not in headers
            assert "default-src 'self'" in headers["content-security-policy"]
            assert reader.next() == HELLO
            site.snapshots.changed = {RecordKind.NODES: frozenset({"\ud800"})}
            assert reader.fields()["event"] == "nodes"
            first_id = reader.last_id
            site.snapshots.changed = {RecordKind.REQUESTS: frozenset({"200-1"})}
            assert reader.next() == ("requests", {"seq": 2, "count": 1, "ids": ["200-1"]})
            assert reader.last_id.endswith("-2")
        hello = ("hello", {**HELLO[1], "seq": 2})
        for last_id, missed in ((reader.last_id, False), (first_id, True), ("0-2", True), ("", True)):
            with viewing(server, last_event_id=last_id) as later:
                assert later.next() == hello
                if missed:
                    assert later.next() == ("reset", {"seq": 2})


def test_live_parts() -> None:
    """WP-50, WP-60: a page gets its live part, made once for all its viewers, when records that it shows change."""
    site = WebSite()
    nodes, requests = {RecordKind.NODES: frozenset({"1"})}, {RecordKind.REQUESTS: frozenset({"1"})}
    with serving(site) as server, ExitStack() as stack:
        places = ["nodes%3Fstate=ready", "nodes%3Fstate=ready", "requests/a%252Fb", "nodes%3Fstate=no", "login"]
        readers = [stack.enter_context(viewing(server, f"?page={place}")) for place in places]
        assert [reader.next()[0] for reader in readers] == ["hello"] * len(places)
        # At first it is not known what a page shows.
        site.snapshots.changed = requests
        parts = [reader.next() for reader in readers[:4]]
        texts = ["Nothing is like that.", "Nothing is like that.", "There is no request a/b.", "The parameter"]
        assert all(name == "part" and text in part["html"] for (name, part), text in zip(parts, texts, strict=True))
        assert 'hx-get="?state=ready"' in parts[0][1]["html"]
        assert parts[0] == parts[1]
        assert readers[4].next()[0] == "requests", "there is no such page"
        node = Node("small", "0000000001")
        node.state = "ready"
        site.snapshots.snapshot = WebSnapshot(1, Observed(1_000.0, nodes={node.key: node}))
        site.snapshots.changed = nodes
        assert [readers[0].next()[1]["seq"], readers[4].next()[1]["seq"]] == [2, 2]
        site.snapshots.changed = requests
        assert [readers[2].next()[1]["seq"], readers[4].next()[1]["seq"]] == [3, 3]
        # Nothing that it shows has changed: only a new viewer, whose page may be another one, makes it be sent.
        site.snapshots.changed = nodes
        assert readers[4].next()[1]["seq"] == 4
        with viewing(server, f"?page={places[0]}") as new:
            assert new.next()[0] == "hello"
            site.snapshots.changed = nodes
            assert [new.next()[1]["seq"], readers[0].next()[1]["seq"]] == [5, 5]


def test_changes_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-61: messages of changes have a least distance."""
    set_constants(monkeypatch, EventHub, LOOK_SECONDS=0.11, CHANGES_SECONDS=0.5)
    site = WebSite()
    with serving(site) as server, viewing(server) as reader:
        assert reader.next() == HELLO
        times = []
        for number in ("1", "2"):
            site.snapshots.changed = {RecordKind.NODES: frozenset({number})}
            assert reader.next()[1]["ids"] == [number]
            times.append(monotonic())
        assert times[1] - times[0] > 0.4


def test_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-60: comments keep the connection alive."""
    set_constants(monkeypatch, EventHub, PING_SECONDS=0.1)
    with serving() as server, viewing(server) as reader:
        assert (reader.next(), reader.fields()) == (HELLO, {"": "ping"})


def test_ends_with_the_login(caplog: pytest.LogCaptureFixture) -> None:
    """WP-65: in order, so that the browser comes back and has to log in."""
    # Accepted by the skew of clocks; the login of its stream ends after a second.
    late = Tokens([authenticator(skew=3600)], [operator_rule()])
    site = GuardedSite(access=Access(late, Actions(MagicMock(), MagicMock()), require_login=True))
    with serving(site) as server, viewing(server, **bearer(token(exp=int(wall_time())))) as reader:
        assert reader.next()[0] == "hello"
        while reader.fields():
            pass
    assert "Traceback" not in caplog.text
    assert "ASGI" not in caplog.text


def test_server_stops_and_serves_again(caplog: pytest.LogCaptureFixture) -> None:
    """WP-65: streams end by themselves, at once. A viewer of the server before has to read everything anew."""
    site = WebSite()
    app = site.make_app()
    headers: dict[str, str] = {}
    for expected in (["hello"], ["hello", "reset"]):
        with caplog.at_level(logging.ERROR), serving(lambda: app) as server, viewing(server, **headers) as reader:
            assert [reader.next()[0] for _ in expected] == expected
            headers = {"last_event_id": reader.last_id}
            server.stop()
            assert reader.fields() == {}
            server.join(SECONDS)
    assert caplog.messages == []


def test_too_many_viewers(monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-64: 503, until another one leaves."""
    set_constants(monkeypatch, EventHub, MOST_VIEWERS=1)
    with serving() as server:
        with viewing(server) as reader:
            assert reader.next()[0] == "hello"
            with viewing(server) as refused:
                assert refused.answer.status_code == 503
                assert refused.answer.headers["content-type"] == "application/problem+json"
                assert refused.answer.headers["retry-after"] == "10"

        def comes_in() -> bool:
            with viewing(server) as later:
                return later.answer.status_code == 200

        wait_for("the place of the one that left is free", comes_in)


@pytest.mark.parametrize("stops", [False, True])
def test_slow_viewer(stops: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """WP-64, WP-65: it is dropped, and only that one; the end of the server waits no longer for it than for others."""
    set_constants(monkeypatch, EventHub, LOOK_SECONDS=0.001, CHANGES_SECONDS=0.0, MOST_BEHIND=20 if stops else 5)
    if stops:
        set_constants(monkeypatch, WebServer, GRACE_SECONDS=0.1)
    site = WebSite()
    large = {RecordKind.NODES: frozenset(f"{number:05}" + "x" * 5_000 for number in range(50))}
    site.snapshots.take_changes = lambda: large  # type: ignore[method-assign]
    with (
        caplog.at_level(logging.INFO, "nodepool.web"),
        serving(site) as server,
        closing(socket.socket()) as slow,
    ):
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(SECONDS)
        slow.connect(("127.0.0.1", server.port))
        slow.sendall(f"GET {PATH} HTTP/1.1\r\nHost: nodepool.example\r\n\r\n".encode())
        wait_for("it is dropped", lambda: any("is dropped" in message for message in caplog.messages))
        if stops:
            server.stop()
            server.join(SECONDS / 2)
            assert not server.is_alive()
        else:
            # The stream ends properly: what was on the way, then the last chunk.
            received = b""
            while not received.endswith(b"0\r\n\r\n"):
                chunk = slow.recv(1 << 20)
                assert chunk, "the connection was cut"
                received = (received + chunk)[-100:]
            with viewing(server) as reader:
                assert reader.next()[0] == "hello"
    # Without the client of ZooKeeper: a session ends where the machine stands still.
    own = [record for record in caplog.records if record.name.startswith("nodepool")]
    assert not [record for record in own if record.levelno >= logging.WARNING]


# -- snapshots


class Records:
    """A cache of records that a test fills."""

    def __init__(self, shown: Any = None) -> None:
        self.shown = {} if shown is None else shown
        self.locked: frozenset[str] = frozenset()
        self.refreshed = 0
        self.listeners: list[Callable[..., None]] = []

    def values(self) -> list[Any]:
        return []

    def snapshot(self) -> Any:
        return dict(self.shown) if isinstance(self.shown, dict) else self.shown

    def get(self, record_id: str) -> Any:
        return self.shown.get(record_id)

    def locked_ids(self) -> frozenset[str]:
        return self.locked

    def refresh_stale(self) -> None:
        self.refreshed += 1

    def add_listener(self, listener: Callable[..., None]) -> None:
        self.listeners.append(listener)


class Place:
    """A maker of snapshots, and what it looks at."""

    def __init__(self) -> None:
        self.nodes, self.clock, self.time = Records(), ManualClock().rules(), ManualClock().rules("time")
        others = {name: Records() for name in ("requests", "pools", "maintenance")}
        self.caches: Any = SimpleNamespace(nodes=self.nodes, images=Records(NO_IMAGES), ready=True, **others)
        ready = threading.Event()
        ready.set()
        self.status: Any = SimpleNamespace(
            ready=ready, launchers=list, pools=list, builders=BuilderStatus, add_listener=lambda _listener: None
        )
        self.maker = SnapshotMaker(cast(Any, self.caches), cast(Any, self.status))

    def put_node(self, node_id: str) -> Node:
        node = Node("small")
        node.id = node_id
        self.nodes.shown[node_id] = node
        self.notify(node_id)
        return node

    def notify(self, node_id: str) -> None:
        for listener in self.nodes.listeners:
            listener(node_id)


@pytest.fixture
def place() -> Place:
    return Place()


def test_shows_what_the_caches_have(place: Place) -> None:
    """In whatever order the cache has read nodes, they are in that of their ids."""
    nodes = {node_id: place.put_node(node_id) for node_id in ("0000000003", "0000000001", "0000000002")}
    place.nodes.locked = frozenset({"0000000001"})
    seen = place.maker.latest().observed
    assert (seen.nodes, list(seen.nodes)) == (nodes, sorted(nodes))
    assert seen.locked == {"0000000001"}
    assert seen.now == 1_000.0


def test_is_made_anew_once_in_its_lifetime(place: Place) -> None:
    first = place.maker.latest()
    assert place.maker.latest() is first
    place.put_node("0000000001")
    assert place.maker.latest().number == first.number, "it is young enough"
    place.clock.now += LIFETIME_SECONDS / 2
    assert place.maker.latest().number == first.number
    place.clock.now += LIFETIME_SECONDS / 2
    second = place.maker.latest()
    assert (second.number, set(second.observed.nodes)) == (first.number + 1, {"0000000001"})
    place.put_node("0000000002")
    place.clock.now += LIFETIME_SECONDS / 2
    assert place.maker.latest(LIFETIME_SECONDS / 2).number == second.number + 1, "a younger one was asked for"
    time_passes = place.maker.latest()
    place.time.now += 60
    place.clock.now += 60
    later = place.maker.latest()
    assert (later.number, later.observed.now) == (time_passes.number, 1_060.0), "only the time has changed"
    assert later.observed.nodes is time_passes.observed.nodes


def test_index_follows_changes(place: Place) -> None:
    """Whatever changed, came and went, also more than is noted: nodes and index are those that are made anew."""
    moves = ["ready", "in-use", "deleting", "hold", None]
    for step in range(40):
        for number in range(20):
            if (step * 7 + number * 3) % 10 < 3 and (state := moves[(step + number) % 5]) is not None:
                node = place.put_node(f"{number:010d}")
                node.provider, node.state = f"cloud-{number % 3}", state
                node.allocated_to = f"100-{(step + number) % 4}" if number % 2 else None
            elif (step + number) % 11 == 0:
                place.nodes.shown.pop(f"{number:010d}", None)
                place.notify(f"{number:010d}")
        if step == 20:
            for number in range(100, 100 + MOST_IDS):
                place.put_node(f"{number:010d}")
        elif step == 30:
            place.nodes.shown.clear()
            place.notify("")
        place.put_node("0000000099")
        place.clock.now += LIFETIME_SECONDS
        seen = place.maker.latest().observed
        assert list(seen.nodes.items()) == sorted(place.nodes.shown.items())
        assert seen.node_index == NodeIndex.of(seen.nodes.values())


def test_not_complete(place: Place) -> None:
    """Viewers see that what they see is old. Status records are part of what is complete; locks are not asked for."""
    first = place.maker.latest()
    place.caches.ready = False
    place.time.now += 60
    second = place.maker.latest()
    assert (first.complete, second.complete, second.number) == (True, False, first.number + 1)
    assert (second.observed.now, place.maker.complete) == (1_060.0, False)
    place.maker.refresh()
    assert place.nodes.refreshed == 0
    place.caches.ready = True
    place.maker.refresh()
    assert (place.maker.complete, place.nodes.refreshed) == (True, 1)
    place.status.ready.clear()
    assert not place.maker.complete


def test_changes_that_are_not_taken(place: Place) -> None:
    """They stay small, although there is no viewer for weeks."""
    for number in range(2 * MOST_IDS):
        place.put_node(str(number))
        place.clock.now += LIFETIME_SECONDS
        place.maker.latest()
        place.nodes.shown.clear()
    assert place.maker.take_changes()[RecordKind.NODES] == {""}
    for number in range(2 * MOST_IDS):
        place.put_node(str(number))
    place.clock.now += LIFETIME_SECONDS
    place.maker.latest()
    assert place.maker.take_changes()[RecordKind.NODES] == {""}
