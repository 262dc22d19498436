# SPDX-License-Identifier: Apache-2.0
"""Creations without an answer: their instances show up late, and they count against the limits (rules L-4, Q-3)."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.driver.statemachine import instance
from nodepool.driver.statemachine.adapter import Creation, CreationKey
from nodepool.driver.statemachine.instance import LostCreations
from tests.support.manual_clock import ManualClock
from tests.unit.driver.statemachine.conftest import MakeSite

PROVIDER, NODE = "somewhere", "0000000042"


def seen(record_id: str, *, node_id: str = NODE, provider: str = PROVIDER) -> Any:
    """An instance of the node, as a list shows it."""
    return SimpleNamespace(id=record_id, metadata=instance.for_node(node_id, "main", provider))


class Creations(LostCreations):
    """With a clock, and instances that lists show by their ids."""

    def __init__(self) -> None:
        self.clock = ManualClock().rules()
        super().__init__(PROVIDER)

    def strange(self, *records: Any) -> list[str]:
        listed = [seen(record) if isinstance(record, str) else record for record in records]
        return [record.id for record in self.strays(listed)]


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
    keys += [one._replace(node_created=created) for one in keys for created in (1.0, 1.5)]
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
    others = [seen("c", provider="elsewhere"), seen("d", node_id="7"), SimpleNamespace(id="e", metadata={})]
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


def test_use_of_creations_without_an_answer(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q-3: each counts as a node of its label, unless its node exists, which counts by itself."""
    site = make_site()
    (node,) = site.serve("small")
    keys = [CreationKey("nowhere", node_id, 1) for node_id in (node.key, NODE)]
    monkeypatch.setattr(
        site.adapter, "unansweredCreations", lambda: [Creation(one, "main", "large", 0.0) for one in keys]
    )
    site.provider.forget_unanswered()
    used = site.provider.estimatedNodepoolQuotaUsed().quota["compute"]
    assert (used["instances"], used["cores"]) == (2, 2 + 8)
