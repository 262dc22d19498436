# SPDX-License-Identifier: Apache-2.0
"""What a provider's cloud took of each label when it said that a quota was used up (rule L-7)."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from nodepool.clock import monotonic
from nodepool.plan.learned_limit import LearnedLimit


class LearnedLimits:
    """Clouds do not report all of their quotas. Where one refused a node, no more are launched than it has taken.

    Thread-safe; ``_lock`` guards the tables, and ``count`` and ``exists`` are called with it: they must not block.

    :param count: how many nodes of the provider there are.
    :param exists: is there still a node of this id?
    """

    def __init__(
        self,
        count: Callable[[], int],
        exists: Callable[[str], bool],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._count = count
        self._exists = exists
        self._clock = clock
        self._lock = threading.Lock()
        self._limits: dict[tuple[str, str], LearnedLimit] = {}
        #: What the cloud said.
        self._words: dict[tuple[str, str], str] = {}
        #: Refused nodes that are not removed yet: the cloud does not have them.
        self._refused: set[str] = set()
        #: Nodes that are launched although the cloud was full with those that were there: it may have room again.
        self._beyond: set[str] = set()

    def allows(self, pool: str, label: str) -> bool:
        """May another node be launched, as far as the cloud's refusals go?"""
        with self._lock:
            limit = self._limits.get((pool, label))
            return limit is None or limit.allows(self._clock(), self._count())

    def room(self, pool: str, label: str) -> float:
        """How many more the cloud takes, as far as its refusals go."""
        with self._lock:
            limit = self._limits.get((pool, label))
            return math.inf if limit is None else max(0, limit.nodes - self._count())

    def known(self, pool: str, label: str) -> tuple[int, int, str] | None:
        """With how many nodes the cloud was full, how many it has now, what it said; None = it never refused one."""
        with self._lock:
            limit = self._limits.get((pool, label))
            return None if limit is None else (limit.nodes, self._count(), self._words[pool, label])

    def begun(self, pool: str, label: str, node_id: str) -> None:
        """A node that is stored already is launched."""
        with self._lock:
            limit = self._limits.get((pool, label))
            if limit is not None and self._taken() > limit.nodes:
                self._beyond.add(node_id)

    def refused(self, pool: str, label: str, node_id: str, words: str) -> None:
        """The cloud said that a quota is used up, in these words."""
        with self._lock:
            self._beyond.discard(node_id)
            self._refused.add(node_id)
            limit = self._limits.setdefault((pool, label), LearnedLimit())
            limit.refused(self._clock(), self._taken())
            self._words[pool, label] = words

    def ended(self, pool: str, label: str, node_id: str, *, ready: bool) -> None:
        """A launch is over. One beyond the limit that is ready shows that there is more room."""
        with self._lock:
            if node_id in self._beyond:
                self._beyond.discard(node_id)
                if ready:
                    self._limits.pop((pool, label), None)

    def _taken(self) -> int:
        self._refused = {node_id for node_id in self._refused if self._exists(node_id)}
        return self._count() - len(self._refused)
