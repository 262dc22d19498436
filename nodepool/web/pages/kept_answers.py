# SPDX-License-Identifier: Apache-2.0
"""`KeptAnswers`: what was made for one viewer is there for all others who ask for the same at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

#: An answer is given for so long, although ages in it grow.
LIFETIME_SECONDS: Final = 1.0
#: More are not kept: addresses may have any parameters.
MOST_ANSWERS: Final = 200
#: Of all answers together.
MOST_BYTES: Final = 8_000_000


class KeptAnswers:
    """Any thread.

    :param clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: What was asked for -> (number of the snapshot, when it was made, answer).
        self._answers: dict[str, tuple[int, float, bytes]] = {}

    def get(self, key: str, number: int) -> bytes | None:
        """An answer made of the same snapshot; None = there is none, or it is too old."""
        with self._lock:
            found = self._answers.get(key)
        if found is None or found[0] != number or self._clock() - found[1] >= LIFETIME_SECONDS:
            return None
        return found[2]

    def put(self, key: str, number: int, answer: bytes) -> None:
        """Keep an answer, and forget those that are too old; a very long one is not kept."""
        now = self._clock()
        with self._lock:
            kept = {key: one for key, one in self._answers.items() if now - one[1] < LIFETIME_SECONDS}
            room = MOST_BYTES - len(answer)
            if len(kept) >= MOST_ANSWERS or sum(len(one[2]) for one in kept.values()) > room:
                kept.clear()
            if room >= 0:
                kept[key] = (number, now, answer)
            self._answers = kept
