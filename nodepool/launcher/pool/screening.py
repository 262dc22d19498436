# SPDX-License-Identifier: Apache-2.0
"""`Screening`: what the registry says of a kind of request, worked out once for each kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nodepool.plan.assignment import screen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nodepool.plan.assignment import PoolInfo, Verdict
    from nodepool.plan.queue import RequestKind

#: Kinds that are remembered at most.
MAX_KINDS: Final = 10_000


class Screening:
    """Owned by the pool worker's thread.

    A kind is judged against every registered pool. With hundreds of kinds waiting (requests that combine labels) that
    was most of a pass, although the registry changes seldom.
    """

    def __init__(self) -> None:
        self._me: PoolInfo | None = None
        self._registered: Sequence[PoolInfo] = ()
        self._absent: Sequence[PoolInfo] = ()
        self._verdicts: dict[RequestKind, Verdict] = {}

    def begin_pass(self, me: PoolInfo, registered: Sequence[PoolInfo], absent: Sequence[PoolInfo]) -> None:
        """:param registered: the same object as long as the registry does not change."""
        same = self._registered is registered and self._me == me and list(self._absent) == list(absent)
        if not same or len(self._verdicts) > MAX_KINDS:
            self._verdicts.clear()
        self._me, self._registered, self._absent = me, registered, absent

    def verdict(self, kind: RequestKind) -> Verdict:
        """`plan.assignment.screen` for this pool."""
        found = self._verdicts.get(kind)
        if found is None:
            assert self._me is not None
            found = self._verdicts[kind] = screen(kind, self._me, self._registered, self._absent)
        return found
