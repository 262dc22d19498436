# SPDX-License-Identifier: Apache-2.0
"""One configured cloud, driven through its `Adapter`.

First its images, then the provider (`StateMachineProvider`), then its threads, what ``nodepool check`` finds out, the
probe of its circuit breaker, and the driver.
"""

from __future__ import annotations

import abc
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from nodepool import log_names
from nodepool.driver import gateway
from nodepool.driver.framework.cloud_errors import CheckResult, failure
from nodepool.driver.framework.fact import Known, NotKnown, Patience, Repeats
from nodepool.driver.framework.keyscan import MAX_SCANS, Scans
from nodepool.driver.framework.quota_support import BrokenLabels
from nodepool.driver.framework.rate import MAX_THREADS, HeldTime, SharedThreads, working_for
from nodepool.driver.framework.uploads import ListedImage
from nodepool.driver.interface import Driver, Provider
from nodepool.driver.statemachine import instance
from nodepool.driver.statemachine.adapter import Adapter, create_machine_of
from nodepool.driver.statemachine.calls import CloudCalls
from nodepool.driver.statemachine.cloud_quota import StateMachineQuota
from nodepool.driver.statemachine.deletion import InstanceDeletion, NodeDeletion
from nodepool.driver.statemachine.handler import StateMachineHandler
from nodepool.driver.statemachine.instance import Resource
from nodepool.driver.statemachine.leaks import LeakLook, LeakSweep
from nodepool.driver.statemachine.lost_creations import InstanceFinder
from nodepool.driver.statemachine.lost_instances import ALIVE, LostInstances
from nodepool.driver.statemachine.scheduler import WHEN_WOKEN_SECONDS, Scheduler
from nodepool.exceptions import (
    LaunchError,
    LaunchNodepoolException,
    NotFound,
    RuntimeConfigurationException,
    ServerDeleteTimeoutException,
)
from nodepool.guard import Guard
from nodepool.logconfig import get_annotated_logger
from nodepool.metrics import reports
from nodepool.model.reasons import ReasonCode
from nodepool.model.status import PauseStatus
from nodepool.plan.attention import look_at_place, of_missing
from nodepool.plan.ownerless import OTHERS, end_of_other, of_other
from nodepool.zk import caches

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from nodepool.driver.config import ConfigPool, LabelSettings, ProviderConfig
    from nodepool.driver.framework.handler_hooks import PoolWorkerView
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.driver.statemachine.launch import NodeLaunch
    from nodepool.model.event import LostInstance
    from nodepool.model.image import ImageUpload
    from nodepool.model.node import Node
    from nodepool.model.request import NodeRequest
    from nodepool.model.status import LabelStatus
    from nodepool.zk.zookeeper import ZooKeeper


# Images of a provider on the framework (rules U, D-1, D-3).


class RunningTransfers:
    """Uploads and deletions of images under way; a context around each.

    Those of a provider that was replaced are finished, as its launches are (L-17): an upload may have taken hours by
    then. ``_lock`` guards all; it is not held across calls.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._stop: Callable[[], None] | None = None

    def __enter__(self) -> None:
        with self._lock:
            self._running += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._running -= 1
            over = not self._running
        if over:
            self.stop_now()

    def stop_after(self, stop: Callable[[], None]) -> None:
        """Have something called when none runs any more; at once, if none does. Does not block for them."""
        with self._lock:
            self._stop, over = stop, not self._running
        if over:
            self.stop_now()

    def stop_now(self) -> None:
        """Nobody waits any more for those that run."""
        with self._lock:
            stop, self._stop = self._stop, None
        if stop is not None:
            stop()


# `LabelImages`: which labels have their image, in ZooKeeper or in the cloud?

#: Seconds for which the cloud is not asked again.
AGE_SECONDS: Final = 5.0


class LabelImages:
    """Any thread. ``_lock`` guards the table of what is known.

    :param executor: asks the cloud.
    """

    def __init__(self, provider: StateMachineProvider, executor: Executor) -> None:
        self._provider = provider
        self._executor = executor
        self._missing = BrokenLabels(ReasonCode.IMAGE_MISSING)
        self._repeats = Repeats()
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], Known[bool]] = {}

    def ready(self, name: Any) -> bool:
        """Is the image of a label there? Name or label object; does not wait for the cloud, but for a first answer."""
        labels = [name] if hasattr(name, "name") else self._labels(name)
        return any(self._ready(label) for label in labels)

    def missing(self) -> dict[str, LabelStatus]:
        """Labels that were looked at and whose images are still not there."""
        return {label: cause for label, cause in self._missing.causes().items() if not self.ready(label)}

    def no_upload(self, label: LabelSettings) -> str:
        """The message about a label whose diskimage has no ready upload."""
        return f"provider {self._provider.name}, label {label.name}: {_no_ready_upload(label)}"

    def _labels(self, name: str) -> list[LabelSettings]:
        return [pool.labels[name] for pool in self._provider.provider.pools.values() if name in pool.labels]

    def _ready(self, label: LabelSettings) -> bool:
        diskimage = instance.diskimage_of(label)
        if diskimage is not None:
            uploaded = self._provider.newest_upload(diskimage.name) is not None
            if not uploaded and self._repeats.worth_saying(label.name):
                self._provider.log.warning("%s", self.no_upload(label))
            return self._noted(label, uploaded, _no_ready_upload)
        try:
            return self._noted(label, self._known_of(label).get(), _no_cloud_image)
        except NotKnown as reason:
            # Nobody knows that it is not there, and a request must not be declined for that.
            self._provider.log.debug("Label %s: %s", label.name, reason)
            return True

    def _known_of(self, label: LabelSettings) -> Known[bool]:
        key = (label.pool.name, label.name)
        with self._lock:
            known = self._known.get(key)
            if known is None:
                ask = partial(self._provider.calls.label_ready, label)
                known = Known(ask, AGE_SECONDS, self._executor.submit, patience=self._provider.patience)
                self._known[key] = known
            return known

    def _noted(self, label: LabelSettings, there: bool, text: Callable[[LabelSettings], str]) -> bool:
        if there:
            self._missing.discard(label.name)
        else:
            self._missing.add(label.name, text(label))
        return there


def _no_ready_upload(label: LabelSettings) -> str:
    image = getattr(instance.diskimage_of(label), "name", "")
    return f"there is no ready upload of image {image}; see nodepool image-list and nodepool dib-image-list"


def _no_cloud_image(label: LabelSettings) -> str:
    image = getattr(label.cloud_image, "name", "")
    return f"the cloud has no usable image for cloud-image {image!r}; correct cloud-image, or upload the image"


#: Seconds for which answers of the adapter are not asked for again.
AZ_AGE_SECONDS: Final = 300.0
#: So much longer than a deletion may take its end is waited for.
WAIT_LONGER_SECONDS: Final = 10.0
#: So many nodes are remembered whose launches left nothing.
MAX_UNMADE: Final = 10_000


class StateMachineProvider(StateMachineQuota, Provider):
    """Owns launches and deletions: tasks of ``scheduler``.

    ``_lock`` guards the tables of launches, pool workers, uploads and known answers; it is not held across I/O.

    :param adapter: of the driver.
    """

    #: Serves a request.
    handler_class: ClassVar[type[StateMachineHandler]] = StateMachineHandler

    def __init__(self, adapter: Adapter, provider_config: ProviderConfig) -> None:
        super().__init__()
        self.adapter = adapter
        self.provider = provider_config
        self.name = provider_config.name
        # Drivers written for 11.0.0 know `zk` by this name.
        self._zk: ZooKeeper | None = None
        self.log = get_annotated_logger(logging.getLogger(log_names.state_machine_provider(self.name)))
        self.make_create_machine = create_machine_of(self.name, adapter)
        cloud = getattr(adapter, "instance_cloud", None)
        self.RESUMES = cloud is not None and cloud.resumes_launches
        self._lock = threading.Lock()
        self._launches: dict[str, NodeLaunch] = {}
        #: Nodes whose launches failed before anything was made; in the order of their ends.
        self._unmade: dict[str, None] = {}
        self._workers: set[PoolWorkerView] = set()
        self._cleanups: dict[str, InstanceDeletion] = {}
        self._idle = threading.Event()
        self._threads = CloudThreads(self.name, adapter)
        self.patience = Patience()
        self.calls = CloudCalls(self.name, adapter, self.log, self._circuit_changed)
        lag = getattr(adapter, "lag_seconds", 0.0)
        self.finder = InstanceFinder(self.name, self.calls.list_instances, self._threads.asks, lag)
        self.scans = Scans(self._threads.scans)
        self.scheduler = Scheduler(f"StateMachines-{self.name}", self._threads.steps, on_end=self._ended)
        self.prepare_quota(self._threads.asks)
        self.images = LabelImages(self, self._threads.asks)
        self._azs: Known[Sequence[str | None]] = Known(
            self.calls.get_azs, AZ_AGE_SECONDS, self._threads.asks.submit, patience=self.patience
        )
        adapter.on_room = self._room_came_free
        adapter.on_lost = self._instance_ended
        self.transfers = RunningTransfers()
        self.lost = LostInstances(self, self.log, lag)
        self._leaks = LeakSweep(self, self.log)
        self._leak_look: LeakLook | None = None
        #: Of the circuit breaker, since it opened last.
        self.probe: CircuitProbe | None = None

    # -- life --

    def start(self, zk_conn: ZooKeeper) -> None:
        """Begin to ask for the limits of the cloud; blocks for ZooKeeper only."""
        self._zk = self.zk = zk_conn
        if not instance.of_installation():
            # Each sweep asks again; a provider that is started anew must not wait for ZooKeeper.
            self._know_installation()
        if zk_conn.cache is not None:
            self._limits.refresh()

    def _know_installation(self) -> None:
        """Before anything is made or deleted. Blocks for a round trip. Raises ZKException."""
        # That of a driver written for 11.0.0 may be one of its own.
        ids = getattr(self.zk, "installation_ids", None)
        if ids is not None:
            instance.know_installation(ids())

    def idle(self) -> None:
        """Look for leaks no more: the successor does. Any thread; does not block."""
        with self._lock:
            self._idle.set()
            look = self._leak_look
        if look is not None:
            self.scheduler.wake(look)

    @property
    def idle_now(self) -> bool:
        """Must no resources be deleted, because there is, or will be, a successor?"""
        return self._idle.is_set()

    def stop(self) -> None:
        """What runs is finished in the background (L-17), then everything is released. Does not block."""
        self.idle()
        self.scheduler.drain()

    def join(self) -> None:
        """What still runs is left as it is: whoever comes next finds it (G-14)."""
        self.scheduler.abandon()
        self.scheduler.join()
        self.transfers.stop_now()
        self.scans.join()
        self._threads.close()

    def _ended(self) -> None:
        """Nothing runs any more. In the scheduler's thread."""
        self.scans.stop()
        self._threads.ask_no_more()
        self.transfers.stop_after(lambda: gateway.stop_adapter(self.name, self.adapter))

    # -- the cloud has trouble --

    def _circuit_changed(self, begins: bool) -> None:
        reports.report_circuit_breaker(self.name, begins)
        if begins:
            self.probe = CircuitProbe(self, self._threads.probes)
            self.scheduler.add(self.probe)
        self.wake_workers()

    def wake_workers(self) -> None:
        """Pools that serve requests here look again. Any thread; does not block."""
        with self._lock:
            workers = list(self._workers)
        for worker in workers:
            worker.wake()

    def _room_came_free(self) -> None:
        """A creation without an answer counts no more."""
        self.forget_unanswered()
        self.wake_workers()

    def pausedReason(self) -> str | None:
        """Why nothing new is begun now; None = all is well."""
        return f"the circuit breaker is open: {self.calls.circuit_reason}" if self.calls.circuit_open else None

    def pauseStatus(self) -> PauseStatus | None:
        """`pausedReason`, since when, and when the cloud is asked again."""
        if (text := self.pausedReason()) is None:
            return None
        return PauseStatus(ReasonCode.PROVIDER_CIRCUIT_OPEN.value, text, *self.calls.circuit_times)

    # -- requests --

    def getRequestHandler(self, poolworker: Any, request: NodeRequest) -> StateMachineHandler:
        with self._lock:
            self._workers.add(poolworker)
        return self.handler_class(poolworker, request)

    def labelReady(self, name: Any) -> bool:
        """Is the image of a label there? Name or label object; does not wait for the cloud, but for a first answer."""
        return self.images.ready(name)

    def labelErrors(self) -> Mapping[str, LabelStatus]:
        """Why labels cannot be served now, and since when. What the cloud lacked is asked for again meanwhile."""
        return {**self.images.missing(), **super().labelErrors()}

    def newest_upload(self, image: str) -> ImageUpload | None:
        """The newest ready upload of a diskimage; blocks for ZooKeeper only where there is no cache."""
        return self._started.getMostRecentImageUpload(image, self.name, cached=True)

    @property
    def _started(self) -> ZooKeeper:
        if self.zk is None:
            raise RuntimeError(f"provider {self.name} was not started")
        return self.zk

    def image_of(self, label: LabelSettings) -> tuple[Any, str | None]:
        """External id of the uploaded image of a label (None = it uses a cloud image), and the node's ``image_id``.

        :raises LaunchNodepoolException: there is no upload (L-10).
        """
        diskimage = instance.diskimage_of(label)
        if diskimage is None:
            return None, getattr(getattr(label, "cloud_image", None), "name", None)
        upload = self.newest_upload(diskimage.name)
        if upload is None:
            raise LaunchNodepoolException(self.images.no_upload(label))
        path = caches.upload(upload.image_name, upload.build_id, self.name, upload.key)
        return upload.external_id, path

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

    # -- launches --

    def idInAdvance(self, node: Node) -> Any:
        pool = self.provider.pools[str(node.pool)]
        tags = instance.for_node(node.key, pool.name, self.name)
        hostname, label = instance.hostname(node.id), pool.labels[node.type[0]]
        return gateway.id_in_advance_in_cloud(self.name, self.adapter, hostname, label, tags)

    def canResume(self, node: Node) -> bool:
        pool = self.provider.pools.get(str(node.pool))
        known = pool is not None and any(label in pool.labels for label in node.type)
        return self.RESUMES and known and self.launch_of(node.key) is None

    def begin_launch(self, launch: NodeLaunch) -> None:
        """Take on a launch. Raises RuntimeError when the provider has ended."""
        with self._lock:
            self._launches[launch.node.key] = launch
        if not self.scheduler.add(launch, launch.held):
            self.launch_ended(launch)
            raise RuntimeError(f"provider {self.name} has ended")

    def launch_of(self, node_id: str) -> NodeLaunch | None:
        """The launch of a node, if it runs here."""
        with self._lock:
            return self._launches.get(node_id)

    def launch_ended(self, launch: NodeLaunch) -> None:
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

    # -- deletions --

    def startNodeCleanup(self, node: Node) -> NodeDeletion:
        task = NodeDeletion(self, node)
        if not self.scheduler.add(task, task.held):
            raise RuntimeError(f"provider {self.name} has ended")
        return task

    def node_deleted(self, node: Node) -> None:
        """The znode of a node is gone."""
        with self._lock:
            self._unmade.pop(node.key, None)
        gateway.node_deleted_notification(self, node)

    def delete_orphan(self, external_id: Any, log: Log) -> InstanceDeletion:
        """Delete an instance that nobody uses, in the background."""
        deletion = InstanceDeletion(self, external_id, log, persistent=True)
        if not self.scheduler.add(deletion, deletion.held):
            # The provider has ended.
            deletion.set()
        return deletion

    def cleanupNode(self, node_id: Any) -> None:
        task = InstanceDeletion(self, node_id, self.log, persistent=False)
        if not self.scheduler.add(task, task.held):
            raise RuntimeError(f"provider {self.name} has ended")
        with self._lock:
            self._cleanups[str(node_id)] = task

    def waitForNodeCleanup(self, node_id: Any) -> None:
        with self._lock:
            task = self._cleanups.pop(str(node_id), None)
        if task is None:
            return
        while task.is_alive() and (left := task.left + WAIT_LONGER_SECONDS) > 0:
            task.join(left)
        if task.is_alive():
            raise ServerDeleteTimeoutException(f"instance {node_id} is still there")
        if task.error is not None:
            raise task.error

    # -- images: these block as long as the cloud does; any thread, several at once --

    def uploadImage(
        self,
        provider_image: Any,
        image_name: str,
        filename: str,
        image_type: str | None = None,
        meta: dict[str, str] | None = None,
        md5: str | None = None,
        sha256: str | None = None,
    ) -> str:
        """See `nodepool.driver.interface.Provider.uploadImage`. The name of the provider is added to the metadata."""
        with self.transfers, working_for((HeldTime(),)):
            return gateway.upload_image_to_cloud(
                self.name,
                self.adapter,
                provider_image,
                image_name,
                filename,
                image_format=image_type,
                metadata={**(meta or {}), instance.PROVIDER_KEY: self.name, **instance.of_installation()},
                md5=md5,
                sha256=sha256,
            )

    def deleteImage(self, name: str, id: Any) -> None:
        """Delete an image; one that is gone already is no error.

        :param id: what the upload gave, or what `listImages` shows.
        """
        with self.transfers, working_for((HeldTime(),)), contextlib.suppress(NotFound):
            if isinstance(id, Resource):
                gateway.delete_resource(self.name, self.adapter, id)
            else:
                gateway.delete_image_in_cloud(self.name, self.adapter, id)

    def listImages(self) -> list[ListedImage]:
        """Images with metadata of ours. Adapters written for 11.0.0 show them among their resources.

        :raises NotImplementedError: the adapter lists neither.
        """
        try:
            return gateway.list_images_in_cloud(self.name, self.adapter)
        except NotImplementedError:
            # An adapter of the released interface.
            found = gateway.list_resources(self.name, self.adapter)
        ours = [one for one in found if instance.upload_of(one.metadata, self.name) is not None]
        return [
            ListedImage(resource, metadata=resource.metadata, usable=getattr(resource, "usable", True))
            for resource in ours
        ]

    # -- nodepool check --

    def preflight(self) -> Iterator[CheckResult]:
        """What the adapter says, whether the images of labels are uploaded, whether another installation has instances
        of the provider's name, and whether the instances of the nodes are there. Blocks as long as the adapter does.
        """
        self._know_installation()
        found = gateway.preflight_in_cloud(self.name, self.adapter)
        yield from found
        # Without ZooKeeper nothing else can be looked at; of a cloud in trouble the first errors say it all.
        if self.zk is not None:
            yield from _upload_checks(self)
            if all(result.ok for result in found):
                yield from _instance_checks(self)

    # -- leaks --

    def listNodes(self) -> list[Any]:
        return self.calls.list_instances()

    def cleanupLeakedResources(self) -> None:
        again = True
        try:
            again = self.sweep_leaks()
        finally:
            if again:
                self.look_for_leaks_soon(1)

    def lostInstances(self) -> Sequence[LostInstance]:
        return self.lost.take()

    def missingInstances(self) -> Mapping[str, float]:
        return self.lost.held

    def otherInstallations(self) -> Mapping[str, int]:
        return self._leaks.others

    def _instance_ended(self, node_id: str, record_id: str, code: str, text: str) -> None:
        """Called by lists and watches. Any thread; does not block."""
        adapter, cloud = self.adapter, self.adapter.instance_cloud
        node = None if self.zk is None else self.zk.getNode(node_id, only_cached=True)
        if cloud is None or node is None or node.state not in ALIVE or self.idle_now:
            return
        if cloud.record_id(node.external_id) == record_id:
            self._threads.asks.submit(self.lost.ended, node_id, code, text, counted=adapter.counts_ends)

    def sweep_leaks(self) -> bool:
        """Look for leaks now; blocks. Is another look worth while, soon: something seems to be left over?"""
        if self.idle_now:
            return False
        if self.calls.circuit_open:
            self.log.debug("Not looking for leaks: %s", self.calls.circuit_reason)
            return True
        # An operator may have adopted what an earlier installation made.
        self._know_installation()
        return self._leaks.sweep()

    def look_for_leaks_soon(self, looks: int = 2) -> None:
        """Something may be left over: do not wait for the regular sweep. Any thread; does not block."""
        with self._lock:
            if self._leak_look is not None or self.idle_now:
                return
            self._leak_look = LeakLook(self, self._threads.asks, looks)
            # Under the lock: `idle` wakes it.
            self.scheduler.add(self._leak_look)

    def leak_look_ended(self) -> None:
        with self._lock:
            self._leak_look = None

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
    :param adapter: may have ``shared_threads`` of its own, which are used then, and ``advance_threads``.
    """

    def __init__(self, name: str, adapter: Any) -> None:
        steps = getattr(adapter, "advance_threads", Adapter.advance_threads)
        extra = max(0, steps - STEP_THREADS)
        shared: SharedThreads | None = getattr(adapter, "shared_threads", None)
        self.shared = shared if shared is not None else SharedThreads(name, MAX_THREADS + extra)
        #: Questions to the cloud that nobody waits for.
        self.asks = self.shared.share("ask", ASK_THREADS, RESERVED_ASK_THREADS)
        #: One call at a time that finds out whether a cloud that was away answers again.
        self.probes = self.shared.share("probe", 1, 1)
        #: They wait for hosts that boot: nothing else must wait for them.
        self._of_scans = SharedThreads(name, MAX_SCANS)
        self.scans = self._of_scans.share("keyscan", MAX_SCANS, MAX_SCANS)
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


# What ``nodepool check`` finds out beside the driver.


def _instance_checks(provider: StateMachineProvider) -> Iterator[CheckResult]:
    """D-9, D-10. Other resources are not listed: some drivers clean up meanwhile."""
    name, lost = provider.name, provider.lost
    alive = lost.alive()
    try:
        listed = provider.calls.list_instances()
    except (LaunchError, RuntimeConfigurationException) as error:
        yield failure(OTHERS, error)
        return
    for other, count in sorted(instance.others((one.metadata for one in listed), name).items()):
        yield CheckResult(OTHERS, True, of_other(name, other, count), end_of_other(name, other))
    missing = sorted(lost.missing(alive, listed))
    if missing:
        yield CheckResult("instances of nodes", True, of_missing(name, missing), look_at_place())


def _upload_checks(provider: StateMachineProvider) -> Iterator[CheckResult]:
    """One result for each image that labels of the provider use."""
    labels: dict[str, list[str]] = {}
    for pool in provider.provider.pools.values():
        # Of a provider without labels of its own these are names.
        found = pool.labels.values() if isinstance(pool.labels, dict) else ()
        for label in found:
            image = instance.diskimage_of(label)
            if image is not None:
                labels.setdefault(str(image.name), []).append(label.name)
    for name, users in labels.items():
        subject = f"diskimage {name}"
        upload = provider.newest_upload(name)
        if upload is None:
            text = f"there is no ready upload of it for the label(s) {', '.join(dict.fromkeys(users))}"
            yield CheckResult(
                subject, False, text, "look with nodepool dib-image-list and image-list why; is it paused?"
            )
        else:
            yield CheckResult(subject, True, f"build {upload.build_id} is uploaded")


# `CircuitProbe`: finds out when a cloud whose circuit breaker is open answers again.


class CircuitProbe:
    """A task of the scheduler: asks a cloud whose circuit breaker is open whether it is back.

    :param executor: runs the calls: a cloud that is away may let them wait, and the one thread of some drivers goes on
        with deletions meanwhile.
    """

    def __init__(self, provider: StateMachineProvider, executor: Executor) -> None:
        self._provider = provider
        self._executor = executor
        self._call: Future[None] | None = None
        #: The opening was logged just now.
        self._repeats = Repeats()
        self._repeats.worth_saying(provider.name)

    def step(self) -> float | None:
        """See `nodepool.driver.statemachine.scheduler.Task`."""
        if self._call is not None:
            if not self._call.done():
                return WHEN_WOKEN_SECONDS
            self._call = None
        if self._provider.probe is not self:
            # The circuit breaker closed and opened again, and has a probe of its own.
            return None
        wait = self._provider.calls.probe_due()
        if wait is None or wait > 0:
            return wait
        if self._provider.idle_now and len(self._provider.scheduler) == 1:
            # It was replaced, and nothing that it began is left: its successor asks.
            return None
        self._call = self._executor.submit(self._ask)
        self._call.add_done_callback(lambda _: self._provider.scheduler.wake(self))
        return WHEN_WOKEN_SECONDS

    def _ask(self) -> None:
        """One call; blocks."""
        name = self._provider.name
        level = logging.WARNING if self._repeats.worth_saying(name) else logging.DEBUG
        with Guard(self._provider.log, "Provider %s still fails", name, level=level, traceback=False):
            self._provider.calls.list_instances()


# `StateMachineDriver`: entry point of drivers that have an `Adapter` (reference/driver 10).


class StateMachineDriver(Driver):
    """Subclasses implement `getProviderConfig` and `getAdapter`."""

    @abc.abstractmethod
    def getProviderConfig(self, provider: dict[str, Any]) -> ProviderConfig:
        """Make the configuration object of one provider section; it is not loaded yet."""

    @abc.abstractmethod
    def getAdapter(self, provider_config: ProviderConfig) -> Adapter:
        """Make the adapter of a loaded configuration. Must not ask the cloud yet."""

    def getProvider(self, provider_config: ProviderConfig) -> Provider:
        """Wires adapter and provider; a driver that needs ZooKeeper itself overrides it."""
        return StateMachineProvider(self.getAdapter(provider_config), provider_config)
