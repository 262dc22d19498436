# SPDX-License-Identifier: Apache-2.0
"""The schedule of faults: repeatable, in bounds, never two faults at once on one target."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.schedule import (
    ENSEMBLE,
    KINDS,
    OF_IMAGE_RUNS,
    OF_LAUNCHER_RUNS,
    OF_LAUNCHERS,
    Fault,
    from_json,
    make_arrivals,
    make_schedule,
)


@given(seed=st.integers(0, 10**6), seconds=st.floats(2, 300), launchers=st.integers(1, 4), zookeepers=st.integers(1, 3))
def test_faults_are_in_bounds(seed: int, seconds: float, launchers: int, zookeepers: int) -> None:
    free: dict[str, float] = {}
    faults = make_schedule(seed, seconds, launchers, zookeepers=zookeepers)
    assert faults == sorted(faults, key=lambda fault: fault.at)
    for fault in faults:
        kind = KINDS[fault.kind]
        assert 1.0 <= fault.at <= fault.end <= seconds
        assert kind.seconds[0] <= fault.seconds <= kind.seconds[1]
        assert kind.amount[0] <= fault.amount <= kind.amount[1]
        assert (fault.launcher is not None) == (kind.target in OF_LAUNCHERS)
        assert fault.launcher is None or fault.launcher < launchers
        assert fault.at >= free.get(fault.target, 0.0)
        free[fault.target] = fault.end


def test_the_same_seed_gives_the_same_faults() -> None:
    assert make_schedule(7, 60, 3) == make_schedule(7, 60, 3)
    assert make_schedule(7, 60, 3) != make_schedule(8, 60, 3)


def test_a_long_run_has_all_kinds() -> None:
    assert {fault.kind for fault in make_schedule(1, 2000, 3, zookeepers=3)} == set(OF_LAUNCHER_RUNS)


def test_an_ensemble_only_adds_faults() -> None:
    with_one, with_three = make_schedule(1, 300, 3), make_schedule(1, 300, 3, zookeepers=3)
    more = [fault for fault in with_three if fault not in with_one]
    assert [fault for fault in with_three if fault not in more] == with_one
    assert {KINDS[fault.kind].group for fault in more} == {ENSEMBLE}


def test_only_an_ensemble_can_lose_its_leader() -> None:
    assert make_schedule(1, 100, 3, ["leader-kill"]) == []
    assert len(make_schedule(1, 100, 3, ["leader-kill"], zookeepers=3)) > 5


def test_only_some_kinds() -> None:
    kinds = ["kill", "cloud-errors"]
    assert {fault.kind for fault in make_schedule(1, 100, 2, kinds)} == set(kinds)
    with pytest.raises(ValueError, match=r"unknown kinds of faults: fire; there are: kill, "):
        make_schedule(1, 100, 2, ["kill", "fire"])


def test_replay() -> None:
    faults = make_schedule(3, 60, 3)
    assert from_json(json.loads(json.dumps([fault.as_json() for fault in reversed(faults)]))) == faults
    with pytest.raises(ValueError, match="unknown kinds of faults: fire"):
        from_json([{"at": 1.0, "kind": "fire"}])


def test_targets() -> None:
    assert Fault(1.0, "kill", launcher=2).target == "launcher-2"
    assert Fault(1.0, "link-cut", launcher=2).target == "link-2"
    assert Fault(1.0, "cloud-away").target == Fault(1.0, "cloud-errors").target == "cloud-api"


def test_requests_come_all_the_time() -> None:
    arrivals = make_arrivals(7, 300, 90.0)
    assert len(arrivals) == 300
    assert arrivals == sorted(arrivals) == make_arrivals(7, 300, 90.0) != make_arrivals(8, 300, 90.0)
    assert 0.0 <= arrivals[0] < arrivals[-1] <= 90.0
    assert all(any(begun <= at < begun + 10.0 for at in arrivals) for begun in range(0, 90, 10))


def test_runs_with_images_have_kinds_of_their_own() -> None:
    faults = make_schedule(1, 2000, 2, run=OF_IMAGE_RUNS)
    assert {fault.kind for fault in faults} == set(OF_IMAGE_RUNS)
    assert {fault.whose for fault in faults if fault.kind == "broken-uploads"} == {"cloud"}
    assert {fault.whose for fault in faults if fault.kind == "kill-in-upload"} == {"process"}
    with pytest.raises(ValueError, match="unknown kinds of faults: server-vanishes"):
        make_schedule(1, 100, 2, ["server-vanishes"], run=OF_IMAGE_RUNS)
