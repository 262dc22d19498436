# SPDX-License-Identifier: Apache-2.0
"""`MinReadyWorker`: keeps the configured number of ready nodes of each label (rules M)."""

from __future__ import annotations

import logging
import math
import uuid
from typing import TYPE_CHECKING, Final

from nodepool import log_names
from nodepool.clock import monotonic
from nodepool.driver import gateway
from nodepool.exceptions import ZKConflict, ZKConnectionError, ZKException, ZKLockException
from nodepool.model import states
from nodepool.model.event import grouped
from nodepool.model.request import NodeRequest
from nodepool.plan.nodes import missing
from nodepool.plan.triage import MIN_READY_REQUESTOR
from nodepool.runtime.worker import Worker
from nodepool.zk import locks, paths
from nodepool.zk.transactions import sync

if TYPE_CHECKING:
    from nodepool.launcher.pool.view import Launcher

PRIORITY: Final = "900"
IDLE_SECONDS: Final = 30.0
#: Shortest time between two counts: nodes change often, the need seldom.
PACE_SECONDS: Final = 1.0
#: Seconds after a failed request for a label before the next.
FAILED_SECONDS: Final = 5.0
#: Seconds from the end of a request until it is deleted. Kazoo's TreeCache, which Zuul uses, may keep a znode for ever
#: that is deleted while the cache still reads its last change.
LINGER_SECONDS: Final = 1.0
#: Longest wait for the cache to have read what it was told of.
SETTLE_SECONDS: Final = 5.0


class MinReadyWorker(Worker):
    """One thread per launcher.

    A lock lets one launcher at a time count and submit, so that launchers together do not submit too many requests
    (M-6).
    """

    def __init__(self, launcher: Launcher) -> None:
        log = logging.getLogger(log_names.MIN_READY_WORKER)
        super().__init__("MinReadyWorker", launcher.zk.client, log, IDLE_SECONDS)
        self._zk, self._cache, self._providers = launcher.zk, launcher.cache, launcher.providers
        self._config, self._held = launcher.config, launcher.maintenance.holds
        self._own: dict[str, NodeRequest] = {}
        #: request id -> when it was seen to have ended (monotonic seconds)
        self._ended: dict[str, float] = {}
        self._not_before: dict[str, float] = {}
        #: ``event_id`` of requests whose creation gave no answer: they may be there.
        self._unsure: set[str] = set()
        self._last_count = -math.inf
        #: Count at this time even if nothing changed (monotonic seconds).
        self._count_by = -math.inf
        self._changed = True

    def changed(self, request_id: str = "") -> None:
        """Nodes or requests changed, so the need may have. Any thread; does not block.

        A thread that wakes at each of a thousand changes a second would do little else.

        :param request_id: if it is one of ours it is looked at right away.
        """
        self._changed = True
        if request_id in self._own or monotonic() >= self._last_count + PACE_SECONDS:
            self.wake()

    def run_once(self) -> float | None:
        if not self._cache.ready:
            return 1.0
        self._find_unsure()
        self._finish_requests()
        now = monotonic()
        if now < self._last_count + PACE_SECONDS:
            return self._last_count + PACE_SECONDS - now
        if not self._changed and now < self._count_by:
            return min([self._count_by, *(ended + LINGER_SECONDS for ended in self._ended.values())]) - now
        self._changed = False
        self._last_count = now
        wanted = self._wanted(now)
        if self._to_do(wanted) and not self._correct(wanted):
            self._changed = True
        self._count_by = min([now + IDLE_SECONDS, *(when for when in self._not_before.values() if when > now)])
        # What changes until then wakes nobody.
        return PACE_SECONDS

    def _wanted(self, now: float) -> dict[str, int]:
        """Labels with a min-ready that some pool here can build (M-3, M-5), unless it is held (MT-7, MT-11)."""
        soon = {label_name for label_name, when in self._not_before.items() if when > now}
        labels = self._config().labels.values()
        wanted = {one.name: one.min_ready for one in labels if one.min_ready > 0 and one.name not in soon}
        found: set[str] = set()
        # Pools of a driver need not know their provider, see reference/driver 5.
        for name, settings in self._config().providers.items():
            provider = self._providers.get(name)
            if provider is None or not provider.LAUNCHES:
                continue
            for pool_name, pool in settings.pools.items():
                open_ones = [one for one in wanted if one not in found and one in pool.labels]
                open_ones = [one for one in open_ones if not self._held(provider.name, pool_name, one)]
                # Asked once of each pool: a driver looks at all its labels.
                held = gateway.held_labels(provider, pool_name) if open_ones else ()
                for label_name in open_ones:
                    label = pool.labels[label_name] if isinstance(pool.labels, dict) else label_name
                    if label_name not in held and gateway.label_ready(provider, label):
                        found.add(label_name)
        return {label_name: count for label_name, count in wanted.items() if label_name in found}

    def _to_do(self, wanted: dict[str, int]) -> tuple[dict[str, int], list[NodeRequest]] | None:
        """Label -> requests to submit, and requests to withdraw (M-8); None = nothing is to be done."""
        open_ones = self._open()
        labels = self._config().labels
        # A label that is held back, or tried again later, keeps the requests that it has.
        kept = {name: labels[name].min_ready if name in labels else 0 for name in open_ones} | wanted
        if not kept:
            return None
        cache = self._cache
        found = missing(kept, cache.nodes.values(), cache.requests.values())
        more = {label: count for label, count in found.items() if count > 0 and label in wanted}
        surplus = [request for label, own in open_ones.items() for request in own[: max(0, -found.get(label, 0))]]
        return (more, surplus) if more or surplus else None

    def _open(self) -> dict[str, list[NodeRequest]]:
        """Requests of ours that no pool has begun to serve, by label; the newest first."""
        own = map(self._cache.requests.get, reversed(self._own))
        waiting = (one for one in own if one is not None and one.state == states.REQUESTED)
        return grouped(waiting, lambda request: request.node_types[0])

    def _correct(self, wanted: dict[str, int]) -> bool:
        """Count again with the other launchers kept out, submit what is missing and withdraw what is too much.

        :return: False = not now, another time.
        """
        try:
            lock = locks.acquire(self._client, paths.election("min-ready"), blocking=False)
        except ZKLockException:
            return False
        try:
            # All that the last holder wrote was announced to us before the lock was ours; now it is also read.
            if not self._cache.wait_settled(SETTLE_SECONDS):
                return False
            more, surplus = self._to_do(wanted) or ({}, [])
            for label, count in more.items():
                self.log.info("Requesting %d more ready node(s) of label %s", count, label)
                for _ in range(count):
                    self._submit(label)
            for request in surplus:
                self.log.info("Request %s is withdrawn: no more ready node is missing", request.id)
                self._zk.deleteNodeRequest(request)
                self._forget(request.key)
        finally:
            locks.release(self._client, lock)
        return True

    def _submit(self, label: str) -> None:
        request = NodeRequest()
        request.state = states.REQUESTED
        request.node_types = [label]
        request.reuse = False
        request.requestor = MIN_READY_REQUESTOR
        request.event_id = event_id = uuid.uuid4().hex
        # Known before it is there: without an owner it would keep its nodes for as long as our session lives.
        self._unsure.add(event_id)
        try:
            self._zk.storeNodeRequest(request, PRIORITY)
        except ZKConflict:
            self._unsure.discard(event_id)
            raise
        self._unsure.discard(event_id)
        self._own[request.key] = request

    def _find_unsure(self) -> None:
        """Take on requests of ours whose creation gave no answer. One that is not there now never will be."""
        if not self._unsure:
            return
        sync(self._client, paths.REQUESTS)
        cache = self._cache
        if not cache.wait_settled(SETTLE_SECONDS):
            raise ZKConnectionError("requests are not read in time")
        for request in cache.requests.values():
            if request.requestor == MIN_READY_REQUESTOR and request.event_id in self._unsure:
                self._own[request.key] = request
        self._unsure.clear()

    def _finish_requests(self) -> None:
        """M-4: nodes of a fulfilled request go to everybody at once; a failed one is tried again later."""
        now = monotonic()
        for request_id in list(self._own):
            current = self._cache.requests.get(request_id)
            if current is None:
                if self._zk.getNodeRequest(request_id) is None:
                    self._forget(request_id)
                continue
            if current.state == states.FAILED:
                for label in current.node_types:
                    self._not_before[label] = monotonic() + FAILED_SECONDS
            elif current.state != states.FULFILLED:
                continue
            else:
                self._free_nodes(current)
            if self._ended.setdefault(request_id, now) + LINGER_SECONDS > now:
                continue
            self._zk.deleteNodeRequest(current)
            self._forget(request_id)

    def _forget(self, request_id: str) -> None:
        del self._own[request_id]
        self._ended.pop(request_id, None)

    def _free_nodes(self, request: NodeRequest) -> None:
        zk = self._zk
        for node_id in request.nodes:
            cached = self._cache.nodes.get(node_id)
            if cached is None or cached.allocated_to != request.id:
                continue
            node = cached.copy()
            node.free()
            try:
                zk.nodes.save_unlocked(node)
            except ZKConnectionError:
                raise
            except ZKConflict as conflict:
                # The request goes, so the deletion worker gives the node back (C-9).
                self.log.debug("Node %s: %s", node_id, conflict)

    def on_stop(self) -> None:
        """Take back our requests; they would vanish with the session anyway."""
        if not self._client.connected:
            return
        for request in self._own.values():
            try:
                self._zk.deleteNodeRequest(request)
            except ZKException as error:
                self.log.debug("Request %s: %s", request.id, error)
