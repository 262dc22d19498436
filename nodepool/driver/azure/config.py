# SPDX-License-Identifier: Apache-2.0
"""Configuration of the Azure driver.

::

    providers:
      - name: azure-north
        driver: azure
        location: northeurope
        resource-group: nodepool
        resource-group-location: northeurope
        auth-path: /etc/nodepool/azure.json
        network: ci
        cloud-images:
          - name: debian
            username: zuul
            key: ssh-ed25519 AAAA...
            image-reference: {publisher: Debian, offer: debian-12, sku: 12-gen2, version: latest}
        pools:
          - name: main
            max-servers: 20
            labels:
              - name: small
                cloud-image: debian
                hardware-profile:
                  vm-size: Standard_D2s_v5
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any, ClassVar

from nodepool.driver.azure import config_checks as checks
from nodepool.driver.azure import vhd
from nodepool.driver.azure.image_config import AzureCloudImage, AzureDiskImage
from nodepool.driver.config import ConfigPool, ImageConversion
from nodepool.driver.framework.images import ImageLabel, one_image
from nodepool.driver.framework.one_or_more import ONE_OR_MORE, as_texts, in_order
from nodepool.driver.framework.sections import CloudProviderConfig
from nodepool.model.config_keys import (
    ANY_MAPPING,
    FILLED_TEXT,
    FLAG,
    REQUIRED,
    TEXT,
    TEXTS,
    WHOLE,
    From,
    MappingOf,
    Number,
    OneOf,
    Sections,
    Whole,
    key,
)

if TYPE_CHECKING:
    from nodepool.config.objects import Config

#: Environment variable with the path of the file with the credentials.
AUTH_VARIABLE = "AZURE_AUTH_LOCATION"


class AzureLabel(ImageLabel):
    """How to make a node of a label."""

    checks: ClassVar[tuple[Any, ...]] = (one_image, checks.vm_size)
    without_keys: ClassVar[tuple[str, ...]] = ("console-log",)

    pool: AzurePool
    diskimage: AzureDiskImage | None
    cloud_image: AzureCloudImage | None

    vm_sizes: list[str] = key(
        ONE_OR_MORE,
        [],
        "E.g. ``Standard_D2s_v5``. The first of a list that Azure has capacity for is used; what a node needs of "
        "the quota is counted by the first.",
        name="hardware-profile.vm-size",
        convert=in_order,
        default_text="required",
    )
    tags: dict[str, str] = key(
        ANY_MAPPING,
        {},
        "Of the VM, its network interface and its public addresses, e.g. ``team: ci``. Those that begin with "
        "``nodepool_`` are Nodepool's.",
        convert=as_texts,
    )
    dynamic_tags: dict[str, str] = key(
        ANY_MAPPING,
        {},
        'The same with values of the request: ``tenant: "{request.tenant_name}"``. There are ``id``, ``labels``, '
        "``requestor``, ``requestor_data``, ``relative_priority``, ``event_id``, ``created_time`` and ``tenant_name``. "
        "A value that cannot be formatted is left out and logged.",
        convert=as_texts,
    )
    user_data: str | None = key(TEXT.or_null(), None, "User data of the VM, which it can read all its life.")
    custom_data: str | None = key(TEXT.or_null(), None, "Custom data for cloud-init at the first boot.")
    volume_size: int | None = key(Whole(1), None, "Of the OS disk.", unit="GiB", default_text="the image's")
    use_spot: bool = key(FLAG, False, "A spot VM: cheaper, and Azure may evict it while a job runs.")
    spot_fallback: bool = key(FLAG, False, "With ``use-spot``: a regular VM if Azure has no capacity for a spot VM.")
    host_key_checking: bool = key(FLAG, From("pool"), "Instead of that of the pool.")


class AzurePool(ConfigPool):
    """A slice of the location."""

    max_servers: float = key(
        WHOLE, math.inf, "Nodes at once; 0 or less = the pool declines every request.", default_text="unlimited"
    )
    availability_zones: list[str] = key(
        TEXTS,
        [],
        'Zones of the location, e.g. ``["1", "2"]``; the first one that has capacity is used.',
        default_text="Azure chooses",
    )
    ipv4: bool | None = key(FLAG, From("provider"), "VMs get a private IPv4 address.")
    ipv6: bool | None = key(FLAG, From("provider"), "VMs get a private IPv6 address; the subnet must have some.")
    public_ipv4: bool = key(FLAG, From("provider"), "VMs get a public IPv4 address, and a private one with it.")
    public_ipv6: bool = key(FLAG, From("provider"), "VMs get a public IPv6 address, and a private one with it.")
    use_internal_ip: bool = key(FLAG, From("provider"), "Nodes are reached at their private addresses.")
    host_key_checking: bool = key(
        FLAG, From("provider"), "false: a node is not contacted before it is given out, and has no host keys."
    )
    labels: dict[str, AzureLabel] = key(Sections(AzureLabel), None, "What nodes are made of.")

    def __init__(self, provider: AzureProviderConfig) -> None:
        super().__init__()
        self.provider = provider

    def load(self, pool_config: dict[str, Any]) -> None:
        super().load(pool_config)
        self.ipv4, self.ipv6 = private_addresses(self.ipv4, self.ipv6, self.public_ipv4, self.public_ipv6)
        for data in pool_config.get("labels") or []:
            self.labels[data["name"]] = AzureLabel(self, self.provider, data)


def private_addresses(ipv4: bool | None, ipv6: bool | None, public_ipv4: bool, public_ipv6: bool) -> tuple[bool, bool]:
    """Which private addresses a VM gets: a public one needs one of its kind; without any wish it is IPv4."""
    found = (bool(ipv4 or public_ipv4), bool(ipv6 or public_ipv6))
    return found if any(found) else (True, False)


class AzureProviderConfig(CloudProviderConfig[AzurePool]):
    """One ``providers[]`` section with ``driver: azure``."""

    checks: ClassVar[tuple[Any, ...]] = (*CloudProviderConfig.checks, checks.one_network)
    without_keys: ClassVar[tuple[str, ...]] = ("image-name-format",)

    #: The only format that Azure takes: a fixed VHD of whole MiB. That of diskimage-builder grows, and has any size.
    # https://learn.microsoft.com/azure/virtual-machines/linux/create-upload-generic
    image_type = "vhd"
    image_conversion = ImageConversion("raw", "vpc", "subformat=fixed,force_size", vhd.MIB)

    location: str = key(FILLED_TEXT, REQUIRED, "E.g. ``northeurope``.")
    resource_group: str = key(FILLED_TEXT, REQUIRED, "All that is made is made in it; it must exist.")
    resource_group_location: str = key(
        FILLED_TEXT, REQUIRED, "Required by Nodepool 11.0.0, and without use there and here."
    )
    auth_path: str | None = key(
        FILLED_TEXT,
        None,
        "File with the credentials, see below.",
        default_text=f"path in the environment variable ``{AUTH_VARIABLE}``",
    )
    network: Any = key(
        OneOf((FILLED_TEXT, MappingOf(FILLED_TEXT))),
        None,
        "Network of the VMs, whose subnet is ``default``; or a mapping of ``network`` (required), ``subnet`` and "
        "``resource-group``. Either this or ``subnet-id``.",
        default_text="one is required",
    )
    subnet_id: str | None = key(
        TEXT.or_null(), None, "Id of the subnet, which begins with ``/subscriptions/``.", default_text="one is required"
    )
    ipv4: bool | None = key(FLAG, None, "Of pools that do not say it.", default_text="true if nothing else is")
    ipv6: bool | None = key(FLAG, None, "Of pools that do not say it.", default_text="false")
    public_ipv4: bool = key(FLAG, True, "Of pools that do not say it.")
    public_ipv6: bool = key(FLAG, False, "Of pools that do not say it.")
    use_internal_ip: bool = key(FLAG, False, "Of pools that do not say it.")
    host_key_checking: bool = key(FLAG, True, "Of pools that do not say it.")
    rate: float | None = key(
        Number(0),
        None,
        "Calls per second, of all kinds together, as in Nodepool 11.0.0. Azure's own limits hold as well. 0 = no limit "
        "at all.",
        default_text="Azure's own limits, see :doc:`behaviour`",
    )
    zuul_public_key: str | None = key(
        TEXT.or_null(), None, "Deprecated: ``key`` of images that have none.", default_text="not given"
    )
    diskimages: dict[str, AzureDiskImage] = key(
        Sections(AzureDiskImage), None, "Images that ``nodepool-builder`` uploads."
    )
    cloud_images: dict[str, AzureCloudImage] = key(Sections(AzureCloudImage), None, "Images that are in Azure already.")
    _pools: dict[str, AzurePool] = key(Sections(AzurePool), None, "Slices of the provider.", name="pools")

    def load(self, newconfig: Config) -> None:
        super().load(newconfig)
        self.auth_path = self.auth_path or os.environ.get(AUTH_VARIABLE)
        images: list[AzureCloudImage | AzureDiskImage] = [*self.cloud_images.values(), *self.diskimages.values()]
        for image in images:
            image.ssh_key = image.ssh_key or self.zuul_public_key

    @property
    def subnet(self) -> tuple[str, str, str] | None:
        """Resource group, network and subnet by their names; None = ``subnet-id`` names it."""
        if self.subnet_id or not self.network:
            return None
        given = {"network": self.network} if isinstance(self.network, str) else self.network
        return given.get("resource-group") or self.resource_group, given["network"], given.get("subnet") or "default"
