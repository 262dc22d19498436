# SPDX-License-Identifier: Apache-2.0
"""Configuration of the IBM VPC driver.

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
from typing import Any, ClassVar

from nodepool.driver.config import ConfigPool
from nodepool.driver.framework.images import ImageLabel, one_image
from nodepool.driver.framework.one_or_more import ONE_OR_MORE, in_order
from nodepool.driver.framework.sections import CloudProviderConfig
from nodepool.driver.ibmvpc import config_checks as checks
from nodepool.driver.ibmvpc.image_config import IbmCloudImage, IbmDiskImage
from nodepool.model.config_keys import (
    FILLED_TEXT,
    FLAG,
    REQUIRED,
    TEXT,
    WHOLE,
    From,
    Number,
    Sections,
    Text,
    Whole,
    key,
)


class IbmLabel(ImageLabel):
    """How to make a node of a label."""

    checks: ClassVar[tuple[Any, ...]] = (one_image, checks.profile)
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

    checks: ClassVar[tuple[Any, ...]] = (checks.name_in_groups,)

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
        checks.name_in_groups,
        checks.zone_and_subnet,
        checks.whole_storage,
    )
    without_keys: ClassVar[tuple[str, ...]] = ("image-name-format",)
    resumes_uploads: ClassVar[bool] = True

    vpc: str = key(FILLED_TEXT, REQUIRED, "Name of the VPC; it must exist.")
    region: str = key(FILLED_TEXT, REQUIRED, "E.g. ``us-south``.")
    zones: list[str] = key(
        ONE_OR_MORE.or_null(),
        [],
        "Of pools that do not say it.",
        name="zone",
        convert=in_order,
        default_text="each pool has its own",
    )
    subnets: list[str] = key(
        ONE_OR_MORE.or_null(),
        [],
        "Of pools that do not say it.",
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
    public_ipv4: bool = key(FLAG, False, "Of pools that do not say it.")
    floating_ip_pool: int = key(
        Whole(0),
        10,
        "Of pools that do not say it. IBM bills a floating IP for a whole month, so free ones are used again; more "
        "than these are deleted.",
    )
    use_internal_ip: bool = key(FLAG, False, "Of pools that do not say it.")
    host_key_checking: bool = key(FLAG, True, "Of pools that do not say it.")
    rate: float | None = key(
        Number(0),
        None,
        "Calls per second that make instances, in the long run; as many delete them, and five times as many read; "
        "0 = no limit.",
        default_text="by IBM's answers, see :doc:`behaviour`",
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
    _pools: dict[str, IbmPool] = key(Sections(IbmPool), None, "Slices of the provider.", name="pools")

    def load(self, newconfig: Any) -> None:
        # The format of images is asked for before the framework reads the keys.
        self.read_keys(self.provider)
        super().load(newconfig)
