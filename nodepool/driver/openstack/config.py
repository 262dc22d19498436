# SPDX-License-Identifier: Apache-2.0
"""Configuration of the OpenStack driver (reference/configuration 7).

::

    providers:
      - name: cloud-a
        driver: openstack
        cloud: example          # in clouds.yaml
        region-name: north
        rate: 0.05              # seconds between API calls
        diskimages:
          - name: fedora        # built here and uploaded
        cloud-images:
          - name: debian        # is there already
            username: debian
        pools:
          - name: main
            max-servers: 20
            networks: [internal]
            labels:
              - name: small
                diskimage: fedora
                min-ram: 4096
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar

from nodepool.driver.config import ConfigPool, ImageSettings, LabelSettings, ProviderConfig
from nodepool.driver.framework.images import DiskImageSettings
from nodepool.driver.openstack import schema
from nodepool.exceptions import ConfigError

if TYPE_CHECKING:
    from openstack.config.cloud_region import CloudRegion

    from nodepool.config.objects import Config, DiskImage
    from nodepool.driver.openstack.clouds import Clouds, CloudSettings

log = logging.getLogger("nodepool.driver.openstack.config")


class ProviderDiskImage(DiskImageSettings):
    """An image that the builder uploads here."""

    def __init__(self, data: dict[str, Any], image: DiskImage) -> None:
        super().__init__(data, image)
        self.config_drive: bool | None = data.get("config-drive")


class CloudImage(ImageSettings):
    """An image that is in the cloud already."""

    def __init__(self, data: dict[str, Any]) -> None:
        super().__init__(data)
        self.config_drive: bool | None = data.get("config-drive")
        #: Used without a look-up (O-10).
        self.image_id: str | None = data.get("image-id")
        #: Name or id, looked up unless there is an ``image_id``.
        self.image_name: str = data.get("image-name") or self.name


class OpenStackLabel(LabelSettings):
    """How to make a node of a label."""

    pool: OpenStackPool

    def __init__(self, pool: OpenStackPool, provider: OpenStackProviderConfig, data: dict[str, Any]) -> None:
        super().__init__(data["name"], pool)
        self.diskimage: ProviderDiskImage | None = _named(provider.diskimages, data.get("diskimage"), "diskimage", self)
        self.cloud_image: CloudImage | None = _named(
            provider.cloud_images, data.get("cloud-image"), "cloud-image", self
        )
        self.flavor_name: str | None = data.get("flavor-name")
        #: MiB; 0 = no minimum.
        self.min_ram: int = data.get("min-ram") or 0
        self.key_name: str | None = data.get("key-name")
        self.console_log: bool = data.get("console-log", False)
        self.boot_from_volume: bool = data.get("boot-from-volume", False)
        #: GB
        self.volume_size: int = data.get("volume-size", 50)
        self.instance_properties: dict[str, Any] = data.get("instance-properties") or {}
        self.dynamic_instance_properties: dict[str, Any] = data.get("dynamic-instance-properties") or {}
        self.userdata: str | None = data.get("userdata")
        self.networks: list[str] = data.get("networks", pool.networks) or []
        self.host_key_checking: bool = data.get("host-key-checking", pool.host_key_checking)

    @property
    def config_drive(self) -> bool | None:
        """As the image wants it; None = as the cloud does by itself."""
        image = self.diskimage or self.cloud_image
        return None if image is None else image.config_drive


class OpenStackPool(ConfigPool):
    """A slice of the cloud."""

    def __init__(self, provider: OpenStackProviderConfig) -> None:
        super().__init__()
        self.provider = provider
        self.labels: dict[str, OpenStackLabel] = {}
        self.max_cores: int | None = None
        #: MiB
        self.max_ram: int | None = None
        self.max_volumes: int | None = None
        self.max_volume_gb: int | None = None
        self.networks: list[str] = []
        self.security_groups: list[str] = []
        self.auto_floating_ip = True
        self.host_key_checking = True
        self.use_internal_ip = False

    def load(self, pool_config: dict[str, Any]) -> None:
        super().load(pool_config)
        self.max_cores = pool_config.get("max-cores")
        self.max_ram = pool_config.get("max-ram")
        self.max_volumes = pool_config.get("max-volumes")
        self.max_volume_gb = pool_config.get("max-volume-gb")
        self.ignore_provider_quota = pool_config.get("ignore-provider-quota", False)
        self.azs = pool_config.get("availability-zones") or None
        self.networks = pool_config.get("networks") or []
        self.security_groups = pool_config.get("security-groups") or []
        self.auto_floating_ip = pool_config.get("auto-floating-ip", True)
        self.host_key_checking = pool_config.get("host-key-checking", True)
        for data in pool_config.get("labels") or []:
            self.labels[data["name"]] = OpenStackLabel(self, self.provider, data)


class OpenStackProviderConfig(ProviderConfig):
    """One ``providers[]`` section with ``driver: openstack``.

    :param clouds: of the driver: what clouds.yaml says is part of the configuration.
    """

    ignore_equality: ClassVar[list[str]] = ["clouds"]

    def __init__(self, provider: dict[str, Any], clouds: Clouds) -> None:
        super().__init__(provider)
        self.clouds = clouds
        self._pools: dict[str, OpenStackPool] = {}
        self.cloud: str = ""
        self.cloud_settings: CloudSettings | None = None
        self.region_name: str | None = None
        #: Seconds between two calls; 0 = no limit.
        self.rate = 1.0
        #: All in seconds.
        self.boot_timeout = 60.0
        self.launch_timeout = 3600.0
        self.image_upload_timeout = 3600.0
        self.port_cleanup_interval = 600.0
        self.launch_retries = 3
        self.image_name_format = "{image_name}-{timestamp}"
        self.post_upload_hook: str | None = None
        self.clean_floating_ips = False
        self.diskimages: dict[str, ProviderDiskImage] = {}
        self.cloud_images: dict[str, CloudImage] = {}

    @property
    def pools(self) -> dict[str, OpenStackPool]:
        return self._pools

    @property
    def manage_images(self) -> bool:
        return True

    @property
    def image_type(self) -> str:
        """The format of uploaded images."""
        return "qcow2" if self.cloud_settings is None else self.cloud_settings.image_format

    @property
    def image_by_task(self) -> bool:
        """Does the cloud take images only through its object storage?"""
        return self.cloud_settings is not None and self.cloud_settings.image_api_use_tasks

    @property
    def uses_volumes(self) -> bool:
        """Does any label or limit need the block storage service?"""
        return any(
            pool.max_volumes is not None
            or pool.max_volume_gb is not None
            or any(label.boot_from_volume for label in pool.labels.values())
            for pool in self._pools.values()
        )

    def load(self, newconfig: Config) -> None:
        """Parse the section; reads clouds.yaml.

        :raises ConfigError: a label names an image that the provider does not have, or a name is not defined at the top
            level. What is wrong with clouds.yaml shows when the provider is started.
        """
        data = self.provider
        self.cloud = data["cloud"]
        self.region_name = data.get("region-name")
        self.cloud_settings = self.clouds.settings(self.cloud, self.region_name)
        newconfig.watched_files.update(self.clouds.files())
        if self.cloud_settings.outdated:
            log.error("Provider %s goes on with earlier settings: %s", self.name, self.cloud_settings.outdated)
        self.rate = float(data.get("rate", self.rate))
        self.boot_timeout = float(data.get("boot-timeout", self.boot_timeout))
        self.launch_timeout = float(data.get("launch-timeout", self.launch_timeout))
        self.image_upload_timeout = float(data.get("image-upload-timeout", self.image_upload_timeout))
        self.port_cleanup_interval = float(data.get("port-cleanup-interval", self.port_cleanup_interval))
        self.launch_retries = data.get("launch-retries", self.launch_retries)
        self.image_name_format = data.get("image-name-format", self.image_name_format)
        self.post_upload_hook = data.get("post-upload-hook")
        self.clean_floating_ips = data.get("clean-floating-ips", False)
        for section in data.get("diskimages") or []:
            image = newconfig.diskimages[section["name"]]
            image.image_types.add(self.image_type)
            self.diskimages[image.name] = ProviderDiskImage(section, image)
        for section in data.get("cloud-images") or []:
            self.cloud_images[section["name"]] = CloudImage(section)
        for section in data.get("pools") or []:
            pool = OpenStackPool(self)
            pool.load(section)
            self._pools[pool.name] = pool
            for label in pool.labels:
                newconfig.labels[label].pools.append(pool)

    def renewed_region(self, region: CloudRegion) -> CloudRegion | None:
        """What clouds.yaml has in place of a region since the last load; None = nothing else."""
        return self.clouds.renewed(self.cloud, self.region_name, region)

    def getSchema(self) -> Any:
        return schema.provider_schema()


def _named(images: dict[str, Any], name: str | None, key: str, label: OpenStackLabel) -> Any:
    """The image that a label names; None if it names none. Raises ConfigError."""
    if name is None:
        return None
    if name not in images:
        raise ConfigError(f"label {label.name}: the provider has no {key} {name!r}; add it to its {key}s")
    return images[name]
