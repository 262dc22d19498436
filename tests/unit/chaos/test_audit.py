# SPDX-License-Identifier: Apache-2.0
"""The judgement on writes: only what one has locked, or what surely nobody has."""

from __future__ import annotations

import itertools
import json

import pytest

from tests.chaos.audit import Audit
from tests.chaos.transaction_log import Write

ONE, TWO, CLIENT, NEXT = 0x1000, 0x2000, 0x3000, 0x4000
NODE, REQUEST = "/chaos/nodepool/nodes/0000000001", "/chaos/nodepool/requests/200-0000000001"
NODE_LOCK, REQUEST_LOCK = f"{NODE}/lock", "/chaos/nodepool/requests-lock/200-0000000001"


class Story:
    """Transactions one after the other. Launchers one and two are registered."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.writes: list[Write] = []
        self.register(ONE, "one")
        self.register(TWO, "two")

    def register(self, session: int, pool_id: str) -> None:
        path, data = f"/chaos/nodepool/components/pool/host{session}", json.dumps({"id": pool_id}).encode()
        self.writes.append(Write(next(self._numbers), session, "create", path, data, ephemeral=True))

    def transaction(self, session: int, *parts: tuple[str, str]) -> None:
        number = next(self._numbers)
        self.writes += [Write(number, session, kind, path) for kind, path in parts]

    def lock(self, session: int, directory: str, number: int) -> None:
        self.transaction(session, ("create", f"{directory}/abc__lock__{number:010d}"))

    def judged(self) -> Audit:
        return Audit("/chaos").follow(self.writes)


@pytest.fixture
def story() -> Story:
    return Story()


@pytest.mark.parametrize(("record", "lock"), [(NODE, NODE_LOCK), (REQUEST, REQUEST_LOCK)])
def test_own_lock(story: Story, record: str, lock: str) -> None:
    story.lock(ONE, lock, 0)
    story.lock(TWO, lock, 1)
    story.transaction(ONE, ("set", record))
    assert story.judged().violations == []
    assert story.judged().counts["with its lock"] == 1
    story.transaction(TWO, ("set", record))
    assert "by launcher 2000, but a launcher, 1000, has its lock" in story.judged().violations[0]


def test_session_that_ended(story: Story) -> None:
    """A launcher wakes up; its successor has the lock."""
    story.lock(ONE, NODE_LOCK, 0)
    story.lock(TWO, NODE_LOCK, 1)
    story.transaction(ONE, ("end of session", ""))
    story.transaction(TWO, ("set", NODE))
    assert story.judged().violations == []
    story.transaction(ONE, ("set", NODE))
    assert "set of /nodepool/nodes/0000000001 by launcher 1000" in story.judged().violations[0]


def test_next_session(story: Story) -> None:
    """It may go on with what nobody has touched since."""
    story.lock(ONE, NODE_LOCK, 0)
    story.transaction(ONE, ("set", NODE))
    story.transaction(ONE, ("end of session", ""))
    story.register(NEXT, "one")
    story.transaction(NEXT, ("set", NODE))
    assert story.judged().violations == []
    assert story.judged().counts["of what it touched last"] == 1


@pytest.mark.parametrize("kind", ["set", "lock"])
def test_touched_meanwhile(story: Story, kind: str) -> None:
    """By somebody who has let it go again: too late."""
    story.lock(ONE, NODE_LOCK, 0)
    story.transaction(ONE, ("end of session", ""))
    story.lock(TWO, NODE_LOCK, 1)
    if kind == "set":
        story.transaction(TWO, ("set", NODE))
    story.transaction(TWO, ("delete", f"{NODE_LOCK}/abc__lock__{1:010d}"))
    story.register(NEXT, "one")
    story.transaction(NEXT, ("set", NODE))
    assert "by launcher 4000, but nobody has its lock" in story.judged().violations[0]


def test_nobody_has_it(story: Story) -> None:
    """Only with a proof in the same transaction, and one for this record."""
    story.transaction(ONE, ("delete", NODE_LOCK), ("create", NODE_LOCK), ("set", NODE))
    assert story.judged().violations == []
    story.transaction(TWO, ("delete", REQUEST_LOCK), ("set", NODE))
    assert "nobody has its lock" in story.judged().violations[0]


def test_removal_is_its_own_proof(story: Story) -> None:
    """ZooKeeper removes nothing that has a lock directory."""
    story.transaction(CLIENT, ("create", NODE))
    story.transaction(ONE, ("delete", NODE))
    assert story.judged().violations == []


def test_proof_that_is_none(story: Story) -> None:
    """ZooKeeper would not do that: the directory is not empty."""
    story.lock(CLIENT, NODE_LOCK, 0)
    story.transaction(ONE, ("create", NODE_LOCK), ("set", NODE))
    assert "a client, 3000, has its lock" in story.judged().violations[0]


def test_lock_that_is_given_back(story: Story) -> None:
    story.lock(ONE, NODE_LOCK, 0)
    contender = f"{NODE_LOCK}/abc__lock__{0:010d}"
    story.transaction(ONE, ("set", NODE), ("delete", contender))
    story.transaction(CLIENT, ("set", NODE))
    assert story.judged().violations == []
    story.transaction(ONE, ("set", NODE))
    assert "nobody has its lock" in story.judged().violations[0]
