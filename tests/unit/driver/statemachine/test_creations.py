# SPDX-License-Identifier: Apache-2.0
"""Creations without an answer: their instances show up late, and they count against the limits (rules L-4, Q-3)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from nodepool.driver.statemachine.cloud_quota import StateMachineQuota
from nodepool.driver.statemachine.lost_creations import (
    LATE_SECONDS,
    MANY_NODES,
    OLD_SECONDS,
    Creation,
    CreationKey,
    LostCreations,
)
from tests.support.manual_clock import ManualClock
from tests.unit.driver.statemachine.conftest import MakeSite, Site, home
from tests.unit.driver.statemachine.instances import NODE, PROVIDER, Seen, seen


class Creations(LostCreations):
    """With a clock, and instances that lists show by their ids."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        super().__init__(PROVIDER, self.clock)

    def strange(self, *records: Seen | str) -> list[str]:
        listed = [seen(record) if isinstance(record, str) else record for record in records]
        return [record.id for record in self.strays(listed)]

    def open(self, *, certain: bool = False) -> list[Creation]:
        """Those that count.

        :param certain: would lists show all that was made?
        """
        return self.unanswered(lambda since: not certain)

    def lose(self) -> Creation:
        """A creation that was sent, and given up."""
        creation = self.begin(key(), "main", "small")
        self.sent(creation)
        self.not_answered(creation)
        self.given_up(creation)
        return creation


@pytest.fixture
def creations() -> Creations:
    return Creations()


def key(attempt: int = 1, node_id: str = NODE) -> CreationKey:
    return CreationKey(PROVIDER, node_id, attempt)


def test_keys_and_names() -> None:
    """CM-8: each attempt of each node has its own; a key fits names and tokens of all clouds, and stays the same.

    The first creation has the name of the host; names of others fit where 15 characters are allowed.
    """
    keys = [key(), key(2), key(1, "2"), CreationKey("elsewhere", NODE, 1), CreationKey(PROVIDER, NODE, 1, 1)]
    texts = [each.text for each in keys]
    assert len(set(texts)) == len(keys)
    assert all(re.fullmatch(r"[a-z][a-z0-9-]{1,62}", text) for text in texts)
    assert key().text == "np-6900d899ba8499b478005cfc5f6ed82f"
    keys = [key(), key(2), key(10), CreationKey(PROVIDER, NODE, 1, 1), CreationKey(PROVIDER, NODE, 2, 3)]
    names = [each.name(f"np{NODE}") for each in keys]
    assert names == [f"np{NODE}{tail}" for tail in ("", "-2", "-10", "-1-1", "-2-3")]
    assert len(names[2]) <= 15


def test_late_instances(creations: Creations) -> None:
    """L-4: an instance that comes when its creation was given up is a stray, once. What may be the next one's is none.

    D-4: nor are instances of other providers, or that no call of ours can have made.
    """
    first = creations.begin(key())
    assert creations.strange("a") == []
    creations.given_up(first)
    others = [seen("c", provider="elsewhere"), seen("d", node_id="7"), Seen("e")]
    assert [creations.strange("a", *others), creations.strange("a")] == [["a"], []]
    second = creations.begin(key(2))
    assert creations.strange("b") == [], "its answer is under way"
    creations.answered(second, "b")
    assert creations.strange("b", "f") == ["f"]


@pytest.mark.parametrize("answered", [True, False])
def test_what_is_adopted(creations: Creations, answered: bool) -> None:
    """L-4: not the instance of the first attempt, which is being deleted. Its late refusal says nothing."""
    first = creations.begin(key())
    if answered:
        creations.answered(first, "a")
    second = creations.begin(key(2))
    if not answered:
        creations.refused(first)
    assert creations.found(second, [seen("a")] if answered else []) is None
    assert creations.found(second, [*([seen("a")] if answered else []), seen("b")]) == "b"


def test_memory(creations: Creations) -> None:
    """X-8: a node that was made and deleted leaves no trace; a lost one not for ever, nor what others deleted."""

    def kept() -> tuple[int, int, int]:
        # What it keeps has no public name.
        return len(creations._nodes), len(creations._node_of), len(creations._open)

    creations.answered(creations.begin(key()), "a")
    creations.deleted("a")
    creations.refused(creations.begin(key(1, "2")))
    assert kept() == (0, 0, 0)
    creations.lose()
    creations.clock.now += LATE_SECONDS + 1
    assert (creations.strange("a"), creations.open()) == ([], [])
    creations.refused(creations.begin(key(2)))
    assert kept() == (0, 0, 0)
    for number in range(MANY_NODES):
        creations.answered(creations.begin(key(1, str(number))), f"i{number}")
    creations.clock.now += OLD_SECONDS + 1
    creations.answered(creations.begin(key(1, "young")), "i")
    creations.begin(key(1, "next"))
    assert kept() == (2, 1, 0)


# -- against the limits


@pytest.fixture
def site(make_site: MakeSite) -> Site:
    return make_site(**{"max-servers": 2})


@pytest.fixture
def unanswered(site: Site, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Creations that the driver tells of; filled by the test. Errors are raised."""
    monkeypatch.setattr(home(StateMachineQuota), "UNANSWERED_AGE_SECONDS", 0.0)
    creations: list[Any] = []

    def tell() -> list[Any]:
        for each in creations:
            if isinstance(each, Exception):
                raise each
        return list(creations)

    monkeypatch.setattr(site.adapter, "unansweredCreations", tell)
    return creations


def creation(node_id: str = "0000004711", pool: str = "main", label: str = "small") -> Creation:
    return Creation(CreationKey("nowhere", node_id, 1), pool, label, 0.0)


def used(site: Site, pool: Any = None) -> dict[str, float]:
    found: dict[str, float] = site.provider.estimatedNodepoolQuotaUsed(pool).get_resources()
    return {name: amount for name, amount in found.items() if amount}


def test_room(site: Site, unanswered: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    """Q-3: it may have made an instance: never more than max-servers. Its node counts by itself."""
    pool = site.config.pools["main"]
    assert site.provider.roomFor(pool, "small") == 2
    unanswered.append(creation())
    assert used(site) == used(site, pool) == {"instances": 1, "cores": 2, "ram": 2048}
    assert site.provider.roomFor(pool, "small") == 1
    unanswered.append(creation("0000004712"))
    assert not site.provider.roomForOne(pool, "small")
    unanswered[:] = [creation(pool="gone"), creation(label="gone")]
    assert used(site) == {}
    unanswered[:] = [LookupError("a mistake")]
    assert used(site) == {}
    assert "a mistake" in caplog.text
    unanswered.clear()
    (first, second) = (*site.serve("small"), *site.serve("small"))
    before = used(site)
    unanswered.append(creation(first.key))
    assert used(site) == before
    assert site.provider.hasPlace(pool, second)
    unanswered[:] = [creation()]
    assert (site.provider.hasPlace(pool, first), site.provider.hasPlace(pool, second)) == (True, False)
