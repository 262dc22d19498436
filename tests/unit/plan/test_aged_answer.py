# SPDX-License-Identifier: Apache-2.0
"""An answer that may be a little old."""

from __future__ import annotations

import pytest

from nodepool.plan.retries import AgedAnswer


@pytest.fixture
def answer() -> AgedAnswer[str]:
    return AgedAnswer(300.0, 10.0)


def test_one_asks_at_a_time(answer: AgedAnswer[str]) -> None:
    """And again only when the answer is too old."""
    assert answer.begin(0.0)
    assert not answer.begin(1.0)
    assert not answer.known
    answer.answered("yes", 2.0)
    assert (answer.known, answer.value, answer.error) == (True, "yes", None)
    assert not answer.begin(301.9)
    assert answer.begin(302.0)


def test_error_leaves_the_old_answer(answer: AgedAnswer[str]) -> None:
    """It is asked again sooner."""
    answer.begin(0.0)
    answer.answered("yes", 0.0)
    answer.begin(300.0)
    error = RuntimeError("away")
    answer.failed(error, 300.0)
    assert (answer.value, answer.error) == ("yes", error)
    assert not answer.begin(309.0)
    assert answer.begin(310.0)
    answer.answered("no", 311.0)
    assert (answer.value, answer.error) == ("no", None)


def test_no_answer_yet(answer: AgedAnswer[str]) -> None:
    answer.begin(0.0)
    answer.failed(RuntimeError("away"), 0.0)
    assert not answer.known
    with pytest.raises(AssertionError):
        _ = answer.value


def test_out_of_date(answer: AgedAnswer[str]) -> None:
    """What is being asked for meanwhile is out of date, too."""
    answer.begin(0.0)
    answer.answered("yes", 0.0)
    answer.expire()
    assert answer.begin(1.0)
    answer.expire()
    answer.answered("no", 2.0)
    assert answer.begin(3.0)
    answer.answered("yes", 4.0)
    assert not answer.begin(5.0)


def test_nobody_could_ask(answer: AgedAnswer[str]) -> None:
    answer.begin(0.0)
    answer.gave_up()
    assert answer.begin(0.0)
