# SPDX-License-Identifier: Apache-2.0
"""One configured cloud, as its requests, launches, deletions and sweeps see it.

First its quota: limits, use, and whether there is room (rules Q). Then `CloudProvider`: its handlers and launches. Then
the two signatures of `Adapter.getCreateStateMachine`, the search for the instances of a node, its calls with their
circuit breaker, what is learned from refusals (rule L-7), and its threads.
"""

from __future__ import annotations

import abc
import inspect
import logging
import math
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, ClassVar, Final, TypeVar

from nodepool import log_names
from nodepool.clock import monotonic, wall_time
from nodepool.driver import gateway
from nodepool.driver.config import ConfigPool, LabelSettings, ProviderConfig
from nodepool.driver.framework.fact import Fact, Known, NotKnown, Patience, Repeats
from nodepool.driver.framework.handler_hooks import PoolWorkerView
from nodepool.driver.framework.keyscan import MAX_SCANS, Scans
from nodepool.driver.framework.quota_support import LIMITS_AGE_SECONDS, BrokenLabels, QuotaSupport
from nodepool.driver.framework.rate import MAX_THREADS, HeldTime, Scheduler, SharedThreads, ended
from nodepool.driver.handler import NodeRequestHandler
from nodepool.driver.interface import Provider
from nodepool.driver.statemachine.adapter import Adapter, Creation, Instance, Log, Resource, StateMachine
from nodepool.driver.statemachine.instance import (
    InstanceCloud,
    diskimage_of,
    for_node,
    hostname,
    node_id_of,
    resources_of,
)
from nodepool.driver.statemachine.inventory import Batches
from nodepool.exceptions import LaunchError, LaunchNodepoolException, RuntimeConfigurationException
from nodepool.guard import OnError
from nodepool.logconfig import get_annotated_logger
from nodepool.model.image import CANDIDATE_LABEL, ImageUpload
from nodepool.model.node import Node, QuotaInformation, first_shortage
from nodepool.model.reasons import Reason, ReasonCode, hidden_limit
from nodepool.model.request import NodeRequest
from nodepool.model.status import LabelStatus
from nodepool.plan.launch import Failure, LaunchOutcome, LearnedLimit, classify
from nodepool.plan.retries import CircuitBreaker
from nodepool.zk import caches
from nodepool.zk.zookeeper import ZooKeeper

T = TypeVar("T")

#: Seconds for which the need of a label is not asked for again.
NEED_AGE_SECONDS: Final = 300.0
#: The same of creations without an answer.
UNANSWERED_AGE_SECONDS: Final = 0.1
#: Longest wait for the cache to have read what it was told of.
SETTLE_SECONDS: Final = 5.0


class StateMachineQuota(QuotaSupport):
    """Mix-in of `CloudProvider`."""

    name: str
    adapter: Adapter
    calls: CloudCalls
    patience: Patience

    def __init__(self, *args: Any, **kw: Any) -> None:
        super().__init__(*args, **kw)
        self._unanswered: Fact[Sequence[Creation]] = Fact(lambda: self.calls.unanswered_creations())

    def prepare_quota(self, executor: Executor) -> None:
        """Before anything else is called."""
        self._repeats = Repeats()
        self._executor = executor
        # Only the first answers are waited for.
        self._limits = self._known(self._ask_for_limits, LIMITS_AGE_SECONDS)
        self._known_needs: dict[tuple[str, str], Known[QuotaInformation]] = {}
        self.learned_limits = LearnedLimits(self.nodeCount, self._node_exists)
        #: Labels that a launch failed with for good, and until when they are not tried again.
        self._broken_until: dict[str, float] = {}
        self._broken_launches = BrokenLabels()

    def _known(self, ask: Callable[[], T], age_seconds: float, *permanent: type[Exception]) -> Known[T]:
        """What the cloud says; asked for again after a while, in the background."""
        return Known(ask, age_seconds, self._executor.submit, permanent=permanent, patience=self.patience)

    # -- limits --

    def getProviderLimits(self) -> QuotaInformation:
        return self.calls.look_up(gateway.get_quota_limits)

    def unmanagedQuotaUsed(self) -> QuotaInformation:
        """What others use, and instances of ours that have no node (Q-4). Blocks."""
        before = self._node_ids()
        instances = self.calls.list_instances()
        # A node that comes or goes meanwhile must not count as somebody else's for the next minutes.
        known = before | self._node_ids()
        used = QuotaInformation()
        for instance in instances:
            if instance.deleted or node_id_of(instance.metadata, self.provider.name) in known:
                continue
            resources = resources_of(instance)
            used.add(QuotaInformation(instances=1) if resources is None else QuotaInformation.from_resources(resources))
        return used

    def _node_ids(self) -> set[str]:
        return set() if self.zk is None else set(self.zk.getNodes())

    def _limits_unknown(self, error: BaseException) -> None:
        if self._repeats.worth_saying("limits"):
            name = self.provider.name
            text = said_by(name, error)
            self._quota_log.error("Provider %s: limits unknown: %s", name, text, extra={"provider": name})

    def _ask_for_limits(self) -> QuotaInformation:
        limits = super()._ask_for_limits()
        if self._repeats.over("limits"):
            self._quota_log.info("Provider %s: limits are known again", self.provider.name)
        return limits

    def invalidateQuotaCache(self) -> None:
        """Ask the cloud again, now and in the background: it said that a quota is used up."""
        super().invalidateQuotaCache()
        self._limits.refresh()

    # -- needs --

    def quotaNeededByLabel(self, label: str, pool: ConfigPool) -> QuotaInformation:
        """What one node of a label uses. Does not wait for the cloud, but for the first answer.

        :raises NotKnown: it has not answered yet.
        :raises RuntimeConfigurationException: the label can never work.
        """
        key = (pool.name, label)
        if key not in self._known_needs:
            ask = partial(self.calls.look_up, gateway.get_quota_for_label, pool.labels[label])
            self._known_needs.setdefault(key, self._known(ask, NEED_AGE_SECONDS, RuntimeConfigurationException))
        return self._known_needs[key].get()

    def label_is_broken(self, label: str, error: Exception) -> None:
        """A launch showed that a label can never work (Q-14). It gets another chance after a while."""
        if label not in self.errorLabels():
            self._tell_broken(label, error)
            self._broken_launches.discard(label)
        self._broken_launches.add(label, error)
        self._broken_until[label] = monotonic() + NEED_AGE_SECONDS

    def errorLabels(self) -> list[str]:
        """Labels that can never work (Q-14), as far as is known: the cloud may get what one of them needs."""
        now = monotonic()
        broken = {label for label, until in list(self._broken_until.items()) if now < until}
        for label in super().errorLabels():
            needs = [known for (_, name), known in list(self._known_needs.items()) if name == label]
            if any(_is_refused(known) for known in needs):
                broken.add(label)
            elif self._broken_labels.discard(label):
                self._quota_log.info("Provider %s: label %s can be served now", self.provider.name, label)
        return sorted(broken)

    def labelErrors(self) -> Mapping[str, LabelStatus]:
        causes = {**self._broken_launches.causes(), **super().labelErrors()}
        return {label: causes[label] for label in self.errorLabels() if label in causes}

    # -- room --

    def canEverFit(self, pool: ConfigPool, labels: Iterable[str]) -> bool:
        """Would these nodes fit together if nothing of ours ran (Q-1)? As long as nobody knows, the answer is yes."""
        try:
            return super().canEverFit(pool, labels)
        except NotKnown as reason:
            self._quota_log.debug("Provider %s: quota is not known: %s", self.provider.name, reason)
            return True

    def roomForOne(self, pool: ConfigPool, label: str) -> bool:
        """Is there room for one more node of a label now (Q-2)? As long as nobody knows, the answer is no."""
        try:
            room = super().roomForOne(pool, label)
        except NotKnown as reason:
            if self._repeats.worth_saying(label):
                self._quota_log.info("Provider %s: waiting, because quota is not known: %s", self.provider.name, reason)
            return False
        self._repeats.over(label)
        return room and self.learned_limits.allows(pool.name, label)

    def shortage(self, pool: ConfigPool, label: str) -> Reason | None:
        """As `QuotaSupport.shortage`; also what the cloud refused, although it tells no limit."""
        learned = self.learned_limits.known(pool.name, label)
        return super().shortage(pool, label) or (None if learned is None else hidden_limit(label, *learned))

    def roomFor(self, pool: ConfigPool, label: str) -> float:
        """How many more nodes of a label have room now; 0 = none, or nobody knows. Does not wait for the cloud."""
        try:
            return min(self._available(pool, label), self.learned_limits.room(pool.name, label))
        except NotKnown:
            return 0

    def poolCapacity(self, pool_name: str) -> dict[str, float]:
        """Also by what the cloud refused."""
        found = super().poolCapacity(pool_name)
        for label in self.learned_limits.labels(pool_name):
            learned = self.nodeCount(pool_name) + self.learned_limits.room(pool_name, label)
            found[label] = min(found.get("", math.inf), learned)
        return found

    def hasPlace(self, pool: ConfigPool, node: Node) -> bool:
        """Is there room for a node that is stored already, counting all that were stored before it?

        Several launchers, or several pools, may see the same gap and fill it. Ids of nodes grow, so of those who did
        the first one has its place. Blocks until what ZooKeeper announced has been read.
        """
        cache = None if self.zk is None else self.zk.cache
        if cache is not None and not cache.nodes.wait_settled(SETTLE_SECONDS):
            return False
        try:
            if self._overdrawn(pool, self.estimatedNodepoolQuotaUsed(pool), self.estimatedNodepoolQuotaUsed()):
                return not self._overdrawn(pool, *self._used_up_to(pool, node))
        except NotKnown:
            return False
        return True

    def estimatedNodepoolQuotaUsed(self, pool: ConfigPool | None = None) -> QuotaInformation:
        """What nodes use, in every state (Q-3), and what creations without an answer use whose nodes are gone."""
        used = super().estimatedNodepoolQuotaUsed(pool)
        used.add(self._unanswered_use(pool))
        return used

    def _unanswered_use(self, pool: ConfigPool | None) -> QuotaInformation:
        """What creations without an answer may use whose nodes are gone: in a pool, or (None) in the provider."""
        used = QuotaInformation()
        # As the driver knew them a moment ago: this is asked for several times for each node.
        for creation in self._unanswered.get(UNANSWERED_AGE_SECONDS):
            owner = self.provider.pools.get(creation.pool)
            if owner is None or creation.label not in owner.labels or (pool is not None and pool.name != owner.name):
                continue
            if self._node_exists(creation.key.node_id):
                continue
            needed = self._needed(owner, [creation.label])
            if needed is not None:
                used.add(needed)
        return used

    def forget_unanswered(self) -> None:
        """Ask the driver again."""
        self._unanswered.clear()

    def _node_exists(self, node_id: str) -> bool:
        """Is there a node, which counts by itself?"""
        cache = None if self.zk is None else self.zk.cache
        return cache is not None and cache.nodes.get(node_id) is not None

    def _overdrawn(self, pool: ConfigPool, in_pool: QuotaInformation, in_provider: QuotaInformation) -> bool:
        """As long as the limits are not known, the answer is yes."""
        nothing = QuotaInformation()
        if first_shortage(self.poolQuota(pool), in_pool, nothing) is not None:
            return True
        limits, _ = self._limits_or_trouble(pool)
        return limits is None or first_shortage(limits, in_provider, nothing) is not None

    def _used_up_to(self, pool: ConfigPool, last: Node) -> tuple[QuotaInformation, QuotaInformation]:
        """What this node, all that are older, and creations without an answer use: in the pool, and in the provider."""
        in_pool, in_provider = self._unanswered_use(pool), self._unanswered_use(None)
        for node in self.zk.nodeIterator() if self.zk is not None else ():
            if node.provider != self.provider.name or (node.key) > (last.key):
                continue
            used = QuotaInformation.from_resources(node.resources or {"instances": 1})
            in_provider.add(used)
            if node.pool == pool.name:
                in_pool.add(used)
        return in_pool, in_provider


def _is_refused(known: Known[QuotaInformation]) -> bool:
    try:
        known.get()
    except (RuntimeConfigurationException, NotKnown):
        return True
    return False


#: So many nodes are remembered whose launches left nothing.
MAX_UNMADE: Final = 10_000
#: Seconds for which the cloud is not asked again for an image, and for its zones.
AGE_SECONDS: Final = 5.0
AZ_AGE_SECONDS: Final = 300.0


class CloudProvider(StateMachineQuota, Provider):
    """What handlers, launches, deletions and sweeps see of their provider.

    :param adapter: of the driver.
    """

    #: Serves a request.
    handler_class: ClassVar[type[NodeRequestHandler]]

    def __init__(self, adapter: Adapter, provider_config: ProviderConfig) -> None:
        super().__init__()
        self.adapter = adapter
        self.provider = provider_config
        self.name = provider_config.name
        # Drivers written for 11.0.0 know `zk` by this name.
        self._zk: ZooKeeper | None = None
        self.log = get_annotated_logger(logging.getLogger(log_names.state_machine_provider(self.name)))
        #: `Adapter.getCreateStateMachine`, in whichever signature the adapter has.
        self.make_create_machine = create_machine_of(self.name, adapter)
        #: Guards the tables of launches, pool workers and deletions; it is not held across I/O.
        self._lock = threading.Lock()
        self._workers: set[PoolWorkerView] = set()
        self._launches: dict[str, RunningLaunch] = {}
        self._cleanups: dict[str, Any] = {}
        #: Nodes whose launches failed before anything was made; in the order of their ends.
        self._unmade: dict[str, None] = {}
        self._idle = threading.Event()
        self._threads = CloudThreads(self.name, adapter)
        self.patience = Patience()
        self.calls = CloudCalls(self.name, adapter, self.log, self._circuit_changed)
        cloud: InstanceCloud[Any] | None = getattr(adapter, "instance_cloud", None)
        #: Of lists.
        self.lag_seconds = 0.0 if cloud is None else cloud.lag_seconds
        self.finder = InstanceFinder(self.name, self.calls.list_instances, self._threads.asks, self.lag_seconds)
        self.scans = Scans(self._threads.scans)
        #: The ``ready-check`` of labels, which may take many minutes: no scan waits for one.
        self.checks = Scans(self._threads.checks)
        self.scheduler = Scheduler(f"StateMachines-{self.name}", self._threads.steps, on_end=self._ended)
        self.prepare_quota(self._threads.asks)
        self._azs = self._known(lambda: self.calls.look_up(gateway.get_azs) or [None], AZ_AGE_SECONDS)
        #: Has the cloud the image of a label, by pool and label?
        self._cloud_images: dict[tuple[str, str], Known[bool]] = {}
        self._images_missing = BrokenLabels(ReasonCode.IMAGE_MISSING)
        self._uploads_missing = Repeats()

    @property
    def idle_now(self) -> bool:
        """Must no resources be deleted, because there is, or will be, a successor?"""
        return self._idle.is_set()

    @abc.abstractmethod
    def _circuit_changed(self, begins: bool) -> None:
        """The circuit breaker opened, or closed. Must not block."""

    @abc.abstractmethod
    def _ended(self) -> None:
        """Nothing runs any more. In the scheduler's thread."""

    @abc.abstractmethod
    def in_doubt(self, node_id: str) -> bool:
        """May the instance of a node be lost? Any thread; does not block."""

    @abc.abstractmethod
    def look_for_leaks_soon(self) -> None:
        """Something may be left over: do not wait for the regular sweep. Any thread; does not block."""

    # -- images and zones --

    def labelReady(self, name: Any) -> bool:
        """Is the image of a label there? Name or label object; does not wait for the cloud, but for a first answer."""
        labels = [name] if hasattr(name, "name") else self._labels(name)
        return any(self._has_image(label) for label in labels)

    def labelErrors(self) -> Mapping[str, LabelStatus]:
        """Why labels cannot be served now, and since when. What the cloud lacked is asked for again meanwhile."""
        missing = self._images_missing.causes()
        return {**{label: missing[label] for label in missing if not self.labelReady(label)}, **super().labelErrors()}

    def _labels(self, name: str) -> list[LabelSettings]:
        return [pool.labels[name] for pool in self.provider.pools.values() if name in pool.labels]

    def _has_image(self, label: LabelSettings) -> bool:
        text = None
        if (diskimage := diskimage_of(label)) is not None:
            if label.name.endswith(CANDIDATE_LABEL):
                # Most of the time there is none, and nothing is wrong.
                return self._upload_for(label, diskimage) is not None
            if self.newest_upload(diskimage.name) is None:
                text = _no_ready_upload(diskimage)
                if self._uploads_missing.worth_saying(label.name):
                    self.log.warning("%s", f"provider {self.name}, label {label.name}: {text}")
        elif not self._cloud_has_image(label):
            image = label.cloud_image
            called = getattr(image, "image_name", None) or getattr(image, "image_id", None)
            text = f"the cloud has no usable image{f' {called!r}' if called else ''} for cloud-image {image.name!r}; "
            text += "correct cloud-image, or upload the image"
        if text is None:
            self._images_missing.discard(label.name)
        else:
            self._images_missing.add(label.name, text)
        return text is None

    def _cloud_has_image(self, label: LabelSettings) -> bool:
        """As long as nobody knows that it is not there, no request must be declined for that."""
        key = (label.pool.name, label.name)
        if key not in self._cloud_images:
            ask = partial(self.calls.look_up, gateway.label_ready_in_cloud, label)
            self._cloud_images.setdefault(key, self._known(ask, AGE_SECONDS))
        try:
            return self._cloud_images[key].get()
        except NotKnown as reason:
            self.log.debug("Label %s: %s", label.name, reason)
            return True

    def _upload_for(self, label: LabelSettings, diskimage: Any) -> ImageUpload | None:
        """The newest upload; for a label of candidates (CA-10) the candidate."""
        if not label.name.endswith(CANDIDATE_LABEL):
            return self.newest_upload(diskimage.name)
        cache = self._started.cache
        return None if cache is None else cache.images.snapshot().image(diskimage.name).candidate(self.name)

    def newest_upload(self, image: str) -> ImageUpload | None:
        """The newest ready upload of a diskimage; blocks for ZooKeeper only where there is no cache."""
        return self._started.getMostRecentImageUpload(image, self.name, cached=True)

    @property
    def _started(self) -> ZooKeeper:
        if self.zk is None:
            raise RuntimeError(f"provider {self.name} was not started")
        return self.zk

    def image_of(self, label: LabelSettings, wanted: ImageUpload | None = None) -> tuple[Any, str | None]:
        """External id of the uploaded image of a label (None = it uses a cloud image), and the node's ``image_id``.

        :param wanted: the upload to use; None = the newest.
        :raises LaunchNodepoolException: there is no upload (L-10).
        """
        diskimage = diskimage_of(label)
        if diskimage is None:
            return None, getattr(getattr(label, "cloud_image", None), "name", None)
        upload = wanted or self._upload_for(label, diskimage)
        if upload is None:
            text = _no_ready_upload(diskimage)
            raise LaunchNodepoolException(f"provider {self.name}, label {label.name}: {text}")
        return upload.external_id, caches.path_of_upload(upload)

    def upload_of(self, node: Node) -> ImageUpload | None:
        """The upload that a node is made of, if it is still there. Any thread; does not block."""
        cache = self._started.cache
        if cache is None or not str(node.image_id).startswith(caches.IMAGES):
            return None
        image = cache.images.snapshot().image(caches.parts(str(node.image_id))[0])
        uploads = image.ready_uploads(self.name)
        return next((upload for upload in uploads if caches.path_of_upload(upload) == node.image_id), None)

    def zones(self, pool: ConfigPool) -> Sequence[str | None]:
        """Availability zones to choose from (N-7)."""
        if pool.azs:
            return pool.azs
        try:
            return self._azs.get()
        except NotKnown as reason:
            self.log.warning("Provider %s: availability zones are not known: %s", self.name, reason)
            return [None]

    def zones_may_have_changed(self) -> None:
        """Ask the cloud for its zones again, in the background: it has refused what was ordered in one (O-2)."""
        self._azs.expire()
        self._azs.refresh()

    # -- requests and launches --

    def getRequestHandler(self, poolworker: Any, request: NodeRequest) -> NodeRequestHandler:
        with self._lock:
            self._workers.add(poolworker)
        return self.handler_class(poolworker, request)

    def pausedReason(self) -> str | None:
        """Why nothing new is begun now; None = all is well."""
        return f"the circuit breaker is open: {self.calls.circuit_reason}" if self.calls.circuit_open else None

    def wake_workers(self) -> None:
        """Pools that serve requests here look again. Any thread; does not block."""
        with self._lock:
            workers = list(self._workers)
        for worker in workers:
            worker.wake()

    def idInAdvance(self, node: Node) -> Any:
        pool = self.provider.pools[str(node.pool)]
        tags = for_node(node.key, pool.name, self.name)
        name, label = hostname(node.id), pool.labels[node.type[0]]
        return gateway.id_in_advance_in_cloud(self.name, self.adapter, name, label, tags)

    def canResume(self, node: Node) -> bool:
        pool = self.provider.pools.get(str(node.pool))
        known = pool is not None and any(label in pool.labels for label in node.type)
        return self.RESUMES and known and self.launch_of(node.key) is None

    def begin_launch(self, launch: RunningLaunch) -> None:
        """Take on a launch. Raises RuntimeError when the provider has ended."""
        with self._lock:
            self._launches[launch.node.key] = launch
        if not self.scheduler.add(launch, launch.held):
            self.launch_ended(launch)
            raise RuntimeError(f"provider {self.name} has ended")

    def launch_of(self, node_id: str) -> RunningLaunch | None:
        """The launch of a node, if it runs here."""
        with self._lock:
            return self._launches.get(node_id)

    def launch_ended(self, launch: RunningLaunch) -> None:
        with self._lock:
            node_id = launch.node.key
            if self._launches.get(node_id) is launch:
                del self._launches[node_id]
            if launch.outcome is not None and not launch.outcome.made:
                self._unmade[node_id] = None
                if len(self._unmade) > MAX_UNMADE:
                    # Of a node that somebody else deleted.
                    del self._unmade[next(iter(self._unmade))]

    def left_nothing(self, node_id: str) -> bool:
        """Did a launch of this node end here, surely without an instance? Else the cloud must be asked for one."""
        with self._lock:
            return node_id in self._unmade

    # -- what ZooKeeper has --

    def node_ids(self) -> set[str]:
        """Ids of all nodes in ZooKeeper, readable or not. Blocks."""
        return set(self._started.getNodes())

    def upload_ids(self) -> set[tuple[str, str]]:
        """Build id and upload id of all uploads to this provider. Blocks."""
        return self._started.getImageUploadIds(self.name)

    def external_id_of(self, node_id: str) -> Any:
        """External id of a node that is not being launched; else None."""
        node = None if self.zk is None else self.zk.getNode(node_id)
        return None if node is None or node.state == "building" else node.external_id


def _no_ready_upload(diskimage: Any) -> str:
    name = diskimage.name
    return f"there is no ready upload of image {name}; see nodepool image-list and nodepool dib-image-list"


class RunningLaunch(abc.ABC):
    """A launch, a task of the scheduler, as its provider sees it.

    :param node: locked by us, `building`, stored.
    """

    def __init__(self, provider: CloudProvider, node: Node) -> None:
        self.provider = provider
        self.node = node
        self.held = HeldTime()
        #: Set when the outcome is stored. ``node.state`` alone does not say so: it is set before it is written.
        self.outcome: LaunchOutcome | None = None
        #: The node is deleted elsewhere: end without a word.
        self._abandoned = False

    @property
    def complete(self) -> bool:
        """Has it ended, and is the outcome stored?"""
        return self.outcome is not None

    def abandon(self) -> None:
        """Stop soon; the node is not ours any more. Any thread; does not block."""
        self._abandoned = True
        self.wake()

    def wake(self) -> None:
        """The next step is due now. Any thread; does not block."""
        self.provider.scheduler.wake(self)

    @abc.abstractmethod
    def step(self) -> float | None:
        """See `nodepool.driver.framework.rate.Task`."""


# The two signatures of `Adapter.getCreateStateMachine` (reference/driver 14).

#: Parameters of the longest of them.
PARAMETERS: Final = ("hostname", "label", "image_external_id", "metadata", "request", "az", "log")


def create_machine_of(provider_name: str, adapter: Adapter) -> Callable[..., StateMachine]:
    """A function of `PARAMETERS` that calls an adapter, whichever of the signatures it has."""
    signature = adapter.getCreateStateMachine
    left_out: set[str] = set() if wants_request(signature) else {"request", "az"}
    if list(inspect.signature(signature).parameters) == ["hostname", "label", "metadata", "log"]:
        # The example of 11.0.0; who copied it has no uploaded images.
        left_out.add("image_external_id")
    taken = [position for position, name in enumerate(PARAMETERS) if name not in left_out]

    def make(*arguments: Any) -> StateMachine:
        given = (arguments[position] for position in taken)
        machine: StateMachine = gateway.get_create_state_machine(provider_name, adapter, *given)
        return machine

    return make


def wants_request(make: Callable[..., Any]) -> bool:
    """Does it take ``request`` and ``az`` before ``log``?"""
    parameters = list(inspect.signature(make).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if {"request", "az"} & {p.name for p in positional}:
        return True
    return len(positional) >= 7 or any(p.kind is p.VAR_POSITIONAL for p in parameters)


# The search after an error: is there an instance of this node? One list call answers all who ask meanwhile.

#: Pauses between the looks for an instance whose creation has no answer: it may show late.
LOOK_SECONDS: Final = (1.0, 3.0)


class InstanceFinder:
    """Looks for instances whose id is not known, because the answer to their creation was lost.

    A list that was begun before the question would not do; so those who ask while a list is under way get the next one.

    :param list_instances: asks the cloud; may block and raise.
    :param executor: where it is asked.
    :param lag_seconds: of the lists, see `InstanceCloud`.
    """

    def __init__(
        self,
        provider_name: str,
        list_instances: Callable[[], Iterable[Instance]],
        executor: Executor,
        lag_seconds: float = 0.0,
    ) -> None:
        self._provider_name = provider_name
        self._list = list_instances
        self._pauses = [*LOOK_SECONDS, *([lag_seconds] if lag_seconds else [])]
        self._looks: Batches[str] = Batches(self._look, executor, sys.maxsize)

    def search(self, node_id: str, wake: Callable[[], None], *, may_be_late: bool) -> Generator[float, None, list[Any]]:
        """Look for the instances of a node, in steps: yields the seconds until the next one.

        :param wake: makes the next step due now.
        :param may_be_late: look more than once if there seems to be none.
        :return: external ids.
        :raises Exception: the cloud could not be asked.
        """
        pauses = list(self._pauses) if may_be_late else []
        while True:
            found = yield from ended(self.find(node_id), wake)
            if found or not pauses:
                return found
            until = monotonic() + pauses.pop(0)
            # Whatever woke us meanwhile: an instance that shows late needs the whole pause.
            while (left := until - monotonic()) > 0:
                yield left

    def find(self, node_id: str) -> Future[list[Any]]:
        """Begin to look; does not block. The result is the external ids of the instances of a node."""
        return self._looks.add(node_id)

    def _look(self, take: Callable[[], list[str]]) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {node_id: [] for node_id in take()}
        for instance in self._list():
            node_id = node_id_of(instance.metadata, self._provider_name)
            if node_id in found and not instance.deleted and instance.external_id is not None:
                found[node_id].append(instance.external_id)
        return found


# Calls that ask the cloud.


def said_by(provider: str, error: BaseException) -> str:
    """What an error says, in one line, for a sentence that names the provider already.

    Errors of drivers name the provider, and say by themselves what is wrong; others are known by their type.
    """
    text = str(error)
    said = text.removeprefix(f"Provider {provider}: ")
    return (said if said and said != text else f"{type(error).__name__}: {text}").splitlines()[0]


class CloudCalls:
    """The adapter's calls that are not part of a machine; all of them may block, and raise what the adapter raises.

    ``_lock`` guards ``_breaker``; it is not held while the cloud is asked.

    :param name: of the provider.
    :param on_change: called when the circuit breaker opens or closes, in the thread of the call that showed it. Must
        not block.
    """

    def __init__(self, name: str, adapter: Adapter, log: Log, on_change: Callable[[bool], None]) -> None:
        self._name = name
        self._adapter = adapter
        self._log = log
        self._on_change = on_change
        self._lock = threading.Lock()
        self._breaker = CircuitBreaker()
        #: When it opened, and when the cloud is asked again, in seconds since the epoch; None = it is closed.
        self._opened_at: float | None = None
        self._probe_at: float | None = None

    # -- the state of the cloud --

    @property
    def circuit_open(self) -> bool:
        """Is the circuit breaker open?"""
        return self._breaker.is_open

    @property
    def circuit_reason(self) -> str:
        """What the cloud did last; empty while the circuit breaker is closed."""
        return self._breaker.reason

    @property
    def circuit_times(self) -> tuple[float | None, float | None]:
        """When the circuit breaker opened, and when the cloud is asked again, in seconds since the epoch."""
        with self._lock:
            return self._opened_at, self._probe_at

    def probe_due(self) -> float | None:
        """Seconds until the cloud is to be asked whether it is back; None = it answers."""
        with self._lock:
            return self._breaker.probe_due(monotonic())

    def failed(self, error: BaseException) -> None:
        """The cloud did not do what it was asked, for a reason of its own."""
        reason = said_by(self._name, error)[:300]
        with self._lock:
            now = monotonic()
            before = self._breaker.probe_due(now)
            begins = self._breaker.failed(now, reason)
            due = self._breaker.probe_due(now)
            if begins:
                self._opened_at = wall_time()
            if due is not None and due != before:
                self._probe_at = wall_time() + due
        if begins:
            self._log.error(
                "Provider %s keeps failing (%s). Its circuit breaker opens: no new launches until it answers again",
                self._name,
                reason,
            )
            self._on_change(True)

    def worked(self) -> None:
        """The cloud did what it was asked."""
        with self._lock:
            ends = self._breaker.worked()
            if ends:
                self._opened_at = self._probe_at = None
        if ends:
            self._log.info("Provider %s answers again, launches go on", self._name)
            self._on_change(False)

    def judge(self, error: BaseException) -> None:
        """Note an error of a machine: only some of them say something about the cloud."""
        if classify(error) is Failure.CLOUD:
            self.failed(error)

    def _not_answered(self, error: BaseException) -> None:
        if not isinstance(error, Exception) or isinstance(error, (NotImplementedError, RuntimeConfigurationException)):
            return
        if not isinstance(error, LaunchError) or classify(error) is Failure.CLOUD:
            self.failed(error)

    def look_up(self, hook: Callable[..., T], *arguments: Any) -> T:
        """Ask what may be known without the cloud: only that it does not answer says something about it.

        :param hook: of the adapter, in `nodepool.driver.gateway`.
        """
        with OnError(self.judge):
            return hook(self._name, self._adapter, *arguments)

    # -- questions --

    def list_instances(self) -> list[Instance]:
        """All instances; none if the driver cannot list them."""
        return self._list(gateway.list_instances)

    def list_resources(self) -> list[Resource]:
        """All that could be left over; nothing if the driver cannot list it."""
        return self._list(gateway.list_resources)

    def _list(self, hook: Callable[..., list[T]]) -> list[T]:
        try:
            with OnError(self._not_answered):
                found = hook(self._name, self._adapter)
        except NotImplementedError:
            # How a driver of the released interface says that it cannot.
            return []
        self.worked()
        return found

    def unanswered_creations(self) -> Sequence[Creation]:
        """Creations without an answer, as far as the driver knows. Does not block."""
        return gateway.unanswered_creations(self._name, self._adapter)


# What a provider's cloud took of each label when it said that a quota was used up (rule L-7).


class LearnedLimits:
    """Clouds do not report all of their quotas. Where one refused a node, no more are launched than it has taken.

    Thread-safe; ``_lock`` guards the tables, and ``count`` and ``exists`` are called with it: they must not block.

    :param count: how many nodes of the provider there are.
    :param exists: is there still a node of this id?
    """

    def __init__(self, count: Callable[[], int], exists: Callable[[str], bool]) -> None:
        self._count = count
        self._exists = exists
        self._lock = threading.Lock()
        #: What the cloud took, and what it said.
        self._limits: dict[tuple[str, str], tuple[LearnedLimit, str]] = {}
        #: Refused nodes that are not removed yet: the cloud does not have them.
        self._refused: set[str] = set()
        #: Nodes that are launched although the cloud was full with those that were there: it may have room again.
        self._beyond: set[str] = set()

    def allows(self, pool: str, label: str) -> bool:
        """May another node be launched, as far as the cloud's refusals go?"""
        with self._lock:
            limit, _ = self._limits.get((pool, label), (None, ""))
            return limit is None or limit.allows(monotonic(), self._count())

    def room(self, pool: str, label: str) -> float:
        """How many more the cloud takes, as far as its refusals go."""
        found = self.known(pool, label)
        return math.inf if found is None else max(0, found[0] - found[1])

    def labels(self, pool: str) -> list[str]:
        """Labels of a pool that were refused."""
        with self._lock:
            return [label for of_pool, label in self._limits if of_pool == pool]

    def known(self, pool: str, label: str) -> tuple[int, int, str] | None:
        """With how many nodes the cloud was full, how many it has now, what it said; None = it never refused one."""
        with self._lock:
            limit, words = self._limits.get((pool, label), (None, ""))
            return None if limit is None else (limit.nodes, self._count(), words)

    def begun(self, pool: str, label: str, node_id: str) -> None:
        """A node that is stored already is launched."""
        with self._lock:
            limit, _ = self._limits.get((pool, label), (None, ""))
            if limit is not None and self._taken() > limit.nodes:
                self._beyond.add(node_id)

    def refused(self, pool: str, label: str, node_id: str, words: str) -> None:
        """The cloud said that a quota is used up, in these words."""
        with self._lock:
            self._beyond.discard(node_id)
            self._refused.add(node_id)
            limit, _ = self._limits.get((pool, label), (LearnedLimit(), ""))
            limit.refused(monotonic(), self._taken())
            self._limits[pool, label] = (limit, words)

    def ended(self, pool: str, label: str, node_id: str, *, ready: bool) -> None:
        """A launch is over. One beyond the limit that is ready shows that there is more room."""
        with self._lock:
            if node_id in self._beyond:
                self._beyond.discard(node_id)
                if ready:
                    self._limits.pop((pool, label), None)

    def _taken(self) -> int:
        self._refused = {node_id for node_id in self._refused if self._exists(node_id)}
        return self._count() - len(self._refused)


# `CloudThreads`: what the threads of one provider are for.

#: Steps at once that the provider has threads for; an adapter that wants more gets as many more.
STEP_THREADS: Final = 8
#: Of the provider's threads: for questions to the cloud that nothing waits for; and how many are reserved for them, and
#: for steps of launches and deletions.
ASK_THREADS: Final = 4
RESERVED_ASK_THREADS: Final = 1
RESERVED_STEP_THREADS: Final = 4


class CloudThreads:
    """Executors of one provider, which share its threads. None of them begins before there is work.

    :param name: of the provider.
    :param adapter: may have an `InstanceCloud`, whose threads are used then, and ``advance_threads``.
    """

    def __init__(self, name: str, adapter: Any) -> None:
        steps = getattr(adapter, "advance_threads", Adapter.advance_threads)
        extra = max(0, steps - STEP_THREADS)
        cloud: InstanceCloud[Any] | None = getattr(adapter, "instance_cloud", None)
        self.shared = SharedThreads(name, MAX_THREADS + extra) if cloud is None else cloud.threads
        #: Questions to the cloud that nobody waits for.
        self.asks = self.shared.share("ask", ASK_THREADS, RESERVED_ASK_THREADS)
        #: One call at a time that finds out whether a cloud that was away answers again.
        self.probes = self.shared.share("probe", 1, 1)
        #: They wait for hosts that boot: nothing else must wait for them.
        self._of_scans = SharedThreads(name, MAX_SCANS)
        self.scans = self._of_scans.share("keyscan", MAX_SCANS, MAX_SCANS)
        self.checks = self._of_scans.share("ready-check", MAX_SCANS, MAX_SCANS)
        # One that is the same all the time: libraries keep things for the thread that they are called in.
        self._of_steps = self.shared if steps > 1 else SharedThreads(name, 1, threading.TIMEOUT_MAX)
        #: Steps of launches and deletions.
        self.steps = self._of_steps.share("step", steps, min(steps, RESERVED_STEP_THREADS))

    def ask_no_more(self) -> None:
        """Begin no question to the cloud any more. Does not block."""
        for executor in (self.asks, self.probes):
            executor.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """Take no more work, and end the threads; blocks until what runs has ended."""
        for executor in (self.asks, self.probes):
            executor.shutdown(wait=True)
        for threads in (self._of_scans, self._of_steps, self.shared):
            threads.close()
