# SPDX-License-Identifier: Apache-2.0
"""`ModelKazoo`: what our code uses of Kazoo's client, connected to the `Server` in memory.

A call goes to ``outbox``, the server takes it from there when the world says so, and the answer waits in the session's
inbox until the world delivers it. The world is the connection thread. In between anything can happen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from kazoo import exceptions
from kazoo.client import KazooState
from kazoo.protocol.serialization import Create, Delete, Exists, GetChildren, GetData, SetData, Sync
from kazoo.security import OPEN_ACL_UNSAFE

from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.connection import Reply, WatchFunction
from nodepool.zk.wire import Operations, WatchedClient
from tests.model.baton import Killed
from tests.model.lock import ModelLock
from tests.model.server import EPHEMERAL, SEQUENCE, Server, Session

if TYPE_CHECKING:
    from tests.model.world import World

SESSION_SECONDS = 10.0
LEASE_SECONDS = SESSION_SECONDS * 2 / 3


class ModelKazoo:
    """One process's connection."""

    chroot = ""
    operations = Operations("")

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.server: Server = world.server
        self.name = name
        self.state: str = KazooState.LOST
        self.session: Session | None = None
        self.lease_until = float("-inf")
        self.started = False
        #: The process has died.
        self.dead = False
        #: The connection is cut, but the process has not noticed yet.
        self.broken = False
        #: When the server last heard of it.
        self.heard = world.now
        self.outbox: deque[tuple[Any, Reply]] = deque()
        self._under_way: deque[Reply] = deque()
        self._listeners: list[Callable[[str], None]] = []
        self._functions: dict[str, WatchFunction] = {}

    @property
    def last_zxid(self) -> int:
        """Of the last change of which it may have heard."""
        return self.server.zxid

    def set_hosts(self, hosts: str) -> None:
        """There is one server."""

    # -- the world: server and connection thread --

    def serve(self) -> None:
        """The server takes the next request."""
        assert self.session is not None
        request, reply = self.outbox.popleft()
        self._under_way.append(reply)
        session = self.session
        try:
            result: Any = self.server.handle(session, request)
        except exceptions.KazooException as error:
            session.inbox.append(lambda e=error: self._answer(reply, None, e))  # type: ignore[misc]
        else:
            session.inbox.append(lambda: self._answer(reply, result, None))

    def _answer(self, reply: Reply, result: Any, error: exceptions.KazooException | None) -> None:
        self._under_way.remove(reply)
        if error is None:
            reply.set(result)
        else:
            reply.set_exception(error)

    def deliver(self) -> None:
        """The client reads the next thing that the server sent."""
        assert self.session is not None
        self.session.inbox.popleft()()

    def heartbeat(self) -> None:
        """A ping that was answered."""
        self.heard = self.world.now
        self.lease_until = self.world.now + LEASE_SECONDS

    def cut(self) -> None:
        """The connection is gone; answers that are under way are lost."""
        self.broken = True
        if self.session is not None:
            self.session.watches.clear()
            self.session.inbox.clear()

    def notice(self) -> None:
        """The client sees that the connection is gone."""
        self.broken = False
        self._fail_pending(exceptions.ConnectionLoss())
        self._tell(KazooState.SUSPENDED)

    def reconnect(self) -> None:
        """Back to the old session, or the news that it is lost, or on to a new one."""
        self.broken = False
        if self.session is not None and not self.session.alive:
            self.session = None
            self._tell(KazooState.LOST)
            self._fail_pending(exceptions.SessionExpiredError())
            return
        if self.session is None:
            self.session = self.server.open(self.name)
        self.session.on_event = self._on_event
        self.heartbeat()
        self._tell(KazooState.CONNECTED)

    def _fail_pending(self, error: exceptions.KazooException) -> None:
        pending = [*self._under_way, *(reply for _, reply in self.outbox)]
        self._under_way.clear()
        self.outbox.clear()
        for reply in pending:
            reply.set_exception(error)

    def _tell(self, state: str) -> None:
        self.state = state
        for listener in list(self._listeners):
            listener(state)

    def _on_event(self, kind: int, path: str) -> None:
        for root, function in self._functions.items():
            if path == root or path.startswith(f"{root}/"):
                function(kind, path)
                return

    # -- what `ZooKeeperClient` uses --

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[str], None]) -> None:
        self._listeners.remove(listener)

    def start_async(self) -> None:
        self.started = True
        self.reconnect()

    def stop(self) -> None:
        self.dead = True

    def close(self) -> None:
        return

    # -- what our code uses --

    def is_leased(self) -> bool:
        """Is it certain that the session lives?"""
        return self.world.now < self.lease_until

    @property
    def client_id(self) -> tuple[int, bytes] | None:
        return None if self.session is None else (self.session.id, b"")

    @property
    def queued_calls(self) -> int:
        return len(self.outbox)

    def call(self, request: Any, reply: Reply) -> Reply:
        if self.dead:
            if self.world.baton.current is not None:
                raise Killed
            reply.set_exception(exceptions.ConnectionClosedError())
        else:
            self.outbox.append((request, reply))
        return reply

    def watch_recursive(
        self, path: str, function: WatchFunction, on_done: Callable[[Any, Any], None] | None = None
    ) -> Reply:
        self._functions[path] = function
        return self.call(self.operations.watch(path), Reply(on_done))

    def retry(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        while True:
            try:
                return function(*arguments, **options)
            except (exceptions.ConnectionLoss, exceptions.SessionExpiredError):
                self.world.baton.wait(lambda: self.state == KazooState.CONNECTED)

    def _ask(self, request: Any) -> Any:
        return self.call(request, Reply()).get()

    def get(self, path: str) -> Any:
        return self._ask(GetData(path, None))

    def get_children(self, path: str) -> Any:
        return self._ask(GetChildren(path, None))

    def exists(self, path: str) -> Any:
        try:
            return self._ask(Exists(path, None))
        except exceptions.NoNodeError:
            return None

    def sync(self, path: str) -> Any:
        return self._ask(Sync(path))

    def set(self, path: str, data: bytes, version: int = -1) -> Any:
        return self._ask(SetData(path, data, version))

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False, makepath: bool = False
    ) -> str:
        flags = (EPHEMERAL if ephemeral else 0) | (SEQUENCE if sequence else 0)
        try:
            made: str = self._ask(Create(path, data, OPEN_ACL_UNSAFE, flags))
        except exceptions.NoNodeError:
            if not makepath:
                raise
            self.ensure_path(path.rpartition("/")[0])
            made = self._ask(Create(path, data, OPEN_ACL_UNSAFE, flags))
        return made

    def ensure_path(self, path: str) -> None:
        self.retry(self._ensure, path)

    def _ensure(self, path: str) -> None:
        if self.exists(path) is not None:
            return
        above = path.rpartition("/")[0]
        if above:
            self._ensure(above)
        try:
            self.create(path)
        except exceptions.KazooException as error:
            if type(error).__name__ != "NodeExistsError":
                raise

    def delete(self, path: str, version: int = -1, recursive: bool = False) -> None:
        if not recursive:
            self._ask(Delete(path, version))
            return
        try:
            names = self.get_children(path)
        except exceptions.NoNodeError:
            return
        for name in names:
            self.delete(f"{path}/{name}", recursive=True)
        try:
            self.delete(path)
        except exceptions.NoNodeError:
            return

    def Lock(self, path: str, identifier: str | None = None) -> ModelLock:
        return ModelLock(self, path, identifier)


class ModelClient(ZooKeeperClient):
    """The real `ZooKeeperClient` on a `ModelKazoo`."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__("model", timeout=SESSION_SECONDS)
        self.model = ModelKazoo(world, name)

    def _make_client(self) -> WatchedClient:
        return cast("WatchedClient", self.model)
