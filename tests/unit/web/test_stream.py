# SPDX-License-Identifier: Apache-2.0
"""``/api/v1/events/stream`` of a real server, with clients that read, that come back, and that do not read."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2 as httpx
import pytest

from nodepool import fast_json
from nodepool.clock import wall_time
from nodepool.model.event import Event
from nodepool.model.status import LauncherStatus
from nodepool.plan.observed import Observed
from nodepool.web import server as server_module
from nodepool.web import stream
from nodepool.web.app import make_app
from nodepool.web.server import ListenAddress, WebServer
from nodepool.web.snapshot import RecordKind, WebSnapshot
from nodepool.web.tokens import User
from tests.support.wait import wait_for
from tests.support.web_site import WebSite

SECONDS = 45.0
PATH = "/api/v1/events/stream"


@contextmanager
def serving(site: WebSite) -> Iterator[WebServer]:
    """A server thread, which is stopped at the end."""
    thread = WebServer(ListenAddress("127.0.0.1", 0), lambda: make_app(site.site))
    thread.start()
    try:
        assert thread.listening.wait(SECONDS)
        yield thread
    finally:
        thread.stop()
        thread.join(SECONDS)
    assert not thread.is_alive()


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
        return fields["event"], fast_json.loads(fields["data"].encode())


@contextmanager
def viewer(server: WebServer, **headers: str) -> Iterator[Reader]:
    """A client of the stream."""
    url = f"http://127.0.0.1:{server.port}{PATH}"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with httpx.Client(timeout=SECONDS) as client, client.stream("GET", url, headers=named) as answer:
        yield Reader(answer)


def test_told_of_a_change() -> None:
    """WP-60; and no part of the way may keep or pack what is sent."""
    site = WebSite()
    with serving(site) as server, viewer(server, accept_encoding="gzip") as reader:
        headers = reader.answer.headers
        assert headers["content-type"].startswith("text/event-stream")
        assert (headers["cache-control"], headers["x-accel-buffering"]) == ("no-store", "no")
        assert "content-encoding" not in headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert reader.next() == ("hello", {"seq": 0, "version": "1.2.3", "snapshot": 0})
        site.snapshots.changed = {RecordKind.REQUESTS: frozenset({"200-1"})}
        assert reader.next() == ("requests", {"seq": 1, "count": 1, "ids": ["200-1"]})
        assert reader.last_id.endswith("-1")


def test_odd_text() -> None:
    """WP-60: of another program: it ends no stream."""
    told = LauncherStatus(host="launcher-1", events=(Event(2_000.0, "", "node 1", "failed", text="\ud800"),))
    site = WebSite()
    with serving(site) as server, viewer(server) as reader:
        assert reader.next()[0] == "hello"
        site.snapshots.snapshot = WebSnapshot(1, Observed(2_000.0), launchers=(told,))
        assert reader.fields()["event"] == "event"
        site.snapshots.changed = {RecordKind.NODES: frozenset({"1"})}
        assert reader.next()[0] == "nodes"


def test_resumes() -> None:
    """WP-63."""
    site = WebSite()
    with serving(site) as server:
        with viewer(server) as reader:
            assert reader.next()[0] == "hello"
            last_id = reader.last_id
            site.snapshots.changed = {RecordKind.NODES: frozenset({"1"})}
            assert reader.next()[0] == "nodes"
        with viewer(server, last_event_id=last_id) as reader:
            assert reader.next() == ("hello", {"seq": 0, "version": "1.2.3", "snapshot": 0})
            assert reader.next() == ("nodes", {"seq": 1, "count": 1, "ids": ["1"]})
        with viewer(server, last_event_id="of-another-process") as reader:
            assert [reader.next()[0], reader.next()[0]] == ["hello", "reset"]


def test_ping(monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-60: a comment, so that nobody takes the connection for dead."""
    monkeypatch.setattr(stream, "PING_SECONDS", 0.01)
    with serving(WebSite()) as server, viewer(server) as reader:
        assert reader.next()[0] == "hello"
        assert reader.fields() == {"": "ping"}


def test_ends_with_the_login(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """WP-65: in order, so that the browser comes back and is asked to log in."""
    monkeypatch.setattr(stream, "user_of", lambda request: User("alice", operator=False, expires=wall_time()))
    with serving(WebSite()) as server, viewer(server) as reader:
        while reader.fields():
            pass
    assert "Traceback" not in caplog.text
    assert "ASGI" not in caplog.text


def test_server_stops(caplog: pytest.LogCaptureFixture) -> None:
    """WP-65: the streams end by themselves, at once; none has to be cancelled after a time of grace."""
    with caplog.at_level(logging.ERROR), serving(WebSite()) as server, viewer(server) as reader:
        assert reader.next()[0] == "hello"
        server.stop()
        assert reader.fields() == {}
        server.join(SECONDS)
    assert caplog.messages == []


def test_server_serves_again() -> None:
    """A viewer of the server before is told to read everything anew."""
    site = WebSite()
    app = make_app(site.site)
    last_id = ""
    for names in (["hello"], ["hello", "reset"]):
        thread = WebServer(ListenAddress("127.0.0.1", 0), lambda: app)
        thread.start()
        assert thread.listening.wait(SECONDS)
        with viewer(thread, **({"last_event_id": last_id} if last_id else {})) as reader:
            assert [reader.next()[0] for _ in names] == names
            last_id = reader.last_id
            thread.stop()
        thread.join(SECONDS)
        assert not thread.is_alive()


def test_too_many_viewers(monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-64: 503, until another one leaves."""
    monkeypatch.setattr(stream, "MOST_VIEWERS", 1)
    with serving(WebSite()) as server:
        with viewer(server) as reader:
            assert reader.next()[0] == "hello"
            with viewer(server) as refused:
                assert refused.answer.status_code == 503
                assert refused.answer.headers["content-type"] == "application/problem+json"
                assert refused.answer.headers["retry-after"] == "10"

        def comes_in() -> bool:
            with viewer(server) as later:
                return later.answer.status_code == 200

        wait_for("the place of the one that left is free", comes_in)


@contextmanager
def reading_nothing(server: WebServer) -> Iterator[socket.socket]:
    """A client that asks for the stream, and then takes little of it."""
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(SECONDS)
        slow.connect(("127.0.0.1", server.port))
        slow.sendall(f"GET {PATH} HTTP/1.1\r\nHost: nodepool.example\r\n\r\n".encode())
        yield slow


@pytest.fixture
def floods(monkeypatch: pytest.MonkeyPatch) -> WebSite:
    """A site that has a large message for its viewers again and again."""
    monkeypatch.setattr(stream, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(stream, "CHANGES_SECONDS", 0.0)
    site = WebSite()
    many = {RecordKind.NODES: frozenset(f"{number:05}" + "x" * 5_000 for number in range(50))}
    monkeypatch.setattr(site.snapshots, "take_changes", lambda: many)
    return site


def test_slow_viewer(floods: WebSite, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """WP-64: one that does not read is dropped, and only that one."""
    monkeypatch.setattr(stream, "MOST_BEHIND", 5)
    with caplog.at_level(logging.INFO, "nodepool.web"), serving(floods) as server:
        with reading_nothing(server) as slow:
            wait_for("it is dropped", lambda: any("is dropped" in message for message in caplog.messages))
            # The stream ends properly: what was on the way, then the last chunk.
            received = b""
            while not received.endswith(b"0\r\n\r\n"):
                chunk = slow.recv(1 << 20)
                assert chunk, "the connection was cut"
                received = (received + chunk)[-100:]
        with viewer(server) as reader:
            assert reader.next()[0] == "hello"


def test_server_stops_beside_a_slow_viewer(
    floods: WebSite, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """WP-65: it is waited for no longer than for others, and nothing is an error."""
    monkeypatch.setattr(server_module, "GRACE_SECONDS", 0.1)
    monkeypatch.setattr(server_module, "LAST_SECONDS", SECONDS)
    monkeypatch.setattr(stream, "MOST_BEHIND", 20)
    with caplog.at_level(logging.INFO, "nodepool.web"), serving(floods) as server, reading_nothing(server):
        wait_for("it is far behind", lambda: any("is dropped" in message for message in caplog.messages))
        server.stop()
        server.join(SECONDS / 2)
        assert not server.is_alive()
    # Without the client of ZooKeeper: a session ends where the machine stands still.
    own = [record for record in caplog.records if record.name.startswith("nodepool")]
    assert not [record for record in own if record.levelno >= logging.WARNING]


def test_head() -> None:
    """There is no stream to end."""
    answer = WebSite().client.head(PATH)
    assert (answer.status_code, answer.text) == (200, "")


def test_application_without_a_server() -> None:
    assert WebSite().client.get(PATH).status_code == 503
