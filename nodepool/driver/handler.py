# SPDX-License-Identifier: Apache-2.0
"""One request being served (reference/driver 3; rules A, N, Q, L).

The pool worker locks a request, stores it as `pending` and calls `NodeRequestHandler.run`; when that leaves the handler
paused it calls `run` again as soon as room may be there. `poll` is called until it says that the request is finished.
All calls come from the pool worker's thread. Only launches run elsewhere. First the handler, then its nodes
(`NodeSet`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from logging import DEBUG, WARNING
from typing import Any, Final

from nodepool.clock import monotonic, wall_time
from nodepool.driver import gateway
from nodepool.driver.framework.fact import NotKnown
from nodepool.driver.framework.handler_hooks import DeadlockAvoidance, HandlerHooks, PoolWorkerView, log_declined
from nodepool.driver.framework.quota_support import QuotaSupport
from nodepool.exceptions import RuntimeConfigurationException, ZKConflict, ZKConnectionError, ZKException
from nodepool.guard import Guard
from nodepool.logconfig import OnBehalfOf
from nodepool.model import reasons, states
from nodepool.model.node import Node
from nodepool.model.reasons import NO_ROOM, Reason, ReasonCode, ReasonText
from nodepool.model.request import NodeRequest
from nodepool.model.status import LaunchStatus
from nodepool.plan import triage
from nodepool.plan.launch import launch_outcome
from nodepool.plan.retries import Backoff
from nodepool.plan.triage import ENDED, MIN_READY_REQUESTOR, UNFINISHED, Progress, Stage
from nodepool.tracing import spans
from nodepool.zk.transactions import ZkLock

#: From a launch that the cloud had no room for to the next one (L-7).
ABORT: Final = Backoff(1.0, 30.0)


class NodeRequestHandler(HandlerHooks):
    """Base of the drivers' handlers: the course of a request. What a driver has a say in: `HandlerHooks`.

    :param pw: the pool worker, see `PoolWorkerView`.
    :param request: locked by the pool worker before `run`.
    """

    def __init__(self, pw: PoolWorkerView, request: NodeRequest) -> None:
        super().__init__(pw, request)
        #: The only place that says how far the request is.
        self.progress = Progress(request.key, wall_time())
        self.node_set = NodeSet(self)
        self.ready_nodes: list[Node] = []
        self.failed_nodes: list[Node] = []
        self.decline_reasons: list[str] = []
        #: What to do with the request when no launch runs any more: until then its nodes are not let go.
        self._ending: Callable[[], None] | None = None
        self._aborts = 0
        self._not_before = 0.0
        self._deadlock = DeadlockAvoidance(self)

    # -- how far it is --

    @property
    def nodeset(self) -> list[Node]:
        return self.node_set.nodes

    @nodeset.setter
    def nodeset(self, nodes: list[Node]) -> None:
        """For drivers that were written when this was a plain list."""
        self.node_set.replace(nodes)

    @property
    def paused(self) -> bool:
        """Does the request wait for room? The pool takes nothing new meanwhile."""
        return self.progress.stage is Stage.PAUSED

    @paused.setter
    def paused(self, value: bool) -> None:
        """For drivers that were written when this was a flag. A request that ends, or has ended, does not wait."""
        if value and self.progress.stage in (Stage.GATHERING, Stage.LAUNCHING):
            self.move(Stage.PAUSED)
        elif not value and self.paused:
            self.move(Stage.GATHERING)

    @property
    def done(self) -> bool:
        """Has the handler nothing more to do?"""
        return self.progress.stage in ENDED

    @done.setter
    def done(self, value: bool) -> None:
        """For drivers that were written when this was a flag."""
        if value and not self.done:
            self.move(Stage.DONE)
        elif not value and self.done:
            self.move(Stage.GATHERING)

    @property
    def unfinished(self) -> bool:
        """Must `run` be called again? There was no room, or the connection was lost in between."""
        return self.progress.stage in UNFINISHED

    @property
    def launching(self) -> bool:
        """Is every node there, or being launched?"""
        return self.progress.stage is Stage.LAUNCHING

    def move(self, stage: Stage, reason: Reason | None = None) -> None:
        """Go to another stage, unless the request is there already. Raises ImpossibleMove.

        :param reason: why, if the stage alone does not say it.
        """
        if self.progress.stage is not stage:
            self.progress.move(stage, wall_time(), reason)

    # -- could it ever be served? --

    def getDeclinedReasons(self) -> list[str]:
        """Why this pool can never serve the request; empty = it can (A-13, first match)."""
        found = self.basic_decline_reasons()
        if not found and not gateway.images_available(self):
            found = [reasons.ReasonText(self.why_images_missing())]
        if not found and not gateway.has_provider_quota(self, self.request.node_types):
            # The question may have shown that a label can never work.
            found = self.basic_decline_reasons() or [reasons.ReasonText(self.why_too_large())]
        return found

    def why_images_missing(self) -> reasons.Reason:
        """Which images are missing, after `imagesAvailable` returned False."""
        return reasons.IMAGE_MISSING

    def why_too_large(self) -> reasons.Reason:
        """What the request exceeds, after `hasProviderQuota` returned False. Blocks no longer than that one."""
        found = (
            self.manager.excess(self.pool, self.request.node_types) if isinstance(self.manager, QuotaSupport) else None
        )
        return found or reasons.EXCEEDS_QUOTA

    def why_no_room(self, ntype: str) -> reasons.Reason:
        """What is used up, after `hasRemainingQuota` returned False. Blocks no longer than that one.

        :raises NotKnown: it is not known yet what a node needs.
        """
        if not self.manager.LAUNCHES:
            labels = self.request.node_types
            free = {label: self.pw.ready_nodes.count(label) for label in labels}
            return gateway.wait_reason(self.manager, self.pool.name, labels, free) or reasons.NO_READY_NODE
        found = self.manager.shortage(self.pool, ntype) if isinstance(self.manager, QuotaSupport) else None
        return found or reasons.NO_ROOM

    def basic_decline_reasons(self) -> list[str]:
        """The reasons of A-13 that hold even if ready nodes are there."""
        if self.pool.max_servers <= 0:
            return [reasons.ReasonText(reasons.POOL_DISABLED)]
        supported = self.provider.getSupportedLabels(self.pool.name)
        broken = set(gateway.error_labels(self.manager))
        unknown = sorted({name for name in self.request.node_types if name not in supported or name in broken})
        if unknown:
            text = f"node type(s) [{', '.join(unknown)}] not available"
            if not broken.intersection(unknown):
                return [reasons.ReasonText(reasons.Reason(reasons.ReasonCode.LABEL_UNKNOWN, text))]
            known = gateway.label_errors(self.manager)
            causes = [f"{label}: {known[label].text}" for label in unknown if label in known]
            return [reasons.ReasonText(reasons.Reason(reasons.ReasonCode.LABEL_BROKEN, "; ".join([text, *causes])))]
        return []

    # -- the course --

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
            pool = self.node_set.full_pool()
            self.pw.evict(shared=pool is None)
            # What was taken just now was let go of for someone, perhaps.
            if (first := self._deadlock.look(self.node_set.next_label(), pool, at_once=not had_nodes)) is not None:
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
        """End launches that wait for what no one has begun to make. Call it again while nothing new is to be begun."""
        building = [node.key for node in self.nodeset if node.state == states.BUILDING]
        if building:
            gateway.stop_waiting(self.manager, building)

    def _drop(self) -> None:
        self.cancel("the request does not exist any more")

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
            spans.fulfilment(self.request, begin)
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
        triage.decline(self.request, self.launcher_id, registered, self.pw.absent_pools())
        place = f"{self.provider.name}/{self.pool.name}"
        log_declined(self.log, self.request, reason, place, lambda: self.pw.declines_of_others(self.request.key))
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
        for a request that another launcher serves. Where launches can be continued the request stays as it is.

        :raises ZKConflict: a launch was faster, or another process took the request or a node.
        """
        resumed = self.manager.RESUMES
        if not resumed:
            self.request.state = states.REQUESTED
        nodes = [node.copy() for node in self.nodeset]
        for node in nodes:
            if node.state == states.READY and not resumed:
                node.free()
            else:
                node.lock = None
        self.zk.requests.finish(self.request, nodes, nodes_too=True)
        # It was not withdrawn: for this launcher it is given back, whatever was stored.
        self.request.state = states.REQUESTED
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

        The request and its nodes are left as they are, for those who find them.

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


# Gathering the nodes of one request: reuse ready ones, launch the others (rules N).


class NoPlace(Exception):
    """Other launchers took the room at the same time; what is there would be in their way.

    :param tenant: whose limits are reached.
    """

    def __init__(self, tenant: str | None) -> None:
        self.reason = Reason(ReasonCode.ROOM_TENANT, f"others took the room that was left to tenant {tenant}")
        super().__init__(self.reason.text)


class NodeSet:
    """The positions of ``request.node_types`` and the locked node of each, if there is one yet.

    :param hooks: what the driver says of the request.
    """

    def __init__(self, hooks: NodeRequestHandler) -> None:
        self._hooks = hooks
        self._nodes: list[Node | None] = [None] * len(hooks.request.node_types)
        #: Nodes that another launcher has made for the request, or begun to launch.
        self.interrupted: list[Node] = []
        #: The node of a set of one, which is stored together with the lock of the request. If nodes were stored one
        #: after the other, a burst of launches would spend its time waiting for answers.
        self._ahead: Node | None = None
        #: Waits for its own lock; None = that is not begun.
        self._end_of_lock: Callable[[], None] | None = None

    @property
    def nodes(self) -> list[Node]:
        return [node for node in self._nodes if node is not None]

    def replace(self, nodes: Sequence[Node]) -> None:
        """Have these nodes, each locked by us, in the order of the positions; the others are missing."""
        self._nodes = [*nodes, *[None] * (len(self._hooks.request.node_types) - len(nodes))]

    def _missing(self) -> list[int]:
        return [position for position, node in enumerate(self._nodes) if node is None]

    def next_label(self) -> str | None:
        """What is made next if no ready node is there; None = nothing is missing."""
        missing = self._missing()
        return self._hooks.request.node_types[missing[0]] if missing else None

    def full_pool(self) -> str | None:
        """Name of the pool if `gather` stopped at its own limits; None = at what pools share, as far as known."""
        hooks, label = self._hooks, self.next_label()
        if label is None or not isinstance(hooks.manager, QuotaSupport):
            return None
        try:
            return None if hooks.manager.poolHasRoom(hooks.pool, label) else hooks.pool.name
        except NotKnown:
            return None

    def why_no_room(self) -> Reason:
        """What `gather` stopped at, as far as known."""
        hooks, label = self._hooks, self.next_label()
        if label is None:
            return NO_ROOM
        resting = gateway.paused_reason(hooks.manager)
        if resting is not None:
            return Reason(ReasonCode.PROVIDER_CIRCUIT_OPEN, resting)
        # Nothing depends on the answer: a request is not declined because a driver cannot say what is used up.
        with Guard(hooks.log, "What is used up is not known", but=ZKConnectionError, level=DEBUG):
            try:
                return hooks.why_no_room(label)
            except NotKnown as unknown:
                return Reason(ReasonCode.QUOTA_UNKNOWN, f"what a node with label {label} needs is not known: {unknown}")
        return NO_ROOM

    def gather(self) -> bool:
        """Fill what is missing; False = no room for the rest now. Blocks for a few round trips a node.

        :raises NoPlace: the request is to be given back.
        """
        self._resume()
        if self._hooks.request.reuse:
            self._reuse()
        for position in self._missing():
            label = self._hooks.request.node_types[position]
            # What is on its way has its room, and counts already.
            if self._ahead is None and not gateway.has_remaining_quota(self._hooks, label):
                return False
            self._make(position, label)
        # Ready nodes may have come instead of it.
        self.drop_ahead()
        return True

    # -- many sets at once --

    def begin_ahead(self) -> Node | None:
        """The node of a set of one, for which there is room: it is to be stored with the lock of the request.

        None = there is none. A set whose request was not locked is not used any more.
        """
        hooks = self._hooks
        # It is met again, and judged, when the set is gathered.
        with Guard(hooks.log, "No node is begun", level=DEBUG, traceback=False):
            node = self._new_node(hooks.request.node_types[0])
            # What cannot be stored must not get into the way of the lock.
            hooks.zk.nodes.encode(node)
            self._ahead = node
            return node
        return None

    def lock_ahead(self) -> None:
        """Begin to lock it, only while the lock of the request is held. Does not block; errors come later."""
        if self._ahead is not None and self._end_of_lock is None:
            self._end_of_lock = self._begin_lock(self._ahead, self._request_lock())

    def _begin_lock(self, node: Node, under: ZkLock | None) -> Callable[[], None]:
        node.state = states.BUILDING
        self._announce(node)
        # A new node has no lock directory yet.
        return self._hooks.zk.nodes.begin_lock_and_save(node, exists=False, under=under)

    def _take_ahead(self) -> Node | None:
        """The node: stored, `building`, locked by us; None = none was begun. Blocks.

        :raises ZKException: that did not work.
        """
        node, end = self._ahead, self._end_of_lock
        self._ahead = self._end_of_lock = None
        if node is not None:
            end = end or self._begin_lock(node, None)
            end()
        return node

    def drop_ahead(self) -> None:
        """Remove what was begun, and was not needed after all."""
        try:
            if (node := self._take_ahead()) is not None:
                self._hooks.zk.deleteNode(node)
        except ZKException as problem:
            self._hooks.log.warning("A node that is not needed was not removed: %s", problem)

    # -- ready nodes --

    def can_reuse_all(self) -> bool:
        """Are there ready nodes for all that is missing?"""
        missing = self._missing()
        if not self._hooks.request.reuse:
            return False
        chosen = self._choose(missing)
        wanted = self._hooks.request.node_types
        return len(chosen) == len(missing) and not any(
            self._is_too_large(found, wanted[missing[index]]) for index, found in chosen.items()
        )

    def _choose(self, missing: list[int]) -> dict[int, Node]:
        """Ready nodes for some positions: index in ``missing`` -> node."""
        wanted = [self._hooks.request.node_types[position] for position in missing]
        zone = next((node.az for node in self.nodes if node.az), None)
        return self._hooks.pw.ready_nodes.choose(wanted, zone, triage.RequestKind.of(self._hooks.request))

    def _reuse(self) -> None:
        ready_nodes = self._hooks.pw.ready_nodes
        too_large: list[Node] = []
        try:
            while missing := self._missing():
                chosen = self._choose(missing)
                if not chosen:
                    return
                for index, found in chosen.items():
                    # Taken or not: this record is out of date now. An event brings it back if it is still free.
                    ready_nodes.discard(found.key)
                    if self._is_too_large(found, self._hooks.request.node_types[missing[index]]):
                        too_large.append(found)
                    elif self._take(missing[index], found):
                        gateway.node_reused_notification(self._hooks, found)
        finally:
            for node in too_large:
                # For other tenants.
                ready_nodes.put(node)

    def _is_too_large(self, found: Node, label: str) -> bool:
        """Would the tenant have too much with a ready node, while there is room for a new one of the label?

        Flavors change, and clouds count what no one announced. That room is there for new nodes was made sure of
        before the request was taken.
        """
        hooks = self._hooks
        if isinstance(hooks.manager, QuotaSupport):
            try:
                needed = gateway.quota_needed_by_label(hooks.manager, label, hooks.pool)
            except (NotKnown, RuntimeConfigurationException):
                return False
            if found.resources == needed.get_resources():
                return False
        node = found.copy()
        allocate(node, hooks.request)
        return not hooks.pw.tenant_has_place(node, reused=True)

    def _take(self, position: int, found: Node) -> bool:
        """Lock and mark one ready node (N-3).

        :raises NoPlace: with it the tenant would have too much.
        """
        hooks = self._hooks
        good = False
        try:
            good = gateway.start_reusable_node_check(hooks, found).result()
        finally:
            # Whatever a driver raises: nothing else would bring the node back.
            if not good:
                hooks.pw.set_aside(found)
        if not good:
            return False
        node = found.copy()
        allocate(node, hooks.request)
        if not self._lock(position, node):
            return False
        if not hooks.pw.tenant_has_place(node, reused=True):
            raise NoPlace(node.tenant_name)
        hooks.log.debug("Took ready node %s", node.id)
        return True

    def _lock(self, position: int, node: Node) -> bool:
        """Lock and store a node that is there, for a position; False = another process has taken it."""
        try:
            self._hooks.zk.nodes.lock_and_save(node, under=self._request_lock())
        except ZKConnectionError:
            raise
        except ZKConflict as conflict:
            self._hooks.log.debug("Node %s was taken by another process: %s", node.id, conflict)
            return False
        self._nodes[position] = node
        return True

    def _request_lock(self) -> ZkLock | None:
        """The lock under which nodes are written for the request (N-3, N-6).

        A driver may take so long to answer that the session is lost meanwhile, and another serves the request.
        """
        lock = self._hooks.request.lock
        return lock if isinstance(lock, ZkLock) else None

    def _resume(self) -> None:
        """Take what another launcher has left of the request, and go on with its launches. That has its room."""
        hooks, wanted = self._hooks, self._hooks.request.node_types
        # After a lost connection it goes on with those that are left.
        while self.interrupted:
            cached = self.interrupted.pop(0)
            position = next((place for place in self._missing() if wanted[place] in cached.type), None)
            if position is None:
                continue
            node = cached.copy()
            node.launcher = hooks.launcher_id
            if self._lock(position, node) and node.state == states.BUILDING:
                hooks.log.info("Going on with the launch of node %s", node.id)
                self._launch(node, gateway.resume)

    # -- new nodes --

    def _make(self, position: int, label: str) -> None:
        """Create, lock and start to launch one node (N-6)."""
        hooks = self._hooks
        node = self._take_ahead()
        if node is None:
            node, under = self._new_node(label), self._request_lock()
            hooks.zk.nodes.create(node, under=under)
            node.state = states.BUILDING
            self._announce(node)
            hooks.zk.nodes.lock_and_save(node, under=under)
        # Whatever happens now, the set knows what it holds locked.
        self._nodes[position] = node
        if not hooks.pw.tenant_has_place(node):
            self._nodes[position] = None
            hooks.zk.deleteNode(node)
            raise NoPlace(node.tenant_name)
        hooks.log.info("Launching node %s for %s", node.id, label)
        self._launch(node, gateway.launch)

    def _launch(self, node: Node, begin: Callable[[NodeRequestHandler, Node], Any]) -> None:
        hooks = self._hooks
        try:
            begin(hooks, node)
        except Exception as error:
            # Whatever a driver raises, the node has an outcome, and the request goes on with that.
            if hooks.pw.provider_replaced():
                hooks.log.info("Node %s is launched later, by another provider object: %s", node.id, error)
                node.state = states.ABORTED
            else:
                hooks.log.exception("Node %s could not be launched", node.id)
                node.state, _ = launch_outcome(error)
            hooks.zk.storeNode(node)

    def _new_node(self, label: str) -> Node:
        hooks = self._hooks
        node = Node(label)
        node.provider = hooks.provider.name
        node.pool = hooks.pool.name
        node.launcher = hooks.launcher_id
        node.attributes = copy.deepcopy(hooks.pool.node_attributes)
        node.az = next((other.az for other in self.nodes if other.az), None)
        if isinstance(hooks.manager, QuotaSupport):
            # From the first write on the node counts, for quota and for its tenant.
            node.resources = gateway.quota_needed_by_label(hooks.manager, label, hooks.pool).get_resources()
        allocate(node, hooks.request)
        gateway.set_node_metadata(hooks, node)
        return node

    def _announce(self, node: Node) -> None:
        """Who finds the node after a crash knows how its instance is called, if its id says so."""
        node.external_id = gateway.id_in_advance(self._hooks.manager, node)

    def drop_aborted(self) -> None:
        """Let go of nodes that the cloud had no room for; unlocked, they are removed (L-7)."""
        hooks = self._hooks
        for position, node in enumerate(self._nodes):
            if node is not None and node.state == states.ABORTED:
                try:
                    gateway.let_go_of_aborted(hooks, node)
                except ZKConflict as conflict:
                    # The session was lost a moment ago.
                    hooks.log.debug("Node %s belongs to another request now: %s", node.id, conflict)
                # Not before: after another error no one else knows that the node is locked.
                self._nodes[position] = None


def allocate(node: Node, request: NodeRequest) -> None:
    """Say for whom a node is (N-3)."""
    node.allocated_to = request.id
    node.request_event_id = request.event_id
    node.tenant_name = request.tenant_name
    node.requestor = request.requestor
