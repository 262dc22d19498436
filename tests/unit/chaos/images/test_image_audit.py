# SPDX-License-Identifier: Apache-2.0
"""The judgement on what builders wrote."""

from __future__ import annotations

import itertools
import json

import pytest

from tests.chaos.images.image_audit import ImageAudit
from tests.chaos.transaction_log import Write

ONE, TWO, HAND = 0x1000, 0x2000, 0x3000
BUILDS = "/chaos/nodepool/images/debian/builds"


class Story:
    """Writes one after the other."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.writes: list[Write] = []

    def write(self, session: int, kind: str, path: str, data: bytes = b"") -> None:
        self.writes.append(Write(next(self._numbers), session, kind, path, data))

    def record(self, session: int, kind: str, path: str, state: str, when: float = 0.0) -> None:
        self.write(session, kind, path, json.dumps({"state": state, "state_time": when}).encode())

    def build(self, session: int, name: str, when: float) -> None:
        """A whole one, under its lock."""
        self.write(session, "create", f"{BUILDS}/lock/a__lock__{int(when):010d}")
        self.record(session, "create", f"{BUILDS}/{name}", "building", when)
        self.record(session, "set", f"{BUILDS}/{name}", "ready", when)
        self.write(session, "delete", f"{BUILDS}/lock/a__lock__{int(when):010d}")

    def upload(self, session: int, name: str, number: int = 1) -> str:
        """A whole one, under its lock; returns its path."""
        images = f"{BUILDS}/{name}/providers/one/images"
        path = f"{images}/{number:010d}"
        self.write(session, "create", f"{images}/lock/a__lock__{number:010d}")
        self.record(session, "create", path, "uploading")
        self.record(session, "set", path, "ready")
        self.write(session, "delete", f"{images}/lock/a__lock__{number:010d}")
        return path

    def judged(self) -> ImageAudit:
        return ImageAudit("/chaos", [HAND]).follow(self.writes)


@pytest.fixture
def story() -> Story:
    return Story()


def test_builds_and_uploads_under_their_locks(story: Story) -> None:
    story.build(ONE, "b1", 1)
    story.upload(TWO, "b1")
    judged = story.judged()
    assert judged.violations == []
    assert judged.counts["build ready with its lock"] == judged.counts["upload uploading with its lock"] == 1


def test_second_build_of_an_image(story: Story) -> None:
    """B-11"""
    story.write(ONE, "create", f"{BUILDS}/lock/a__lock__0000000001")
    story.record(TWO, "create", f"{BUILDS}/b2", "building")
    assert "b2 became building, but 1000 has" in story.judged().violations[0]


def test_session_that_ended(story: Story) -> None:
    story.write(ONE, "create", f"{BUILDS}/lock/a__lock__0000000001")
    story.record(ONE, "create", f"{BUILDS}/b1", "building")
    story.write(ONE, "end of session", "")
    story.record(ONE, "set", f"{BUILDS}/b1", "ready")
    assert "b1 became ready, but nobody has" in story.judged().violations[0]


def test_older_build_over_a_newer_one(story: Story) -> None:
    """U-12"""
    story.build(ONE, "b1", 1)
    story.build(ONE, "b2", 2)
    story.upload(ONE, "b2")
    assert story.judged().violations == []
    story.upload(ONE, "b1")
    assert "of a newer build" in story.judged().violations[0]


def test_older_build_over_one_that_cannot_be_read(story: Story) -> None:
    """U-12: a build whose record a fault has corrupted does not tell that it is newer."""
    story.build(ONE, "b1", 1)
    story.build(ONE, "b2", 2)
    story.upload(ONE, "b2")
    story.write(HAND, "set", f"{BUILDS}/b2", b"{")
    story.upload(ONE, "b1")
    assert story.judged().violations == []


def test_wanted_builds_stay(story: Story) -> None:
    """R-1"""
    for number in (1, 2, 3):
        story.build(ONE, f"b{number}", number)
    story.record(TWO, "set", f"{BUILDS}/b1", "deleting")
    judged = story.judged()
    assert (judged.violations, judged.counts["deletions of what is not wanted"]) == ([], 1)
    story.record(TWO, "set", f"{BUILDS}/b2", "deleting")
    assert "b2 was wanted" in story.judged().violations[0]


def test_wanted_uploads_stay(story: Story) -> None:
    """R-2"""
    story.build(ONE, "b1", 1)
    path = story.upload(ONE, "b1")
    story.record(ONE, "set", path, "deleting")
    assert "was wanted" in story.judged().violations[0]


@pytest.mark.parametrize("same_lock", [True, False])
def test_upload_that_is_overtaken_while_it_becomes_ready(story: Story, same_lock: bool) -> None:
    """U-12: it goes at once. Later, it would be the second newest, and stay."""
    story.build(ONE, "b1", 1)
    story.build(ONE, "b2", 2)
    path = f"{BUILDS}/b1/providers/one/images/0000000001"
    lock = f"{BUILDS}/b1/providers/one/images/lock/a__lock__000000000"
    story.write(ONE, "create", f"{lock}1")
    story.record(ONE, "create", path, "uploading")
    story.record(ONE, "set", path, "ready")
    story.upload(TWO, "b2")
    if not same_lock:
        story.write(ONE, "delete", f"{lock}1")
        story.write(ONE, "create", f"{lock}2")
    story.record(ONE, "set", path, "deleting")
    assert bool(story.judged().violations) is not same_lock


def test_hands_may_write_as_they_like(story: Story) -> None:
    story.build(ONE, "b1", 1)
    story.record(HAND, "set", f"{BUILDS}/b1", "deleting")
    story.write(HAND, "set", f"{BUILDS}/b1", b"{")
    story.write(HAND, "delete", f"{BUILDS}/b1")
    assert story.judged().violations == []
