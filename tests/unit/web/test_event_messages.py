# SPDX-License-Identifier: Apache-2.0
"""Messages of the stream of events: what is told of changed records and of new events, and for how long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodepool.model.event import Event
from nodepool.model.status import MAX_EVENTS, LauncherStatus
from nodepool.web.snapshot import RecordKind
from nodepool.web.stream import MOST_EVENTS, MOST_GONE, MOST_IDS, Message, MessageLog, NewEvents, of_changes


def event(number: int, at: float | None = None) -> Event:
    return Event(1_000.0 + number if at is None else at, "l1", f"node {number:010}", "held")


def launcher(*events: Event, host: str = "l1") -> LauncherStatus:
    return LauncherStatus(host=host, pid=7, events=events)


class TestChanges:
    def test_ids(self) -> None:
        told = list(of_changes({RecordKind.REQUESTS: {"2", "1"}, RecordKind.NODES: {"3"}}))
        assert told == [("nodes", {"count": 1, "ids": ["3"]}), ("requests", {"count": 2, "ids": ["1", "2"]})]

    def test_many(self) -> None:
        """WP-61: 50 ids at most, and how many there are."""
        ((_, data),) = of_changes({RecordKind.NODES: {f"{n:010}" for n in range(MOST_IDS + 5)}})
        assert (data["count"], len(data["ids"])) == (MOST_IDS + 5, 50)

    def test_any(self) -> None:
        """Which ones is not known."""
        assert list(of_changes({RecordKind.PROVIDERS: {"", "p1"}})) == [("providers", {"count": None, "ids": []})]


class TestMessageLog:
    def test_numbers(self) -> None:
        log = MessageLog(3)
        assert log.missing(0) == 0
        log.add("a", {"x": 1})
        log.add("b", {})
        assert (log.seq, log.missing(0), log.missing(2)) == (2, 2, 0)
        assert log.get(1).data == {"seq": 1, "x": 1}
        assert log.get(2).name == "b"

    def test_forgotten_and_to_come(self) -> None:
        log = MessageLog(3)
        for number in range(5):
            log.add(str(number), {})
        assert log.missing(1) is None
        assert log.missing(2) == 3
        assert log.get(3).name == "2"
        assert log.missing(6) is None


class TestNewEvents:
    """WP-62: each event is told once."""

    def test_once(self) -> None:
        new = NewEvents(since=1_000.0)
        assert new.take([launcher(event(1))]) == [event(1)]
        assert new.take([launcher(event(1))]) == []
        assert new.take([launcher(event(1), event(2))]) == [event(2)]

    def test_history_of_an_unknown_launcher(self) -> None:
        """What was before the first look is not news; what an unknown launcher does later is."""
        new = NewEvents(since=1_005.0)
        assert new.take([launcher(event(4), event(5))]) == [event(5)]
        assert new.take([launcher(event(5)), launcher(event(1), event(6), host="l2")]) == [event(6)]

    def test_in_order_of_time(self) -> None:
        new = NewEvents(since=0.0)
        assert new.take([launcher(event(3)), launcher(event(1), host="l2")]) == [event(1), event(3)]

    def test_late_event(self) -> None:
        """An event may carry the time at which its cause began."""
        new = NewEvents(since=1_000.0)
        new.take([launcher(event(5))])
        assert new.take([launcher(event(5), event(6, at=900.0))]) == [event(6, at=900.0)]

    def test_repetition_has_a_count(self) -> None:
        new = NewEvents(since=0.0)
        new.take([launcher(event(1))])
        joined = event(2).joined_to(event(1))
        assert new.take([launcher(joined)]) == [joined]

    def test_launcher_comes_back(self) -> None:
        """Its record was gone with its session."""
        new = NewEvents(since=0.0)
        new.take([launcher(event(1))])
        new.take([])
        assert new.take([launcher(event(1), event(2))]) == [event(2)]

    def test_launchers_that_went_are_forgotten_at_last(self) -> None:
        new = NewEvents(since=0.0)
        hosts = [launcher(event(1), host=f"l{n}") for n in range(MOST_GONE + 1)]
        new.take(hosts)
        new.take([])
        assert new.take(hosts[:1]) == [event(1)]
        assert new.take(hosts[:2]) == []

    @pytest.mark.parametrize("lost", [True, False])
    def test_overrun(self, lost: bool) -> None:
        """The launcher tells its last events only: some may have come and gone between two looks."""
        new = NewEvents(since=0.0)
        new.take([launcher(*(event(n) for n in range(MAX_EVENTS)))])
        shift = MAX_EVENTS if lost else MAX_EVENTS - 1
        found = new.take([launcher(*(event(n + shift) for n in range(MAX_EVENTS)))])
        assert (found is None) == lost

    def test_overrun_of_long_texts(self) -> None:
        """The list may be shorter, because the record is bounded in bytes."""
        new = NewEvents(since=0.0)
        new.take([launcher(event(1))])
        assert new.take([replace(launcher(event(2)), omitted=5)]) is None

    def test_too_many(self) -> None:
        new = NewEvents(since=0.0)
        assert new.take([launcher(*(event(n) for n in range(MOST_EVENTS + 1)))]) is None
        assert new.take([launcher(*(event(n) for n in range(MOST_EVENTS + 2)))]) == [event(MOST_EVENTS + 1)]


def test_message_is_encoded_once() -> None:
    """However many viewers get it."""
    message = Message(3, "nodes", {"count": 1, "ids": ["0000000001"]})
    assert message.text == b'event: nodes\r\ndata: {"count":1,"ids":["0000000001"]}\r\n\r\n'
    assert message.text is message.text
