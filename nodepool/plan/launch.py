# SPDX-License-Identifier: Apache-2.0
"""What follows when an attempt to launch a node ends badly, and how often to look at one (rules L).

Then what the refusals of a cloud say of its limit, and what an exception of a driver means.
"""

from __future__ import annotations

import enum
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nodepool import exceptions
from nodepool.model import states
from nodepool.plan.retries import Backoff

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
    :param circuit_open: the provider's cloud does not answer, see `nodepool.plan.retries`.
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


# How many nodes does a cloud take that says "quota used up", but not where the limit is?
#
# What it refused shows: with so many nodes it is full. A node that goes makes room for another one at once. Whether
# there is room for more than that, because others freed it, is found out now and then with one launch, the probe.

#: From a refusal to the next probe.
PROBE: Final = Backoff(1.0, 30.0)


class LearnedLimit:
    """Of one kind of node. Pure: each method gets the time, in seconds. The owner serializes the calls."""

    def __init__(self) -> None:
        #: With so many the cloud was full.
        self.nodes = 0
        #: The first refusal and the probes that the cloud refused.
        self._refusals = 1
        self._probe_at = float("-inf")
        self._probing = False

    def refused(self, now: float, nodes: int) -> None:
        """The cloud refused a node when there were so many others."""
        self.nodes = nodes
        if self._probing:
            self._probing = False
            self._refusals += 1
        self._probe_at = max(self._probe_at, now + PROBE.pause(self._refusals))

    def allows(self, now: float, nodes: int) -> bool:
        """May another node be launched while there are so many? The probe may, once in a while."""
        if nodes < self.nodes:
            return True
        if now < self._probe_at:
            return False
        self._probing = True
        self._probe_at = now + PROBE.pause(self._refusals)
        return True


# What an exception of a driver means: one table for everything that a driver is asked to do (reference/driver 13).


class Failure(enum.Enum):
    """Kinds of failures, by what the launcher does about them."""

    #: The cloud says that a quota is used up.
    QUOTA = "quota"
    #: An operator has taken out of service what the launch waits for.
    HELD = "held"
    #: The cloud has no room for such an instance.
    CAPACITY = "capacity"
    #: The cloud's API does not answer, or only with errors of its own.
    CLOUD = "cloud"
    #: The configuration of the label can never work.
    CONFIGURATION = "configuration"
    #: Something that the launch needs is not there, e.g. the image: it was not even tried.
    SETUP = "setup"
    #: ZooKeeper did not do what we wanted.
    ZOOKEEPER = "zookeeper"
    #: Something is wrong with this instance.
    INSTANCE = "instance"
    #: An error that the driver has not told us the meaning of.
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Meaning:
    """A row of the table.

    :param error: the class of the exception; the first row that fits counts.
    :param node_state: final state of a node whose launch ends with it.
    :param statsd_key: result under which such a launch is counted; None = what the exception says, else
        ``error.unknown``.
    :param retry: may another attempt of the same launch help?
    """

    error: type[BaseException]
    kind: Failure
    node_state: str
    statsd_key: str | None
    retry: bool

    @property
    def expected(self) -> bool:
        """Does its text say all, so that a traceback would only hide it?"""
        return self.kind is not Failure.UNKNOWN


#: Special ones first. `OSError`: connections that fail, the errors of sockets, ssl and requests.
TABLE: Final = (
    Meaning(exceptions.QuotaException, Failure.QUOTA, states.ABORTED, None, retry=False),
    Meaning(exceptions.LaunchHeldException, Failure.HELD, states.ABORTED, None, retry=False),
    Meaning(exceptions.CapacityException, Failure.CAPACITY, states.FAILED, None, retry=True),
    Meaning(exceptions.RuntimeConfigurationException, Failure.CONFIGURATION, states.FAILED, None, retry=False),
    Meaning(exceptions.LaunchNodepoolException, Failure.SETUP, states.FAILED, None, retry=True),
    Meaning(exceptions.ZKConnectionError, Failure.ZOOKEEPER, states.FAILED, "error.zksession", retry=False),
    Meaning(exceptions.ZKException, Failure.ZOOKEEPER, states.FAILED, None, retry=False),
    Meaning(exceptions.CloudUnavailableException, Failure.CLOUD, states.FAILED, None, retry=True),
    Meaning(exceptions.LaunchError, Failure.INSTANCE, states.FAILED, None, retry=True),
    Meaning(OSError, Failure.CLOUD, states.FAILED, None, retry=True),
    Meaning(BaseException, Failure.UNKNOWN, states.FAILED, None, retry=True),
)


def meaning(error: BaseException) -> Meaning:
    """The row of an exception."""
    return next(row for row in TABLE if isinstance(error, row.error))


def classify(error: BaseException) -> Failure:
    """The kind of an error that a driver raised."""
    return meaning(error).kind


def may_be_retried(kind: Failure) -> bool:
    """May another attempt of the same launch help?"""
    return any(row.retry for row in TABLE if row.kind is kind)


def launch_outcome(error: BaseException | None) -> tuple[str, str]:
    """Final node state and statistics key of a launch.

    :param error: what ended it; None = success.
    """
    if error is None:
        return states.READY, "ready"
    row = meaning(error)
    if row.statsd_key is not None:
        return row.node_state, row.statsd_key
    return row.node_state, str(getattr(error, "statsd_key", "error.unknown"))
