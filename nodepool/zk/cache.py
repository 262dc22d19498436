# SPDX-License-Identifier: Apache-2.0
"""Copies of records in ZooKeeper, kept up to date by one recursive watch a root.

Who owns what: everything here is changed in the connection thread (events and replies arrive there, in the
order in which the server sent them), except that a writer announces a write from its own thread (`expect`).
``_lock`` guards the announcements; it is held for dictionary work only. Records in the cache are snapshots:
nobody changes them, and readers copy before they write.

Hard cases:

* Our own write causes an event too. The writer announces it; when the answer comes, the record it wrote is
  taken as it is and that one event is not followed by a read. Any further event is.
* A read that is under way when an event comes may be older than the event: the record is read once more.
* A record that somebody else has locked changes under that lock and is of no interest until it is released.
  Its events are noted and it is read once, at the release or at the next `refresh_stale`.
* After a lost connection nothing is known of what happened since: watch again, list, read all, drop the rest. While
  that lasts an event may overtake the answer to a read that is older.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from kazoo.exceptions import KazooException, NoNodeError

from nodepool.clock import monotonic
from nodepool.model.record import InvalidRecord
from nodepool.zk import codec, events, paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.joint_reads import JointReads
from nodepool.zk.multi_read import read_for_callback
from nodepool.zk.reply import Reply
from nodepool.zk.watched_subtree import WatchedSubtree


class Cached(Protocol):
    """What a cached record needs."""

    mzxid: int


R = TypeVar("R", bound=Cached)


class RecordCache(WatchedSubtree[[str]], Generic[R]):
    """The records directly below one root. Listeners get the id of what changed or vanished; "" = any may have.

    :param root: path of the parent znode; need not exist yet.
    :param decode: makes a record of (JSON object, id); raises InvalidRecord.
    """

    def __init__(self, client: ZooKeeperClient, root: str, decode: Callable[[dict[str, Any], str], R]) -> None:
        super().__init__(client, root, "Error in a cache listener")
        self._decode = decode
        self._records: dict[str, R] = {}
        self._invalid: dict[str, str] = {}
        self._empty: set[str] = set()
        self._lock = threading.Lock()
        #: id -> [own writes under way, events seen since, was a listener to be told meanwhile?]
        self._expected: dict[str, list[int]] = {}
        self._creating = 0
        self._held: list[str] = []
        #: id -> (reply under way, is a further read needed?)
        self._reading: dict[str, list[Any]] = {}
        self._reads = JointReads(client)
        self._stale: set[str] = set()
        self._to_sync = 0
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
        """Wait until what ZooKeeper told us so far has been read, at most ``timeout`` seconds; False = it was not.

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
        """Read the records that changed under somebody else's lock. Does not block."""
        with self._lock:
            stale, self._stale = self._stale, set()
        for record_id in stale:
            self._read(record_id)

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
        """The answer to an announced creation."""
        with self._lock:
            self._creating -= 1
            # Events of creations that come after ours arrive after this answer, so all of these are foreign.
            held, self._held = self._held, []
        if record_id is not None and created is not None:
            self._take(record_id, created)
        for other in held:
            if other != record_id:
                self._read(other)

    # -- connection thread --

    def _on_event(self, event: int, path: str) -> None:
        record_id, _, below = path[len(self._root) + 1 :].partition("/")
        if not record_id or record_id == paths.LOCK:
            return
        if below:
            self._on_event_below(event, record_id, below)
        elif event == events.DELETED:
            self._drop(record_id)
        else:
            self._on_change(event, record_id)

    def _on_change(self, event: int, record_id: str) -> None:
        with self._lock:
            expected = self._expected.get(record_id)
            if expected is not None:
                expected[1] += 1
                return
            if event == events.CREATED and self._creating:
                self._held.append(record_id)
                return
            if event == events.CHANGED and self._is_foreign(record_id):
                self._stale.add(record_id)
                return
        self._read(record_id)

    def _on_event_below(self, event: int, record_id: str, below: str) -> None:
        return

    def _is_foreign(self, record_id: str) -> bool:
        """Is the record locked, so that its changes may wait?"""
        return False

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
            # Of an earlier connection: by now somebody may wait for another read of it.
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
            record = self._decode(codec.decode(data), record_id)
        except codec.EmptyRecord:
            self._records.pop(record_id, None)
            self._empty.add(record_id)
            self._notify(record_id)
            return
        except InvalidRecord as problem:
            if self._invalid.get(record_id) != str(problem):
                self._invalid[record_id] = str(problem)
                self.log.error("Ignoring %s/%s: %s", self._root, record_id, problem)
            self._empty.discard(record_id)
            self._records.pop(record_id, None)
            self._notify(record_id)
            return
        self._set_stat(record, stat)
        self._take(record_id, record)

    @staticmethod
    def _set_stat(record: Any, stat: Any) -> None:
        record.version = stat.version
        record.mzxid = stat.mzxid

    def _take(self, record_id: str, record: R) -> None:
        old = self._records.get(record_id)
        if old is not None and old.mzxid > record.mzxid:
            return
        self._empty.discard(record_id)
        self._invalid.pop(record_id, None)
        self._records[record_id] = record
        self._notify(record_id)

    def _drop(self, record_id: str) -> None:
        self._empty.discard(record_id)
        self._invalid.pop(record_id, None)
        with self._lock:
            self._stale.discard(record_id)
        self._records.pop(record_id, None)
        self._notify(record_id)

    # -- reading everything --

    def _forget_questions(self) -> None:
        self._reading.clear()
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
                self._forget_below(record_id)
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
                    self._sync_childless(record_id)
        if have_children:
            self._sync_below(have_children)
        self._sync_done(len(found))

    def _sync_below(self, record_ids: list[str]) -> None:
        """Read what else belongs to records that have children."""
        return

    def _sync_childless(self, record_id: str) -> None:
        """A record had no children when it was read."""
        return

    def _forget_below(self, record_id: str) -> None:
        return

    def _sync_done(self, count: int) -> None:
        self._to_sync -= count
        if self._to_sync == 0:
            self.ready.set()
            self._notify("")
