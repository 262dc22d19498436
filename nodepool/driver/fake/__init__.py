# SPDX-License-Identifier: Apache-2.0
"""The fake driver: launches instances in a cloud that is only in memory.

It serves tests and demonstrations: knobs in the configuration, or in ``FakeCloud.get(name)``, make it slow, full or
unreliable. To learn how a driver is written read ``examples/driver``. ``cloud.py`` is the cloud itself, which a
real driver does not have. Here are the keys of the configuration file, then what launches and deletions of one
configured cloud share, how they go, then the adapter and the provider.

::

    providers:
      - name: nowhere
        driver: fake
        cloud: demo              # clouds of the same name are the same cloud; default: the provider's name
        boot-seconds: 2
        limits: {instances: 20, cores: 40}
        diskimages:
          - name: fedora           # built and uploaded by nodepool-builder; into the memory of its process
        pools:
          - name: main
            max-servers: 10
            labels:
              - name: small      # also connection-type, connection-port, python-path, shell-type, username
                cores: 2
                ram: 2048
              - name: built
                diskimage: fedora
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from nodepool.driver.config import ConfigPool, Connection, ImageSettings
from nodepool.driver.fake import cloud as fake
from nodepool.driver.framework.sections import CloudProviderConfig, DeclaredPool, DiskImageSettings, ImageLabel
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
    StateMachineProvider,
)
from nodepool.driver.statemachine.provider import CloudDriver
from nodepool.exceptions import CloudUnavailableException, LaunchStatusException, NotFound, QuotaException
from nodepool.guard import OnError
from nodepool.model.config_keys import (
    FILLED_TEXT,
    FLAG,
    SECONDS,
    TEXT,
    TEXTS,
    WHOLE,
    ConfigValue,
    MappingOf,
    Number,
    Sections,
    Whole,
    key,
    keys_of,
    with_default,
)
from nodepool.model.node import QuotaInformation

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.zk.zookeeper import ZooKeeper


class FakeLabel(ImageLabel):
    """What a node of a label is made of: of an image that was uploaded, or else of one that the cloud has."""

    keys_also_of: ClassVar[tuple[type, ...]] = (Connection,)
    without_keys: ClassVar[tuple[str, ...]] = (
        *("cloud-image", "console-log", "host-key-checking"),
        *("ready-check", "ready-check-timeout", "ready-check-key"),
    )
    checks: ClassVar[tuple[Any, ...]] = ()

    cores: int = key(Whole(0), 1, "Cores of the machine.")
    ram: int = key(Whole(0), 1024, "Memory of the machine.", unit="MiB")
    username: str = key(TEXT, "zuul", "Zuul logs in as this user.")
    diskimage: Any = key(
        FILLED_TEXT, None, "Image of the provider's ``diskimages``, which says how to log in.", read=False
    )

    def __init__(self, pool: ConfigPool, provider: Any, data: dict[str, Any]) -> None:
        super().__init__(pool, provider, data)
        if self.diskimage is None:
            self.cloud_image = ImageSettings(data, username=self.username)
        # Nothing answers at the addresses of instances that are only in memory.
        self.host_key_checking = False


class FakePool(DeclaredPool):
    """A slice of the cloud."""

    max_cores: int | None = key(WHOLE, None, "Cores that the nodes may use.", default_text="unlimited")
    max_ram: int | None = key(WHOLE, None, "Memory that the nodes may use.", unit="MiB", default_text="unlimited")
    ignore_provider_quota: bool = key(FLAG, False, "true: only the limits of the pool count.")
    azs: list[str] | None = key(TEXTS, None, "One is chosen for each request.", name="availability-zones")
    labels: dict[str, FakeLabel] = key(Sections(FakeLabel), None, "What nodes are made of.")


class KnobSettings(ConfigValue):
    """Keys of a provider that set the knobs of the cloud; the attributes are those of `cloud.FakeKnobs`."""

    boot_seconds: float = key(SECONDS, None, "Time until a machine runs.", default_text="0")
    delete_seconds: float = key(SECONDS, None, "Time until a machine is deleted.", default_text="0")
    fail_launches: int = key(Whole(0), None, "So many machines end in ``error``.", default_text="0")
    hang: bool = key(FLAG, None, "true: machines never run.", default_text="false")
    limits: dict[str, float] = key(MappingOf(Number(0)), None, "Quota, e.g. ``{instances: 20, cores: 40}``.")


class FakeProviderConfig(CloudProviderConfig[FakePool]):
    """One ``providers[]`` section with ``driver: fake``."""

    without_keys: ClassVar[tuple[str, ...]] = ("boot-timeout",)
    keys_also_of: ClassVar[tuple[type, ...]] = (KnobSettings,)

    cloud: str = key(FILLED_TEXT, "", "Clouds of the same name are the same cloud.", default_text="the provider's name")
    launch_timeout: float = with_default(CloudProviderConfig.launch_timeout, 60.0)
    image_type: str = key(FILLED_TEXT, "qcow2", "Format of uploaded images.")
    diskimages: dict[str, DiskImageSettings] = key(Sections(DiskImageSettings), None, "Images that are uploaded.")
    _pools: dict[str, FakePool] = key(Sections(FakePool), None, "The pools of the provider.", name="pools")

    def __init__(self, provider: dict[str, Any]) -> None:
        super().__init__(provider)
        self.knobs: dict[str, Any] = {}

    def load(self, newconfig: Config) -> None:
        super().load(newconfig)
        self.cloud = self.cloud or self.name
        values = {item.attribute: item.value(self, self.provider) for item in keys_of(KnobSettings)}
        self.knobs = {name: value for name, value in values.items() if value is not None}


# The adapter, and what it is made of.


@contextlib.contextmanager
def calling() -> Iterator[None]:
    """Errors of the cloud become ours."""
    try:
        yield
    except fake.OverQuota as error:
        raise QuotaException(str(error)) from None
    except fake.NoSuchInstance as error:
        raise NotFound(f"there is no instance {error}") from None
    except fake.CloudError as error:
        raise CloudUnavailableException(str(error)) from None


class FakeInstances(InstanceCloud[fake.FakeInstance]):
    """The instances of one cloud, for one provider."""

    def __init__(self, provider: str, cloud: fake.FakeCloud) -> None:
        super().__init__(provider)
        self.cloud = cloud

    def list_instances(self, since: str | None) -> list[fake.FakeInstance]:
        with calling():
            return self.cloud.instances()

    def get_instance(self, record_id: str) -> fake.FakeInstance:
        with calling():
            return self.cloud.instance(record_id)

    def delete_instance(self, record_id: str) -> None:
        with calling():
            self.cloud.delete(record_id)

    def instance(self, record: fake.FakeInstance) -> CloudInstance:
        return CloudInstance(
            record,
            QuotaInformation.from_resources(dict(record.resources)),
            ready=record.status == fake.ACTIVE,
            deleted=record.status == fake.DELETING,
            public_ipv4=record.address,
            private_ipv4=record.address,
            cloud=self.cloud.name,
            region="nowhere",
            az=record.az,
            host_id=record.id,
        )


class FakeDeletion(DeletionMachine[fake.FakeInstance]):
    """Deletes an instance and waits until it does not exist any more."""

    def begun(self, record: fake.FakeInstance) -> bool:
        return record.status == fake.DELETING


class FakeCreation(CreationMachine[fake.FakeInstance]):
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

    def seen(self, record: fake.FakeInstance) -> Instance | bool:
        if record.status not in (fake.ACTIVE, fake.BUILDING):
            raise LaunchStatusException(f"instance {record.id} is in state {record.status}")
        return self.cloud.instance(record) if record.status == fake.ACTIVE else False


class FakeAdapter(CloudAdapter):
    """What the framework asks of the cloud."""

    creation_class = FakeCreation

    def __init__(self, provider_config: FakeProviderConfig) -> None:
        super().__init__(provider_config)
        self.cloud = fake.FakeCloud.get(provider_config.cloud)
        self._instances = FakeInstances(provider_config.name, self.cloud)
        self.use(self._instances)
        self.resources = ResourceKinds(provider_config.name, [self.instance_kind()])

    def getQuotaLimits(self) -> QuotaInformation:
        return QuotaInformation(default=float("inf"), **self.cloud.knobs.limits)

    def getQuotaForLabel(self, label: Any) -> QuotaInformation:
        return QuotaInformation(instances=1, cores=label.cores, ram=label.ram)

    def upload(self, file: ImageFile) -> str:
        images = self.cloud.images
        image = images.create(file.name, file.format, file.metadata)
        # Whatever it was, half an image must not stay (rule U-9).
        with OnError(lambda _: self.deleteImage(image.id)), open(file.path, "rb") as opened:
            content = CountingFile(opened)
            stored = images.upload(image.id, content)
            sent = ImageContent.of(content.size, md5=file.md5, sha256=file.sha256)
            check_stored(file.name, sent, ImageContent.of(stored.size, md5=stored.md5, sha256=stored.sha256))
        return image.id

    def deleteImage(self, external_id: str) -> None:
        with contextlib.suppress(fake.NoSuchImage):
            self.cloud.images.delete(external_id)

    def listImages(self) -> list[ListedImage]:
        return [ListedImage(image.id, image.name, image.metadata) for image in self.cloud.images.images()]


class FakeProvider(StateMachineProvider):
    """That of the framework; the knobs of its section are set when it starts."""

    adapter: FakeAdapter
    provider: FakeProviderConfig

    def start(self, zk_conn: ZooKeeper) -> None:
        self.cloud.set(**self.provider.knobs)
        super().start(zk_conn)

    @property
    def cloud(self) -> fake.FakeCloud:
        return self.adapter.cloud


class FakeDriver(CloudDriver):
    """``driver: fake``"""

    name = "fake"
    config_class = FakeProviderConfig
    adapter_class = FakeAdapter
    provider_class = FakeProvider
