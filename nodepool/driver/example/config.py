# SPDX-License-Identifier: Apache-2.0
"""Configuration of the example driver.

::

    providers:
      - name: somewhere
        driver: example
        url: http://127.0.0.1:8910
        rate: 10                  # calls per second
        diskimages:
          - name: fedora          # built here and uploaded
        cloud-images:
          - name: debian          # is there already
            username: debian
        pools:
          - name: main
            max-servers: 10
            labels:
              - name: small
                cloud-image: debian
                size: small
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nodepool.driver.config import (
    ConfigPool,
    ImageSettings,
    LabelSettings,
    ProviderConfig,
    connection_schema,
    integer,
    nonempty,
    number,
    port,
)
from nodepool.driver.framework.images import DiskImageSettings, known_images, one_image

if TYPE_CHECKING:
    from nodepool.config.objects import Config


# [label]
class ExampleLabel(LabelSettings):
    """How to make a node of a label. Exactly one of the two images is set."""

    def __init__(self, pool: ExamplePool, provider: ExampleProviderConfig, data: dict[str, Any]) -> None:
        super().__init__(data["name"], pool)
        if "diskimage" in data:
            self.diskimage = provider.diskimages[data["diskimage"]]
        else:
            self.cloud_image = provider.cloud_images[data["cloud-image"]]
        self.size: str = data["size"]
        self.console_log: bool = data.get("console-log", False)
        self.host_key_checking: bool = data.get("host-key-checking", True)


# [pool]
class ExamplePool(ConfigPool):
    """A slice of the cloud."""

    def __init__(self, provider: ExampleProviderConfig) -> None:
        super().__init__()
        self.provider = provider
        self.labels: dict[str, ExampleLabel] = {}
        self.max_cores: int | None = None
        #: MiB
        self.max_ram: int | None = None

    def load(self, pool_config: dict[str, Any]) -> None:
        super().load(pool_config)
        self.max_cores = pool_config.get("max-cores")
        self.max_ram = pool_config.get("max-ram")
        self.azs = pool_config.get("availability-zones")
        for data in pool_config.get("labels", []):
            self.labels[data["name"]] = ExampleLabel(self, self.provider, data)


# [provider]
class ExampleProviderConfig(ProviderConfig):
    """One ``providers[]`` section with ``driver: example``."""

    # What the builder reads.
    manage_images = True
    image_type = "qcow2"

    def __init__(self, provider: dict[str, Any]) -> None:
        super().__init__(provider)
        self._pools: dict[str, ExamplePool] = {}
        self.diskimages: dict[str, DiskImageSettings] = {}
        self.cloud_images: dict[str, ImageSettings] = {}

    @property
    def pools(self) -> dict[str, ExamplePool]:
        return self._pools

    def load(self, newconfig: Config) -> None:
        data = self.provider
        self.url: str = data["url"]
        self.rate: float = data.get("rate", 10)
        self.launch_retries: int = data.get("launch-retries", 3)
        # Seconds until the cloud has to say that a machine runs, and from then until it has to answer.
        self.launch_timeout: float = data.get("launch-timeout", 600)
        self.boot_timeout: float = data.get("boot-timeout", 120)
        self.image_name_format: str = data.get("image-name-format", "{image_name}-{timestamp}")
        self.post_upload_hook: str | None = data.get("post-upload-hook")
        for section in data.get("diskimages", []):
            image = newconfig.diskimages[section["name"]]
            image.image_types.add(self.image_type)
            self.diskimages[image.name] = DiskImageSettings(section, image)
        for section in data.get("cloud-images", []):
            self.cloud_images[section["name"]] = ImageSettings(section)
        for section in data.get("pools", []):
            pool = ExamplePool(self)
            pool.load(section)
            self._pools[pool.name] = pool
            for label in pool.labels:
                newconfig.labels[label].pools.append(pool)

    # [schema]
    def getSchema(self) -> Any:
        # Here, because the commands that only read ZooKeeper start without it.
        import voluptuous as v

        label = {
            v.Required("name"): nonempty(),
            v.Required("size"): nonempty(),
            "diskimage": nonempty(),
            "cloud-image": nonempty(),
            "console-log": bool,
            "host-key-checking": bool,
        }
        pool = {
            **ConfigPool.getCommonSchemaDict(),
            "max-cores": integer(),
            "max-ram": integer(),
            "availability-zones": [nonempty()],
            "labels": [v.All(label, one_image)],
        }
        provider = {
            **ProviderConfig.getCommonSchemaDict(),
            v.Required("url"): nonempty(),
            "rate": number(0),
            "launch-retries": integer(1),
            "launch-timeout": number(0),
            "boot-timeout": number(0),
            "image-name-format": nonempty(),
            "post-upload-hook": nonempty(),
            "diskimages": [{v.Required("name"): nonempty(), "pause": bool, "meta": dict, "connection-port": port()}],
            "cloud-images": [{v.Required("name"): nonempty(), "username": str, **connection_schema()}],
            "pools": [pool],
        }
        return v.Schema(v.All(provider, known_images))
