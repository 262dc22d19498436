# SPDX-License-Identifier: Apache-2.0
"""`Launch`: one node on its way from `building` to `ready` (behaviour.md L).

A launch goes through phases; each is a method that does what can be done now and returns how long to wait::

    begin -> create -> [scan] -> ready
      ^         |         |
      |         v         v        (a failure)
      |       look for instances whose creation has no answer
      |         |
      +- clean -+--> failed or aborted
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from nodepool.clock import monotonic
from nodepool.driver.framework.outcome import launch_outcome
from nodepool.driver.statemachine import failed_scan, metadata, record
from nodepool.driver.statemachine.machine import StateMachine
from nodepool.driver.statemachine.removal import Driven, Removal, Search
from nodepool.driver.statemachine.scheduler import WHEN_WOKEN_SECONDS
from nodepool.exceptions import (
    LaunchError,
    LaunchKeyscanException,
    LaunchNetworkException,
    LaunchStatusException,
    ServerCreateTimeoutException,
    ZKConflict,
    ZKException,
)
from nodepool.logconfig import get_annotated_logger
from nodepool.metrics import launches
from nodepool.model import states
from nodepool.plan import launch as plan
from nodepool.plan.launch import Abort, Failure, Retry

if TYPE_CHECKING:
    from nodepool.driver.statemachine.handler import StateMachineHandler
    from nodepool.driver.statemachine.instance import Instance
    from nodepool.driver.statemachine.provider import StateMachineProvider
    from nodepool.model.node import Node

Phase = Callable[[], "float | None"]


class Launch:
    """A task of the scheduler. Everything belongs to the step that runs; others read ``complete`` and `abandon`.

    :param node: locked by us, `building`, stored.
    """

    def __init__(
        self,
        provider: StateMachineProvider,
        handler: StateMachineHandler,
        node: Node,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        # Looked up now: a reload replaces what the handler refers to, and this launch shall finish (L-17).
        self._provider = provider
        self._handler = handler
        self._config: Any = provider.provider
        self._pool = handler.pool
        self._label = handler.pool.labels[node.type[0]]
        self._request = handler.request
        self._zk = handler.zk
        self._wake_worker = handler.pw.wake
        self.node = node
        self._clock = clock
        self.log = get_annotated_logger(
            logging.getLogger("nodepool.driver.statemachine.Launch"),
            event_id=handler.request.event_id,
            node_request_id=handler.request.id,
            node_id=node.id,
        )
        #: Is the outcome stored? ``node.state`` alone does not say so: it is set before it is written.
        self.complete = False
        #: Is it sure that there is no instance of this node? Only of interest afterwards.
        self.nothing_made = True
        #: The same, known when the launch has ended and its outcome is stored: its node need not be searched for.
        self.left_nothing = False
        #: Did the cloud say that a quota is used up?
        self.over_quota = False
        #: Somebody else deletes the node: end without a word.
        self._abandoned = False
        self._begun = clock()
        self._attempt = 1
        self._attempt_begun = self._begun
        self._phase: Phase = self._begin
        self._driven: Driven | None = None
        self._scan: Future[tuple[str, ...]] | None = None
        self._error: Exception | None = None
        self._search: Search | None = None
        self._to_remove: list[Any] = []
        self._removal: Removal | None = None

    @property
    def external_id(self) -> Any:
        """Of the instance, as far as it is known."""
        return self.node.external_id

    def abandon(self) -> None:
        """Stop soon; the node is somebody else's now. Any thread; does not block."""
        self._abandoned = True
        self._wake()

    def _wake(self) -> None:
        self._provider.scheduler.wake(self)

    def step(self) -> float | None:
        """See `nodepool.driver.statemachine.scheduler.Task`."""
        if self._abandoned:
            self.log.info("Launch given up: the node is being deleted")
            self.node.state = states.FAILED
            self._complete()
            return None
        try:
            return self._guarded_phase()
        except ZKConflict as conflict:
            return self._taken(conflict)
        except Exception:
            # Whatever it is, the request must not wait for ever.
            self.log.exception("Launch given up")
            self.node.state = states.FAILED
            self._complete()
            return None

    def _guarded_phase(self) -> float | None:
        try:
            return self._phase()
        except ZKConflict:
            raise
        except Exception as error:  # noqa: BLE001 - logged where it is judged
            return self._failed(error)

    # -- phases --

    def _begin(self) -> float | None:
        """L-1: find the image, make the machine."""
        if not self._zk.surelyLocked(self.node):
            # Cut off from ZooKeeper: the node may be deleted by somebody else just now, and its place filled.
            return plan.LAST_PACE_SECONDS
        image_id, image_name = self._provider.image_of(self._label)
        self.node.image_id = image_name
        machine = self._provider.make_create_machine(
            record.hostname_of(self.node),
            self._label,
            image_id,
            metadata.for_node(self.node.key, self._pool.name, self._config.name),
            self._request,
            self.node.az,
            self.log,
        )
        machine.wanted = lambda: self._wants(machine)
        self._driven = Driven(machine, self._wake)
        self._phase = self._create
        return self._create()

    def _wants(self, machine: StateMachine) -> bool:
        """Is this the machine of the current attempt, and the node ours beyond doubt? Asked from any thread."""
        driven = self._driven
        try:
            return (
                driven is not None
                and driven.machine is machine
                and not self._abandoned
                and not self.complete
                # Else the request was handed over at the end of the launcher.
                and not self._handler.done
                and self._zk.surelyLocked(self.node)
            )
        except ZKConflict:
            return False

    def _create(self) -> float | None:
        assert self._driven is not None
        machine = self._driven.machine
        left: float = self._attempt_begun + self._config.launch_timeout - self._clock()
        if left <= 0:
            raise ServerCreateTimeoutException(
                f"no instance within launch-timeout of {self._config.launch_timeout:g} s, "
                f"it got as far as {machine.state!r}"
            )
        try:
            instance, wait = self._driven.advance()
        finally:
            self._note_id(machine)
        if not machine.complete:
            return min(wait, max(0.0, left))
        self._provider.calls.worked()
        if instance is None:
            raise LaunchStatusException("the driver said that the instance is complete, but not what it is")
        return self._created(instance)

    def _note_id(self, machine: StateMachine) -> None:
        """L-3: store the id at once. Whoever finds the node after a crash knows what to delete."""
        if machine.external_id is None or machine.external_id == self.node.external_id:
            return
        self.node.external_id = machine.external_id
        self.log.info("Instance %s was created", machine.external_id)
        self._provider.calls.worked()
        self._zk.storeNode(self.node)

    def _created(self, instance: Instance) -> float | None:
        node = self.node
        node.hostname = record.hostname_of(node)
        record.take_instance(node, instance, self._pool)
        if node.interface_ip is None:
            raise LaunchNetworkException(f"instance {node.external_id} has no address that could be used")
        if not self._label.host_key_checking:
            return self._end(states.READY, "ready")
        self._scan = self._provider.scans.scan(
            node.interface_ip, node.connection_port, self._config.boot_timeout, node.connection_type
        )
        self._scan.add_done_callback(lambda _: self._wake())
        self._phase = self._scanned
        return WHEN_WOKEN_SECONDS

    def _scanned(self) -> float | None:
        assert self._scan is not None
        if not self._scan.done():
            return WHEN_WOKEN_SECONDS
        try:
            keys = self._scan.result()
        except LaunchKeyscanException:
            failed_scan.tell(self._provider.adapter, self._label, self.node.external_id, self.log)
            raise
        if not self.node.host_keys:
            self.node.host_keys = list(keys)
        return self._end(states.READY, "ready")

    # -- failures --

    def _failed(self, error: Exception) -> float | None:
        """An attempt ended badly; whether there is another shows when the cloud was asked what it left behind."""
        kind = plan.classify(error)
        text = f"Attempt {self._attempt} of {self._config.launch_retries} failed"
        if isinstance(error, (LaunchError, OSError, ZKException)):
            self.log.error("%s: %s: %s", text, type(error).__name__, error)
        else:
            self.log.error(text, exc_info=error)
        self._report(launch_outcome(error)[1])
        self._provider.calls.judge(error)
        if kind is Failure.QUOTA:
            self.over_quota = True
            self._provider.ceilings.refused(self._pool.name, self._label.name, self.node.key)
            self._provider.invalidateQuotaCache()
        elif kind is Failure.CONFIGURATION:
            self._provider.label_is_broken(self._label.name, error)
        self._error = error
        if self.node.external_id is not None or plan.may_have_made_an_instance(kind):
            self.nothing_made = False
        self._driven = self._scan = self._removal = None
        unsure = self.node.external_id is None and plan.may_have_made_an_instance(kind) and not self._to_remove
        lost = plan.answer_was_lost(kind)
        if kind is not Failure.ZOOKEEPER and (unsure or lost):
            late = unsure and lost and not getattr(error, "searched", False)
            self._search = Search(lambda: self._provider.finder.find(self.node.key), self._wake, may_be_late=late)
            self._phase = self._look
            return self._look()
        return self._decide()

    def _look(self) -> float | None:
        """Is there an instance although nobody told us (two for one node must never be)? Is the cloud there at all?"""
        assert self._search is not None
        left = self._attempt_begun + self._config.launch_timeout - self._clock()
        try:
            wait = self._search.step()
        except Exception as error:  # noqa: BLE001 - whatever it is, the cloud has not answered
            if self._provider.calls.resting or left <= 0:
                return self._decide(cloud_away=True)
            self.log.warning("Instances cannot be listed, asking again: %s", error)
            return plan.LAST_PACE_SECONDS
        if wait is not None:
            return wait
        for external_id in self._search.found:
            if external_id != self.node.external_id:
                self.log.warning("The creation gave no answer, but there is instance %s", external_id)
                self._to_remove.append(external_id)
        return self._decide()

    def _decide(self, cloud_away: bool = False) -> float | None:
        assert self._error is not None
        kind = plan.classify(self._error)
        away = cloud_away or self._provider.calls.resting
        decision = plan.after_failure(kind, self._attempt, self._config.launch_retries, cloud_rests=away)
        if isinstance(decision, Retry):
            self._attempt += 1
            self._attempt_begun = self._clock() + decision.delay_seconds
            self._phase = self._clean
            return decision.delay_seconds
        if self.node.external_id is None and self._to_remove:
            self.node.external_id = self._to_remove[0]
        self.log.info("Launch given up: %s", decision.reason)
        return self._end(states.ABORTED if isinstance(decision, Abort) else states.FAILED, None)

    def _clean(self) -> float | None:
        """L-4: before another attempt, what the last one made must be gone."""
        while True:
            if self._removal is None:
                if self.node.external_id is not None:
                    target = self.node.external_id
                elif self._to_remove:
                    target = self._to_remove.pop()
                else:
                    self._phase = self._begin
                    return 0.0
                self.log.info("Deleting instance %s before the next attempt", target)
                self._removal = self._provider.removal_of(target, self.log, self._wake)
            left: float = self._attempt_begun + self._config.launch_timeout - self._clock()
            if left <= 0:
                raise ServerCreateTimeoutException("the previous instance was not deleted within launch-timeout")
            wait = self._removal.step()
            if wait is not None:
                return min(wait, left)
            self._removal = None
            if self.node.external_id is not None:
                self.node.external_id = None
                self._zk.storeNode(self.node)

    # -- the end --

    def _taken(self, conflict: ZKConflict) -> float | None:
        """Somebody deleted or took the node: not the request's fault, it gets another one. Nothing may be left.

        But for the instance that the node names: it may be ready without our knowledge, and free for others. Whoever
        has the node takes care of it.
        """
        self.log.warning("The node was taken away during its launch: %s", conflict)
        self.node.state = states.ABORTED
        self.nothing_made = False
        machine = None if self._driven is None else self._driven.machine
        known = self.node.external_id if machine is None or machine.external_id is None else machine.external_id
        kept = self._stored_id()
        for external_id in [known, *self._to_remove]:
            if external_id not in (None, kept):
                self._provider.delete_orphan(external_id, self.log)
        self._report("error.unknown")
        self._complete()
        return None

    def _stored_id(self) -> Any:
        """The instance that the node names; None = none, or there is no such node. Blocks for a round trip."""
        try:
            stored = self._zk.getNode(self.node.key)
        except ZKException as error:
            # If it is the node's it must stay; if not, it is found when leaks are looked for.
            self.log.warning("Instance %s is left alone: %s", self.node.external_id, error)
            return self.node.external_id
        return None if stored is None else stored.external_id

    def _end(self, state: str, result: str | None) -> float | None:
        """Store the outcome.

        :param result: for statistics; None = was sent already.
        """
        node = self.node
        node.state = state
        self.left_nothing = self.nothing_made and node.external_id is None
        try:
            self._zk.storeNode(node)
        except ZKConflict:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the launch is over
            # ZooKeeper is lost (L-9), or the driver put something into the node that cannot be stored.
            self.log.warning("The outcome could not be stored: %s: %s", type(error).__name__, error)
            node.state = states.FAILED
            result = None if result is None else launch_outcome(error)[1]
        if node.state == states.READY:
            self.log.info("Node is ready after %.1f s", self._clock() - self._begun)
        if result is not None:
            self._report(result)
        self._complete()
        return None

    def _complete(self) -> None:
        self.complete = True
        node, ready = self.node, self.node.state == states.READY
        self._provider.ceilings.ended(self._pool.name, self._label.name, node.key, ready=ready)
        self._provider.launch_ended(self)
        self._wake_worker()

    def _report(self, result: str) -> None:
        launches.report(
            result,
            (self._clock() - self._begun) * 1000,
            provider=self._config.name,
            az=self.node.az,
            requestor=self._request.requestor,
        )
