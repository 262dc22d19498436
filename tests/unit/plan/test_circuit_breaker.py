# SPDX-License-Identifier: Apache-2.0
"""When a circuit breaker opens, asks again and closes."""

from __future__ import annotations

from nodepool.plan.retries import PROBE, TRIP_FAILURES, TRIP_SECONDS, CircuitBreaker


def tripped() -> CircuitBreaker:
    breaker = CircuitBreaker()
    begins = [breaker.failed(number * TRIP_SECONDS, f"error {number}") for number in range(TRIP_FAILURES)]
    assert begins == [False] * (TRIP_FAILURES - 1) + [True]
    return breaker


LAST = (TRIP_FAILURES - 1) * TRIP_SECONDS


def test_some_failures_are_normal() -> None:
    """A call that works in between starts the count anew."""
    breaker = CircuitBreaker()
    for number in range(50):
        assert not breaker.failed(float(number), "error")
        if number % (TRIP_FAILURES - 1) == TRIP_FAILURES - 2:
            assert not breaker.worked(), "it was closed"
    assert not breaker.is_open
    assert breaker.probe_due(50.0) is None


def test_a_moment_of_trouble_is_no_outage() -> None:
    """A hundred calls that fail together are one event."""
    breaker = CircuitBreaker()
    for _ in range(100):
        assert not breaker.failed(5.0, "error")
    assert breaker.failed(5.0 + TRIP_SECONDS, "error")


def test_rest_and_probes() -> None:
    """The pause grows with each probe that fails, up to a limit; failures before the probe change nothing."""
    breaker = tripped()
    assert breaker.is_open
    assert breaker.reason == f"error {TRIP_FAILURES - 1}"
    assert breaker.probe_due(LAST) == PROBE.first_seconds
    assert not breaker.failed(LAST + 0.1, "late answer")
    assert breaker.probe_due(LAST + PROBE.first_seconds) == 0
    now, pauses = LAST + PROBE.first_seconds, []
    for _ in range(8):
        assert not breaker.failed(now, "still away"), "it is open already"
        pause = breaker.probe_due(now)
        assert pause is not None
        pauses.append(pause)
        now += pause
    assert pauses == sorted(pauses)
    assert pauses[0] == 2 * PROBE.first_seconds
    assert pauses[-1] == PROBE.longest_seconds
    assert breaker.reason == "still away"


def test_the_end_of_a_rest() -> None:
    """One call that works ends it; the next trouble begins with the first, short pause."""
    breaker = tripped()
    assert breaker.worked()
    assert (breaker.is_open, breaker.reason, breaker.probe_due(LAST)) == (False, "", None)
    assert not breaker.failed(LAST + 1, "error")
    assert not breaker.is_open
