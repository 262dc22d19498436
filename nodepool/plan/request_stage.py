# SPDX-License-Identifier: Apache-2.0
"""Where a request is in a pool, and which moves between these stages exist.

`MOVES` is the whole picture; everything else raises `ImpossibleMove` with the last moves of the request.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from nodepool.model.reasons import Reason

#: Moves that a request remembers.
STORY_MOVES: Final = 16


class Stage(enum.Enum):
    """What a pool does with a request now."""

    #: In the queue of the pool.
    WAITING = "waiting"
    #: Not looked at before a certain time.
    DEFERRED = "deferred"
    #: Fast path: ready nodes are reserved, and the driver checks them.
    CHECKING = "checking"
    #: Fast path: the transaction that fulfils the request is under way.
    FULFILLING = "fulfilling"
    #: The write that locks the request and makes it `pending` is under way.
    LOCKING = "locking"
    #: Locked; ready nodes are taken, and launches are begun.
    GATHERING = "gathering"
    #: Locked; there is no room for another node now.
    PAUSED = "paused"
    #: Locked; every node is ready or is being launched.
    LAUNCHING = "launching"
    #: Locked; the request is declined, given back or dropped as soon as its launches have ended.
    ENDING = "ending"
    #: The pool has nothing to do with the request any more.
    DONE = "done"

    # By identity: members are keys of dictionaries on the way of each request, and Enum's own hash is a slow one.
    __hash__ = object.__hash__


#: Stages in which the pool holds the lock of the request.
LOCKED: Final = frozenset({Stage.GATHERING, Stage.PAUSED, Stage.LAUNCHING, Stage.ENDING})
#: Stages in which the handler of a request has more to gather.
UNFINISHED: Final = frozenset({Stage.WAITING, Stage.LOCKING, Stage.GATHERING, Stage.PAUSED})
#: Stages that end the work of a handler.
ENDED: Final = frozenset({Stage.DEFERRED, Stage.DONE})

#: Every move that exists, and when it is made.
MOVES: Final[Mapping[tuple[Stage, Stage], str]] = MappingProxyType(
    {
        (Stage.WAITING, Stage.DEFERRED): "somebody holds its lock, or another pool is to serve it first",
        (Stage.WAITING, Stage.CHECKING): "there is a ready node for each label",
        (Stage.WAITING, Stage.LOCKING): "there is room to launch its nodes",
        (Stage.WAITING, Stage.DONE): "declined, taken by another pool, or gone",
        (Stage.DEFERRED, Stage.WAITING): "the time to look again has come",
        (Stage.DEFERRED, Stage.DONE): "taken by another pool, or gone",
        (Stage.CHECKING, Stage.FULFILLING): "the driver accepts every node",
        (Stage.CHECKING, Stage.WAITING): "the driver refuses a node",
        (Stage.CHECKING, Stage.DONE): "gone",
        (Stage.FULFILLING, Stage.WAITING): "the request or a node was changed by another process",
        (Stage.FULFILLING, Stage.DEFERRED): "somebody holds its lock, or it met a second conflict",
        (Stage.FULFILLING, Stage.DONE): "fulfilled in one transaction",
        (Stage.LOCKING, Stage.GATHERING): "locked and pending",
        (Stage.LOCKING, Stage.WAITING): "changed by another process",
        (Stage.LOCKING, Stage.DEFERRED): "somebody holds its lock",
        (Stage.LOCKING, Stage.DONE): "gone",
        (Stage.GATHERING, Stage.PAUSED): "there is no room for another node",
        (Stage.GATHERING, Stage.LAUNCHING): "every node is there or is being launched",
        (Stage.GATHERING, Stage.ENDING): "it ends, and launches still run",
        (Stage.GATHERING, Stage.DEFERRED): "given back",
        (Stage.GATHERING, Stage.DONE): "declined or gone",
        (Stage.PAUSED, Stage.GATHERING): "the driver ended the pause",
        (Stage.PAUSED, Stage.LAUNCHING): "room came for the nodes that were missing",
        (Stage.PAUSED, Stage.ENDING): "it ends, and launches still run",
        (Stage.PAUSED, Stage.DEFERRED): "given back",
        (Stage.PAUSED, Stage.DONE): "declined or gone",
        (Stage.LAUNCHING, Stage.PAUSED): "a launch was aborted",
        (Stage.LAUNCHING, Stage.ENDING): "it ends, and launches still run",
        (Stage.LAUNCHING, Stage.DEFERRED): "given back",
        (Stage.LAUNCHING, Stage.DONE): "fulfilled, declined or gone",
        (Stage.ENDING, Stage.DEFERRED): "its launches have ended, and it is given back",
        (Stage.ENDING, Stage.DONE): "its launches have ended, and it is declined or gone",
    }
)


class Move(NamedTuple):
    """One move of a request.

    :param when: seconds since the epoch.
    """

    when: float
    origin: Stage
    target: Stage


class ImpossibleMove(RuntimeError):
    """A move that `MOVES` does not have. The text names the last moves of the request."""


class Progress:
    """The stage of one request in one pool, and its last moves. Owned by the thread of the pool.

    :param request_id: for the text of errors.
    :param now: seconds since the epoch.
    """

    __slots__ = ("moves", "on_move", "reason", "request_id", "since", "stage")

    def __init__(self, request_id: str, now: float) -> None:
        self.request_id = request_id
        self.stage = Stage.WAITING
        #: Time of the last move, seconds since the epoch.
        self.since = now
        #: Of the last move; None = the stage says it all.
        self.reason: Reason | None = None
        #: The last ones, oldest first.
        self.moves: list[Move] = []
        #: Called after each move, by the thread that makes it.
        self.on_move: Callable[[Progress], None] | None = None

    def move(self, target: Stage, now: float, reason: Reason | None = None) -> None:
        """Go to another stage.

        :param now: seconds since the epoch.
        :param reason: why, if the stage alone does not say it.
        :raises ImpossibleMove: `MOVES` has no such move; nothing is changed.
        """
        if (self.stage, target) not in MOVES:
            raise ImpossibleMove(
                f"request {self.request_id} cannot go from {self.stage.value} to {target.value}: {self.story(now)}"
            )
        if len(self.moves) >= STORY_MOVES:
            del self.moves[0]
        self.moves.append(Move(now, self.stage, target))
        self.stage = target
        self.since = now
        self.reason = reason
        if self.on_move is not None:
            self.on_move(self)

    def story(self, now: float) -> str:
        """The last moves, for people.

        :param now: seconds since the epoch.
        """
        if not self.moves:
            return f"{self.stage.value} since {now - self.since:.1f} s, without a move before"
        told = [f"{move.target.value} {now - move.when:.1f} s ago ({MOVES[move[1:]]})" for move in self.moves]
        return f"{self.moves[0].origin.value}, then " + ", ".join(told)
