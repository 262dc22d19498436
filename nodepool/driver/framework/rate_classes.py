# SPDX-License-Identifier: Apache-2.0
"""`RateClasses`: paces the calls to a cloud, each class of calls separately."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from typing import Final

from nodepool.clock import monotonic, sleep
from nodepool.driver.framework.token_bucket import BucketSize, TokenBucket, Turn

#: A pause is up to so much longer than told, in seconds: several launchers shall not all come at once.
SPREAD_SECONDS: Final = 0.1


class Call:
    """A call whose turn has come. Tell it what the cloud made of it: `throttled` or `worked`.

    :ivar spare: the part of the calls that may begin at once that there was before it: 1 = all; 0 = its turn did not
        come at once, so the cloud is asked as often as it allows.
    """

    def __init__(self, classes: RateClasses, kind: str, turn: Turn, *, waited: bool) -> None:
        self._classes = classes
        self._kind = kind
        self._turn = turn
        self.spare = 0.0 if waited else turn.spare

    def throttled(self, seconds: float | None) -> float:
        """The cloud puts calls of this class off; returns for how long none of them begins, in seconds.

        :param seconds: as the cloud told, e.g. in ``Retry-After``; None = it did not.
        """
        return self._classes.throttled(self._kind, self._turn, seconds)

    def worked(self) -> None:
        """The cloud did not put it off."""
        self._classes.worked(self._kind, self._turn)


class RateClasses:
    """Calls to one cloud, by class. Thread-safe; ``_lock`` guards the buckets, nobody sleeps while holding it.

    :param sizes: of the classes, by name.
    :param default: of classes that are not named: each has a bucket of its own.
    :param sleep: waits for a turn; may raise, then there is no call.
    """

    def __init__(
        self,
        sizes: Mapping[str, BucketSize],
        default: BucketSize,
        clock: Callable[[], float] = monotonic,
        sleep: Callable[[float], None] = sleep,
    ) -> None:
        self._sizes = dict(sizes)
        self._default = default
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._buckets: dict[str, TokenBucket] = {}

    def wait(self, kind: str) -> Call:
        """Block until a call of a class may begin. Threads get their turns in the order in which they came.

        One that waits while the class is throttled gets a new turn after the pause.
        """
        waited = False
        while True:
            with self._lock:
                bucket = self._bucket(kind)
                now = self._clock()
                turn = bucket.take(now)
            if turn.at > now:
                waited = True
                self._sleep(turn.at - now)
            with self._lock:
                if bucket.round == turn.round:
                    return Call(self, kind, turn, waited=waited)

    def throttled(self, kind: str, turn: Turn, seconds: float | None) -> float:
        """See `Call.throttled`."""
        spread = random.uniform(0, SPREAD_SECONDS)
        with self._lock:
            bucket = self._bucket(kind)
            return bucket.throttled(self._clock(), turn, None if seconds is None else seconds + spread)

    def worked(self, kind: str, turn: Turn) -> None:
        """See `Call.worked`."""
        with self._lock:
            self._bucket(kind).worked(turn)

    def _bucket(self, kind: str) -> TokenBucket:
        """Called with the lock."""
        bucket = self._buckets.get(kind)
        if bucket is None:
            bucket = self._buckets[kind] = TokenBucket(self._sizes.get(kind, self._default), self._clock())
        return bucket
