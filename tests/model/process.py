# SPDX-License-Identifier: Apache-2.0
"""A process of the simulated world."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kazoo.client import KazooState

from tests.model.connection import ModelClient

if TYPE_CHECKING:
    from tests.model.world import World

#: A lane of the world, and what happens when it is its turn.
Turn = tuple[str, Callable[[], None]]


class Process:
    """Something with a connection to ZooKeeper that can be stopped and killed."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.client = ModelClient(world, name)
        self.kazoo = self.client.model
        self.frozen = False
        self.dead = False

    def connection_turns(self) -> Iterator[Turn]:
        kazoo = self.kazoo
        session = kazoo.session
        if not kazoo.started:
            return
        if session is not None and session.alive and not kazoo.broken and kazoo.state == KazooState.CONNECTED:
            if kazoo.outbox and (not self.dead or self.world.setup.sends_after_death):
                yield f"{self.name}.send", kazoo.serve
            if session.inbox and not (self.frozen or self.dead):
                yield f"{self.name}.read", kazoo.deliver
        elif not (self.frozen or self.dead):
            if kazoo.state == KazooState.CONNECTED:
                yield f"{self.name}.notice", kazoo.notice
            elif not self.world.server_away:
                yield f"{self.name}.connect", kazoo.reconnect

    def turns(self) -> Iterator[Turn]:
        raise NotImplementedError

    def die(self) -> None:
        """SIGKILL."""
        self.dead = self.kazoo.dead = True
        self.kazoo.state = KazooState.LOST
        self.world.kill_jobs(self)
