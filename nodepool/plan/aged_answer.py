# SPDX-License-Identifier: Apache-2.0
"""An answer that may be a little old: when to ask again, and what counts after an error."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class AgedAnswer(Generic[T]):
    """The last answer to a question that somebody asks in the background. An error leaves the old answer.

    Pure: each method gets the time, in seconds. The owner serializes the calls.

    :param age_seconds: after so long it is time to ask again.
    :param error_age_seconds: the same after an error.
    """

    def __init__(self, age_seconds: float, error_age_seconds: float) -> None:
        self._age_seconds = age_seconds
        self._error_age_seconds = error_age_seconds
        #: Is there an answer?
        self.known = False
        #: The last error, unless there was an answer since.
        self.error: Exception | None = None
        self._value: T | None = None
        self._asking = False
        self._expired = False
        self._due = float("-inf")

    @property
    def value(self) -> T:
        """The last answer; there must be one."""
        assert self.known
        return self._value  # type: ignore[return-value]

    def begin(self, now: float) -> bool:
        """Is it time to ask, and does nobody yet? Then who calls asks, and tells what came of it."""
        if self._asking or now < self._due:
            return False
        self._asking = True
        self._expired = False
        return True

    def answered(self, value: T, now: float) -> None:
        """The question was answered."""
        self.known, self._value, self.error = True, value, None
        self._end(now, self._age_seconds)

    def failed(self, error: Exception, now: float) -> None:
        """It was not: what was known before stays."""
        self.error = error
        self._end(now, self._error_age_seconds)

    def gave_up(self) -> None:
        """It could not even be asked: the next one may try."""
        self._asking = False

    def expire(self) -> None:
        """What is known is out of date, also what is being asked for just now."""
        self._due = float("-inf")
        self._expired = True

    def _end(self, now: float, seconds: float) -> None:
        self._asking = False
        if not self._expired:
            self._due = now + seconds
