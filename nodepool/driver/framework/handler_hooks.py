# SPDX-License-Identifier: Apache-2.0
"""What a driver says of one request: is there room, launch a node (reference/driver 3); and what seldom happens to it.

These hooks are asked by `nodepool.driver.handler.NodeRequestHandler`, in the pool worker's thread. Then come the log of
declined requests, what a handler sees of its pool worker, and what happens when requests wait for each other. Last are
threads that launch and delete one node, for drivers without a scheduler of their own.
"""

from __future__ import annotations

import abc
import concurrent.futures
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from nodepool import log_names
from nodepool.clock import monotonic
from nodepool.driver import gateway
from nodepool.driver.config import ConfigPool, ProviderConfig
from nodepool.driver.framework.fact import NotKnown
from nodepool.driver.framework.quota_support import QuotaSupport
from nodepool.exceptions import NotFound, TimeoutException, ZKConflict, ZKException
from nodepool.guard import Guard
from nodepool.logconfig import AnnotatedLogger, get_annotated_logger
from nodepool.metrics import reports
from nodepool.model import reasons, states
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest, described, origin_of
from nodepool.plan import launch as plan
from nodepool.plan.launch import launch_outcome
from nodepool.plan.promotion import Trial
from nodepool.plan.triage import PoolInfo, ReadyNodes, RequestKind, why_failed
from nodepool.tracing import spans
from nodepool.zk.zookeeper import ZooKeeper


class NodeRequestHandlerNotifications:
    """Events that a handler may react to."""

    def nodeReusedNotification(self, node: Node) -> None:
        """An existing node was taken."""


class HandlerHooks(NodeRequestHandlerNotifications, abc.ABC):
    """What a driver implements of `NodeRequestHandler`, and what it may look at.

    :param pw: the pool worker, see `PoolWorkerView`.
    :param request: locked by the pool worker before it is served.
    """

    #: Nodes gathered so far, locked by us, in the order of ``request.node_types``.
    nodeset: list[Node]

    def __init__(self, pw: PoolWorkerView, request: NodeRequest) -> None:
        self.pw = pw
        self.request = request
        self.launcher_id = pw.launcher_id
        self._refresh()

    def _refresh(self) -> None:
        """Look at what the pool worker has now: a reload replaces configuration and provider."""
        self.provider: ProviderConfig = self.pw.getProviderConfig()
        self.pool: ConfigPool = self.pw.getPoolConfig()
        self.zk: ZooKeeper = self.pw.getZK()
        #: The `Provider`, whose file imports this one; handlers name the class of theirs.
        self.manager: Any = self.pw.getProviderManager()
        logger = logging.getLogger(log_names.request_handler(self.launcher_id))
        self.log = get_annotated_logger(
            logger,
            event_id=self.request.event_id,
            node_request_id=self.request.id,
            trace_id=spans.log_id(self.request),
            provider=self.provider.name,
            pool=self.pool.name,
        )

    @property
    @abc.abstractmethod
    def alive_thread_count(self) -> int:
        """Launches in progress."""

    @abc.abstractmethod
    def imagesAvailable(self) -> bool:
        """Are images for all labels of the request usable here?"""

    @abc.abstractmethod
    def launch(self, node: Node) -> Any:
        """Start to launch a node, which is locked and `building`; may raise.

        The outcome goes to ``node.state`` (`ready`, `failed` or `aborted`, stored), then ``self.pw.wake()``.
        """

    def resume(self, node: Node) -> None:
        """Go on with a launch that another launcher has begun, as `launch`; only for a node of `Provider.canResume`."""
        # Not abstract: handlers of released drivers lack it, and their providers resume nothing.
        raise NotImplementedError

    @abc.abstractmethod
    def launchesComplete(self) -> bool:
        """Has every node of the set a final outcome?"""

    def hasProviderQuota(self, node_types: list[str]) -> bool:
        """Could all these nodes fit if nothing else ran? False declines."""
        return True

    def hasRemainingQuota(self, ntype: str) -> bool:
        """Is there room for one more right now? False pauses."""
        return True

    def has_room_now(self, ntype: str) -> bool:
        """As `hasRemainingQuota`, for a request that will perhaps not be launched: must leave no trace."""
        return gateway.has_remaining_quota(self, ntype)

    def room_ahead(self) -> float:
        """How many requests like this one, itself included, have room for sure right now; 1 = no one knows."""
        return 1

    def checkReusableNode(self, node: Node) -> bool:
        """May this ready node be used? May block; see `startReusableNodeCheck`."""
        return True

    def startReusableNodeCheck(self, node: Node) -> concurrent.futures.Future[bool]:
        """`checkReusableNode` for drivers whose check takes time: must not block."""
        future: concurrent.futures.Future[bool] = concurrent.futures.Future()
        future.set_result(gateway.check_reusable_node(self, node))
        return future

    def setNodeMetadata(self, node: Node) -> None:
        """Fill driver data of a new node before it is stored."""

    def let_go_of_aborted(self, node: Node) -> None:
        """Release a node whose launch was aborted; unlocked, it is deleted with what may be in the cloud."""
        self.zk.unlockNode(node)


# The lines that a pool logs when it declines a request (rule J-3). Filters match how they begin.


def log_declined(
    log: AnnotatedLogger,
    request: NodeRequest,
    reason: reasons.Reason,
    pool: str,
    others: Callable[[], Mapping[str, reasons.Reason | None]],
) -> None:
    """Log, and record as a span, that a pool declines a request, and that the request fails if it does.

    :param log: with the ids of the request.
    :param request: as it is written.
    :param pool: such as ``cloud-1/main``.
    :param others: what the other pools stated; asked if the request fails.
    """
    spans.declined(request, reason, pool)
    extra = {"code": reason.code.value, **origin_of(request)}
    log.info("Declining node request: %s (%s)", reason.text, described(request), extra=extra)
    if request.state == states.FAILED:
        why = why_failed({**others(), pool: reason})
        extra["code"] = why.code.value
        log.info("Failing node request: every pool declined it: %s (%s)", why.text, described(request), extra=extra)


# `PoolWorkerView`: what the handler of a request sees of the launcher.


class PoolWorkerView(Protocol):
    """What a handler sees of its pool worker."""

    launcher_id: str
    ready_nodes: ReadyNodes

    def getZK(self) -> ZooKeeper: ...

    def getProviderManager(self) -> Any: ...

    def getProviderConfig(self) -> ProviderConfig: ...

    def getPoolConfig(self) -> ConfigPool: ...

    def wake(self) -> None:
        """Ask for a pass soon: a launch ended, room may be there. Any thread; does not block."""

    def launch_ended(self, node: Node, result: str, text: str = "") -> None:
        """An attempt to launch a node ended. Any thread; does not block.

        :param result: as in metrics: ``ready`` or ``error.<class>``. ``text``: why it failed.
        """

    def keep_console(self, node: Node, text: str) -> None:
        """Show what a node that failed wrote to its console. Any thread; does not block."""

    def launch_error(self, node: Node) -> str:
        """Why the last attempt to launch a node failed; empty = that is not known."""

    def trial(self, label: str, image: str, request: NodeRequest) -> Trial | None:
        """Which of two uploads the first attempt to launch a node uses (CA-2); None = none is tried.

        Any thread; does not block.
        """

    def trial_ended(self, node: Node, trial: Trial, error: Exception | None, seconds: float) -> None:
        """The attempt ended. Any thread; does not block. :param error: why it failed; None = the node is ready."""

    def evict(self, *, shared: bool = False) -> None:
        """Delete the oldest unused ready node, because a request waits for room (Q-8).

        :param shared: for room that all pools of the provider share: it may be a node of any of them.
        """

    def absent_pools(self) -> Sequence[PoolInfo]:
        """Pools that went a moment ago; their launchers may be on their way back."""

    def declines_of_others(self, request_id: str) -> Mapping[str, reasons.Reason | None]:
        """Why the other registered pools declined a request, by ``provider/pool``; None = not known here."""

    def provider_replaced(self) -> bool:
        """Was the provider stopped after this pass began? Then it launches nothing any more."""

    def tenant_has_place(self, node: Node, *, reused: bool = False) -> bool:
        """Is there room in the limits of its tenant for a node that is stored, counting all that were stored before?

        Blocks until what ZooKeeper announced has been read, if there are limits.

        :param reused: it was there before it was the tenant's: all others count.
        """

    def set_aside(self, node: Node) -> None:
        """The driver refused a ready node: do not offer it again for a while."""


# `DeadlockAvoidance`: a request that waits for room while it holds nodes yields to an earlier one.


class DeadlockAvoidance:
    """Of one request. The decisions are in `nodepool.plan.launch`.

    :param hooks: what the driver says of the request.
    """

    def __init__(self, hooks: HandlerHooks) -> None:
        self._hooks = hooks
        #: Until when it waits for room without a look whether it is in the way of another request (monotonic seconds).
        self._patient_until = 0.0
        #: After it yielded: the request that comes first, the label that there was no room for, and the configuration.
        self._yielded_to: tuple[str, str, ProviderConfig] | None = None

    def begin(self) -> None:
        """The request begins to wait for room."""
        self._patient_until = monotonic() + plan.PATIENCE_SECONDS

    def look(self, label: str | None, pool: str | None, *, at_once: bool) -> NodeRequest | None:
        """A request that comes first and waits, too, for what this one holds; None = there is none, or not looked yet.

        :param label: for which there is no room. ``pool``: whose own limit it waits for, None = for what pools share.
        :param at_once: do not wait until patience is at an end.
        """
        # All nodes are looked at, and passes are many: not in each.
        if not at_once and monotonic() < self._patient_until:
            return None
        self.begin()
        hooks = self._hooks
        cache = hooks.zk.cache
        if cache is None or label is None or not hooks.nodeset:
            return None
        place = (hooks.provider.name, pool)
        first = plan.stands_before(hooks.request, *place, cache.nodes.values(), cache.requests.get)
        self._yielded_to = None if first is None else (first.key, label, hooks.provider)
        return first

    def in_the_way(self) -> list[Node]:
        """Nodes of this request that must go, which has yielded: the one that comes first needs their room."""
        cache = self._hooks.zk.cache
        first = None if self._yielded_to is None or cache is None else cache.requests.get(self._yielded_to[0])
        if first is None or cache is None or first.state != states.PENDING:
            return []
        its_nodes = [node for node in cache.nodes.values() if node.allocated_to == first.id]
        if not its_nodes or not self._lacks_shared_room(first, its_nodes):
            return []
        return plan.in_the_way(first, its_nodes, self._hooks.nodeset)

    def _lacks_shared_room(self, first: NodeRequest, its_nodes: list[Node]) -> bool:
        """Is it not for the limits of another pool that it waits?"""
        hooks, pool = self._hooks, its_nodes[0].pool or ""
        if pool == hooks.pool.name or not isinstance(hooks.manager, QuotaSupport):
            return True
        settings = hooks.provider.pools.get(pool)
        label = next(iter(plan.missing_labels(first, its_nodes)), None)
        try:
            return settings is not None and label is not None and hooks.manager.poolHasRoom(settings, label)
        except (LookupError, NotKnown):
            # Another launcher knows the pool otherwise.
            return False

    def is_pointless(self) -> bool:
        """After it yielded, would the request only take the same nodes to give them back once more?

        It would until the one that comes first is served or given back, there is room, or free nodes are enough.
        Reads the cache only.
        """
        if self._yielded_to is None:
            return False
        hooks = self._hooks
        first_id, label, provider = self._yielded_to
        first = None if hooks.zk.cache is None else hooks.zk.cache.requests.get(first_id)
        if first is None or first.state != states.PENDING or hooks.provider is not provider:
            return False
        wanted = hooks.request.node_types
        kind = RequestKind.of(hooks.request)
        if hooks.request.reuse and len(hooks.pw.ready_nodes.choose(wanted, kind=kind)) == len(wanted):
            return False
        return not gateway.has_room_now(hooks, label)


# Threads that launch and delete one node, for drivers without a scheduler of their own.


class NodeLauncher(threading.Thread, abc.ABC):
    """Launches one node; the outcome goes to ``node.state`` and to statistics.

    :param node: locked by us, `building`.
    """

    def __init__(self, handler: HandlerHooks, node: Node, provider_config: ProviderConfig | None = None) -> None:
        super().__init__(name=f"NodeLauncher-{node.id}", daemon=True)
        self.handler = handler
        self.node = node
        self.zk: ZooKeeper = handler.zk
        #: Is the outcome stored? ``node.state`` alone does not say so: it is set before it is written.
        self.complete = False
        self.provider_config = provider_config or handler.provider
        self.log = get_annotated_logger(
            logging.getLogger(log_names.NODE_LAUNCHER),
            event_id=handler.request.event_id,
            node_request_id=handler.request.id,
            node_id=node.id,
            trace_id=spans.log_id(handler.request),
        )

    @abc.abstractmethod
    def launch(self) -> None:
        """Launch the node and fill its fields; may block, raises on failure."""

    def run(self) -> None:
        started = monotonic()
        error: Exception | None = None
        # Whatever a driver raises, the node gets its outcome below.
        with Guard(self.log, "Launch failed") as guard:
            try:
                self.launch()
            except TimeoutException as timeout:
                self.log.error("Launch failed: %s", timeout)
                error = timeout
        error = error or guard.error
        try:
            key = self._store(error, started)
        finally:
            self.complete = True
            self.handler.pw.wake()
        text = "" if error is None else str(error) or type(error).__name__
        self.handler.pw.launch_ended(self.node, key, text)
        seconds = monotonic() - started
        reports.report_launch(
            key,
            seconds * 1000,
            provider=self.provider_config.name,
            az=self.node.az,
            requestor=self.handler.request.requestor,
        )
        why = text or ("" if key == states.READY else key)
        spans.attempt_ended(self.handler.request, self.node, self.provider_config.name, 1, seconds, why)

    def _store(self, error: Exception | None, started: float) -> str:
        """Store the outcome; returns the key of the result."""
        # E.g. the driver put something into the node that cannot be stored. What is not stored is not ready.
        with Guard(self.log, "The outcome could not be stored"):
            try:
                self.node.state, key = launch_outcome(error)
                self.zk.storeNode(self.node)
            except ZKConflict as conflict:
                # Someone deleted or took the node: not the request's fault, it gets another one.
                self.log.warning("The outcome could not be stored: %s", conflict)
                self.node.state = states.ABORTED
                return "error.unknown"
            except ZKException as lost:
                # Who took over owns the znode now; for the handler this launch has failed (L-9).
                self.log.warning("The outcome could not be stored: %s", lost)
                self.node.state = states.FAILED
                return "error.zksession"
            if error is None:
                self.log.info("Node is ready after %.1f s", monotonic() - started)
            return key
        self.node.state = states.FAILED
        return "error.unknown"


class NodeDeleter(threading.Thread):
    """Deletes one locked node: cloud first, then the znode (X-3 to X-6).

    Ends with the znode removed, or with the node unlocked and still `deleting`.
    """

    def __init__(self, zk: ZooKeeper, manager: Any, node: Node) -> None:
        super().__init__(name=f"NodeDeleter-{node.id}", daemon=True)
        self.zk = zk
        self.manager = manager
        self.node = node
        #: Why it failed, after the end; None = it did not.
        self.error: BaseException | None = None
        self.log = node_logger(logging.getLogger(log_names.NODE_DELETER), node)

    def delete_machine(self) -> None:
        """Delete the machine in the cloud; blocks until it does not exist any more. Raises what the driver raises."""
        if not self.node.external_id:
            return
        try:
            gateway.cleanup_node(self.manager, self.node.external_id)
            gateway.wait_for_node_cleanup(self.manager, self.node.external_id)
        except NotFound:
            self.log.info("Machine %s does not exist any more", self.node.external_id)

    def run(self) -> None:
        gone = False
        # Whatever a driver raises, the node must not stay locked.
        with Guard(self.log, "Deletion failed, it will be tried again") as guard:
            try:
                if self.node.state != states.DELETING:
                    self.node.state = states.DELETING
                    self.zk.storeNode(self.node)
                self.delete_machine()
                self.zk.deleteNode(self.node)
                gone = True
            except (TimeoutException, ZKException) as error:
                self.error = error
                self.log.error("Deletion failed, it will be tried again: %s", error)
        self.error = self.error or guard.error
        if gone:
            self.log.info("Deleted node of provider %s", self.node.provider)
            gateway.node_deleted_notification(self.manager, self.node)
        else:
            self._unlock()

    def _unlock(self) -> None:
        if self.node.lock is None:
            return
        try:
            self.zk.unlockNode(self.node)
        except ZKException as error:
            self.log.error("Unlocking failed: %s", error)


# Loggers whose messages say which node they are about, and for which request and event it was (rule J-10).


def node_logger(logger: logging.Logger | logging.LoggerAdapter[logging.Logger], node: Node) -> AnnotatedLogger:
    """A logger for one node. What its record does not tell is left out; ids that the logger has already stay.

    :param node: also one that is given back or deleted: its record keeps the ids.
    """
    return get_annotated_logger(
        logger,
        event_id=node.request_event_id,
        node_request_id=node.allocated_to,
        node_id=node.id,
        provider=node.provider,
        pool=node.pool,
        label=node.type[0] if len(node.type) == 1 else None,
    )
