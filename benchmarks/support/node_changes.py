# SPDX-License-Identifier: Apache-2.0
"""Nodes that change all the time, as those of a busy launcher do: each is locked by whoever changes it."""

from __future__ import annotations

import itertools
import json
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.support.pool_znodes import NODES, PoolZnodes


class NodeChanges:
    """A thread that stores one node after the other with another state.

    :param per_second: how many.
    """

    def __init__(self, znodes: PoolZnodes, nodes: Sequence[str], per_second: float) -> None:
        self._kazoo = znodes.kazoo
        self._records = {node: json.loads(self._kazoo.get(f"{NODES}/{node}")[0]) for node in nodes}
        locks = [self._kazoo.create_async(f"{NODES}/{node}/lock") for node in nodes]
        locks += [
            self._kazoo.create_async(f"{NODES}/{node}/lock/{uuid.uuid4().hex}__lock__", ephemeral=True, sequence=True)
            for node in nodes
        ]
        for lock in locks:
            lock.get()
        self._pause = 1 / per_second
        self._ending = threading.Event()
        self._lock = threading.Lock()
        #: When each node was stored last (monotonic), until somebody takes it.
        self._stored: dict[str, float] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Inside, nodes change."""
        self._ending.clear()
        thread = threading.Thread(target=self._run, name="NodeChanges")
        thread.start()
        try:
            yield
        finally:
            self._ending.set()
            thread.join()

    def forget(self) -> None:
        """Only changes from now on are waited for."""
        with self._lock:
            self._stored.clear()

    def seen(self, node: str) -> float | None:
        """Somebody was told of a change. Seconds since it was stored; None = no change of it is waited for."""
        with self._lock:
            stored = self._stored.pop(node, None)
        return None if stored is None else time.monotonic() - stored

    def _run(self) -> None:
        begun = time.monotonic()
        for number, (node, record) in enumerate(itertools.cycle(self._records.items())):
            if self._ending.wait(max(0.0, begun + number * self._pause - time.monotonic())):
                return
            record["state"] = "ready" if record["state"] == "in-use" else "in-use"
            record["state_time"] = time.time()
            with self._lock:
                self._stored.setdefault(node, time.monotonic())
            self._kazoo.set_async(f"{NODES}/{node}", json.dumps(record).encode())
