# SPDX-License-Identifier: Apache-2.0
"""`PoolWorker`: serves node requests for one pool of one provider (rules A).

A pass takes what changed since the last one into the queue of waiting requests and the set of ready nodes,
polls the handlers, and hands out: at once where ready nodes are there (`instant`), else through a handler
(`intake`). Everything here belongs to the worker's thread. Other threads only leave ids of what changed and wake it.
"""

from __future__ import annotations

import logging
import socket
import threading
import uuid
import zlib
from collections import deque
from typing import TYPE_CHECKING, Final

from nodepool.clock import monotonic
from nodepool.exceptions import ZKConflict, ZKConnectionError
from nodepool.launcher.pool import tenants
from nodepool.launcher.pool.entry import SIBLINGS_LOOK_SECONDS, PoolEntry
from nodepool.launcher.pool.eviction import Eviction
from nodepool.launcher.pool.fulfil import InstantService
from nodepool.launcher.pool.intake import GIVEN_BACK_SECONDS, Intake
from nodepool.launcher.pool.nodes import FreeNodes
from nodepool.model import states
from nodepool.plan.queue import RequestQueue
from nodepool.runtime.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nodepool.driver.config import ConfigPool, ProviderConfig
    from nodepool.driver.handler import NodeRequestHandler
    from nodepool.driver.interface import Provider
    from nodepool.launcher.pool.context import PoolContext
    from nodepool.model.node import Node
    from nodepool.model.quota import QuotaInformation
    from nodepool.model.request import NodeRequest
    from nodepool.plan.assignment import PoolInfo
    from nodepool.zk.zookeeper import ZooKeeper

#: A pass at least this often while launches are in progress, for drivers that do not call ``pw.wake()``.
POLL_SECONDS: Final = 1.0
#: A pass at least this often when nothing happens.
IDLE_SECONDS: Final = 30.0


class PoolWorker(Worker):
    """One thread a provider-pool.

    :param context: what it uses of its launcher.
    """

    def __init__(self, context: PoolContext, provider_name: str, pool_name: str) -> None:
        self._context = context
        self.provider_name = provider_name
        self.pool_name = pool_name
        log = logging.getLogger(f"nodepool.PoolWorker.{provider_name}-{pool_name}")
        super().__init__(f"PoolWorker.{provider_name}-{pool_name}", context.zk.client, log, IDLE_SECONDS)
        self.launcher_id = f"{socket.getfqdn()}-{self.name}-{uuid.uuid4().hex}"
        #: From 1 to 1.5: pools that were in each other's way at one moment are not so again at the next.
        self._slowness = 1.0 + zlib.crc32(self.launcher_id.encode()) % 256 / 512
        self.free_nodes = FreeNodes(self)
        self.ready_nodes = self.free_nodes.ready
        self.queue = RequestQueue()
        self.handlers: list[NodeRequestHandler] = []
        #: Left by the cache thread; deque operations are atomic.
        self._changed_requests: deque[str] = deque()
        self._changed_nodes: deque[str] = deque()
        self._retiring = threading.Event()
        self._launches = 0
        self._epoch = -1
        self.entry = PoolEntry(self, context.zk.client, context.version)
        self.free_counts = context.free_counts
        self.instant = InstantService(self)
        self.intake = Intake(self)
        self._relief = Eviction(self)

        self._config: ProviderConfig | None = None
        self._manager: Provider | None = None

    # -- what handlers see; constant during a pass --

    def getZK(self) -> ZooKeeper:
        return self._context.zk

    def getProviderManager(self) -> Provider:
        if self._manager is None:
            raise RuntimeError(f"provider {self.provider_name} is not there")
        return self._manager

    def getProviderConfig(self) -> ProviderConfig:
        if self._config is None:
            raise RuntimeError(f"provider {self.provider_name} is not configured")
        return self._config

    def getPoolConfig(self) -> ConfigPool:
        pool: ConfigPool = self.getProviderConfig().pools[self.pool_name]
        return pool

    def refresh_config(self) -> bool:
        """Take the current configuration and provider for a pass; False = this pool is about to stop."""
        manager = self._context.provider(self.provider_name)
        if manager is None or self.pool_name not in manager.provider.pools:
            return False
        self._manager = manager
        self._config = manager.provider
        return True

    def lock_dir_lingers(self, request_id: str) -> None:
        """A request's lock directory is there although nobody holds it: it must go with the request."""
        self._context.lock_dir_lingers(request_id)

    def relieve(self, *, shared: bool = False) -> None:
        self._relief.relieve(shared=shared)

    def provider_replaced(self) -> bool:
        """Did the provider of this pass end meanwhile?"""
        return self._context.provider(self.provider_name) is not self._manager

    def set_aside(self, node: Node) -> None:
        """The driver refused a ready node: it is left alone for a while, or until it changes."""
        self.free_nodes.set_aside(node)

    # -- other threads --

    @property
    def labels(self) -> frozenset[str]:
        """Labels of the pool."""
        return self.entry.labels

    def request_changed(self, request_id: str, *, wake: bool = True) -> None:
        """A request changed; '' = any may have.

        :param wake: False = it can wait until the next pass.
        """
        self._changed_requests.append(request_id)
        if wake:
            self.wake()

    def node_changed(self, node_id: str) -> None:
        """A node of this pool changed; '' = any may have."""
        self._changed_nodes.append(node_id)
        self.wake()

    def retire(self) -> None:
        """The pool is not configured any more: take nothing new, finish what runs, then end. Does not block."""
        self._retiring.set()
        self.wake()

    # -- the pass --

    @property
    def paused(self) -> bool:
        """Does a request wait for room? Then no new one is accepted (A-9)."""
        return any(handler.paused for handler in self.handlers)

    def registered_pools(self) -> list[PoolInfo]:
        return self._context.pools.registered()

    def absent_pools(self) -> list[PoolInfo]:
        return self._context.pools.absent()

    def tenant_limits(self) -> Mapping[str, dict[str, float]]:
        return self._context.tenant_limits()

    def tenant_use(self, tenant_name: str) -> QuotaInformation:
        """What all nodes of a tenant use, of all providers."""
        return self._context.tenant_use(tenant_name)

    def tenant_has_place(self, node: Node, *, reused: bool = False) -> bool:
        return tenants.has_place(node, self.tenant_limits(), self._context.cache, reused=reused)

    def launches_running(self) -> int:
        """Launches in progress in the provider, over all its pools (A-10)."""
        return sum(worker.own_launches() for worker in self._context.siblings_of(self.provider_name))

    def own_launches(self) -> int:
        return sum(handler.alive_thread_count for handler in list(self.handlers))

    def fulfils(self, request_id: str) -> bool:
        """Is this pool about to fulfil a request with ready nodes?"""
        return self.instant.serves(request_id)

    def sibling_serves(self, request_id: str) -> bool:
        """Is another pool of this launcher about to fulfil a request with ready nodes?"""
        return any(worker is not self and worker.fulfils(request_id) for worker in self._context.siblings())

    def run_once(self) -> float | None:
        if not self._context.cache.ready:
            self._context.cache.wait_ready(5.0)
            if not self._context.cache.ready:
                return 1.0
        self._check_session()
        if self._retiring.is_set():
            return self._wind_down()
        if not self.refresh_config():
            return 1.0
        self.entry.update()
        self._take_changes()
        if not self.entry.sees_all(worker.launcher_id for worker in self._context.siblings()):
            return SIBLINGS_LOOK_SECONDS
        self._poll_handlers()
        self._run_unfinished()
        more = self.intake.serve()
        retry = self.instant.collect()
        self.entry.update()
        self._wake_siblings()
        if more:
            return 0.0
        looks = (retry, self.intake.left_alone.next_look(), self.free_nodes.next_look())
        waits = [wait for wait in looks if wait is not None]
        if self.handlers:
            waits.append(POLL_SECONDS)
        return min(waits, default=None)

    def _wind_down(self) -> float:
        """A pass of a pool that retires. Nobody else can finish what it holds locked (G-6, L-17)."""
        self._context.pools.gone_for_good(self.launcher_id)
        self.entry.remove()
        self.instant.collect()
        self._give_back_unfinished()
        self._poll_handlers()
        self._wake_siblings()
        if not self.handlers and not self.instant.busy:
            self.stop()
        return POLL_SECONDS

    def _check_session(self) -> None:
        """Locks of a lost session are gone, and with them the right to serve (A-19, L-9)."""
        epoch = self._client.session_epoch
        if epoch == self._epoch:
            return
        if self._epoch != -1 and self.handlers:
            self.log.warning("ZooKeeper session lost: dropping %d requests in progress", len(self.handlers))
            while self.handlers:
                # Forgotten only when it holds nothing any more; else the next pass goes on here.
                self.handlers[0].release_locks()
                del self.handlers[0]
        self._epoch = epoch
        self.entry.new_session()
        self.request_changed("")
        self.node_changed("")

    def is_open(self, request: NodeRequest) -> bool:
        """May this pool still take or refuse a request? (A-2)"""
        return request.state == states.REQUESTED and self.launcher_id not in request.declined_by

    def _take_changes(self) -> None:
        cache = self._context.cache
        requests = _drain(self._changed_requests)
        if "" in requests:
            self.queue.clear()
            requests = set(cache.requests.ids())
        for request_id in requests:
            request = cache.requests.get(request_id)
            if (
                request is None
                or not self.is_open(request)
                or self.instant.serves(request_id)
                or self.intake.left_alone.waits(request_id)
            ):
                self.queue.discard(request_id)
            else:
                self.queue.put(request)
        nodes = _drain(self._changed_nodes)
        if "" in nodes:
            self.ready_nodes.clear()
            nodes = set(cache.nodes.ids())
        for node_id in nodes:
            self.consider_node(node_id)

    def consider_node(self, node_id: str) -> None:
        """Put a node among the ready ones, or remove it, as the cache shows it."""
        node = self.cached_node(node_id)
        if node is not None and (node.provider, node.pool) == (self.provider_name, self.pool_name):
            self._relief.node_seen(node)
        self.free_nodes.consider(node_id)

    def cached_node(self, node_id: str) -> Node | None:
        return self._context.cache.nodes.get(node_id)

    def is_locked(self, node_id: str) -> bool:
        return self._context.cache.nodes.is_locked(node_id)

    def _poll_handlers(self) -> None:
        for handler in list(self.handlers):
            try:
                if handler.poll():
                    self._drop(handler)
            except ZKConnectionError:
                raise
            except Exception:
                # Whatever a driver raises, the other requests go on.
                self.log.exception("Error while polling %s, trying again", handler.request)

    def _run_unfinished(self) -> None:
        """Requests that wait for room try again, in order; each unpauses alone (Q-10)."""
        for handler in sorted((h for h in self.handlers if h.unfinished), key=lambda h: h.request.order_key):
            self.run_handler(handler)

    def _give_back_unfinished(self) -> None:
        for handler in [h for h in self.handlers if h.unfinished]:
            handler.give_back_when_launched()
            if handler.done:
                self._drop(handler)

    def run_handler(self, handler: NodeRequestHandler) -> None:
        """Let a handler gather; forget it when it is done with its request."""
        try:
            handler.run()
        except ZKConflict as conflict:
            self.log.warning("%s: %s", handler.request, conflict)
            return
        if handler.done:
            self._drop(handler)

    def _drop(self, handler: NodeRequestHandler) -> None:
        if handler in self.handlers:
            self.handlers.remove(handler)
        if handler.request.state == states.REQUESTED and self.launcher_id not in handler.request.declined_by:
            delay = GIVEN_BACK_SECONDS * self._slowness
            self.intake.left_alone.add(handler.request.key, delay, handler.gives_way)
        # What it let go of may serve others.
        self.request_changed(handler.request.key)

    def _wake_siblings(self) -> None:
        """Launches of this pool that ended leave room in ``max-concurrency`` for the other pools (A-10)."""
        if self._config is None or self._config.max_concurrency <= 0:
            return
        before, self._launches = self._launches, self.own_launches()
        if self._launches < before:
            for sibling in self._context.siblings_of(self.provider_name):
                sibling.wake()

    # -- the end --

    def on_stop(self) -> None:
        """Let others serve what is not finished, and unregister; nodes in launch are swept later (G-14)."""
        if not self._client.connected:
            return
        try:
            for handler in self.handlers:
                self._hand_over(handler)
        finally:
            self.entry.remove()

    def _hand_over(self, handler: NodeRequestHandler) -> None:
        try:
            handler.hand_over()
        except ZKConnectionError:
            raise
        except Exception:
            # A driver may raise anything; the other requests need not wait for the end of the session.
            self.log.exception("%s is left as it is", handler.request)


def _drain(changes: deque[str]) -> set[str]:
    found = set()
    start = monotonic()
    while changes:
        found.add(changes.popleft())
        # Someone may add as fast as we take.
        if len(found) % 1000 == 0 and monotonic() - start > 1:
            break
    return found
