# SPDX-License-Identifier: Apache-2.0
"""Configuration of the AWS driver: first checks of keys together, then images, then labels, pools and provider.

::

    providers:
      - name: ec2-north
        driver: aws
        region-name: eu-north-1
        cloud-images:
          - name: debian
            image-id: ami-0123456789abcdef0
            username: admin
        pools:
          - name: main
            max-servers: 20
            subnet-id: subnet-0123456789abcdef0
            labels:
              - name: small
                cloud-image: debian
                instance-type: t3.medium
                key-name: zuul
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

from nodepool.driver import config
from nodepool.driver.framework.sections import DYNAMIC_HELP, CloudLabel, CloudPool, CloudPoolsConfig, UploadedImage
from nodepool.model.config_keys import (
    ANY_MAPPING,
    FILLED_TEXT,
    FLAG,
    REQUIRED,
    SECONDS,
    TEXT,
    TEXTS,
    WHOLE,
    ConfigValue,
    From,
    ListOf,
    MappingOf,
    Number,
    Sections,
    Text,
    Whole,
    key,
    with_default,
)

# What keys of a section of AWS say together: what is wrong, and where in the section.


@config.section_check
def _label_check(label: config.Section) -> Iterator[config.Problem]:
    if ("instance-type" in label) == ("fleet" in label):
        yield [], "exactly one of instance-type and fleet is needed"
    if "instance-type" in label and not label["instance-type"]:
        yield ["instance-type"], "a type is needed, such as t3.medium"
    profile = label.get("iam-instance-profile")
    if isinstance(profile, dict) and {"name", "arn"} <= profile.keys():
        yield ["iam-instance-profile", "arn"], "only one of name and arn can be given"
    if label.get("dedicated-host") and label.get("use-spot"):
        yield ["use-spot"], "a spot instance cannot have a dedicated host; remove one of the two"
    if label.get("dedicated-host") and "fleet" in label:
        yield ["fleet"], "a fleet cannot have a dedicated host; name one instance-type instead"


@config.section_check
def _pool_check(pool: config.Section) -> Iterator[config.Problem]:
    subnets, zones = pool.get("subnet-id"), pool.get("availability-zone")
    for index, label in config.mappings(pool, "labels"):
        if label.get("dedicated-host") and not zones:
            text = "a dedicated host needs the availability-zone of its pool; add it there"
            yield ["labels", index, "dedicated-host"], text
    if subnets and zones and (isinstance(subnets, list) or isinstance(zones, list)):
        text = "a subnet is in one zone: beside a list, only one of subnet-id and availability-zone can be given"
        yield ["availability-zone"], text


@config.section_check
def _filter_check(image_filter: config.Section) -> Iterator[config.Problem]:
    for names in (("name", "Name"), ("values", "Values")):
        if sum(bool(image_filter.get(name)) for name in names) != 1:
            yield [], f"{names[0]} is needed, once"


@config.section_check
def _cloud_image_check(image: config.Section) -> Iterator[config.Problem]:
    if bool(image.get("image-id")) == bool(image.get("image-filters")):
        yield [], "exactly one of image-id and image-filters is needed"


@config.section_check
def _diskimage_check(image: config.Section) -> Iterator[config.Problem]:
    if image.get("imds-support") and image.get("import-method") == "image":
        text = "AWS takes it only with import-method snapshot or ebs-direct; remove it, or choose one of these"
        yield ["imds-support"], text


@config.section_check
def _provider_check(provider: config.Section) -> Iterator[config.Problem]:
    storage = provider.get("object-storage")
    bucket = isinstance(storage, dict) and storage.get("bucket-name")
    for index, image in config.mappings(provider, "diskimages"):
        if not bucket and image.get("import-method") != "ebs-direct" and not image.get("pause"):
            where = "add object-storage.bucket-name to the provider, or import-method: ebs-direct here"
            yield ["diskimages", index], f"the image is imported from S3: {where}"


# Configuration of images on AWS.

#: Import methods.
SNAPSHOT = "snapshot"
EBS_DIRECT = "ebs-direct"
IMAGE = "image"


class ImageFilter(ConfigValue):
    """One condition on images, as DescribeImages has it."""

    checks: ClassVar[tuple[Any, ...]] = (_filter_check,)

    name: str = key(FILLED_TEXT, "", "Such as ``name`` or ``tag:release``.", default_text="required", read=False)
    values: list[str] = key(
        TEXTS, [], "One of them must match; ``*`` and ``?`` are wildcards.", default_text="required", read=False
    )
    aws_name: str = key(FILLED_TEXT, "", "The same as ``name``.", name="Name", default_text="not given", read=False)
    aws_values: list[str] = key(
        TEXTS, [], "The same as ``values``.", name="Values", default_text="not given", read=False
    )

    def __init__(self, data: dict[str, Any]) -> None:
        self.name = data.get("name") or data["Name"]
        self.values = list(data.get("values") or data["Values"])

    def __repr__(self) -> str:
        return f"{self.name}={','.join(self.values)}"


class AwsCloudImage(config.ImageSettings):
    """An image that is in the region already."""

    checks: ClassVar[tuple[Any, ...]] = (_cloud_image_check,)

    username: str = key(FILLED_TEXT, REQUIRED, "Zuul logs in as this user.")
    image_id: str | None = key(
        FILLED_TEXT, None, "Id of the AMI; either this or ``image-filters``.", default_text="one is required"
    )
    image_filters: list[ImageFilter] = key(
        Sections(ImageFilter),
        None,
        "Of the AMIs for which all of them hold the newest counts; it is looked up every five minutes.",
        default_text="one is required",
    )

    def __init__(self, data: dict[str, Any]) -> None:
        super().__init__(data)
        self.image_filters = [ImageFilter(section) for section in data.get("image-filters") or []]


class AwsDiskImage(UploadedImage):
    """An image that the builder uploads here. How to log in stands here, not at the top level, but for the user.

    :param image: the top-level image.
    """

    checks: ClassVar[tuple[Any, ...]] = (_diskimage_check,)

    architecture: str = key(FILLED_TEXT, "x86_64", "Of the AMI: ``x86_64`` or ``arm64``.")
    ena_support: bool = key(FLAG, True, "The image has a driver for enhanced networking.")
    volume_size: int | None = key(
        Whole(1), None, "Of the root volume; not with ``image``.", unit="GiB", default_text="that of the image"
    )
    volume_type: str = key(FILLED_TEXT, "gp3", "Of the root volume.")
    import_method: str = key(
        Text(choices=(SNAPSHOT, EBS_DIRECT, IMAGE)),
        SNAPSHOT,
        "``snapshot``: AWS makes a snapshot of an object in S3; ``image``: it makes an AMI of it, and may change the "
        "image for that; ``ebs-direct``: the blocks are written to a snapshot, without S3.",
    )
    imds_support: str | None = key(
        Text(choices=("v2.0",)), None, "Instances need tokens for the metadata service; not with ``image``."
    )
    iops: int | None = key(Whole(1), None, "Of the root volume.", default_text="that of the type")
    throughput: int | None = key(Whole(1), None, "Of the root volume.", unit="MiB/s", default_text="that of the type")
    tags: dict[str, Any] = key(
        ANY_MAPPING, {}, "Of the AMI and its snapshot; they win over the ``metadata`` of the top-level image."
    )

    def format_problem(self, image_format: str) -> str | None:
        """Why AWS cannot use a file of a format by the import method; None = it can."""
        if self.import_method == EBS_DIRECT and image_format != "raw":
            return (
                "import-method ebs-direct writes the bytes of the file to a volume, so they must be raw, not "
                f"{image_format}; set image-format to raw, or choose another import-method"
            )
        if self.import_method == SNAPSHOT and image_format in ("ova", "vhdx"):
            advice = "choose import-method image, or another format"
            return f"AWS makes no snapshot of a file of format {image_format}; {advice}"
        return None


#: How a fleet chooses among its instance types.
STRATEGIES = ("prioritized", "price-capacity-optimized", "capacity-optimized", "diversified", "lowest-price")


class AwsLabel(CloudLabel):
    """How to make a node of a label."""

    checks: ClassVar[tuple[Any, ...]] = (*CloudLabel.checks, _label_check)

    pool: AwsPool
    diskimage: AwsDiskImage | None
    cloud_image: AwsCloudImage | None

    key_name: str = key(FILLED_TEXT, REQUIRED, "Key pair in the region; the image's user accepts it.")
    instance_types: list[str] = key(
        config.ONE_OR_MORE,
        [],
        "E.g. ``t3.medium``; either this or ``fleet``. The first of a list that AWS has capacity for is used; what a "
        "node needs of the limits is counted by the first.",
        name="instance-type",
        convert=config.in_order,
        default_text="one is required",
    )
    fleet_types: list[str] | None = key(
        ListOf(FILLED_TEXT),
        REQUIRED,
        "Types of which AWS chooses one. The need of quota is not known before: it counts as one instance.",
        name="fleet.instance-types",
    )
    fleet_strategy: str | None = key(
        Text(choices=STRATEGIES),
        REQUIRED,
        "How AWS chooses; with ``prioritized`` the first type that AWS has capacity for.",
        name="fleet.allocation-strategy",
    )
    ebs_optimized: bool = key(FLAG, False, "Bandwidth of its own for the volumes, on types that do not have it anyway.")
    volume_type: str | None = key(
        TEXT.or_null(),
        None,
        "Of the root volume, e.g. ``gp3``. With it the volume counts against the quotas of volumes.",
        default_text="the image's",
    )
    volume_size: int | None = key(Whole(1), None, "Of the root volume.", unit="GiB", default_text="the image's")
    iops: int | None = key(Whole(1), None, "Of the root volume.", default_text="the image's")
    throughput: int | None = key(Whole(1), None, "Of the root volume.", unit="MiB/s", default_text="the image's")
    userdata: str | None = key(TEXT.or_null(), None, "User data for cloud-init.")
    profile_name: str | None = key(
        FILLED_TEXT, None, "Instance profile, by its name.", name="iam-instance-profile.name"
    )
    profile_arn: str | None = key(
        FILLED_TEXT, None, "Instance profile, by its ARN; either this or the name.", name="iam-instance-profile.arn"
    )
    tags: dict[str, str] = key(
        ANY_MAPPING,
        {},
        "Of the instance and its volumes, e.g. ``team: ci``. ``Name``, and those that begin with ``nodepool_``, are "
        "Nodepool's.",
        convert=config.as_texts,
    )
    dynamic_tags: dict[str, str] = key(ANY_MAPPING, {}, DYNAMIC_HELP, convert=config.as_texts)
    imdsv2: str | None = key(
        Text(choices=("required", "optional")),
        None,
        "Whether requests to the metadata service must have a token.",
        default_text="the image's or the account's",
    )
    dedicated_host: bool = key(
        FLAG,
        False,
        "A host of its own for each instance, as instances of macOS need it; the pool must have an "
        "``availability-zone``.",
    )


class AwsPool(CloudPool):
    """A slice of the region."""

    checks: ClassVar[tuple[Any, ...]] = (_pool_check,)

    max_servers: float = key(
        WHOLE,
        From("provider"),
        "Nodes at once; 0 or less = the pool declines every request.",
        default_text="that of the provider",
    )
    max_cores: int | None = key(
        WHOLE, From("provider"), "Cores that the nodes may use.", default_text="that of the provider"
    )
    max_ram: int | None = key(
        WHOLE, From("provider"), "Memory that the nodes may use.", unit="MiB", default_text="that of the provider"
    )
    max_resources: dict[str, int] = key(
        MappingOf(WHOLE),
        {},
        "Limits by quota code, e.g. ``L-1216C47A: 64``; those of the provider count for codes that are not named.",
    )
    availability_zones: list[str] = key(
        config.ONE_OR_MORE.or_null(),
        [],
        "E.g. ``eu-north-1a``. The first of a list that has capacity is used.",
        name="availability-zone",
        convert=config.in_order,
        default_text="AWS chooses",
    )
    subnet_ids: list[str] = key(
        config.ONE_OR_MORE.or_null(),
        [],
        "Subnet of the instances. The first of a list that has capacity is used; the zones are those of the subnets.",
        name="subnet-id",
        convert=config.in_order,
        default_text="the default VPC's",
    )
    security_group_id: str | None = key(
        TEXT.or_null(), None, "Security group of the instances.", default_text="the VPC's default group"
    )
    public_ipv6: bool = key(FLAG, From("provider"), "Instances get an IPv6 address; the subnet must have some.")
    public_ip_address: bool | None = key(
        FLAG, None, "Old name of ``public-ipv4``; it wins if both are given.", default_text="not given"
    )
    labels: dict[str, AwsLabel] = key(Sections(AwsLabel), None, "What nodes are made of.")

    def load(self, pool_config: dict[str, Any]) -> None:
        super().load(pool_config)
        self.max_resources = {**self.provider.max_resources, **self.max_resources}
        if self.public_ip_address is not None:
            self.public_ipv4 = self.public_ip_address


class AwsProviderConfig(CloudPoolsConfig[AwsPool]):
    """One ``providers[]`` section with ``driver: aws``."""

    checks: ClassVar[tuple[Any, ...]] = (*CloudPoolsConfig.checks, _provider_check)
    resumes_uploads: ClassVar[bool] = True

    region_name: str = key(FILLED_TEXT, REQUIRED, "E.g. ``eu-north-1``.")
    profile_name: str | None = key(
        TEXT.or_null(), None, "Profile in the files of boto.", default_text="boto's own choice"
    )
    rate: float = key(
        Number(0),
        2.0,
        "Calls per second that make instances, in the long run; those that read get ten times as many, others "
        "in proportion as AWS takes them; 0 = no limit.",
    )
    boot_timeout: float = with_default(CloudPoolsConfig.boot_timeout, 180.0)
    max_servers: float = key(WHOLE, math.inf, "For pools without it.", default_text="unlimited")
    max_cores: int | None = key(WHOLE, None, "For pools without it.", default_text="unlimited")
    max_ram: int | None = key(WHOLE, None, "For pools without it.", unit="MiB", default_text="unlimited")
    max_resources: dict[str, int] = key(
        MappingOf(WHOLE), {}, "Of pools: limits by quota code, e.g. ``L-43DA4232: 64``.", default_text="unlimited"
    )
    bucket_name: str | None = key(
        FILLED_TEXT,
        None,
        "Bucket in S3, which must exist: images that are imported go through it. Not needed for ``ebs-direct``.",
        name="object-storage.bucket-name",
    )
    image_type: str = key(
        Text(choices=("ova", "vhd", "vhdx", "vmdk", "raw")), "raw", "Format of uploaded images.", name="image-format"
    )
    image_import_timeout: float | None = key(
        SECONDS,
        None,
        "For so long an import is tried again that AWS refuses because too many are under way.",
        default_text="the first refusal is an error",
    )
    public_ipv6: bool = key(FLAG, False, "For pools without it.")
    diskimages: dict[str, AwsDiskImage] = key(Sections(AwsDiskImage), None, "Images that ``nodepool-builder`` uploads.")
    cloud_images: dict[str, AwsCloudImage] = key(
        Sections(AwsCloudImage), None, "Images that are in the region already."
    )
    _pools: dict[str, AwsPool] = key(Sections(AwsPool), None, "The pools of the provider.", name="pools")

    def localProblems(self) -> Iterator[tuple[str, str]]:
        """Images whose uploads must fail; Nodepool 11 accepts them. And files of labels."""
        yield from super().localProblems()
        for image in self.diskimages.values():
            problem = image.format_problem(self.image_type)
            if problem and not image.pause:
                yield "image-format", f"diskimage {image.name}: {problem}; its uploads fail"
