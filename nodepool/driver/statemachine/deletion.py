# SPDX-License-Identifier: Apache-2.0
"""Deletions of instances, from the top down (rules X).

First what a provider is asked for, then a deletion as a task of its scheduler: of a node with its instance, and of an
instance that has no node. Both have the instance deleted (`removal`), which takes a machine of the adapter: for an
`InstanceCloud` that is a `DeletionMachine`.
"""

from __future__ import annotations

import abc
import logging
import math
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final, cast

from nodepool import exceptions, log_names
from nodepool.clock import monotonic
from nodepool.driver import gateway
from nodepool.driver.framework.cloud_errors import NotFoundByProxy
from nodepool.driver.framework.handler_hooks import node_logger
from nodepool.driver.framework.rate import Driven, HeldTime, TimeLimit
from nodepool.driver.interface import Done
from nodepool.driver.statemachine.adapter import Log
from nodepool.driver.statemachine.cloud import CloudProvider
from nodepool.driver.statemachine.instance import InstanceCloud, InventoryMachine, cloud_is_away
from nodepool.driver.statemachine.inventory import R
from nodepool.exceptions import LaunchError, NotFound
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.plan.retries import Backoff
from nodepool.zk.zookeeper import ZooKeeper

#: So much longer than a deletion may take its end is waited for.
WAIT_LONGER_SECONDS: Final = 10.0


class DeletingProvider(CloudProvider):
    """What the launcher has deleted by its provider."""

    def _take_on(self, deletion: Deletion) -> None:
        if not self.scheduler.add(deletion, deletion.held):
            raise RuntimeError(f"provider {self.name} has ended")

    def startNodeCleanup(self, node: Node) -> NodeDeletion:
        task = NodeDeletion(self, node)
        self._take_on(task)
        return task

    def delete_orphan(self, external_id: Any, log: Log) -> InstanceDeletion:
        """Delete an instance that no node uses, in the background."""
        deletion = InstanceDeletion(self, external_id, log, persistent=True)
        if not self.scheduler.add(deletion, deletion.held):
            # The provider has ended.
            deletion.set()
        return deletion

    def cleanupNode(self, node_id: Any) -> None:
        task = InstanceDeletion(self, node_id, self.log, persistent=False)
        self._take_on(task)
        with self._lock:
            self._cleanups[str(node_id)] = task

    def waitForNodeCleanup(self, node_id: Any) -> None:
        with self._lock:
            task: InstanceDeletion | None = self._cleanups.pop(str(node_id), None)
        if task is None:
            return
        while task.is_alive() and (left := task.limit.left + WAIT_LONGER_SECONDS) > 0:
            task.join(left)
        if task.is_alive():
            raise exceptions.ServerDeleteTimeoutException(f"instance {node_id} is still there")
        if task.error is not None:
            raise task.error

    def node_deleted(self, node: Node) -> None:
        """The znode of a node does not exist any more."""
        with self._lock:
            self._unmade.pop(node.key, None)
        gateway.node_deleted_notification(self, node)


# The tasks.

#: Seconds after which a deletion is given up, to be begun again; less than the launcher's own patience (X-5).
DELETE_SECONDS: Final = 590.0
#: Pause while a launch of the same node is brought to its end.
LAUNCH_END_SECONDS: Final = 0.1


class Deletion(Done, abc.ABC):
    """A task of the scheduler, with its time limit."""

    #: Yields the seconds until the next step.
    _steps: Iterator[float]

    def __init__(self, provider: DeletingProvider, external_id: Any, log: Log) -> None:
        super().__init__()
        self._provider = provider
        self._external_id = external_id
        self.log = log
        self.held = HeldTime()
        #: Until it is given up.
        self.limit = TimeLimit(DELETE_SECONDS, self.held)

    def step(self) -> float | None:
        """See `nodepool.driver.framework.rate.Task`."""
        try:
            wait = next(self._steps, None)
            if wait is not None and self.limit.left > 0:
                return wait
            if wait is not None:
                raise exceptions.ServerDeleteTimeoutException(f"instance {self._external_id} is still there")
        except Exception as error:  # noqa: BLE001 - logged in there
            self.error = error
            self._failed(error)
        self.set()
        return None

    @abc.abstractmethod
    def _failed(self, error: Exception) -> None:
        """It has ended with this. Does not raise."""

    def _wake(self) -> None:
        self._provider.scheduler.wake(self)


class NodeDeletion(Deletion):
    """Deletes one locked node: cloud first, then the znode.

    Ends with the znode removed, or with the node unlocked and still `deleting`.
    """

    def __init__(self, provider: DeletingProvider, node: Node) -> None:
        log = node_logger(logging.getLogger(log_names.state_machine_deleter(provider.name)), node)
        super().__init__(provider, node.external_id, log)
        self._node = node
        self._steps = self._run()

    def step(self) -> float | None:
        if self._node.lock is not None:
            return super().step()
        self.log.warning("Deletion stops: the lock of the node was lost")
        self.set()
        return None

    def _run(self) -> Iterator[float]:
        node, provider, zk = self._node, self._provider, cast("ZooKeeper", self._provider.zk)
        launch = provider.launch_of(node.key)
        if launch is not None:
            # It may be in the middle of the creation: what it makes must be known here.
            launch.abandon()
            while not launch.complete:
                yield LAUNCH_END_SECONDS
            node.external_id = node.external_id or launch.node.external_id
        if node.state != states.DELETING:
            node.state = states.DELETING
            zk.nodes.save(node)
        targets = [node.external_id] if node.external_id else []
        # Searched for in vain, it would keep its place in the quota for seconds.
        if not targets and not provider.left_nothing(node.key):
            # The creation may have given no answer.
            targets = yield from provider.finder.search(node.key, self._wake, may_be_late=True)
            if targets:
                self.log.warning("Found instance(s) %s of the node", targets)
            # One whose creation was on its way when its launcher died may still come.
            provider.look_for_leaks_soon()
        for external_id in targets:
            self._external_id = external_id
            yield from removal(provider, external_id, self.log, self._wake, lambda _: False)
        provider.calls.worked()
        zk.nodes.remove(node)
        self.log.info("Deleted node of provider %s", node.provider)
        provider.node_deleted(node)

    def _failed(self, error: Exception) -> None:
        self._provider.calls.judge(error)
        if (
            isinstance(error, (exceptions.LaunchError, OSError, exceptions.ZKException))
            or self._provider.calls.circuit_open
        ):
            self.log.error("Deletion failed, it will be tried again: %s: %s", type(error).__name__, error)
        else:
            self.log.error("Deletion failed, it will be tried again", exc_info=error)
        if self._node.lock is None:
            return
        try:
            cast("ZooKeeper", self._provider.zk).unlockNode(self._node)
        except exceptions.ZKException as problem:
            self.log.error("Unlocking failed: %s", problem)


class InstanceDeletion(Deletion):
    """Deletes one instance.

    :param persistent: try again after an error, with a growing pause, as long as the provider works. Else ``error``
        says why it failed.
    """

    def __init__(self, provider: DeletingProvider, external_id: Any, log: Log, *, persistent: bool) -> None:
        super().__init__(provider, external_id, log)
        self._persistent = persistent
        self._steps = removal(provider, external_id, log, self._wake, self._may_be_done_later)

    def _may_be_done_later(self, error: Exception) -> bool:
        self._provider.calls.judge(error)
        return self._persistent and self.limit.left > 0

    def _failed(self, error: Exception) -> None:
        """Those who wait for it raise the error."""
        self.log.error("Instance %s could not be deleted: %s", self._external_id, error)


# `removal`: what a launch, too, has done with what it made.

#: Seconds after which another machine deletes an instance on which the last one had no effect: the cloud may have
#: swallowed the deletion.
ANOTHER_MACHINE: Final = Backoff(20.0, math.inf)
#: From a deletion of an instance that failed to the next attempt.
AFTER_ERROR: Final = Backoff(1.0, 60.0)


def removal(
    provider: CloudProvider,
    external_id: Any,
    log: Log,
    wake: Callable[[], None],
    try_again: Callable[[Exception], bool],
) -> Iterator[float]:
    """Delete one instance completely. What had no effect is sent again after a while.

    Yields the seconds until the next step; it ends when the instance is deleted. Raises what the driver raises.

    :param wake: makes the next step due now.
    :param try_again: is an error one that another attempt may get over?
    """
    failures = sent = 0
    while True:
        try:
            machine = gateway.get_delete_state_machine(provider.name, provider.adapter, external_id, log)
            driven = Driven(provider.name, machine, wake)
            sent += 1
            resend_at = math.inf if machine.resends else monotonic() + ANOTHER_MACHINE.pause(sent)
            while (now := monotonic()) < resend_at:
                _, wait = driven.advance()
                if machine.complete:
                    return
                yield min(wait, max(0.0, resend_at - now))
            continue
        except exceptions.NotFound:
            return
        except Exception as error:
            # The deletion's end says so, unless it is worth another attempt.
            if not try_again(error):
                raise
            log.warning("Instance %s could not be deleted, trying again: %s", external_id, error)
            failures, sent = failures + 1, 0
        yield AFTER_ERROR.pause(failures)


# `DeletionMachine`: the deletion of one instance of an `InstanceCloud`, in steps, until it does not exist any more.
#
# ::
#
#     start -> [preparing] -> deleting -> waiting -> [clearing] -> complete
#                                ^           |
#                                +-----------+        (it had no effect: once more, each time a little later)

#: After how long a deletion that shows no effect is sent again.
RESEND: Final = Backoff(2.0, 60.0)
#: The same for one that the cloud has begun.
BEGUN_RESEND_SECONDS: Final = 60.0
#: When to look again for a list that is new enough to say so.
UNLISTED_SECONDS: Final = 1.0
#: Between two attempts after an error.
RETRY: Final = Backoff(0.5, 30.0)
#: A cloud that does not answer so many times in a row is away: the framework must know.
AWAY_ANSWERS: Final = 4
#: A proxy may have its own page for each 404 of the cloud. An instance that so many complete lists in a row lack, each
#: after such a page, is deleted.
PROXY_ANSWERS: Final = 4


class DeletionMachine(InventoryMachine[R]):
    """A short error of the cloud is waited out; a longer one is an error, and the framework tries again.

    :param external_id: of the instance, as the node names it; nothing is deleted if that is no id of an instance.
    """

    PREPARING: ClassVar[str] = "preparing"
    DELETING: ClassVar[str] = "deleting"
    WAITING: ClassVar[str] = "waiting"
    CLEARING: ClassVar[str] = "clearing"

    resends: ClassVar[bool] = True

    def __init__(self, cloud: InstanceCloud[R], external_id: Any, log: Log) -> None:
        super().__init__(cloud, log)
        self.external_id = self.record_id = cloud.record_id(external_id)
        #: Deletions that were accepted.
        self._accepted = 0
        #: Errors in a row.
        self._errors = 0
        #: Deletions that were answered, by the cloud or by a proxy.
        self._answers = 0
        #: Answers 404 of a proxy about the instance, since a list has shown it.
        self._by_proxy = 0
        #: Has a list shown the instance?
        self._shown = False
        #: When the last deletion was answered, and when to send the next.
        self._accepted_at = float("-inf")
        self._resend_at = float("inf")
        self._not_before = float("-inf")
        #: When the first deletion was sent: the instance is older than that.
        self._first_sent_at: float | None = None

    # -- what the driver says --

    def before(self, record: R | None) -> Callable[[], Any] | None:
        """What must go before the instance, as a call that blocks; None = nothing.

        :param record: the instance as last seen.
        """
        return None

    def after(self) -> Callable[[], Any] | None:
        """What may be left after the instance and must go, too, as a call that blocks; None = nothing.

        Also asked if there never was an instance.
        """
        return None

    def begun(self, record: R) -> bool:
        """Does the cloud work on the deletion? Then it is not sent again soon."""
        return False

    def busy(self, error: LaunchError) -> bool:
        """Did the cloud refuse the deletion only for now?"""
        return False

    # -- steps --

    def lets_go_on(self, record: R | None) -> bool:
        # That the cloud has begun makes the next resend later; the step that would send looks at that.
        return record is None or not self.begun(record)

    def _start(self) -> bool:
        if not self.external_id:
            return self._clear()
        if self.cloud.gone_already(self.external_id):
            return self._gone()
        call = self.before(self.cloud.inventory.get(self.external_id))
        if call is not None:
            self.call(call)
            return self.go(self.PREPARING)
        return self._send()

    def _preparing(self) -> bool:
        if not self.calling:
            return self.reached(self._not_before) and self.go(self.START)
        return self._side_call_is_over() and self._send()

    def _side_call_is_over(self) -> bool:
        """Is what goes with the instance deleted, or is it known that it will not? A refusal does not keep the rest."""
        if not self.answered:
            return False
        try:
            self.answer()
        except NotFound:
            return True
        except (LaunchError, OSError) as error:
            # What a proxy says of it may be so for ever.
            if cloud_is_away(error) and not isinstance(error, NotFoundByProxy):
                return self._error(error)
            self.log.warning("What belongs to instance %s could not be removed: %s", self.external_id, error)
        return True

    def _send(self) -> bool:
        record_id = self.external_id
        if self._first_sent_at is None:
            self._first_sent_at = monotonic()
        self._shown = self._shown or self.cloud.inventory.get(record_id) is not None
        if self._waiter is None:
            self.wait_for("delete", record_id)
        self.await_call(self.cloud.begin_deletion(record_id))
        return self.go(self.DELETING)

    def _deleting(self) -> bool:
        if not self.calling:
            return self.reached(self._not_before) and self._send()
        if not self.answered:
            return False
        try:
            self.answer()
        except NotFound:
            return self._unknown()
        except NotFoundByProxy as error:
            self.log.warning("Instance %s: %s; lists will show whether it is there", self.external_id, error)
        except (LaunchError, OSError) as error:
            if cloud_is_away(error) or (isinstance(error, LaunchError) and self.busy(error)):
                return self._error(error)
            raise
        else:
            self._accepted += 1
        self._errors = 0
        self._answers += 1
        self._accepted_at = monotonic()
        self._resend_at = self._accepted_at + RESEND.pause(self._answers)
        return self.go(self.WAITING)

    def _unknown(self) -> bool:
        """The cloud does not know the instance: it is deleted, or so new that not all of the cloud knows it yet."""
        assert self._first_sent_at is not None
        old_at = self._first_sent_at + self.cloud.lag_seconds
        if self._accepted or not self.cloud.new_may_be_unknown or monotonic() >= old_at:
            return self._gone()
        self.log.debug("Instance %s is not known, it may be too new; asked again in a while", self.external_id)
        self._not_before = old_at
        self.reached(old_at)
        return False

    def _waiting(self) -> bool:
        inventory = self.cloud.inventory
        if inventory.is_gone(self.external_id):
            return self._gone()
        if self.calling:
            return self._asked()
        record = inventory.get(self.external_id)
        if record is None:
            if not self._ask():
                # The list that makes it certain may have no news of this instance.
                self.next_advance_seconds = UNLISTED_SECONDS
            return False
        self._shown = True
        self._by_proxy = 0
        # What a list shows that began before the deletion was accepted, or too soon after, is no reason to repeat it.
        shows_at = self._accepted_at + self.cloud.lag_seconds
        due = max(self._resend_at, shows_at)
        if self.begun(record):
            due = max(due, self._accepted_at + BEGUN_RESEND_SECONDS)
        if not self.reached(due):
            return False
        if inventory.listed_at <= shows_at:
            self.next_advance_seconds = UNLISTED_SECONDS
            return False
        self.log.warning("Instance %s is still there (%s), deleting it once more", self.external_id, record.status)
        return self._send()

    def _ask(self) -> bool:
        """Have it proved that the instance is deleted, if the lists give reason to think so."""
        inventory, cloud, record_id = self.cloud.inventory, self.cloud, self.record_id
        assert record_id is not None
        if self._shown and cloud.absence_is_proved and inventory.complete_at > self._accepted_at:
            # It was in the lists, and is not any more: the proof makes it certain, however late lists are.
            self.await_call(cloud.begin_proof(record_id))
        elif (
            inventory.absence_is_certain(self._accepted_at)
            or monotonic() - self._accepted_at >= inventory.absent_seconds
        ):
            self.ask_itself()
        else:
            return False
        return True

    def _asked(self) -> bool:
        """The instance itself was asked for, because it is in no list."""
        if not self.answered:
            return False
        try:
            record = self.own_answer(LaunchError)
        except (NotFound, NotImplementedError):
            # NotImplementedError: the cloud has lists only, and these do not have it.
            return self._gone()
        except NotFoundByProxy as error:
            self._by_proxy += 1
            if self._by_proxy == PROXY_ANSWERS:
                return self._gone()
            self.log.debug("Instance %s: %s", self.external_id, error)
            record = None
        if record is not None and record.gone:
            return self._gone()
        if monotonic() >= self._resend_at and not (record is not None and self.begun(record)):
            return self._send()
        # Ask again after the next complete list.
        self._accepted_at = monotonic()
        return False

    def _gone(self) -> bool:
        assert self.external_id is not None
        self.cloud.inventory.set_gone(self.external_id, was_there=self._shown or self._accepted > 0)
        self.cloud.creations.deleted(self.external_id)
        self.stop_waiting(True)
        return self._clear()

    def _clear(self) -> bool:
        call = self.after()
        if call is not None:
            self.call(call)
            return self.go(self.CLEARING)
        self.end()
        return False

    def _clearing(self) -> bool:
        if not self.calling:
            return self.reached(self._not_before) and self._clear()
        if self._side_call_is_over():
            self.end()
        return False

    def _error(self, error: Exception) -> bool:
        """Wait a little; returns False."""
        self._errors += 1
        busy = isinstance(error, LaunchError) and self.busy(error)
        if cloud_is_away(error) and not busy and self._errors >= AWAY_ANSWERS:
            raise error
        pause = RETRY.pause(self._errors)
        self.log.warning("Instance %s: %s; tried again in %g s", self.external_id, error, pause)
        self._not_before = monotonic() + pause
        self.reached(self._not_before)
        return False
