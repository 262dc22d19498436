# SPDX-License-Identifier: Apache-2.0
"""Deletions: of a node with its instance (rules X), and of an instance that has no node."""

from __future__ import annotations

import abc
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from nodepool import log_names
from nodepool.clock import monotonic
from nodepool.driver.framework.handler_hooks import node_logger
from nodepool.driver.framework.rate import HeldTime, TimeLimit
from nodepool.driver.interface import Done
from nodepool.driver.statemachine.calls import Removal
from nodepool.driver.statemachine.launch import CloudProviderView
from nodepool.driver.statemachine.lost_creations import Search
from nodepool.exceptions import LaunchError, ServerDeleteTimeoutException, ZKException
from nodepool.model import states

if TYPE_CHECKING:
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.model.node import Node

#: Seconds after which a deletion is given up, to be begun again; less than the launcher's own patience (X-5).
DELETE_SECONDS: Final = 590.0
#: Pause while a launch of the same node is brought to its end.
LAUNCH_END_SECONDS: Final = 0.1


class Deletion(Done):
    """A task of the scheduler, with its time limit."""

    def __init__(self, provider: CloudProviderView, log: Log, clock: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._provider = provider
        self.log = log
        self.held = HeldTime(clock)
        self._limit = TimeLimit(DELETE_SECONDS, self.held, clock)
        self._removal: Removal | None = None

    @property
    def left(self) -> float:
        """Seconds until it is given up."""
        return self._limit.left

    def _wake(self) -> None:
        self._provider.scheduler.wake(self)

    @abc.abstractmethod
    def step(self) -> float | None:
        """See `nodepool.driver.statemachine.scheduler.Task`."""


class NodeDeletion(Deletion):
    """Deletes one locked node: cloud first, then the znode.

    Ends with the znode gone, or with the node unlocked and still `deleting`.
    """

    def __init__(self, provider: CloudProviderView, node: Node, clock: Callable[[], float] = monotonic) -> None:
        log = node_logger(logging.getLogger(log_names.state_machine_deleter(provider.name)), node)
        super().__init__(provider, log, clock)
        self._node = node
        self._phase: Callable[[], float | None] = self._begin
        self._search: Search | None = None
        self._targets: list[Any] = []

    def step(self) -> float | None:
        try:
            if self._node.lock is None:
                self.log.warning("Deletion stops: the lock of the node was lost")
            elif self._limit.left <= 0:
                raise ServerDeleteTimeoutException(f"instance {self._node.external_id} is still there")
            else:
                wait = self._phase()
                if wait is not None:
                    return wait
        except Exception as error:  # noqa: BLE001 - logged in there
            self._failed(error)
        self.set()
        return None

    def _begin(self) -> float | None:
        launch = self._provider.launch_of(self._node.key)
        if launch is not None:
            # It may be in the middle of the creation: what it makes must be known here.
            launch.abandon()
            if not launch.complete:
                return LAUNCH_END_SECONDS
            self._node.external_id = self._node.external_id or launch.external_id
        if self._node.state != states.DELETING:
            self._node.state = states.DELETING
            self._zk.storeNode(self._node)
        if self._node.external_id:
            self._targets = [self._node.external_id]
            self._phase = self._remove
        elif self._provider.left_nothing(self._node.key):
            # Searched for, it would keep its place in the quota for seconds.
            self._phase = self._remove
        else:
            self._search = self._provider.finder.search(self._node.key, self._wake, may_be_late=True)
            self._phase = self._look
        return self._phase()

    @property
    def _zk(self) -> Any:
        return self._provider.zk

    def _look(self) -> float | None:
        """The creation may have given no answer: is there an instance of this node?"""
        assert self._search is not None
        wait = self._search.step()
        if wait is not None:
            return wait
        self._targets = self._search.found
        if self._targets:
            self.log.warning("Found instance(s) %s of the node", self._targets)
        # One whose creation was on its way when its launcher died may still come.
        self._provider.look_for_leaks_soon()
        self._phase = self._remove
        return self._remove()

    def _remove(self) -> float | None:
        while self._targets:
            if self._removal is None:
                self._removal = Removal(
                    (self._provider.name, self._provider.adapter), self._targets[0], self.log, self._wake
                )
            wait = self._removal.step()
            if wait is not None:
                return wait
            self._removal = None
            self._targets.pop(0)
        self._provider.calls.worked()
        self._zk.deleteNode(self._node)
        self.log.info("Deleted node of provider %s", self._node.provider)
        self._provider.node_deleted(self._node)
        return None

    def _failed(self, error: Exception) -> None:
        self.error = error
        self._provider.calls.judge(error)
        if isinstance(error, (LaunchError, OSError, ZKException)) or self._provider.calls.circuit_open:
            self.log.error("Deletion failed, it will be tried again: %s: %s", type(error).__name__, error)
        else:
            self.log.error("Deletion failed, it will be tried again", exc_info=error)
        if self._node.lock is None:
            return
        try:
            self._zk.unlockNode(self._node)
        except ZKException as problem:
            self.log.error("Unlocking failed: %s", problem)


class InstanceDeletion(Deletion):
    """Deletes one instance.

    :param persistent: try again after an error, with a growing pause, as long as the provider works. Else ``error``
        says why it failed.
    """

    def __init__(self, provider: CloudProviderView, external_id: Any, log: Log, *, persistent: bool) -> None:
        super().__init__(provider, log)
        self._external_id = external_id
        self._persistent = persistent
        self._removal = Removal(
            (provider.name, provider.adapter), external_id, log, self._wake, self._may_be_done_later
        )

    def _may_be_done_later(self, error: Exception) -> bool:
        self._provider.calls.judge(error)
        return self._persistent and self.left > 0

    def step(self) -> float | None:
        in_time = self.left > 0
        assert self._removal is not None
        try:
            wait = self._removal.step()
            if wait is not None and in_time:
                return wait
            if wait is not None:
                self.error = ServerDeleteTimeoutException(f"instance {self._external_id} is still there")
        except Exception as error:  # noqa: BLE001 - logged below, raised by those who wait
            self.error = error
        if self.error is not None:
            self.log.error("Instance %s could not be deleted: %s", self._external_id, self.error)
        self.set()
        return None
