# SPDX-License-Identifier: Apache-2.0
"""`NodeRequestHandler`: one request being served (reference/driver 3; rules A, N, Q, L).

The pool worker locks a request, stores it as `pending` and calls `run`; when that leaves the handler paused it
calls `run` again as soon as room may be there. `poll` is called until it says that the request is finished.
All calls come from the pool worker's thread. Only launches run elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from logging import WARNING
from typing import TYPE_CHECKING, Final

from nodepool.clock import monotonic, wall_time
from nodepool.driver import gateway
from nodepool.driver.framework.deadlock_avoidance import DeadlockAvoidance
from nodepool.driver.framework.handler_progress import HandlerProgress
from nodepool.driver.framework.nodeset import NoPlace
from nodepool.exceptions import ZKConflict, ZKConnectionError
from nodepool.guard import Guard
from nodepool.logconfig import OnBehalfOf
from nodepool.model import reasons, states
from nodepool.model.node import Node
from nodepool.model.pool_status import LaunchStatus
from nodepool.model.reasons import Reason, ReasonCode, ReasonText
from nodepool.plan import assignment
from nodepool.plan.backoff import Backoff
from nodepool.plan.queue import MIN_READY_REQUESTOR
from nodepool.plan.request_stage import Stage
from nodepool.tracing import request_spans

if TYPE_CHECKING:
    from nodepool.driver.framework.worker_view import PoolWorkerView
    from nodepool.model.request import NodeRequest

#: From a launch that the cloud had no room for to the next one (L-7).
ABORT: Final = Backoff(1.0, 30.0)


class NodeRequestHandler(HandlerProgress):
    """Base of the drivers' handlers: the course of a request. What a driver has a say in: `HandlerHooks`.

    :param pw: the pool worker, see `PoolWorkerView`.
    :param request: locked by the pool worker before `run`.
    """

    def __init__(self, pw: PoolWorkerView, request: NodeRequest) -> None:
        super().__init__(pw, request)
        self.ready_nodes: list[Node] = []
        self.failed_nodes: list[Node] = []
        self.decline_reasons: list[str] = []
        #: What to do with the request when no launch runs any more: until then its nodes are not let go.
        self._ending: Callable[[], None] | None = None
        self._aborts = 0
        self._not_before = 0.0
        self._deadlock = DeadlockAvoidance(self, self.node_set)

    def _launches_run(self) -> bool:
        """Does a launch run? Also of a request that waits for room for its other nodes."""
        return bool(self.nodeset) and not gateway.launches_complete(self)

    def run(self) -> None:
        """Accept, gather, launch; again while `unfinished`. Any exception declines the request (A-16)."""
        self._refresh()
        if self.progress.stage is Stage.WAITING:
            self.move(Stage.LOCKING)
        if self.progress.stage is Stage.LOCKING:
            self.move(Stage.GATHERING)
        try:
            with OnBehalfOf(self.log):
                self._run()
        except ZKConnectionError:
            raise
        except ZKConflict as conflict:
            # A new node was taken from us before its launch; the request itself is written below only.
            self.log.warning("Giving the request back: %s", conflict)
            self.give_back_when_launched(reasons.REQUEST_CHANGED)
        except NoPlace as error:
            self.log.info("Giving the request back: %s", error)
            self.give_back_when_launched(error.reason)
        except Exception:
            # a driver may raise anything, and the request must not hang in its pool.
            self.log.exception("Declining the request because of an error")
            self.decline_reasons = [ReasonText(reasons.ERROR_SERVING)]
            self._end(self.declineRequest)

    def _run(self) -> None:
        if self.is_gone():
            self._end(self._drop)
            return
        if not self._launches_run():
            if self._decline_failed():
                return
            self.node_set.drop_aborted()
        self.decline_reasons = gateway.get_declined_reasons(self)
        if self.decline_reasons:
            self._end(self.declineRequest)
            return
        reason = gateway.paused_reason(self.manager)
        # Ready nodes are there whether the cloud answers or not.
        if reason is not None and not self.node_set.can_reuse_all():
            self.log.info("Giving the request back: %s", reason)
            self.give_back_when_launched(Reason(ReasonCode.PROVIDER_CIRCUIT_OPEN, reason))
            return
        if monotonic() < self._not_before:
            return
        had_nodes = bool(self.nodeset)
        if self.node_set.gather():
            self.move(Stage.LAUNCHING)
        elif not self.manager.PAUSE_AT_QUOTA or self.request.requestor == MIN_READY_REQUESTOR:
            self.give_back_when_launched(self.node_set.why_no_room())
        else:
            self._wait_for_room(self.node_set.why_no_room())
            self.pw.evict(shared=self.node_set.full_pool() is None)
            # What was taken just now was let go of for somebody, perhaps.
            if (first := self._deadlock.look(at_once=not had_nodes)) is not None:
                text = f"request {first.id} comes first, and each waits for the other"
                self.log.info("Giving the request back: %s", text)
                self._end(lambda: self._yield(Reason(ReasonCode.WAIT_DEADLOCK, text)))

    def _yield(self, reason: Reason) -> None:
        for node in self._deadlock.in_the_way():
            self.log.info("Node %s is deleted: the request needs only its room", node.id)
            node.state = states.DELETING
        self.give_back(reason)

    def yields(self) -> bool:
        """Was the request given back for one that comes first, and is it pointless still to take it again?"""
        self._refresh()
        return self._deadlock.is_pointless()

    def _wait_for_room(self, why: Reason) -> None:
        if self.paused:
            self.progress.reason = why  # What is used changes.
            return
        self.log.info("Pausing: %s", why.text)
        self._deadlock.begin()
        self.move(Stage.PAUSED, why)

    def _end(self, how: Callable[[], None]) -> None:
        """End the request now, or when its running launches have ended.

        A node that is let go while it is launched would be deleted before its machine is known.
        """
        self.node_set.drop_ahead()
        if self._launches_run():
            self._ending = how
            self.move(Stage.ENDING)
        else:
            how()

    def give_back_when_launched(self, reason: Reason | None = None) -> None:
        """`give_back` as soon as no launch runs."""
        self._end(lambda: self.give_back(reason))

    def stop_waiting(self) -> None:
        """End launches that wait for what nobody has begun to make. Call it again while nothing new is to be begun."""
        building = [node.key for node in self.nodeset if node.state == states.BUILDING]
        if building:
            gateway.stop_waiting(self.manager, building)

    def _drop(self) -> None:
        self.cancel("the request is gone")

    def is_gone(self) -> bool:
        """Was the request cancelled, as far as the cache knows?"""
        cache = self.zk.cache
        return cache is not None and cache.requests.get(self.request.key) is None

    def launch_steps(self) -> Sequence[LaunchStatus]:
        """Launches in progress. For frameworks, not for drivers: any thread asks, and it must not raise."""
        return [
            LaunchStatus(node.key, node.type[0] if node.type else "", "launch", begun=begun, since=begun)
            for node in list(self.nodeset)
            if node.state == states.BUILDING and (begun := node.created_time) is not None
        ]

    @property
    def awaits_launches(self) -> bool:
        """Would `poll` surely find that a launch runs? For frameworks, not for drivers: it must not raise."""
        return False

    def tells_end_of(self, node_id: str) -> bool:
        """Will the launch of a node ask for a pass of the pool when it ends? Any thread. As `awaits_launches`."""
        return False

    def poll(self) -> bool:
        """Is the request finished? Fulfils, fails or waits further. Does not block on launches."""
        if (end := self._poll()) is not None:
            end()
        return self.done

    def begin_poll(self) -> Callable[[], None] | None:
        """`poll`, but for the answer to the write that fulfils the request: so many can be under way.

        :return: waits for the answer, and must be called; None = all is done.
        """
        if type(self).poll is NodeRequestHandler.poll:
            return self._poll()
        self.poll()  # The driver's own.
        return None

    def _poll(self) -> Callable[[], None] | None:
        if self.done or self.unfinished or not gateway.launches_complete(self):
            return None
        if self._ending is not None:
            self._ending()
            return None
        self.ready_nodes = [node for node in self.nodeset if node.state == states.READY]
        if self.is_gone():
            self._drop()
        elif not self._decline_failed():
            if len(self.ready_nodes) == len(self.nodeset):
                return self._fulfil()
            self._launch_again_later()
        return None

    def _decline_failed(self) -> bool:
        """Decline the request if a launch failed (L-6, L-8); when no launch runs."""
        self.failed_nodes = [node for node in self.nodeset if node.state not in (states.READY, states.ABORTED)]
        if self.failed_nodes:
            causes = {node.key: self.pw.launch_error(node) for node in self.failed_nodes}
            self.decline_reasons = [ReasonText(reasons.launch_failed(causes))]
            self.declineRequest()
        return bool(self.failed_nodes)

    def _launch_again_later(self) -> None:
        """A cloud that was full for a moment (L-7), or a node that was taken from us."""
        delay = self.pause_after_abort()
        self._not_before = monotonic() + delay
        text = f"a launch was aborted, another one follows when there is room, in {delay:g} s or later"
        self._wait_for_room(Reason(ReasonCode.LAUNCH_ABORTED, text, {"delay_seconds": delay}))
        # Last: if this raises, the request is one that waits for nodes, and `run` goes on here.
        self.node_set.drop_aborted()

    def pause_after_abort(self) -> float:
        """Seconds from aborted launches until the next one at the earliest; longer each time."""
        self._aborts += 1
        return ABORT.pause(self._aborts)

    def _fulfil(self) -> Callable[[], None] | None:
        """See `begin_poll`."""
        begin = wall_time()
        self.request.nodes = [node.key for node in self.nodeset]
        self.request.state = states.FULFILLED
        try:
            written = self.zk.requests.send_finish(self.request, self.nodeset)
        except ZKConflict as conflict:
            self._not_fulfilled(conflict)
            return None

        def end() -> None:
            try:
                written()
            except ZKConflict as conflict:
                self._not_fulfilled(conflict)
                return
            self.move(Stage.DONE)
            request_spans.fulfilment(self.request, begin)
            self.log.info("Fulfilled node request with nodes %s", ", ".join(self.request.nodes))

        return end

    def _not_fulfilled(self, conflict: ZKConflict) -> None:
        # A node was deleted under us, or the request was: the latter shows when it is written.
        self.log.warning("The request cannot be fulfilled with nodes %s: %s", self.request.nodes, conflict)
        self.request.nodes = []
        self.give_back(reasons.REQUEST_CHANGED)

    def declineRequest(self) -> None:
        """Decline the request and free what was gathered, in one write (A-14, A-15)."""
        reason = reasons.joined([reasons.reason_of(text) for text in self.decline_reasons])
        registered = [pool.id for pool in self.zk.getRegisteredPools()]
        assignment.decline(self.request, self.launcher_id, registered, self.pw.absent_pools())
        self._log_declined(reason)
        self._let_go(Stage.DONE, reason)

    def give_back(self, reason: Reason | None = None) -> None:
        """Free what was gathered and let the request wait unlocked (Q-12)."""
        self.request.state = states.REQUESTED
        self._let_go(Stage.DEFERRED, reason)

    def hand_over(self) -> None:
        """The launcher ends: finish the request if all is there, else let another one serve it from now on.

        Nodes in the middle of a launch stay locked until the session ends: what is made for them is not known yet.
        """
        while not self.poll():
            if not self._launches_run():
                self.give_back()
                return
            before = [node.version for node in self.nodeset]
            try:
                self._hand_over_running()
                return
            except (ZKConflict, TypeError, ValueError) as problem:
                self.log.debug("The request is not handed over with its nodes: %s", problem)
                if before == [node.version for node in self.nodeset]:
                    # No launch wrote meanwhile: another process took a node, or it cannot be stored.
                    self.nodeset = [node for node in self.nodeset if node.state == states.READY]
                    self.give_back()
                    return

    def _hand_over_running(self) -> None:
        """Hand the request on, and free its ready nodes, in one write.

        The other nodes are written, too: what their launches write after that is refused, so that none becomes ready
        for a request that another launcher serves.

        :raises ZKConflict: a launch was faster, or another process took the request or a node.
        """
        self.request.state = states.REQUESTED
        nodes = [node.copy() for node in self.nodeset]
        for node in nodes:
            if node.state == states.READY:
                node.free()
            else:
                node.lock = None
        self.zk.requests.finish(self.request, nodes, nodes_too=True)
        self.move(Stage.DONE)

    def _let_go(self, stage: Stage, reason: Reason | None) -> None:
        """Free what was gathered, and store the request, in one write if that works; then go to a stage."""
        for node in self.nodeset:
            node.free()
        try:
            self.zk.requests.finish(self.request, self.nodeset, nodes_too=True)
        except (ZKConflict, TypeError, ValueError) as problem:
            # The latter: a driver put something into a node that cannot be stored.
            self.log.debug("Freeing one by one: %s", problem)
            self.unlockNodeSet(clear_allocation=True)
            try:
                self.zk.requests.finish(self.request)
            except ZKConflict as lost:
                self.cancel(f"it was changed by another process ({lost})")
                return
        self.move(stage, reason)

    def cancel(self, why: str) -> None:
        """Drop the request and free what was gathered (L-11, Q-13)."""
        self.log.info("Dropping node request: %s", why)
        self.unlockNodeSet(clear_allocation=True)
        if self.request.lock is not None:
            try:
                self.zk.unlockNodeRequest(self.request)
            except ZKConflict as conflict:
                self.log.warning("Unlocking the request: %s", conflict)
        self.move(Stage.DONE)

    def release_locks(self) -> None:
        """The session was lost, maybe in the middle of a pass: what was locked after that is locked in the new one.

        The request and its nodes are left as they are, for whoever finds them.

        :raises ZKConnectionError: call again.
        """
        self.node_set.drop_ahead()
        for node in self.nodeset:
            if node.lock is not None:
                self.zk.unlockNode(node)
        if self.request.lock is not None:
            self.zk.unlockNodeRequest(self.request)

    def unlockNodeSet(self, clear_allocation: bool = False) -> None:
        """Unlock all nodes; errors are logged, not raised.

        :param clear_allocation: also set ``allocated_to`` to null.
        """
        for node in self.nodeset:
            # Whatever it is, the lock must go, and so must the other locks.
            with Guard(self.log, "Node %s", node.id, level=WARNING, traceback=False):
                if clear_allocation:
                    node.free()
                    self.zk.storeNode(node)
            with Guard(self.log, "Unlocking node %s", node.id, level=WARNING, traceback=False):
                if node.lock is not None:
                    self.zk.unlockNode(node)
