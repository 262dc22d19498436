# SPDX-License-Identifier: Apache-2.0
"""Configuration of the Azure driver: first checks of keys together, then images, then labels, pools and provider.

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

import functools
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Final

from nodepool.driver.config import (
    ONE_OR_MORE,
    ImageConversion,
    ImageSettings,
    Problem,
    Section,
    as_texts,
    in_order,
    section_check,
)
from nodepool.driver.framework.sections import DYNAMIC_HELP, CloudLabel, CloudPool, CloudPoolsConfig, UploadedImage
from nodepool.model.config_keys import (
    ANY_MAPPING,
    FILLED_TEXT,
    FLAG,
    REQUIRED,
    TEXT,
    TEXTS,
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


# What keys of a section of Azure say together: what is wrong, and where in the section.

#: Where an image may come from: exactly one of them.
IMAGE_SOURCES: Final = (
    *("image-reference", "image-id", "image-filter", "shared-gallery-image", "community-gallery-image"),
)
_NETWORK_KEYS: Final = ("network", "resource-group", "subnet")
#: What sources of images must have.
_NEEDED: Final = {
    "image-reference": ("sku", "publisher", "offer", "version"),
    "shared-gallery-image": ("gallery-name", "name"),
    "community-gallery-image": ("gallery-name", "name"),
}


@section_check
def _label_check(label: Section) -> Iterator[Problem]:
    profile = label.get("hardware-profile")
    if not isinstance(profile, dict) or not profile.get("vm-size"):
        yield [], "hardware-profile.vm-size is needed, such as Standard_D2s_v5"


@section_check
def _provider_check(provider: Section) -> Iterator[Problem]:
    network = provider.get("network")
    if bool(network) == bool(provider.get("subnet-id")):
        yield [], "exactly one of network and subnet-id is needed"
    elif isinstance(network, dict):
        for name in sorted(str(name) for name in network if name not in _NETWORK_KEYS):
            yield ["network", name], f"unknown key; there are {', '.join(_NETWORK_KEYS)}"
        if not network.get("network"):
            yield ["network"], "the name of the network is needed"


def _login_problems(image: Section) -> Iterator[Problem]:
    """Azure makes no VM without a way to log in. A key may also come from the provider's ``zuul-public-key``."""
    if image.get("password") and image.get("generate-password"):
        yield ["generate-password"], "only one of password and generate-password can be given"


@section_check
def _cloud_image_check(image: Section) -> Iterator[Problem]:
    given = [name for name in IMAGE_SOURCES if image.get(name)]
    if len(given) != 1:
        yield [*given[1:2]], f"exactly one of {', '.join(IMAGE_SOURCES)} is needed"
    for source, names in _NEEDED.items():
        values = image.get(source)
        for name in names:
            if isinstance(values, dict) and not values.get(name):
                yield [source], f"{name} is needed"
    yield from _login_problems(image)


# Configuration of images on Azure.


def _named(name: str, help: str, default_text: str = "not given") -> Any:
    """A key whose value names an image, or a part of its name."""
    return key(FILLED_TEXT, None, help, name=name, default_text=default_text)


#: Declares a key of tags.
_tags: Final = functools.partial(key, ANY_MAPPING, {}, convert=as_texts)


class AzureImageSettings(ImageSettings):
    """How to log in to what is made of an image."""

    checks: ClassVar[tuple[Any, ...]] = (section_check(_login_problems),)

    ssh_key: str | None = key(
        TEXT.or_null(), None, "Public SSH key that the user accepts. With it, passwords are not accepted.", name="key"
    )
    password: str | None = key(TEXT.or_null(), None, "Of the user.")
    generate_password: bool = key(
        FLAG, False, "true: a random password that is stored nowhere, for images that need one."
    )


class AzureCloudImage(AzureImageSettings):
    """An image that is in Azure already."""

    checks: ClassVar[tuple[Any, ...]] = (_cloud_image_check,)

    username: str = key(FILLED_TEXT, REQUIRED, "Made on the VM; Zuul logs in as this user.")
    image_id: str | None = _named("image-id", "Id of an image, or of a version of an image in a gallery.")
    publisher: str | None = _named("image-reference.publisher", "Of an image of the Marketplace.")
    offer: str | None = _named("image-reference.offer", "E.g. ``debian-12``.")
    sku: str | None = _named("image-reference.sku", "E.g. ``12-gen2``.")
    version: str | None = _named("image-reference.version", "Version, or ``latest``.")
    filter_name: str | None = _named(
        "image-filter.name",
        "Name of an image of the resource group. Of several images that match a filter the last one by name counts; "
        "they are looked up every five minutes.",
        "any",
    )
    filter_location: str | None = _named("image-filter.location", "Location of the image.", "any")
    filter_tags: dict[str, str] = _tags("Tags that the image has.", name="image-filter.tags")
    shared_gallery: str | None = _named(
        "shared-gallery-image.gallery-name",
        "Unique name of a gallery that is shared with the subscription or its tenant.",
    )
    shared_name: str | None = _named("shared-gallery-image.name", "Image in it.")
    shared_version: str | None = _named("shared-gallery-image.version", "Version of the image.", "the latest")
    community_gallery: str | None = _named(
        "community-gallery-image.gallery-name", "Public name of a gallery that is open to everybody."
    )
    community_name: str | None = _named("community-gallery-image.name", "Image in it.")
    community_version: str | None = _named("community-gallery-image.version", "Version of the image.", "the latest")

    @property
    def has_filter(self) -> bool:
        """Must it be looked up?"""
        return not (self.image_id or self.publisher or self.shared_gallery or self.community_gallery)

    def reference(self) -> dict[str, str]:
        """``imageReference`` of a VM, unless there is a filter."""
        if self.publisher:
            named = {"publisher": self.publisher, "offer": self.offer, "sku": self.sku, "version": self.version}
            return {name: str(value) for name, value in named.items()}
        for kind in ("shared", "community"):
            gallery, name, version = (getattr(self, f"{kind}_{part}") for part in ("gallery", "name", "version"))
            if gallery:
                path = f"/{kind.capitalize()}Galleries/{gallery}/Images/{name}"
                return {f"{kind}GalleryImageId": f"{path}/Versions/{version}" if version else path}
        return {"id": str(self.image_id)}


class AzureDiskImage(UploadedImage, AzureImageSettings):
    """An image that the builder uploads here."""

    tags: dict[str, str] = _tags("Of the image; they win over the ``metadata`` of the top-level image.")


MIB: Final = 1024 * 1024
#: Environment variable with the path of the file with the credentials.
AUTH_VARIABLE = "AZURE_AUTH_LOCATION"


class AzureLabel(CloudLabel):
    """How to make a node of a label."""

    checks: ClassVar[tuple[Any, ...]] = (*CloudLabel.checks, _label_check)

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
    tags: dict[str, str] = _tags(
        "Of the VM, its network interface and its public addresses, e.g. ``team: ci``. Those that begin with "
        "``nodepool_`` are Nodepool's."
    )
    dynamic_tags: dict[str, str] = _tags(DYNAMIC_HELP)
    user_data: str | None = key(TEXT.or_null(), None, "User data of the VM, which it can read all its life.")
    custom_data: str | None = key(TEXT.or_null(), None, "Custom data for cloud-init at the first boot.")
    volume_size: int | None = key(Whole(1), None, "Of the OS disk.", unit="GiB", default_text="the image's")


class AzurePool(CloudPool):
    """A slice of the location."""

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
    labels: dict[str, AzureLabel] = key(Sections(AzureLabel), None, "What nodes are made of.")

    def load(self, pool_config: dict[str, Any]) -> None:
        super().load(pool_config)
        # A public address needs a private one of its kind; without any wish it is IPv4.
        self.ipv6 = bool(self.ipv6 or self.public_ipv6)
        self.ipv4 = bool(self.ipv4 or self.public_ipv4) or not self.ipv6


class AzureProviderConfig(CloudPoolsConfig[AzurePool]):
    """One ``providers[]`` section with ``driver: azure``."""

    checks: ClassVar[tuple[Any, ...]] = (*CloudPoolsConfig.checks, _provider_check)

    #: The only format that Azure takes: a fixed VHD of whole MiB. That of diskimage-builder grows, and has any size.
    # https://learn.microsoft.com/azure/virtual-machines/linux/create-upload-generic
    image_type = "vhd"
    image_conversion = ImageConversion("raw", "vpc", "subformat=fixed,force_size", MIB)

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
    ipv4: bool | None = key(FLAG, None, "For pools without it.", default_text="true if nothing else is")
    ipv6: bool | None = key(FLAG, None, "For pools without it.", default_text="false")
    public_ipv6: bool = key(FLAG, False, "For pools without it.")
    rate: float | None = key(
        Number(0),
        None,
        "Calls per second, of all kinds together, as in Nodepool 11.0.0. Azure's own limits hold as well. 0 = no limit "
        "at all.",
        default_text="Azure's own limits, see :doc:`/drivers/azure/behaviour`",
    )
    zuul_public_key: str | None = key(
        TEXT.or_null(), None, "Deprecated: ``key`` of images that have none.", default_text="not given"
    )
    diskimages: dict[str, AzureDiskImage] = key(
        Sections(AzureDiskImage), None, "Images that ``nodepool-builder`` uploads."
    )
    cloud_images: dict[str, AzureCloudImage] = key(Sections(AzureCloudImage), None, "Images that are in Azure already.")
    _pools: dict[str, AzurePool] = key(Sections(AzurePool), None, "The pools of the provider.", name="pools")

    def load(self, newconfig: Config) -> None:
        super().load(newconfig)
        self.auth_path = self.auth_path or os.environ.get(AUTH_VARIABLE)
        images: list[AzureImageSettings] = [*self.cloud_images.values(), *self.diskimages.values()]
        for image in images:
            image.ssh_key = image.ssh_key or self.zuul_public_key

    @property
    def subnet(self) -> tuple[str, str, str] | None:
        """Resource group, network and subnet by their names; None = ``subnet-id`` names it."""
        if self.subnet_id or not self.network:
            return None
        given = {"network": self.network} if isinstance(self.network, str) else self.network
        return given.get("resource-group") or self.resource_group, given["network"], given.get("subnet") or "default"
