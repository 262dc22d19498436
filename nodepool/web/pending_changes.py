# SPDX-License-Identifier: Apache-2.0
"""`PendingChanges`: changes of nodes that wait until the lock of the node is free (``when_free``).

A change stands in the queue of the lock, as whoever locks a node does, so that it comes before everybody who asks
later: a node whose job ends is held before the launcher deletes it. No thread waits for it. The place in the queue
belongs to the session of the daemon: after another session the change goes to the end of the queue, and it ends with
the daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from nodepool.clock import monotonic, wall_time
from nodepool.exceptions import ZKConflict, ZKConnectionError, ZKException, ZKTooLarge
from nodepool.guard import Guard
from nodepool.zk import locks, paths

if TYPE_CHECKING:
    from nodepool.model.node import Node
    from nodepool.web.actions import Wish
    from nodepool.zk.locks import ZkLock
    from nodepool.zk.zookeeper import ZooKeeper

log = logging.getLogger("nodepool.web.pending_changes")

#: A change is given up after so long.
MOST_SECONDS: Final = 24 * 3600.0
#: Changes that may wait at a time.
MOST_PENDING: Final = 100
#: Without news all are looked at this often, for what events do not tell: age, another session.
LOOK_SECONDS: Final = 10.0
_GONE: Final = "the node is gone, or was changed at the same time"


class TooManyPending(Exception):
    """No more changes may wait."""


class AlreadyPending(Exception):
    """A change of the node waits already."""


class GivenUp(Exception):
    """The change is not to be made any more."""


class NodeLocks(Protocol):
    """The cache of nodes, see `nodepool.zk.cache.LockedRecordCache`. No call blocks."""

    def contenders(self, record_id: str) -> list[str]: ...

    def add_listener(self, listener: Callable[[str], None]) -> None: ...

    def add_queue_listener(self, listener: Callable[[str], None]) -> None: ...


@dataclass
class PendingChange:
    """A change that waits.

    :param what: ``hold`` or ``delete``. :param wish: who asks for it, and why.
    :param since: seconds since the epoch; ``until``: when it is abandoned.
    :param place: in the queue of the lock; None = it has none now.
    :param make: changes the node, which is locked. Raises GivenUp.
    """

    node_id: str
    what: str
    wish: Wish
    make: Callable[[Node], None]
    since: float = field(default_factory=wall_time)
    place: ZkLock | None = None
    #: Of its contender, and the session in which it is valid. Empty = it has none, also none without an answer.
    prefix: str = ""
    epoch: int = -1
    #: Monotonic seconds of the begin.
    begun: float = 0.0
    #: A thread works on it.
    busy: bool = False

    @property
    def until(self) -> float:
        return self.since + MOST_SECONDS


class PendingChanges:
    """Any thread.

    :param nodes: informed whose locks change.
    :param tell: informed what became of a change; must not block.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        zk: ZooKeeper,
        nodes: NodeLocks,
        tell: Callable[[PendingChange, str], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._zk = zk
        self._nodes = nodes
        self._tell = tell
        self._clock = clock
        #: Guards what follows; not held during calls of ZooKeeper.
        self._lock = threading.Lock()
        self._changes: dict[str, PendingChange] = {}
        #: Called when there is something to look at. Any thread; must not block.
        self.on_news: Callable[[], None] = _nothing
        nodes.add_listener(self._note)
        nodes.add_queue_listener(self._note)

    @property
    def idle(self) -> bool:
        """Is there nothing to look at?"""
        return not self._changes

    def of_node(self, node_id: str) -> PendingChange | None:
        """What waits for a node. Does not block."""
        return self._changes.get(node_id)

    def add(self, change: PendingChange) -> bool:
        """Make a change as soon as the node's lock is free; blocks for round trips. Is it made already?

        :raises TooManyPending, AlreadyPending: it is refused.
        :raises GivenUp: it was its turn at once, and it cannot be made. ZKException: ZooKeeper could not be asked.
        """
        change.begun = self._clock()
        with self._lock:
            if change.node_id in self._changes:
                raise AlreadyPending(self._changes[change.node_id].what)
            if len(self._changes) >= MOST_PENDING:
                raise TooManyPending
            change.busy = True
            self._changes[change.node_id] = change
        done = True
        try:
            self._join(change)
            done = self._make_if_first(change, fresh=True)
        except ZKConflict as error:
            raise GivenUp(_GONE) from error
        except ZKConnectionError:
            # It may have a place in the queue: it waits for the connection.
            done = False
        finally:
            self._release(change, ended=done)
        if not done:
            # What happened to the lock meanwhile was not for a change that is not there yet.
            self.on_news()
        return done

    def withdraw(self, node_id: str) -> PendingChange | None:
        """Give up a change; blocks for round trips. None = none waits, or it is being made just now."""
        with self._lock:
            change = self._changes.get(node_id)
            if change is None or change.busy:
                return None
            change.busy = True
        self._release(change, ended=True)
        return change

    def look(self) -> None:
        """Make those changes whose turn it is, and give up those that are too old; blocks for round trips."""
        for node_id in list(self._changes):
            change = self._claim(node_id)
            if change is None:
                continue
            ended = True
            try:
                with Guard(log, "Error in pending %s of node %s", change.what, node_id, but=ZKException) as guard:
                    ended = self._look_at(change)
                if guard.error is not None:
                    # Again and again it would be the same.
                    self._tell(change, f"given up: {guard.error}")
            except ZKException as error:
                ended = False
                log.debug("Pending %s of node %s: %s; trying again", change.what, node_id, error)
            finally:
                self._release(change, ended=ended)

    def stop(self) -> None:
        """Give up all; their places end with the session, if ZooKeeper cannot be reached now. Blocks."""
        for node_id in list(self._changes):
            change = self.withdraw(node_id)
            if change is not None:
                self._tell(change, "given up: the daemon stops")

    # -- one change, which this thread has claimed --

    def _claim(self, node_id: str) -> PendingChange | None:
        with self._lock:
            change = self._changes.get(node_id)
            if change is None or change.busy:
                return None
            change.busy = True
            return change

    def _release(self, change: PendingChange, *, ended: bool) -> None:
        try:
            if ended:
                # However it ended: a place that stays keeps the lock for as long as the daemon runs.
                self._leave(change)
        finally:
            with self._lock:
                change.busy = False
                if ended:
                    self._changes.pop(change.node_id, None)

    def _look_at(self, change: PendingChange) -> bool:
        """Is it over?"""
        if self._clock() >= change.begun + MOST_SECONDS:
            self._tell(change, f"given up after {MOST_SECONDS / 3600:g} hours: the lock was never free")
            return True
        try:
            if change.place is None or change.place.epoch != self._zk.client.session_epoch:
                self._join(change)
            if not self._make_if_first(change, fresh=False):
                return False
        except (GivenUp, ZKConflict, ZKTooLarge) as error:
            text = _GONE if isinstance(error, ZKConflict) else str(error)
            self._tell(change, f"given up: {text}")
            return True
        self._tell(change, "made")
        return True

    def _join(self, change: PendingChange) -> None:
        """Take a place at the end of the queue."""
        client, lock_dir = self._zk.client, paths.node_lock(change.node_id)
        change.place = None
        if self._zk.getNode(change.node_id) is None:
            raise GivenUp("the node is gone")
        if not change.prefix or change.epoch != client.session_epoch:
            change.epoch, change.prefix = client.session_epoch, locks.contender_prefix(lock_dir)
        identifier = f"{change.what} when free, for {change.wish.operator}"
        change.place = locks.join(client, lock_dir, change.prefix, identifier)

    def _leave(self, change: PendingChange) -> None:
        """Give back the place, also one that was asked for without an answer. Does not raise."""
        prefix, change.prefix, change.place = change.prefix, "", None
        if prefix and change.epoch == self._zk.client.session_epoch:
            # This may be the end of the daemon, and the session's end frees the place, too: it is not waited for.
            locks.leave(self._zk.client, prefix)

    def _make_if_first(self, change: PendingChange, *, fresh: bool) -> bool:
        """Make the change if the lock is ours. :param fresh: the cache does not know our place yet."""
        place = change.place
        if place is None:
            return False
        if not fresh and self._nodes.contenders(change.node_id)[:1] != [place.contender.rpartition("/")[2]]:
            # The cache follows ZooKeeper. Of a node that is gone it knows no contender: that is told below.
            if self._nodes.contenders(change.node_id):
                return False
            if self._zk.getNode(change.node_id) is None:
                raise GivenUp("the node is gone")
            return False
        queue = locks.contenders(self._zk.client, place.path)
        if not any(path == place.contender for path, _ in queue):
            # Somebody removed it, or the node with it.
            change.place = None
            if self._zk.getNode(change.node_id) is None:
                raise GivenUp("the node is gone")
            return False
        if queue[0][0] != place.contender:
            return False
        try:
            self._make(change, place)
        finally:
            self._leave(change)
        return True

    def _make(self, change: PendingChange, place: ZkLock) -> None:
        node = self._zk.getNode(change.node_id)
        if node is None:
            self._leave(change)
            self._zk.nodes.remove_empty(change.node_id)
            raise GivenUp("the node is gone")
        node.lock = place
        try:
            # Read under the lock: whoever had it before may have written.
            self._zk.updateNode(node)
            change.make(node)
            self._zk.storeNode(node)
        finally:
            node.lock = None

    def _note(self, node_id: str) -> None:
        if node_id in self._changes:
            self.on_news()


@asynccontextmanager
async def making(pending: PendingChanges) -> AsyncIterator[None]:
    """A task that looks at changes when there is news of their locks. They are given up at the end."""
    loop, woken, threads = asyncio.get_running_loop(), asyncio.Event(), CapacityLimiter(1)

    async def look() -> None:
        while True:
            seconds = None if pending.idle else LOOK_SECONDS
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(woken.wait(), seconds)
            woken.clear()
            with Guard(log, "Error while looking at pending changes"):
                await run_sync(pending.look, limiter=threads)

    def wake() -> None:
        # The thread of the connection may be here while the server ends.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(woken.set)

    pending.on_news = wake
    task = asyncio.create_task(look(), name="PendingChanges")
    try:
        yield
    finally:
        pending.on_news = _nothing
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await run_sync(pending.stop, limiter=threads)


def _nothing() -> None:
    """Nobody is to be told."""
