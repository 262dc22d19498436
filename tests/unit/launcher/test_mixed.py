# SPDX-License-Identifier: Apache-2.0
"""Which requests are split, into which parts, and what is counted of them (rules MN)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.launcher.pool.mixed import pending_of, split
from nodepool.model.request import PART_REQUESTOR
from nodepool.plan.triage import PoolInfo
from tests.support.observed import request

POOLS = {"1": "a c", "2": "b", "3": "b c d", "4": "e"}


@pytest.mark.parametrize(
    ("labels", "mixed", "parts"),
    [
        ("a b", "b", ((0,), (1,))),
        ("b a c b", "b", ((0, 3), (1, 2))),
        # The third pool has most of the labels.
        ("a b c d", "a", ((0,), (1, 2, 3))),
        ("a b e", "b e", ((0,), (1,), (2,))),
        # One pool has all; none has all that must be together; no pool has one of them; no label is mixed.
        ("b c", "b c", None),
        ("a b e", "b", None),
        ("a x", "x", None),
        ("a b", "", None),
        ("", "b", None),
    ],
)
def test_parts(labels: str, mixed: str, parts: tuple[tuple[int, ...], ...] | None) -> None:
    """MN-1, MN-2."""
    pools = tuple(PoolInfo(name, name, frozenset(has.split()), 100, False) for name, has in POOLS.items())
    assert split(tuple(labels.split()), frozenset(mixed.split()), pools) == parts


def test_what_counts_for_a_tenant() -> None:
    """MN-6: the parts, and what is not split."""
    parts: dict[str, Any] = {
        "requestor": PART_REQUESTOR,
        "requestor_data": {"parent": "200-0000000001"},
        "state": "pending",
    }
    requests = [request(1, state="pending"), request(2, **parts), request(3, state="pending"), request(4)]
    assert [one.key[-1] for one in pending_of("t1", [*requests, request(4)])] == ["2", "3"]
