# SPDX-License-Identifier: Apache-2.0
"""Removal of what is not needed any more: released nodes at once, all else in sweeps (rules X, C).

`DeletedNodeWorker` is woken by every change of a node, unless it is being deleted, and by every request that ends. A
static host that needs no check is put back in the same write that removes its used node; other nodes are locked, marked
`deleting` and given to their provider. The writes of many nodes are sent together, and nodes that are released shortly
after others wait a moment for more. A deletion that fails is tried again with a growing delay. After it comes
`CleanupWorker` with the periodic sweeps.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from nodepool import log_names
from nodepool.clock import monotonic, wall_time
from nodepool.driver import gateway
from nodepool.driver.framework.handler_hooks import node_logger
from nodepool.driver.interface import CleanupTask, Provider
from nodepool.exceptions import ZKConflict, ZKConnectionError, ZKException, ZKLockException
from nodepool.guard import Guard
from nodepool.launcher.pool.intake import START_SECONDS
from nodepool.launcher.pool.view import Launcher
from nodepool.model import states
from nodepool.model.event import What, grouped
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.plan import launch as plan
from nodepool.plan.launch import RESUME_SECONDS
from nodepool.plan.retries import Backoff, SeenTwice
from nodepool.plan.triage import RequestKind, declined_state
from nodepool.runtime.worker import Part, Worker
from nodepool.zk import paths, transactions
from nodepool.zk.connection import Reply
from nodepool.zk.nodes import NodepoolCache
from nodepool.zk.transactions import TransactionFailed, result

#: A look at all nodes at least this often, in case an event was missed.
IDLE_SECONDS: Final = 30.0
#: Seconds without success after which a deletion is given up and started again (X-5).
DELETE_TIMEOUT_SECONDS: Final = 600.0
#: From a deletion that failed to the next attempt.
RETRY: Final = Backoff(1.0, 60.0)
#: Until another look at what may be only half written.
LOOK_AGAIN_SECONDS: Final = 1.0
#: Between two looks whether deletions have ended: there may be hundreds, and each one that begins is a pass.
CHECK_SECONDS: Final = 1.0
#: From a pass that had nodes to look at to the next one: nodes that are released meanwhile are seen to together.
GATHER_SECONDS: Final = 0.1
#: Writes that are sent before the first answer is seen to: what comes first need not wait for hundreds.
SENT_TOGETHER: Final = 50


class _Deletion(NamedTuple):
    """A deletion that a provider has begun."""

    node: Node
    task: CleanupTask
    started: float


class _Sent(NamedTuple):
    """A write that was sent.

    :param finish: to be called when there is an answer.
    """

    node: Node
    reply: Reply
    finish: Callable[[], None]


def is_for_deletion(cache: NodepoolCache, node_id: str) -> bool:
    """Must the deletion worker look at a node?"""
    node = cache.nodes.get(node_id)
    if node is None or cache.nodes.is_locked(node_id):
        return cache.nodes.is_empty(node_id)
    return not isinstance(plan.judge_unlocked(node, cache.requests.get), plan.Keep)


def listen(cache: NodepoolCache, worker: Part[DeletedNodeWorker]) -> None:
    """Have the worker look at nodes when they are for it. It hears of them in the thread of the cache."""

    def changed(node_id: str) -> None:
        if not node_id or is_for_deletion(cache, node_id):
            worker.current.node_changed(node_id)

    cache.nodes.add_listener(changed)


class DeletedNodeWorker(Worker):
    """One thread per launcher. The deletions themselves run in threads of the providers."""

    def __init__(self, launcher: Launcher) -> None:
        log = logging.getLogger(log_names.DELETED_NODE_WORKER)
        super().__init__("DeletedNodeWorker", launcher.zk.client, log, IDLE_SECONDS)
        self._zk, self._cache, self._providers = launcher.zk, launcher.cache, launcher.providers
        self._events = launcher.events
        #: Left by the cache thread; deque operations are atomic.
        self._changed: deque[str] = deque()
        self._gone_requests: deque[str] = deque()
        #: Requests whose lock directory is there although no one holds it: removed with the request.
        self.lingering_lock_dirs: set[str] = set()
        self._deletions: dict[str, _Deletion] = {}
        #: node id -> failed attempts
        self._attempts: dict[str, int] = {}
        #: node id -> when to look at it again; until then nothing is done about it.
        self._due: dict[str, float] = {}
        #: Nodes whose launch was interrupted -> since when another launch may go on with them.
        self._interrupted: dict[str, float] = {}
        #: Providers that stated that their cloud does not answer.
        self._not_answering: set[str] = set()
        #: Nodes without data that were seen once.
        self._empty: set[str] = set()
        self._next_full = 0.0
        self._next_pass = 0.0
        #: Is no one to be woken for a node that is released? The next pass comes soon, and sees it.
        self._gathering = False
        self._next_check = 0.0

    # -- other threads --

    def node_changed(self, node_id: str) -> None:
        """A node changed; '' = any may have."""
        if node_id in self._deletions:
            # Its lock is released with its record. Whether it has ended `_check_deletions` sees.
            return
        # Noted first: who gathers takes it, or is woken.
        self._changed.append(node_id)
        if not self._gathering or self._goes_back(node_id):
            self.wake()

    def request_gone(self, request_id: str, node_ids: Iterable[str]) -> None:
        """A request was deleted: ready nodes may still be allocated to it.

        :param node_ids: of its nodes.
        """
        self._changed.extend(node_ids)
        if request_id in self.lingering_lock_dirs:
            self._gone_requests.append(request_id)
        if (self._changed or self._gone_requests) and not self._gathering:
            self.wake()

    def _goes_back(self, node_id: str) -> bool:
        """Is it a node whose host can be used again at once?"""
        node = self._cache.nodes.get(node_id)
        provider = None if node is None else self._providers.get(node.provider)
        return provider is not None and not provider.LAUNCHES

    # -- the pass --

    def _pass(self) -> float | None:
        self._gather()
        return super()._pass()

    def _gather(self) -> None:
        """Wait for further nodes if others were seen to just now. A host that goes back waits for nothing."""
        self._gathering = True
        try:
            left = self._next_pass - monotonic()
            if left > 0 and not self.stopping and not any(self._goes_back(node_id) for node_id in list(self._changed)):
                # Ended by a host that goes back, and by the end of the launcher.
                self._event.wait(left)
                self._event.clear()
        finally:
            self._gathering = False

    def run_once(self) -> float | None:
        if not self._cache.ready:
            return 1.0
        now = monotonic()
        self._check_deletions(now)
        self._check_answering(now)
        pending: list[_Sent] = []
        try:
            candidates = self._candidates(now)
            if candidates:
                self._next_pass = now + GATHER_SECONDS
            for node_id in candidates:
                self._consider(node_id, now, pending)
                if len(pending) >= SENT_TOGETHER:
                    self._finish(pending, now)
        finally:
            # Whatever ended this: a node that is locked must not stay so.
            self._finish(pending, now)
        if self._changed or self._gone_requests:
            return 0.0
        waits = [when - now for when in self._due.values()]
        if self._deletions or (self._due and self._not_answering):
            waits.append(self._next_check - now)
        return min(waits, default=None)

    def _finish(self, pending: list[_Sent], now: float) -> None:
        """See to the answers of what was sent, and empty the list. Raises ZKConnectionError after all of them."""
        if pending:
            # Answers come in order: to wait for each would wake this thread as often.
            pending[-1].reply.wait()
        lost: ZKConnectionError | None = None
        while pending:
            sent = pending.pop(0)
            try:
                self._guarded(sent.node, now, sent.finish)
            except ZKConnectionError as error:
                lost = error
        if lost is not None:
            raise lost

    def _guarded(self, node: Node, now: float, work: Callable[[], None]) -> None:
        """Whatever a driver raises, the other nodes are deleted, and this one is tried again."""
        log = node_logger(self.log, node)
        with Guard(log, "Deletion could not be started", but=ZKConnectionError) as guard:
            try:
                work()
            except ZKConflict as conflict:
                # Someone locked or changed it meanwhile; that comes as an event.
                log.debug("Not deleted now: %s", conflict)
        if guard.error is not None:
            self._retry_later(node.key, now, guard.error)

    def _candidates(self, now: float) -> list[str]:
        nodes = self._cache.nodes
        # Such a node may be the one that changed.
        self._tell_lost()
        found: dict[str, None] = {}
        while self._changed:
            found[self._changed.popleft()] = None
        if "" in found or now >= self._next_full:
            self._next_full = now + IDLE_SECONDS
            found = dict.fromkeys([*nodes.ids(), *nodes.empty_ids()])
            self._attempts = {node_id: count for node_id, count in self._attempts.items() if node_id in found}
            self._interrupted = {node_id: since for node_id, since in self._interrupted.items() if node_id in found}
        for node_id in [node_id for node_id, when in self._due.items() if when <= now]:
            # Whatever becomes of it now: a look that leads to nothing must not be due for ever.
            del self._due[node_id]
            found[node_id] = None
        while self._gone_requests:
            request_id = self._gone_requests.popleft()
            self.lingering_lock_dirs.discard(request_id)
            self._zk.requests.remove_lock_dir(request_id)
        return list(found)

    def _tell_lost(self) -> None:
        """Of nodes whose instances have ended, as their providers found out."""
        for provider in self._providers.running.values():
            for lost in gateway.lost_instances(provider):
                self._events.add(f"node {lost.node_id}", What.INSTANCE_LOST, lost.text, lost.code)

    def _consider(self, node_id: str, now: float, pending: list[_Sent]) -> None:
        nodes = self._cache.nodes
        cached = nodes.get(node_id)
        if cached is None and nodes.is_empty(node_id):
            self._consider_empty(node_id, now)
        else:
            self._empty.discard(node_id)
        if cached is None or not nodes.is_left(node_id):
            # If it was released just now, with changes, the node as it is comes with the answer: we hear of it again.
            self._interrupted.pop(node_id, None)
            return
        if node_id in self._deletions or (node_id in self._due and node_id not in self._interrupted):
            return
        self._guarded(cached, now, partial(self._act, cached, pending))

    def _act(self, cached: Node, pending: list[_Sent]) -> None:
        log = node_logger(self.log, cached)
        action = plan.judge_unlocked(cached, self._request)
        if isinstance(action, plan.Deallocate):
            node = cached.copy()
            node.free()
            self._zk.nodes.save_unlocked(node)
            log.info("Unallocated ready node: %s", action.reason)
        elif isinstance(action, plan.Delete) and not self._is_left_to_resume(cached):
            sent = self._send(cached.copy(), action.reason, log)
            if sent is not None:
                pending.append(sent)

    def _is_left_to_resume(self, node: Node) -> bool:
        """Does its pool, here or in another launcher, get the time to go on with its launch?"""
        provider = self._providers.get(node.provider)
        if node.state != states.BUILDING or provider is None or not gateway.can_resume(provider, node):
            return False
        request = None if node.allocated_to is None else self._request(node.allocated_to)
        if request is None or request.state not in plan.OPEN_REQUEST_STATES:
            return False
        now = monotonic()
        until = self._interrupted.setdefault(node.key, now) + RESUME_SECONDS
        if until > now:
            self._due[node.key] = until
        return until > now

    def _consider_empty(self, node_id: str, now: float) -> None:
        """C-8: a lock on a node that was just deleted leaves such a znode. It is removed a moment later.

        The process that has just made a node may be about to lock it.
        """
        if node_id in self._due:
            return
        if node_id not in self._empty:
            self._empty.add(node_id)
            self._due[node_id] = now + LOOK_AGAIN_SECONDS
            return
        self._empty.discard(node_id)
        if self._zk.nodes.remove_empty(node_id):
            self.log.info("Removed empty node %s", node_id)

    def _request(self, request_id: str) -> NodeRequest | None:
        """A request, from ZooKeeper when the cache has none: it may be behind the cache of nodes."""
        return self._cache.requests.get(request_id) or self._zk.requests.get(request_id)

    def _send(self, node: Node, reason: str, log: logging.LoggerAdapter[logging.Logger]) -> _Sent | None:
        """Begin what is to be done with a node that no one needs. Does not wait for ZooKeeper.

        :return: None = another launcher has its provider.
        """
        provider = self._providers.get(node.provider)
        if provider is None:
            if node.provider is not None and node.state != states.DELETED:
                return None
            log.info("Removing node without provider: %s", reason)
            return self._send_removal(node, None)
        if node.state == states.DELETED or (not node.external_id and node.state == states.INIT):
            return self._send_removal(node, None)
        replacement = gateway.replacement_for(provider, node) if node.state in (states.USED, states.IN_USE) else None
        if replacement is not None:
            return self._send_removal(node, replacement)
        if node.state != states.DELETING:
            node.state = states.DELETING
        store = self._zk.nodes
        reply = store.send_lock_and_save(node, store.has_lock_dir(node.key))
        return _Sent(node, reply, partial(self._start, node, provider, reason, log, reply))

    def _send_removal(self, node: Node, replacement: Node | None) -> _Sent:
        store = self._zk.nodes
        reply = store.send_remove_unlocked(node, store.has_lock_dir(node.key), replacement)
        return _Sent(node, reply, partial(self._finish_replacement, node, replacement, reply))

    def _finish_replacement(self, node: Node, replacement: Node | None, reply: Reply) -> None:
        log = node_logger(self.log, node)
        try:
            result(reply)
        except ZKConnectionError:
            raise
        except ZKException as problem:
            log.debug("Not deleted now: %s", problem)
            # Changed or locked by someone: that comes as an event. The lock directory alone is no event.
            if isinstance(problem, TransactionFailed) and problem.lock_dir_mismatch:
                self._due[node.key] = monotonic() + LOOK_AGAIN_SECONDS
            return
        host = node.hostname or node.external_id
        if replacement is not None and replacement.state == states.HOLD:
            log.info("Returned %s, on hold as node %s: %s", host, replacement.id, replacement.comment)
        elif replacement is not None:
            log.info("Returned %s, registered again as node %s", host, replacement.id)
        if replacement is not None:
            return
        log.info("Removed node of provider %s", node.provider)
        provider = self._providers.get(node.provider)
        if provider is not None:
            gateway.node_deleted_notification(provider, node)

    def _start(
        self, node: Node, provider: Provider, reason: str, log: logging.LoggerAdapter[logging.Logger], locked: Reply
    ) -> None:
        """Hand a node over that was locked and marked (X-2, X-3); the lock is given back if that fails (X-7).

        :param locked: the answer to that write.
        """
        zk = self._zk
        try:
            result(locked)
        except TransactionFailed as failure:
            if not failure.lock_dir_mismatch:
                raise
            # The cache did not know yet whether there is a lock directory.
            zk.nodes.lock_and_save(node)
        self._interrupted.pop(node.key, None)
        if provider.LAUNCHES:
            log.info("Deleting node of provider %s: %s", node.provider, reason)
        else:
            log.info("Removing the record of a static node of provider %s, its host stays: %s", node.provider, reason)
        try:
            task = gateway.start_node_cleanup(provider, node)
        except Exception as error:
            # Whatever a driver raises, the node must not stay locked.
            zk.unlockNode(node)
            if self._providers.get(node.provider) is not provider:
                # The unlocked node comes again, with the next provider if there is one.
                log.info("The provider was replaced meanwhile: %s", error)
                return
            raise
        self._deletions[node.key] = _Deletion(node, task, monotonic())

    def _check_deletions(self, now: float) -> None:
        """Look after deletions that ended or take too long."""
        if now < self._next_check:
            return
        self._next_check = now + CHECK_SECONDS
        nodes = self._cache.nodes
        for node_id, deletion in list(self._deletions.items()):
            # As far as a driver says: what waits for our own limits says nothing of the cloud.
            held = getattr(deletion.task, "held", None)
            seconds = now - deletion.started - (0.0 if held is None else held.seconds)
            if deletion.task.is_alive() and seconds < DELETE_TIMEOUT_SECONDS:
                continue
            del self._deletions[node_id]
            # Not all drivers say why.
            error: object = getattr(deletion.task, "error", None)
            if deletion.task.is_alive():
                error = f"it was not deleted within {DELETE_TIMEOUT_SECONDS:g} s"
                self.log.error("Node %s was not deleted within %g s, trying again", node_id, DELETE_TIMEOUT_SECONDS)
            self._unlock(deletion.node)
            if nodes.get(node_id) is None:
                self._attempts.pop(node_id, None)
            else:
                self._retry_later(node_id, now, error)

    def _check_answering(self, now: float) -> None:
        """A cloud that answers again hears at once what to delete: that takes up quota, and the pauses grew long."""
        providers = self._providers.running
        before = self._not_answering
        self._not_answering = {name for name, provider in providers.items() if gateway.paused_reason(provider)}
        back = before - self._not_answering
        for node_id in self._due if back else ():
            node = self._cache.nodes.get(node_id)
            if node is not None and node.provider in back:
                self._due[node_id] = now
                self._attempts.pop(node_id, None)

    def _unlock(self, node: Node) -> None:
        """A deletion that ended without success should have done this, one that hangs has not (X-5)."""
        try:
            if node.lock is not None:
                self._zk.unlockNode(node)
        except (ZKConflict, ZKLockException) as error:
            self.log.warning("Unlocking node %s: %s", node.id, error)

    def _retry_later(self, node_id: str, now: float, error: object) -> None:
        """:param error: why it failed; None = not known."""
        attempts = self._attempts[node_id] = self._attempts.get(node_id, 0) + 1
        delay = RETRY.pause(attempts)
        self._due[node_id] = now + delay
        node = self._cache.nodes.get(node_id)
        log = self.log if node is None else node_logger(self.log, node)
        log.info("Node %s: deletion failed %d time(s), next try in %g s", node_id, attempts, delay)
        if attempts > 1 and attempts & (attempts - 1) == 0:
            # A deletion that fails once is no news; one that fails for ever must not push out what else happened.
            text = f"{attempts} times: {error or 'the log of the provider says why'}"
            self._events.add(f"node {node_id}", What.DELETION_FAILED, text)

    def on_stop(self) -> None:
        """Wait shortly for deletions that are nearly done; the others are found by those who come next."""
        deadline = monotonic() + 2.0
        for deletion in self._deletions.values():
            deletion.task.join(max(0.0, deadline - monotonic()))


# `CleanupWorker`: the periodic sweeps (rules C). `DeletedNodeWorker` deletes released nodes.

#: With another look ten seconds later, what no one knows is deleted within a minute.
SWEEP_SECONDS: Final = 40.0
#: A sweep this soon after a launcher went.
SOON_SECONDS: Final = 2.0
#: A look at lost requests this soon after that: who waits for them should not wait for it.
LOST_SECONDS: Final = 0.2
#: Later looks: a launcher that stops may keep its locks for some time after it has left the registry.
LATER_SECONDS: Final = (5.0, 10.0, 20.0)
#: Age of a request's lock directory after which it is removed with all that is in it (C-2).
LOCK_DIR_SECONDS: Final = 8 * 3600.0


class CleanupWorker(Worker):
    """One thread per launcher."""

    def __init__(self, launcher: Launcher) -> None:
        log = logging.getLogger(log_names.CLEANUP_WORKER)
        super().__init__("CleanupWorker", launcher.zk.client, log, SWEEP_SECONDS)
        self._launcher = launcher
        self._zk, self._cache, self._providers = launcher.zk, launcher.cache, launcher.providers
        self._pools, self._config = launcher.pools, launcher.config
        self._due = 0.0
        self._lost_due = math.inf
        #: When else to look at lost requests.
        self._later: list[float] = []
        #: What other threads ask for: times of a sweep, of a look at lost requests, and of more such looks in place of
        #: those of before. The times above are changed by this thread only, so that none is lost.
        self._asked: deque[tuple[float, float, list[float]]] = deque()
        self._begun = monotonic()
        #: Each provider that still looks for leaks, with its thread.
        self._leaks: list[tuple[Provider, threading.Thread]] = []
        #: Requests whose launches another launcher may go on with -> since when.
        self._interrupted: dict[str | None, float] = {}
        #: Nodes that seem to be lost, as they are: id and version.
        self._orphans: SeenTwice[tuple[str, int | None]] = SeenTwice(SOON_SECONDS)
        #: When to look at these again. Of a burst of new nodes some always seem to be lost, and a sweep costs more.
        self._orphans_due = math.inf

    def launcher_went(self) -> None:
        """A launcher left the registry. Any thread."""
        self._ask(SOON_SECONDS, LATER_SECONDS)

    def sweep_soon(self) -> None:
        """Look for what a launcher that has ended has left. Any thread."""
        self._ask(SOON_SECONDS)

    def reset_soon(self) -> None:
        """The locks of a launcher are lost: any launcher may take the requests that it worked on. Any thread."""
        self._ask()

    def _ask(self, sweep_seconds: float = math.inf, later_seconds: Sequence[float] = ()) -> None:
        now = monotonic()
        self._asked.append((now + sweep_seconds, now + LOST_SECONDS, [now + each for each in later_seconds]))
        self.wake()

    def _take_asked(self) -> None:
        while self._asked:
            sweep_at, lost_at, later = self._asked.popleft()
            self._due = min(self._due, sweep_at)
            self._lost_due = min(self._lost_due, lost_at)
            self._later = later or self._later

    def run_once(self) -> float | None:
        now = monotonic()
        self._take_asked()
        if not self._cache.ready:
            return 1.0
        try:
            if now >= self._due:
                self._due = now + SWEEP_SECONDS
                self.sweep()
            elif now >= self._lost_due:
                self._perform(self.reset_lost_requests)
            elif now >= self._orphans_due:
                self._perform(self.free_orphans)
        except ZKConnectionError:
            self.sweep_soon()
            raise
        self._take_asked()
        return min(self._due, self._lost_due, self._orphans_due) - monotonic()

    def sweep(self) -> None:
        """All tasks once; one that fails does not stop the others (C-1)."""
        for task in (
            self.reset_lost_requests,
            self.free_orphans,
            self.fail_refused_requests,
            self.remove_lock_dirs,
            self.expire_nodes,
            self.clean_leaks,
        ):
            if self.stopping:
                return
            self._perform(task)

    def _perform(self, task: Callable[[], None]) -> None:
        # Of one task, and the others have their turn all the same.
        with Guard(self.log, "Error in cleanup task %s", task.__name__, but=ZKConnectionError):
            task()

    def reset_lost_requests(self) -> None:
        """C-4: requests that are `pending` while no one holds them go back to `requested`."""
        now = monotonic()
        self._later = [at for at in self._later if at > now]
        self._lost_due = min(self._later, default=math.inf)
        own = {handler.request.key for pool in self._launcher.all_pools() for handler in pool.desk.handlers()}
        requests = self._cache.requests.values()
        lost = {one.id: one for one in requests if one.state == states.PENDING and one.id not in own}
        nodes, is_locked = self._cache.nodes.values() if lost else (), self._cache.nodes.is_locked
        theirs = grouped((node for node in nodes if node.allocated_to in lost), lambda node: node.allocated_to)
        registered = {pool.id for pool in self._pools.registered()} if lost else set()
        before, self._interrupted = self._interrupted, {}
        due: list[NodeRequest] = []
        for request in lost.values():
            mine = theirs.get(request.id, [])
            launched = [node for node in mine if node.state == states.BUILDING and self._is_resumed(node)]
            if launched and all(is_locked(node.key) and node.launcher in registered for node in launched):
                # Their launcher works on them.
                continue
            if launched:
                since = self._interrupted[request.id] = before.get(request.id, now)
                if now - since < RESUME_SECONDS:
                    self._lost_due = min(self._lost_due, now + SOON_SECONDS)
                    continue
            due.append(request)
        # Not before all are known that were interrupted: a reset may fail.
        for request in due:
            mine = theirs.get(request.id, [])
            free = [node.copy() for node in mine if node.state != states.BUILDING and not is_locked(node.key)]
            self._reset(request.copy(), free)

    def _is_resumed(self, node: Node) -> bool:
        """Is there a pool that goes on with the launch of a node whose launcher ended, as far as known?"""
        provider = self._providers.get(node.provider)
        if provider is not None or node.provider in self._config().providers:
            return provider is None or provider.RESUMES
        place = (node.provider, node.pool)
        return any((pool.provider_name, pool.name) == place for pool in self._pools.registered())

    def _reset(self, request: NodeRequest, nodes: list[Node]) -> None:
        plan.reset_lost_request(request, nodes)
        try:
            self._zk.requests.save_unlocked(request, nodes)
        except ZKConflict as conflict:
            # The usual case: another launcher holds it and works on it.
            self.log.debug("Request %s is not lost: %s", request.id, conflict)
            if isinstance(conflict, TransactionFailed) and conflict.path.startswith(f"{paths.NODES}/"):
                # One of its nodes is being deleted just now.
                self.reset_soon()
            return
        self.log.info("Reset lost request %s; freed nodes %s", request.id, [node.id for node in nodes])

    def free_orphans(self) -> None:
        """Nodes that a lost launcher had gathered for a request that someone serves anew: no one else knows them."""
        nodes, requests, now = self._cache.nodes, self._cache.requests, monotonic()
        # A new node is about to be locked; and launchers of old releases unlock nodes a moment too early.
        seem = {
            (node.key, node.version): node
            for node in nodes.values()
            if node.allocated_to not in self._interrupted
            and plan.is_orphan(node, requests.get)
            and not nodes.is_locked(node.key)
        }
        certain = self._orphans.look(seem, now)
        self._orphans_due = now + SOON_SECONDS if len(seem) > len(certain) else math.inf
        for key in certain:
            self._free_orphan(seem[key].copy(), self._orphans.seen_for(key, now))

    def _free_orphan(self, node: Node, unchanged_seconds: float) -> None:
        zk, request_id = self._zk, node.allocated_to or ""
        request = zk.requests.get(request_id)
        if request is None or not plan.is_orphan(node, lambda _: request):
            return
        held_since = transactions.held_since(zk.client, paths.request_lock(request_id))
        stored = zk.nodes.get(node.key)
        if stored is None or plan.is_of_holder(stored.mzxid, held_since, unchanged_seconds):
            self.log.debug(
                "Node %s is not lost: the process that serves request %s has written it", node.id, request_id
            )
            return
        if node.state == states.INIT:
            node.state = states.DELETING
        node.free()
        tx = zk.nodes.transaction()
        # Else it might be fulfilled with this node just now.
        tx.check(paths.request(request_id), -1 if request.version is None else request.version)
        zk.nodes.add_unlocked_write(tx, node, zk.nodes.has_lock_dir(node.key))
        try:
            tx.commit()
            self.log.info("Freed node %s: request %s is served without it", node.id, request_id)
        except ZKConflict as conflict:
            self.log.debug("Node %s is not lost: %s", node.id, conflict)

    def fail_refused_requests(self) -> None:
        """A-15: a request that all pools have declined fails, too, when the last one that had not went for good."""
        registered = [pool.id for pool in self._pools.registered()]
        if not registered or monotonic() - self._begun <= START_SECONDS:
            # The pools of launchers that began together with us, and our own, may be on their way.
            return
        absent = self._pools.absent()
        for cached in self._cache.requests.values():
            if cached.state != states.REQUESTED or not cached.declined_by:
                continue
            request = cached.copy()
            request.state = declined_state(RequestKind.of(request), registered, absent)
            if request.state != states.FAILED:
                continue
            try:
                self._zk.requests.save_unlocked(request)
                self.log.info("Failing node request %s: every pool that still runs declined it", request.id)
            except ZKConflict as conflict:
                self.log.debug("Request %s does not fail: %s", request.id, conflict)

    def remove_lock_dirs(self) -> None:
        """C-2, and at once where no one is in the directory: it does not outlive its request."""
        requests = self._zk.requests
        for request_id in requests.lock_dir_ids():
            if self._cache.requests.get(request_id) is not None:
                continue
            # The cache may be a moment behind.
            if requests.get(request_id) is not None or requests.remove_lock_dir(request_id):
                continue
            age = requests.lock_dir_age(request_id)
            if age is not None and age > LOCK_DIR_SECONDS:
                self.log.info("Removing the lock directory of request %s, which does not exist any more", request_id)
                requests.remove_lock_dir_recursive(request_id)

    def expire_nodes(self) -> None:
        """C-5, C-6: ready nodes and held nodes that are too old, of our providers only (C-7)."""
        config = self._config()
        nodes = self._cache.nodes

        def max_ready_age(label: str) -> float:
            found = config.labels.get(label)
            return 0 if found is None else found.max_ready_age

        for node in nodes.values():
            if node.provider not in config.providers or nodes.is_locked(node.key):
                continue
            action = plan.judge_age(node, wall_time(), max_ready_age, config.max_hold_age)
            if not isinstance(action, plan.Delete):
                continue
            expired = node.copy()
            expired.state = states.DELETING
            try:
                self._zk.nodes.save_unlocked(expired)
                self.log.info("Node %s is deleted: %s", node.id, action.reason)
            except ZKConflict as conflict:
                self.log.debug("Node %s stays for now: %s", node.id, conflict)

    def clean_leaks(self) -> None:
        """C-3: every provider looks for what no one knows, except those that still do. Does not block.

        One thread per provider: a cloud that does not answer delays neither the other sweeps nor other providers.
        """
        self._leaks = [(provider, thread) for provider, thread in self._leaks if thread.is_alive()]
        busy = {id(provider) for provider, _ in self._leaks}
        for name, provider in self._providers.running.items():
            if id(provider) in busy:
                self.log.warning("Provider %s still looks for leaked resources", name)
                continue
            clean = gateway.cleanup_leaked_resources
            thread = threading.Thread(target=clean, args=(provider,), name=f"Leaks-{name}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                # The system has no more threads just now.
                self.log.error("Provider %s: leaked resources are looked for in the next sweep: %s", name, error)
                continue
            self._leaks.append((provider, thread))

    def on_stop(self) -> None:
        """Wait shortly for providers that look for leaks."""
        deadline = monotonic() + 2.0
        for _, thread in self._leaks:
            thread.join(max(0.0, deadline - monotonic()))
