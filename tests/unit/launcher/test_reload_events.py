# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from nodepool.launcher.events import MAX_EVENTS, EventRing, ReloadEvents
from nodepool.model.status import ReloadStatus


def reloaded(ok: bool, *texts: str) -> tuple[ReloadStatus | None, list[tuple[str, str, str]]]:
    ring = EventRing(100, lambda: 5.0)
    events = ReloadEvents(ring, "l1", "/etc/np.yaml", lambda: 5.0)
    assert events.last is None
    events.ended(ok, texts)
    return events.last, [(event.subject, event.what, event.text) for event in ring.last(100)]


def test_each_change_is_an_event() -> None:
    last, events = reloaded(True, "provider a added", "label x changed: min-ready: 1 -> 2")
    assert last == ReloadStatus(5.0, True, "provider a added; label x changed: min-ready: 1 -> 2")
    assert events == [
        ("configuration np.yaml", "reloaded", "provider a added"),
        ("configuration np.yaml", "reloaded", "label x changed: min-ready: 1 -> 2"),
    ]


def test_without_any_change() -> None:
    assert reloaded(True)[1] == [("configuration np.yaml", "reloaded", "no key has another value")]


def test_a_refused_one() -> None:
    last, events = reloaded(False, "np.yaml:3: labels: unknown key")
    assert last == ReloadStatus(5.0, False, "np.yaml:3: labels: unknown key")
    assert [what for _, what, _ in events] == ["reload failed"]


def test_many_changes_do_not_push_out_other_events() -> None:
    _, events = reloaded(True, *[f"label l{number} added" for number in range(500)])
    assert len(events) == MAX_EVENTS + 1
    assert events[-1][2] == f"and {500 - MAX_EVENTS} more; the log of the launcher has all"
