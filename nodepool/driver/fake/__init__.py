# SPDX-License-Identifier: Apache-2.0
"""The fake driver: launches instances in a cloud that is only in memory.

* ``config.py``: the keys of the configuration file;
* ``cloud.py``: the cloud itself, which a real driver does not have.

It serves tests and demonstrations: knobs in the configuration, or in ``FakeCloud.get(name)``, make it slow, full or
unreliable. To learn how a driver is written read `nodepool.driver.example`. Here are what launches and deletions of one
configured cloud share, how they go, then the adapter and the provider.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from nodepool.driver.fake.cloud import (
    ACTIVE,
    BUILDING,
    DELETING,
    CloudError,
    FakeCloud,
    FakeInstance,
    NoSuchImage,
    NoSuchInstance,
    OverQuota,
)
from nodepool.driver.fake.config import FakeProviderConfig
from nodepool.driver.framework.uploads import CountingFile, ImageContent, check_stored
from nodepool.driver.statemachine import (
    CloudAdapter,
    CloudInstance,
    CreationKey,
    CreationMachine,
    DeletionMachine,
    ImageFile,
    Instance,
    InstanceCloud,
    ListedImage,
    ResourceKinds,
    StateMachineDriver,
    StateMachineHandler,
    StateMachineProvider,
)
from nodepool.exceptions import CloudUnavailableException, LaunchStatusException, NotFound, QuotaException
from nodepool.guard import OnError
from nodepool.model.node import QuotaInformation

if TYPE_CHECKING:
    from nodepool.zk.zookeeper import ZooKeeper


@contextlib.contextmanager
def calling() -> Iterator[None]:
    """Errors of the cloud become ours."""
    try:
        yield
    except OverQuota as error:
        raise QuotaException(str(error)) from None
    except NoSuchInstance as error:
        raise NotFound(f"there is no instance {error}") from None
    except CloudError as error:
        raise CloudUnavailableException(str(error)) from None


class FakeInstances(InstanceCloud[FakeInstance]):
    """The instances of one cloud, for one provider."""

    def __init__(self, provider: str, cloud: FakeCloud) -> None:
        super().__init__(provider)
        self.cloud = cloud

    def list_instances(self, since: str | None) -> list[FakeInstance]:
        with calling():
            return self.cloud.instances()

    def get_instance(self, record_id: str) -> FakeInstance:
        with calling():
            return self.cloud.instance(record_id)

    def delete_instance(self, record_id: str) -> None:
        with calling():
            self.cloud.delete(record_id)

    def instance(self, record: FakeInstance) -> CloudInstance:
        return CloudInstance(
            record,
            QuotaInformation.from_resources(dict(record.resources)),
            ready=record.status == ACTIVE,
            deleted=record.status == DELETING,
            public_ipv4=record.address,
            private_ipv4=record.address,
            cloud=self.cloud.name,
            region="nowhere",
            az=record.az,
            host_id=record.id,
        )


class FakeDeletion(DeletionMachine[FakeInstance]):
    """Deletes an instance and waits until it does not exist any more."""

    def begun(self, record: FakeInstance) -> bool:
        return record.status == DELETING


class FakeCreation(CreationMachine[FakeInstance]):
    """Makes an instance and waits until it runs."""

    cloud: FakeInstances
    deletion_class = FakeDeletion
    idempotent = True

    def create(self, key: CreationKey) -> str:
        self.permit()
        resources = {"cores": self.label.cores, "ram": self.label.ram}
        given: dict[str, Any] = {"metadata": self.metadata, "az": self.order.az, "key": key.text}
        with calling():
            return self.cloud.cloud.create(self.order.hostname, resources=resources, **given).id

    def seen(self, record: FakeInstance) -> Instance | bool:
        if record.status not in (ACTIVE, BUILDING):
            raise LaunchStatusException(f"instance {record.id} is in state {record.status}")
        return self.cloud.instance(record) if record.status == ACTIVE else False


class FakeAdapter(CloudAdapter):
    """What the framework asks of the cloud."""

    creation_class = FakeCreation

    def __init__(self, provider_config: FakeProviderConfig) -> None:
        super().__init__(provider_config)
        self.cloud = FakeCloud.get(provider_config.cloud)
        self._instances = FakeInstances(provider_config.name, self.cloud)
        self._stopped = threading.Event()
        self.use(self._instances)
        self.resources = ResourceKinds(provider_config.name, [self.instance_kind()])

    def stop(self) -> None:
        super().stop()
        self._stopped.set()
        self.cloud.images.wake()

    def getQuotaLimits(self) -> QuotaInformation:
        return QuotaInformation(default=float("inf"), **self.cloud.knobs.limits)

    def getQuotaForLabel(self, label: Any) -> QuotaInformation:
        return QuotaInformation(instances=1, cores=label.cores, ram=label.ram)

    def upload(self, file: ImageFile) -> str:
        images = self.cloud.images
        image = images.create(file.name, file.format, file.metadata)
        # Whatever it was, half an image must not stay (rule U-9).
        with OnError(lambda _: self.deleteImage(image.id)):
            with open(file.path, "rb") as opened:
                content = CountingFile(opened)
                stored = images.upload(image.id, content, content.size, self._stopped.is_set)
            sent = ImageContent.of(content.size, md5=file.md5, sha256=file.sha256)
            check_stored(file.name, sent, ImageContent.of(stored.size, md5=stored.md5, sha256=stored.sha256))
        return image.id

    def deleteImage(self, external_id: str) -> None:
        with contextlib.suppress(NoSuchImage):
            self.cloud.images.delete(external_id)

    def listImages(self) -> list[ListedImage]:
        return [ListedImage(image.id, image.name, image.metadata) for image in self.cloud.images.images()]


class FakeRequestHandler(StateMachineHandler):
    """That of the framework."""


class FakeProvider(StateMachineProvider):
    """That of the framework; the knobs of its section are set when it starts."""

    handler_class = FakeRequestHandler
    adapter: FakeAdapter
    provider: FakeProviderConfig

    def start(self, zk_conn: ZooKeeper) -> None:
        self.cloud.set(**self.provider.knobs)
        super().start(zk_conn)

    @property
    def cloud(self) -> FakeCloud:
        return self.adapter.cloud


class FakeDriver(StateMachineDriver):
    """``driver: fake``"""

    name = "fake"

    def getProviderConfig(self, provider: dict[str, Any]) -> FakeProviderConfig:
        return FakeProviderConfig(provider)

    def getAdapter(self, provider_config: Any) -> FakeAdapter:
        return FakeAdapter(provider_config)

    def getProvider(self, provider_config: Any) -> FakeProvider:
        return FakeProvider(self.getAdapter(provider_config), provider_config)
