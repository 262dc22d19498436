# SPDX-License-Identifier: Apache-2.0
"""What one look shows may be about to change, or be known late. What the next one shows again is so."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class SeenTwice(Generic[K]):
    """Compares each look with the one before. The owner serializes the calls.

    :param apart_seconds: the first of the looks in a row that show something must be so long ago.
    """

    def __init__(self, apart_seconds: float = 0.0) -> None:
        self._apart_seconds = apart_seconds
        #: When each was seen for the first time, in looks without a gap.
        self._since: dict[K, float] = {}
        #: Did the last look show anything that the one before did not?
        self.new = False

    def seen_for(self, key: K, now: float) -> float:
        """Seconds since something was seen for the first time, in looks without a gap."""
        return now - self._since.get(key, now)

    def look(self, found: Iterable[K], now: float = 0.0) -> set[K]:
        """Note a look; returns what was seen before, too.

        :param found: all that it shows.
        :param now: seconds; needed only with ``apart_seconds``.
        """
        before = self._since
        self._since = {key: before.get(key, now) for key in found}
        self.new = not self._since.keys() <= before.keys()
        return {key for key, since in self._since.items() if key in before and now - since >= self._apart_seconds}
