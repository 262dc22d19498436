# SPDX-License-Identifier: Apache-2.0
"""What a query asks for, and what is refused."""

from __future__ import annotations

import pytest

from nodepool.listing.nodes import Filter
from nodepool.web import answers
from nodepool.web.answers import ApiProblem

STATE = answers.state(["ready", "used"])
ALL = (
    STATE,
    answers.LABEL,
    answers.PROVIDER,
    answers.POOL,
    answers.TENANT,
    answers.OLDER_THAN,
    answers.SINCE,
    *answers.OF_LISTS,
)


def parsed(text: str) -> answers.Query:
    return answers.parse(text.encode(), ALL, {})


def test_filters() -> None:
    """WP-22: as the options of commands."""
    text = "state=ready,used&label=a,%20b*&provider=p&pool=p/main&tenant=t&older_than=1h30m"
    assert parsed(text).filter(STATE) == Filter(["ready", "used"], ["a", "b*"], ["p"], ["p/main"], ["t"], 5400.0)
    assert parsed("").filter(STATE) == Filter([], [], [], [], [], None)
    assert parsed("state=&label=,").filter(STATE) == Filter([], [], [], [], [], None)


def test_lists() -> None:
    """WP-21, WP-23"""
    assert (parsed("").limit, parsed("limit=7").limit) == (answers.ROWS, 7)
    assert parsed("fields=a,b,a").fields == ["a", "b"]
    assert parsed("sort=-id&cursor=abc").given == {"sort": "-id", "cursor": "abc"}


def test_since() -> None:
    assert parsed("").since(100.0) == 0.0
    assert parsed("since=90.5").since(100.0) == 90.5
    assert parsed("since=1m").since(100.0) == 40.0


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("no=1", "There is no parameter 'no' here; there are: state, label"),
        ("state=redy", "there is no state 'redy', did you mean 'ready'"),
        ("limit=1001", "'1001' is no number from 1 to 1000"),
        ("limit=-1", "is no number"),
        ("limit=%C2%B2", "is no number"),
        ("limit=99999999999999999999", "is no number"),
        ("label=a&label=b", "is there twice"),
        (f"label={'x' * (answers.MAX_VALUE + 1)}", "is longer than 500 characters"),
        (f"label={'x,' * (answers.MAX_NAMES + 1)}", "more than 50 names"),
        ("x" * (answers.MAX_QUERY + 1), "The query is longer"),
        ("since=nan", "is no duration"),
        ("older_than=-1s", "is no duration"),
    ],
)
def test_refused(text: str, detail: str) -> None:
    """WP-25: says what is wrong, and is not longer than that."""

    def understand() -> None:
        found = parsed(text)
        assert found.limit
        found.filter(STATE)
        found.since(1.0)

    with pytest.raises(ApiProblem) as problem:
        understand()
    assert detail in problem.value.detail
    assert problem.value.status == 400
