# SPDX-License-Identifier: Apache-2.0
"""`ToldOnce`: what lists show again and again is told once, such as instances that ended."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Final

#: With more ids than these, those that the latest list does not show are forgotten.
MANY: Final = 5000


class ToldOnce:
    """Which of the ids in a list are new. Thread-safe, does not block; ``_lock`` guards the ids.

    What the first list shows was there before: it is not new. Lists may come in another order than they were begun, so
    an id that a list lacks does not become new again.

    :param many: see `MANY`.
    """

    def __init__(self, many: int = MANY) -> None:
        self._many = many
        self._lock = threading.Lock()
        self._told: frozenset[str] | None = None

    def new(self, found: Collection[str]) -> list[str]:
        """Those that no list has shown before, sorted.

        :param found: ids of a list.
        """
        with self._lock:
            before = self._told
            kept = before if before is not None and len(before) < self._many else frozenset()
            self._told = kept.union(found)
        return [] if before is None else sorted(set(found) - before)
