# SPDX-License-Identifier: Apache-2.0
"""What has to happen to a node that nobody has locked? (rules C-4 to C-10, X-1)"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest

#: A launcher of an old release that has not locked its node for so long has lost it, whoever holds the request.
STALLED_SECONDS: Final = 300.0
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
    return wanted_by is not None and wanted_by.state in (states.REQUESTED, states.PENDING)


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
