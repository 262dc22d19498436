# SPDX-License-Identifier: Apache-2.0
"""Pages of lists."""

from __future__ import annotations

import pytest

from nodepool.testing.simulator.pages import page


def pages(entries: list[str], limit: int, changes: dict[int, list[str]] | None = None) -> list[list[str]]:
    found, token = [], None
    while True:
        part, token = page(entries, str, token, limit)
        found.append(list(part))
        if token is None:
            return found
        entries = (changes or {}).get(len(found), entries)


def test_all_entries_once() -> None:
    assert pages(list("abcde"), 2) == [["a", "b"], ["c", "d"], ["e"]]
    assert pages(list("abcd"), 2) == [["a", "b"], ["c", "d"]]
    assert page([], str, None, 5) == ([], None)


def test_changes_between_pages_do_not_shift_the_rest() -> None:
    assert pages(list("abcde"), 2, {1: list("cde")}) == [["a", "b"], ["c", "d"], ["e"]]


@pytest.mark.parametrize("token", ["YWJj", "***", "nonsense", "é"])
def test_a_foreign_token_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match="bad token"):
        page(["a"], str, token, 1)
