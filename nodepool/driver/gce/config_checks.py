# SPDX-License-Identifier: Apache-2.0
"""What keys of a section of GCE say together. Each takes a section and returns it, or raises voluptuous.Invalid."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any, Final

from nodepool.driver.framework.raw_sections import mappings

Section = dict[str, Any]

#: Network tags: small letters, digits and ``-``.
_TAG: Final = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
#: Keys of metadata items.
_ITEM: Final = re.compile(r"[A-Za-z0-9_-]{1,127}")


def some_zone(provider: Section) -> Section:
    import voluptuous as v

    if not provider.get("zone"):
        raise v.Invalid("a zone is needed, such as us-central1-a", path=["zone"])
    return provider


def web_address(provider: Section) -> Section:
    import voluptuous as v

    storage = provider.get("object-storage")
    addresses: list[tuple[list[Hashable], Any]] = [
        (["endpoint"], provider.get("endpoint")),
        (["object-storage", "endpoint"], storage.get("endpoint") if isinstance(storage, dict) else None),
    ]
    for path, given in addresses:
        if given and not re.fullmatch(r"https?://[^/\s]+/?", given):
            raise v.Invalid("an address without a path is needed, such as https://compute.googleapis.com", path=path)
    return provider


def bucket_for_uploads(provider: Section) -> Section:
    import voluptuous as v

    storage = provider.get("object-storage")
    if isinstance(storage, dict) and storage.get("bucket-name"):
        return provider
    for index, image in mappings(provider, "diskimages"):
        if not image.get("pause"):
            raise v.Invalid(
                "the image is uploaded through Cloud Storage: add object-storage.bucket-name to the provider",
                path=["diskimages", index],
            )
    return provider


def some_type(label: Section) -> Section:
    import voluptuous as v

    if not label.get("instance-type"):
        raise v.Invalid("a machine type is needed, such as n2-standard-2", path=["instance-type"])
    return label


def item_keys(label: Section) -> Section:
    import voluptuous as v

    items = label.get("metadata")
    for name in items if isinstance(items, dict) else ():
        if not isinstance(name, str) or not _ITEM.fullmatch(name):
            raise v.Invalid("a key has letters, digits, - and _, at most 127", path=["metadata", name])
    return label


def network_tags(section: Section) -> Section:
    import voluptuous as v

    for index, tag in enumerate(section.get("network-tags") or ()):
        if isinstance(tag, str) and not _TAG.fullmatch(tag):
            raise v.Invalid(
                "a tag has small letters, digits and -, begins with a letter, and has at most 63 characters",
                path=["network-tags", index],
            )
    return section


def one_image_source(image: Section) -> Section:
    import voluptuous as v

    family = [name for name in ("image-project", "image-family") if image.get(name)]
    if image.get("image-id"):
        if family:
            raise v.Invalid(f"only one of image-id and {family[0]} can be given", path=[family[0]])
    elif len(family) < 2:
        raise v.Invalid("image-id is needed, or both image-project and image-family")
    return image
