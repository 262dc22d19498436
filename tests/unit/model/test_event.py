# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest

from nodepool.model.event import MAX_TEXT, Event, What, clipped
from nodepool.model.record import InvalidRecord

DOWN = Event(1763809000.5, "lab/rack-1", "host zuul@node9:22", What.DOWN.value, "", "cannot connect")


def test_written_and_read() -> None:
    assert Event.of_record(json.loads(json.dumps(DOWN.to_dict()))) == DOWN


def test_of_another_version() -> None:
    assert Event.of_record({"subject": "node 1", "new": 3}) == Event(subject="node 1")
    with pytest.raises(InvalidRecord, match="at is a str"):
        Event.of_record({"at": "now"})


def test_kind_of_the_subject() -> None:
    assert DOWN.kind == "host"
    assert Event().kind == ""


def test_of_another_subject_it_is_the_same() -> None:
    first = Event(1, "c/main", "request 1", "failed", "label.broken", "no flavor", 2)
    second = Event(2, "c/main", "request 2", "failed", "label.broken", "no flavor")
    assert second.repeats(first)
    assert second.joined_to(first) == Event(2, "c/main", "request 2", "failed", "label.broken", "no flavor", 3)


@pytest.mark.parametrize(
    "other",
    [
        Event(1, "c/two", "request 1", "failed", "x", "text"),
        Event(1, "c/main", "node 1", "failed", "x", "text"),
        Event(1, "c/main", "request 1", "declined", "x", "text"),
        Event(1, "c/main", "request 1", "failed", "y", "text"),
        Event(1, "c/main", "request 1", "failed", "x", "another text"),
    ],
)
def test_what_differs_is_another_event(other: Event) -> None:
    assert not other.repeats(Event(1, "c/main", "request 1", "failed", "x", "text"))


def test_texts_are_one_short_line() -> None:
    assert clipped("a\n  b") == "a b"
    assert clipped("x" * MAX_TEXT) == "x" * MAX_TEXT
    assert clipped("x" * (MAX_TEXT + 1)) == "x" * (MAX_TEXT - 3) + "..."
