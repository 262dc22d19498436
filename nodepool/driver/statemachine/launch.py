# SPDX-License-Identifier: Apache-2.0
"""One node on its way from `building` to `ready` (rules L).

First what tasks see of their provider, then the launch (`NodeLaunch`), then its phases in their order, then the steps
that launches share with deletions. What follows what::

    begin -> create -> [scan] -> end
      ^         |         |       ^
      |         v         v       |   (a failure)
      |       look for instances whose creation has no answer
      |         |                 |
      +- clean -+-----------------+
"""

from __future__ import annotations

import copy
import logging
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from nodepool import log_names
from nodepool.clock import monotonic, wall_time
from nodepool.driver import gateway
from nodepool.driver.framework.handler_hooks import ProviderView
from nodepool.driver.framework.rate import HeldTime, TimeLimit
from nodepool.driver.statemachine.instance import for_node, hostname, take_instance
from nodepool.driver.statemachine.lost_creations import Search
from nodepool.driver.statemachine.scheduler import WHEN_WOKEN_SECONDS
from nodepool.exceptions import (
    LaunchError,
    LaunchKeyscanException,
    LaunchNetworkException,
    LaunchStatusException,
    NotFound,
    ServerCreateTimeoutException,
    ZKConflict,
    ZKException,
)
from nodepool.guard import Guard, settle
from nodepool.logconfig import get_annotated_logger
from nodepool.metrics import reports
from nodepool.model import states
from nodepool.model.status import LaunchStatus
from nodepool.plan import launch as plan
from nodepool.plan.launch import Abort, Failure, LaunchOutcome, Retry, classify, launch_outcome
from nodepool.plan.retries import Backoff
from nodepool.tracing import spans

if TYPE_CHECKING:
    from nodepool.driver.config import ConfigPool, LabelSettings, ProviderConfig
    from nodepool.driver.handler import NodeRequestHandler
    from nodepool.driver.interface import CleanupTask
    from nodepool.driver.statemachine.adapter import Adapter, Log, StateMachine
    from nodepool.driver.statemachine.calls import CloudCalls
    from nodepool.driver.statemachine.cloud_quota import LearnedLimits
    from nodepool.driver.statemachine.instance import Instance
    from nodepool.driver.statemachine.lost_creations import InstanceFinder
    from nodepool.driver.statemachine.lost_instances import LostInstances
    from nodepool.driver.statemachine.scans import Scans
    from nodepool.driver.statemachine.scheduler import Scheduler
    from nodepool.model.node import Node
    from nodepool.model.request import NodeRequest
    from nodepool.zk.zookeeper import ZooKeeper


class CloudProviderView(ProviderView, Protocol):
    """What handlers, launches, deletions and leak sweeps see of their `StateMachineProvider`.

    The provider makes all of them, so their files do not import it.
    """

    adapter: Adapter
    calls: CloudCalls
    finder: InstanceFinder
    learned_limits: LearnedLimits
    #: Which nodes are in doubt, or have lost their instance?
    lost: LostInstances
    #: The section.
    provider: ProviderConfig
    scans: Scans
    scheduler: Scheduler
    zk: ZooKeeper | None

    @property
    def log(self) -> Log: ...

    @property
    def idle_now(self) -> bool:
        """Must no resources be deleted, because there is, or will be, a successor?"""
        ...

    def canEverFit(self, pool: ConfigPool, labels: Iterable[str]) -> bool:
        """Would these nodes fit together if nothing of ours ran (Q-1)?"""
        ...

    def roomForOne(self, pool: ConfigPool, label: str) -> bool:
        """Is there room for one more node of a label now (Q-2)?"""
        ...

    def roomFor(self, pool: ConfigPool, label: str) -> float:
        """How many more nodes of a label have room now; 0 = none, or that is not known."""
        ...

    def hasPlace(self, pool: ConfigPool, node: Node) -> bool:
        """Is there room for a node that is stored already, counting all that were stored before it?"""
        ...

    def invalidateQuotaCache(self) -> None:
        """Ask the cloud for its limits again, in the background."""
        ...

    def zones(self, pool: ConfigPool) -> Sequence[str | None]:
        """Availability zones to choose from (N-7)."""
        ...

    def zones_may_have_changed(self) -> None:
        """Ask the cloud for its zones again, in the background."""
        ...

    def image_of(self, label: LabelSettings) -> tuple[Any, str | None]:
        """External id of the uploaded image of a label (None = it uses a cloud image), and the node's ``image_id``."""
        ...

    def make_create_machine(self, *arguments: Any) -> StateMachine:
        """`Adapter.getCreateStateMachine`, in whichever signature the adapter has."""
        ...

    def begin_launch(self, launch: NodeLaunch) -> None:
        """Take on a launch. Raises RuntimeError when the provider has ended."""
        ...

    def launch_of(self, node_id: str) -> NodeLaunch | None:
        """The launch of a node, if it runs here."""
        ...

    def launch_ended(self, launch: NodeLaunch) -> None:
        """The outcome of a launch is stored."""
        ...

    def label_is_broken(self, label: str, error: Exception) -> None:
        """A launch showed that a label can never work (Q-14)."""
        ...

    def left_nothing(self, node_id: str) -> bool:
        """Did a launch of this node end here, surely without an instance?"""
        ...

    def removal_of(self, external_id: Any, log: Log, wake: Callable[[], None]) -> Removal:
        """The deletion of one instance, in steps."""
        ...

    def delete_orphan(self, external_id: Any, log: Log) -> CleanupTask:
        """Delete an instance that nothing uses, in the background."""
        ...

    def node_deleted(self, node: Node) -> None:
        """The znode of a node was deleted."""
        ...

    def node_ids(self) -> set[str]:
        """Ids of all nodes in ZooKeeper, readable or not. Blocks."""
        ...

    def upload_ids(self) -> set[tuple[str, str]]:
        """Build id and upload id of all uploads to this provider. Blocks."""
        ...

    def external_id_of(self, node_id: str) -> Any:
        """External id of a node that is not being launched; else None."""
        ...

    def look_for_leaks_soon(self) -> None:
        """Something may be left over: do not wait for the regular sweep."""
        ...

    def sweep_leaks(self) -> bool:
        """Look for leaks now; blocks. Is another look worth while?"""
        ...

    def leak_look_ended(self) -> None:
        """The task that looks soon has ended."""
        ...


#: Failures that may be those of the zone: drivers say in many ways that a cloud does not have it any more.
_OF_THE_PLACE: Final = (Failure.SETUP, Failure.CAPACITY, Failure.INSTANCE, Failure.UNKNOWN)


class NodeLaunch:
    """A task of the scheduler. Everything belongs to the step that runs; others read ``outcome`` and call `abandon`.

    :param node: locked by us, `building`, stored.
    """

    def __init__(
        self,
        provider: CloudProviderView,
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
            trace_id=spans.log_id(handler.request),
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
        reports.report_boot(self._order.settings.name, now - self._attempt_begun)
        self._trace_part(spans.BOOT, now - self._attempt_begun)
        self._created_at = now
        if not getattr(self._order.label, "host_key_checking", True):
            return self._end(states.READY)
        return self._enter(
            ScanPhase(self._order, self._provider.scans, self._tell_failed_scan, self._wake), self._scanned
        )

    def _scanned(self) -> float | None:
        seconds = self._clock() - self._created_at
        reports.report_scan(self._order.settings.name, seconds)
        self._trace_part(spans.SCAN, seconds)
        return self._end(states.READY)

    def _trace_part(self, name: str, seconds: float) -> None:
        spans.part_ended(name, self._order.request, self.node, self._attempt, seconds)

    def _trace_attempt(self, error: str) -> None:
        seconds, name = self._clock() - self._attempt_begun, self._order.settings.name
        spans.attempt_ended(self._order.request, self.node, name, self._attempt, seconds, error)

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
        tell(self._provider.name, self._provider.adapter, self._order.label, self.node.external_id, self.log)

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
        reports.report_launch(
            result,
            (self._clock() - self._begun) * 1000,
            provider=self._order.settings.name,
            az=self.node.az,
            requestor=self._order.request.requestor,
        )


# What is left to say of an instance that gave no host keys (rule L-16).


def tell(provider_name: str, adapter: Adapter, label: LabelSettings, external_id: Any, log: Log) -> None:
    """Write the console to the log if the label wants it, and tell the adapter. Blocks for both.

    Neither may fail the launch in another way: no error is raised.
    """
    if getattr(label, "console_log", False):
        console = gateway.get_console_log(provider_name, adapter, label, external_id)
        if console:
            log.info("Console of instance %s:\n%s", external_id, console)
    gateway.notify_nodescan_failure(provider_name, adapter, label, external_id)


# What the phases of a launch have in common.

#: ``launch-retries``, ``launch-timeout`` and ``boot-timeout`` of a provider whose driver does not know them.
LAUNCH_RETRIES: Final = 3
LAUNCH_SECONDS: Final = 3600.0
BOOT_SECONDS: Final = 120.0


class Phase(Protocol):
    """A part of a launch that goes on in steps."""

    @property
    def name(self) -> str:
        """Of its step, see `nodepool.model.status.LaunchStatus`. Any thread."""
        ...

    def step(self) -> float | None:
        """Do what can be done now; blocks for single round trips at most.

        :return: seconds until the next step; None = the phase is over.
        :raises Exception: the attempt failed.
        """
        ...


@dataclass(frozen=True)
class LaunchOrder:
    """What is to be launched, and for whom. A reload of the configuration changes nothing here (L-17).

    :param node: locked by us; the phases fill its fields.
    :param settings: configuration of the provider.
    """

    node: Node
    label: LabelSettings
    pool: ConfigPool
    settings: Any
    request: NodeRequest

    # Drivers written for 11.0.0 may have no such keys; then the defaults of all others hold.

    @property
    def launch_retries(self) -> int:
        return int(getattr(self.settings, "launch_retries", LAUNCH_RETRIES))

    @property
    def launch_timeout(self) -> float:
        return float(getattr(self.settings, "launch_timeout", LAUNCH_SECONDS))

    @property
    def boot_timeout(self) -> float:
        return float(getattr(self.settings, "boot_timeout", BOOT_SECONDS))


class LaunchSteps:
    """In which step a launch is, and since when. The task of the launch notes it; any thread may read it."""

    def __init__(self, order: LaunchOrder) -> None:
        self._order = order
        self._begun = wall_time()
        self._now = LaunchStatus(step="begin", since=self._begun)

    def note(self, phase: Phase, left: float) -> None:
        """The launch is in this phase now. :param left: of the time of the attempt, in seconds."""
        name, text = phase.name, getattr(phase, "text", "")
        if (name, text) == (self._now.step, self._now.text):
            return
        now = wall_time()
        since = self._now.since if name == self._now.step else now
        if name == "keys":
            ends, option = now + self._order.boot_timeout, "boot-timeout"
        else:
            ends, option = now + left, "launch-timeout"
        self._now = LaunchStatus(step=name, text=text, since=since, ends=ends, option=option)

    def status(self) -> LaunchStatus:
        """The step, and what the launch is for."""
        return replace(self._now, node=self._order.node.key, label=self._order.label.name, begun=self._begun)


# `BeginPhase`: find the image and make the machine (rule L-1).


class BeginPhase:
    """Result: ``machine``.

    :param image_of: external id of the image of a label, and the ``image_id`` of its nodes; see `StateMachineProvider`.
    :param make_machine: `Adapter.getCreateStateMachine`.
    """

    name = "begin"

    def __init__(
        self,
        order: LaunchOrder,
        zk: ZooKeeper,
        image_of: Callable[[LabelSettings], tuple[Any, str | None]],
        make_machine: Callable[..., StateMachine],
        log: Log,
    ) -> None:
        self._order = order
        self._zk = zk
        self._image_of = image_of
        self._make_machine = make_machine
        self._log = log
        self.machine: StateMachine

    def step(self) -> float | None:
        """See `nodepool.driver.statemachine.launch.Phase`."""
        order = self._order
        if not self._zk.surelyLocked(order.node):
            # Cut off from ZooKeeper: the node may be deleted by somebody else just now, and its place filled.
            return plan.PACE.longest_seconds
        image_id, image_name = self._image_of(order.label)
        order.node.image_id = image_name
        self.machine = self._make_machine(
            hostname(order.node.id),
            order.label,
            image_id,
            for_node(order.node.key, order.pool.name, order.settings.name),
            order.request,
            order.node.az,
            self._log,
        )
        return None


# `CreatePhase`: advance the machine until the instance is complete, and take over what it says (rule L-3).


def waits_for(machine: StateMachine) -> str:
    """What a machine says that it waits for, to be added to an error."""
    said = getattr(machine, "waits_for", "")
    return f": {said}" if said else ""


class CreatePhase:
    """Result: the fields of the node.

    :param worked: notified when the cloud did what it was asked.
    :param limit: of the attempt.
    :param id_in_advance: what ZooKeeper has as the id of the instance already; the node says it when the machine does.
    """

    def __init__(
        self,
        order: LaunchOrder,
        zk: ZooKeeper,
        driven: Driven,
        worked: Callable[[], None],
        limit: TimeLimit,
        log: Log,
        id_in_advance: Any = None,
    ) -> None:
        self._order = order
        self._zk = zk
        self._driven = driven
        self._worked = worked
        self._limit = limit
        self._log = log
        self._id_in_advance = id_in_advance

    @property
    def name(self) -> str:
        machine = self._driven.machine
        if machine.external_id and not getattr(machine, "announced", False):
            return "build"
        return "call" if getattr(machine, "calling", False) else "wait"

    @property
    def text(self) -> str:
        """Where the machine is, or what it says that it waits for."""
        machine = self._driven.machine
        return str(getattr(machine, "waits_for", "") or machine.state)

    def step(self) -> float | None:
        """See `nodepool.driver.statemachine.launch.Phase`."""
        machine = self._driven.machine
        left = self._limit.left
        if left <= 0:
            raise ServerCreateTimeoutException(
                f"no instance within launch-timeout of {self._order.launch_timeout:g} s, "
                f"it got as far as {machine.state!r}{waits_for(machine)}"
            )
        instance, wait = self._advance()
        if wait <= 0 and getattr(machine, "announced", False) and not machine.complete:
            # It only said how the instance will be called. That is stored, and no other thread need wake to go on.
            instance, wait = self._advance()
        if not machine.complete:
            return min(wait, max(0.0, left))
        self._worked()
        if instance is None:
            raise LaunchStatusException("the driver said that the instance is complete, but not what it is")
        self._take(instance)
        return None

    def _advance(self) -> tuple[Instance | None, float]:
        """Advance the machine once; seconds until the next time."""
        try:
            return self._driven.advance()
        finally:
            self._store_id()

    def _store_id(self) -> None:
        """L-3: store the id at once. Whoever finds the node after a crash knows what to delete.

        An empty object is no id yet. The driver fills it in by and by: what is stored must not change with it.
        """
        node, machine = self._order.node, self._driven.machine
        external_id = machine.external_id
        if not external_id and node.external_id and getattr(machine, "begun_anew", 0):
            # The instance is gone, and another one is ordered: whoever finds the node must look for that one.
            node.external_id = None
            self._zk.storeNode(node)
            return
        if not external_id or external_id == node.external_id:
            return
        node.external_id = copy.deepcopy(external_id)
        if getattr(machine, "announced", False):
            self._log.debug("Instance %s is going to be created", external_id)
        else:
            self._log.info("Instance %s was created", external_id)
            self._worked()
        if external_id != self._id_in_advance:
            self._zk.storeNode(node)
        # What is stored later replaces it.
        self._id_in_advance = None

    def _take(self, instance: Instance) -> None:
        node = self._order.node
        take_instance(node, instance, self._order.pool)
        if node.interface_ip is None and getattr(instance, "has_address", True):
            raise LaunchNetworkException(f"instance {node.external_id} has no address that could be used")


# `ScanPhase`: wait until the instance can be logged in to, and collect its host keys (rules K).


class ScanPhase:
    """Result: ``host_keys`` of the node, unless the instance brought them.

    :param tell_failure: notified when the scan failed, before that is raised; may block, must not raise.
    :param wake: makes the next step due now.
    """

    name = "keys"

    def __init__(
        self, order: LaunchOrder, scans: Scans, tell_failure: Callable[[], None], wake: Callable[[], None]
    ) -> None:
        self._order = order
        self._scans = scans
        self._tell_failure = tell_failure
        self._wake = wake
        self._scan: Future[tuple[str, ...]] | None = None

    def step(self) -> float | None:
        """See `nodepool.driver.statemachine.launch.Phase`."""
        node = self._order.node
        if self._scan is None:
            assert node.interface_ip is not None
            self._scan = self._scans.scan(
                node.interface_ip, node.connection_port, self._order.boot_timeout, node.connection_type
            )
            self._scan.add_done_callback(lambda _: self._wake())
        if not self._scan.done():
            return WHEN_WOKEN_SECONDS
        try:
            keys = self._scan.result()
        except LaunchKeyscanException:
            self._tell_failure()
            raise
        if not node.host_keys:
            node.host_keys = list(keys)
        return None


# `LookPhase`: after a failure, what did the attempt leave in the cloud?


class LookPhase:
    """Results: ``found``, external ids of instances that nobody told us of; ``cloud_away``, the cloud did not answer.

    Two instances for one node must never be. And it shows whether the cloud is there at all.

    :param search: of instances of the node.
    :param limit: how long to ask a cloud that does not answer.
    """

    name = "search"

    def __init__(
        self,
        node: Node,
        search: Search,
        health: CloudCalls,
        limit: TimeLimit,
        log: Log,
    ) -> None:
        self._node = node
        self._search = search
        self._health = health
        self._limit = limit
        self._log = log
        self.found: list[Any] = []
        self.cloud_away = False

    def step(self) -> float | None:
        """See `nodepool.driver.statemachine.launch.Phase`. Does not raise what the cloud raises."""
        try:
            wait = self._search.step()
        except Exception as error:  # noqa: BLE001 - whatever it is, the cloud has not answered
            if self._health.circuit_open or self._limit.left <= 0:
                self.cloud_away = True
                return None
            self._log.warning("Instances cannot be listed, asking again: %s", error)
            return plan.PACE.longest_seconds
        if wait is not None:
            return wait
        self.found = [external_id for external_id in self._search.found if external_id != self._node.external_id]
        for external_id in self.found:
            self._log.warning("The creation gave no answer, but there is instance %s", external_id)
        return None


# `CleanPhase`: before another attempt, what the last one made must be deleted (rule L-4).


class CleanPhase:
    """Deletes the instance that the node names, then the others. A deletion that fails is begun again after a pause.

    :param others: external ids; one that was deleted is taken out.
    :param worth_repeating: gets the error of a deletion; False = the phase fails with that.
    :param removal_of: begins to delete an instance.
    :param limit: of the next attempt, which has not begun when it is over.
    """

    name = "clean"

    def __init__(
        self,
        node: Node,
        zk: ZooKeeper,
        others: list[Any],
        removal_of: Callable[[Any], Removal],
        worth_repeating: Callable[[BaseException], bool],
        limit: TimeLimit,
        log: Log,
    ) -> None:
        self._node = node
        self._zk = zk
        self._others = others
        self._removal_of = removal_of
        self._worth_repeating = worth_repeating
        self._limit = limit
        self._log = log
        self._removal: Removal | None = None
        self._failures = 0

    def step(self) -> float | None:
        """See `nodepool.driver.statemachine.launch.Phase`."""
        while (target := self._target()) is not None:
            left = self._limit.left
            if left <= 0:
                raise ServerCreateTimeoutException("the previous instance was not deleted within launch-timeout")
            if self._removal is None:
                self._log.info("Deleting instance %s before the next attempt", target)
                self._removal = self._removal_of(target)
            step: Future[float | None] = Future()
            settle((step,), self._removal.step)
            error = step.exception()
            if error is None:
                wait = step.result()
            elif not self._worth_repeating(error):
                raise error
            else:
                self._log.warning("Instance %s could not be deleted, trying again: %s", target, error)
                self._removal = None
                self._failures += 1
                wait = RETRY.pause(self._failures)
            if wait is not None:
                return min(wait, left)
            self._removal = None
            if self._node.external_id is None:
                self._others.pop()
            else:
                self._node.external_id = None
                self._zk.storeNode(self._node)
        return None

    def _target(self) -> Any:
        """What is deleted now; None = nothing is left."""
        if self._node.external_id is not None:
            return self._node.external_id
        return self._others[-1] if self._others else None


# `EndPhase`: store how a launch ended.


class EndPhase:
    """Results: ``node.state``; ``error``, why it could not be stored.

    :param state: of the node: `ready`, `failed` or `aborted`.
    """

    name = "end"

    def __init__(self, node: Node, zk: ZooKeeper, state: str, log: Log) -> None:
        self._node = node
        self._zk = zk
        self._state = state
        self._log = log
        self.error: Exception | None = None

    def step(self) -> None:
        """See `nodepool.driver.statemachine.launch.Phase`.

        :raises ZKConflict: somebody took the node.
        """
        self._node.state = self._state
        try:
            self._zk.storeNode(self._node)
        except ZKConflict:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the launch is over
            # ZooKeeper is lost (L-9), or the driver put something into the node that cannot be stored.
            self._log.warning("The outcome could not be stored: %s: %s", type(error).__name__, error)
            self._node.state = states.FAILED
            self.error = error


# Steps that launches and deletions share: drive a machine, and delete one instance.

#: Seconds after which a deletion that has no effect is sent again: the cloud may have swallowed it.
RESEND: Final = Backoff(20.0, math.inf)
#: From a deletion of an instance that failed to the next attempt.
RETRY: Final = Backoff(1.0, 60.0)


class Driven:
    """A state machine and its pace. Used by one task, one step at a time.

    :param wake: makes the task's next step due now.
    """

    def __init__(self, provider_name: str, machine: StateMachine, wake: Callable[[], None]) -> None:
        machine.wake = wake
        self._provider_name = provider_name
        self.machine = machine
        self._quiet = 0

    def advance(self) -> tuple[Any, float]:
        """Advance once; what it returned, and seconds until the next time. Raises what the machine raises."""
        before = self.machine.state
        result = gateway.advance(self._provider_name, self.machine)
        if self.machine.state != before:
            self._quiet = 0
        wait = plan.pace(self._quiet, getattr(self.machine, "next_advance_seconds", None))
        self._quiet += 1
        return result, wait


class Removal:
    """Deletes one instance completely.

    :param make: makes a delete machine of it.
    """

    def __init__(
        self,
        provider_name: str,
        make: Callable[[], StateMachine],
        wake: Callable[[], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._provider_name = provider_name
        self._make = make
        self._wake = wake
        self._clock = clock
        self._driven: Driven | None = None
        self._sent = 0
        self._resend_at = 0.0

    def step(self) -> float | None:
        """Go on; None = the instance is gone, else seconds until the next step. Raises what the driver raises."""
        now = self._clock()
        try:
            if self._driven is None or (now >= self._resend_at and not self._driven.machine.resends):
                self._driven = Driven(self._provider_name, self._make(), self._wake)
                self._sent += 1
                self._resend_at = now + RESEND.pause(self._sent)
            _, wait = self._driven.advance()
        except NotFound:
            return None
        if self._driven.machine.complete:
            return None
        return wait if self._driven.machine.resends else min(wait, max(0.0, self._resend_at - now))


class Done:
    """The end of a task, for those who wait for it (`nodepool.driver.interface.CleanupTask`)."""

    def __init__(self) -> None:
        self._event = threading.Event()
        #: Why it failed, after the end; None = it did not.
        self.error: Exception | None = None

    def is_alive(self) -> bool:
        """Is it still running? Does not block."""
        return not self._event.is_set()

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended, at most ``timeout`` seconds."""
        self._event.wait(timeout)

    def set(self) -> None:
        self._event.set()
