# SPDX-License-Identifier: Apache-2.0
"""A ZooKeeper for one cache that follows a recursive watch: the test decides when events and answers arrive."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kazoo.exceptions import NoNodeError
from kazoo.protocol.serialization import GetData

from nodepool.exceptions import ZKConnectionError
from nodepool.zk.connection import CHANGED, CREATED, DELETED, Reply
from nodepool.zk.wire import MultiRead, Operations


def _nobody(state: str) -> None:
    """Hears of sessions when the cache was stopped."""


class EventServer:
    """Has znodes, notes events for one client, and answers when the test says so.

    :param root: what is watched.
    """

    connected = True

    def __init__(self, root: str) -> None:
        self.root = root
        self.znodes: dict[str, tuple[bytes, Any]] = {}
        self.asked: deque[tuple[MultiRead, Reply]] = deque()
        #: (number of the event, what it says), and (number of events before it, answer).
        self.events: deque[tuple[int, str]] = deque()
        self.answers: deque[tuple[int, Reply, list[Any]]] = deque()
        self.counted = self.delivered = 0
        self.version = 0
        self.kazoo = SimpleNamespace(operations=Operations(""), call=self._call, watch_recursive=self._watch)
        self.tell: Callable[[int, str], None] | None = None

    # -- what the cache calls --

    def add_session_listener(self, listener: Callable[[str], None]) -> None:
        self.tell_session = listener

    def remove_session_listener(self, listener: Callable[[str], None]) -> None:
        self.tell_session = _nobody

    def unwatch(self, path: str, function: Callable[[int, str], None]) -> None:
        assert path == self.root
        self.tell = None

    def _watch(self, path: str, function: Callable[[int, str], None], on_done: Any) -> None:
        assert path == self.root
        self.tell = function

    def _call(self, request: Any, reply: Reply) -> None:
        assert isinstance(request, MultiRead)
        self.asked.append((request, reply))

    # -- what others do --

    def put(self, path: str, **fields: Any) -> None:
        """Create or overwrite, with all that is above."""
        parent = path.rpartition("/")[0]
        if parent.startswith(self.root) and parent not in self.znodes:
            self.put(parent)
        self.version += 1
        kind = CHANGED if path in self.znodes else CREATED
        stat = SimpleNamespace(version=self.version, mzxid=self.version, czxid=1, ctime=1000, mtime=2000)
        self.znodes[path] = (json.dumps(fields).encode() if fields else b"", stat)
        self._note(kind, path)

    def delete(self, path: str) -> None:
        for doomed in sorted((name for name in self.znodes if f"{name}/".startswith(f"{path}/")), reverse=True):
            del self.znodes[doomed]
            self._note(DELETED, doomed)

    def _note(self, kind: int, path: str) -> None:
        self.counted += 1
        self.events.append((kind, path))

    # -- what travels --

    def serve(self) -> bool:
        """Answer the oldest question; the answer is under way then."""
        if not self.asked:
            return False
        request, reply = self.asked.popleft()
        self.answers.append((self.counted, reply, [self._read(operation) for operation in request.operations]))
        return True

    def _read(self, operation: Any) -> Any:
        if operation.path not in self.znodes:
            return NoNodeError()
        if isinstance(operation, GetData):
            return self.znodes[operation.path]
        depth = operation.path.count("/") + 1
        names = [name for name in self.znodes if name.startswith(f"{operation.path}/") and name.count("/") == depth]
        return [name.rpartition("/")[2] for name in names]

    def deliver_event(self) -> bool:
        if not self.events:
            return False
        self.delivered += 1
        event = self.events.popleft()
        if self.tell is not None:
            self.tell(*event)
        return True

    def deliver_answer(self) -> bool:
        if not self.answers or self.answers[0][0] > self.delivered:
            return False
        _, reply, found = self.answers.popleft()
        reply.set(found)
        return True

    def lose_connection(self) -> None:
        """Nothing that is under way arrives; then it is there again."""
        self.tell = None
        self.events.clear()
        self.delivered = self.counted
        lost = [reply for _, reply in self.asked] + [reply for _, reply, _ in self.answers]
        self.asked.clear()
        self.answers.clear()
        self.tell_session("suspended")
        for reply in lost:
            reply.set_exception(ZKConnectionError("lost"))
        self.tell_session("connected")

    def settle(self) -> None:
        while self.serve() or self.deliver_event() or self.deliver_answer():
            pass
