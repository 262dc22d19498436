# SPDX-License-Identifier: Apache-2.0
"""Names of instances and images, and ids of requests. Pure."""

from __future__ import annotations

import hashlib
import re
import uuid
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from nodepool.driver.statemachine import CreationKey

#: Of an image: a small letter first, then small letters, digits and ``-``.
_IMAGE_NAME: Final = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
_NOT_IN_NAMES: Final = re.compile(r"[^-a-z0-9]")
_HASH: Final = 12


def request_id(key: CreationKey, zone: str) -> str:
    """What makes Compute Engine know a call again: a UUID, the same for the same creation in the same zone."""
    return str(uuid.UUID(hashlib.sha256(f"{key.text}\0{zone}".encode()).hexdigest()[:32], version=4))


def image_name(name: str) -> str:
    """The name of an image in Compute Engine, for that of an upload."""
    if _IMAGE_NAME.fullmatch(name):
        return name
    digits = hashlib.sha256(name.encode()).hexdigest()[:_HASH]
    head = _NOT_IN_NAMES.sub("-", name.lower())[: 60 - _HASH].strip("-")
    return f"{head}-{digits}" if head[:1].isalpha() else f"i-{head}-{digits}".replace("--", "-")


def record_id(zone: str, name: str) -> str:
    """Of an instance: names are unique in a zone."""
    return f"{zone}/{name}"


def zone_and_name(record_id: str) -> tuple[str, str]:
    """What `record_id` was made of."""
    zone, _, name = record_id.rpartition("/")
    return zone, name
