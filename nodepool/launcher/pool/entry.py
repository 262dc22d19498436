# SPDX-License-Identifier: Apache-2.0
"""A pool's entry among the registered pools: what others see of it, and whether it sees the others (rules A)."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from nodepool.clock import monotonic
from nodepool.driver import gateway
from nodepool.model import component
from nodepool.zk.components import Registration

if TYPE_CHECKING:
    from nodepool.launcher.pool.pass_context import PassContext
    from nodepool.zk.client import ZooKeeperClient

#: How long a new pool waits at most until the other pools of its launcher are registered too, and how often it looks.
SIBLINGS_SECONDS: Final = 5.0
SIBLINGS_LOOK_SECONDS: Final = 0.1
#: Our own entry is written once more when it was not seen in so many passes: somebody may have removed it.
LOOKS_FOR_ITSELF: Final = 50


class PoolEntry:
    """Owned by the pool worker's thread.

    :param version: of this launcher.
    """

    def __init__(self, pool: PassContext, client: ZooKeeperClient, version: str) -> None:
        self._context = pool
        #: Labels of the pool, for other threads; replaced as a whole.
        self.labels: frozenset[str] = frozenset()
        self._sorted_labels: list[str] = []
        #: Looks for the other pools of this launcher that are left; None = all are there, or were waited for.
        self._looks: float | None = 0.0
        self._next_look = 0.0
        #: Passes since the own entry was seen.
        self._unseen = 0
        self._pool = component.PoolComponent(socket.gethostname(), version)
        self._pool.id = pool.launcher_id
        self._pool.name = pool.pool_name
        self._pool.provider_name = pool.provider_name
        self._registration = Registration(client, self._pool)

    @property
    def priority(self) -> int:
        """As configured, of the pool or else of the provider: lower is served first (A-4)."""
        # Drivers written for 11.0.0 do not give their pools that of the provider.
        for section in (self._context.pool_config, self._context.config):
            if section.priority is not None:
                return int(section.priority)
        return component.DEFAULT_PRIORITY

    def update(self, *, paused: bool) -> None:
        """Make the entry what the pool is now. Blocks for ZooKeeper if it was another one.

        :param paused: does a request of the pool wait for room, or did an operator pause it?
        """
        supported = self._context.labels
        if supported is not self.labels:
            self.labels = supported
            self._sorted_labels = sorted(supported)
        labels = self._sorted_labels
        # Others take over what this pool gives back or does not take.
        paused = paused or gateway.paused_reason(self._context.provider) is not None
        entry = self._pool
        if entry.state == component.RUNNING and (entry.supported_labels, entry.priority, entry.paused) == (
            labels,
            self.priority,
            paused,
        ):
            self._registration.ensure()
            return
        self._registration.update(
            state=component.RUNNING, supported_labels=labels, priority=self.priority, paused=paused
        )

    def remove(self) -> None:
        """Unregister. Raises ZKException: try again, the entry may still be there."""
        self._registration.unregister()

    def new_session(self) -> None:
        """The other pools of this launcher may have to register again, too: they are waited for."""
        self._looks = SIBLINGS_SECONDS / SIBLINGS_LOOK_SECONDS

    def sees_all(self, siblings: Iterable[str]) -> bool:
        """Does the registry show us (A-17), and the other pools of this launcher?

        While a sibling is missing a request that only it can serve would be declined by all that are there, and fail.

        Does not block, but for an entry of ours that is not seen for long.

        :param siblings: ids of all pools of this launcher.
        """
        registered = {pool.id for pool in self._context.registered_pools()}
        if self._context.launcher_id not in registered:
            self._unseen += 1
            if self._unseen % LOOKS_FOR_ITSELF == 0:
                self._registration.rewrite()
            return False
        self._unseen = 0
        if self._looks is None:
            return True
        missing = any(sibling not in registered for sibling in siblings)
        if missing and self._looks > 0:
            # Looks, not time: when the whole process stood still the others have not had theirs either.
            if monotonic() >= self._next_look:
                self._looks -= 1
                self._next_look = monotonic() + SIBLINGS_LOOK_SECONDS
            return False
        self._looks = None
        return True
