# SPDX-License-Identifier: Apache-2.0
"""A provider that keeps failing is given a rest."""

from __future__ import annotations

from nodepool.plan.circuit_breaker import (
    PROBE,
    TRIP_FAILURES,
    TRIP_SECONDS,
    ProviderRest,
)


def tripped() -> ProviderRest:
    rest = ProviderRest()
    begins = [rest.failed(number * TRIP_SECONDS, f"error {number}") for number in range(TRIP_FAILURES)]
    assert begins == [False] * (TRIP_FAILURES - 1) + [True]
    return rest


LAST = (TRIP_FAILURES - 1) * TRIP_SECONDS


def test_some_failures_are_normal() -> None:
    """A call that works in between starts the count anew."""
    rest = ProviderRest()
    for number in range(50):
        assert not rest.failed(float(number), "error")
        if number % (TRIP_FAILURES - 1) == TRIP_FAILURES - 2:
            assert not rest.worked(), "there was no rest to end"
    assert not rest.resting
    assert rest.probe_due(50.0) is None


def test_a_moment_of_trouble_is_no_outage() -> None:
    """A hundred calls that fail together are one event."""
    rest = ProviderRest()
    for _ in range(100):
        assert not rest.failed(5.0, "error")
    assert rest.failed(5.0 + TRIP_SECONDS, "error")


def test_rest_and_probes() -> None:
    """The pause grows with each probe that fails, up to a limit; failures before the probe change nothing."""
    rest = tripped()
    assert rest.resting
    assert rest.reason == f"error {TRIP_FAILURES - 1}"
    assert rest.probe_due(LAST) == PROBE.first_seconds
    assert not rest.failed(LAST + 0.1, "late answer")
    assert rest.probe_due(LAST + PROBE.first_seconds) == 0
    now, pauses = LAST + PROBE.first_seconds, []
    for _ in range(8):
        assert not rest.failed(now, "still away"), "it rests already"
        pause = rest.probe_due(now)
        assert pause is not None
        pauses.append(pause)
        now += pause
    assert pauses == sorted(pauses)
    assert pauses[0] == 2 * PROBE.first_seconds
    assert pauses[-1] == PROBE.longest_seconds
    assert rest.reason == "still away"


def test_the_end_of_a_rest() -> None:
    """One call that works ends it; the next trouble begins with the first, short pause."""
    rest = tripped()
    assert rest.worked()
    assert (rest.resting, rest.reason, rest.probe_due(LAST)) == (False, "", None)
    assert not rest.failed(LAST + 1, "error")
    assert not rest.resting
