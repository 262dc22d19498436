# SPDX-License-Identifier: Apache-2.0
"""Configuration of the fake driver.

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

from typing import TYPE_CHECKING, Any, ClassVar

from nodepool.driver.config import ConfigPool, Connection, ImageSettings
from nodepool.driver.framework.sections import CloudProviderConfig, DiskImageSettings, ImageLabel, LimitedPool
from nodepool.model.config_keys import (
    FILLED_TEXT,
    FLAG,
    SECONDS,
    TEXT,
    TEXTS,
    ConfigValue,
    MappingOf,
    Number,
    Sections,
    Whole,
    key,
    keys_of,
    with_default,
)

if TYPE_CHECKING:
    from nodepool.config.objects import Config


class FakeLabel(ImageLabel):
    """What a node of a label is made of: of an image that was uploaded, or else of one that the cloud has."""

    keys_also_of: ClassVar[tuple[type, ...]] = (Connection,)
    without_keys: ClassVar[tuple[str, ...]] = ("cloud-image", "console-log", "host-key-checking")
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


class FakePool(LimitedPool):
    """A slice of the cloud."""

    without_keys: ClassVar[tuple[str, ...]] = ("host-key-checking",)

    ignore_provider_quota: bool = key(FLAG, False, "true: only the limits of the pool count.")
    azs: list[str] | None = key(TEXTS, None, "One is chosen for each request.", name="availability-zones")
    labels: dict[str, FakeLabel] = key(Sections(FakeLabel), None, "What nodes are made of.")


class KnobSettings(ConfigValue):
    """Keys of a provider that set the knobs of the cloud; the attributes are those of `cloud.FakeKnobs`."""

    boot_seconds: float = key(SECONDS, None, "Time until a machine runs.", unit="seconds", default_text="0")
    delete_seconds: float = key(SECONDS, None, "Time until a machine is gone.", unit="seconds", default_text="0")
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
