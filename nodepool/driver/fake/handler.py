# SPDX-License-Identifier: Apache-2.0
"""`FakeRequestHandler`: serves one request; `FakeLauncher`: launches one node of it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from nodepool.driver import NodeRequestHandler
from nodepool.driver.fake.cloud import ACTIVE, Cancelled, CloudError, FakeInstance, NoSuchInstance, OverQuota
from nodepool.driver.fake.provider import NODE_KEY, POOL_KEY, PROVIDER_KEY
from nodepool.driver.utils import NodeLauncher
from nodepool.exceptions import (
    LaunchNodepoolException,
    LaunchStatusException,
    QuotaException,
    ServerCreateTimeoutException,
)
from nodepool.model.reasons import images_missing
from nodepool.zk import image_paths

if TYPE_CHECKING:
    from nodepool.driver.fake.config import FakeLabel, FakeProviderConfig
    from nodepool.driver.fake.provider import FakeProvider
    from nodepool.driver.framework.worker_view import PoolWorkerView
    from nodepool.model.node import Node
    from nodepool.model.reasons import Reason
    from nodepool.model.request import NodeRequest


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
        return image_paths.upload(image, upload.build_id, upload.provider_name, upload.key)

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
