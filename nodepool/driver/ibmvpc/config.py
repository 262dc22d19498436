# SPDX-License-Identifier: Apache-2.0
"""Configuration of the IBM VPC driver: first checks of keys together, then images, then labels, pools and provider.

::

    providers:
      - name: ibm-south
        driver: ibmvpc
        vpc: ci
        region: us-south
        zone: us-south-1
        subnet: nodes
        cloud-images:
          - name: debian
            image-name: ibm-debian-12-6-minimal-amd64-1
            username: root
            keys: [zuul]
        pools:
          - name: main
            max-servers: 20
            labels:
              - name: small
                cloud-image: debian
                profile: bx2-2x8
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, ClassVar, Final

from nodepool.driver.config import ONE_OR_MORE, ImageSettings, Problem, Section, in_order, mappings, section_check
from nodepool.driver.framework.sections import CloudLabel, CloudPool, CloudPoolsConfig, UploadedImage
from nodepool.model.config_keys import (
    FILLED_TEXT,
    REQUIRED,
    TEXT,
    TEXTS,
    WHOLE,
    From,
    MappingOf,
    Number,
    Sections,
    Text,
    TextOrNumber,
    Whole,
    key,
    with_default,
)

# What keys of a section of IBM VPC say together: what is wrong, and where in the section.

#: Where an image may come from: exactly one of them.
IMAGE_SOURCES: Final = ("image-href", "image-id", "image-name", "image-filter")
#: What an image's operating system can be asked for.
OPERATING_SYSTEM: Final = (
    *("architecture", "dedicated-host-only", "display-name", "family", "href", "name", "vendor", "version"),
)
STORAGE_KEYS: Final = ("bucket-name", "endpoint", "instance-name")


def _name_problems(section: Section) -> Iterator[Problem]:
    """The names of provider and pool are in that of a resource group, with ``_`` between them (IV-3)."""
    if "_" in str(section.get("name", "")):
        yield ["name"], "the name must not have _: it is a part of the name of a resource group"


@section_check
def _cloud_image_check(image: Section) -> Iterator[Problem]:
    given = [name for name in IMAGE_SOURCES if image.get(name)]
    if len(given) != 1:
        yield [*given[1:2]], f"exactly one of {', '.join(IMAGE_SOURCES)} is needed"
    found = image.get("image-filter")
    wanted = found.get("operating-system") if isinstance(found, dict) else None
    for name in sorted(str(name) for name in wanted or () if name not in OPERATING_SYSTEM):
        yield ["image-filter", "operating-system", name], f"unknown key; there are {', '.join(OPERATING_SYSTEM)}"


@section_check
def _label_check(label: Section) -> Iterator[Problem]:
    if not label.get("profile"):
        yield [], "profile is needed, such as bx2-2x8"


def _no_place(provider: Section) -> Iterator[Problem]:
    """Zone and subnet stand in each pool, or in the provider for all of them."""
    for index, pool in mappings(provider, "pools"):
        for name in ("zone", "subnet"):
            if not pool.get(name) and not provider.get(name):
                yield ["pools", index], f"{name} is needed, in the pool or in the provider"


@section_check
def _storage_check(provider: Section) -> Iterator[Problem]:
    storage = provider.get("object-storage")
    if isinstance(storage, dict):
        for name in STORAGE_KEYS:
            if not storage.get(name):
                yield ["object-storage"], f"{name} is needed"
        return
    for index, image in mappings(provider, "diskimages"):
        if not image.get("pause"):
            yield ["diskimages", index], "the image is imported from object storage: add object-storage to the provider"


# Configuration of images on IBM VPC.


class IbmCloudImage(ImageSettings):
    """An image that is in the region already."""

    checks: ClassVar[tuple[Any, ...]] = (_cloud_image_check,)

    username: str = key(FILLED_TEXT, REQUIRED, "Zuul logs in as this user.")
    image_id: str | None = key(FILLED_TEXT, None, "Id of an image.", default_text="not given")
    image_href: str | None = key(FILLED_TEXT, None, "Address of an image in the API of IBM.", default_text="not given")
    image_name: str | None = key(
        FILLED_TEXT,
        None,
        "Name of an image of the account or of IBM. It is looked up every five minutes, and after a rejected launch.",
        default_text="not given",
    )
    operating_system: dict[str, Any] = key(
        MappingOf(TextOrNumber()),
        {},
        "What the operating system of the image is like: ``architecture``, ``dedicated-host-only``, ``display-name``, "
        "``family``, ``href``, ``name``, ``vendor``, ``version``. Of several images that match a filter the first one "
        "that IBM lists counts; they are looked up as those of ``image-name``.",
        name="image-filter.operating-system",
        default_text="any",
    )
    owner_type: str | None = key(
        Text(choices=("user", "provider")),
        None,
        "``user``: images of the account; ``provider``: those of IBM.",
        name="image-filter.owner-type",
        default_text="both",
    )
    status: str | None = key(
        FILLED_TEXT, None, "Such as ``available``.", name="image-filter.status", default_text="any that can be used"
    )
    ssh_keys: list[str] = key(TEXTS, [], "Names of SSH keys in the region; the image's user accepts them.", name="keys")


class IbmDiskImage(UploadedImage):
    """An image that the builder uploads here."""

    operating_system: str = key(
        FILLED_TEXT,
        REQUIRED,
        "Name of the operating system as IBM calls it, such as ``debian-12-amd64``; "
        "``ibmcloud is operating-systems`` lists them.",
    )
    #: SSH keys of the region; an uploaded image has its own.
    ssh_keys: tuple[str, ...] = ()


#: Declares a key of places, the first of which that has capacity is used; and one of a limit that IBM does not tell.
_places: Final = functools.partial(key, ONE_OR_MORE.or_null(), convert=in_order)
_limit: Final = functools.partial(key, WHOLE, None, default_text="unlimited")


class IbmLabel(CloudLabel):
    """How to make a node of a label."""

    checks: ClassVar[tuple[Any, ...]] = (*CloudLabel.checks, _label_check)
    without_keys: ClassVar[tuple[str, ...]] = ("console-log",)

    pool: IbmPool
    diskimage: IbmDiskImage | None
    cloud_image: IbmCloudImage | None

    profiles: list[str] = key(
        ONE_OR_MORE,
        [],
        "E.g. ``bx2-2x8``. The first of a list that IBM has capacity for is used; what a node needs of the quota "
        "is counted by the first.",
        name="profile",
        convert=in_order,
        default_text="required",
    )
    user_data: str | None = key(TEXT.or_null(), None, "User data for cloud-init.")
    volume_size: int | None = key(Whole(1), None, "Of the boot volume.", unit="GB", default_text="the image's")


class IbmPool(CloudPool):
    """A slice of the region."""

    checks: ClassVar[tuple[Any, ...]] = (section_check(_name_problems),)

    zones: list[str] = _places(
        From("provider"),
        "E.g. ``us-south-1``. The first of a list that has capacity is used.",
        name="zone",
        default_text="that of the provider",
    )
    subnets: list[str] = _places(
        From("provider"),
        "Subnet of the VPC, by its name or id; each zone needs one.",
        name="subnet",
        default_text="that of the provider",
    )
    floating_ip_pool: int = key(
        Whole(0), From("provider"), "Floating IPs that are kept while no node uses them.", default_text="the provider's"
    )
    labels: dict[str, IbmLabel] = key(Sections(IbmLabel), None, "What nodes are made of.")


class IbmProviderConfig(CloudPoolsConfig[IbmPool]):
    """One ``providers[]`` section with ``driver: ibmvpc``."""

    checks: ClassVar[tuple[Any, ...]] = (
        *CloudPoolsConfig.checks,
        section_check(_name_problems),
        section_check(_no_place),
        _storage_check,
    )
    resumes_uploads: ClassVar[bool] = True

    vpc: str = key(FILLED_TEXT, REQUIRED, "Name of the VPC; it must exist.")
    region: str = key(FILLED_TEXT, REQUIRED, "E.g. ``us-south``.")
    zones: list[str] = _places([], "For pools without it.", name="zone", default_text="each pool has its own")
    subnets: list[str] = _places([], "For pools without it.", name="subnet", default_text="each pool has its own")
    credentials_file: str | None = key(
        FILLED_TEXT,
        None,
        "File with the credentials, see below.",
        default_text="where the libraries of IBM look for them",
    )
    quota_instances: int | None = _limit("Instances of the account: IBM does not tell it.", name="quota.instances")
    quota_cores: int | None = _limit("Virtual CPUs of all instances.", name="quota.cores")
    quota_ram: int | None = _limit("Memory of all instances.", name="quota.ram", unit="GiB")
    public_ipv4: bool = with_default(CloudPoolsConfig.public_ipv4, False)
    floating_ip_pool: int = key(
        Whole(0),
        10,
        "For pools without it. IBM bills a floating IP for a whole month, so free ones are used again; more "
        "than these are deleted.",
    )
    rate: float | None = key(
        Number(0),
        None,
        "Calls per second that make instances, in the long run; as many delete them, and five times as many read; "
        "0 = no limit.",
        default_text="by IBM's answers, see :doc:`/drivers/ibmvpc/behaviour`",
    )
    storage_instance: str | None = key(
        FILLED_TEXT,
        None,
        "Name of the instance of Cloud Object Storage; it is not used. ``object-storage`` is needed if images are "
        "uploaded.",
        name="object-storage.instance-name",
    )
    storage_endpoint: str | None = key(
        FILLED_TEXT,
        None,
        "E.g. ``https://s3.us-south.cloud-object-storage.appdomain.cloud``.",
        name="object-storage.endpoint",
    )
    bucket_name: str | None = key(FILLED_TEXT, None, "Bucket, which must exist.", name="object-storage.bucket-name")
    image_type: str = key(Text(choices=("qcow2", "vhd")), "qcow2", "Format of uploaded images.", name="image-format")
    diskimages: dict[str, IbmDiskImage] = key(Sections(IbmDiskImage), None, "Images that ``nodepool-builder`` uploads.")
    cloud_images: dict[str, IbmCloudImage] = key(
        Sections(IbmCloudImage), None, "Images that are in the region already."
    )
    _pools: dict[str, IbmPool] = key(Sections(IbmPool), None, "The pools of the provider.", name="pools")
