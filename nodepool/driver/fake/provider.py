# SPDX-License-Identifier: Apache-2.0
"""`FakeProvider`: one configured cloud."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver import Provider
from nodepool.driver.fake.cloud import FakeCloud, FakeInstance, NoSuchInstance
from nodepool.driver.fake.config import FakePool, FakeProviderConfig
from nodepool.driver.fake.images import FakeImage, NoSuchImage
from nodepool.driver.framework.listed_image import ListedImage
from nodepool.driver.framework.upload_check import ImageContent, check_stored
from nodepool.driver.framework.upload_progress import CountingFile
from nodepool.driver.utils import QuotaInformation, QuotaSupport
from nodepool.exceptions import NotFound, RuntimeConfigurationException, ServerDeleteTimeoutException
from nodepool.guard import Guard, OnError
from nodepool.metrics import leaks
from nodepool.plan.seen_twice import SeenTwice

if TYPE_CHECKING:
    from collections.abc import Callable

    from nodepool.driver import ConfigPool, NodeRequestHandler
    from nodepool.driver.framework.worker_view import PoolWorkerView
    from nodepool.model.image import ImageUpload
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
                leaks.report(self.name, "instances")

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
