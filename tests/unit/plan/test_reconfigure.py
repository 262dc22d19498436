# SPDX-License-Identifier: Apache-2.0
"""What does a new configuration change? (rules G-4 to G-6)"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodepool.plan.config_diff import ReconfigurePlan, compare


def test_each_kind() -> None:
    """G-4, G-5, G-6: kept, changed, removed, added."""
    old, new = {"same": 1, "other": 1, "gone": 1}, {"new": 1, "other": 2, "same": 1}
    assert compare(old, new) == ReconfigurePlan(added=("new",), removed=("gone",), changed=("other",), kept=("same",))


def test_only_equality_counts() -> None:
    """Objects are compared by ``==`` and nothing else."""

    class Odd:
        def __eq__(self, other: object) -> bool:
            return True

        def __ne__(self, other: object) -> bool:
            raise AssertionError

        __hash__ = None  # type: ignore[assignment]

    assert compare({"a": Odd()}, {"a": Odd()}).kept == ("a",)


@given(*[st.dictionaries(st.sampled_from("abcd"), st.integers(0, 1))] * 2)
def test_every_provider_once(old: dict[str, int], new: dict[str, int]) -> None:
    """G-4 to G-6: nothing is left out, nothing is treated twice, and doing the plan gives the new configuration."""
    plan = compare(old, new)
    assert sorted((*plan.added, *plan.changed, *plan.kept)) == sorted(new)
    assert sorted((*plan.removed, *plan.changed, *plan.kept)) == sorted(old)
    running = {name: old[name] for name in plan.kept}
    running |= {name: new[name] for name in (*plan.added, *plan.changed)}
    assert running == new
