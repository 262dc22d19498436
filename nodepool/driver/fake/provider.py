# SPDX-License-Identifier: Apache-2.0
"""One configured cloud in memory, without the framework of state machines.

First the provider, then the handler of a request and the launch of a node.
"""

from __future__ import annotations

import logging
import random
import threading
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver import NodeRequestHandler, Provider
from nodepool.driver.fake.cloud import (
    ACTIVE,
    Cancelled,
    CloudError,
    FakeCloud,
    FakeImage,
    FakeInstance,
    NoSuchImage,
    NoSuchInstance,
    OverQuota,
)
from nodepool.driver.fake.config import FakePool, FakeProviderConfig
from nodepool.driver.framework.images import ListedImage
from nodepool.driver.framework.uploads import CountingFile, ImageContent, check_stored
from nodepool.driver.utils import NodeLauncher, QuotaInformation, QuotaSupport
from nodepool.exceptions import (
    LaunchNodepoolException,
    LaunchStatusException,
    NotFound,
    QuotaException,
    RuntimeConfigurationException,
    ServerCreateTimeoutException,
    ServerDeleteTimeoutException,
)
from nodepool.guard import Guard, OnError
from nodepool.metrics import reports
from nodepool.model.reasons import images_missing
from nodepool.plan.retries import SeenTwice
from nodepool.zk import caches

if TYPE_CHECKING:
    from collections.abc import Callable

    from nodepool.driver import ConfigPool
    from nodepool.driver.fake.config import FakeLabel
    from nodepool.driver.framework.handler_hooks import PoolWorkerView
    from nodepool.model.image import ImageUpload
    from nodepool.model.node import Node
    from nodepool.model.reasons import Reason
    from nodepool.model.request import NodeRequest
    from nodepool.zk.zookeeper import ZooKeeper

#: Seconds after which a deletion is given up, to be tried again (rule X-5).
DELETE_SECONDS: Final = 600.0

# Keys of the metadata that say whose an instance is (rule D-1).
PROVIDER_KEY: Final = "nodepool_provider_name"
POOL_KEY: Final = "nodepool_pool_name"
NODE_KEY: Final = "nodepool_node_id"


class FakeProvider(QuotaSupport, Provider):
    """Owns its launches: threads of `FakeLauncher`.

    ``_lock`` guards the set of running launches.

    :param make_handler: makes the handler of a request.
    """

    log = logging.getLogger("nodepool.driver.fake.FakeProvider")

    def __init__(
        self,
        provider_config: FakeProviderConfig,
        make_handler: Callable[[PoolWorkerView, NodeRequest], NodeRequestHandler],
    ) -> None:
        super().__init__()
        self._make_handler = make_handler
        self.provider: FakeProviderConfig = provider_config
        self.name = provider_config.name
        self.cloud = FakeCloud.get(provider_config.cloud)
        self.abandoned = threading.Event()
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._launchers: set[threading.Thread] = set()
        self._leaked: SeenTwice[str] = SeenTwice()

    # -- life --

    def start(self, zk_conn: ZooKeeper) -> None:
        """A real driver connects here, and may start threads."""
        self.zk = zk_conn
        self.cloud.set(**self.provider.knobs)
        self.cloud.images.set(**self.provider.image_knobs)

    def stop(self) -> None:
        """Uploads that are under way break off."""
        self._stopped.set()
        self.cloud.images.wake()

    def join(self) -> None:
        """Launches that still run are abandoned: nobody is left to use their nodes, and the sweep deletes them."""
        self.abandoned.set()
        self.cloud.wake()
        with self._lock:
            running = list(self._launchers)
        for launcher in running:
            launcher.join()

    def begin(self, launcher: threading.Thread) -> None:
        """Start a launch. Raises RuntimeError after `stop`."""
        if self._stopped.is_set():
            raise RuntimeError(f"provider {self.name} was stopped")
        with self._lock:
            self._launchers.add(launcher)
        launcher.start()

    def ended(self, launcher: threading.Thread) -> None:
        """A launch is over, however it went."""
        with self._lock:
            self._launchers.discard(launcher)

    # -- requests --

    def labelReady(self, name: Any) -> bool:
        name = getattr(name, "name", name)
        labels = [pool.labels[name] for pool in self.provider.pools.values() if name in pool.labels]
        return any(label.diskimage is None or self.upload_of(label.diskimage.name) for label in labels)

    def upload_of(self, image: str) -> ImageUpload | None:
        """The newest ready upload of an image; asks ZooKeeper."""
        return self._started().getMostRecentImageUpload(image, self.name)

    def getRequestHandler(self, poolworker: Any, request: NodeRequest) -> NodeRequestHandler:
        return self._make_handler(poolworker, request)

    # -- deletion --

    def cleanupNode(self, node_id: Any) -> None:
        try:
            self.cloud.delete(node_id)
        except NoSuchInstance:
            raise NotFound(f"there is no instance {node_id}") from None

    def waitForNodeCleanup(self, node_id: Any) -> None:
        try:
            self.cloud.wait_gone(node_id, DELETE_SECONDS)
        except TimeoutError:
            raise ServerDeleteTimeoutException(f"instance {node_id} is still there") from None

    def listNodes(self) -> list[FakeInstance]:
        return self.cloud.instances()

    def is_ours(self, instance: FakeInstance) -> bool:
        return instance.metadata.get(PROVIDER_KEY) == self.name and NODE_KEY in instance.metadata

    def cleanupLeakedResources(self) -> None:
        """Delete instances of ours that had no node in this sweep and in the one before (rule D-2)."""
        # First the cloud, then ZooKeeper: a node is stored before its instance is made, so it cannot be missed.
        ours = [instance for instance in self.cloud.instances() if self.is_ours(instance)]
        known = self._known_nodes()
        leaked = {instance.id for instance in ours if instance.metadata[NODE_KEY] not in known}
        for instance_id in sorted(self._leaked.look(leaked)):
            self.log.warning("Deleting leaked instance %s", instance_id)
            # One that cannot be deleted must not keep the others.
            with Guard(self.log, "Leaked instance %s could not be deleted, trying again", instance_id):
                try:
                    self.cloud.delete(instance_id)
                except NoSuchInstance:
                    continue
                reports.report_leaks(self.name, "instances")

    def _known_nodes(self) -> set[str]:
        return set(self._started().getNodes())

    def _started(self) -> ZooKeeper:
        if self.zk is None:
            raise RuntimeError(f"provider {self.name} was not started")
        return self.zk

    # -- images --

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
        images = self.cloud.images
        image = images.create(image_name, image_type, {**(meta or {}), PROVIDER_KEY: self.name})
        # Whatever it was, half an image must not stay (rule U-9).
        with OnError(lambda _: self._discard(image)):
            with open(filename, "rb") as file:
                content = CountingFile(file)
                stored = images.upload(image.id, content, content.size, self._stopped.is_set)
            sent = ImageContent.of(content.size, md5=md5, sha256=sha256)
            check_stored(image_name, sent, ImageContent.of(stored.size, md5=stored.md5, sha256=stored.sha256))
        return image.id

    def deleteImage(self, name: str, id: Any) -> None:
        try:
            self.cloud.images.delete(id)
        except NoSuchImage:
            return

    def listImages(self) -> list[ListedImage]:
        return [ListedImage(image.id, image.name, image.metadata) for image in self.cloud.images.images()]

    def _discard(self, image: FakeImage) -> None:
        """What is left has our metadata: the builder looks for it."""
        with Guard(self.log, "What was uploaded of image %s could not be removed", image.name, traceback=False):
            self.deleteImage(image.name, image.id)

    # -- quota --

    def quotaNeededByLabel(self, label: str, pool: ConfigPool) -> QuotaInformation:
        if not isinstance(pool, FakePool) or label not in pool.labels:
            raise RuntimeConfigurationException(f"pool {pool.name} has no label {label}")
        config = pool.labels[label]
        return QuotaInformation(instances=1, cores=config.cores, ram=config.ram)

    def unmanagedQuotaUsed(self) -> QuotaInformation:
        known = self._known_nodes()
        used = QuotaInformation()
        for instance in self.cloud.instances():
            if not self.is_ours(instance) or instance.metadata[NODE_KEY] not in known:
                used.add(QuotaInformation.from_resources(dict(instance.resources)))
        return used

    def getProviderLimits(self) -> QuotaInformation:
        return QuotaInformation(default=float("inf"), **self.cloud.knobs.limits)


# `FakeRequestHandler`: serves one request; `FakeLauncher`: launches one node of it.


class FakeRequestHandler(NodeRequestHandler):
    """All methods are called by the pool worker's thread; none of them blocks on the cloud."""

    manager: FakeProvider
    provider: FakeProviderConfig

    def __init__(self, pw: PoolWorkerView, request: NodeRequest) -> None:
        super().__init__(pw, request)
        self._launchers: list[FakeLauncher] = []

    @property
    def alive_thread_count(self) -> int:
        return sum(1 for launcher in self._launchers if not launcher.complete)

    def imagesAvailable(self) -> bool:
        """The cloud has images of its own; those of labels with a diskimage must have been uploaded."""
        return all(self.manager.labelReady(label) for label in self.request.node_types)

    def why_images_missing(self) -> Reason:
        return images_missing(
            [name for name in sorted(set(self.request.node_types)) if not self.manager.labelReady(name)], {}
        )

    def hasProviderQuota(self, node_types: list[str]) -> bool:
        return self.manager.canEverFit(self.pool, node_types)

    def hasRemainingQuota(self, ntype: str) -> bool:
        return self.manager.roomForOne(self.pool, ntype)

    def setNodeMetadata(self, node: Node) -> None:
        # The framework has set the zone if the request has a node already: all share one (rule N-7).
        if node.az is None and self.pool.azs:
            node.az = random.choice(self.pool.azs)
        node.cloud = self.provider.cloud
        node.region = "nowhere"

    def launch(self, node: Node) -> None:
        launcher = FakeLauncher(self, node)
        self.manager.begin(launcher)
        self._launchers.append(launcher)

    def launchesComplete(self) -> bool:
        return self.alive_thread_count == 0


class FakeLauncher(NodeLauncher):
    """The base runs `launch` in a thread and turns what it raises into the state of the node."""

    handler: FakeRequestHandler

    def __init__(self, handler: FakeRequestHandler, node: Node) -> None:
        super().__init__(handler, node)
        # Looked up now: a reload replaces what the handler refers to, and this launch shall finish (L-17).
        self.manager = handler.manager
        self.config = handler.provider
        self.label: FakeLabel = handler.pool.labels[node.type[0]]
        self.pool_name = handler.pool.name
        self.need = self.manager.quotaNeededByLabel(self.label.name, handler.pool).get_resources()

    def run(self) -> None:
        try:
            super().run()
        finally:
            self.manager.ended(self)

    def launch(self) -> None:
        self._describe()
        for attempt in range(1, self.config.launch_retries + 1):
            try:
                self._attempt()
                return
            except QuotaException:
                # Not an attempt: the launch is aborted, and tried again when there is room (L-7).
                self.manager.invalidateQuotaCache()
                raise
            except (LaunchStatusException, ServerCreateTimeoutException) as error:
                if attempt == self.config.launch_retries or self.manager.abandoned.is_set():
                    raise
                self.log.warning("Attempt %d of %d failed: %s", attempt, self.config.launch_retries, error)
                self._delete_instances()

    def _describe(self) -> None:
        """What is known before there is an instance (L-1); stored together with the instance's id."""
        node, image = self.node, self.label.diskimage or self.label.cloud_image
        node.resources = self.need
        node.username = image.username
        node.python_path = image.python_path
        node.shell_type = image.shell_type
        node.connection_type = image.connection_type
        node.connection_port = image.connection_port
        node.host_keys = []
        if self.label.diskimage is not None:
            node.image_id = self._image_path(self.label.diskimage.name)

    def _image_path(self, image: str) -> str:
        upload = self.manager.upload_of(image)
        if upload is None:
            raise LaunchNodepoolException(f"there is no ready upload of image {image}")
        return caches.upload(image, upload.build_id, upload.provider_name, upload.key)

    def _attempt(self) -> None:
        instance = self._create()
        # At once: whoever finds the node after a crash knows what to delete (L-3).
        self.node.external_id = instance.id
        self.zk.storeNode(self.node)
        instance = self._wait(instance)
        if instance.status != ACTIVE:
            raise LaunchStatusException(f"instance {instance.id} is in state {instance.status}")
        self._connect(instance)

    def _create(self) -> FakeInstance:
        metadata = {
            NODE_KEY: self.node.key,
            PROVIDER_KEY: self.config.name,
            POOL_KEY: self.pool_name,
        }
        try:
            return self.manager.cloud.create(
                f"np{self.node.id}", metadata=metadata, resources=self.need, az=self.node.az
            )
        except OverQuota as error:
            raise QuotaException(str(error)) from None
        except CloudError as error:
            # There may be an instance although the answer was lost. Two for one node must never be.
            for instance in self._own_instances():
                self.log.warning("Creation failed (%s), but there is instance %s: taking it", error, instance.id)
                return instance
            raise LaunchStatusException(f"no instance was made: {error}") from None

    def _wait(self, instance: FakeInstance) -> FakeInstance:
        try:
            return self.manager.cloud.wait_booted(
                instance.id, self.config.launch_timeout, cancelled=self.manager.abandoned.is_set
            )
        except TimeoutError:
            raise ServerCreateTimeoutException(
                f"instance {instance.id} was not ready within {self.config.launch_timeout:g} s"
            ) from None
        except (NoSuchInstance, CloudError) as error:
            raise LaunchStatusException(f"instance {instance.id}: {error}") from None
        except Cancelled:
            raise LaunchNodepoolException("the launcher stops") from None

    def _connect(self, instance: FakeInstance) -> None:
        """How the node is reached. A real driver would now scan host keys, see `nodepool.driver.framework.keyscan`."""
        node = self.node
        node.hostname = instance.name
        node.interface_ip = node.public_ipv4 = node.private_ipv4 = instance.address
        node.host_id = instance.id

    def _own_instances(self) -> list[FakeInstance]:
        try:
            found = self.manager.listNodes()
        except CloudError as error:
            raise LaunchStatusException(f"instances could not be listed: {error}") from None
        return [i for i in found if self.manager.is_ours(i) and i.metadata[NODE_KEY] == self.node.id]

    def _delete_instances(self) -> None:
        """Before another attempt, what the last one made must be deleted (L-4)."""
        for instance in self._own_instances():
            try:
                self.manager.cloud.delete(instance.id)
                self.manager.cloud.wait_gone(instance.id, self.config.launch_timeout)
            except NoSuchInstance:
                continue
            except (CloudError, TimeoutError) as error:
                raise LaunchStatusException(f"instance {instance.id} could not be deleted: {error}") from None
        self.node.external_id = None
