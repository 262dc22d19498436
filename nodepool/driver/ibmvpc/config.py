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

import math
from typing import TYPE_CHECKING, Any, ClassVar, Final

from nodepool.driver.config import ConfigPool, ImageSettings
from nodepool.driver.framework.images import DiskImageSettings, ImageLabel, one_image
from nodepool.driver.framework.key_schema import ONE_OR_MORE, in_order, mappings
from nodepool.driver.framework.sections import CloudProviderConfig
from nodepool.model.config_keys import (
    FILLED_TEXT,
    FLAG,
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

if TYPE_CHECKING:
    import voluptuous as v

    from nodepool.config.objects import DiskImage


# What keys of a section of IBM VPC say together. Each takes a section and returns it, or raises voluptuous.Invalid.

Section = dict[str, Any]

#: Where an image may come from: exactly one of them.
IMAGE_SOURCES: Final = ("image-href", "image-id", "image-name", "image-filter")
#: What an image's operating system can be asked for.
OPERATING_SYSTEM: Final = (
    *("architecture", "dedicated-host-only", "display-name", "family", "href", "name", "vendor", "version"),
)
STORAGE_KEYS: Final = ("bucket-name", "endpoint", "instance-name")


def _invalid(text: str, path: list[Any] | None = None) -> v.Invalid:
    import voluptuous as v

    return v.Invalid(text, path=path)


def name_in_groups(section: Section) -> Section:
    """The names of provider and pool are in that of a resource group, with ``_`` between them (IV-3)."""
    if "_" in str(section.get("name", "")):
        raise _invalid("the name must not have _: it is a part of the name of a resource group", path=["name"])
    return section


def one_image_source(image: Section) -> Section:
    given = [name for name in IMAGE_SOURCES if image.get(name)]
    if len(given) != 1:
        raise _invalid(f"exactly one of {', '.join(IMAGE_SOURCES)} is needed", path=[*given[1:2]])
    return image


def known_operating_system(image: Section) -> Section:
    found = image.get("image-filter")
    wanted = found.get("operating-system") if isinstance(found, dict) else None
    unknown = sorted(str(name) for name in wanted or () if name not in OPERATING_SYSTEM)
    if unknown:
        known = ", ".join(OPERATING_SYSTEM)
        raise _invalid(f"unknown key; there are {known}", path=["image-filter", "operating-system", unknown[0]])
    return image


def profile(label: Section) -> Section:
    if not label.get("profile"):
        raise _invalid("profile is needed, such as bx2-2x8")
    return label


def whole_storage(provider: Section) -> Section:
    storage = provider.get("object-storage")
    if isinstance(storage, dict):
        missing = [name for name in STORAGE_KEYS if not storage.get(name)]
        if missing:
            raise _invalid(f"{missing[0]} is needed", path=["object-storage"])
        return provider
    for index, image in mappings(provider, "diskimages"):
        if not image.get("pause"):
            text = "the image is imported from object storage: add object-storage to the provider"
            raise _invalid(text, path=["diskimages", index])
    return provider


def zone_and_subnet(provider: Section) -> Section:
    """Both stand in each pool, or in the provider for all of them."""
    import voluptuous as v

    problems = []
    for index, pool in mappings(provider, "pools"):
        for name in ("zone", "subnet"):
            if not pool.get(name) and not provider.get(name):
                text = f"{name} is needed, in the pool or in the provider"
                problems.append(_invalid(text, path=["pools", index]))
    if problems:
        raise v.MultipleInvalid(problems)
    return provider


# Configuration of images on IBM VPC.


class IbmCloudImage(ImageSettings):
    """An image that is in the region already."""

    checks: ClassVar[tuple[Any, ...]] = (one_image_source, known_operating_system)

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

    @property
    def must_be_found(self) -> bool:
        """Is it named by something that another image may have later?"""
        return not (self.image_id or self.image_href)


class IbmDiskImage(ImageSettings):
    """An image that the builder uploads here. How to log in stands here, not at the top level, but for the user.

    :param image: the top-level image.
    """

    name: str = key(FILLED_TEXT, REQUIRED, "Of an image in the top-level ``diskimages``.")
    username: str | None = key(
        TEXT.or_null(), None, "Deprecated: it belongs to the top-level image.", default_text="the top-level image's"
    )
    pause: bool = with_default(DiskImageSettings.pause, False)
    operating_system: str = key(
        FILLED_TEXT,
        REQUIRED,
        "Name of the operating system as IBM calls it, such as ``debian-12-amd64``; "
        "``ibmcloud is operating-systems`` lists them.",
    )
    #: SSH keys of the region; an uploaded image has its own.
    ssh_keys: tuple[str, ...] = ()

    def __init__(self, data: dict[str, Any], image: DiskImage) -> None:
        super().__init__(data, username=image.username)


class IbmLabel(ImageLabel):
    """How to make a node of a label."""

    checks: ClassVar[tuple[Any, ...]] = (one_image, profile)
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
    use_spot: bool = key(FLAG, False, "A spot instance: cheaper, and IBM may stop it while a job runs.")
    spot_fallback: bool = key(
        FLAG, False, "With ``use-spot``: a regular instance if there is no capacity for a spot one."
    )
    host_key_checking: bool = key(FLAG, From("pool"), "Instead of that of the pool.")


class IbmPool(ConfigPool):
    """A slice of the region."""

    checks: ClassVar[tuple[Any, ...]] = (name_in_groups,)

    max_servers: float = key(
        WHOLE, math.inf, "Nodes at once; 0 or less = the pool declines every request.", default_text="unlimited"
    )
    zones: list[str] = key(
        ONE_OR_MORE.or_null(),
        From("provider"),
        "E.g. ``us-south-1``. The first of a list that has capacity is used.",
        name="zone",
        convert=in_order,
        default_text="that of the provider",
    )
    subnets: list[str] = key(
        ONE_OR_MORE.or_null(),
        From("provider"),
        "Subnet of the VPC, by its name or id; each zone needs one.",
        name="subnet",
        convert=in_order,
        default_text="that of the provider",
    )
    public_ipv4: bool = key(FLAG, From("provider"), "Nodes get a floating IP.")
    floating_ip_pool: int = key(
        Whole(0), From("provider"), "Floating IPs that are kept while no node uses them.", default_text="the provider's"
    )
    use_internal_ip: bool = key(FLAG, From("provider"), "Nodes are reached at their private addresses.")
    host_key_checking: bool = key(
        FLAG, From("provider"), "false: a node is not contacted before it is given out, and has no host keys."
    )
    labels: dict[str, IbmLabel] = key(Sections(IbmLabel), None, "What nodes are made of.")

    def __init__(self, provider: IbmProviderConfig) -> None:
        super().__init__()
        self.provider = provider

    def load(self, pool_config: dict[str, Any]) -> None:
        super().load(pool_config)
        for data in pool_config.get("labels") or []:
            self.labels[data["name"]] = IbmLabel(self, self.provider, data)


class IbmProviderConfig(CloudProviderConfig[IbmPool]):
    """One ``providers[]`` section with ``driver: ibmvpc``."""

    checks: ClassVar[tuple[Any, ...]] = (
        *CloudProviderConfig.checks,
        name_in_groups,
        zone_and_subnet,
        whole_storage,
    )
    without_keys: ClassVar[tuple[str, ...]] = ("image-name-format",)
    resumes_uploads: ClassVar[bool] = True

    vpc: str = key(FILLED_TEXT, REQUIRED, "Name of the VPC; it must exist.")
    region: str = key(FILLED_TEXT, REQUIRED, "E.g. ``us-south``.")
    zones: list[str] = key(
        ONE_OR_MORE.or_null(),
        [],
        "For pools without it.",
        name="zone",
        convert=in_order,
        default_text="each pool has its own",
    )
    subnets: list[str] = key(
        ONE_OR_MORE.or_null(),
        [],
        "For pools without it.",
        name="subnet",
        convert=in_order,
        default_text="each pool has its own",
    )
    credentials_file: str | None = key(
        FILLED_TEXT,
        None,
        "File with the credentials, see below.",
        default_text="where the libraries of IBM look for them",
    )
    quota_instances: int | None = key(
        WHOLE,
        None,
        "Instances of the account: IBM does not tell it.",
        name="quota.instances",
        default_text="unlimited",
    )
    quota_cores: int | None = key(
        WHOLE, None, "Virtual CPUs of all instances.", name="quota.cores", default_text="unlimited"
    )
    quota_ram: int | None = key(
        WHOLE, None, "Memory of all instances.", name="quota.ram", unit="GiB", default_text="unlimited"
    )
    public_ipv4: bool = key(FLAG, False, "For pools without it.")
    floating_ip_pool: int = key(
        Whole(0),
        10,
        "For pools without it. IBM bills a floating IP for a whole month, so free ones are used again; more "
        "than these are deleted.",
    )
    use_internal_ip: bool = key(FLAG, False, "For pools without it.")
    host_key_checking: bool = key(FLAG, True, "For pools without it.")
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
        "Name of the instance of Cloud Object Storage; ``object-storage`` is needed if images are uploaded.",
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

    def load(self, newconfig: Any) -> None:
        # The format of images is asked for before the framework reads the keys.
        self.read_keys(self.provider)
        super().load(newconfig)
