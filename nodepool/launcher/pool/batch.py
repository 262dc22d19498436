# SPDX-License-Identifier: Apache-2.0
"""`Batch`: locks a request and makes it `pending`, together with later requests that certainly have room.

It takes all their locks and makes all their new nodes in the same round trips. If it took one request after the other,
a burst would spend most of its time waiting for answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from logging import DEBUG
from typing import TYPE_CHECKING

from nodepool.exceptions import ZKConflict, ZKConnectionError, ZKTooLarge
from nodepool.guard import Guard
from nodepool.launcher.pool.turns import GRACE_SECONDS
from nodepool.model import states
from nodepool.model.reasons import FIRST_CHOICE, REQUEST_LOCKED
from nodepool.plan.request_stage import Stage
from nodepool.zk import paths
from nodepool.zk.transactions import TransactionFailed

if TYPE_CHECKING:
    from nodepool.driver.handler import NodeRequestHandler
    from nodepool.launcher.pool.desk import Desk
    from nodepool.launcher.pool.handlers import Handlers
    from nodepool.launcher.pool.view import PoolView
    from nodepool.model.request import OrderKey
    from nodepool.plan.queue import Bucket, RequestKind


class Batch:
    """Owned by the pool worker's thread.

    :param request_changed: called with the id of a request that is to be judged again.
    :param fail_too_large: called with the id of one that cannot be written.
    """

    def __init__(
        self,
        view: PoolView,
        desk: Desk,
        handlers: Handlers,
        request_changed: Callable[[str], None],
        fail_too_large: Callable[[str], None],
    ) -> None:
        self._view = view
        self._pool = view.pool
        self._room = view.room
        self._turns = view.turns
        self._desk = desk
        self._handlers = handlers
        self._request_changed = request_changed
        self._fail_too_large = fail_too_large

    def launch(self, bucket: Bucket, handler: NodeRequestHandler, until: OrderKey | None, at_most: int) -> int:
        """Lock requests together and let their handlers gather. Blocks for some round trips.

        :param bucket: whose first request is the handler's.
        :param until: more are taken as long as their keys are not above this one; None = all.
        :param at_most: so many in all.
        :return: how many were taken.
        :raises ZKConnectionError: what is locked goes on in the next pass.
        """
        kind = bucket.kind
        room: float = 1
        followers: list[NodeRequestHandler] = []
        # It is met again, and judged, when each is taken for itself.
        with Guard(handler.log, "Taken without those behind it", but=ZKConnectionError, level=DEBUG, traceback=False):
            room = self._sure_room(kind, handler)
            followers = self._followers(bucket, until, min(at_most, room))
        handlers = [handler, *followers]
        try:
            locked = self._lock(handlers, with_nodes=room > 1)
        finally:
            self._let_go_unlocked(handlers)
        for _ in locked:
            self._room.taken(kind)
        self._run(locked)
        return len(locked)

    def _sure_room(self, kind: RequestKind, handler: NodeRequestHandler) -> float:
        """How many requests of a kind, the head included, can be launched for sure; 1 = not even that is known."""
        room = self._room.ahead(kind, handler)
        return 1 if room <= 1 or self._view.objection(kind, handler) is not None else room

    def _followers(self, bucket: Bucket, until: OrderKey | None, at_most: float) -> list[NodeRequestHandler]:
        """Handlers of the requests behind the head."""
        followers: list[NodeRequestHandler] = []
        for request_id in bucket.first(int(at_most))[1:]:
            cached = self._pool.open_request(request_id)
            if cached is None or (until is not None and cached.order_key > until):
                break
            turns = self._turns.of_others(bucket.kind, cached)
            if turns:
                self._turns.pass_over(cached, turns)
                self._desk.defer(request_id, FIRST_CHOICE, GRACE_SECONDS, others_turn=True)
                continue
            followers.append(self._view.make_handler(cached.copy()))
        return followers

    def _lock(self, handlers: Sequence[NodeRequestHandler], *, with_nodes: bool) -> list[NodeRequestHandler]:
        """Lock requests together; those that are locked. An error is raised when all answers are there.

        :param with_nodes: each is certain to get a new node, which is stored with its lock.
        """
        sent: list[tuple[NodeRequestHandler, Callable[[], None]]] = []
        too_large: list[NodeRequestHandler] = []
        failed: Exception | None = None
        for each in handlers:
            try:
                sent.append((each, self._send_lock(each, with_node=with_nodes)))
            except ZKTooLarge as error:
                each.log.warning("It cannot be served: %s", error)
                too_large.append(each)
            except Exception as error:  # noqa: BLE001 - raised below: what is sent already may be locked, and is ours
                failed = error
                break
        locked: list[NodeRequestHandler] = []
        # The last answer is waited for first: then the others are there, and this thread was woken once.
        for each, end in reversed(sent):
            try:
                if self._is_locked(each, end):
                    locked.insert(0, each)
            except Exception as error:  # noqa: BLE001 - as above
                failed = error
        if failed is not None:
            raise failed
        for each in too_large:
            self._desk.move(each.request.key, Stage.WAITING)
            self._desk.close(each.request.key)
            self._fail_too_large(each.request.key)
        return locked

    def _send_lock(self, handler: NodeRequestHandler, *, with_node: bool) -> Callable[[], None]:
        request = handler.request
        self._desk.open(handler, Stage.LOCKING)
        request.state = states.PENDING
        request.nodes = []
        node = handler.node_set.begin_ahead() if with_node else None
        return self._pool.zk.requests.send_lock(request, node)

    def _is_locked(self, handler: NodeRequestHandler, end: Callable[[], None]) -> bool:
        request_id = handler.request.key
        try:
            end()
        except ZKConflict as conflict:
            handler.log.debug("Not taken: %s", conflict)
            if isinstance(conflict, TransactionFailed) and conflict.path.startswith(f"{paths.REQUEST_LOCKS}/"):
                self._desk.defer(request_id, REQUEST_LOCKED)
            else:
                self._desk.move(request_id, Stage.WAITING)
                self._desk.close(request_id)
            return False
        # What is locked is ours from here on, whatever happens.
        self._desk.move(request_id, Stage.GATHERING)
        return True

    def _let_go_unlocked(self, handlers: Sequence[NodeRequestHandler]) -> None:
        """After an error nobody knows whether a request is locked: it is judged again by what the cache says."""
        for handler in handlers:
            if handler.progress.stage is Stage.LOCKING:
                self._desk.move(handler.request.key, Stage.WAITING)
                self._desk.close(handler.request.key)
                self._request_changed(handler.request.key)

    def _run(self, handlers: Sequence[NodeRequestHandler]) -> None:
        """Let handlers gather."""
        # Backwards: then the first answer that is waited for is the last one to come.
        for handler in reversed(handlers):
            handler.node_set.lock_ahead()
        for handler in handlers:
            handler.log.info("Assigning node request for %s", ", ".join(handler.request.node_types))
            self._handlers.run(handler)
