# SPDX-License-Identifier: Apache-2.0
"""Names by which our things are known: they and resource groups say whose a thing is (IV-3). Pure.

An instance cannot carry a tag from the call that makes it. So its name has the node, and its resource group has
provider and pool. The names are those of Nodepool 11.0.0; a part that the driver adds follows a hyphen.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from typing import Final

from nodepool.driver.statemachine.metadata import (
    BUILD_KEY,
    INSTALLATION_KEY,
    NODE_KEY,
    POOL_KEY,
    PROVIDER_KEY,
    UPLOAD_KEY,
    mark_of,
    of_mark,
)

#: Keys of the user tags of boot volumes.
_TAGS: Final = (NODE_KEY, POOL_KEY, PROVIDER_KEY, INSTALLATION_KEY)
_GROUP: Final = re.compile(r"np_([^_]+)_([^_]+)")
_IMAGE_GROUP: Final = re.compile(r"npimages_([^_]+)")
_NODE: Final = re.compile(r"np(\d+)(?:-\d+){0,2}")
#: A floating IP that a launcher has claimed: the name that it had before, and who it was.
_CLAIM: Final = re.compile(r"(np\d+(?:-\d+){0,2})-c[0-9a-f]{8}")
#: Digits of the mark of a provider in names of images, which have at most 63 characters.
_MARK_DIGITS: Final = 8
#: Upload, provider and build. The provider was not in the names that this driver gave first.
_IMAGE: Final = re.compile(r"npimage(\d+)-(?:([0-9a-f]{8})-)?([0-9a-z]+)")


def group_of_pool(provider: str, pool: str) -> str:
    """Resource group of the nodes of a pool."""
    return f"np_{provider}_{pool}"


def group_of_images(provider: str) -> str:
    """Resource group of uploaded images."""
    return f"npimages_{provider}"


def node_metadata(name: str, group: str) -> dict[str, str]:
    """Whose an instance, a floating IP or a volume is; empty = it is none of a node of any provider.

    :param group: name of its resource group.
    """
    node, owner = _NODE.fullmatch(name), _GROUP.fullmatch(group)
    return {NODE_KEY: node[1], POOL_KEY: owner[2], PROVIDER_KEY: owner[1]} if node and owner else {}


def floating_metadata(name: str, group: str) -> dict[str, str]:
    """The same of a floating IP, which may be claimed."""
    claim = _CLAIM.fullmatch(name)
    return node_metadata(claim[1] if claim else name, group)


def claim_name(name: str) -> str:
    """A name for a floating IP that nobody else gives it.

    :param name: that it has; it may be such a name.
    """
    claim = _CLAIM.fullmatch(name)
    return f"{claim[1] if claim else name}-c{uuid.uuid4().hex[:8]}"


def volume_tags(metadata: Mapping[str, str]) -> list[str]:
    """User tags of a boot volume, the one thing that can have some from the beginning. IBM makes them lower case."""
    return [f"{key}:{metadata[key]}".lower() for key in _TAGS if key in metadata]


def metadata_of_tags(tags: list[str], provider: str, group: str) -> dict[str, str]:
    """What `volume_tags` says, if a volume is of this provider; else nothing.

    :param group: name of its resource group. Snapshots and tools carry tags on to volumes of others.
    """
    found, owner = dict(tag.split(":", 1) for tag in tags if ":" in tag), _GROUP.fullmatch(group)
    if owner is None or owner[1] != provider or found.get(PROVIDER_KEY) != provider.lower() or NODE_KEY not in found:
        return {}
    installation = {key: value for key, value in found.items() if key == INSTALLATION_KEY}
    return {NODE_KEY: found[NODE_KEY], PROVIDER_KEY: provider, **installation}


def image_name(metadata: Mapping[str, str], provider: str) -> str:
    """Of an uploaded image. Names are unique in a region, and ids of uploads begin again with each build and with each
    provider: so it has all three (IV-10).
    """
    return f"npimage{metadata[UPLOAD_KEY]}-{mark_of(provider, _MARK_DIGITS)}-{metadata[BUILD_KEY]}"


def image_metadata(name: str, group: str) -> dict[str, str]:
    """Whose an image is; empty = it is none that this driver uploaded, or of another installation (D-10).

    Images of Nodepool 11.0.0 do not say of which build they are. Only their records know them.
    """
    image, owner = _IMAGE.fullmatch(name), _IMAGE_GROUP.fullmatch(group)
    if not image or not owner:
        return {}
    whose = {} if image[2] is None else of_mark(image[2], owner[1])
    return {} if whose is None else {UPLOAD_KEY: image[1], BUILD_KEY: image[3], PROVIDER_KEY: owner[1], **whose}
