# SPDX-License-Identifier: Apache-2.0
"""Which of several pools that could serve a request tries first?

Without an answer all of them try, in every launcher that watches, and all but one work for nothing. Every launcher
finds the same answer by itself: from the registry, the nodes and the request's id, which all of them see.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from nodepool.plan.assignment import Consider, PoolInfo, screen
from nodepool.plan.queue import RequestKind


def able_pools(kind: RequestKind, registered: Sequence[PoolInfo]) -> list[PoolInfo]:
    """The pools that may take a kind of request, as far as the registry tells."""
    return [pool for pool in registered if isinstance(screen(kind, pool, registered), Consider)]


def first_choice(request_id: str, pools: Iterable[PoolInfo]) -> PoolInfo | None:
    """One of some pools; None if there is none.

    Spreads requests evenly. A pool that comes or goes changes the answer only for its share (rendezvous hashing).
    """
    return max(pools, key=lambda pool: _weight(request_id, pool.id), default=None)


def _weight(request_id: str, pool_id: str) -> bytes:
    return blake2b(f"{request_id} {pool_id}".encode(), digest_size=8).digest()
