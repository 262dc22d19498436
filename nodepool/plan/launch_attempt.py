# SPDX-License-Identifier: Apache-2.0
"""What follows when an attempt to launch a node ends badly, and how often to look at one (rules L)."""

from __future__ import annotations

import enum
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nodepool.plan.backoff import Backoff
from nodepool.plan.failures import Failure, may_be_retried

#: Between two looks at a machine: one that has just begun, or whose state has just changed, and one that has not
#: changed for a while.
PACE: Final = Backoff(0.1, 1.0)
#: From an attempt that failed to the next one.
RETRY: Final = Backoff(0.5, 8.0)


def may_have_made_an_instance(kind: Failure) -> bool:
    """Could there be an instance although the creation failed and no id came back?"""
    return kind not in (Failure.QUOTA, Failure.HELD, Failure.CAPACITY, Failure.CONFIGURATION, Failure.SETUP)


def answer_was_lost(kind: Failure) -> bool:
    """Is it not even sure whether the cloud heard the question? Then what it makes may show late."""
    return kind in (Failure.CLOUD, Failure.UNKNOWN)


class SearchDepth(enum.Enum):
    """How to look for what a failed attempt left in the cloud."""

    #: What it left is known.
    NONE = "none"
    ONCE = "once"
    #: What was made may show late: look several times.
    REPEATED = "repeated"


def search_after(kind: Failure, *, id_known: bool, others_known: bool, searched: bool) -> SearchDepth:
    """Whether to look for instances that nobody told us of.

    :param id_known: the node has an external id.
    :param others_known: earlier attempts left instances that are known.
    :param searched: the driver has looked for it already.
    """
    if kind is Failure.ZOOKEEPER:
        return SearchDepth.NONE
    unsure = not id_known and not others_known and may_have_made_an_instance(kind)
    lost = answer_was_lost(kind)
    if not unsure and not lost:
        return SearchDepth.NONE
    return SearchDepth.REPEATED if unsure and lost and not searched else SearchDepth.ONCE


@dataclass(frozen=True)
class LaunchOutcome:
    """How a launch ended.

    :param state: of the node: `ready`, `failed` or `aborted`.
    :param made: may any attempt have made an instance? False: it is sure that the cloud need not be asked.
    :param why: the kind of the failure that ended it; None = it was no failure, or the launch was abandoned.
    """

    state: str
    made: bool
    why: Failure | None


@dataclass(frozen=True)
class Retry:
    """Another attempt, after the previous instance is deleted (L-4)."""

    delay_seconds: float


@dataclass(frozen=True)
class Abort:
    """Give the node up; the request gets another one later (L-7)."""

    reason: str


@dataclass(frozen=True)
class Fail:
    """Give the node up; the pool declines the request (L-6)."""

    reason: str


Decision = Retry | Abort | Fail


def after_failure(kind: Failure, attempt: int, retries: int, *, circuit_open: bool) -> Decision:
    """What follows a failed attempt.

    :param attempt: number of the attempt that failed, from 1.
    :param retries: ``launch-retries``: attempts in total.
    :param circuit_open: the provider's cloud does not answer, see `nodepool.plan.circuit_breaker`.
    """
    if kind is Failure.QUOTA:
        return Abort("the cloud says that a quota is used up")
    if kind is Failure.HELD:
        return Abort("what it waits for is out of service")
    if circuit_open and kind in (Failure.CLOUD, Failure.UNKNOWN):
        return Abort("the cloud does not answer")
    if not may_be_retried(kind):
        return Fail("ZooKeeper was lost" if kind is Failure.ZOOKEEPER else "its configuration can never work")
    if attempt >= retries:
        return Fail(f"{attempt} attempt(s) failed")
    return Retry(RETRY.pause(attempt))


def pace(quiet_turns: int, hint_seconds: float | None) -> float:
    """Seconds until a machine should be advanced again.

    :param quiet_turns: how often it has been advanced since it last changed its state.
    :param hint_seconds: what the machine itself asks for.
    """
    if hint_seconds is not None:
        return max(0.0, hint_seconds)
    return PACE.pause(quiet_turns + 1)


def zone_of_next_attempt(zone: str | None, zones: Sequence[str | None], request_id: str) -> str | None:
    """The zone for a launch that was refused (O-2): zones are removed, and then another one must do.

    :param zone: in which it was refused; None = the cloud chose.
    :param zones: that there are now.
    :param request_id: the nodes of a request agree on another zone without asking each other (N-7).
    """
    others = sorted(other for other in zones if other is not None)
    if zone is None or zone in others or not others:
        return zone
    return others[zlib.crc32(request_id.encode()) % len(others)]
