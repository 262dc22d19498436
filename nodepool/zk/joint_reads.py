# SPDX-License-Identifier: Apache-2.0
"""`JointReads`: reads that are requested one by one, and sent together when there are many.

In a burst there is one event per request, and each event needs a read. The first read is sent at once. The reads that
are requested before its answer share the next packet.
"""

from __future__ import annotations

import threading
from collections import deque
from functools import partial
from typing import Any

from nodepool.exceptions import ZKConnectionError
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.multi_read import BATCH
from nodepool.zk.reply import Reply

_Read = tuple[str, Reply]


class JointReads:
    """Any thread may ask; answers come in the connection thread. ``_lock`` is not held while something is sent."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._waiting: deque[_Read] = deque()
        self._under_way = False

    def read(self, path: str, reply: Reply) -> None:
        """Read a znode; does not block.

        :param reply: gets (data, stat), or the error of this read.
        """
        with self._lock:
            self._waiting.append((path, reply))
            if self._under_way:
                return
            self._under_way = True
        self._send()

    def _send(self) -> None:
        """Send what waits. Called by whoever has set ``_under_way``."""
        batch = self._take(BATCH)
        if not batch:
            return
        try:
            kazoo = self._client.kazoo
            operations = [kazoo.operations.get(path) for path, _ in batch]
        except ZKConnectionError as error:
            self._fail(batch, error)
        else:
            kazoo.call(kazoo.operations.reads(operations), Reply(partial(self._answered, batch)))

    def _take(self, most: int | None = None) -> list[_Read]:
        """The first of those that wait. None left = nothing is under way any more."""
        with self._lock:
            count = len(self._waiting) if most is None else min(most, len(self._waiting))
            batch = [self._waiting.popleft() for _ in range(count)]
            self._under_way = bool(batch)
            return batch

    def _answered(self, batch: list[_Read], results: list[Any] | None, error: BaseException | None) -> None:
        if error is not None or results is None:
            self._fail(batch, error or ZKConnectionError("no answer"))
            return
        self._send()
        for (_, reply), result in zip(batch, results, strict=True):
            if isinstance(result, Exception):
                reply.set_exception(result)
            else:
                reply.set(result)

    def _fail(self, batch: list[_Read], error: BaseException) -> None:
        """The connection is lost, for those that wait as well. Nothing is sent again: that could go on for ever."""
        while batch:
            for _, reply in batch:
                reply.set_exception(error)
            batch = self._take()
