# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.statemachine.lost_creations`: instances that show up late."""

from __future__ import annotations

import re

import pytest

from nodepool.driver.statemachine.lost_creations import (
    LATE_SECONDS,
    MANY_NODES,
    OLD_SECONDS,
    Creation,
    CreationKey,
    LostCreations,
)
from tests.support.manual_clock import ManualClock
from tests.unit.driver.statemachine.instances import NODE, PROVIDER, Seen, seen


def never(_: float) -> bool:
    return False


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def creations(clock: ManualClock) -> LostCreations:
    return LostCreations(PROVIDER, clock)


def key(attempt: int = 1, node_id: str = NODE) -> CreationKey:
    return CreationKey(PROVIDER, node_id, attempt)


def lose(creations: LostCreations, attempt: int = 1) -> Creation:
    """A creation that was sent, and given up."""
    creation = creations.begin(key(attempt), "main", "small")
    creations.sent(creation)
    creations.not_answered(creation)
    creations.given_up(creation)
    return creation


def strays(creations: LostCreations, *records: Seen) -> list[str]:
    return [record.id for record in creations.strays(records)]


def test_key() -> None:
    """Each attempt of each node has one of its own, which fits names and tokens of all clouds, and stays the same."""
    keys = [key(), key(2), key(1, "2"), CreationKey("elsewhere", NODE, 1), CreationKey(PROVIDER, NODE, 1, 1)]
    texts = [each.text for each in keys]
    assert len(set(texts)) == len(keys)
    assert all(re.fullmatch(r"[a-z][a-z0-9-]{1,62}", text) for text in texts)
    assert key().text == "np-6900d899ba8499b478005cfc5f6ed82f"


def test_names() -> None:
    """CM-8: the first creation has the name of the host; names of others fit where 15 characters are allowed."""
    keys = [key(), key(2), key(10), CreationKey(PROVIDER, NODE, 1, 1), CreationKey(PROVIDER, NODE, 2, 3)]
    names = [each.name(f"np{NODE}") for each in keys]
    assert names == [f"np{NODE}{tail}" for tail in ("", "-2", "-10", "-1-1", "-2-3")]
    assert len(names[2]) <= 15


def test_late_instance(creations: LostCreations) -> None:
    """The creation was given up, the instance comes: it is a stray, once."""
    creation = creations.begin(key())
    assert strays(creations, seen("a")) == []
    creations.given_up(creation)
    assert strays(creations, seen("a")) == ["a"]
    assert strays(creations, seen("a")) == []


def test_the_second_attempt_is_no_stray(creations: LostCreations) -> None:
    lose(creations)
    second = creations.begin(key(2))
    assert strays(creations, seen("b")) == [], "its answer is under way"
    creations.answered(second, "b")
    assert strays(creations, seen("b"), seen("a")) == ["a"]


def test_an_old_instance_is_not_adopted(creations: LostCreations) -> None:
    """The instance of the first attempt, which is being deleted, is not what the second one made."""
    creations.answered(creations.begin(key()), "a")
    second = creations.begin(key(2))
    assert creations.found(second, [seen("a")]) is None
    assert creations.found(second, [seen("a"), seen("b")]) == "b"


def test_others_are_left_alone(creations: LostCreations) -> None:
    """D-4: instances of other providers, and instances that no call of ours can have made."""
    lose(creations)
    assert strays(creations, seen("a", provider="elsewhere"), seen("b", node_id="7"), Seen("c")) == []


def test_nothing_is_kept(creations: LostCreations, clock: ManualClock) -> None:
    """Memory: a node that was made and deleted leaves no trace; a lost one not for ever."""
    creations.answered(creations.begin(key()), "a")
    creations.deleted("a")
    creations.refused(creations.begin(key(1, "2")))
    assert (creations._nodes, creations._node_of, creations._open) == ({}, {}, {})
    lose(creations)
    clock.now += LATE_SECONDS + 1
    assert strays(creations, seen("a")) == []
    assert creations.unanswered(lambda _: True) == []
    creations.refused(creations.begin(key(2)))
    assert (creations._nodes, creations._open) == ({}, {})


def test_given_up_before_the_answer(creations: LostCreations) -> None:
    """L-4: the attempt ended while its creation was under way; what that makes is found while the second one serves."""
    first, second = creations.begin(key()), creations.begin(key(2))
    assert strays(creations, seen("a")) == [], "it may be the second one's"
    creations.ended(first)
    assert strays(creations, seen("a")) == [], "it may be the second one's, still"
    creations.answered(second, "b")
    assert strays(creations, seen("a"), seen("b")) == ["a"]


def test_given_up_before_the_refusal(creations: LostCreations) -> None:
    """The late refusal of the first one says nothing of the second."""
    first, second = creations.begin(key()), creations.begin(key(2))
    creations.refused(first)
    assert creations.found(second, [seen("b")]) == "b"


def test_deleted_by_others(creations: LostCreations, clock: ManualClock) -> None:
    """X-8, memory: another launcher deleted the instances, and this one is not told."""
    for number in range(MANY_NODES):
        creations.answered(creations.begin(key(1, str(number))), f"i{number}")
    clock.now += OLD_SECONDS + 1
    creations.answered(creations.begin(key(1, "young")), "i")
    creations.begin(key(1, "next"))
    assert set(creations._nodes) == {"young", "next"}
    assert set(creations._node_of) == {"i"}


class TestUnanswered:
    """They count against the limits."""

    def test_under_way(self, creations: LostCreations) -> None:
        """From the call to its answer, whatever the lists show."""
        creation = creations.begin(key(), "main", "small")
        assert creations.unanswered(never) == [], "not sent yet"
        creations.sent(creation)
        (found,) = creations.unanswered(lambda _: True)
        assert (found.key.node_id, found.pool, found.label) == (NODE, "main", "small")
        creations.ended(creation)
        assert creations.unanswered(never) == []

    def test_lost(self, creations: LostCreations, clock: ManualClock) -> None:
        """Until lists would have shown an instance that was made."""
        creation = lose(creations)
        certain_after = clock.now + 5
        assert creations.unanswered(lambda since: since > certain_after) == [creation]
        assert creations.unanswered(lambda since: since < certain_after) == []
        assert creations.unanswered(never) == [], "once and for all"

    def test_found(self, creations: LostCreations) -> None:
        """Its instance counts now."""
        creation = creations.begin(key())
        creations.sent(creation)
        creations.not_answered(creation)
        creations.found(creation, [seen("a")])
        assert creations.unanswered(never) == []

    def test_repeated(self, creations: LostCreations) -> None:
        """While it is sent again nobody knows more than the first time."""
        creation = creations.begin(key())
        creations.sent(creation)
        creations.not_answered(creation)
        creations.sent(creation)
        assert creations.unanswered(lambda _: True) == [creation]
        creations.answered(creation, "a")
        assert creations.unanswered(never) == []

    def test_repeated_while_lists_are_asked(self, creations: LostCreations) -> None:
        """What lists show of the first call says nothing of the second one."""
        creation = lose(creations)

        def sent_again(_: float) -> bool:
            creations.sent(creation)
            return True

        creations.unanswered(sent_again)
        assert creations.unanswered(never) == [creation]
