# SPDX-License-Identifier: Apache-2.0
"""`TokenBucket` and `CallWindow`: how many calls of one class a cloud takes; pure, each method gets the time.

A class is what the cloud counts together: calls that read, calls that change, or the calls to one service. When the
cloud throttles one of them (429, RequestLimitExceeded), the class as a whole slows down: if each caller went by its own
answer, the others would go on asking, and the throttling would never end.

A class without a rate is paced by the answers of the cloud only: by what is throttled, and by how long answers take.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from nodepool.clock import next_tick
from nodepool.plan.backoff import Backoff

#: From a rate of zero back to the full one, in seconds.
RECOVERY_SECONDS: Final = 20.0
#: No class is made slower than this, in calls per second, or than this part of a full rate that is less.
LOWEST_RATE: Final = 2.0
LOWEST_PART: Final = 0.25
#: For how long calls are remembered, to tell the rate that was too high.
REMEMBERED_SECONDS: Final = 2.0
#: Calls that wait for longer than this begin together with others, once in such a period, and so do the steps that
#: follow their answers: one node after the other costs a fifth more CPU. With fewer calls per second there is nothing
#: to gain.
TOGETHER_SECONDS: Final = 0.25
TOGETHER_RATE: Final = 8.0
#: After a throttling that names no time; each further one in a row counts as a failure.
THROTTLED: Final = Backoff(1.0, 60.0)
#: Calls of a class without a rate that may be without an answer: at most, and when the cloud answers late.
MOST_AT_ONCE: Final = 20
LEAST_AT_ONCE: Final = 4
#: An answer is late that takes so many times as long as usual, and so many seconds.
LATE_TIMES: Final = 4.0
LATE_SECONDS: Final = 1.0
#: So many late answers in a row halve the number of calls.
LATE_ANSWERS: Final = 5
#: With half as many calls, answers of a cloud that is busy with them come within this part of the time.
HELPED_PART: Final = 0.6
#: So many names of calls are remembered: some have the name of a thing.
MOST_NAMES: Final = 50


@dataclass(frozen=True)
class BucketSize:
    """What is allowed of one class.

    :param burst: calls that may begin at once after a pause; at least 1.
    :param rate: calls per second in the long run; 0 or less = no limit.
    """

    burst: float
    rate: float


@dataclass(frozen=True)
class Turn:
    """When a call may begin, in seconds of the caller's clock.

    :param round: the turn is void when the bucket has another one by then: take a new turn.
    :param spare: the part of what may begin at once that there was before it: 1 = all, 0 = nothing.
    """

    at: float
    round: int
    spare: float = 1.0


class TokenBucket:
    """One class of calls."""

    def __init__(self, size: BucketSize, now: float) -> None:
        self._size = size
        self._tokens = max(1.0, size.burst)
        self._counted_at = now
        #: Changed with each pause: turns that were given out before are void.
        self.round = 0
        #: The round that began when the class was made slower the last time.
        self._lowered_in = 0
        self._held_until = float("-inf")
        #: Throttlings in a row.
        self._throttled = 0
        #: The rate after the latest throttling, None = the full one; and the rate that it returns to.
        self._lowered: float | None = None
        self._reference = size.rate
        self._begun: deque[float] = deque()
        #: The latest turn that is not void.
        self._latest = float("-inf")

    def rate(self, now: float) -> float:
        """Calls per second that are allowed now; infinite = no limit."""
        full = self._size.rate if self._size.rate > 0 else float("inf")
        if self._lowered is None:
            return full
        grown = self._lowered + self._reference * max(0.0, now - self._held_until) / RECOVERY_SECONDS
        # Without a limit of its own a class has one until it was twice as fast without a throttling.
        end = full if self._size.rate > 0 else 2 * self._reference
        if grown < end:
            return grown
        self._lowered = None
        return full

    def take(self, now: float) -> Turn:
        """The next turn of the class. Turns are given out in the order in which they are taken."""
        rate, begin = self.rate(now), max(now, self._held_until)
        at, spare = begin, 1.0
        if rate != float("inf"):
            self._tokens = min(self._burst(rate), self._tokens + max(0.0, begin - self._counted_at) * rate)
            self._counted_at = max(self._counted_at, begin)
            self._tokens -= 1.0
            wait = max(0.0, -self._tokens) / rate
            at = begin + wait
            if wait > TOGETHER_SECONDS and rate >= TOGETHER_RATE:
                at = next_tick(at, TOGETHER_SECONDS)
            # Who comes when the queue has become short does not overtake those who begin together.
            at = self._latest = max(at, self._latest)
            spare = max(0.0, min(1.0, (self._tokens + 1.0) / self._burst(rate)))
        self._remember(at)
        return Turn(at, self.round, spare)

    def throttled(self, now: float, turn: Turn, seconds: float | None) -> float:
        """A call was put off by the cloud; returns how long no call of the class begins, in seconds.

        Of calls that had begun together only the first one makes the class slower.

        :param turn: of the call.
        :param seconds: as the cloud told; None = it did not.
        """
        first = turn.round >= self._lowered_in
        if first:
            self._throttled += 1
            self._lower(now)
            self._lowered_in = self.round + 1
        if seconds is None:
            seconds = THROTTLED.pause(self._throttled) if first else 0.0
        until = now + min(seconds, THROTTLED.longest_seconds)
        if first or until > self._held_until:
            self.round += 1
            self._latest = float("-inf")
            # All turns that wait are void: what they took is given back.
            self._tokens = max(1.0, self._tokens)
            self._held_until = max(self._held_until, until)
        return max(0.0, self._held_until - now)

    def worked(self, turn: Turn) -> None:
        """A call was not put off."""
        if turn.round >= self._lowered_in:
            self._throttled = 0

    def _lower(self, now: float) -> None:
        """Half of what was asked; from then on nothing is left to begin at once with."""
        while self._begun and self._begun[0] < now - REMEMBERED_SECONDS:
            self._begun.popleft()
        asked = len(self._begun) / REMEMBERED_SECONDS
        full = self._size.rate
        lowest = min(LOWEST_RATE, full * LOWEST_PART) if full > 0 else LOWEST_RATE
        current = self.rate(now)
        if full <= 0 and self._lowered is None:
            self._reference = max(asked, LOWEST_RATE)
        self._lowered = max(lowest, min(current, asked) / 2)
        self._tokens = 1.0
        self._counted_at = now
        self._begun.clear()

    def _burst(self, rate: float) -> float:
        full = self._size.rate
        if self._lowered is None or full <= 0:
            return max(1.0, self._size.burst if self._lowered is None else 1.0)
        return max(1.0, self._size.burst * rate / full)

    def _remember(self, at: float) -> None:
        self._begun.append(at)
        while self._begun[0] < at - REMEMBERED_SECONDS:
            self._begun.popleft()


class _Answers:
    """How long calls of one name take.

    :ivar usual: seconds.
    :ivar late: what the late answers in a row took.
    :ivar before: what late answers took before the number of calls was halved, and that number; None = it was not.
    """

    def __init__(self, seconds: float) -> None:
        self.usual = seconds
        self.late: list[float] = []
        self.before: tuple[float, float] | None = None


class CallWindow:
    """How many calls of a class without a rate may be without an answer.

    A cloud that is asked for more than it can do answers later and later, and does no more than before. So there are
    half as many calls when answers are late, and one more with each round of answers that are not. If half as many
    calls do not make answers earlier, the cloud is slow for another reason. Then there are as many as before, and what
    answers take is usual from then on.
    """

    def __init__(self) -> None:
        self.limit = float(MOST_AT_ONCE)
        self.running = 0
        #: When the limit was lowered or restored last: what began before says nothing of it.
        self._changed_at = float("-inf")
        self._answers: dict[str, _Answers] = {}

    @property
    def full(self) -> bool:
        """Must a call wait until another one has ended?"""
        return self.running >= int(self.limit)

    def answered(self, now: float, begun: float, name: str) -> None:
        """The cloud has done what a call asked for. The call still counts as running.

        :param name: calls of the same name are expected to take about equally long.
        """
        if begun < self._changed_at:
            return
        seconds = now - begun
        if name not in self._answers:
            if len(self._answers) >= MOST_NAMES:
                del self._answers[next(iter(self._answers))]
            self._answers[name] = _Answers(seconds)
        known = self._answers[name]
        if seconds > max(LATE_SECONDS, LATE_TIMES * known.usual):
            known.late.append(seconds)
            if len(known.late) >= LATE_ANSWERS:
                self._late(known, now)
            return
        known.usual = min(seconds, known.usual)
        known.late.clear()
        known.before = None
        self.limit = min(float(MOST_AT_ONCE), self.limit + 1 / self.limit)

    def _late(self, known: _Answers, now: float) -> None:
        seconds = sum(known.late) / len(known.late)
        known.late.clear()
        self._changed_at = now
        if known.before is not None and seconds > HELPED_PART * known.before[0]:
            self.limit, known.before = known.before[1], None
            known.usual = seconds
            return
        known.before = (seconds, self.limit)
        self.limit = max(float(LEAST_AT_ONCE), min(self.limit, self.running) / 2)
