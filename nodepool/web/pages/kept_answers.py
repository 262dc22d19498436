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
        """Keep an answer."""
        with self._lock:
            if len(self._answers) >= MOST_ANSWERS:
                self._answers.clear()
            self._answers[key] = (number, self._clock(), answer)
