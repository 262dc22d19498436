# SPDX-License-Identifier: Apache-2.0
"""Launches that fail or take long: what follows, and when something is tried again."""

from __future__ import annotations

import builtins
import math
from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from nodepool import exceptions
from nodepool.exceptions import CapacityException, QuotaException
from nodepool.model.status import LaunchStatus
from nodepool.plan import launch as plan
from nodepool.plan.attention import described, is_slow, slow, summary
from nodepool.plan.retries import PROBE, TRIP_FAILURES, TRIP_SECONDS, Backoff, CircuitBreaker
from tests.support.tables import rows

NOW = 1763809000.0


@rows(__file__, "failures")
def test_failures(error: str, key: str | None, kind: str | None) -> None:
    """L-9 and the table of exceptions (reference/driver 13)."""
    raised = (getattr(exceptions, error, None) or getattr(builtins, error))()
    assert key is None or plan.launch_outcome(raised) == ("failed", key)
    assert kind is None or plan.classify(raised) is plan.Failure(kind)


def test_table_of_failures() -> None:
    """No row hides behind one for a base of its class; a kind says the same about retries in all its rows."""
    assert all(plan.meaning(row.error()) is row for row in plan.TABLE)
    for kind in plan.Failure:
        assert {row.retry for row in plan.TABLE if row.kind is kind} == {plan.may_be_retried(kind)}
    assert all(row.expected for row in plan.TABLE if row.kind is not plan.Failure.UNKNOWN)
    assert not plan.meaning(KeyError("id")).expected
    sure = {kind.value for kind in plan.Failure if not plan.may_have_made_an_instance(kind)}
    assert sure == {"quota", "held", "capacity", "configuration", "setup"}
    assert {kind.value for kind in plan.Failure if plan.answer_was_lost(kind)} == {"cloud", "unknown"}


@rows(__file__, "after_a_failure")
def test_what_follows(kind: str, attempt: int, circuit_open: bool, expected: str) -> None:
    """L-4, L-7, L-9, Q-14, F-5"""
    assert type(plan.after_failure(plan.Failure(kind), attempt, 3, circuit_open=circuit_open)).__name__ == expected


@rows(__file__, "search_after")
def test_search(kind: str, known: str, expected: str) -> None:
    """L-4: the cloud is asked unless it is known what the attempt left; a lost answer may have made something late."""
    facts = {name: name == known for name in ("id_known", "others_known", "searched")}
    assert plan.search_after(plan.Failure(kind), **facts).value == expected


def test_zone_of_the_next_attempt() -> None:
    """N-7, O-2: another zone only when this one is no longer there; the nodes of one request agree, requests differ."""
    stays: list[tuple[str | None, list[str | None]]] = [("az1", ["az1", "az2"]), (None, ["az1"]), ("az1", [None])]
    for zone, zones in [*stays, ("az1", [])]:
        assert plan.zone_of_next_attempt(zone, zones, "200-1") == zone
    chosen = {request: plan.zone_of_next_attempt("old", ["a", "b", "c"], f"200-{request}") for request in range(50)}
    assert set(chosen.values()) == {"a", "b", "c"}
    assert all(plan.zone_of_next_attempt("old", ["c", "b", "a"], f"200-{i}") == zone for i, zone in chosen.items())


# -- launches that take long (E-10)

BUILDING = LaunchStatus(
    "0000000001", "small", "build", "building", NOW - 75, NOW - 70, NOW + 3525, "launch-timeout", 4.0, slow=True
)
AGE = "(the launch began 1 min ago, usually it takes 4 s; launch-timeout ends the attempt in 58 min)"


@rows(__file__, "slow_launches")
def test_what_takes_long(launched: float, in_step: float, step: str, usual: float | None, expected: bool) -> None:
    """E-10"""
    launch = LaunchStatus("1", "small", step, begun=NOW - launched, since=NOW - in_step, usual=usual)
    assert is_slow(launch, NOW) is expected


def test_slow_launches_in_words() -> None:
    """E-10: what most of them wait for; the first is the one that began first."""
    waits = "waits for the cloud to run what it created"
    assert described(BUILDING, NOW) == f"{waits} (it is building) for 1 min {AGE}"
    plain = LaunchStatus("1", "small", "launch", begun=NOW - 20, since=NOW - 20)
    assert described(plain, NOW) == "waits for the driver for 20 s (the launch began 20 s ago)"
    calls = [replace(BUILDING, node=str(number), step="call", begun=NOW - number) for number in (50, 90)]
    found = slow([BUILDING, *calls, replace(BUILDING, slow=False)])
    assert [launch.node for launch in found] == ["90", "0000000001", "50"]
    call = "2 of them wait for the answer of the cloud to the call that creates it"
    assert summary(found, 4, NOW) == f"3 of 4 launches take long: {call}, up to 1 min {AGE}"
    assert summary([BUILDING], 1, NOW).startswith(f"1 of 1 launch takes long: it {waits}, for 1 min (the launch")


# -- when something is tried again


@rows(__file__, "pauses")
def test_pauses(backoff: list[float], expected: list[float]) -> None:
    """They grow by the factor, up to the longest."""
    assert [Backoff(*backoff).pause(failures) for failures in range(len(expected))] == expected


@given(first=st.floats(0.001, 100), times=st.floats(1, 1e6), factor=st.floats(1.01, 10), failures=st.integers(1, 10**6))
@example(first=1.0, times=1e6, factor=9.999999999999998, failures=1)
@example(first=5.0, times=12, factor=2.0, failures=1024)
def test_any_number_of_failures(first: float, times: float, factor: float, failures: int) -> None:
    """Pauses never become shorter, nor longer than the longest; 2.0 ** 1024 is an OverflowError."""
    backoff = Backoff(first, first * times, factor)
    assert first <= backoff.pause(failures) <= backoff.pause(failures + 1) <= backoff.longest_seconds
    assert backoff.pause(10**6) == backoff.longest_seconds
    assert Backoff(first, math.inf, 1.5).pause(10**9) > 1e99


def test_probes_of_an_open_circuit() -> None:
    """The pause grows with each probe that fails, up to a limit; a late answer changes nothing; one success ends it."""
    breaker = CircuitBreaker()
    opens = [breaker.failed(number * TRIP_SECONDS, f"error {number}") for number in range(TRIP_FAILURES)]
    assert opens == [False] * (TRIP_FAILURES - 1) + [True]
    now = (TRIP_FAILURES - 1) * TRIP_SECONDS
    assert (breaker.reason, breaker.probe_due(now)) == (f"error {TRIP_FAILURES - 1}", PROBE.first_seconds)
    assert not breaker.failed(now + 0.1, "late answer")
    now, pauses = now + PROBE.first_seconds, list[float]()
    assert breaker.probe_due(now) == 0
    for _ in range(8):
        assert not breaker.failed(now, "still away"), "it is open already"
        pauses.append(breaker.probe_due(now) or 0)
        now += pauses[-1]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (2 * PROBE.first_seconds, PROBE.longest_seconds)
    assert (breaker.reason, breaker.worked()) == ("still away", True)
    assert (breaker.is_open, breaker.reason, breaker.probe_due(now)) == (False, "", None)
    assert not breaker.failed(now + 1, "error")
    assert not breaker.is_open


class NoSubnet(CapacityException):
    """A driver may name its own statistics key."""

    statsd_key = "error.subnet"


def test_outcomes_that_are_no_failures() -> None:
    """L-7: a quota that is used up is not an attempt that failed. L-9: the key of a driver."""
    assert plan.launch_outcome(None) == ("ready", "ready")
    assert plan.launch_outcome(QuotaException("full")) == ("aborted", "error.quota")
    assert plan.classify(QuotaException()) is plan.Failure.QUOTA
    assert (plan.launch_outcome(NoSubnet())[1], plan.classify(NoSubnet())) == ("error.subnet", plan.Failure.CAPACITY)


def test_what_opens_a_circuit() -> None:
    """Many failures in a row, over some time: a hundred calls that fail together are one event."""
    breaker = CircuitBreaker()
    for number in range(50):
        assert not breaker.failed(float(number), "error")
        if number % (TRIP_FAILURES - 1) == TRIP_FAILURES - 2:
            assert not breaker.worked(), "it was closed"
    assert (breaker.is_open, breaker.probe_due(50.0)) == (False, None)
    together = CircuitBreaker()
    assert not any(together.failed(5.0, "error") for _ in range(100))
    assert together.failed(5.0 + TRIP_SECONDS, "error")
