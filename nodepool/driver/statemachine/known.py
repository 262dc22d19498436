# SPDX-License-Identifier: Apache-2.0
"""Answers of a cloud that are kept, and requested again in the background."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, Generic, TypeVar, cast

from nodepool.clock import monotonic
from nodepool.driver.framework.quota_support import QuotaUnknown
from nodepool.plan.aged_answer import AgedAnswer

T = TypeVar("T")

#: Longest wait for the very first answer.
FIRST_ANSWER_SECONDS: Final = 5.0
#: Seconds after an error before the same question is asked again.
ERROR_SECONDS: Final = 2.0


class NotKnown(QuotaUnknown):
    """There is no answer yet. The text says why."""


class Patience:
    """How long first answers of one cloud are waited for, all together. An answer, whichever, gives all of it back.

    ``_lock`` guards what is left.
    """

    def __init__(self, seconds: float = FIRST_ANSWER_SECONDS, clock: Callable[[], float] = monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._left = seconds

    def wait(self, condition: threading.Condition, until: Callable[[], bool]) -> None:
        """Wait until something is true, or patience is at its end. ``condition`` is held."""
        with self._lock:
            left = self._left
        begun = self._clock()
        condition.wait_for(until, left)
        with self._lock:
            self._left = max(0.0, self._left - (self._clock() - begun))

    def restore(self) -> None:
        """The cloud has answered something."""
        with self._lock:
            self._left = self._seconds


class Known(Generic[T]):
    """An answer of a cloud that may be a little old.

    `get` returns what is known and, when that is too old, has it asked for again in the background. Only the first
    answer is waited for, by whoever asks first, and not for long: a pool that waits serves nobody. After an error the
    old answer stays. ``_condition`` guards everything; it is not held while the cloud is asked.

    :param ask: asks the cloud; may block and raise.
    :param seconds: how old an answer may be.
    :param permanent: errors that are an answer, too: they are raised by `get` until it is time to ask again.
    :param patience: shared by all that is asked of one cloud.
    """

    def __init__(
        self,
        ask: Callable[[], T],
        seconds: float,
        executor: Executor,
        *,
        permanent: tuple[type[Exception], ...] = (),
        clock: Callable[[], float] = monotonic,
        patience: Patience | None = None,
    ) -> None:
        self._ask = ask
        #: An error that is permanent is an answer, too.
        self._answer: AgedAnswer[T | Exception] = AgedAnswer(seconds, ERROR_SECONDS)
        self._executor = executor
        self._permanent = permanent
        self._clock = clock
        self._patience = patience or Patience()
        self._condition = threading.Condition()
        self._tried = False
        #: Somebody has waited for the first answer.
        self._waited = False

    def get(self) -> T:
        """The answer; blocks at most a few seconds, and only for the first one.

        :raises NotKnown: the cloud has not answered yet.
        :raises Exception: one of ``permanent``.
        """
        self.refresh()
        with self._condition:
            if not self._tried and not self._waited:
                self._patience.wait(self._condition, lambda: self._tried)
                self._waited = True
            answer = self._answer
            if answer.known:
                value = answer.value
                if isinstance(value, self._permanent):
                    raise value.with_traceback(None)
                return cast("T", value)
            raise NotKnown("the cloud has not answered yet" if answer.error is None else str(answer.error))

    def refresh(self) -> None:
        """Ask if what is known is too old. Does not block."""
        with self._condition:
            if not self._answer.begin(self._clock()):
                return
        try:
            self._executor.submit(self._run)
        except RuntimeError:  # the provider was stopped: what is known must do
            with self._condition:
                self._answer.gave_up()
                self._tried = True

    def expire(self) -> None:
        """What is known is out of date: `get` asks again. Does not block."""
        with self._condition:
            self._answer.expire()

    def _run(self) -> None:
        error: Exception | None = None
        value: T | Exception
        try:
            value = self._ask()
        except self._permanent as refusal:
            value = refusal
        except Exception as problem:  # noqa: BLE001 - told by `get`
            value = error = problem
        if error is None:
            self._patience.restore()
        with self._condition:
            self._tried = True
            if error is None:
                self._answer.answered(value, self._clock())
            else:
                self._answer.failed(error, self._clock())
            self._condition.notify_all()
