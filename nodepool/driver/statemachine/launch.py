# SPDX-License-Identifier: Apache-2.0
"""`NodeLaunch`: one node on its way from `building` to `ready` (rules L).

A launch goes through phases, each an object of `nodepool.driver.statemachine.phases`; here is what follows which::

    begin -> create -> [scan] -> end
      ^         |         |       ^
      |         v         v       |   (a failure)
      |       look for instances whose creation has no answer
      |         |                 |
      +- clean -+-----------------+
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from nodepool import log_names
from nodepool.clock import monotonic
from nodepool.driver.framework.held_time import HeldTime, TimeLimit
from nodepool.driver.statemachine import failed_scan
from nodepool.driver.statemachine.phases.begin_phase import BeginPhase
from nodepool.driver.statemachine.phases.clean_phase import CleanPhase
from nodepool.driver.statemachine.phases.create_phase import CreatePhase
from nodepool.driver.statemachine.phases.end_phase import EndPhase
from nodepool.driver.statemachine.phases.look_phase import LookPhase
from nodepool.driver.statemachine.phases.phase import LaunchOrder, LaunchSteps, Phase
from nodepool.driver.statemachine.phases.scan_phase import ScanPhase
from nodepool.driver.statemachine.provider_view import CloudProviderView
from nodepool.driver.statemachine.removal import Driven
from nodepool.exceptions import LaunchError, ZKConflict, ZKException
from nodepool.guard import Guard
from nodepool.logconfig import get_annotated_logger
from nodepool.metrics import launches
from nodepool.model import states
from nodepool.plan import launch_attempt as plan
from nodepool.plan.failures import Failure, classify, launch_outcome
from nodepool.plan.launch_attempt import Abort, LaunchOutcome, Retry
from nodepool.tracing import launch_spans, recorder

if TYPE_CHECKING:
    from nodepool.driver.config import ConfigPool, LabelSettings, ProviderConfig
    from nodepool.driver.handler import NodeRequestHandler
    from nodepool.driver.statemachine.learned_limits import LearnedLimits
    from nodepool.driver.statemachine.machine import StateMachine
    from nodepool.driver.statemachine.scans import Scans
    from nodepool.model.node import Node


#: Failures that may be those of the zone: drivers say in many ways that a cloud does not have it any more.
_OF_THE_PLACE: Final = (Failure.SETUP, Failure.CAPACITY, Failure.INSTANCE, Failure.UNKNOWN)


class LaunchingProvider(CloudProviderView, Protocol):
    """What a launch asks of its provider, too."""

    provider: ProviderConfig
    scans: Scans
    learned_limits: LearnedLimits

    def image_of(self, label: LabelSettings) -> tuple[Any, str | None]:
        """External id of the uploaded image of a label (None = it uses a cloud image), and the node's ``image_id``."""
        ...

    def make_create_machine(self, *arguments: Any) -> StateMachine:
        """`Adapter.getCreateStateMachine`, in whichever signature the adapter has."""
        ...

    def zones(self, pool: ConfigPool) -> Sequence[str | None]:
        """Availability zones to choose from (N-7)."""
        ...

    def zones_may_have_changed(self) -> None:
        """Ask the cloud for its zones again, in the background."""
        ...

    def label_is_broken(self, label: str, error: Exception) -> None:
        """A launch showed that a label can never work (Q-14)."""
        ...

    def launch_ended(self, launch: NodeLaunch) -> None:
        """The outcome of a launch is stored."""
        ...


class NodeLaunch:
    """A task of the scheduler. Everything belongs to the step that runs; others read ``outcome`` and call `abandon`.

    :param node: locked by us, `building`, stored.
    """

    def __init__(
        self,
        provider: LaunchingProvider,
        handler: NodeRequestHandler,
        node: Node,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._provider = provider
        self._handler = handler
        # Looked up now: a reload replaces what the handler refers to, and this launch shall finish (L-17).
        label = handler.pool.labels[node.type[0]]
        # Nothing is made yet, and perhaps nothing will be: the name is only for whoever finds the node after a crash.
        self._id_in_advance, node.external_id = node.external_id, None
        self._order = LaunchOrder(node, label, handler.pool, provider.provider, handler.request)
        self._zk = handler.zk
        self._wake_worker = handler.pw.wake
        self._launch_ended = handler.pw.launch_ended
        self.node = node
        self._clock = clock
        self.log = get_annotated_logger(
            logging.getLogger(log_names.state_machine_launcher(provider.name)),
            event_id=handler.request.event_id,
            node_request_id=handler.request.id,
            node_id=node.id,
            pool=handler.pool.name,
            label=node.type[0],
            trace_id=recorder.log_id(handler.request),
        )
        self.steps = LaunchSteps(self._order)
        #: Set when the outcome is stored. ``node.state`` alone does not say so: it is set before it is written.
        self.outcome: LaunchOutcome | None = None
        #: Somebody else deletes the node: end without a word.
        self._abandoned = False
        self._begun = clock()
        self._attempt = 1
        self._attempt_begun = self._begun
        self.held = HeldTime(clock)
        self._limit = TimeLimit(self._order.launch_timeout, self.held, clock)
        #: When the cloud said of the instance of the attempt that it runs.
        self._created_at = self._begun
        #: May any attempt have made an instance?
        self._made = False
        self._error: Exception | None = None
        #: Instances of earlier attempts that nobody told us of.
        self._others: list[Any] = []
        self._machine: StateMachine | None = None
        self._phase: Phase
        #: What follows the phase.
        self._then: Callable[[], float | None]
        self._begin()

    @property
    def external_id(self) -> Any:
        """Of the instance, as far as it is known."""
        return self.node.external_id

    @property
    def complete(self) -> bool:
        """Has it ended, and is the outcome stored?"""
        return self.outcome is not None

    def abandon(self) -> None:
        """Stop soon; the node is somebody else's now. Any thread; does not block."""
        self._abandoned = True
        self._wake()

    def _wake(self) -> None:
        self._provider.scheduler.wake(self)

    def step(self) -> float | None:
        """See `nodepool.driver.statemachine.scheduler.Task`."""
        if self._abandoned:
            self.log.info("Launch abandoned: the node is being deleted")
            self.node.state = states.FAILED
            self._complete(made=True, why=None)
            return None
        with Guard(self.log, "Launch abandoned") as guard:
            try:
                return self._guarded_step()
            except ZKConflict as conflict:
                return self._taken(conflict)
        # Whatever it is, the request must not wait for ever.
        self.node.state = states.FAILED
        self._complete(made=True, why=None if guard.error is None else classify(guard.error))
        return None

    def _guarded_step(self) -> float | None:
        try:
            return self._go_on()
        except ZKConflict:
            raise
        except Exception as error:  # noqa: BLE001 - logged where it is judged
            return self._failed(error)

    def _go_on(self) -> float | None:
        self.steps.note(self._phase, self._limit.left)
        wait = self._phase.step()
        if wait is None:
            return self._then()
        self.steps.note(self._phase, self._limit.left)
        return wait

    def _enter(self, phase: Phase, then: Callable[[], float | None]) -> float | None:
        self._phase, self._then = phase, then
        return self._go_on()

    # -- what follows which --

    def _begin(self) -> None:
        """The first phase of an attempt, with the next step."""
        provider = self._provider
        phase = BeginPhase(self._order, self._zk, provider.image_of, provider.make_create_machine, self.log)
        self._phase, self._then = phase, lambda: self._create(phase.machine)

    def _create(self, machine: StateMachine) -> float | None:
        machine.wanted = lambda: self._wants(machine)
        machine.attempt = self._attempt
        self._machine = machine
        driven = Driven(self._provider.name, machine, self._wake)
        worked = self._provider.calls.worked
        # A later attempt may have stored something else meanwhile, and has another name.
        stored = self._id_in_advance if self._attempt == 1 else None
        phase = CreatePhase(self._order, self._zk, driven, worked, self._limit, self.log, stored)
        return self._enter(phase, self._created)

    def _created(self) -> float | None:
        now = self._clock()
        launches.report_boot(self._order.settings.name, now - self._attempt_begun)
        self._trace_part(launch_spans.BOOT, now - self._attempt_begun)
        self._created_at = now
        if not getattr(self._order.label, "host_key_checking", True):
            return self._end(states.READY)
        return self._enter(
            ScanPhase(self._order, self._provider.scans, self._tell_failed_scan, self._wake), self._scanned
        )

    def _scanned(self) -> float | None:
        seconds = self._clock() - self._created_at
        launches.report_scan(self._order.settings.name, seconds)
        self._trace_part(launch_spans.SCAN, seconds)
        return self._end(states.READY)

    def _trace_part(self, name: str, seconds: float) -> None:
        launch_spans.part_ended(name, self._order.request, self.node, self._attempt, seconds)

    def _trace_attempt(self, error: str) -> None:
        seconds, name = self._clock() - self._attempt_begun, self._order.settings.name
        launch_spans.attempt_ended(self._order.request, self.node, name, self._attempt, seconds, error)

    def _wants(self, machine: StateMachine) -> bool:
        """Is this the machine of the current attempt, and the node ours beyond doubt? Asked from any thread."""
        try:
            return (
                self._machine is machine
                and not self._abandoned
                and not self.complete
                # Else the request was handed over at the end of the launcher.
                and not self._handler.done
                and self._zk.surelyLocked(self.node)
            )
        except ZKConflict:
            return False

    def _tell_failed_scan(self) -> None:
        failed_scan.tell(
            self._provider.name, self._provider.adapter, self._order.label, self.node.external_id, self.log
        )

    # -- failures --

    def _failed(self, error: Exception) -> float | None:
        """An attempt ended badly; whether there is another shows when the cloud was asked what it left behind."""
        kind = classify(error)
        if kind is Failure.HELD:
            self.log.info("Not launched now: %s", error)
        else:
            self._log_failure(error)
            self._report(launch_outcome(error)[1], str(error) or type(error).__name__)
        self._trace_attempt(str(error) or type(error).__name__)
        provider, label = self._provider, self._order.label
        provider.calls.judge(error)
        if kind is Failure.QUOTA:
            provider.learned_limits.refused(self._order.pool.name, label.name, self.node.key, str(error))
            provider.invalidateQuotaCache()
        elif kind is Failure.CONFIGURATION:
            provider.label_is_broken(label.name, error)
        elif kind in _OF_THE_PLACE:
            provider.zones_may_have_changed()
        self._error = error
        self._machine = None
        id_known = self.node.external_id is not None
        if id_known or plan.may_have_made_an_instance(kind):
            self._made = True
        searched = getattr(error, "searched", False)
        search = plan.search_after(kind, id_known=id_known, others_known=bool(self._others), searched=searched)
        if search is plan.SearchDepth.NONE:
            return self._decide(cloud_away=False)
        late = search is plan.SearchDepth.REPEATED
        looks = provider.finder.search(self.node.key, self._wake, may_be_late=late)
        phase = LookPhase(self.node, looks, provider.calls, self._limit, self.log)
        return self._enter(phase, lambda: self._looked(phase))

    def _log_failure(self, error: Exception) -> None:
        text = f"Attempt {self._attempt} of {self._order.launch_retries} failed"
        if isinstance(error, (LaunchError, OSError, ZKException)):
            self.log.error("%s: %s: %s", text, type(error).__name__, error)
        else:
            self.log.error(text, exc_info=error)

    def _looked(self, phase: LookPhase) -> float | None:
        self._others.extend(phase.found)
        return self._decide(phase.cloud_away)

    def _decide(self, cloud_away: bool) -> float | None:
        assert self._error is not None
        kind = classify(self._error)
        away = cloud_away or self._provider.calls.circuit_open
        decision = plan.after_failure(kind, self._attempt, self._order.launch_retries, circuit_open=away)
        if isinstance(decision, Retry):
            self._attempt += 1
            self._attempt_begun = self._clock() + decision.delay_seconds
            seconds = decision.delay_seconds + self._order.launch_timeout
            self._limit = TimeLimit(seconds, self.held, self._clock)
            self._phase = CleanPhase(
                self.node, self._zk, self._others, self._removal_of, self._not_deleted, self._limit, self.log
            )
            self._then = self._cleaned
            return decision.delay_seconds
        if self.node.external_id is None and self._others:
            self.node.external_id = self._others[0]
        self.log.info("Launch abandoned: %s", decision.reason)
        return self._end(states.ABORTED if isinstance(decision, Abort) else states.FAILED)

    def _removal_of(self, external_id: Any) -> Any:
        return self._provider.removal_of(external_id, self.log, self._wake)

    def _not_deleted(self, error: BaseException) -> bool:
        """A deletion between two attempts failed; may the cloud do it later?"""
        self._provider.calls.judge(error)
        return not self._provider.calls.circuit_open

    def _cleaned(self) -> float | None:
        if self._error is not None and classify(self._error) in _OF_THE_PLACE:
            node, order = self.node, self._order
            node.az = plan.zone_of_next_attempt(node.az, self._provider.zones(order.pool), order.request.key)
        self._begin()
        return 0.0

    # -- the end --

    def _taken(self, conflict: ZKConflict) -> float | None:
        """Somebody deleted or took the node: not the request's fault, it gets another one. Nothing may be left.

        But for the instance that the node names: it may be ready without our knowledge, and free for others. Whoever
        has the node takes care of it.
        """
        self.log.warning("The node was taken away during its launch: %s", conflict)
        self.node.state = states.ABORTED
        machine = self._machine
        known = self.node.external_id if machine is None or not machine.external_id else machine.external_id
        kept = self._stored_id()
        for external_id in [known, *self._others]:
            if external_id and external_id != kept:
                self._provider.delete_orphan(external_id, self.log)
        self._report("error.unknown", str(conflict))
        self._trace_attempt(str(conflict))
        self._complete(made=True, why=Failure.ZOOKEEPER if self._error is None else classify(self._error))
        return None

    def _stored_id(self) -> Any:
        """The instance that the node names; None = none, or there is no such node. Blocks for a round trip."""
        try:
            stored = self._zk.getNode(self.node.key)
        except ZKException as error:
            # If it is the node's it must stay; if not, it is found when leaks are looked for.
            self.log.warning("Instance %s is not deleted: %s", self.node.external_id, error)
            return self.node.external_id
        return None if stored is None else stored.external_id

    def _end(self, state: str) -> float | None:
        """Store the outcome. A failure was reported already."""
        made = self._made or self.node.external_id is not None
        why = None if state == states.READY or self._error is None else classify(self._error)
        end = EndPhase(self.node, self._zk, state, self.log)
        end.step()
        if end.error is not None:
            why = why or classify(end.error)
        if self.node.state == states.READY:
            self.log.info("Node is ready after %.1f s", self._clock() - self._begun)
        if state == states.READY:
            self._report(launch_outcome(end.error)[1], str(end.error or ""))
            self._trace_attempt(str(end.error or ""))
        self._complete(made, why)
        return None

    def _complete(self, made: bool, why: Failure | None) -> None:
        node = self.node
        self.outcome = LaunchOutcome(node.state, made, why)
        ready = node.state == states.READY
        self._provider.learned_limits.ended(self._order.pool.name, self._order.label.name, node.key, ready=ready)
        self._provider.launch_ended(self)
        self._wake_worker()

    def _report(self, result: str, text: str) -> None:
        self._launch_ended(self.node, result, text)
        launches.report(
            result,
            (self._clock() - self._begun) * 1000,
            provider=self._order.settings.name,
            az=self.node.az,
            requestor=self._order.request.requestor,
        )
