# SPDX-License-Identifier: Apache-2.0
"""What keys of a section of AWS say together. Each takes a section and returns it, or raises voluptuous.Invalid."""

from __future__ import annotations

from typing import Any

from nodepool.driver.framework.raw_sections import mappings

Section = dict[str, Any]


def one_type(label: Section) -> Section:
    import voluptuous as v

    if ("instance-type" in label) == ("fleet" in label):
        raise v.Invalid("exactly one of instance-type and fleet is needed")
    if "instance-type" in label and not label["instance-type"]:
        raise v.Invalid("a type is needed, such as t3.medium", path=["instance-type"])
    return label


def one_profile(label: Section) -> Section:
    import voluptuous as v

    profile = label.get("iam-instance-profile")
    if isinstance(profile, dict) and {"name", "arn"} <= profile.keys():
        raise v.Invalid("only one of name and arn can be given", path=["iam-instance-profile", "arn"])
    return label


def no_spot_on_a_host(label: Section) -> Section:
    import voluptuous as v

    if label.get("dedicated-host") and label.get("use-spot"):
        raise v.Invalid("a spot instance cannot have a dedicated host; remove one of the two", path=["use-spot"])
    return label


def no_fleet_on_a_host(label: Section) -> Section:
    import voluptuous as v

    if label.get("dedicated-host") and "fleet" in label:
        raise v.Invalid("a fleet cannot have a dedicated host; name one instance-type instead", path=["fleet"])
    return label


def zone_for_hosts(pool: Section) -> Section:
    import voluptuous as v

    if not pool.get("availability-zone"):
        for index, label in mappings(pool, "labels"):
            if label.get("dedicated-host"):
                raise v.Invalid(
                    "a dedicated host needs the availability-zone of its pool; add it there",
                    path=["labels", index, "dedicated-host"],
                )
    return pool


def one_list_of_places(pool: Section) -> Section:
    import voluptuous as v

    subnets, zones = pool.get("subnet-id"), pool.get("availability-zone")
    if subnets and zones and (isinstance(subnets, list) or isinstance(zones, list)):
        raise v.Invalid(
            "a subnet is in one zone: beside a list, only one of subnet-id and availability-zone can be given",
            path=["availability-zone"],
        )
    return pool


def whole_filter(image_filter: Section) -> Section:
    import voluptuous as v

    for names in (("name", "Name"), ("values", "Values")):
        if sum(bool(image_filter.get(name)) for name in names) != 1:
            raise v.Invalid(f"{names[0]} is needed, once")
    return image_filter


def one_image_source(image: Section) -> Section:
    import voluptuous as v

    if bool(image.get("image-id")) == bool(image.get("image-filters")):
        raise v.Invalid("exactly one of image-id and image-filters is needed")
    return image


def imds_of_snapshots(image: Section) -> Section:
    import voluptuous as v

    if image.get("imds-support") and image.get("import-method") == "image":
        raise v.Invalid(
            "AWS takes it only with import-method snapshot or ebs-direct; remove it, or choose one of these",
            path=["imds-support"],
        )
    return image


def bucket_for_imports(provider: Section) -> Section:
    import voluptuous as v

    storage = provider.get("object-storage")
    if isinstance(storage, dict) and storage.get("bucket-name"):
        return provider
    for index, image in mappings(provider, "diskimages"):
        if image.get("import-method") != "ebs-direct" and not image.get("pause"):
            raise v.Invalid(
                "the image is imported from S3: add object-storage.bucket-name to the provider, or import-method: "
                "ebs-direct here",
                path=["diskimages", index],
            )
    return provider
