# SPDX-License-Identifier: Apache-2.0
"""Decisions about nodes.

First which ready nodes serve which labels (rules N-1, N-2, N-5, N-7), then what happens to a node that has no lock (C-4
to C-10, X-1), then min-ready requests (M), then which of two requests that wait for each other gives nodes back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nodepool.model import states
from nodepool.model.event import grouped
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.plan.triage import MIN_READY_REQUESTOR


def is_free(node: Node, provider: str, pool: str) -> bool:
    """Could this pool hand the node out, if nobody holds its lock?"""
    return node.state == states.READY and node.allocated_to is None and node.provider == provider and node.pool == pool


class ReadyNodes:
    """Free nodes of one pool, by label, oldest first. Owned by one thread."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._by_label: dict[str, dict[str, Node]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, node_id: str) -> bool:
        return node_id in self._nodes

    def put(self, node: Node) -> None:
        """Add a node, or take its newer record."""
        node_id = node.key
        old = self._nodes.get(node_id)
        if old is node:
            return
        if old is not None and old.type != node.type:
            self.discard(node_id)
        self._nodes[node_id] = node
        for label in node.type:
            self._by_label.setdefault(label, {})[node_id] = node

    def discard(self, node_id: str) -> None:
        """Remove a node; one that is not here is fine."""
        node = self._nodes.pop(node_id, None)
        if node is None:
            return
        for label in node.type:
            nodes = self._by_label.get(label)
            if nodes is not None:
                nodes.pop(node_id, None)
                if not nodes:
                    del self._by_label[label]

    def clear(self) -> None:
        self._nodes.clear()
        self._by_label.clear()

    def count(self, label: str) -> int:
        return len(self._by_label.get(label, ()))

    def oldest(self) -> Node | None:
        """The free node that has been ready for the longest time."""
        return min(self._nodes.values(), key=lambda node: node.state_time or 0, default=None)

    def could_serve(self, labels: Collection[str]) -> bool:
        """Is there at least one free node for each label, and are there enough of them? A quick first look."""
        return len(self._nodes) >= len(labels) and all(label in self._by_label for label in labels)

    def choose(self, wanted: Sequence[str], az: str | None = None) -> dict[int, Node]:
        """Pick a node for as many of the wanted labels as possible.

        :param wanted: labels, duplicates included.
        :param az: zone that the nodes must share; None = any one zone.
        :return: position in ``wanted`` -> node. Nodes without a zone fit every zone.
        """
        if len(wanted) == 1 and az is None:
            for node in self._by_label.get(wanted[0], {}).values():
                return {0: node}
            return {}
        zones: list[str | None] = [az]
        if az is None:
            found = {n.az for label in set(wanted) for n in self._by_label.get(label, {}).values()} - {None}
            zones = [*sorted(z for z in found if z is not None)] or [None]
        best: dict[int, Node] = {}
        for zone in zones:
            chosen = self._match(wanted, zone)
            if len(chosen) > len(best):
                best = chosen
            if len(best) == len(wanted):
                break
        return best

    def _match(self, wanted: Sequence[str], zone: str | None) -> dict[int, Node]:
        """A largest assignment of nodes to positions (augmenting paths, Kuhn).

        A node with several labels must not be spent where a plainer one would do: taking the first fit
        could leave a request waiting for ever on static hosts.
        """
        candidates = {label: self._candidates(label, zone, len(wanted)) for label in set(wanted)}
        holder: dict[str, int] = {}
        for position in range(len(wanted)):
            _augment(position, wanted, candidates, holder)
        return {position: self._nodes[node_id] for node_id, position in holder.items()}

    def _candidates(self, label: str, zone: str | None, limit: int) -> list[str]:
        """Enough nodes of a label: with as many as there are positions, one is always free."""
        found: list[Node] = []
        for node in self._by_label.get(label, {}).values():
            if node.az is None or zone is None or node.az == zone:
                found.append(node)
                if len(found) >= limit:
                    break
        found.sort(key=lambda node: len(node.type))
        return [node.key for node in found]


def can_match(wanted: Sequence[str], offers: Sequence[Collection[str]]) -> bool:
    """Could each wanted label have an offer of its own?

    :param offers: labels of each place for a node, free or not.
    """
    if len(wanted) > len(offers):
        return False
    candidates: dict[str, list[str]] = {label: [] for label in wanted}
    for number, labels in sorted(enumerate(offers), key=lambda entry: len(entry[1])):
        for label in set(labels):
            if label in candidates and len(candidates[label]) < len(wanted):
                candidates[label].append(str(number))
    holder: dict[str, int] = {}
    return all(_augment(position, wanted, candidates, holder) for position in range(len(wanted)))


def _augment(
    start: int, wanted: Sequence[str], candidates: Mapping[str, Sequence[str]], holder: dict[str, int]
) -> bool:
    """Give position ``start`` a node, moving others to another node if need be (no recursion: sets can be large)."""
    came_from: dict[str, tuple[int, str | None]] = {}
    frontier: list[tuple[int, str | None]] = [(start, None)]
    while frontier:
        position, via = frontier.pop()
        for node_id in candidates[wanted[position]]:
            if node_id in came_from:
                continue
            came_from[node_id] = (position, via)
            if node_id not in holder:
                current: str | None = node_id
                while current is not None:
                    owner, previous = came_from[current]
                    holder[current] = owner
                    current = previous
                return True
            frontier.append((holder[node_id], node_id))
    return False


# What has to happen to a node that is not locked? (rules C-4 to C-10, X-1)

#: A launcher of an old release that has not locked its node for so long has lost it, whoever holds the request.
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
        return Delete("never launched, for nobody") if node.state == states.INIT else Keep()
    wanted_by = request(node.allocated_to)
    if node.state == states.READY and wanted_by is None:
        return Deallocate(f"request {node.allocated_to} is gone")
    if node.state == states.INIT and (wanted_by is None or wanted_by.state in ANSWERED_REQUEST_STATES):
        return Delete(f"request {node.allocated_to} is gone or finished")
    return Keep()


def is_orphan(node: Node, request: Callable[[str], NodeRequest | None]) -> bool:
    """Was an unlocked node made for a request that waits, or is served anew, without it?

    Whoever serves a request has its nodes locked. One that is let go of goes in the same write that ends the request;
    so this one was lost by a launcher, after whoever reset its request had looked.
    """
    if node.allocated_to is None or node.state not in (states.READY, states.INIT):
        return False
    wanted_by = request(node.allocated_to)
    return wanted_by is not None and wanted_by.state in OPEN_REQUEST_STATES


def is_of_holder(written: int, held_since: int | None, unchanged_seconds: float) -> bool:
    """Does a node that `is_orphan` belong to whoever holds the request all the same? (C-4)

    A launcher of an old release locks a node after it has stored it, and unlocks it before its request is fulfilled. It
    may stall in between. But one whose session was lost, and that does not know it yet, writes nodes as late.

    :param written: ZooKeeper's number of the last change of the node.
    :param held_since: of the change that took the lock of the request; None = nobody holds it.
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

    Limits of tenants play no part: nobody waits for them with nodes in his hands.

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
