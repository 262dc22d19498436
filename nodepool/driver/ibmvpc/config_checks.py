# SPDX-License-Identifier: Apache-2.0
"""What keys of a section of IBM VPC say together. Each takes a section and returns it, or raises voluptuous.Invalid."""

from __future__ import annotations

from typing import Any, Final

from nodepool.driver.framework.raw_sections import mappings

Section = dict[str, Any]

#: Where an image may come from: exactly one of them.
IMAGE_SOURCES: Final = ("image-href", "image-id", "image-name", "image-filter")
#: What an image's operating system can be asked for.
OPERATING_SYSTEM: Final = (
    *("architecture", "dedicated-host-only", "display-name", "family", "href", "name", "vendor", "version"),
)
STORAGE_KEYS: Final = ("bucket-name", "endpoint", "instance-name")


def name_in_groups(section: Section) -> Section:
    """The names of provider and pool are in that of a resource group, with ``_`` between them (IV-3)."""
    import voluptuous as v

    if "_" in str(section.get("name", "")):
        raise v.Invalid("the name must not have _: it is a part of the name of a resource group", path=["name"])
    return section


def one_image_source(image: Section) -> Section:
    import voluptuous as v

    given = [name for name in IMAGE_SOURCES if image.get(name)]
    if len(given) != 1:
        raise v.Invalid(f"exactly one of {', '.join(IMAGE_SOURCES)} is needed", path=[*given[1:2]])
    return image


def known_operating_system(image: Section) -> Section:
    import voluptuous as v

    found = image.get("image-filter")
    wanted = found.get("operating-system") if isinstance(found, dict) else None
    unknown = sorted(str(name) for name in wanted or () if name not in OPERATING_SYSTEM)
    if unknown:
        known = ", ".join(OPERATING_SYSTEM)
        raise v.Invalid(f"unknown key; there are {known}", path=["image-filter", "operating-system", unknown[0]])
    return image


def profile(label: Section) -> Section:
    import voluptuous as v

    if not label.get("profile"):
        raise v.Invalid("profile is needed, such as bx2-2x8")
    return label


def whole_storage(provider: Section) -> Section:
    import voluptuous as v

    storage = provider.get("object-storage")
    if isinstance(storage, dict):
        missing = [name for name in STORAGE_KEYS if not storage.get(name)]
        if missing:
            raise v.Invalid(f"{missing[0]} is needed", path=["object-storage"])
        return provider
    for index, image in mappings(provider, "diskimages"):
        if not image.get("pause"):
            text = "the image is imported from object storage: add object-storage to the provider"
            raise v.Invalid(text, path=["diskimages", index])
    return provider


def zone_and_subnet(provider: Section) -> Section:
    """Both stand in each pool, or in the provider for all of them."""
    import voluptuous as v

    problems = []
    for index, pool in mappings(provider, "pools"):
        for name in ("zone", "subnet"):
            if not pool.get(name) and not provider.get(name):
                text = f"{name} is needed, in the pool or in the provider"
                problems.append(v.Invalid(text, path=["pools", index]))
    if problems:
        raise v.MultipleInvalid(problems)
    return provider
