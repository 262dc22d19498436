# SPDX-License-Identifier: Apache-2.0
"""`Turns`: leaves requests to the pool that is their first choice, for a moment.

Each request has one owner among the pools that may take it (`plan.first_choice`). A pool that has room prefers its own
requests, and passes over the others. It takes another's when

* nobody else has ready nodes for it, or this pool is the first choice of those that have (at the end of its pass, so
  that its own come first);
* the owner, and who came after it, did nothing for `GRACE_SECONDS` each;
* it was passed over `MAX_PASSED` times, or there is nothing of its own among the first `WINDOW` requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from nodepool.clock import monotonic
from nodepool.plan.first_choice import able_pools, first_choice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nodepool.launcher.free_counts import FreeCounts
    from nodepool.model.request import NodeRequest
    from nodepool.plan.assignment import PoolInfo
    from nodepool.plan.queue import RequestKind

#: How long a pool whose turn it is may take. It takes some 20 ms when the machine is not busy.
GRACE_SECONDS: Final = 0.3
#: Who had its turn is remembered for so long; a request that comes up again later begins with its owner.
TURN_SECONDS: Final = 1.5
#: What was left is forgotten after this time.
FORGET_SECONDS: Final = 60.0
#: With more of them it is looked for old ones.
MANY: Final = 1000
#: So often a pool serves others before a request that it could serve as well.
MAX_PASSED: Final = 10
#: Requests that a pool leaves in one pass before it takes one at any rate.
WINDOW: Final = 64


class _PassedOver(NamedTuple):
    """A request that was left to another pool.

    :param times: how often. ``asked``: pools whose turn it was.
    """

    times: int
    when: float
    asked: tuple[str, ...]


class Turns:
    """Owned by the pool worker's thread.

    :param free: counts of free nodes of all pools.
    """

    def __init__(self, free: FreeCounts, clock: Callable[[], float] = monotonic) -> None:
        self._free = free
        self._clock = clock
        self._me = ""
        self._registered: Sequence[PoolInfo] = ()
        self._able: dict[RequestKind, list[PoolInfo]] = {}
        self._left: dict[str, _PassedOver] = {}
        self._many = MANY
        self._passed_over = 0
        #: Requests whose owner has no node for them, while this pool has: passed over in this pass, or to be taken.
        self._ours_next: list[str] = []
        self._ours: set[str] = set()

    def begin_pass(self, me: str, registered: Sequence[PoolInfo]) -> None:
        """:param registered: the same object as long as the registry does not change."""
        if self._registered is not registered or len(self._able) > 10_000:
            self._able.clear()
        self._me, self._registered = me, registered
        self._passed_over = 0
        self._ours_next.clear()
        if len(self._left) > self._many:
            old = self._clock() - FORGET_SECONDS
            self._left = {request_id: left for request_id, left in self._left.items() if left.when > old}
            # Most may be young: not all of them are looked at in each pass.
            self._many = max(MANY, 2 * len(self._left))

    def of_others(self, kind: RequestKind, request: NodeRequest) -> Sequence[PoolInfo]:
        """The pools whose turn it is before this one; empty = it is this pool's turn.

        To be asked only when this pool could serve the request now. Changes nothing; see `pass_over`.
        """
        able = self._able.get(kind)
        if able is None:
            able = self._able[kind] = able_pools(kind, self._registered)
        request_id, now = request.key, self._clock()
        if len(able) < 2 or request_id in self._ours or self._passed_over >= WINDOW:
            return ()
        before = self._left.get(request_id, _PassedOver(0, now, ()))
        if before.times >= MAX_PASSED:
            return ()
        asked = before.asked if now < before.when + TURN_SECONDS else ()
        turns = self._turns([pool for pool in able if pool.id not in asked], request)
        if not turns or turns[0].id == self._me:
            return ()
        return turns

    def pass_over(self, request: NodeRequest, turns: Sequence[PoolInfo]) -> None:
        """Note that a request is left to others; look again after `GRACE_SECONDS`.

        :param turns: the answer of `of_others`.
        """
        request_id, now = request.key, self._clock()
        before = self._left.get(request_id, _PassedOver(0, now, ()))
        asked = before.asked if now < before.when + TURN_SECONDS else ()
        if turns[-1].id == self._me:
            self._ours_next.append(request_id)
        self._left[request_id] = _PassedOver(before.times + 1, now, (*asked, *(pool.id for pool in turns)))
        self._passed_over += 1

    def _turns(self, pools: list[PoolInfo], request: NodeRequest) -> list[PoolInfo]:
        """Whose turn it is: the owner; and if only others have ready nodes, one of these."""
        request_id = request.key
        ready = [pool for pool in pools if self._free.could_serve(pool, request.node_types)] if request.reuse else []
        owner = first_choice(request_id, [pool for pool in pools if not pool.paused] or pools)
        turns = [owner, None if owner in ready else first_choice(request_id, ready)]
        return [pool for pool in turns if pool is not None]

    def end_pass(self) -> list[str]:
        """Requests that were passed over, but may be taken if there is still room after this pool's own."""
        self._ours = set(self._ours_next)
        return list(self._ours_next)
