# SPDX-License-Identifier: Apache-2.0
"""Kazoo's Lock recipe in the simulated world."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kazoo.exceptions import ConnectionLoss, KazooException, LockTimeout

if TYPE_CHECKING:
    from tests.model.connection import ModelKazoo


class ModelLock:
    """`kazoo.recipe.lock.Lock`"""

    def __init__(self, kazoo: ModelKazoo, path: str, identifier: str | None) -> None:
        self._kazoo = kazoo
        self._path = path
        self._data = (identifier or "").encode()
        self._prefix = f"{kazoo.world.random.getrandbits(64):016x}__lock__"
        self.create_path = f"{path}/{self._prefix}"
        self._tried = False
        self.node: str | None = None

    def acquire(self, *, blocking: bool, timeout: float | None, ephemeral: bool) -> bool:
        deadline = None if timeout is None else self._kazoo.world.now + timeout
        try:
            taken: bool = self._kazoo.retry(self._acquire, ephemeral)
            while blocking and not taken:
                if not self._wait(deadline):
                    raise LockTimeout
                taken = self._kazoo.retry(self._acquire, ephemeral)
        except KazooException:
            self._clean_up()
            raise
        if not taken:
            self._clean_up()
        return taken

    def _acquire(self, ephemeral: bool) -> bool:
        kazoo = self._kazoo
        kazoo.ensure_path(self._path)
        node = self._find() if self._tried else None
        self._tried = True
        if node is None:
            made = kazoo.create(self.create_path, self._data, ephemeral=ephemeral, sequence=True)
            node = made.rpartition("/")[2]
        self.node = node
        names = kazoo.get_children(self._path)
        if node not in names:
            self._tried = False
            raise ConnectionLoss  # the session was lost in between: again
        return not any(name[-10:] < node[-10:] for name in self._contenders(names))

    def _wait(self, deadline: float | None) -> bool:
        """Until it may be our turn, or the connection has changed; False = the time is over."""
        kazoo = self._kazoo
        before = kazoo.state

        def first() -> bool:
            waiting = sorted(self._contenders(kazoo.server.children(self._path)), key=lambda name: name[-10:])
            return kazoo.state != before or not waiting or waiting[0] == self.node

        return kazoo.world.baton.wait(first, deadline)

    @staticmethod
    def _contenders(names: Iterable[str]) -> list[str]:
        return [name for name in names if re.search(r"(__lock__|-lock-)\d{10}$", name)]

    def _find(self) -> str | None:
        names = self._kazoo.get_children(self._path)
        return next((name for name in names if name.startswith(self._prefix)), None)

    def _clean_up(self) -> None:
        try:
            node = self.node or self._kazoo.retry(self._find)
            if node is not None:
                self._kazoo.retry(self._kazoo.delete, f"{self._path}/{node}")
        except KazooException:
            return
