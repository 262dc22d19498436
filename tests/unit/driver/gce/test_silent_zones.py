# SPDX-License-Identifier: Apache-2.0
"""Zones that do not answer: nothing but they themselves waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway, CloudNoCapacity, CloudRefused
from nodepool.driver.framework.http import rest_calls
from nodepool.driver.gce import client
from nodepool.driver.gce.client import FAILURES, PAUSE, SilentZones
from nodepool.plan.retries import Backoff
from simulators.gce import GceErrorRule
from tests.unit.driver.gce.sections import PROVIDER, ZONES, section
from tests.unit.driver.gce.support import Here, at_simulator
from tests.unit.driver.simulated_adapter import HOST

#: In place of the 45 seconds for which calls wait.
SECONDS = 0.2


class Rig:
    """Zones, and the time."""

    def __init__(self, *zones: str) -> None:
        self.now = 1000.0
        self.zones = SilentZones(PROVIDER, zones, lambda: self.now)

    def fail(self, zone: str, times: int = FAILURES) -> None:
        for _ in range(times):
            self.zones.no_answer(zone)

    def let_through(self, zone: str) -> bool:
        try:
            self.zones.check(zone)
        except CloudAway as error:
            return error.maybe_done
        return True


def test_a_zone_is_silent_after_some_calls() -> None:
    """One call may fail anywhere; an answer of whatever kind ends the row."""
    rig = Rig("a", "b")
    rig.fail("a", FAILURES - 1)
    rig.zones.answered("a")
    rig.fail("a", FAILURES - 1)
    assert rig.let_through("a")
    rig.fail("a", 1)
    assert (rig.let_through("a"), rig.let_through("b")) == (False, True)
    assert (rig.zones.silent("a"), rig.zones.silent("b")) == (True, False)


def test_one_call_asks_now_and_then() -> None:
    """While it is under way all others are refused; without an answer the pause grows."""
    rig = Rig("a", "b")
    rig.fail("a")
    for failures in (1, 2, 3, 4):
        rig.now += PAUSE.pause(failures) - 0.1
        assert not rig.let_through("a")
        rig.now += 0.1
        assert [rig.let_through("a"), rig.let_through("a")] == [True, False]
        rig.fail("a", 1)
    rig.zones.answered("a")
    assert [rig.let_through("a"), rig.let_through("a")] == [True, True]


def test_no_zone_answers() -> None:
    """Then the cloud is away, and the framework asks when it is back: no zone must be left alone after that."""
    rig = Rig("a", "b")
    rig.fail("a")
    rig.fail("b")
    assert (rig.let_through("a"), rig.let_through("b")) == (True, True)
    assert not rig.zones.silent("a")
    rig.zones.answered("b")
    assert not rig.let_through("a")
    alone = Rig("a")
    alone.fail("a")
    assert alone.let_through("a")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    """Calls that wait for less long; the first zone does not answer."""
    for name in ("CALL_SECONDS", "OPERATION_SECONDS"):
        monkeypatch.setattr(client, name, SECONDS)
    monkeypatch.setattr(rest_calls, "READ_AGAIN", Backoff(0.0, 0.0))
    with at_simulator(tmp_path, section(zone=ZONES), unreachable=[ZONES[0]], unreachable_seconds=60.0) as made:
        yield made


def unanswered(here: Here) -> None:
    """Calls that make it known that the zone does not answer."""
    for _ in range(FAILURES):
        with pytest.raises(CloudAway):
            here.adapter.client.delete_instance(ZONES[0], "np1")


def test_others_go_on(here: Here) -> None:
    """GC-5, GC-8, GC-9: lists, launches and deletions of another zone, although the silent one is the first."""
    unanswered(here)
    assert list(here.adapter.listInstances()) == []
    found = here.launch()
    assert found.external_id == f"{ZONES[1]}/{HOST}"
    assert [one.external_id for one in here.adapter.listInstances()] == [found.external_id]
    before = here.calls("instances.delete")
    with pytest.raises(CloudAway, match=f"zone {ZONES[0]} does not answer; it is asked again"):
        here.adapter.client.delete_instance(ZONES[0], "np1")
    assert here.calls("instances.delete") == before
    here.delete(found.external_id)
    assert not here.contents()


def test_launch_that_is_under_way_goes_elsewhere(here: Here) -> None:
    """Its turn comes when the zone is known to be silent: nothing was ordered there, so it is begun anew."""
    creation = here.creation()
    assert creation.id_in_advance() == f"{ZONES[0]}/{HOST}"
    unanswered(here)
    before = here.calls("instances.insert")
    while not creation.complete:
        found = creation.advance()
    assert (found.external_id, here.calls("instances.insert")) == (f"{ZONES[1]}/{HOST}-1-1", before + 1)
    here.delete(found.external_id)


def test_order_that_was_not_answered_stays_in_its_zone(here: Here) -> None:
    """CM-8: it may have made an instance: the launch ends, and another attempt begins when that is deleted."""
    here.simulator.change(unreachable=[])
    here.delete(here.launch().external_id)
    here.simulator.change(unreachable=[ZONES[0]])
    before = here.calls("instances.insert")
    with pytest.raises(CloudAway) as caught:
        here.launch(attempt=2)
    assert caught.value.maybe_done
    # It is sent twice again with its request id.
    assert here.calls("instances.insert") == before + 3


def test_zone_whose_machine_types_are_not_known(here: Here) -> None:
    """The last of the calls that make it known belongs to the launch itself."""
    for _ in range(FAILURES - 1):
        here.adapter.client.silent_zones.no_answer(ZONES[0])
    assert here.launch().az == ZONES[1]
    here.delete(f"{ZONES[1]}/{HOST}-1-1")


def test_zone_that_answers_again(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PAUSE", Backoff(0.0, 0.0))
    unanswered(here)
    here.simulator.change(unreachable=[])
    with pytest.raises(CloudRefused):
        here.adapter.client.delete_instance(ZONES[0], "np1")
    assert not here.adapter.client.silent_zones.silent(ZONES[0])
    assert here.launch().external_id == f"{ZONES[0]}/{HOST}"
    here.delete(f"{ZONES[0]}/{HOST}")


def test_call_that_is_not_made_is_no_answer(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch may go elsewhere when its turn comes, before anything was sent."""
    monkeypatch.setattr(client, "PAUSE", Backoff(0.0, 0.0))

    def permit() -> None:
        raise CloudNoCapacity("there was no capacity for another launch")

    unanswered(here)
    with pytest.raises(CloudNoCapacity):
        here.adapter.client.insert(ZONES[0], {}, "1", permit)
    assert here.adapter.client.silent_zones.silent(ZONES[0])


def test_throttled_calls_were_answered(here: Here) -> None:
    """Google says that there are too many: no zone is silent for it."""
    rule: dict[str, Any] = {"operation": "instances.delete", "kind": "429", "retry_after": 0}
    here.simulator.change(unreachable=[], errors=[GceErrorRule(**rule)])
    unanswered(here)
    assert not here.adapter.client.silent_zones.silent(ZONES[0])
