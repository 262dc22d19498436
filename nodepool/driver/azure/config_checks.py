# SPDX-License-Identifier: Apache-2.0
"""What keys of a section of Azure say together. Each takes a section and returns it, or raises voluptuous.Invalid."""

from __future__ import annotations

from typing import Any, Final

Section = dict[str, Any]

#: Where an image may come from: exactly one of them.
IMAGE_SOURCES: Final = (
    "image-reference",
    "image-id",
    "image-filter",
    "shared-gallery-image",
    "community-gallery-image",
)
_NETWORK_KEYS: Final = ("network", "resource-group", "subnet")


def vm_size(label: Section) -> Section:
    import voluptuous as v

    profile = label.get("hardware-profile")
    if not isinstance(profile, dict) or not profile.get("vm-size"):
        raise v.Invalid("hardware-profile.vm-size is needed, such as Standard_D2s_v5")
    return label


def one_network(provider: Section) -> Section:
    import voluptuous as v

    network = provider.get("network")
    if bool(network) == bool(provider.get("subnet-id")):
        raise v.Invalid("exactly one of network and subnet-id is needed")
    if isinstance(network, dict):
        unknown = sorted(str(name) for name in network if name not in _NETWORK_KEYS)
        if unknown:
            known = ", ".join(_NETWORK_KEYS)
            raise v.Invalid(f"unknown key; there are {known}", path=["network", unknown[0]])
        if not network.get("network"):
            raise v.Invalid("the name of the network is needed", path=["network"])
    return provider


def one_image_source(image: Section) -> Section:
    import voluptuous as v

    given = [name for name in IMAGE_SOURCES if image.get(name)]
    if len(given) != 1:
        raise v.Invalid(f"exactly one of {', '.join(IMAGE_SOURCES)} is needed", path=[*given[1:2]])
    return image


def whole_reference(image: Section) -> Section:
    import voluptuous as v

    for source, names in (
        ("image-reference", ("sku", "publisher", "offer", "version")),
        ("shared-gallery-image", ("gallery-name", "name")),
        ("community-gallery-image", ("gallery-name", "name")),
    ):
        given = image.get(source)
        missing = [name for name in names if isinstance(given, dict) and not given.get(name)]
        if missing:
            raise v.Invalid(f"{missing[0]} is needed", path=[source])
    return image


def key_or_password(image: Section) -> Section:
    """Azure makes no VM that nobody can log in to. A key may also come from the provider's ``zuul-public-key``."""
    import voluptuous as v

    if image.get("password") and image.get("generate-password"):
        raise v.Invalid("only one of password and generate-password can be given", path=["generate-password"])
    return image
