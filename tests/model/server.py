# SPDX-License-Identifier: Apache-2.0
"""ZooKeeper's server, as far as Nodepool uses it: a tree, transactions, sessions, recursive watches. In memory.

Takes the same request objects as Kazoo sends. What a session is told, answers and events, goes to its ``inbox`` in the
order in which a server would send it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kazoo import exceptions
from kazoo.protocol.serialization import CheckVersion, Create, Delete, Exists, GetChildren, GetData, SetData, Sync
from kazoo.protocol.serialization import Transaction as MultiRequest
from kazoo.protocol.states import ZnodeStat

from nodepool.zk.connection import CHANGED, CREATED, DELETED
from nodepool.zk.wire import AddWatch, MultiRead

EPHEMERAL = 1
SEQUENCE = 2


@dataclass
class Znode:
    data: bytes
    owner: int
    czxid: int
    mzxid: int
    mtime: float
    version: int = 0
    #: Children that were ever created: the next sequence number.
    created: int = 0
    children: dict[str, None] = field(default_factory=dict)

    def stat(self) -> ZnodeStat:
        return ZnodeStat(
            self.czxid,
            self.mzxid,
            0,
            int(self.mtime * 1000),
            self.version,
            0,
            0,
            self.owner,
            len(self.data),
            len(self.children),
            0,
        )


class Session:
    """One client's session, as the server knows it."""

    def __init__(self, number: int, name: str) -> None:
        self.id = number
        self.name = name
        self.alive = True
        #: Roots that are watched by the connection; gone with it.
        self.watches: list[str] = []
        #: What the connection carries to the client: called there, one after the other.
        self.inbox: deque[Callable[[], None]] = deque()
        self.on_event: Callable[[int, str], None] = lambda kind, path: None


@dataclass(frozen=True)
class Change:
    """One committed change, for those who check invariants."""

    session: Session
    kind: int
    path: str


class Server:
    """:param clock: seconds since the epoch."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.zxid = 0
        self._sessions = 0
        self.znodes: dict[str, Znode] = {"/": Znode(b"", 0, 0, 0, 0.0)}
        self.sessions: list[Session] = []
        #: Told of each commit.
        self.on_commit: Callable[[list[Change]], None] = lambda changes: None

    def open(self, name: str) -> Session:
        self._sessions += 1
        session = Session(self._sessions, name)
        self.sessions.append(session)
        return session

    def expire(self, session: Session) -> None:
        """End a session; its ephemeral znodes vanish in one transaction."""
        if not session.alive:
            return
        session.alive = False
        self.sessions.remove(session)
        session.watches.clear()
        self.zxid += 1
        changes: list[Change] = []
        for path in sorted((path for path, znode in self.znodes.items() if znode.owner == session.id), reverse=True):
            self._delete(Delete(path, -1), session, changes, [])
        self._publish(changes)

    def children(self, path: str) -> list[str]:
        znode = self.znodes.get(path)
        return [] if znode is None else list(znode.children)

    # -- requests --

    def handle(self, session: Session, request: Any) -> Any:
        """Do what a request says; returns its answer or raises a KazooException."""
        if not session.alive:
            raise exceptions.SessionExpiredError
        if isinstance(request, MultiRequest):
            return self._multi(session, request.operations)
        if isinstance(request, MultiRead):
            return [self._tried(operation) for operation in request.operations]
        if isinstance(request, AddWatch):
            session.watches.append(request.path)
            return True
        if isinstance(request, Sync):
            return request.path
        if isinstance(request, (GetData, GetChildren, Exists)):
            return self._read(request)
        changes: list[Change] = []
        self.zxid += 1
        result = self._write(request, session, changes, [])
        self._publish(changes)
        return result

    def _read(self, request: Any) -> Any:
        znode = self.znodes.get(request.path)
        if znode is None:
            raise exceptions.NoNodeError
        if isinstance(request, GetData):
            return znode.data, znode.stat()
        if isinstance(request, GetChildren):
            return list(znode.children)
        return znode.stat()

    def _tried(self, request: Any) -> Any:
        try:
            return self._read(request)
        except exceptions.KazooException as error:
            return error

    def _multi(self, session: Session, operations: list[Any]) -> list[Any]:
        results: list[Any] = []
        changes: list[Change] = []
        undo: list[Callable[[], None]] = []
        self.zxid += 1
        for index, operation in enumerate(operations):
            try:
                results.append(self._write(operation, session, changes, undo))
            except exceptions.KazooException as error:
                for step in reversed(undo):
                    step()
                after = [exceptions.RuntimeInconsistency() for _ in operations[index + 1 :]]
                return [*(exceptions.RolledBackError() for _ in range(index)), error, *after]
        self._publish(changes)
        return results

    def _publish(self, changes: list[Change]) -> None:
        for change in changes:
            for session in self.sessions:
                if any(change.path == root or change.path.startswith(f"{root}/") for root in session.watches):
                    session.inbox.append(lambda s=session, c=change: s.on_event(c.kind, c.path))  # type: ignore[misc]
        if changes:
            self.on_commit(changes)

    # -- writes --

    def _write(self, op: Any, session: Session, changes: list[Change], undo: list[Callable[[], None]]) -> Any:
        if isinstance(op, Create):
            return self._create(op, session, changes, undo)
        if isinstance(op, Delete):
            return self._delete(op, session, changes, undo)
        if isinstance(op, SetData):
            return self._set(op, session, changes, undo)
        if isinstance(op, CheckVersion):
            self._existing(op.path, op.version)
            return True
        raise NotImplementedError(op)

    def _existing(self, path: str, version: int) -> Znode:
        znode = self.znodes.get(path)
        if znode is None:
            raise exceptions.NoNodeError
        if version not in (-1, znode.version):
            raise exceptions.BadVersionError
        return znode

    def _create(self, op: Any, session: Session, changes: list[Change], undo: list[Callable[[], None]]) -> str:
        above = op.path.rpartition("/")[0] or "/"
        parent = self.znodes.get(above)
        if parent is None:
            raise exceptions.NoNodeError
        path: str = f"{op.path}{parent.created:010d}" if op.flags & SEQUENCE else op.path
        if path in self.znodes:
            raise exceptions.NodeExistsError
        name = path.rpartition("/")[2]
        owner = session.id if op.flags & EPHEMERAL else 0
        self.znodes[path] = Znode(op.data, owner, self.zxid, self.zxid, self._clock())
        parent.children[name] = None
        parent.created += 1
        changes.append(Change(session, CREATED, path))

        def back() -> None:
            del self.znodes[path], parent.children[name]
            parent.created -= 1

        undo.append(back)
        return path

    def _delete(self, op: Any, session: Session, changes: list[Change], undo: list[Callable[[], None]]) -> bool:
        znode = self._existing(op.path, op.version)
        if znode.children:
            raise exceptions.NotEmptyError
        above, _, name = op.path.rpartition("/")
        parent = self.znodes[above or "/"]
        before = dict(parent.children)
        del self.znodes[op.path], parent.children[name]
        changes.append(Change(session, DELETED, op.path))

        def back() -> None:
            self.znodes[op.path] = znode
            parent.children = before

        undo.append(back)
        return True

    def _set(self, op: Any, session: Session, changes: list[Change], undo: list[Callable[[], None]]) -> ZnodeStat:
        znode = self._existing(op.path, op.version)
        before = (znode.data, znode.version, znode.mzxid, znode.mtime)
        znode.data, znode.version, znode.mzxid, znode.mtime = op.data, znode.version + 1, self.zxid, self._clock()
        changes.append(Change(session, CHANGED, op.path))

        def back() -> None:
            znode.data, znode.version, znode.mzxid, znode.mtime = before

        undo.append(back)
        return znode.stat()
