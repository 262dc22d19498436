# SPDX-License-Identifier: Apache-2.0
"""What operators change by pages and API, as the commands do it (reference/rules-web, WP-91 to WP-96).

First the changes (`Actions`), then those that wait for the lock of a node, then who may change something.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from nodepool.clock import monotonic, wall_time
from nodepool.exceptions import ZKConflict, ZKConnectionError, ZKException, ZKLockException, ZKTooLarge
from nodepool.guard import Guard
from nodepool.model import states
from nodepool.model.maintenance import MODES, Maintenance, Mode
from nodepool.plan.maintenance import UnclearSubject, find
from nodepool.web.answers import ApiProblem
from nodepool.web.browser_login import BrowserLogin
from nodepool.web.tokens import Tokens
from nodepool.zk import locks, paths, zookeeper
from nodepool.zk.locks import COMMAND, LockOwners

if TYPE_CHECKING:
    from nodepool.model.node import Node
    from nodepool.plan.observed import Observed
    from nodepool.zk.cache import LockedRecordCache
    from nodepool.zk.locks import ZkLock
    from nodepool.zk.maintenance_store import MaintenanceStore
    from nodepool.zk.zookeeper import ZooKeeper

log = logging.getLogger("nodepool.web.changes")

#: How long a node's lock is waited for. A page waits no longer.
LOCK_SECONDS: Final = 2.0
#: Texts in records and in the log are cut.
MOST_TEXT: Final = 500


class NodeIsLocked(Exception):
    """Somebody else has the lock of the node."""


@dataclass(frozen=True)
class Wish:
    """What an operator asks for.

    :param by: name of the user. :param reason: why; never empty.
    :param until: end of it, in seconds since the epoch; None = none.
    """

    by: str
    reason: str
    until: float | None = None

    @property
    def operator(self) -> str:
        """As records name who did it."""
        return f"{self.by} (web)"


class Actions:
    """Changes records in ZooKeeper. Any thread; every method blocks for round trips, and raises ApiProblem.

    :param pending: changes that wait for the lock of a node; None = none may wait.
    """

    def __init__(
        self,
        zk: ZooKeeper,
        maintenance: MaintenanceStore,
        pending: PendingChanges | None = None,
        now: Callable[[], float] = wall_time,
    ) -> None:
        self._zk = zk
        self._maintenance = maintenance
        self._pending = pending
        self._now = now

    # -- nodes --

    def hold(self, node_id: str, wish: Wish, *, when_free: bool = False) -> bool:
        """As ``nodepool hold``. Is it done?

        :param when_free: if somebody has the lock, as soon as it is free.
        """

        def change(node: Node) -> None:
            if when_free and node.state in (states.DELETING, states.DELETED):
                raise GivenUp("the node is being deleted")
            seconds = None if wish.until is None else max(1, round(wish.until - self._now()))
            node.hold(by=wish.operator, reason=wish.reason, seconds=seconds)

        return self._change_node(node_id, "hold", change, wish, when_free=when_free)

    def delete(self, node_id: str, wish: Wish, *, when_free: bool = False) -> bool:
        """As ``nodepool delete``: the launcher does the rest. Is it done? :param when_free: see `hold`."""

        def change(node: Node) -> None:
            node.state = states.DELETING

        return self._change_node(node_id, "delete", change, wish, when_free=when_free)

    def withdraw(self, node_id: str, wish: Wish) -> None:
        """Give up a change that waits for the lock of a node."""
        change = None if self._pending is None else self._pending.withdraw(node_id)
        if change is None:
            raise ApiProblem(HTTPStatus.NOT_FOUND, f"No change of node {node_id} waits for its lock.")
        self._done(wish, f"node {node_id}", f"{change.what} withdrawn")

    def _change_node(
        self, node_id: str, what: str, change: Callable[[Node], None], wish: Wish, *, when_free: bool
    ) -> bool:
        try:
            self._change_now(node_id, change, wish, 0.0 if when_free else LOCK_SECONDS)
        except NodeIsLocked as locked:
            if not when_free or self._pending is None:
                raise ApiProblem(HTTPStatus.CONFLICT, f"{locked} Try again later, or with when_free.") from None
            done = self._wait_for_lock(self._pending, PendingChange(node_id, what, wish, change))
        except GivenUp as error:
            raise ApiProblem(HTTPStatus.CONFLICT, f"Node {node_id}: {error}.") from None
        else:
            done = True
        self._done(wish, f"node {node_id}", what if done else f"{what} when its lock is free")
        return done

    def _wait_for_lock(self, pending: PendingChanges, change: PendingChange) -> bool:
        try:
            with _translated():
                return pending.add(change)
        except AlreadyPending as other:
            text = f"Node {change.node_id}: {other} waits for the lock already. Withdraw that first."
            raise ApiProblem(HTTPStatus.CONFLICT, text) from None
        except TooManyPending:
            text = f"{MOST_PENDING} changes wait for locks already."
            raise ApiProblem(HTTPStatus.TOO_MANY_REQUESTS, text) from None
        except GivenUp as error:
            raise ApiProblem(HTTPStatus.CONFLICT, f"Node {change.node_id}: {error}.") from None

    def _change_now(self, node_id: str, change: Callable[[Node], None], wish: Wish, seconds: float) -> None:
        """Raises NodeIsLocked after so many seconds."""
        with _translated():
            node = self._zk.getNode(node_id)
            if node is None:
                raise _no_node(node_id)
            try:
                zookeeper.take(self._zk, node, seconds, f"{COMMAND}{wish.operator}")
                try:
                    change(node)
                    self._zk.storeNode(node)
                finally:
                    zookeeper.give_back(self._zk, node)
            except ZKLockException:
                owner = LockOwners(self._zk.client).of_node(node_id) or "somebody"
                raise NodeIsLocked(f"Node {node_id} is {node.state}, and {owner} has its lock.") from None
            except ZKConflict:
                if self._zk.getNode(node_id) is None:
                    raise _no_node(node_id) from None
                raise ApiProblem(HTTPStatus.CONFLICT, f"Node {node_id} was changed at the same time.") from None

    # -- maintenance --

    def begin(self, kind: str, name: str, mode: str, wish: Wish, seen: Observed) -> Maintenance:
        """As ``nodepool pause``, ``drain`` and ``quarantine``; returns the record.

        :param seen: tells which names there are.
        """
        allowed = [one.value for one in MODES.get(kind, ())]
        if mode not in allowed:
            raise ApiProblem(HTTPStatus.BAD_REQUEST, f"mode of a {kind} must be one of: {', '.join(allowed)}.")
        try:
            subject = find(name, [kind], {kind: known_names(kind, seen)})
        except UnclearSubject as unclear:
            raise ApiProblem(HTTPStatus.NOT_FOUND, f"{unclear}.") from None
        record = Maintenance(kind, subject.name, Mode(mode), wish.reason, wish.operator, self._now(), wish.until)
        with _translated():
            self._maintenance.put(record)
        self._done(wish, f"{kind} {record.name}", mode)
        return record

    def end(self, kind: str, name: str, wish: Wish) -> None:
        """As ``nodepool resume`` and ``release``."""
        with _translated():
            removed = self._maintenance.remove(kind, name)
        if not removed:
            raise ApiProblem(HTTPStatus.NOT_FOUND, f"{kind} {name} is neither paused nor drained nor quarantined.")
        self._done(wish, f"{kind} {name}", "back in service")

    # -- images --

    def build(self, image: str, wish: Wish) -> None:
        """As ``nodepool image-build``."""
        with _translated():
            self._zk.images.request_build(image)
        self._done(wish, f"image {image}", "build")

    def set_paused(self, image: str, paused: bool, wish: Wish) -> None:
        """As ``nodepool image-pause`` and ``image-unpause``."""
        with _translated():
            self._zk.images.set_paused(image, paused)
        self._done(wish, f"image {image}", "pause" if paused else "unpause")

    def _done(self, wish: Wish, subject: str, what: str) -> None:
        log.info("%s: %s by %s: %s", subject, what, wish.operator, wish.reason)


def known_names(kind: str, seen: Observed) -> set[str]:
    """Names of providers, pools, labels, hosts or launchers that running launchers know."""
    if kind == "host":
        full = {host.name for status in seen.statuses for host in status.hosts}
        return full | {name.rpartition("@")[2].rpartition(":")[0] for name in full}
    if kind == "label":
        return set(seen.labels)
    pools = seen.pools.values()
    if kind == "launcher":
        return {pool.host for pool in pools}
    return {pool.provider if kind == "provider" else pool.name for pool in pools}


def _no_node(node_id: str) -> ApiProblem:
    return ApiProblem(HTTPStatus.NOT_FOUND, f"There is no node {node_id}.")


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Inside, a connection that is away is a ApiProblem."""
    try:
        yield
    except ZKConnectionError as error:
        raise ApiProblem(HTTPStatus.SERVICE_UNAVAILABLE, f"ZooKeeper cannot be reached: {error}. Try again.") from None


# `PendingChanges`: changes of nodes that wait until the lock of the node is free (``when_free``).
#
# A change stands in the queue of the lock, as any contender for it does, so that it comes before all that ask later: a
# node whose job ends is held before the launcher deletes it. No thread waits for it. The place in the queue belongs to
# the session of the daemon: after another session the change goes to the end of the queue, and it ends with the daemon.


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
        nodes: LockedRecordCache[Node],
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


# `Access`: who may log in, and what operators may do. Made from ``webapp.auth``.


@dataclass(frozen=True)
class Access:
    """Of a site with ``webapp.auth.authenticators``.

    :param require_login: nobody sees anything who has not logged in.
    :param origins: addresses of the pages as browsers see them, beside that of the request.
    :param pending: changes that wait for the lock of a node.
    :param browser_logins: providers at which a browser can log in, by the names of their authenticators.
    """

    tokens: Tokens
    actions: Actions
    require_login: bool = False
    origins: Sequence[str] = ()
    pending: PendingChanges | None = None
    browser_logins: Mapping[str, BrowserLogin] = field(default_factory=dict)
