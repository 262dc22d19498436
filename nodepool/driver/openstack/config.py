# SPDX-License-Identifier: Apache-2.0
"""Configuration of the OpenStack driver (reference/configuration 7).

::

    providers:
      - name: cloud-a
        driver: openstack
        cloud: example          # in clouds.yaml
        region-name: north
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
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from nodepool.driver.config import ImageSettings, Problem, Section, section_check
from nodepool.driver.framework.sections import (
    DYNAMIC_HELP,
    CloudPool,
    CloudProviderConfig,
    DeclaredPool,
    DiskImageSettings,
    ImageLabel,
    one_image,
)
from nodepool.model.config_keys import (
    ANY_MAPPING,
    FILLED_TEXT,
    FLAG,
    REQUIRED,
    SECONDS,
    TEXT,
    TEXTS,
    WHOLE,
    From,
    ListOf,
    Number,
    Sections,
    Whole,
    key,
    with_default,
)

if TYPE_CHECKING:
    from openstack.config.cloud_region import CloudRegion

    from nodepool.config.objects import Config
    from nodepool.driver.openstack.clouds import Clouds, CloudSettings

log = logging.getLogger("nodepool.driver.openstack.config")

_CONFIG_DRIVE = key(FLAG, None, "Servers with this image get a config drive, or none.", default_text="the cloud's")


class ProviderDiskImage(DiskImageSettings):
    """An image that the builder uploads here."""

    config_drive: bool | None = with_default(_CONFIG_DRIVE, None)


class CloudImage(ImageSettings):
    """An image that is in the cloud already."""

    first_counts: ClassVar[tuple[str, ...]] = ("image-id", "image-name")

    name: str = key(
        FILLED_TEXT,
        REQUIRED,
        "What labels call it. Without ``image-name`` and ``image-id`` it is the image's name or id in the cloud.",
    )
    image_name: str = key(
        FILLED_TEXT,
        None,
        "Name or id in the cloud. Of several images with one name the newest counts.",
        default_text="``name``",
    )
    image_id: str | None = key(FILLED_TEXT, None, "Id in the cloud, used without looking it up.")
    config_drive: bool | None = with_default(_CONFIG_DRIVE, None)

    def __init__(self, data: dict[str, Any]) -> None:
        super().__init__(data)
        self.image_name = self.image_name or self.name


@section_check
def _a_flavor(label: Section) -> Iterator[Problem]:
    if "flavor-name" not in label and "min-ram" not in label:
        yield [], "flavor-name or min-ram is needed"


@section_check
def _text_as_userdata(label: Section) -> Iterator[Problem]:
    if isinstance(label.get("userdata"), (dict, list)):
        yield ["userdata"], "userdata must be a text; write it as a block, with | after the key"


class OpenStackLabel(ImageLabel):
    """How to make a node of a label."""

    checks: ClassVar[tuple[Any, ...]] = (one_image, _a_flavor, _text_as_userdata)

    pool: OpenStackPool
    diskimage: ProviderDiskImage | None
    cloud_image: CloudImage | None

    flavor_name: str | None = key(
        FILLED_TEXT, None, "Name or id of a flavor.", default_text="this or ``min-ram`` is required"
    )
    min_ram: int = key(
        Whole(0),
        0,
        "The smallest flavor with so much; with ``flavor-name`` only those that have it as a part of their name.",
        unit="MiB",
    )
    key_name: str | None = key(TEXT.or_null(), None, "Key pair of the user in the cloud.")
    boot_from_volume: bool = key(FLAG, False, "Boot from a new volume, which is deleted with the server.")
    volume_size: int = key(Whole(1), 50, "Size of that volume.", unit="GB")
    instance_properties: dict[str, Any] = key(
        ANY_MAPPING.or_null(),
        {},
        "Metadata of the server, e.g. ``team: ci``. Those that begin with ``nodepool_``, and ``groups``, are "
        "Nodepool's.",
    )
    dynamic_instance_properties: dict[str, Any] = key(ANY_MAPPING.or_null(), {}, DYNAMIC_HELP)
    userdata: str | None = key(TEXT.or_null(), None, "User data for cloud-init.")
    networks: list[str] = key(TEXTS, From("pool"), "Instead of those of the pool.")
    host_key_checking: bool = key(FLAG, From("pool"), "Instead of that of the pool.")

    @property
    def config_drive(self) -> bool | None:
        """As the image wants it; None = as the cloud does by itself."""
        image = self.diskimage or self.cloud_image
        return None if image is None else image.config_drive


class OpenStackPool(DeclaredPool):
    """A slice of the cloud."""

    max_cores: int | None = key(WHOLE, None, "Cores that the nodes may use.", default_text="unlimited")
    max_ram: int | None = key(WHOLE, None, "Memory that the nodes may use.", unit="MiB", default_text="unlimited")
    max_volumes: int | None = key(WHOLE, None, "Volumes that the nodes may use.", default_text="unlimited")
    max_volume_gb: int | None = key(
        WHOLE, None, "Space of volumes that the nodes may use.", unit="GB", default_text="unlimited"
    )
    ignore_provider_quota: bool = key(
        FLAG, False, "true: before a launch only the limits of the pool count, not the quota of the cloud."
    )
    azs: list[str | None] | None = key(
        ListOf(TEXT, null_item="no zone, so that the cloud chooses one"),
        None,
        "One is chosen for each request; all nodes of the request are in it. With an empty text the cloud chooses.",
        name="availability-zones",
        convert=lambda zones: [zone or None for zone in zones] or None,
        default_text="all of the cloud",
    )
    networks: list[str] = key(
        TEXTS, [], "Names or ids. Needed where the project has more than one network.", default_text="the cloud decides"
    )
    security_groups: list[str] = key(TEXTS, [], "Names or ids.", default_text="``default``")
    auto_floating_ip: bool = key(
        FLAG,
        True,
        "A server that has no public address gets a floating IP if an external network can be reached from it. It is "
        "deleted before the server.",
    )
    host_key_checking: bool = with_default(CloudPool.host_key_checking, True)
    labels: dict[str, OpenStackLabel] = key(Sections(OpenStackLabel), None, "What nodes are made of.")


class OpenStackProviderConfig(CloudProviderConfig[OpenStackPool]):
    """One ``providers[]`` section with ``driver: openstack``.

    :param clouds: of the driver: what clouds.yaml says is part of the configuration.
    """

    ignore_equality: ClassVar[list[str]] = ["clouds"]

    cloud: str = key(FILLED_TEXT, REQUIRED, "Entry of ``clouds.yaml``.")
    region_name: str | None = key(TEXT.or_null(), None, "Region, e.g. ``north``.", default_text="the cloud's")
    rate: float | None = key(
        Number(0),
        None,
        "Pause between the beginnings of two API calls to the same service, over all launches; 0 = none. A launch "
        "takes 1 to 3 calls. See :doc:`/drivers/state-machine/index`.",
        unit="seconds",
        default_text="by the cloud's answers",
    )
    boot_timeout: float = with_default(CloudProviderConfig.boot_timeout, 60.0)
    image_upload_timeout: float = key(SECONDS, 3600.0, "Limit of the upload of an image.")
    clean_floating_ips: bool = key(
        FLAG,
        False,
        "true: floating IPs of the project that are attached to nothing in two sweeps are deleted, of others too.",
    )
    port_cleanup_interval: float = key(
        SECONDS,
        600.0,
        "Time between two checks for ports that are DOWN and have no owner, or Nova; those that were so twice are "
        "deleted. 0 = never.",
    )
    nodepool_id: None = key(TEXT.or_null(), None, "Deprecated: accepted, without effect.", read=False)
    diskimages: dict[str, ProviderDiskImage] = key(
        Sections(ProviderDiskImage), None, "Images that ``nodepool-builder`` uploads."
    )
    cloud_images: dict[str, CloudImage] = key(Sections(CloudImage), None, "Images that are in the cloud already.")
    _pools: dict[str, OpenStackPool] = key(Sections(OpenStackPool), None, "The pools of the provider.", name="pools")

    def __init__(self, provider: dict[str, Any], clouds: Clouds) -> None:
        super().__init__(provider)
        self.clouds = clouds
        self.cloud_settings: CloudSettings | None = None

    @property
    def image_type(self) -> str:
        """The format of uploaded images."""
        return "qcow2" if self.cloud_settings is None else self.cloud_settings.image_format

    @property
    def uses_tasks(self) -> bool:
        """Do tasks make images? ``image_api_use_tasks`` in clouds.yaml, where a text is true, as for openstacksdk."""
        return self.cloud_settings is not None and bool(self.cloud_settings.values.get("image_api_use_tasks"))

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
        self.read_keys(self.provider)
        self.cloud_settings = self.clouds.settings(self.cloud, self.region_name)
        newconfig.watched_files.update(self.clouds.files())
        if self.cloud_settings.outdated:
            log.error("Provider %s keeps its earlier settings: %s", self.name, self.cloud_settings.outdated)
        super().load(newconfig)

    def localProblems(self) -> Iterator[tuple[str, str]]:
        """What is wrong with clouds.yaml, and with files of labels."""
        yield from super().localProblems()
        settings = self.cloud_settings
        text = "" if settings is None else settings.problem or settings.outdated
        if text:
            yield "cloud", text

    def renewed_region(self, region: CloudRegion) -> CloudRegion | None:
        """What clouds.yaml has in place of a region since the last load; None = nothing else."""
        return self.clouds.renewed(self.cloud, self.region_name, region)
