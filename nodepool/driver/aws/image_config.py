# SPDX-License-Identifier: Apache-2.0
"""Configuration of images on AWS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from nodepool.driver.aws import config_checks as checks
from nodepool.driver.config import ImageSettings
from nodepool.driver.framework.images import DiskImageSettings
from nodepool.model.config_keys import (
    ANY_MAPPING,
    FILLED_TEXT,
    FLAG,
    REQUIRED,
    TEXT,
    TEXTS,
    Sections,
    Text,
    Whole,
    key,
    with_default,
)
from nodepool.model.config_value import ConfigValue

if TYPE_CHECKING:
    from nodepool.config.objects import DiskImage

#: Import methods.
SNAPSHOT = "snapshot"
EBS_DIRECT = "ebs-direct"
IMAGE = "image"


class ImageFilter(ConfigValue):
    """One condition on images, as DescribeImages has it."""

    checks: ClassVar[tuple[Any, ...]] = (checks.whole_filter,)

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


class AwsCloudImage(ImageSettings):
    """An image that is in the region already."""

    checks: ClassVar[tuple[Any, ...]] = (checks.one_image_source,)

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


class AwsDiskImage(ImageSettings):
    """An image that the builder uploads here. How to log in stands here, not at the top level, but for the user.

    :param image: the top-level image.
    """

    checks: ClassVar[tuple[Any, ...]] = (checks.imds_of_snapshots,)

    name: str = key(FILLED_TEXT, REQUIRED, "Of an image in the top-level ``diskimages``.")
    username: str | None = key(
        TEXT.or_null(), None, "Deprecated: it belongs to the top-level image.", default_text="the top-level image's"
    )
    pause: bool = with_default(DiskImageSettings.pause, False)
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

    def __init__(self, data: dict[str, Any], image: DiskImage) -> None:
        super().__init__(data, username=image.username)

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
