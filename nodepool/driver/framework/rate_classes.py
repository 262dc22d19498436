# SPDX-License-Identifier: Apache-2.0
"""`RateClasses`: paces the calls to a cloud, each class of calls separately."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from nodepool.clock import monotonic, sleep
from nodepool.driver.framework.held_time import held_up
from nodepool.driver.framework.token_bucket import BucketSize, CallWindow, TokenBucket, Turn

#: A pause is up to so much longer than told, in seconds: several launchers shall not all come at once.
SPREAD_SECONDS: Final = 0.1
#: How often a call that waits for the end of another one asks whether it must be made at all.
LOOK_SECONDS: Final = 1.0


class Call:
    """A call whose turn has come. Tell it what the cloud made of it: `throttled` or `worked`.

    :ivar spare: the part of the calls that may begin at once that there was before it: 1 = all; 0 = its turn did not
        come at once, so the cloud is asked as often as it allows.
    """

    def __init__(
        self, classes: RateClasses, kind: str, turn: Turn, *, waited: bool, name: str = "", begun: float = 0.0
    ) -> None:
        self._classes = classes
        self._kind = kind
        self._turn = turn
        self._name = name
        self._begun = begun
        self.spare = 0.0 if waited else turn.spare

    def throttled(self, seconds: float | None) -> float:
        """The cloud puts calls of this class off; returns for how long none of them begins, in seconds.

        :param seconds: as the cloud told, e.g. in ``Retry-After``; None = it did not.
        """
        return self._classes.throttled(self._kind, self._turn, seconds)

    def worked(self, *, done: bool = True) -> None:
        """The cloud did not put it off.

        :param done: it did what it was asked; an error comes sooner than that.
        """
        self._classes.worked(self._kind, self._turn, self._begun, self._name if done else "")


class _Class:
    """One class. ``window`` is None if the class has a rate.

    :ivar queue: of those who wait for the end of another call, the first of whom is notified when there is room.
    """

    def __init__(self, size: BucketSize, now: float) -> None:
        self.bucket = TokenBucket(size, now)
        self.window = CallWindow() if size.rate <= 0 else None
        self.queue: deque[threading.Condition] = deque()

    def wake(self) -> None:
        """Called with the lock."""
        if self.queue and self.window is not None and not self.window.full:
            self.queue[0].notify()


class RateClasses:
    """Calls to one cloud, by class. Thread-safe; ``_lock`` guards the classes, no thread sleeps while holding it.

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
        self._classes: dict[str, _Class] = {}

    def wait(self, kind: str) -> Call:
        """Block until a call of a class may begin. Threads get their turns in the order in which they came.

        One that waits while the class is throttled gets a new turn after the pause.
        """
        return self._wait(kind, "")

    @contextlib.contextmanager
    def call(self, kind: str, name: str = "") -> Iterator[Call]:
        """The same, for a call that ends with the block.

        If its class has no rate, it may also wait for the end of another call, see `CallWindow`.

        :param name: of the call; those of one name take about equally long. "" = that depends on its data: it waits for
            no other, and no other for it.
        """
        window = self._enter(kind) if name else None
        try:
            yield self._wait(kind, name)
        finally:
            if window is not None:
                with self._lock:
                    window.running -= 1
                    self._classes[kind].wake()

    def throttled(self, kind: str, turn: Turn, seconds: float | None) -> float:
        """See `Call.throttled`."""
        spread = random.uniform(0, SPREAD_SECONDS)
        with self._lock:
            bucket = self._class(kind).bucket
            return bucket.throttled(self._clock(), turn, None if seconds is None else seconds + spread)

    def worked(self, kind: str, turn: Turn, begun: float, name: str) -> None:
        """See `Call.worked`."""
        with self._lock:
            found = self._class(kind)
            found.bucket.worked(turn)
            if found.window is not None and name:
                found.window.answered(self._clock(), begun, name)
                found.wake()

    def _wait(self, kind: str, name: str) -> Call:
        waited = False
        while True:
            with self._lock:
                bucket = self._class(kind).bucket
                now = self._clock()
                turn = bucket.take(now)
            if turn.at > now:
                waited = True
                with held_up():
                    self._sleep(turn.at - now)
            with self._lock:
                if bucket.round == turn.round:
                    return Call(self, kind, turn, waited=waited, name=name, begun=self._clock())

    def _enter(self, kind: str) -> CallWindow | None:
        with self._lock:
            found = self._class(kind)
            window = found.window
            if window is None:
                return None
            if not found.queue and not window.full:
                window.running += 1
                return window
            room = threading.Condition(self._lock)
            found.queue.append(room)
        with held_up():
            self._wait_for_room(found, window, room)
        return window

    def _wait_for_room(self, found: _Class, window: CallWindow, room: threading.Condition) -> None:
        """Until it is the first in the queue, and there is room."""
        try:
            while True:
                with self._lock:
                    if window.full or found.queue[0] is not room:
                        room.wait(LOOK_SECONDS)
                    if not window.full and found.queue[0] is room:
                        window.running += 1
                        return
                # Raises if there is to be no call any more.
                self._sleep(0)
        finally:
            with self._lock:
                found.queue.remove(room)
                found.wake()

    def _class(self, kind: str) -> _Class:
        """Called with the lock."""
        found = self._classes.get(kind)
        if found is None:
            found = self._classes[kind] = _Class(self._sizes.get(kind, self._default), self._clock())
        return found
