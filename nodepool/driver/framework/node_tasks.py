# SPDX-License-Identifier: Apache-2.0
"""Threads that launch and delete one node, for drivers without a scheduler of their own; then the loggers of nodes."""

from __future__ import annotations

import abc
import logging
import threading
from typing import TYPE_CHECKING, Any

from nodepool import log_names
from nodepool.clock import monotonic
from nodepool.driver import gateway
from nodepool.exceptions import NotFound, TimeoutException, ZKConflict, ZKException
from nodepool.guard import Guard
from nodepool.logconfig import AnnotatedLogger, get_annotated_logger
from nodepool.metrics import reports
from nodepool.model import states
from nodepool.plan.launch import launch_outcome
from nodepool.tracing import spans

if TYPE_CHECKING:
    from nodepool.driver.config import ProviderConfig
    from nodepool.driver.handler import NodeRequestHandler
    from nodepool.model.node import Node
    from nodepool.zk.zookeeper import ZooKeeper


class NodeLauncher(threading.Thread, abc.ABC):
    """Launches one node; the outcome goes to ``node.state`` and to statistics.

    :param node: locked by us, `building`.
    """

    def __init__(self, handler: NodeRequestHandler, node: Node, provider_config: ProviderConfig | None = None) -> None:
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
        self.handler.pw.launch_ended(self.node, key, "" if error is None else str(error) or type(error).__name__)
        seconds = monotonic() - started
        reports.report_launch(
            key,
            seconds * 1000,
            provider=self.provider_config.name,
            az=self.node.az,
            requestor=self.handler.request.requestor,
        )
        why = str(error) or type(error).__name__ if error is not None else "" if key == states.READY else key
        spans.attempt_ended(self.handler.request, self.node, self.provider_config.name, 1, seconds, why)

    def _store(self, error: Exception | None, started: float) -> str:
        """Store the outcome; returns the key of the result."""
        # E.g. the driver put something into the node that cannot be stored. What is not stored is not ready.
        with Guard(self.log, "The outcome could not be stored"):
            try:
                self.node.state, key = launch_outcome(error)
                self.zk.storeNode(self.node)
            except ZKConflict as conflict:
                # Somebody deleted or took the node: not the request's fault, it gets another one.
                self.log.warning("The outcome could not be stored: %s", conflict)
                self.node.state = states.ABORTED
                return "error.unknown"
            except ZKException as lost:
                # Whoever took over owns the znode now; for the handler this launch has failed (L-9).
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

    Ends with the znode gone, or with the node unlocked and still `deleting`.
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
