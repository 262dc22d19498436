# SPDX-License-Identifier: Apache-2.0
"""Declining requests that a pool has not locked, many at a time (rules A-14, A-15)."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from nodepool.clock import monotonic, wall_time
from nodepool.driver.framework.handler_hooks import log_declined
from nodepool.exceptions import ZKConnectionError, ZKException, ZKTooLarge
from nodepool.launcher.pool import desk
from nodepool.logconfig import get_annotated_logger
from nodepool.model.reasons import OTHER_LAUNCHERS, REQUEST_LOCKED, REQUEST_TOO_LARGE, Reason, ReasonCode
from nodepool.plan.queue import Bucket, RequestQueue
from nodepool.plan.triage import decline
from nodepool.tracing import spans
from nodepool.zk.transactions import TransactionFailed, result

if TYPE_CHECKING:
    import logging

    from nodepool.launcher.pool.desk import Desk, RequestEvents
    from nodepool.launcher.pool.view import PassContext
    from nodepool.model.request import NodeRequest
    from nodepool.zk.reply import Reply

#: Requests of one kind declined in one pass.
BATCH: Final = 200
#: How long after its start a launcher declines nothing that others may serve who are not back yet, after an outage of
#: several launchers: no request that is older than it is, and none while nodes tell of launchers that are away.
START_SECONDS: Final = 30.0
#: Part of the id of each pool: nodes of static hosts name no pool.
POOL_MARK: Final = "-PoolWorker."
#: Pause between two looks at such a request.
OLD_REQUEST_SECONDS: Final = 2.0


class Declines:
    """Owned by the pool worker's thread."""

    def __init__(
        self, pool: PassContext, desk: Desk, queue: RequestQueue, events: RequestEvents, log: logging.Logger
    ) -> None:
        self._pool = pool
        self._desk = desk
        self._queue = queue
        self._events = events
        self.log = log
        self._begun = wall_time()
        self._begun_monotonic = monotonic()

    def decline_all(self, bucket: Bucket, reason: Reason) -> bool:
        """Decline the requests of a kind, each in one write; blocks until all are answered.

        A request that somebody else holds or changed meanwhile is left; it comes back as an event.

        :return: are there more than fit in one pass?
        """
        more = len(bucket) > BATCH
        self.decline(bucket.first(BATCH), reason)
        return more

    def decline(self, request_ids: Sequence[str], reason: Reason) -> None:
        """Decline some requests with the same labels; see `decline_all`."""
        pool = self._pool
        requests = pool.zk.requests
        registered, absent = [other.id for other in pool.registered_pools()], pool.absent_pools()
        others_away = self._others_are_away(registered)
        sent: list[tuple[NodeRequest, Reply]] = []
        for request_id in request_ids:
            self._queue.discard(request_id)
            cached = pool.open_request(request_id)
            if cached is None:
                continue
            if others_away or self._may_be_for_others(cached):
                self._desk.defer(request_id, OTHER_LAUNCHERS, OLD_REQUEST_SECONDS)
                continue
            request = cached.copy()
            decline(request, pool.launcher_id, registered, absent)
            sent.append((request, requests.send_unlocked(request)))
        if sent and reason.code is ReasonCode.LABEL_UNKNOWN:
            hint = pool.launcher.label_hint(sent[0][0].node_types)
            reason = dataclasses.replace(reason, text=f"{reason.text}{hint}")
        for request, reply in sent:
            self._finish(request, reply, reason)

    def fail_too_large(self, request_id: str) -> None:
        """Let a request fail that cannot be written as it is: no pool can serve it. Blocks until it is answered."""
        self._queue.discard(request_id)
        cached = self._pool.open_request(request_id)
        if cached is not None:
            request = cached.copy()
            request.fail_in_short()
            self._finish(request, self._pool.zk.requests.send_unlocked(request), REQUEST_TOO_LARGE)

    @property
    def _just_started(self) -> bool:
        return monotonic() - self._begun_monotonic <= START_SECONDS

    def _others_are_away(self, registered: Collection[str]) -> bool:
        """Did we begin a moment ago, and are there nodes of launchers that are not? They may serve what we do not."""
        if not self._just_started:
            return False
        return any(
            POOL_MARK in (node.launcher or "") and node.launcher not in registered
            for node in self._pool.cache.nodes.values()
        )

    def _may_be_for_others(self, request: NodeRequest) -> bool:
        """Was it submitted before we came, and may those who can serve it be on their way back?"""
        if not self._just_started:
            return False
        return request.created_time is not None and request.created_time < self._begun

    def _finish(self, request: NodeRequest, reply: Reply, reason: Reason) -> None:
        log = get_annotated_logger(
            self.log, event_id=request.event_id, node_request_id=request.id, trace_id=spans.log_id(request)
        )
        try:
            self._wait_written(request, reply)
        except ZKConnectionError:
            raise
        except ZKTooLarge as problem:
            if reason is not REQUEST_TOO_LARGE:
                self.fail_too_large(request.key)
                return
            self.log.error("Request %s cannot even be failed: %s", request.id, problem)
            self._desk.defer(request.key, reason)
            return
        except ZKException as problem:
            self.log.debug("Request %s was not declined: %s", request.id, problem)
            # Held by somebody for a moment: looked at again like one whose lock was taken.
            self._desk.defer(request.key, REQUEST_LOCKED)
            return
        self._desk.explanations.declined(request.key, reason)
        self._events.declined(request, reason)
        desk.note(request)
        pool = self._pool
        log_declined(log, request, reason, pool.place, lambda: pool.declines_of_others(request.key))

    def _wait_written(self, request: NodeRequest, reply: Reply) -> None:
        try:
            result(reply)
        except TransactionFailed as failed:
            requests = self._pool.zk.requests
            if not requests.lock_dir_was_there(request, failed):
                raise
            # Left by somebody who had the lock before: the same again, with the directory.
            result(requests.send_unlocked(request, lock_dir_exists=True))
