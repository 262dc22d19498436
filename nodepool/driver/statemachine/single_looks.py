# SPDX-License-Identifier: Apache-2.0
"""`SingleLooks`: instances that are asked for one by one, in place of a list of all, while few are waited for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Set
from typing import Final, Generic, NamedTuple, TypeVar

from nodepool.exceptions import NotFound

T = TypeVar("T")

#: Several are asked for one by one if there are so many times as many.
SINGLY_OF: Final = 10


class Looked(NamedTuple, Generic[T]):
    """What came of it: instances as they are, and the ids of those that are gone."""

    found: list[T]
    gone: list[str]


class SingleLooks(Generic[T]):
    """Of one cloud.

    :param look_at: gives one instance as it is now; blocks. Raises NotFound when it is gone: that is the proof.
    :param most: so many at once; 0 = always list.
    """

    def __init__(self, look_at: Callable[[str], T], most: int) -> None:
        self._look_at = look_at
        self._most = most

    def choose(self, awaited: Set[str] | None, known: Collection[str]) -> Set[str]:
        """Which instances to ask for; none = list. Pure.

        One that no list has shown is not asked for: a list shows it, and what else there is.

        :param awaited: whom somebody waits for; None = somebody waits for something else.
        :param known: all that lists have shown.
        """
        if not awaited or len(awaited) > self._most or any(record_id not in known for record_id in awaited):
            return set()
        return awaited if len(awaited) == 1 or len(awaited) * SINGLY_OF <= len(known) else set()

    def look(self, record_ids: Iterable[str]) -> Looked[T]:
        """Ask for each of them; blocks. Raises what the cloud says."""
        looked: Looked[T] = Looked([], [])
        for record_id in record_ids:
            try:
                looked.found.append(self._look_at(record_id))
            except NotFound:
                looked.gone.append(record_id)
        return looked
