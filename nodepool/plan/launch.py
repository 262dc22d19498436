# SPDX-License-Identifier: Apache-2.0
"""Decisions about nodes, from their launch to their end.

First what follows when an attempt to launch a node ends badly, and how often to look at one (rules L), what the
refusals of a cloud say of its limit, and what an exception of a driver means. Then what happens to a node that has no
lock (C-4 to C-10, X-1), how many min-ready requests are missing (M), and which of two requests that wait for each other
gives nodes back.
"""

from __future__ import annotations

import enum
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nodepool import exceptions
from nodepool.model import states
from nodepool.model.event import grouped
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.plan.retries import Backoff
from nodepool.plan.triage import MIN_READY_REQUESTOR

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
    """Whether to look for instances that no one reported.

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
    #: An error that the driver has not given the meaning of.
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


# What has to happen to a node that is not locked? (rules C-4 to C-10, X-1)

#: A launcher of an old release that has not locked its node for so long has lost it, no matter who holds the request.
STALLED_SECONDS: Final = 300.0
#: So long the launches of a launcher that ended are left to one that goes on with them, in seconds.
RESUME_SECONDS: Final = 30.0
#: States of requests that wait, or that a launcher serves.
OPEN_REQUEST_STATES: Final = (states.REQUESTED, states.PENDING)
#: States of requests that are answered. They get no further node.
ANSWERED_REQUEST_STATES = (states.FULFILLED, states.FAILED)


@dataclass(frozen=True)
class Keep:
    """Nothing to do."""


@dataclass(frozen=True)
class Delete:
    """Remove the machine and the node."""

    reason: str


@dataclass(frozen=True)
class Deallocate:
    """Give a ready node back to its pool."""

    reason: str


Action = Keep | Delete | Deallocate


def judge_unlocked(node: Node, request: Callable[[str], NodeRequest | None]) -> Action:
    """What to do at once with an unlocked node (X-1, C-9, C-10).

    :param request: looks up a request by id; None = it does not exist.
    """
    if node.state in states.DELETABLE_STATES:
        return Delete(f"{node.state} and unlocked")
    if node.allocated_to is None:
        return Delete("never launched, for no request") if node.state == states.INIT else Keep()
    wanted_by = request(node.allocated_to)
    if node.state == states.READY and wanted_by is None:
        return Deallocate(f"request {node.allocated_to} does not exist any more")
    if node.state == states.INIT and (wanted_by is None or wanted_by.state in ANSWERED_REQUEST_STATES):
        return Delete(f"request {node.allocated_to} was removed or is finished")
    return Keep()


def is_orphan(node: Node, request: Callable[[str], NodeRequest | None]) -> bool:
    """Was an unlocked node made for a request that waits, or is served anew, without it?

    Who serves a request has its nodes locked. One that is let go of goes in the same write that ends the request;
    so this one was lost by a launcher, after the one that reset its request had looked.
    """
    if node.allocated_to is None or node.state not in (states.READY, states.INIT):
        return False
    wanted_by = request(node.allocated_to)
    return wanted_by is not None and wanted_by.state in OPEN_REQUEST_STATES


def is_of_holder(written: int, held_since: int | None, unchanged_seconds: float) -> bool:
    """Does a node that `is_orphan` belong to the holder of the request all the same? (C-4)

    A launcher of an old release locks a node after it has stored it, and unlocks it before its request is fulfilled. It
    may stall in between. But one whose session was lost, and that does not know it yet, writes nodes as late.

    :param written: ZooKeeper's number of the last change of the node.
    :param held_since: of the change that took the lock of the request; None = no one holds it.
    :param unchanged_seconds: the node has been unlocked and unchanged for so long.
    """
    return held_since is not None and written >= held_since and unchanged_seconds < STALLED_SECONDS


def judge_age(node: Node, now: float, max_ready_age: Callable[[str], float], max_hold_age: float) -> Action:
    """What to do with an unlocked node because of its age (C-5, C-6).

    :param now: seconds since the epoch.
    :param max_ready_age: seconds for a label; 0 = unlimited.
    :param max_hold_age: seconds; 0 or less = unlimited.
    """
    age = now - (node.state_time if node.state_time is not None else now)
    if node.state == states.READY and node.allocated_to is None:
        limits = [limit for label in node.type if (limit := max_ready_age(label)) > 0]
        if limits and age > min(limits):
            return Delete(f"ready for {age:.0f} s, max-ready-age is {min(limits):g} s")
    elif node.state == states.HOLD:
        limits = [limit for limit in (node.hold_expiration or 0, max_hold_age) if limit > 0]
        if limits and age > min(limits):
            return Delete(f"on hold for {age:.0f} s, the limit is {min(limits):g} s")
    return Keep()


def reset_lost_request(request: NodeRequest, nodes: list[Node]) -> None:
    """Change the copies of a lost request and of its nodes to what C-4 wants."""
    for node in nodes:
        if node.state == states.INIT:
            node.state = states.DELETING
        node.free()
    request.state = states.REQUESTED
    request.nodes = []


# How many min-ready requests are missing, or too many? (rules M-1, M-5, M-6, M-8)


def missing(wanted: Mapping[str, int], nodes: Iterable[Node], requests: Iterable[NodeRequest]) -> dict[str, int]:
    """Requests to create, by label; below 0 = so many are more than wanted. Labels with the right number are left out.

    :param wanted: label -> ``min-ready``.
    :param nodes: all nodes.
    :param requests: all requests, of every launcher: theirs count, so that several do not overshoot.
    """
    have: Counter[str] = Counter()
    fulfilled: set[str | None] = set()
    for request in requests:
        if request.requestor != MIN_READY_REQUESTOR:
            continue
        if request.state == states.FULFILLED:
            fulfilled.add(request.id)
        elif request.state != states.FAILED:
            have.update(request.node_types)
    for node in nodes:
        # A node of a fulfilled request is free in a moment; the request itself stays a little longer.
        if node.state == states.READY and (node.allocated_to is None or node.allocated_to in fulfilled):
            have.update(label for label in node.type if label in wanted)
    found = {label: max(0, need) - have[label] for label, need in wanted.items()}
    return {label: number for label, number in found.items() if number}


# Two requests that wait for room may each hold nodes that the other one needs. Which of them is given back?
#
# Launchers fill the same limit at the same time, each for its own request: without an answer both would wait for ever.
# All find the same one by themselves: the request that is served first keeps what it has.

#: How long a request waits with nodes in its hands until it looks whether it is in the way of another one.
PATIENCE_SECONDS: Final = 10.0


def stands_before(
    mine: NodeRequest,
    provider: str,
    pool: str | None,
    nodes: Iterable[Node],
    request: Callable[[str], NodeRequest | None],
) -> NodeRequest | None:
    """A request that comes before this one, and waits for room with nodes in its hands, too; None = there is none.

    Limits of tenants play no part: no one waits for them with nodes in his hands.

    :param provider: that this request waits for.
    :param pool: whose own limit it waits for; None = for something that the pools of the provider share.
    :param nodes: all nodes.
    :param request: looks up a request by id; None = it does not exist.
    """
    shared = (node for node in nodes if node.provider == provider and pool in (None, node.pool))
    held = (node for node in shared if node.allocated_to not in (None, mine.id))
    first: NodeRequest | None = None
    for request_id, its_nodes in grouped(held, lambda node: node.allocated_to or "").items():
        other = request(request_id)
        if other is None or other.state != states.PENDING or other.order_key >= mine.order_key:
            continue
        waits = len(its_nodes) < len(other.node_types) and all(node.state == states.READY for node in its_nodes)
        if waits and (first is None or other.order_key < first.order_key):
            first = other
    return first


def missing_labels(request: NodeRequest, its_nodes: Iterable[Node]) -> Counter[str]:
    """What a request still lacks. A node with several labels stands for the first one that is lacking."""
    missing = Counter(request.node_types)
    for node in its_nodes:
        label = next((label for label in node.type if missing[label] > 0), None)
        if label is not None:
            missing[label] -= 1
    return +missing


def in_the_way(first: NodeRequest, its_nodes: Iterable[Node], mine: Iterable[Node]) -> list[Node]:
    """Of the nodes of a request that is given back, those whose room the first one needs, because it cannot use them.

    Freed, they would stay, and both would go on waiting. At most as many as it lacks.

    :param its_nodes: at least one: they tell the pool that serves it.
    """
    its_nodes = list(its_nodes)
    pool = its_nodes[0].pool
    missing = missing_labels(first, its_nodes)
    useless: list[Node] = []
    for node in mine:
        label = next((label for label in node.type if missing[label] > 0), None)
        if first.reuse and node.pool == pool and label is not None:
            missing[label] -= 1
        else:
            useless.append(node)
    return useless[: missing.total()]
