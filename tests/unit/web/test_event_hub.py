# SPDX-License-Identifier: Apache-2.0
"""`EventHub`: who is told what, without a server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from nodepool.model.event import Event
from nodepool.model.status import LauncherStatus
from nodepool.plan.observed import Observed
from nodepool.web import stream as web_stream
from nodepool.web.snapshot import RecordKind, WebSnapshot
from nodepool.web.stream import (
    CHANGES_SECONDS,
    MOST_BEHIND,
    MOST_EVENTS,
    MOST_MISSED,
    MOST_VIEWERS,
    EventHub,
    Message,
    TooManyViewers,
    Viewer,
    running,
)
from tests.support.manual_clock import ManualClock
from tests.support.web_site import GivenSnapshots

SECONDS = 45.0


class Place:
    """A hub, and what it looks at."""

    def __init__(self) -> None:
        self.snapshots = GivenSnapshots(WebSnapshot(0, Observed(1_000.0)))
        self.clock = ManualClock()
        self.hub = EventHub(self.snapshots, "1.2.3", self.clock)

    async def change(self, kind: RecordKind, *ids: str) -> None:
        """Something changes, and the hub looks when it may tell."""
        self.snapshots.changed = {kind: frozenset(ids)}
        self.clock.pass_seconds(CHANGES_SECONDS)
        await self.hub.look()

    async def happen(self, *numbers: int) -> None:
        """Events of a launcher, besides which it has none, and the hub looks."""
        events = tuple(Event(1_000.0 + n, "l1", f"node {n}", "held") for n in numbers)
        launchers = (LauncherStatus(host="l1", pid=7, events=events),)
        self.snapshots.snapshot = replace(self.snapshots.snapshot, launchers=launchers)
        await self.hub.look()

    async def fill(self, messages: int) -> None:
        """As many messages."""
        for number in range(messages):
            await self.change(RecordKind.NODES, str(number))

    async def told(self, viewer: Viewer, count: int) -> list[Message]:
        """The next messages of a viewer."""
        found: list[Message] = []
        messages = self.hub.messages(viewer)
        while len(found) < count:
            found.append(await anext(messages))
        # It goes on behind the last one, as when that was sent.
        viewer.seq = found[-1].seq if found else viewer.seq
        return found


def with_hub(scenario: Callable[[Place], Awaitable[None]]) -> None:
    async def run() -> None:
        await asyncio.wait_for(scenario(Place()), SECONDS)

    asyncio.run(run())


def names(messages: Sequence[Message]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(message.name, message.data) for message in messages]


def test_first_messages() -> None:
    """WP-60: hello, then what changed and what happened, each with the next number."""

    async def scenario(place: Place) -> None:
        viewer, first = await place.hub.join(None)
        assert names(first) == [("hello", {"seq": 0, "version": "1.2.3", "snapshot": 0})]
        await place.change(RecordKind.NODES, "2", "1")
        await place.happen(5)
        changed, event = await place.told(viewer, 2)
        assert (changed.name, changed.data) == ("nodes", {"seq": 1, "count": 2, "ids": ["1", "2"]})
        assert event.name == "event"
        assert event.data == {
            "seq": 2,
            "at": 1_005.0,
            "actor": "l1",
            "subject": "node 5",
            "what": "held",
            "code": "",
            "text": "",
            "count": 1,
        }

    with_hub(scenario)


def test_changes_are_joined() -> None:
    """WP-61: messages of changes have a least distance; nothing is lost meanwhile."""

    async def scenario(place: Place) -> None:
        viewer, _ = await place.hub.join(None)
        await place.change(RecordKind.NODES, "1")
        place.snapshots.changed = {RecordKind.NODES: frozenset({"2"})}
        place.clock.pass_seconds(CHANGES_SECONDS / 2)
        await place.hub.look()
        assert [message.data["ids"] for message in await place.told(viewer, 1)] == [["1"]]
        place.clock.pass_seconds(CHANGES_SECONDS)
        await place.hub.look()
        assert [message.data["ids"] for message in await place.told(viewer, 1)] == [["2"]]

    with_hub(scenario)


def test_newcomer_is_not_told_what_was() -> None:
    """What happened while nobody looked is for those who come back."""

    async def scenario(place: Place) -> None:
        old, _ = await place.hub.join(None)
        place.hub.leave(old)
        place.snapshots.changed = {RecordKind.NODES: frozenset({"1"})}
        place.clock.pass_seconds(CHANGES_SECONDS)
        viewer, first = await place.hub.join(None)
        assert names(first) == [("hello", {"seq": 1, "version": "1.2.3", "snapshot": 0})]
        await place.change(RecordKind.IMAGES, "debian")
        assert [message.name for message in await place.told(viewer, 1)] == ["images"]

    with_hub(scenario)


def test_resumes() -> None:
    """WP-63: a viewer that comes back gets what it missed, also of the time in which nobody looked."""

    async def scenario(place: Place) -> None:
        viewer, _ = await place.hub.join(None)
        await place.change(RecordKind.NODES, "1")
        await place.change(RecordKind.NODES, "2")
        place.hub.leave(viewer)
        place.snapshots.changed = {RecordKind.NODES: frozenset({"3"})}
        place.clock.pass_seconds(CHANGES_SECONDS)
        back, first = await place.hub.join(f"{place.hub.boot}-1")
        assert names(first) == [("hello", {"seq": 1, "version": "1.2.3", "snapshot": 0})]
        assert [message.data["ids"] for message in await place.told(back, 2)] == [["2"], ["3"]]

    with_hub(scenario)


@pytest.mark.parametrize(
    "last_id", ["", "x", "{boot}-", "{boot}-x", "{boot}-²", "{boot}-9", "{boot}--1", "0-1", "9" * 99]
)
def test_cannot_resume(last_id: str) -> None:
    """WP-63: e.g. another process had the port. It is told to read everything anew."""

    async def scenario(place: Place) -> None:
        await place.fill(2)
        _, first = await place.hub.join(last_id.replace("{boot}", place.hub.boot))
        assert names(first) == [("hello", {"seq": 2, "version": "1.2.3", "snapshot": 0}), ("reset", {"seq": 2})]

    with_hub(scenario)


@pytest.mark.parametrize(("more", "resumes"), [(0, True), (1, False)])
def test_missed_too_much(more: int, resumes: bool) -> None:
    async def scenario(place: Place) -> None:
        await place.fill(MOST_MISSED + more)
        _, first = await place.hub.join(f"{place.hub.boot}-0")
        assert [message.name for message in first] == (["hello"] if resumes else ["hello", "reset"])

    with_hub(scenario)


def test_too_many_events() -> None:
    """WP-63: instead of very many events viewers are told to read everything anew."""

    async def scenario(place: Place) -> None:
        await place.happen(0)
        viewer, _ = await place.hub.join(None)
        await place.happen(*range(MOST_EVENTS + 2))
        assert names(await place.told(viewer, 1)) == [("reset", {"seq": viewer.seq})]

    with_hub(scenario)


def test_slow_viewer() -> None:
    """WP-64: it is dropped, the others are not, and its stream ends."""

    async def scenario(place: Place) -> None:
        slow, _ = await place.hub.join(None)
        stream = place.hub.messages(slow)
        await place.fill(1)
        # It is being sent.
        await anext(stream)
        await place.fill(MOST_BEHIND)
        other, _ = await place.hub.join(None)
        await place.fill(1)
        assert place.hub.viewers == 1
        assert [message async for message in stream] == []
        assert len(await place.told(other, 1)) == 1

    with_hub(scenario)


def test_too_many_viewers() -> None:
    """WP-64."""

    async def scenario(place: Place) -> None:
        viewers = [(await place.hub.join(None))[0] for _ in range(MOST_VIEWERS)]
        with pytest.raises(TooManyViewers):
            await place.hub.join(None)
        place.hub.leave(viewers[0])
        await place.hub.join(None)

    with_hub(scenario)


def test_streams_of_a_few_clients() -> None:
    """WP-64: they keep nobody else from having one."""

    async def scenario(place: Place) -> None:
        first, _ = await place.hub.join(None, "192.0.2.1")
        greedy = [(await place.hub.join(None, f"192.0.2.{2 + n % 2}"))[0] for n in range(MOST_VIEWERS - 1)]
        other, _ = await place.hub.join(None, "192.0.2.9")
        assert place.hub.viewers == MOST_VIEWERS
        assert [viewer for viewer in greedy if viewer.ended] == greedy[:1]
        assert not first.ended
        assert not other.ended
        with pytest.raises(TooManyViewers):
            await place.hub.join(None, "192.0.2.3")

    with_hub(scenario)


def test_stop() -> None:
    """WP-65: all streams end at once, and there are no new ones."""

    async def scenario(place: Place) -> None:
        viewer, _ = await place.hub.join(None)

        async def read() -> list[Message]:
            return [message async for message in place.hub.messages(viewer)]

        reading = asyncio.create_task(read())
        await asyncio.sleep(0)
        place.hub.stop()
        assert await reading == []
        with pytest.raises(TooManyViewers):
            await place.hub.join(None)

    with_hub(scenario)


def test_locked_nodes_are_read_before_each_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-61: what changes while somebody has the lock of a node is told as soon as all else."""
    monkeypatch.setattr(web_stream, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(web_stream, "READ_SECONDS", 0.0)

    async def scenario(place: Place) -> None:
        def refresh() -> None:
            place.snapshots.changed = {RecordKind.NODES: frozenset({"1"})}
            place.clock.pass_seconds(CHANGES_SECONDS)

        monkeypatch.setattr(place.snapshots, "refresh", refresh)
        async with running(place.hub):
            viewer, _ = await place.hub.join(None)
            assert [message.data["ids"] for message in await place.told(viewer, 1)] == [["1"]]

    with_hub(scenario)


def test_sleeps_without_viewers(monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-65: nobody asks for snapshots then; changes wait until somebody does."""
    monkeypatch.setattr(web_stream, "LOOK_SECONDS", 0.0)

    async def scenario(place: Place) -> None:
        looks = 0
        latest = place.snapshots.latest

        def counted(lifetime: float) -> WebSnapshot:
            nonlocal looks
            looks += 1
            return latest(lifetime)

        monkeypatch.setattr(place.snapshots, "latest", counted)
        async with running(place.hub):
            viewer, _ = await place.hub.join(None)
            place.snapshots.changed = {RecordKind.NODES: frozenset({"1"})}
            place.clock.pass_seconds(CHANGES_SECONDS)
            assert len(await place.told(viewer, 1)) == 1
            place.hub.leave(viewer)
            # The look that was under way ends, then the task waits for a viewer.
            await place.hub.look()
            for _ in range(100):
                await asyncio.sleep(0)
            before = looks
            for _ in range(100):
                await asyncio.sleep(0)
            assert looks == before

    with_hub(scenario)


def test_error_of_a_look(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and the hub goes on; a viewer may come meanwhile."""
    monkeypatch.setattr(web_stream, "LOOK_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(web_stream, "LOOK_SECONDS", 0.0)

    async def scenario(place: Place) -> None:
        errors = [ValueError("first"), ValueError("second")]
        latest = place.snapshots.latest

        def failing(lifetime: float) -> WebSnapshot:
            if errors:
                raise errors.pop(0)
            return latest(lifetime)

        monkeypatch.setattr(place.snapshots, "latest", failing)
        async with running(place.hub):
            viewer, _ = await place.hub.join(None)
            place.snapshots.changed = {RecordKind.NODES: frozenset({"1"})}
            place.clock.pass_seconds(CHANGES_SECONDS)
            assert len(await place.told(viewer, 1)) == 1

    with caplog.at_level(logging.ERROR, "nodepool.web"):
        with_hub(scenario)
    assert "first" in caplog.text
    assert "second" in caplog.text
