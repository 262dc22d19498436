# SPDX-License-Identifier: Apache-2.0
"""`PoolWorker`: the thread that serves node requests for one pool of one provider (rules A).

A pass takes what changed since the last one, polls the handlers, lets `plan.triage` judge what waits, and applies that:
at once where ready nodes are there (`fulfil`), else through a handler (`batch`). Everything here belongs to the thread.
Others only leave ids of what changed and wake it. `pool_parts` makes the parts.
"""

from __future__ import annotations

import logging
import socket
import threading
import uuid
from typing import TYPE_CHECKING, Final

from nodepool import log_names
from nodepool.launcher.pool.entry import SIBLINGS_LOOK_SECONDS
from nodepool.launcher.pool.handlers import POLL_SECONDS
from nodepool.launcher.pool.pass_context import PassContext
from nodepool.launcher.pool.pool_parts import PoolParts
from nodepool.runtime.worker import Worker

if TYPE_CHECKING:
    from nodepool.driver.handler import NodeRequestHandler
    from nodepool.launcher.pool.context import PoolContext
    from nodepool.model.node import Node
    from nodepool.model.reasons import Reason

#: A pass at least this often when nothing happens.
IDLE_SECONDS: Final = 30.0


class PoolWorker(Worker):
    """One thread per pool of a provider.

    :param launcher: what it uses of its launcher.
    """

    def __init__(self, launcher: PoolContext, provider_name: str, pool_name: str) -> None:
        self.provider_name = provider_name
        self.pool_name = pool_name
        log = logging.getLogger(log_names.pool_worker(provider_name, pool_name))
        super().__init__(f"PoolWorker.{provider_name}-{pool_name}", launcher.zk.client, log, IDLE_SECONDS)
        self.launcher_id = f"{socket.getfqdn()}-{self.name}-{uuid.uuid4().hex}"
        self._launcher = launcher
        self._retiring = threading.Event()
        self._launches = 0
        #: Has the pool nothing to do, and nothing that waits? Not while a pass runs.
        self._at_rest = False
        self._epoch = -1
        self.context = PassContext(launcher, provider_name, pool_name, self.launcher_id)
        parts = PoolParts(launcher, self.context, self.wake, self.request_changed, self.node_changed, log)
        self.queue, self.desk, self.entry = parts.queue, parts.desk, parts.entry
        self.free_nodes, self.fast_path, self.intake = parts.free_nodes, parts.fast_path, parts.intake
        self.view, self.status = parts.view, parts.status
        self._handlers, self._changes, self._waiting_lines = parts.handlers, parts.changes, parts.waiting_lines

    # -- other threads --

    @property
    def labels(self) -> frozenset[str]:
        """Labels of the pool."""
        return self.entry.labels

    @property
    def handlers(self) -> list[NodeRequestHandler]:
        """Handlers of the requests that this pool holds locked."""
        return self.desk.handlers()

    @property
    def place(self) -> str:
        """Of this pool, such as ``cloud-1/main``."""
        return self.context.place

    @property
    def drained(self) -> bool:
        """Does it take nothing new, for maintenance, and has it finished what it began?"""
        # The order counts: a pass that sees the record takes nothing any more.
        return self.context.hold is not None and not self.handlers and not self.fast_path.busy

    def own_launches(self) -> int:
        """Launches in progress in this pool."""
        return self._handlers.launches()

    def fulfils(self, request_id: str) -> bool:
        """Is this pool about to fulfil a request with ready nodes?"""
        return self.desk.on_fast_path(request_id)

    def declined(self, request_id: str) -> Reason | None:
        """Why this pool declined a request; None = it did not, or that is long ago."""
        told = self.desk.explanations.of_declined(request_id)
        return None if told is None else told.reason

    def request_changed(self, request_id: str, *, wake: bool = True) -> None:
        """A request changed; '' = any may have.

        :param wake: False = it can wait until the next pass.
        """
        self._changes.request(request_id)
        if wake:
            self.wake()

    def node_changed(self, node_id: str, *, wake: bool = True) -> None:
        """As `request_changed`, for a node of this pool."""
        self._changes.node(node_id)
        if wake:
            self.wake()

    def node_gone(self, node_id: str) -> None:
        """A node of this pool went, which makes room for what waits."""
        # Noted first: a pass that begins meanwhile either sees it, or is seen to run.
        self._changes.node(node_id)
        if not self._at_rest:
            self.wake()

    def launches(self, node: Node) -> bool:
        """Does a launch of this pool run for a node, that asks for a pass when it has ended? Any thread."""
        handler = None if node.allocated_to is None else self.desk.handler(node.allocated_to)
        return handler is not None and handler.tells_end_of(node.key)

    def retire(self) -> None:
        """The pool is not configured any more: take nothing new, finish what runs, then end. Does not block."""
        self._retiring.set()
        self.wake()

    # -- the pass --

    def _guarded_pass(self) -> float:
        wait = super()._guarded_pass()
        self._launcher.passed(self.launcher_id)
        return wait

    def run_once(self) -> float | None:
        self._at_rest = False
        if not self._launcher.cache.ready:
            self._launcher.cache.wait_ready(5.0)
            if not self._launcher.cache.ready:
                return 1.0
        self._check_session()
        if self._retiring.is_set():
            return self._wind_down()
        if not self.context.refresh():
            return 1.0
        self._update_entry()
        self._changes.take()
        if not self.entry.sees_all(pool.launcher_id for pool in self._launcher.siblings()):
            return SIBLINGS_LOOK_SECONDS
        self._handlers.poll()
        if self.context.hold is not None or self.context.held_labels:
            self._handlers.give_back_held(self.context.held)
        self._handlers.run_unfinished()
        self.view.begin_pass(self.labels, self.entry.priority)
        more = self.intake.serve()
        self.fast_path.collect()
        self._waiting_lines.tell()
        self._update_entry()
        self._wake_siblings()
        if more:
            return 0.0
        looks = (
            self.desk.next_look(),
            self.free_nodes.next_look(),
            self._waiting_lines.next_look(),
            self._handlers.next_look(held=self.context.hold is not None or bool(self.context.held_labels)),
        )
        waits = [wait for wait in looks if wait is not None]
        self._at_rest = not (waits or self.queue or self.fast_path.busy)
        return min(waits, default=None)

    def _update_entry(self) -> None:
        held = self.context.hold is not None or self.context.needs_held
        self.entry.update(paused=self.desk.paused or held)

    def _wind_down(self) -> float:
        """A pass of a pool that retires. Nobody else can finish what it holds locked (G-6, L-17)."""
        self._launcher.pools.gone_for_good(self.launcher_id)
        self.entry.remove()
        self.fast_path.collect()
        self._handlers.give_back_unfinished()
        self._handlers.poll()
        self._wake_siblings()
        if not self.handlers and not self.fast_path.busy:
            self.stop()
        return POLL_SECONDS

    def _check_session(self) -> None:
        """Locks of a lost session are gone, and with them the right to serve (A-19, L-9)."""
        epoch = self._client.session_epoch
        if epoch == self._epoch:
            return
        handlers = self.handlers
        if self._epoch != -1 and handlers:
            self.log.warning("ZooKeeper session lost: dropping %d requests in progress", len(handlers))
            self._handlers.release_all()
        self._epoch = epoch
        self.entry.new_session()
        self.request_changed("")
        self.node_changed("")

    def _wake_siblings(self) -> None:
        """Launches of this pool that ended leave room in ``max-concurrency`` for the other pools (A-10)."""
        if self.context.max_concurrency <= 0:
            return
        before, self._launches = self._launches, self.own_launches()
        if self._launches < before:
            for sibling in self._launcher.siblings_of(self.provider_name):
                sibling.wake()

    def on_stop(self) -> None:
        """Let others serve what is not finished, and unregister."""
        if not self._client.connected:
            return
        try:
            self._handlers.hand_over()
        finally:
            self.entry.remove()
