# SPDX-License-Identifier: Apache-2.0
"""Copies of records in ZooKeeper, kept up to date by one recursive watch a root.

First what all caches have in common (`WatchedSubtree`), then records (`RecordCache`), and caches of other trees. Last
reads that are sent together.

Who owns what: everything here is changed in the connection thread (events and replies arrive there, in the order in
which the server sent them), except that a writer announces a write from its own thread (`expect`). ``_lock`` guards the
announcements; it is held for dictionary work only. Records in the cache are snapshots: they never change, and readers
copy before they write.

Hard cases:

* Our own write causes an event too. The writer announces it; when the answer comes, the record it wrote is
  taken as it is and that one event is not followed by a read. Any further event is.
* A read that is under way when an event comes may be older than the event: the record is read once more.
* A record that another has locked changes under that lock and is of no interest until it is released.
  Its events are noted and it is read once, at the release or at the next `refresh_stale`.
* After a lost connection nothing is known of what happened since: watch again, list, read all, drop the rest. While
  that lasts an event may overtake the answer to a read that is older.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, Generic, ParamSpec, Protocol, TypeVar

from kazoo.exceptions import KazooException, NoNodeError

from nodepool import log_names
from nodepool.clock import monotonic
from nodepool.exceptions import ZKConnectionError
from nodepool.guard import Guard
from nodepool.model.record import InvalidRecord, Record
from nodepool.zk import paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.connection import CHANGED, CREATED, DELETED, Reply
from nodepool.zk.transactions import BATCH, UNKNOWN_OUTCOME, read_for_callback

# `WatchedSubtree`: what caches have in common: a recursive watch, listeners, and all read anew with each session.
#
# Whatever is below is changed in the connection thread, where events and answers arrive. Listeners may come and go from
# any thread.

P = ParamSpec("P")


class WatchedSubtree(ABC, Generic[P]):
    """Follows what is at and below one znode. ``P`` is what listeners are called with.

    A connection can have one for each root: the last one that began to follow it gets the events.

    :param root: path of the znode; need not exist.
    """

    log = logging.getLogger(log_names.ZOOKEEPER)

    def __init__(self, client: ZooKeeperClient, root: str) -> None:
        self._client = client
        self._root = root
        self._listeners: list[Callable[P, None]] = []
        self._guard = Guard(self.log, "Error in a listener of %s", root)
        #: Grows with each connection: answers of an earlier one do not count.
        self._generation = 0
        #: Set while the cache follows ZooKeeper; clear before everything was read and without a connection.
        self.ready = threading.Event()

    # -- any thread --

    def start(self) -> None:
        """Follow ZooKeeper, now or once the client is connected. Does not block."""
        self._client.add_session_listener(self._on_session)
        if self._client.connected:
            self._resync()

    def stop(self) -> None:
        """Follow nothing any more; what is known stays as it is. Does not block. Without `start` nothing happens.

        The server goes on to send events until the session ends. They are passed over.
        """
        self._client.remove_session_listener(self._on_session)
        self._generation += 1
        self.ready.clear()
        self._client.unwatch(self._root, self._on_event)

    def wait_ready(self, timeout: float | None = None) -> bool:
        """Wait until everything was read, at most ``timeout`` seconds."""
        return self.ready.wait(timeout)

    def add_listener(self, listener: Callable[P, None]) -> None:
        """Call it after each change, in the connection thread; it must not block."""
        self._listeners = [*self._listeners, listener]

    def remove_listener(self, listener: Callable[P, None]) -> None:
        """Tell a listener nothing more; one that is not there is fine."""
        self._listeners = [other for other in self._listeners if other != listener]

    # -- connection thread --

    @abstractmethod
    def _on_event(self, event: int, path: str) -> None:
        """Something at or below the root has changed."""

    @abstractmethod
    def _forget_questions(self) -> None:
        """What was asked on an earlier connection will have no answer."""

    @abstractmethod
    def _read_all(self) -> None:
        """Ask for everything. ``ready`` is set when it is known."""

    def _on_session(self, state: str) -> None:
        if state == "connected":
            self._resync()
        else:
            self.ready.clear()
            self._generation += 1

    def _resync(self) -> None:
        self._generation += 1
        self.ready.clear()
        self._forget_questions()
        self._client.kazoo.watch_recursive(self._root, self._on_event, self._on_watching)
        self._read_all()

    def _on_watching(self, _: Any, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, UNKNOWN_OUTCOME):
            self.log.error("ZooKeeper refuses to watch %s, is it 3.6 or newer? %r", self._root, error)

    def _notify(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for listener in self._listeners:
            with self._guard:
                listener(*args, **kwargs)


class Cached(Protocol):
    """What a cached record needs."""

    mzxid: int


R = TypeVar("R", bound=Cached)


class RecordCache(WatchedSubtree[[str]], Generic[R]):
    """The records directly below one root. Listeners get the id of what changed or vanished; "" = any may have.

    Where records have a ``lock`` directory of their own, as nodes do, it is known who holds or waits for each lock.

    :param root: path of the parent znode; need not exist yet.
    :param decode: makes a record of (JSON object, id); raises InvalidRecord.
    """

    def __init__(self, client: ZooKeeperClient, root: str, decode: Callable[[dict[str, Any], str], R]) -> None:
        super().__init__(client, root)
        self._decode = decode
        self._records: dict[str, R] = {}
        self._invalid: dict[str, str] = {}
        self._empty: set[str] = set()
        self._lock = threading.Lock()
        #: id -> [own writes under way, events seen since, was a listener to be called meanwhile?]
        self._expected: dict[str, list[int]] = {}
        self._creating = 0
        self._held: list[str] = []
        #: id -> (reply under way, is a further read needed?)
        self._reading: dict[str, list[Any]] = {}
        self._reads = JointReads(client)
        self._stale: set[str] = set()
        self._to_sync = 0
        self._lock_dirs: set[str] = set()
        self._contenders: dict[str, set[str]] = {}
        #: What events reported of contenders since everything is being read anew: it is newer than what was read.
        self._appeared: dict[str, set[str]] = {}
        self._vanished: dict[str, set[str]] = {}
        self.start()

    # -- readers (any thread) --

    def get(self, record_id: str) -> R | None:
        """The record, or None. Do not change it: it is shared."""
        return self._records.get(record_id)

    def ids(self) -> list[str]:
        return list(self._records)

    def snapshot(self) -> dict[str, R]:
        """All records by their ids, as they are now. Nothing changes the dictionary afterwards."""
        return self._records.copy()

    def values(self) -> list[R]:
        return list(self._records.values())

    def is_empty(self, record_id: str) -> bool:
        """Is the znode there, without data?"""
        return record_id in self._empty

    def empty_ids(self) -> list[str]:
        """Znodes without data (rule C-8)."""
        return list(self._empty)

    def __len__(self) -> int:
        return len(self._records)

    def is_reading(self, record_id: str) -> bool:
        """Did the record change, and is it being read? Then listeners will hear of it again."""
        return record_id in self._reading

    @property
    def pending_reads(self) -> int:
        """Records that changed and are being read."""
        return len(self._reading)

    def wait_settled(self, timeout: float) -> bool:
        """Wait until what ZooKeeper reported so far has been read, at most ``timeout`` seconds; False = it was not.

        While everything is read anew the cache is older than what was known before, and no single read tells.
        """
        deadline = monotonic() + timeout

        def answered(reply: Reply) -> bool:
            return reply.wait(max(0.0, deadline - monotonic()))

        while self.wait_ready(max(0.0, deadline - monotonic())):
            generation = self._generation
            self._read_held()
            for record_id, state in list(self._reading.items()):
                if not answered(state[0]):
                    return False
                # It changed again while it was being read. That read has begun now, or is over, too.
                again = self._reading.get(record_id) if state[1] else None
                if again is not None and not answered(again[0]):
                    return False
            if generation == self._generation:
                return True
            # Reads were forgotten with a connection.
        return False

    def _read_held(self) -> None:
        """Read what was created while creations of our own are under way, whose ids are not known yet."""
        with self._lock:
            held, self._held = self._held, []
        for record_id in held:
            self._read(record_id)

    def refresh_stale(self) -> None:
        """Read the records that changed under another's lock. Does not block."""
        with self._lock:
            stale, self._stale = self._stale, set()
        for record_id in stale:
            self._read(record_id)

    def has_lock_dir(self, record_id: str) -> bool:
        return record_id in self._lock_dirs

    def is_locked(self, record_id: str) -> bool:
        """Does a process hold or wait for the lock?"""
        return record_id in self._contenders

    def is_left(self, record_id: str) -> bool:
        """Is the record, as it is here, one that no process has locked? One that changed may say why, and is read."""
        return record_id not in self._contenders and record_id not in self._reading

    def locked_ids(self) -> frozenset[str]:
        """The records for which `is_locked` is true now."""
        return frozenset(self._contenders)

    def contenders(self, record_id: str) -> list[str]:
        """Names of the contenders' znodes, the holder first.

        What else was put there comes last: no process has the lock by it.
        """
        names = {name: paths.contender_sequence(name) for name in self._contenders.get(record_id, ())}
        return sorted(names, key=lambda name: (names[name] is None, names[name] or name))

    # -- own writes --

    def expect(self, record_id: str) -> None:
        """A write of this record is about to be sent."""
        with self._lock:
            self._expected.setdefault(record_id, [0, 0, 0])[0] += 1

    def settle(self, record_id: str, written: R | None) -> None:
        """The answer to an announced write: the record as it is now, or None if it failed."""
        with self._lock:
            expected = self._expected[record_id]
            expected[0] -= 1
            if written is not None:
                expected[1] -= 1
            again = tell = False
            if expected[0] == 0:
                del self._expected[record_id]
                again = expected[1] > 0
                tell = expected[2] > 0
        if written is not None:
            self._take(record_id, written)
        elif tell:
            self._notify(record_id)
        if again:
            self._read(record_id)

    def expect_create(self) -> None:
        """A record with a sequence number is about to be created."""
        with self._lock:
            self._creating += 1

    def settle_create(self, record_id: str | None, created: R | None) -> None:
        """The answer to an announced creation; without a record it failed."""
        with self._lock:
            self._creating -= 1
            # Events of creations that come after ours arrive after this answer, so all of these are foreign.
            held, self._held = self._held, []
        if record_id is not None and created is not None:
            self._take(record_id, created)
        for other in held:
            if other != record_id or created is None:
                self._read(other)

    # -- connection thread --

    def _on_event(self, event: int, path: str) -> None:
        record_id, _, below = path[len(self._root) + 1 :].partition("/")
        if not record_id or record_id == paths.LOCK:
            return
        if below:
            self._on_event_below(event, record_id, below)
        elif event == DELETED:
            self._drop(record_id)
        else:
            self._on_change(event, record_id)

    def _on_change(self, event: int, record_id: str) -> None:
        with self._lock:
            expected = self._expected.get(record_id)
            if expected is not None:
                expected[1] += 1
                return
            if event == CREATED and self._creating:
                self._held.append(record_id)
                return
            if event == CHANGED and self.is_locked(record_id):
                self._stale.add(record_id)
                return
        self._read(record_id)

    def _on_event_below(self, event: int, record_id: str, below: str) -> None:
        directory, _, contender = below.partition("/")
        if directory != paths.LOCK or event == CHANGED or "/" in contender:
            return
        self._note(event, record_id, contender)
        if not contender:
            if event == CREATED:
                self._lock_dirs.add(record_id)
            else:
                self._forget_below(record_id)
        elif event == CREATED:
            self._contenders[record_id] = {*self._contenders.get(record_id, ()), contender}
            self._notify(record_id)
        else:
            self._released(record_id, contender)

    def _released(self, record_id: str, contender: str) -> None:
        left = self._contenders.get(record_id, set()) - {contender}
        if left:
            self._contenders[record_id] = left
            return
        self._contenders.pop(record_id, None)
        with self._lock:
            stale = record_id in self._stale
            self._stale.discard(record_id)
            expected = self._expected.get(record_id)
            if expected is not None:
                expected[2] = 1
        # Listeners hear of the release when the record is known again.
        if stale:
            self._read(record_id)
        elif expected is None:
            self._notify(record_id)

    def _note(self, event: int, record_id: str, contender: str) -> None:
        """Remember an event that may overtake a read; a contender's name is never used again."""
        if not self.ready.is_set():
            notes = self._appeared if event == CREATED else self._vanished
            notes.setdefault(record_id, set()).add(contender)

    def _forget_below(self, record_id: str) -> None:
        self._lock_dirs.discard(record_id)
        self._contenders.pop(record_id, None)

    def _read(self, record_id: str) -> None:
        state = self._reading.get(record_id)
        if state is not None:
            state[1] = True
            return
        reply = Reply(partial(self._on_data, record_id, self._generation))
        self._reading[record_id] = [reply, False]
        self._reads.read(f"{self._root}/{record_id}", reply)

    def _on_data(self, record_id: str, generation: int, answer: Any, error: BaseException | None) -> None:
        if generation != self._generation:
            # Of an earlier connection: by now someone may wait for another read of it.
            return
        state = self._reading.pop(record_id, None)
        if isinstance(error, NoNodeError):
            self._drop(record_id)
        elif error is None:
            self._load(record_id, answer[0], answer[1])
        if state is not None and state[1] and error is None:
            # Not after an error: Kazoo empties its queue in a loop while the connection is down.
            self._read(record_id)

    def _load(self, record_id: str, data: bytes, stat: Any) -> None:
        try:
            record = self._decode(paths.decode(data), record_id)
        except InvalidRecord as problem:
            self._records.pop(record_id, None)
            if isinstance(problem, paths.EmptyRecord):
                self._empty.add(record_id)
            else:
                self._empty.discard(record_id)
                if self._invalid.get(record_id) != str(problem):
                    self._invalid[record_id] = str(problem)
                    self.log.error("Ignoring %s/%s: %s", self._root, record_id, problem)
            self._notify(record_id)
            return
        record.mzxid = stat.mzxid
        if isinstance(record, Record):
            # The version of a component is that of its program.
            record.version = stat.version
        self._take(record_id, record)

    def _take(self, record_id: str, record: R) -> None:
        old = self._records.get(record_id)
        if old is not None and old.mzxid > record.mzxid:
            return
        self._empty.discard(record_id)
        self._invalid.pop(record_id, None)
        self._records[record_id] = record
        self._notify(record_id)

    def _drop(self, record_id: str) -> None:
        self._forget_below(record_id)
        self._empty.discard(record_id)
        self._invalid.pop(record_id, None)
        with self._lock:
            self._stale.discard(record_id)
        self._records.pop(record_id, None)
        self._notify(record_id)

    # -- reading everything --

    def _forget_questions(self) -> None:
        self._reading.clear()
        self._appeared.clear()
        self._vanished.clear()
        # One that never gets its answer, because it was asked for while the connection went, must not stop the others.
        self._reads = JointReads(self._client)

    def _read_all(self) -> None:
        kazoo = self._client.kazoo
        kazoo.call(kazoo.operations.children(self._root), Reply(partial(self._on_listing, self._generation)))

    def _on_listing(self, generation: int, names: list[str] | None, error: BaseException | None) -> None:
        if generation != self._generation or (error is not None and not isinstance(error, NoNodeError)):
            return
        current = set(names or ()) - {paths.LOCK}
        for record_id in {*self._records, *self._empty, *self._invalid}:
            if record_id not in current:
                self._drop(record_id)
        self._to_sync = 1 + len(current)
        operations = self._client.kazoo.operations
        reads = ((i, operations.get(f"{self._root}/{i}")) for i in current)
        read_for_callback(self._client, reads, partial(self._on_sync, generation))
        self._sync_done(1)

    def _on_sync(self, generation: int, found: list[tuple[str, Any]]) -> None:
        """Some of the records of a listing."""
        if generation != self._generation:
            return
        have_children = []
        for record_id, answer in found:
            if isinstance(answer, NoNodeError):
                self._drop(record_id)
            elif isinstance(answer, KazooException):
                self.log.error("Cannot read %s/%s: %r", self._root, record_id, answer)
            else:
                self._load(record_id, *answer)
                if answer[1].numChildren:
                    have_children.append(record_id)
                else:
                    self._take_contenders(record_id, None)
        if have_children:
            self._sync_below(have_children)
        self._sync_done(len(found))

    def _sync_below(self, record_ids: list[str]) -> None:
        operations = self._client.kazoo.operations
        self._to_sync += len(record_ids)
        reads = ((i, operations.children(f"{self._root}/{i}/lock")) for i in record_ids)
        read_for_callback(self._client, reads, partial(self._on_contenders, self._generation))

    def _on_contenders(self, generation: int, found: list[tuple[str, Any]]) -> None:
        if generation != self._generation:
            return
        for record_id, names in found:
            # An error: it was deleted meanwhile.
            self._take_contenders(record_id, None if isinstance(names, KazooException) else names)
            self._notify(record_id)
        self._sync_done(len(found))

    def _take_contenders(self, record_id: str, names: list[str] | None) -> None:
        """What was read, and what events reported since.

        :param names: None = there was no lock directory.
        """
        appeared, vanished = self._appeared.get(record_id), self._vanished.get(record_id, set())
        contenders = {*(names or ()), *(appeared or ())} - {"", *vanished}
        self._forget_below(record_id)
        # The empty name stands for the directory itself.
        if (names is not None or appeared) and "" not in vanished:
            self._lock_dirs.add(record_id)
        if contenders:
            self._contenders[record_id] = contenders

    def _sync_done(self, count: int) -> None:
        self._to_sync -= count
        if self._to_sync == 0:
            self.ready.set()
            self._notify("")


# `ZnodeTree`: the znodes below a root as far as they are known. It never asks ZooKeeper.

#: Of a znode whose data were not read.
_NO_STAT: Final = SimpleNamespace(czxid=0, mzxid=0, ctime=0, mtime=0)


class Znode:
    """One znode.

    :param stat: Kazoo's, of the data that were read last.
    :param record: what they mean; None = they are not known, or no record.
    :param logged: ``mzxid`` of the bad data that were logged last.
    """

    __slots__ = ("children", "logged", "record", "stat")

    def __init__(self) -> None:
        self.children: dict[str, Znode] = {}
        self.stat: Any = _NO_STAT
        self.record: Any = None
        self.logged = 0

    def is_locked(self) -> bool:
        """Does a process hold or wait for the lock in it?"""
        lock = self.children.get(paths.LOCK)
        return lock is not None and bool(lock.children)


class ZnodeTree:
    """Changed by one thread. Paths are whole ones, at or below the root.

    :param parse: makes a record of path, data and stat. Raises InvalidRecord.
    """

    log = logging.getLogger(log_names.ZOOKEEPER)
    #: Level of the message about a znode without data.
    EMPTY_LEVEL = logging.ERROR

    def __init__(self, root: str, parse: Callable[[str, bytes, Any], Any]) -> None:
        self.root = root
        self._parse = parse
        self.top = Znode()

    def names(self, path: str) -> list[str]:
        """Names on the way from the root to a znode; none for the root itself."""
        return paths.below(self.root, path)

    def _find(self, names: Iterable[str]) -> Znode | None:
        found: Znode | None = self.top
        for name in names:
            found = None if found is None else found.children.get(name)
        return found

    def add(self, path: str) -> None:
        """A znode is there, and so are its parents."""
        found = self.top
        for name in self.names(path):
            found = found.children.setdefault(name, Znode())

    def remove(self, path: str) -> None:
        """A znode was deleted with all below; one that was not known is fine."""
        names = self.names(path)
        if not names:
            self.top = Znode()
            return
        parent = self._find(names[:-1])
        if parent is not None:
            parent.children.pop(names[-1], None)

    def set_children(self, path: str, names: Iterable[str]) -> None:
        """The znode has these children and no others."""
        znode = self._find(self.names(path))
        if znode is not None:
            znode.children = {name: znode.children.get(name) or Znode() for name in names}

    def load(self, path: str, data: bytes, stat: Any) -> None:
        """A znode has these data. A bad record is logged once for each write."""
        znode = self._find(self.names(path))
        if znode is None:
            return
        record = None
        try:
            record = self._parse(path, data, stat)
        except InvalidRecord as problem:
            if znode.logged != stat.mzxid:
                znode.logged = stat.mzxid
                level = self.EMPTY_LEVEL if isinstance(problem, paths.EmptyRecord) else logging.ERROR
                self.log.log(level, "Ignoring %s: %s", path, problem)
        # Last: other threads read it meanwhile.
        znode.stat, znode.record = stat, record


# `SubtreeCache`: keeps a `ZnodeTree`, of which a subclass says what it means.
#
# An event says that a znode is there, was deleted or has other data; only data are read then. An answer that was under
# way when an event of the same znode or of a child came may be older than the event: it is asked for again. After a
# lost connection all is read anew; what was known stays until then.

_DATA: Final = "data"
_CHILDREN: Final = "children"
#: What was asked: of which path, and which of the two.
_Question = tuple[str, str]


class SubtreeCache(WatchedSubtree[P]):
    """Asks for what is to be known of a subtree. A subclass makes of it what readers get, and notifies listeners."""

    def __init__(self, client: ZooKeeperClient, tree: ZnodeTree) -> None:
        super().__init__(client, tree.root)
        self._tree = tree
        #: Is a further answer needed, because an event came meanwhile?
        self._asked: dict[_Question, bool] = {}
        #: Questions under way, by part.
        self._open: dict[str, int] = {}

    @property
    def pending_reads(self) -> int:
        """Reads under way."""
        return len(self._asked)

    # -- what a subclass knows --

    @abstractmethod
    def _has_data(self, path: str) -> bool:
        """Is there something to know of this znode besides that it exists?"""

    @abstractmethod
    def _has_children(self, path: str) -> bool:
        """May this znode have children that matter?"""

    @abstractmethod
    def _on_complete(self) -> None:
        """Everything was read: sets ``ready``."""

    @abstractmethod
    def _on_change(self, path: str) -> None:
        """While the cache is ready: there is, or was, something new about a znode."""

    @abstractmethod
    def _on_settled(self) -> None:
        """While the cache is ready: an event or answers were taken. More may be under way, see `_is_open`."""

    def _part_of(self, path: str) -> str:
        """What a znode belongs to; `_is_open` tells parts apart."""
        return ""

    # -- reading --

    def _is_open(self, part: str = "") -> bool:
        """Is something of this part being read?"""
        return bool(self._open.get(part))

    def _forget_questions(self) -> None:
        self._asked.clear()
        self._open.clear()

    def _read_all(self) -> None:
        self._ask([(self._root, _CHILDREN)])

    def _on_event(self, event: int, path: str) -> None:
        for question in ((path, _DATA), (path, _CHILDREN), (path.rpartition("/")[0], _CHILDREN)):
            if question in self._asked:
                self._asked[question] = True
        reads = event != DELETED and self._has_data(path)
        if event == DELETED:
            self._tree.remove(path)
        else:
            self._tree.add(path)
        if reads:
            self._ask([(path, _DATA)])
        if self.ready.is_set():
            if not reads:
                self._on_change(path)
            self._on_settled()

    def _ask(self, questions: Iterable[_Question]) -> None:
        new = [question for question in questions if question not in self._asked]
        for question in new:
            self._asked[question] = False
            part = self._part_of(question[0])
            self._open[part] = self._open.get(part, 0) + 1
        try:
            operations = self._client.kazoo.operations
            reads = [
                (question, operations.get(question[0]) if question[1] == _DATA else operations.children(question[0]))
                for question in new
            ]
            read_for_callback(self._client, iter(reads), partial(self._on_answers, self._generation))
        except ZKConnectionError as closing:
            self.log.debug("%s is not read any more: %s", self._root, closing)

    def _on_answers(self, generation: int, answers: list[tuple[_Question, Any]]) -> None:
        if generation != self._generation:
            # Of an earlier connection.
            return
        further: list[_Question] = []
        for question, answer in answers:
            again = self._asked.pop(question)
            self._open[self._part_of(question[0])] -= 1
            further += [question] if again else self._take(question, answer)
        if further:
            self._ask(further)
        if self.ready.is_set():
            self._on_settled()
        elif not self._asked:
            self._on_complete()

    def _take(self, question: _Question, answer: Any) -> list[_Question]:
        """Note an answer that no event has overtaken; returns what else must be known."""
        path, what = question
        if self.ready.is_set():
            self._on_change(path)
        if isinstance(answer, NoNodeError):
            self._tree.remove(path)
        elif isinstance(answer, KazooException):
            self.log.error("Cannot read %s: %r", path, answer)
        elif what == _DATA:
            self._tree.load(path, *answer)
        else:
            self._tree.set_children(path, answer)
            below = [f"{path}/{name}" for name in answer]
            return [
                *((child, _DATA) for child in below if self._has_data(child)),
                *((child, _CHILDREN) for child in below if self._has_children(child)),
            ]
        return []


class RecordsByKind(SubtreeCache[[]]):
    """A cache of the znodes ``<root>/<kind>/<name>``, each a record for itself; notifies when something changed.

    :param kinds: others are passed over: a later release may have more of them.
    :param parse: see `ZnodeTree`.
    """

    def __init__(
        self, client: ZooKeeperClient, root: str, kinds: Iterable[str], parse: Callable[[str, bytes, Any], Any]
    ) -> None:
        super().__init__(client, ZnodeTree(root, parse))
        self._kinds = tuple(kinds)
        self._changed = False

    def _entries(self, kind: str) -> list[Any]:
        """The records of a kind, without bad ones. Any thread."""
        directory = self._tree.top.children.get(kind)
        znodes = [] if directory is None else list(directory.children.values())
        return [znode.record for znode in znodes if znode.record is not None]

    # -- connection thread --

    def _renew(self) -> bool:
        """Entries have changed; returns whether listeners are to know."""
        return True

    def _has_data(self, path: str) -> bool:
        names = self._tree.names(path)
        return len(names) == 2 and names[0] in self._kinds

    def _has_children(self, path: str) -> bool:
        names = self._tree.names(path)
        return not names or (len(names) == 1 and names[0] in self._kinds)

    def _on_change(self, path: str) -> None:
        self._changed = True

    def _on_settled(self) -> None:
        if self._changed:
            self._changed = False
            if self._renew():
                self._notify()

    def _on_complete(self) -> None:
        self._renew()
        self.ready.set()
        self._notify()


# `JointReads`: reads that are requested one by one, and sent together when there are many.
#
# In a burst there is one event per request, and each event needs a read. The first read is sent at once. The reads that
# are requested before its answer share the next packet.

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
        """Send what waits. Called by the thread that has set ``_under_way``."""
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
