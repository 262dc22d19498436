# SPDX-License-Identifier: Apache-2.0
"""One node on its way from `building` to `ready` (rules L).

First the launch (`NodeLaunch`), then its phases in their order. What follows
what::

    begin -> create -> [scan] -> end
      ^         |         |       ^
      |         v         v       |   (a failure)
      |       look for instances whose creation has no answer
      |         |                 |
      +- clean -+-----------------+

A launch that another launcher has begun is resumed: it begins with the look, and goes on with what is found.
"""

from __future__ import annotations

import abc
import copy
import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from nodepool import log_names
from nodepool.clock import monotonic, wall_time
from nodepool.driver import gateway
from nodepool.driver.framework.rate import TimeLimit
from nodepool.driver.statemachine.cloud import CloudProvider, RunningLaunch
from nodepool.driver.statemachine.instance import for_node, hostname, take_instance
from nodepool.driver.statemachine.scheduler import WHEN_WOKEN_SECONDS, Driven, Removal, Search
from nodepool.exceptions import (
    CloudUnavailableException,
    LaunchError,
    LaunchKeyscanException,
    LaunchNetworkException,
    LaunchStatusException,
    ServerCreateTimeoutException,
    ZKConflict,
    ZKException,
)
from nodepool.guard import Guard
from nodepool.logconfig import get_annotated_logger
from nodepool.metrics import reports
from nodepool.model import states
from nodepool.model.status import LaunchStatus
from nodepool.plan import launch as plan
from nodepool.plan.launch import Abort, Failure, LaunchOutcome, Retry, classify, launch_outcome
from nodepool.tracing import spans

if TYPE_CHECKING:
    from nodepool.driver.handler import NodeRequestHandler
    from nodepool.driver.statemachine.instance import Instance, StateMachine
    from nodepool.model.node import Node


#: Failures that may be those of the zone: drivers say in many ways that a cloud does not have it any more.
_OF_THE_PLACE: Final = (Failure.SETUP, Failure.CAPACITY, Failure.INSTANCE, Failure.UNKNOWN)


#: That many seconds at least has a launch that is resumed until ``launch-timeout``: its instance may be up already.
RESUMED_SECONDS: Final = 60.0


class NodeLaunch(RunningLaunch):
    """A task of the scheduler. Everything belongs to the step that runs; others read ``outcome`` and call `abandon`.

    :param node: locked by us, `building`, stored.
    :param resumed: another launcher has begun it, and may have made an instance.
    """

    def __init__(
        self,
        provider: CloudProvider,
        handler: NodeRequestHandler,
        node: Node,
        clock: Callable[[], float] = monotonic,
        *,
        resumed: bool = False,
    ) -> None:
        super().__init__(provider, node, clock)
        self._handler = handler
        # Looked up now: a reload replaces what the handler refers to, and this launch shall finish (L-17).
        self.pool, self.settings, self.request = handler.pool, provider.provider, handler.request
        self.label = handler.pool.labels[node.type[0]]
        self._id_in_advance: Any = None
        if not resumed:
            # Nothing is made yet, and perhaps nothing will be: the name is for those who find the node after a crash.
            self._id_in_advance, node.external_id = node.external_id, None
        #: The instance that another launcher has ordered, as the node names it.
        self._ordered: Any = None
        self.zk = handler.zk
        self._wake_worker = handler.pw.wake
        self._launch_ended = handler.pw.launch_ended
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
        #: In which step it is, and since when. Replaced as a whole; any thread may read it.
        self.status = LaunchStatus(node.key, self.label.name, "begin", begun=wall_time(), since=wall_time())
        self._begun = clock()
        self._attempt = 1
        #: Added to the numbers of attempts: no creation has the key of another launcher's. Each launcher has written
        #: the node when it locked it, and makes so many attempts at most.
        self._earlier = (node.version or 0) * self.launch_retries if resumed else 0
        self._attempt_begun = self._begun
        #: Of the attempt.
        self.limit = TimeLimit(self.launch_timeout, self.held, clock)
        #: When the cloud said of the instance of the attempt that it runs.
        self._created_at = self._begun
        #: May any attempt have made an instance?
        self._made = False
        self._error: Exception | None = None
        #: External ids of instances of earlier attempts whose creation had no answer.
        self.others: list[Any] = []
        self._machine: StateMachine | None = None
        self._phase: Phase
        #: What follows the phase.
        self._then: Callable[[], float | None]
        if resumed:
            self._resume(wall_time() - (node.state_time or wall_time()))
        else:
            self._begin()

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

    def step(self) -> float | None:
        """See `nodepool.driver.statemachine.scheduler.Task`."""
        if self._abandoned:
            # Not the request's fault: it gets another one.
            self.log.info("Launch abandoned: the node is being deleted")
            self.node.state = states.ABORTED
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
        self._note_step()
        wait = self._phase.step()
        if wait is None:
            return self._then()
        self._note_step()
        return wait

    def _note_step(self) -> None:
        name, text, before = self._phase.name, self._phase.text, self.status
        if (name, text) == (before.step, before.text):
            return
        now = wall_time()
        if name == "keys":
            ends, option = now + self.boot_timeout, "boot-timeout"
        else:
            ends, option = now + self.limit.left, "launch-timeout"
        since = before.since if name == before.step else now
        self.status = replace(before, step=name, text=text, since=since, ends=ends, option=option)

    def _enter(self, phase: Phase, then: Callable[[], float | None]) -> float | None:
        self._phase, self._then = phase, then
        return self._go_on()

    # -- what follows which --

    def _resume(self, age: float) -> None:
        """The first phase of a launch that another launcher has begun that many seconds ago."""
        self.limit = TimeLimit(max(self.launch_timeout - age, RESUMED_SECONDS), self.held, self._clock)
        # Its answer may have been lost with that launcher.
        look = LookPhase(self, self.provider.finder.search(self.node.key, self.wake, may_be_late=True))
        self._phase, self._then = look, lambda: self._resumed(look)

    def _resumed(self, look: LookPhase) -> float | None:
        """Go on with what is there; what is named and not there is made sure to be gone, and the launch begins."""
        node = self.node
        if look.cloud_away:
            raise CloudUnavailableException("the launch cannot be gone on with: the cloud does not answer")
        if look.named or look.found:
            if not look.named:
                node.external_id = look.found.pop(0)
                self.zk.storeNode(node)
            self._ordered = node.external_id
            self.log.info("Going on with instance %s, which another launcher has ordered", node.external_id)
            for external_id in look.found:
                self.provider.delete_orphan(external_id, self.log)
        elif node.external_id is not None:
            return self._enter(CleanPhase(self), self._cleaned)
        self._begin()
        return 0.0

    def _begin(self) -> None:
        """The first phase of an attempt, with the next step."""
        phase = BeginPhase(self)
        self._phase, self._then = phase, lambda: self._create(phase.machine)

    def _create(self, machine: StateMachine) -> float | None:
        machine.wanted = lambda: self._wants(machine)
        machine.attempt = self._earlier + self._attempt
        self._machine = machine
        if self._ordered is not None:
            cast("Any", machine).adopt(self._ordered)
            self._ordered = None
        # A later attempt may have stored something else meanwhile, and has another name.
        stored = self._id_in_advance if self._attempt == 1 else None
        return self._enter(CreatePhase(self, machine, stored), self._created)

    def _created(self) -> float | None:
        now = self._clock()
        reports.report_boot(self.settings.name, now - self._attempt_begun)
        self._trace_part(spans.BOOT, now - self._attempt_begun)
        self._created_at = now
        if not getattr(self.label, "host_key_checking", True):
            return self._end(states.READY)
        return self._enter(ScanPhase(self), self._scanned)

    def _scanned(self) -> float | None:
        seconds = self._clock() - self._created_at
        reports.report_scan(self.settings.name, seconds)
        self._trace_part(spans.SCAN, seconds)
        return self._end(states.READY)

    def _trace_part(self, name: str, seconds: float) -> None:
        spans.part_ended(name, self.request, self.node, self._attempt, seconds)

    def _trace_attempt(self, error: str) -> None:
        seconds, name = self._clock() - self._attempt_begun, self.settings.name
        spans.attempt_ended(self.request, self.node, name, self._attempt, seconds, error)

    def _wants(self, machine: StateMachine) -> bool:
        """Is this the machine of the current attempt, and the node ours beyond doubt? Asked from any thread."""
        try:
            return (
                self._machine is machine
                and not self._abandoned
                and not self.complete
                # Else the request was handed over at the end of the launcher.
                and not self._handler.done
                and self.zk.surelyLocked(self.node)
            )
        except ZKConflict:
            return False

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
        provider, label = self.provider, self.label
        provider.calls.judge(error)
        if kind is Failure.QUOTA:
            provider.learned_limits.refused(self.pool.name, label.name, self.node.key, str(error))
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
        search = plan.search_after(kind, id_known=id_known, others_known=bool(self.others), searched=searched)
        if search is plan.SearchDepth.NONE:
            return self._decide(cloud_away=False)
        late = search is plan.SearchDepth.REPEATED
        phase = LookPhase(self, provider.finder.search(self.node.key, self.wake, may_be_late=late))
        return self._enter(phase, lambda: self._looked(phase))

    def _log_failure(self, error: Exception) -> None:
        text = f"Attempt {self._attempt} of {self.launch_retries} failed"
        if isinstance(error, (LaunchError, OSError, ZKException)):
            self.log.error("%s: %s: %s", text, type(error).__name__, error)
        else:
            self.log.error(text, exc_info=error)

    def _looked(self, phase: LookPhase) -> float | None:
        for external_id in phase.found:
            self.log.warning("The creation gave no answer, but there is instance %s", external_id)
        self.others.extend(phase.found)
        return self._decide(phase.cloud_away)

    def _decide(self, cloud_away: bool) -> float | None:
        assert self._error is not None
        kind = classify(self._error)
        away = cloud_away or self.provider.calls.circuit_open
        decision = plan.after_failure(kind, self._attempt, self.launch_retries, circuit_open=away)
        if isinstance(decision, Retry):
            self._attempt += 1
            self._attempt_begun = self._clock() + decision.delay_seconds
            seconds = decision.delay_seconds + self.launch_timeout
            self.limit = TimeLimit(seconds, self.held, self._clock)
            self._phase, self._then = CleanPhase(self), self._cleaned
            return decision.delay_seconds
        if self.node.external_id is None and self.others:
            self.node.external_id = self.others[0]
        self.log.info("Launch abandoned: %s", decision.reason)
        return self._end(states.ABORTED if isinstance(decision, Abort) else states.FAILED)

    def _cleaned(self) -> float | None:
        if self._error is not None and classify(self._error) in _OF_THE_PLACE:
            zones = self.provider.zones(self.pool)
            self.node.az = plan.zone_of_next_attempt(self.node.az, zones, self.request.key)
        self._begin()
        return 0.0

    # -- the end --

    def _taken(self, conflict: ZKConflict) -> float | None:
        """The node was deleted or taken by others: not the request's fault, it gets another one. Nothing may be left.

        But for the instance that the node names: it may be ready without our knowledge, and free for others. Those
        who have the node take care of it.
        """
        self.log.warning("The node was taken away during its launch: %s", conflict)
        self.node.state = states.ABORTED
        machine = self._machine
        known = self.node.external_id if machine is None or not machine.external_id else machine.external_id
        kept = self._stored_id()
        for external_id in [known, *self.others]:
            if external_id and external_id != kept:
                self.provider.delete_orphan(external_id, self.log)
        self._report("error.unknown", str(conflict))
        self._trace_attempt(str(conflict))
        self._complete(made=True, why=Failure.ZOOKEEPER if self._error is None else classify(self._error))
        return None

    def _stored_id(self) -> Any:
        """The instance that the node names; None = none, or there is no such node. Blocks for a round trip."""
        try:
            stored = self.zk.getNode(self.node.key)
        except ZKException as error:
            # If it is the node's it must stay; if not, it is found when leaks are looked for.
            self.log.warning("Instance %s is not deleted: %s", self.node.external_id, error)
            return self.node.external_id
        return None if stored is None else stored.external_id

    def _end(self, state: str) -> float | None:
        """Store the outcome. A failure was reported already."""
        made = self._made or self.node.external_id is not None
        why = None if state == states.READY or self._error is None else classify(self._error)
        error = self._store(state)
        if error is not None:
            why = why or classify(error)
        if self.node.state == states.READY:
            self.log.info("Node is ready after %.1f s", self._clock() - self._begun)
        if state == states.READY:
            self._report(launch_outcome(error)[1], str(error or ""))
            self._trace_attempt(str(error or ""))
        self._complete(made, why)
        return None

    def _store(self, state: str) -> Exception | None:
        """Store the state in which the launch ended; why that failed. Raises ZKConflict: others took the node."""
        self.node.state = state
        text = "The outcome could not be stored"
        # ZooKeeper is lost (L-9), or the driver put something into the node that cannot be stored.
        with Guard(self.log, text, but=ZKConflict, level=logging.WARNING, traceback=False) as stored:
            self.zk.storeNode(self.node)
        if stored.error is not None:
            self.node.state = states.FAILED
        return stored.error

    def _complete(self, made: bool, why: Failure | None) -> None:
        node = self.node
        self.outcome = LaunchOutcome(node.state, made, why)
        ready = node.state == states.READY
        self.provider.learned_limits.ended(self.pool.name, self.label.name, node.key, ready=ready)
        self.provider.launch_ended(self)
        self._wake_worker()

    def _report(self, result: str, text: str) -> None:
        self._launch_ended(self.node, result, text)
        reports.report_launch(
            result,
            (self._clock() - self._begun) * 1000,
            provider=self.settings.name,
            az=self.node.az,
            requestor=self.request.requestor,
        )


# What the phases of a launch have in common.

#: ``launch-retries``, ``launch-timeout`` and ``boot-timeout`` of a provider whose driver does not know them.
LAUNCH_RETRIES: Final = 3
LAUNCH_SECONDS: Final = 3600.0
BOOT_SECONDS: Final = 120.0


class Phase(abc.ABC):
    """A part of a launch that goes on in steps. It does not know the others."""

    #: What it waits for, for people.
    text = ""

    def __init__(self, launch: NodeLaunch) -> None:
        self._launch = launch

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Of its step, see `nodepool.model.status.LaunchStatus`. Any thread."""

    @abc.abstractmethod
    def step(self) -> float | None:
        """Do what can be done now; blocks for single round trips at most.

        :return: seconds until the next step; None = the phase is over.
        :raises Exception: the attempt failed.
        """


# `BeginPhase`: find the image and make the machine (rule L-1).


class BeginPhase(Phase):
    """Result: ``machine``."""

    name = "begin"
    machine: StateMachine

    def step(self) -> float | None:
        launch = self._launch
        node, provider = launch.node, launch.provider
        if not launch.zk.surelyLocked(node):
            # Cut off from ZooKeeper: the node may be deleted elsewhere just now, and its place filled.
            return plan.PACE.longest_seconds
        image_id, node.image_id = provider.image_of(launch.label)
        self.machine = provider.make_create_machine(
            hostname(node.id),
            launch.label,
            image_id,
            for_node(node.key, launch.pool.name, launch.settings.name),
            launch.request,
            node.az,
            launch.log,
        )
        return None


# `CreatePhase`: advance the machine until the instance is complete, and take over what it says (rule L-3).


def waits_for(machine: StateMachine) -> str:
    """What a machine says that it waits for, to be added to an error."""
    said = getattr(machine, "waits_for", "")
    return f": {said}" if said else ""


class CreatePhase(Phase):
    """Result: the fields of the node.

    :param id_in_advance: what ZooKeeper has as the id of the instance already; the node says it when the machine does.
    """

    def __init__(self, launch: NodeLaunch, machine: StateMachine, id_in_advance: Any) -> None:
        super().__init__(launch)
        self._driven = Driven(launch.provider.name, machine, launch.wake)
        self._id_in_advance = id_in_advance

    @property
    def name(self) -> str:
        machine = self._driven.machine
        if machine.external_id and not getattr(machine, "announced", False):
            return "build"
        return "call" if getattr(machine, "calling", False) else "wait"

    @property
    def text(self) -> str:  # type: ignore[override]
        """Where the machine is, or what it says that it waits for."""
        machine = self._driven.machine
        return str(getattr(machine, "waits_for", "") or machine.state)

    def step(self) -> float | None:
        launch, machine = self._launch, self._driven.machine
        left = launch.limit.left
        if left <= 0:
            raise ServerCreateTimeoutException(
                f"no instance within launch-timeout of {launch.launch_timeout:g} s, "
                f"it got as far as {machine.state!r}{waits_for(machine)}"
            )
        instance, wait = self._advance()
        if wait <= 0 and getattr(machine, "announced", False) and not machine.complete:
            # It only said how the instance will be called. That is stored, and no other thread need wake to go on.
            instance, wait = self._advance()
        if not machine.complete:
            return min(wait, max(0.0, left))
        launch.provider.calls.worked()
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
        """L-3: store the id at once. Those who find the node after a crash know what to delete.

        An empty object is no id yet. The driver fills it in by and by: what is stored must not change with it.
        """
        launch, machine = self._launch, self._driven.machine
        node = launch.node
        external_id = machine.external_id
        if not external_id and node.external_id and getattr(machine, "begun_anew", 0):
            # The instance does not exist any more, and another one is ordered: that one must be found after a crash.
            node.external_id = None
            launch.zk.storeNode(node)
            return
        if not external_id or external_id == node.external_id:
            return
        node.external_id = copy.deepcopy(external_id)
        if getattr(machine, "announced", False):
            launch.log.debug("Instance %s is going to be created", external_id)
        else:
            launch.log.info("Instance %s was created", external_id)
            launch.provider.calls.worked()
        if external_id != self._id_in_advance:
            launch.zk.storeNode(node)
        # What is stored later replaces it.
        self._id_in_advance = None

    def _take(self, instance: Instance) -> None:
        node = self._launch.node
        take_instance(node, instance, self._launch.pool)
        if node.interface_ip is None and getattr(instance, "has_address", True):
            raise LaunchNetworkException(f"instance {node.external_id} has no address that could be used")


# `ScanPhase`: wait until the instance can be logged in to, and collect its host keys (rules K).


class ScanPhase(Phase):
    """Result: ``host_keys`` of the node, unless the instance brought them."""

    name = "keys"
    _scan: Future[tuple[str, ...]] | None = None

    def step(self) -> float | None:
        launch = self._launch
        node = launch.node
        if self._scan is None:
            assert node.interface_ip is not None
            self._scan = launch.provider.scans.scan(
                node.interface_ip, node.connection_port, launch.boot_timeout, node.connection_type
            )
            self._scan.add_done_callback(lambda _: launch.wake())
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

    def _tell_failure(self) -> None:
        """L-16: write the console to the log if the label wants it, and notify the adapter. Blocks for both.

        Neither may fail the launch in another way: no error is raised.
        """
        launch = self._launch
        of_instance = (launch.provider.name, launch.provider.adapter, launch.label, launch.node.external_id)
        if getattr(launch.label, "console_log", False):
            console = gateway.get_console_log(*of_instance)
            if console:
                launch.log.info("Console of instance %s:\n%s", launch.node.external_id, console)
        gateway.notify_nodescan_failure(*of_instance)


# `LookPhase`: after a failure, what did the attempt leave in the cloud?


class LookPhase(Phase):
    """Looks for the instances of a node.

    Results: ``found``, external ids of those whose creation had no answer; ``named``: is the one there that the node
    names? ``cloud_away``: the cloud does not answer.

    Two instances for one node must never be. And it shows whether the cloud is there at all.

    :param search: of instances of the node.
    """

    name = "search"

    def __init__(self, launch: NodeLaunch, search: Search) -> None:
        super().__init__(launch)
        self._search = search
        self.found: list[Any] = []
        self.named = False
        self.cloud_away = False

    def step(self) -> float | None:
        """Does not raise what the cloud raises."""
        launch = self._launch
        try:
            wait = self._search.step()
        except Exception as error:  # noqa: BLE001 - whatever it is, the cloud has not answered
            if launch.provider.calls.circuit_open or launch.limit.left <= 0:
                self.cloud_away = True
                return None
            launch.log.warning("Instances cannot be listed, asking again: %s", error)
            return plan.PACE.longest_seconds
        if wait is not None:
            return wait
        self.found = [external_id for external_id in self._search.found if external_id != launch.node.external_id]
        self.named = len(self.found) < len(self._search.found)
        return None


# `CleanPhase`: before another attempt, what the last one made must be deleted (rule L-4).


class CleanPhase(Phase):
    """Deletes the instance that the node names, then the others. A deletion that fails is begun again after a pause.

    One that was deleted is taken out of the others. The limit is that of the next attempt, which has not begun when it
    is over.
    """

    name = "clean"

    def __init__(self, launch: NodeLaunch) -> None:
        super().__init__(launch)
        self._removal: Removal | None = None

    def step(self) -> float | None:
        launch, node = self._launch, self._launch.node
        while (target := self._target()) is not None:
            left = launch.limit.left
            if left <= 0:
                raise ServerCreateTimeoutException("the previous instance was not deleted within launch-timeout")
            if self._removal is None:
                launch.log.info("Deleting instance %s before the next attempt", target)
                self._removal = Removal(
                    (launch.provider.name, launch.provider.adapter),
                    target,
                    launch.log,
                    launch.wake,
                    self._may_be_done_later,
                )
            if (wait := self._removal.step()) is not None:
                return min(wait, left)
            self._removal = None
            if node.external_id is None:
                launch.others.pop()
            else:
                node.external_id = None
                launch.zk.storeNode(node)
        return None

    def _may_be_done_later(self, error: Exception) -> bool:
        calls = self._launch.provider.calls
        calls.judge(error)
        return not calls.circuit_open

    def _target(self) -> Any:
        """What is deleted now; None = nothing is left."""
        node, others = self._launch.node, self._launch.others
        if node.external_id is not None:
            return node.external_id
        return others[-1] if others else None
