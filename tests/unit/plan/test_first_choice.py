# SPDX-License-Identifier: Apache-2.0
"""nodepool.plan.triage: one pool for each request, the same for every launcher."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from nodepool.model.request import NodeRequest
from nodepool.plan.queue import RequestKind
from nodepool.plan.triage import PoolInfo, able_pools, first_choice

POOLS = [PoolInfo(f"pool-{number}", "cloud", frozenset({"small"}), 100, paused=False) for number in range(5)]
REQUESTS = [f"200-{number:010}" for number in range(2000)]


def kind(*labels: str, provider: str | None = None) -> RequestKind:
    request = NodeRequest()
    request.node_types = list(labels)
    request.provider = provider
    return RequestKind.of(request)


def choice(request_id: str, pools: list[PoolInfo]) -> str:
    chosen = first_choice(request_id, pools)
    assert chosen is not None
    return chosen.id


def test_order_does_not_matter() -> None:
    """Launchers see the registry in different orders."""
    assert [choice(r, POOLS) for r in REQUESTS] == [choice(r, POOLS[::-1]) for r in REQUESTS]


def test_even_share() -> None:
    counts = Counter(choice(request_id, POOLS) for request_id in REQUESTS)
    assert len(counts) == len(POOLS)
    assert min(counts.values()) > 0.8 * len(REQUESTS) / len(POOLS)


def test_pool_that_goes() -> None:
    """Only its own requests get another first choice."""
    for request_id in REQUESTS:
        before, after = choice(request_id, POOLS), choice(request_id, POOLS[1:])
        assert before in (after, POOLS[0].id)


def test_nobody() -> None:
    assert first_choice("200-0000000000", []) is None


def test_able_pools() -> None:
    """A-3, A-4: who would leave such a request anyway is not asked."""
    other = PoolInfo("other", "other-cloud", frozenset({"small", "large"}), 100, paused=False)
    better = replace(POOLS[1], priority=50)
    assert able_pools(kind("large"), [*POOLS, other]) == [other]
    assert able_pools(kind("small", provider="other-cloud"), [*POOLS, other]) == [other]
    assert able_pools(kind("small"), [POOLS[0], better, other]) == [better]
