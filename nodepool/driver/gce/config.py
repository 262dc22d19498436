# SPDX-License-Identifier: Apache-2.0
"""Configuration of the driver of Google Compute Engine.

First checks of keys together, then images, then labels, pools and provider.

::

    providers:
      - name: gce-central
        driver: gce
        project: my-project
        region: us-central1
        zone: us-central1-a
        cloud-images:
          - name: debian
            image-project: debian-cloud
            image-family: debian-12
            username: zuul
            key: ssh-ed25519 AAAA...
        pools:
          - name: main
            max-servers: 20
            labels:
              - name: small
                cloud-image: debian
                instance-type: n2-standard-2
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any, ClassVar, Final

from nodepool.driver.config import (
    ONE_OR_MORE,
    ImageSettings,
    Problem,
    Section,
    as_texts,
    in_order,
    mappings,
    section_check,
)
from nodepool.driver.framework.sections import CloudLabel, CloudPool, CloudProviderConfig, UploadedImage
from nodepool.model.config_keys import (
    ANY_MAPPING,
    FILLED_TEXT,
    FLAG,
    REQUIRED,
    TEXT,
    WHOLE,
    From,
    ListOf,
    Number,
    Sections,
    Text,
    Whole,
    key,
    with_default,
)

# What keys of a section of GCE say together: what is wrong, and where in the section.

#: Network tags: small letters, digits and ``-``.
_TAG: Final = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
#: Keys of metadata items.
_ITEM: Final = re.compile(r"[A-Za-z0-9_-]{1,127}")


@section_check
def _provider_check(provider: Section) -> Iterator[Problem]:
    if not provider.get("zone"):
        yield ["zone"], "a zone is needed, such as us-central1-a"
    storage = provider["object-storage"] if isinstance(provider.get("object-storage"), dict) else {}
    for place, path in ((provider, ("endpoint",)), (storage, ("object-storage", "endpoint"))):
        if place.get("endpoint") and not re.fullmatch(r"https?://[^/\s]+/?", place["endpoint"]):
            yield [*path], "an address without a path is needed, such as https://compute.googleapis.com"
    yield from _wrong_tags(provider)
    for index, image in mappings(provider, "diskimages"):
        if not storage.get("bucket-name") and not image.get("pause"):
            text = "the image is uploaded through Cloud Storage: add object-storage.bucket-name to the provider"
            yield ["diskimages", index], text


@section_check
def _label_check(label: Section) -> Iterator[Problem]:
    if not label.get("instance-type"):
        yield ["instance-type"], "a machine type is needed, such as n2-standard-2"
    items = label.get("metadata")
    for name in items if isinstance(items, dict) else ():
        if not isinstance(name, str) or not _ITEM.fullmatch(name):
            yield ["metadata", name], "a key has letters, digits, - and _, at most 127"


def _wrong_tags(section: Section) -> Iterator[Problem]:
    for index, tag in enumerate(section.get("network-tags") or ()):
        if isinstance(tag, str) and not _TAG.fullmatch(tag):
            text = "a tag has small letters, digits and -, begins with a letter, and has at most 63 characters"
            yield ["network-tags", index], text


@section_check
def _cloud_image_check(image: Section) -> Iterator[Problem]:
    family = [name for name in ("image-project", "image-family") if image.get(name)]
    if image.get("image-id") and family:
        yield [family[0]], f"only one of image-id and {family[0]} can be given"
    elif not image.get("image-id") and len(family) < 2:
        yield [], "image-id is needed, or both image-project and image-family"


# Configuration of images on GCE.

ARCHITECTURES = ("X86_64", "ARM64")
#: What images of today's distributions can do; without UEFI there is no shielded instance of them.
GUEST_FEATURES = ["GVNIC", "UEFI_COMPATIBLE", "VIRTIO_SCSI_MULTIQUEUE"]


_SSH_KEY = key(
    TEXT.or_null(),
    None,
    "Public SSH key that ``username`` accepts; metadata item ``ssh-keys`` of the instance.",
    name="key",
)


class GceCloudImage(ImageSettings):
    """An image that is in Compute Engine already."""

    checks: ClassVar[tuple[Any, ...]] = (_cloud_image_check,)

    image_id: str | None = key(
        FILLED_TEXT,
        None,
        "Link of an image, e.g. ``projects/debian-cloud/global/images/debian-12-bookworm-v20260101``. Either this or "
        "``image-project`` and ``image-family``.",
        default_text="not given",
    )
    image_project: str | None = key(FILLED_TEXT, None, "E.g. ``debian-cloud``.", default_text="not given")
    image_family: str | None = key(
        FILLED_TEXT,
        None,
        "E.g. ``debian-12``: the newest image of it that is not deprecated. A new one is used within 5 minutes.",
        default_text="not given",
    )
    ssh_key: str | None = with_default(_SSH_KEY, None)


class GceDiskImage(UploadedImage):
    """An image that the builder uploads here."""

    ssh_key: str | None = with_default(_SSH_KEY, None)
    architecture: str = key(Text(choices=ARCHITECTURES), "X86_64", "Of the image.")
    guest_features: list[str] = key(
        ListOf(FILLED_TEXT),
        GUEST_FEATURES,
        "What the system in the image can do, in the words of Compute Engine (``guestOsFeatures``).",
        name="guest-os-features",
        default_text="``GVNIC``, ``UEFI_COMPATIBLE``, ``VIRTIO_SCSI_MULTIQUEUE``",
    )


COMPUTE_ENDPOINT = "https://compute.googleapis.com"
STORAGE_ENDPOINT = "https://storage.googleapis.com"
#: Declares the address of a service, without a slash at its end; and what a shielded instance has.
_address: Final = functools.partial(key, FILLED_TEXT, convert=lambda given: given.rstrip("/"))
_shielded: Final = functools.partial(key, FLAG, None, default_text="Google's")
#: What an instance with a service account may do, as far as the roles of the account allow it.
CLOUD_SCOPE = "https://www.googleapis.com/auth/cloud-platform"


class GceLabel(CloudLabel):
    """How to make a node of a label."""

    checks: ClassVar[tuple[Any, ...]] = (*CloudLabel.checks, _label_check)

    pool: GcePool
    diskimage: GceDiskImage | None
    cloud_image: GceCloudImage | None

    machine_types: list[str] = key(
        ONE_OR_MORE,
        REQUIRED,
        "E.g. ``n2-standard-2``. The first of a list that Google has capacity for is used; what a node needs of "
        "the quota is counted by the first.",
        name="instance-type",
        convert=in_order,
    )
    volume_type: str = key(TEXT, "pd-standard", "Of the boot disk, e.g. ``pd-balanced`` or ``hyperdisk-balanced``.")
    volume_size: int = key(Whole(1), 10, "Of the boot disk; at least that of the image.", unit="GiB")
    service_account: str | None = key(
        FILLED_TEXT,
        REQUIRED,
        "E-mail address of a service account that programs on the instance may use.",
        name="service-account.email",
    )
    scopes: list[str] = key(
        ListOf(FILLED_TEXT),
        [CLOUD_SCOPE],
        "What they may do with it.",
        name="service-account.scopes",
        default_text="``cloud-platform``: all that the roles of the account allow",
    )
    secure_boot: bool | None = _shielded("Only signed programs boot.", name="shielded-instance.secure-boot")
    vtpm: bool | None = _shielded("A virtual TPM.", name="shielded-instance.vtpm")
    integrity_monitoring: bool | None = _shielded(
        "Google compares each boot.", name="shielded-instance.integrity-monitoring"
    )
    metadata: dict[str, str] = key(
        ANY_MAPPING,
        {},
        "Metadata items of the instance, e.g. ``startup-script``. Those that begin with ``nodepool_``, and "
        "``ssh-keys`` if the image has a ``key``, are Nodepool's.",
        convert=as_texts,
    )


class GcePool(CloudPool):
    """A slice of the project."""

    checks: ClassVar[tuple[Any, ...]] = (section_check(_wrong_tags),)

    provider: GceProviderConfig

    max_cores: int | None = key(WHOLE, None, "Cores that the nodes may use.", default_text="unlimited")
    max_ram: int | None = key(WHOLE, None, "Memory that the nodes may use.", unit="MiB", default_text="unlimited")
    use_internal_ip: bool = with_default(CloudPool.use_internal_ip, False)
    public_ipv4: bool = key(
        FLAG, True, "Instances get a public address, with ``use-internal-ip`` too, as in Nodepool 11.0.0."
    )
    host_key_checking: bool = with_default(CloudPool.host_key_checking, True)
    network: str = key(FILLED_TEXT, From("provider"), "Instead of that of the provider.")
    subnetwork: str | None = key(FILLED_TEXT, From("provider"), "Instead of that of the provider.")
    network_tags: list[str] = key(ListOf(FILLED_TEXT), From("provider"), "Instead of those of the provider.")
    labels: dict[str, GceLabel] = key(Sections(GceLabel), None, "What nodes are made of.")


class GceProviderConfig(CloudProviderConfig[GcePool]):
    """One ``providers[]`` section with ``driver: gce``."""

    checks: ClassVar[tuple[Any, ...]] = (*CloudProviderConfig.checks, _provider_check)
    without_keys: ClassVar[tuple[str, ...]] = ("image-name-format",)

    #: The only format that Compute Engine takes.
    image_type = "raw"

    project: str = key(FILLED_TEXT, REQUIRED, "Id of the project.")
    region: str = key(FILLED_TEXT, REQUIRED, "E.g. ``us-central1``; its quota counts.")
    zones: list[str] = key(
        ONE_OR_MORE,
        REQUIRED,
        "E.g. ``us-central1-a``. The first zone of a list that has capacity is used; all are in the region.",
        name="zone",
        convert=in_order,
    )
    credentials_file: str | None = key(
        FILLED_TEXT, None, "File with the credentials, see below.", default_text="the application default credentials"
    )
    network: str = key(
        FILLED_TEXT, "default", "Network of the instances: its name, or its link if it is in another project."
    )
    subnetwork: str | None = key(
        FILLED_TEXT, None, "Subnetwork in the region, or its link.", default_text="that of the network"
    )
    network_tags: list[str] = key(ListOf(FILLED_TEXT), [], "Tags that firewall rules go by.")
    rate: float = key(
        Number(0),
        2.0,
        "Calls a second in the long run, of each group that Google counts; after a pause more at once, see "
        "below. 0 = no limit.",
    )
    rate_limit: int = key(WHOLE, 1, "Accepted because 11.0.0 does; it has no effect there and here.")
    boot_timeout: float = with_default(CloudProviderConfig.boot_timeout, 60.0)
    endpoint: str = _address(COMPUTE_ENDPOINT, "Address of Compute Engine, e.g. of Private Service Connect.")
    bucket_name: str | None = key(
        FILLED_TEXT, REQUIRED, "Bucket for uploads; it must exist.", name="object-storage.bucket-name"
    )
    storage_endpoint: str = _address(STORAGE_ENDPOINT, "Address of Cloud Storage.", name="object-storage.endpoint")
    diskimages: dict[str, GceDiskImage] = key(Sections(GceDiskImage), None, "Images that ``nodepool-builder`` uploads.")
    cloud_images: dict[str, GceCloudImage] = key(
        Sections(GceCloudImage), None, "Images that are in Compute Engine already."
    )
    _pools: dict[str, GcePool] = key(Sections(GcePool), None, "The pools of the provider.", name="pools")
