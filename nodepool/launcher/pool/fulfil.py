# SPDX-License-Identifier: Apache-2.0
"""The fast path, requests that ready nodes can serve at once: `requested` to `fulfilled` in a single transaction.

The nodes are reserved here first, so that no other request of this pool picks them; then the driver checks them
(static hosts: do they answer?), which may take time and holds up nobody; then one write does it all, fenced by
the versions of request and nodes and by all their locks (ADR 2). Many such writes are under way together.
"""

from __future__ import annotations

import concurrent.futures
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from nodepool.clock import monotonic
from nodepool.driver import gateway
from nodepool.driver.framework.nodeset import allocate
from nodepool.exceptions import ZKConflict, ZKConnectionError, ZKException, ZKTooLarge
from nodepool.launcher.pool import ended_requests
from nodepool.model import states
from nodepool.model.reasons import REQUEST_CHANGED, REQUEST_LOCKED, Reason
from nodepool.plan.request_stage import Stage
from nodepool.zk import paths
from nodepool.zk.transactions import TransactionFailed, result

if TYPE_CHECKING:
    import logging

    from nodepool.driver.handler import NodeRequestHandler
    from nodepool.launcher.pool.desk import Desk
    from nodepool.launcher.pool.nodes import FreeNodes
    from nodepool.launcher.pool.pass_context import PassContext
    from nodepool.model.node import Node
    from nodepool.model.request import NodeRequest
    from nodepool.zk.reply import Reply


class _Service:
    """One request on its way."""

    def __init__(self, handler: NodeRequestHandler, nodes: list[Node]) -> None:
        self.handler = handler
        self.nodes = nodes
        self.checks: list[concurrent.futures.Future[bool]] = []
        self.reply: Reply | None = None
        self.lock_dir_exists = False
        #: As it is being written.
        self.request: NodeRequest | None = None

    @property
    def checked(self) -> bool:
        return all(check.done() for check in self.checks)


class FastPath:
    """Owned by the pool worker's thread; a finished check only wakes it.

    :param wake: asks for a pass; any thread.
    :param request_changed: called with the id of a request that is to be judged again.
    """

    def __init__(
        self,
        pool: PassContext,
        desk: Desk,
        free: FreeNodes,
        wake: Callable[[], None],
        request_changed: Callable[[str], None],
        log: logging.Logger,
    ) -> None:
        self._pool = pool
        self._desk = desk
        self._free = free
        self._wake = wake
        self._request_changed = request_changed
        self.log = log
        self._services: dict[str, _Service] = {}
        #: Requests that met a conflict -> when.
        self._conflicts: dict[str, float] = {}
        #: Requests that are too large to be written together with their nodes.
        self._too_large: set[str] = set()

    @property
    def busy(self) -> bool:
        """Is any request on its way?"""
        return bool(self._services)

    def takes(self, request_id: str) -> bool:
        """Can a request be written together with its nodes, as far as known? Else its nodes are taken one by one."""
        return request_id not in self._too_large

    def start(self, handler: NodeRequestHandler, nodes: Sequence[Node]) -> None:
        """Reserve the nodes, begin their checks, and send the write as soon as all are good.

        :param handler: of a request that is neither locked nor changed.
        :param nodes: a free one for each position of ``request.node_types``.
        """
        request_id = handler.request.key
        service = _Service(handler, list(nodes))
        self._services[request_id] = service
        self._desk.open(handler, Stage.CHECKING)
        for node in service.nodes:
            self._free.reserve(node.key)
        for node in service.nodes:
            check = gateway.start_reusable_node_check(handler, node)
            service.checks.append(check)
            if not check.done():
                check.add_done_callback(lambda _: self._wake())
        if service.checked:
            self._send(request_id, service)

    def _send(self, request_id: str, service: _Service) -> None:
        refused = [n for n, check in zip(service.nodes, service.checks, strict=True) if not _good(check)]
        if refused:
            for node in refused:
                self._free.set_aside(node)
            self._abandon(request_id, service)
            return
        handler = service.handler
        request = handler.request.copy()
        nodes = [node.copy() for node in service.nodes]
        for node in nodes:
            allocate(node, handler.request)
        request.nodes = [node.key for node in nodes]
        request.state = states.FULFILLED
        zk = self._pool.zk
        self._desk.move(request_id, Stage.FULFILLING)
        service.request = request
        service.reply = zk.requests.send_unlocked(request, nodes, lock_dir_exists=service.lock_dir_exists)

    def collect(self) -> None:
        """Go on with what checks and ZooKeeper answered. Blocks for the answers that are under way."""
        for request_id, service in list(self._services.items()):
            if service.reply is None and service.checked:
                self._send(request_id, service)
        while waiting := [(i, s, s.reply) for i, s in self._services.items() if s.reply is not None]:
            # Answers come in order: to wait for each would wake this thread as often.
            waiting[-1][2].wait()
            for request_id, service, reply in waiting:
                self._finish(request_id, service, reply)

    def _finish(self, request_id: str, service: _Service, reply: Reply) -> None:
        service.reply = None
        try:
            result(reply)
        except ZKException as problem:
            self._failed(request_id, service, problem)
            return
        self._release(request_id, service, Stage.DONE)
        handler = service.handler
        self._conflicts.pop(request_id, None)
        if service.request is not None:
            ended_requests.note(service.request)
        for node in service.nodes:
            gateway.node_reused_notification(handler, node)
        handler.log.info("Fulfilled node request with ready nodes %s", ", ".join(n.key for n in service.nodes))

    def _failed(self, request_id: str, service: _Service, problem: ZKException) -> None:
        requests = self._pool.zk.requests
        if (
            not service.lock_dir_exists
            and isinstance(problem, TransactionFailed)
            and requests.lock_dir_was_there(service.handler.request, problem)
        ):
            # Left by somebody who had the lock before: the same again, with the directory.
            service.lock_dir_exists = True
            self._pool.launcher.lock_dir_lingers(request_id)
            self._send(request_id, service)
            return
        if isinstance(problem, ZKConflict):
            service.handler.log.debug("Not fulfilled at once: %s", problem)
            path = problem.path if isinstance(problem, TransactionFailed) else ""
            lock_held = path.startswith(f"{paths.REQUEST_LOCKS}/")
            again = self._conflicted_before(request_id)
            self._abandon(request_id, service, REQUEST_LOCKED if lock_held else REQUEST_CHANGED if again else None)
            return
        if isinstance(problem, ZKTooLarge):
            if len(self._too_large) > 10_000:
                self._too_large.clear()
            self._too_large.add(request_id)
            service.handler.log.debug("Not fulfilled at once: %s", problem)
            self._abandon(request_id, service)
            return
        # The answer was lost. What was written comes back through the cache.
        service.handler.log.warning("No answer whether the request was fulfilled: %s", problem)
        self._abandon(request_id, service)
        if isinstance(problem, ZKConnectionError):
            raise problem

    def _conflicted_before(self, request_id: str) -> bool:
        """Did a request meet a conflict just before this one? Then it waits: it may go on for a while."""
        now = monotonic()
        if len(self._conflicts) > 10_000:
            self._conflicts.clear()
        before = self._conflicts.get(request_id, -math.inf)
        self._conflicts[request_id] = now
        return now - before < 1.0

    def _abandon(self, request_id: str, service: _Service, deferred: Reason | None = None) -> None:
        """Let go of the nodes and of the request, which waits again.

        :param deferred: why it is not looked at again at once; None = it is.

        What conflicted has changed, and the cache has had its event. What it is reading now it will tell us of;
        taking the old record again would only fail again.
        """
        cache = self._pool.cache
        self._release(request_id, service, Stage.WAITING if deferred is None else None)
        for node in service.nodes:
            if not cache.nodes.is_reading(node.key):
                self._free.consider(node.key)
        if deferred is not None:
            self._desk.defer(request_id, deferred)
            # The nodes are for those behind it: in the pass in which its time has come, it is first again.
            self._wake()
        elif not cache.requests.is_reading(request_id):
            self._request_changed(request_id)

    def _release(self, request_id: str, service: _Service, stage: Stage | None) -> None:
        """Forget a request. :param stage: where it goes; None = the caller defers it."""
        del self._services[request_id]
        if stage is not None:
            self._desk.move(request_id, stage)
            self._desk.close(request_id)
        for node in service.nodes:
            self._free.release(node.key)


def _good(check: concurrent.futures.Future[bool]) -> bool:
    return not check.cancelled() and check.exception() is None and check.result()
