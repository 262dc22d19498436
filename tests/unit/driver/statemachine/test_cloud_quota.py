# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.statemachine.cloud_quota`: what counts against the limits besides nodes."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.statemachine import cloud_quota
from nodepool.driver.statemachine.lost_creations import Creation, CreationKey
from tests.support.manual_clock import monotonic_clock
from tests.unit.driver.statemachine.conftest import MakeSite, Site


@pytest.fixture
def site(make_site: MakeSite) -> Site:
    return make_site(**{"max-servers": 2})


@pytest.fixture
def unanswered(site: Site, monkeypatch: pytest.MonkeyPatch) -> list[Creation]:
    """Creations that the driver tells of; filled by the test."""
    monkeypatch.setattr(cloud_quota, "UNANSWERED_AGE_SECONDS", 0.0)
    creations: list[Creation] = []
    monkeypatch.setattr(site.adapter, "unansweredCreations", lambda: creations)
    return creations


def creation(node_id: str = "0000004711", pool: str = "main", label: str = "small") -> Creation:
    return Creation(CreationKey("nowhere", node_id, 1), pool, label, 0.0)


def used(site: Site, pool: Any = None) -> dict[str, float]:
    found: dict[str, float] = site.provider.estimatedNodepoolQuotaUsed(pool).get_resources()
    return {name: amount for name, amount in found.items() if amount}


def test_creations_without_an_answer(site: Site, unanswered: list[Creation]) -> None:
    """Q-3: a creation whose answer was lost may have made an instance: never more than max-servers."""
    pool = site.config.pools["main"]
    assert site.provider.roomFor(pool, "small") == 2
    unanswered.append(creation())
    assert used(site) == used(site, pool) == {"instances": 1, "cores": 2, "ram": 2048}
    assert site.provider.roomFor(pool, "small") == 1
    unanswered.append(creation("0000004712"))
    assert not site.provider.roomForOne(pool, "small")
    unanswered.clear()
    assert used(site) == {}


def test_the_second_look(site: Site, unanswered: list[Creation]) -> None:
    """Several launchers fill the same gap: a node has no place if a creation without an answer may have taken it."""
    pool = site.config.pools["main"]
    (first, second) = (*site.serve("small"), *site.serve("small"))
    assert site.provider.hasPlace(pool, second)
    unanswered.append(creation())
    assert site.provider.hasPlace(pool, first)
    assert not site.provider.hasPlace(pool, second)


def test_its_node_counts_by_itself(site: Site, unanswered: list[Creation]) -> None:
    """While there is a node, that is what counts."""
    (node,) = site.serve("small")
    before = used(site)
    unanswered.append(creation(node.key))
    assert used(site) == before


def test_what_is_not_in_the_configuration(site: Site, unanswered: list[Creation]) -> None:
    """Bad input: a pool or label that is not there (any more)."""
    unanswered.extend([creation(pool="gone"), creation(label="gone")])
    assert used(site) == {}


def test_not_asked_for_each_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room is looked for several times for each node of a burst."""
    asked: list[int] = []

    def note() -> list[Creation]:
        asked.append(1)
        return []

    monkeypatch.setattr(site.adapter, "unansweredCreations", note)
    clock = monotonic_clock(monkeypatch, cloud_quota)
    for seconds, expected in ((0.0, 1), (0.05, 1), (0.06, 2)):
        clock.pass_seconds(seconds)
        used(site)
        assert len(asked) == expected


def test_room_of_a_lost_creation_wakes_the_pools(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q-3: it made nothing, and somebody may wait for its room; what was known a moment ago does not count."""
    creations = [creation()]
    monkeypatch.setattr(site.adapter, "unansweredCreations", lambda: creations)
    monotonic_clock(monkeypatch, cloud_quota)
    site.serve("small")
    before = used(site)["instances"]
    creations.clear()
    woken: list[bool] = []
    monkeypatch.setattr(site.provider, "wake_workers", lambda: woken.append(True))
    site.adapter.on_room()
    assert woken == [True]
    assert used(site)["instances"] == before - 1


def test_room_that_comes_while_it_is_asked_for(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q-3: who is woken by it asks again: the answer was that of before."""
    answers = [[creation()], []]

    def tell() -> list[Creation]:
        answer = answers.pop(0)
        if answer:
            site.adapter.on_room()
        return answer

    monkeypatch.setattr(site.adapter, "unansweredCreations", tell)
    monotonic_clock(monkeypatch, cloud_quota)
    assert used(site)["instances"] == 1
    assert used(site) == {}


def test_error_of_the_driver(site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """It says nothing about the room."""

    def fail() -> list[Creation]:
        raise LookupError("a mistake")

    monkeypatch.setattr(site.adapter, "unansweredCreations", fail)
    assert used(site) == {}
    assert "a mistake" in caplog.text
