# SPDX-License-Identifier: Apache-2.0
"""How long requests waited (rule WP-99)."""

from __future__ import annotations

import pytest

from nodepool.model import states
from nodepool.model.request import NodeRequest
from nodepool.plan.queue import MIN_READY_REQUESTOR
from nodepool.web import snapshot
from nodepool.web.snapshot import WaitSummary, WaitTimes, percentile
from tests.support import observed

NOW = 100_000.0


def ended(number: int, seconds: float, *labels: str, ago: float = 0.0) -> NodeRequest:
    request = observed.request(number, *labels, state=states.FULFILLED)
    request.state_time = NOW - ago
    request.created_time = request.state_time - seconds
    return request


@pytest.mark.parametrize(
    ("values", "percent", "found"),
    [([], 50, None), ([5.0], 95, 5.0), ([1.0, 2.0], 50, 1.0), ([1.0, 2.0, 3.0], 50, 2.0), ([1.0, 9.0], 95, 9.0)],
)
def test_percentile(values: list[float], percent: int, found: float | None) -> None:
    """WP-99: a wait that there was, no mean of two."""
    assert percentile(values, percent) == found


def test_of_100() -> None:
    """WP-99"""
    waits = WaitTimes()
    for number in range(1, 101):
        waits.note(ended(number, float(number), "gpu"))
    assert waits.of_label("gpu", NOW) == WaitSummary(100, 0, 50.0, 95.0)
    assert waits.of_label("arm", NOW) == WaitSummary(0, 0, None, None)


def test_several_labels() -> None:
    """WP-99: once for each label, however many nodes of it are wanted, and told."""
    waits = WaitTimes()
    waits.note(ended(1, 30.0, "gpu", "gpu", "arm"))
    waits.note(ended(2, 10.0, "gpu", "gpu"))
    assert waits.of_label("gpu", NOW) == WaitSummary(2, 1, 10.0, 30.0)
    assert waits.of_label("arm", NOW) == WaitSummary(1, 1, 30.0, 30.0)


def test_what_does_not_count() -> None:
    """WP-99"""
    waits = WaitTimes()
    failed = ended(1, 5.0, "gpu")
    failed.state = states.FAILED
    of_min_ready = ended(2, 5.0, "gpu")
    of_min_ready.requestor = MIN_READY_REQUESTOR
    without_time = ended(3, 5.0, "gpu")
    without_time.created_time = None
    for request in (failed, of_min_ready, without_time, ended(4, 5.0, "gpu", ago=4000.0), None):
        waits.note(request)
    assert waits.of_label("gpu", NOW).count == 0


def test_again_and_clocks_that_differ() -> None:
    """WP-99: a record that is read again does not count again."""
    waits = WaitTimes()
    for _ in range(3):
        waits.note(ended(1, -2.0, "gpu"))
    assert waits.of_label("gpu", NOW) == WaitSummary(1, 0, 0.0, 0.0)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-99: names of labels come from other programs."""
    monkeypatch.setattr(snapshot, "MOST_LABELS", 2)
    waits = WaitTimes()
    for number, label in enumerate(("a", "b", "a", "c")):
        waits.note(ended(number, 1.0, label))
    assert [waits.of_label(label, NOW).count for label in "abc"] == [2, 0, 1]


def test_only_the_last_ones_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-99: then it is told of which part of the hour they are."""
    monkeypatch.setattr(snapshot, "MOST_WAITS", 3)
    waits = WaitTimes()
    for number in range(1, 3):
        waits.note(ended(number, 1.0, "gpu", ago=600.0 - 60.0 * number))
    assert waits.of_label("gpu", NOW).covered_seconds == 3600.0
    for number in range(3, 9):
        waits.note(ended(number, 1.0, "gpu", ago=600.0 - 60.0 * number))
    assert waits.of_label("gpu", NOW) == WaitSummary(3, 0, 1.0, 1.0, 240.0)
