# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from nodepool.web.pages.frame import LIFETIME_SECONDS, MOST_ANSWERS, MOST_BYTES, KeptAnswers
from tests.support.manual_clock import ManualClock


def test_answer_of_the_same_snapshot() -> None:
    kept = KeptAnswers(ManualClock())
    kept.put("a", 1, b"x")
    assert kept.get("a", 1) == b"x"
    assert kept.get("a", 2) is None
    assert kept.get("b", 1) is None


def test_old_answer_is_not_given() -> None:
    clock = ManualClock()
    kept = KeptAnswers(clock)
    kept.put("a", 1, b"x")
    clock.pass_seconds(LIFETIME_SECONDS)
    assert kept.get("a", 1) is None


def test_number_of_answers_is_bounded() -> None:
    kept = KeptAnswers(ManualClock())
    for number in range(MOST_ANSWERS):
        kept.put(str(number), 1, b"x")
    assert kept.get("0", 1) == b"x"
    kept.put("one more", 1, b"y")
    assert kept.get("0", 1) is None
    assert kept.get("one more", 1) == b"y"


def test_length_of_all_answers_is_bounded() -> None:
    kept = KeptAnswers(ManualClock())
    part = bytes(MOST_BYTES // 2)
    kept.put("a", 1, part)
    kept.put("b", 1, part)
    assert kept.get("a", 1) == part
    kept.put("c", 1, b"x")
    assert (kept.get("a", 1), kept.get("c", 1)) == (None, b"x")
    kept.put("d", 1, bytes(MOST_BYTES + 1))
    assert kept.get("d", 1) is None
