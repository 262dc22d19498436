# SPDX-License-Identifier: Apache-2.0
"""What follows a failed attempt (rules L-4, L-6, L-7, F-5)."""

from __future__ import annotations

import pytest

from nodepool.plan.launch import (
    PACE,
    Abort,
    Fail,
    Failure,
    Retry,
    SearchDepth,
    after_failure,
    answer_was_lost,
    may_have_made_an_instance,
    pace,
    search_after,
    zone_of_next_attempt,
)


def test_attempts() -> None:
    """L-4, L-6: ``launch-retries`` is the number of attempts in total; pauses grow, up to a limit."""
    first = after_failure(Failure.INSTANCE, 1, 3, circuit_open=False)
    second = after_failure(Failure.INSTANCE, 2, 3, circuit_open=False)
    assert isinstance(first, Retry)
    assert isinstance(second, Retry)
    assert 0 < first.delay_seconds < second.delay_seconds
    assert isinstance(after_failure(Failure.INSTANCE, 3, 3, circuit_open=False), Fail)
    late = after_failure(Failure.UNKNOWN, 50, 100, circuit_open=False)
    assert isinstance(late, Retry)
    assert late.delay_seconds < 10


@pytest.mark.parametrize("attempt", [1, 3])
def test_quota_aborts(attempt: int) -> None:
    """L-7: whichever attempt it was."""
    assert isinstance(after_failure(Failure.QUOTA, attempt, 3, circuit_open=False), Abort)


@pytest.mark.parametrize("kind", [Failure.CONFIGURATION, Failure.ZOOKEEPER])
def test_no_use_in_trying_again(kind: Failure) -> None:
    """L-9, Q-14: another attempt would end like the first."""
    assert isinstance(after_failure(kind, 1, 3, circuit_open=False), Fail)


@pytest.mark.parametrize("kind", [Failure.CLOUD, Failure.UNKNOWN])
def test_a_cloud_that_rests_is_not_the_fault_of_the_request(kind: Failure) -> None:
    """F-5: the node is given up without a failure, even after the last attempt."""
    assert isinstance(after_failure(kind, 3, 3, circuit_open=True), Abort)
    assert isinstance(after_failure(Failure.INSTANCE, 3, 3, circuit_open=True), Fail)


def test_instances_without_an_answer() -> None:
    """A refusal is a refusal; everything else may have made an instance, and after a lost answer it may show late."""
    sure = {Failure.QUOTA, Failure.HELD, Failure.CAPACITY, Failure.CONFIGURATION, Failure.SETUP}
    assert {kind for kind in Failure if not may_have_made_an_instance(kind)} == sure
    assert {kind for kind in Failure if answer_was_lost(kind)} == {Failure.CLOUD, Failure.UNKNOWN}


def test_pace() -> None:
    """G-2: looks are frequent at first, then rarer, never rarer than once a second; a machine may know better."""
    waits = [pace(turn, None) for turn in range(20)]
    assert waits == sorted(waits)
    assert waits[0] <= 0.1
    assert waits[-1] == PACE.longest_seconds
    assert pace(0, 30.0) == 30.0
    assert pace(100, 0.05) == 0.05
    assert pace(0, -1.0) == 0.0


@pytest.mark.parametrize(
    ("kind", "id_known", "others_known", "searched", "expected"),
    [
        (Failure.CLOUD, False, False, False, SearchDepth.REPEATED),
        (Failure.CLOUD, False, False, True, SearchDepth.ONCE),
        (Failure.CLOUD, True, False, False, SearchDepth.ONCE),
        (Failure.CLOUD, False, True, False, SearchDepth.ONCE),
        (Failure.UNKNOWN, False, False, False, SearchDepth.REPEATED),
        (Failure.INSTANCE, False, False, False, SearchDepth.ONCE),
        (Failure.INSTANCE, True, False, False, SearchDepth.NONE),
        (Failure.QUOTA, False, False, False, SearchDepth.NONE),
        (Failure.SETUP, False, False, False, SearchDepth.NONE),
        (Failure.ZOOKEEPER, False, False, False, SearchDepth.NONE),
    ],
)
def test_what_is_searched_for(
    kind: Failure, id_known: bool, others_known: bool, searched: bool, expected: SearchDepth
) -> None:
    """L-4: the cloud is asked unless it is known what the attempt left; a lost answer may have made something late."""
    assert search_after(kind, id_known=id_known, others_known=others_known, searched=searched) is expected


@pytest.mark.parametrize(
    ("zone", "zones"),
    [("az1", ["az1", "az2"]), (None, ["az1"]), ("az1", [None]), ("az1", [])],
    ids=["is there", "the cloud chose", "no zones", "nothing known"],
)
def test_zone_stays(zone: str | None, zones: list[str | None]) -> None:
    """N-7: another zone only when this one is gone."""
    assert zone_of_next_attempt(zone, zones, "200-1") == zone


def test_removed_zone() -> None:
    """O-2, N-7: the nodes of one request agree on another; requests differ."""
    chosen = {request: zone_of_next_attempt("gone", ["a", "b", "c"], f"200-{request}") for request in range(50)}
    assert set(chosen.values()) == {"a", "b", "c"}
    assert all(zone_of_next_attempt("gone", ["c", "b", "a"], f"200-{i}") == zone for i, zone in chosen.items())
