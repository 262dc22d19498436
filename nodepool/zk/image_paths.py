# SPDX-License-Identifier: Apache-2.0
"""Znode paths of images: builds, uploads, their locks, pauses and requests (reference/zookeeper 2)."""

from __future__ import annotations

from enum import Enum
from typing import Final

from nodepool.zk import paths

IMAGES: Final = paths.IMAGES

_PAUSE: Final = "pause"
_REQUEST: Final = "request-build"
_BUILDS: Final = "builds"
_PROVIDERS: Final = "providers"
_UPLOADS: Final = "images"


def image(name: str) -> str:
    return f"{IMAGES}/{name}"


def pause(name: str) -> str:
    """Is there while builds of the image are paused."""
    return f"{IMAGES}/{name}/{_PAUSE}"


def build_request(name: str) -> str:
    """Is there while somebody asks for a build."""
    return f"{IMAGES}/{name}/{_REQUEST}"


def builds(name: str) -> str:
    return f"{IMAGES}/{name}/{_BUILDS}"


def build_lock(name: str) -> str:
    """Held while the image is being built."""
    return f"{builds(name)}/{paths.LOCK}"


def build(name: str, build_id: str) -> str:
    return f"{builds(name)}/{build_id}"


def build_id_lock(name: str, build_id: str) -> str:
    """Held while one build becomes `deleting` or is removed."""
    return f"{build(name, build_id)}/{paths.LOCK}"


def providers(name: str, build_id: str) -> str:
    return f"{build(name, build_id)}/{_PROVIDERS}"


def provider(name: str, build_id: str, provider_name: str) -> str:
    return f"{providers(name, build_id)}/{provider_name}"


def uploads(name: str, build_id: str, provider_name: str) -> str:
    return f"{provider(name, build_id, provider_name)}/{_UPLOADS}"


def upload_lock(name: str, build_id: str, provider_name: str) -> str:
    """Held while the build is being uploaded to the provider."""
    return f"{uploads(name, build_id, provider_name)}/{paths.LOCK}"


def upload(name: str, build_id: str, provider_name: str, upload_id: str) -> str:
    return f"{uploads(name, build_id, provider_name)}/{upload_id}"


def upload_id_lock(name: str, build_id: str, provider_name: str, upload_id: str) -> str:
    """Held while one upload is being deleted."""
    return f"{upload(name, build_id, provider_name, upload_id)}/{paths.LOCK}"


class Kind(Enum):
    """What a znode at or below `IMAGES` is."""

    ROOT = "root"
    IMAGE = "image"
    PAUSE = "pause"
    REQUEST = "request"
    BUILDS = "builds"
    BUILD = "build"
    PROVIDERS = "providers"
    PROVIDER = "provider"
    UPLOADS = "uploads"
    UPLOAD = "upload"
    LOCK = "lock"
    CONTENDER = "contender"
    OTHER = "other"

    @property
    def has_data(self) -> bool:
        """Is there something to know of it besides that it exists?"""
        return self in _WITH_DATA

    @property
    def has_children(self) -> bool:
        return self not in _WITHOUT_CHILDREN


_WITH_DATA: Final = frozenset({Kind.REQUEST, Kind.BUILD, Kind.UPLOAD})
_WITHOUT_CHILDREN: Final = frozenset({Kind.PAUSE, Kind.REQUEST, Kind.CONTENDER, Kind.OTHER})

#: Kind of a znode -> kinds of its children by name; None stands for any other name.
_CHILDREN: Final[dict[Kind, dict[str | None, Kind]]] = {
    Kind.ROOT: {None: Kind.IMAGE},
    Kind.IMAGE: {_PAUSE: Kind.PAUSE, _REQUEST: Kind.REQUEST, _BUILDS: Kind.BUILDS},
    Kind.BUILDS: {paths.LOCK: Kind.LOCK, None: Kind.BUILD},
    Kind.BUILD: {paths.LOCK: Kind.LOCK, _PROVIDERS: Kind.PROVIDERS},
    Kind.PROVIDERS: {None: Kind.PROVIDER},
    Kind.PROVIDER: {_UPLOADS: Kind.UPLOADS},
    Kind.UPLOADS: {paths.LOCK: Kind.LOCK, None: Kind.UPLOAD},
    Kind.UPLOAD: {paths.LOCK: Kind.LOCK},
    Kind.LOCK: {None: Kind.CONTENDER},
}


def parts(path: str) -> list[str]:
    """Names on the way from `IMAGES` to a znode; none for `IMAGES` itself."""
    return path[len(IMAGES) + 1 :].split("/") if len(path) > len(IMAGES) else []


def kind(names: list[str]) -> Kind:
    """What the znode is that these `parts` lead to."""
    found = Kind.ROOT
    for name in names:
        below = _CHILDREN.get(found, {})
        found = below.get(name) or below.get(None) or Kind.OTHER
    return found
