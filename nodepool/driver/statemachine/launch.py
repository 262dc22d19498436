# SPDX-License-Identifier: Apache-2.0
"""One request that is served with instances of a cloud, and each of its nodes on the way from `building` to `ready`.

First the handler, then the launch of a node (rules L), from the top down. What follows what::

    begin -> create -> [scan -> [check]] -> end
      ^         |         |       ^
      |         v         v       |   (a failure)
      |       look for instances whose creation has no answer
      |         |                 |
      +- clean -+-----------------+

A launch that another launcher has begun is resumed: it begins with the look, and goes on with what is found.
"""

from __future__ import annotations

import copy
import logging
import random
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Final, cast

from nodepool import exceptions, log_names
from nodepool.clock import monotonic, wall_time
from nodepool.driver import gateway
from nodepool.driver.framework.handler_hooks import PoolWorkerView
from nodepool.driver.framework.keyscan import CheckFailed
from nodepool.driver.framework.rate import Driven, TimeLimit, ended
from nodepool.driver.handler import NodeRequestHandler
from nodepool.driver.statemachine.adapter import Instance, StateMachine
from nodepool.driver.statemachine.cloud import RunningLaunch
from nodepool.driver.statemachine.deletion import DeletingProvider, removal
from nodepool.driver.statemachine.instance import describe, diskimage_of, for_node, hostname, take_instance
from nodepool.guard import Guard
from nodepool.logconfig import get_annotated_logger
from nodepool.metrics import reports
from nodepool.model import states
from nodepool.model.image import CHECK_BY_LABEL
from nodepool.model.node import Node
from nodepool.model.reasons import Reason, images_missing
from nodepool.model.request import NodeRequest
from nodepool.model.status import LaunchStatus
from nodepool.plan import launch as plan
from nodepool.plan.launch import Abort, Failure, LaunchOutcome, Retry, classify, launch_outcome
from nodepool.plan.promotion import Trial
from nodepool.tracing import spans

#: Who defines one of these is polled in each pass.
POLLED: Final = frozenset({"poll", "begin_poll", "launchesComplete", "alive_thread_count"})


class StateMachineHandler(NodeRequestHandler):
    """All methods are called by the pool worker's thread; none of them waits for the cloud."""

    manager: DeletingProvider
    #: Has a subclass a word of its own in when launches are complete, or in what a poll looks at?
    _polled_always = False

    def __init__(self, pw: PoolWorkerView, request: NodeRequest) -> None:
        super().__init__(pw, request)
        self._launches: dict[str, NodeLaunch] = {}
        #: Nodes that somebody else was faster than.
        self._outpaced: set[str] = set()
        self._az: str | None = None
        self._az_chosen = False

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        below = cls.__mro__[: cls.__mro__.index(StateMachineHandler)]
        cls._polled_always = any(not POLLED.isdisjoint(vars(base)) for base in below)

    @property
    def awaits_launches(self) -> bool:
        """Of a hundred requests that launch, a pass finds one or two whose launches have ended."""
        if self._polled_always:
            return False
        # No generator: this is asked for each request in each pass.
        for launch in self._launches.values():  # noqa: SIM110
            if not launch.complete:
                return True
        return False

    def tells_end_of(self, node_id: str) -> bool:
        launch = self._launches.get(node_id)
        return launch is not None and not launch.complete

    @property
    def alive_thread_count(self) -> int:
        """Launches in progress; their number has nothing to do with threads here. Any thread may ask."""
        return sum(1 for launch in list(self._launches.values()) if not launch.complete)

    def launch_steps(self) -> Sequence[LaunchStatus]:
        return [launch.status for launch in list(self._launches.values()) if not launch.complete]

    def imagesAvailable(self) -> bool:
        labels = self.pool.labels
        return all(gateway.label_ready(self.manager, labels[name]) for name in set(self.request.node_types))

    def why_images_missing(self) -> Reason:
        labels = self.pool.labels
        wanted = sorted(set(self.request.node_types))
        missing = [name for name in wanted if not gateway.label_ready(self.manager, labels[name])]
        known = gateway.label_errors(self.manager)
        return images_missing(missing, {label: known[label].text for label in missing if label in known})

    def hasProviderQuota(self, node_types: list[str]) -> bool:
        return self.manager.canEverFit(self.pool, node_types)

    def hasRemainingQuota(self, ntype: str) -> bool:
        return not self.manager.calls.circuit_open and self.manager.roomForOne(self.pool, ntype)

    def has_room_now(self, ntype: str) -> bool:
        """The probe of a cloud whose limit nobody knows is left to those that launch."""
        return not self.manager.calls.circuit_open and self.manager.roomFor(self.pool, ntype) >= 1

    def room_ahead(self) -> float:
        if len(self.request.node_types) != 1 or self.manager.calls.circuit_open:
            return 1
        return self.manager.roomFor(self.pool, self.request.node_types[0])

    def checkReusableNode(self, node: Node) -> bool:
        """All in the same zone (N-7).

        It need not be one of the pool: those go from the configuration, and ``nova:host1`` is shown as ``nova``.
        """
        if self.manager.in_doubt(node.key):
            self.log.info("Node %s is not used: its instance may be lost", node.key)
            return False
        return self._az is None or node.az is None or node.az == self._az

    def nodeReusedNotification(self, node: Node) -> None:
        """The others go where this one is."""
        if node.az is not None and self._az is None:
            self._az = node.az
            self._az_chosen = True

    def setNodeMetadata(self, node: Node) -> None:
        """Everything that is known before the launch is stored with the node (L-1)."""
        if node.az is None:
            if not self._az_chosen:
                self._az = random.choice(self.manager.zones(self.pool))
                self._az_chosen = True
            node.az = self._az
        describe(node, self.pool.labels[node.type[0]], self.provider)

    def launch(self, node: Node) -> None:
        if self.manager.hasPlace(self.pool, node):
            self._begin(NodeLaunch(self.manager, self, node))
            return
        self.log.info("No room for node %s: another launcher used it at the same time", node.id)
        self._outpaced.add(node.key)
        # Not stored: it is removed at the next look.
        node.state = states.ABORTED
        self.pw.wake()

    def resume(self, node: Node) -> None:
        self._begin(NodeLaunch(self.manager, self, node, resumed=True))

    def _begin(self, launch: NodeLaunch) -> None:
        node = launch.node
        self.manager.learned_limits.begun(self.pool.name, node.type[0], node.key)
        self.manager.begin_launch(launch)
        self._launches[node.key] = launch

    def let_go_of_aborted(self, node: Node) -> None:
        """A node for which nothing was made need not be searched for in the cloud, and shall not take up quota."""
        launch = self._launches.get(node.key)
        if launch is None or (launch.outcome is not None and not launch.outcome.made):
            self.zk.deleteNode(node)
        else:
            super().let_go_of_aborted(node)
        # Last: what raised is called again, and must know then what was made.
        self._launches.pop(node.key, None)

    def pause_after_abort(self) -> float:
        """0 seconds where it is known what has to happen before the next launch.

        Another launcher took the room, or the learned limit says when the cloud takes another node.
        """
        aborted = [node.key for node in self.nodeset if node.state == states.ABORTED]
        if all(node_id in self._outpaced or self._was_refused(node_id) for node_id in aborted):
            return 0.0
        return super().pause_after_abort()

    def _was_refused(self, node_id: str) -> bool:
        launch = self._launches.get(node_id)
        return launch is not None and launch.outcome is not None and launch.outcome.why is Failure.QUOTA

    def launchesComplete(self) -> bool:
        return self.alive_thread_count == 0


# `NodeLaunch`: the launch of one node.

#: ``launch-retries``, ``launch-timeout`` and ``boot-timeout`` of a provider whose driver does not know them.
LAUNCH_RETRIES: Final = 3
LAUNCH_SECONDS: Final = 3600.0
BOOT_SECONDS: Final = 120.0
#: That many seconds at least has a launch that is resumed until ``launch-timeout``: its instance may be up already.
RESUMED_SECONDS: Final = 60.0
#: Failures that may be those of the zone: drivers say in many ways that a cloud does not have it any more.
_OF_THE_PLACE: Final = (Failure.SETUP, Failure.CAPACITY, Failure.INSTANCE, Failure.UNKNOWN)

#: A part of a launch. It blocks for single round trips at most, and yields the seconds until it is to go on.
Steps = Generator[float, None, None]


class NodeLaunch(RunningLaunch):
    """Everything belongs to the step that runs; others read ``outcome`` and ``status``, and call `abandon`.

    :param node: locked by us, `building`, stored.
    :param resumed: another launcher has begun it, and may have made an instance.
    """

    provider: DeletingProvider

    def __init__(
        self,
        provider: DeletingProvider,
        handler: NodeRequestHandler,
        node: Node,
        *,
        resumed: bool = False,
    ) -> None:
        super().__init__(provider, node)
        self._handler = handler
        # Looked up now: a reload replaces what the handler refers to, and this launch shall finish (L-17).
        self.pool, self.settings, self.request = handler.pool, provider.provider, handler.request
        self.label = handler.pool.labels[node.type[0]]
        # Drivers written for 11.0.0 may have no such keys.
        self.launch_retries = int(getattr(self.settings, "launch_retries", LAUNCH_RETRIES))
        self.launch_timeout = float(getattr(self.settings, "launch_timeout", LAUNCH_SECONDS))
        self.boot_timeout = float(getattr(self.settings, "boot_timeout", BOOT_SECONDS))
        #: What ZooKeeper has as the id of the instance already; the node says it when the machine does.
        self._id_in_advance: Any = None
        if not resumed:
            # Nothing is made yet, and perhaps nothing will be: the name is for those who find the node after a crash.
            self._id_in_advance, node.external_id = node.external_id, None
        self.zk = handler.zk
        self._wake_worker = handler.pw.wake
        self._launch_ended = handler.pw.launch_ended
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
        self._begun = monotonic()
        self._attempt = 1
        #: Added to the numbers of attempts: no creation has the key of another launcher's. Each launcher has written
        #: the node when it locked it, and makes so many attempts at most.
        #: One more is that with a candidate.
        self._earlier = (node.version or 0) * (self.launch_retries + 1) if resumed else 0
        #: Which upload the first attempt is to use, while a new one is tried (CA-2).
        diskimage = diskimage_of(self.label)
        self._trial: Trial | None = None
        if diskimage is not None:
            self._trial = handler.pw.trial(self.label.name, diskimage.name, self.request)
        if resumed and self._trial is not None and not self._trial.is_check:
            self._trial = None
        #: Does the attempt go on with an instance that another launcher has made of a candidate?
        self._continues_candidate = False
        self._attempt_begun = self._begun
        #: Of the attempt.
        self.limit = TimeLimit(self.launch_timeout, self.held)
        #: May any attempt have made an instance?
        self._made = False
        self._error: Exception | None = None
        #: External ids of instances of earlier attempts whose creation had no answer.
        self.others: list[Any] = []
        self._machine: StateMachine | None = None
        self._steps = self._run(self._resumed() if resumed else self._try())

    def step(self) -> float | None:
        if self._abandoned:
            # Not the request's fault: it gets another one.
            self.log.info("Launch abandoned: the node is being deleted")
            self.node.state = states.ABORTED
            self._complete(made=True, why=None)
            return None
        with Guard(self.log, "Launch abandoned") as guard:
            try:
                return next(self._steps, None)
            except exceptions.ZKConflict as conflict:
                self._taken(conflict)
                return None
        # Whatever it is, the request must not wait for ever.
        self.node.state = states.FAILED
        self._complete(made=True, why=None if guard.error is None else classify(guard.error))
        return None

    def _run(self, attempt: Steps) -> Steps:
        """Attempts, until one ends well or no other may help."""
        while True:
            try:
                yield from attempt
            except exceptions.ZKConflict:
                raise
            except Exception as error:  # noqa: BLE001 - logged where it is judged
                self._error = error
            else:
                # Before it can be used.
                self._end_trial(None)
                self._end(states.READY)
                return
            decision = yield from self._judge(self._error)
            if not isinstance(decision, Retry):
                break
            self._attempt += 1
            self._attempt_begun = monotonic() + decision.delay_seconds
            self.limit = TimeLimit(decision.delay_seconds + self.launch_timeout, self.held)
            attempt = self._try_again(decision.delay_seconds, self._error)
        if self.node.external_id is None and self.others:
            self.node.external_id = self.others[0]
        self._end_trial(self._error)
        self.log.info("Launch abandoned: %s", decision.reason)
        self._end(states.ABORTED if isinstance(decision, Abort) else states.FAILED)

    # -- attempts --

    def _resumed(self) -> Steps:
        """Go on with what is there; what is named and not there is made sure to be gone, and the launch begins."""
        node, now = self.node, wall_time()
        age = now - (node.state_time or now)
        self.limit = TimeLimit(max(self.launch_timeout - age, RESUMED_SECONDS), self.held)
        ordered = None
        # Its answer may have been lost with that launcher.
        found, named, cloud_away = yield from self._look(may_be_late=True)
        if cloud_away:
            raise exceptions.CloudUnavailableException("the launch cannot be continued: the cloud does not answer")
        if named or found:
            if not named:
                node.external_id = found.pop(0)
                self.zk.nodes.save(node)
            ordered = node.external_id
            self.log.info("Going on with instance %s, which another launcher has ordered", ordered)
            for external_id in found:
                self.provider.delete_orphan(external_id, self.log)
        else:
            yield from self._clean()
        yield 0.0
        yield from self._try(ordered)

    def _try_again(self, delay: float, before: Exception) -> Steps:
        """Another attempt, perhaps in another zone.

        :param delay: seconds.
        :param before: how the last one ended.
        """
        yield delay
        yield from self._clean()
        if classify(before) in _OF_THE_PLACE:
            zones = self.provider.zones(self.pool)
            self.node.az = plan.zone_of_next_attempt(self.node.az, zones, self.request.key)
        # It may have stored something else meanwhile, and has another name.
        self._id_in_advance = None
        yield 0.0
        yield from self._try()

    def _try(self, ordered: Any = None) -> Steps:
        """One attempt.

        :param ordered: the instance that another launcher has ordered, as the node names it.
        """
        node, provider = self.node, self.provider
        self._note("begin")
        while not self.zk.nodes.surely_locked(node):
            # Cut off from ZooKeeper: the node may be deleted elsewhere just now, and its place filled.
            yield plan.PACE.longest_seconds
        wanted = None if self._trial is None else self._trial.upload
        if ordered is not None:
            # It was made of that one.
            wanted = provider.upload_of(node)
            self._continues_candidate = wanted is not None and wanted.is_on_trial
        image_id, node.image_id = provider.image_of(self.label, wanted)
        tags = for_node(node.key, self.pool.name, self.settings.name)
        machine = provider.make_create_machine(
            hostname(node.id), self.label, image_id, tags, self.request, node.az, self.log
        )
        machine.wanted = lambda: self._wants(machine)
        machine.attempt, machine.node_created = self._earlier + self._attempt, node.created_time
        self._machine = machine
        if ordered is not None:
            cast("Any", machine).adopt(ordered)
        yield from self._create(machine)
        begun, created = self._attempt_begun, monotonic()
        reports.report_boot(self.settings.name, created - begun)
        self._trace_part(spans.BOOT, created - begun)
        if getattr(self.label, "host_key_checking", True):
            yield from self._contact(created)

    def _create(self, machine: StateMachine) -> Steps:
        """Advance the machine until the instance is complete, and take over what it says (L-3)."""
        driven = Driven(self.provider.name, machine, self.wake)
        while True:
            left = self.limit.left
            if left <= 0:
                awaited = getattr(machine, "waits_for", "")
                raise exceptions.ServerCreateTimeoutException(
                    f"no instance within launch-timeout of {self.launch_timeout:g} s, "
                    f"it got as far as {machine.state!r}{f': {awaited}' if awaited else ''}"
                )
            instance, wait = self._advance(driven)
            if wait <= 0 and getattr(machine, "announced", False) and not machine.complete:
                # It only said how the instance will be called. That is stored, and no other thread need wake to go on.
                instance, wait = self._advance(driven)
            if machine.complete:
                break
            self._note_machine(machine)
            yield min(wait, max(0.0, left))
        self.provider.calls.worked()
        if instance is None:
            raise exceptions.LaunchStatusException(
                "the driver reported that the instance is complete, but not what it is"
            )
        take_instance(self.node, instance, self.pool)
        if self.node.interface_ip is None and getattr(instance, "has_address", True):
            raise exceptions.LaunchNetworkException(
                f"instance {self.node.external_id} has no address that could be used"
            )

    def _advance(self, driven: Driven) -> tuple[Instance | None, float]:
        """Advance the machine once; seconds until the next time."""
        try:
            return driven.advance()
        finally:
            self._store_id(driven.machine)

    def _store_id(self, machine: StateMachine) -> None:
        """L-3: store the id at once. Those who find the node after a crash know what to delete.

        An empty object is no id yet. The driver fills it in by and by: what is stored must not change with it.
        """
        node, external_id = self.node, machine.external_id
        if not external_id and node.external_id and getattr(machine, "begun_anew", 0):
            # The instance does not exist any more, and another one is ordered: that one must be found after a crash.
            node.external_id = None
            self.zk.nodes.save(node)
            return
        if not external_id or external_id == node.external_id:
            return
        node.external_id = copy.deepcopy(external_id)
        if getattr(machine, "announced", False):
            self.log.debug("Instance %s is going to be created", external_id)
        else:
            self.log.info("Instance %s was created", external_id)
            self.provider.calls.worked()
        if external_id != self._id_in_advance or (self._trial is not None and self._trial.is_candidate):
            # Who goes on with the launch of a candidate must know its image.
            self.zk.nodes.save(node)
        # What is stored later replaces it.
        self._id_in_advance = None

    def _contact(self, created: float) -> Steps:
        """Wait until the instance can be logged in to, and its boot is over; store its host keys (rules K).

        :param created: when it ran.
        """
        node, provider = self.node, self.provider
        assert node.interface_ip is not None
        self._note("keys")
        keys = yield from self._answer(
            provider.scans.scan(node.interface_ip, node.connection_port, self.boot_timeout, node.connection_type)
        )
        seconds = monotonic() - created
        reports.report_scan(self.settings.name, seconds)
        self._trace_part(spans.SCAN, seconds)
        key_file = str(getattr(self.label, "ready_check_key", None))
        checks = [(getattr(self.label, "ready_check", None), getattr(self.label, "ready_check_timeout", 0.0))]
        if self._trial is not None and self._trial.is_check and (promotion := self._trial.upload.candidate) is not None:
            checks.append((promotion.check, promotion.check_timeout))
        for command, timeout in checks:
            if command and command != CHECK_BY_LABEL:
                self._note("check")
                keys = yield from self._answer(provider.checks.check(node, command, timeout, key_file))
        # Unless the instance brought them.
        if not node.host_keys:
            node.host_keys = list(keys)

    def _answer(self, scan: Future[tuple[str, ...]]) -> Generator[float, None, tuple[str, ...]]:
        try:
            return (yield from ended(scan, self.wake))
        except exceptions.LaunchKeyscanException as error:
            # L-16. Neither may fail the launch in another way: no error is raised. Blocks for both.
            of_instance = (self.provider.name, self.provider.adapter, self.label, self.node.external_id)
            console = gateway.get_console_log(*of_instance) if getattr(self.label, "console_log", False) else None
            if console:
                self.log.info("Console of instance %s:\n%s", self.node.external_id, console)
                self._handler.pw.keep_console(self.node, str(console))
            if output := getattr(error, "output", ""):
                self.log.info("End of the output of the ready-check of instance %s:\n%s", self.node.external_id, output)
            gateway.notify_nodescan_failure(*of_instance)
            raise

    def _wants(self, machine: StateMachine) -> bool:
        """Is this the machine of the current attempt, and the node ours beyond doubt? Asked from any thread."""
        try:
            return (
                self._machine is machine
                and not self._abandoned
                and not self.complete
                # Else the request was handed over at the end of the launcher.
                and not self._handler.done
                and self.zk.nodes.surely_locked(self.node)
            )
        except exceptions.ZKConflict:
            return False

    # -- for people --

    def _note_machine(self, machine: StateMachine) -> None:
        """Where the machine is, or what it says that it waits for."""
        step = "call" if getattr(machine, "calling", False) else "wait"
        if machine.external_id and not getattr(machine, "announced", False):
            step = "build"
        self._note(step, str(getattr(machine, "waits_for", "") or machine.state))

    def _note(self, step: str, text: str = "") -> None:
        """Say in which step it is, see `nodepool.model.status.LaunchStatus`.

        :param text: what it waits for.
        """
        before = self.status
        if (step, text) == (before.step, before.text):
            return
        now = wall_time()
        limits = {
            "keys": ("boot-timeout", self.boot_timeout),
            "check": ("ready-check-timeout", getattr(self.label, "ready_check_timeout", 0.0)),
        }
        option, left = limits.get(step, ("launch-timeout", self.limit.left))
        self.status = replace(
            before,
            step=step,
            text=text,
            since=before.since if step == before.step else now,
            ends=now + left,
            option=option,
        )

    def _trace_part(self, name: str, seconds: float) -> None:
        spans.part_ended(name, self.request, self.node, self._attempt, seconds)

    def _trace_attempt(self, error: str) -> None:
        seconds, name = monotonic() - self._attempt_begun, self.settings.name
        spans.attempt_ended(self.request, self.node, name, self._attempt, seconds, error)

    # -- failures --

    def _judge(self, error: Exception) -> Generator[float, None, plan.Decision]:
        """What follows an attempt that ended badly, when the cloud was asked what it left behind."""
        kind = classify(error)
        if self._trial is not None and self._trial.is_candidate and kind is Failure.CONFIGURATION:
            # The label is as good as before.
            kind = Failure.INSTANCE
        if self._trial is not None and self._trial.is_check:
            if isinstance(error, CheckFailed):
                self.launch_retries = self._attempt
        elif self._end_trial(error) or self._continues_candidate:
            self._continues_candidate = False
            # A request never fails because of a candidate: this attempt does not count, and the next uses another.
            self.launch_retries += 1
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
        self._machine = None
        id_known = self.node.external_id is not None
        if id_known or plan.may_have_made_an_instance(kind):
            self._made = True
        searched = getattr(error, "searched", False)
        search = plan.search_after(kind, id_known=id_known, others_known=bool(self.others), searched=searched)
        cloud_away = False
        if search is not plan.SearchDepth.NONE:
            late = search is plan.SearchDepth.REPEATED
            found, _, cloud_away = yield from self._look(may_be_late=late)
            for external_id in found:
                self.log.warning("The creation gave no answer, but there is instance %s", external_id)
            self.others.extend(found)
        cloud_away = cloud_away or provider.calls.circuit_open
        return plan.after_failure(kind, self._attempt, self.launch_retries, circuit_open=cloud_away)

    def _end_trial(self, error: Exception | None) -> bool:
        """The first attempt ended; did it use a candidate? :param error: why it failed; None = the node is ready."""
        trial, self._trial = self._trial, None
        if trial is None:
            return False
        self._handler.pw.trial_ended(self.node, trial, error, monotonic() - self._attempt_begun)
        return trial.is_candidate

    def _log_failure(self, error: Exception) -> None:
        text = f"Attempt {self._attempt} of {self.launch_retries} failed"
        if isinstance(error, (exceptions.LaunchError, OSError, exceptions.ZKException)):
            self.log.error("%s: %s: %s", text, type(error).__name__, error)
        else:
            self.log.error(text, exc_info=error)

    def _look(self, *, may_be_late: bool) -> Generator[float, None, tuple[list[Any], bool, bool]]:
        """Look for the instances of the node: two of them must never be. And it shows whether the cloud is there.

        :return: external ids of those whose creation had no answer; is the one there that the node names? and does the
            cloud not answer?
        """
        self._note("search")
        while True:
            try:
                found = yield from self.provider.finder.search(self.node.key, self.wake, may_be_late=may_be_late)
                break
            except Exception as error:  # noqa: BLE001 - whatever it is, the cloud has not answered
                if self.provider.calls.circuit_open or self.limit.left <= 0:
                    return [], False, True
                self.log.warning("Instances cannot be listed, asking again: %s", error)
            yield plan.PACE.longest_seconds
        strange = [external_id for external_id in found if external_id != self.node.external_id]
        return strange, len(strange) < len(found), False

    def _clean(self) -> Steps:
        """Before another attempt what the last one made is deleted (L-4): what the node names, then the others.

        A deletion that fails is begun again after a pause. The limit is that of the next attempt.
        """
        self._note("clean")
        node, provider = self.node, self.provider
        while node.external_id is not None or self.others:
            target = self.others[-1] if node.external_id is None else node.external_id
            self.log.info("Deleting instance %s before the next attempt", target)
            deletion = removal(provider, target, self.log, self.wake, self._may_be_done_later)
            for wait in deletion:
                left = self.limit.left
                if left <= 0:
                    raise exceptions.ServerCreateTimeoutException(
                        "the previous instance was not deleted within launch-timeout"
                    )
                yield min(wait, left)
            if node.external_id is None:
                self.others.pop()
            else:
                node.external_id = None
                self.zk.nodes.save(node)

    def _may_be_done_later(self, error: Exception) -> bool:
        calls = self.provider.calls
        calls.judge(error)
        return not calls.circuit_open

    # -- the end --

    def _taken(self, conflict: exceptions.ZKConflict) -> None:
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

    def _stored_id(self) -> Any:
        """The instance that the node names; None = none, or there is no such node. Blocks for a round trip."""
        try:
            stored = self.zk.getNode(self.node.key)
        except exceptions.ZKException as error:
            # If it is the node's it must stay; if not, it is found when leaks are looked for.
            self.log.warning("Instance %s is not deleted: %s", self.node.external_id, error)
            return self.node.external_id
        return None if stored is None else stored.external_id

    def _end(self, state: str) -> None:
        """Store the outcome. A failure was reported already."""
        made = self._made or self.node.external_id is not None
        why = None if state == states.READY or self._error is None else classify(self._error)
        error = self._store(state)
        if error is not None:
            why = why or classify(error)
        if self.node.state == states.READY:
            self.log.info("Node is ready after %.1f s", monotonic() - self._begun)
        if state == states.READY:
            self._report(states.READY if error is None else launch_outcome(error)[1], str(error or ""))
            self._trace_attempt(str(error or ""))
        self._complete(made, why)

    def _store(self, state: str) -> Exception | None:
        """Store the state in which the launch ended; why that failed. Raises ZKConflict: others took the node."""
        self.node.state = state
        text = "The outcome could not be stored"
        # ZooKeeper is lost (L-9), or the driver put something into the node that cannot be stored.
        with Guard(self.log, text, but=exceptions.ZKConflict, level=logging.WARNING, traceback=False) as stored:
            self.zk.nodes.save(self.node)
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
            (monotonic() - self._begun) * 1000,
            provider=self.settings.name,
            az=self.node.az,
            requestor=self.request.requestor,
        )
