# SPDX-License-Identifier: Apache-2.0
"""The metadata by which Nodepool recognises its resources in a cloud (rules D-1, D-10).

A process uses one ZooKeeper, so it belongs to one installation. Its provider says which when it starts. What bears the
id of another installation belongs to that one. What bears none was made by an earlier release.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

PROVIDER_KEY: Final = "nodepool_provider_name"
POOL_KEY: Final = "nodepool_pool_name"
NODE_KEY: Final = "nodepool_node_id"
BUILD_KEY: Final = "nodepool_build_id"
UPLOAD_KEY: Final = "nodepool_upload_id"
INSTALLATION_KEY: Final = "nodepool_installation_id"

#: Of this installation, the one that is written first; empty = not known yet. Replaced as a whole.
_ours: tuple[str, ...] = ()
#: Of other installations whose marks are to be known.
_looked_for: tuple[str, ...] = ()


def know_installation(ids: tuple[str, ...]) -> None:
    """What bears one of these ids is ours; what is made gets the first. None = an earlier release's ways."""
    global _ours
    _ours = ids


def of_installation() -> dict[str, str]:
    """What is stored with everything that is made, beside what says for whom."""
    return {INSTALLATION_KEY: _ours[0]} if _ours else {}


def mark_of(provider_name: str, digits: int) -> str:
    """What stands for provider and installation in the name of a thing that cannot carry metadata.

    :param digits: hexadecimal ones.
    """
    return _mark(provider_name, *_ours[:1])[:digits]


def of_mark(mark: str, provider_name: str) -> dict[str, str] | None:
    """The installation that `mark_of` had, if it is ours, or looked for; nothing for an earlier release.

    :return: None = it is the mark of another provider or installation.
    """
    if _mark(provider_name).startswith(mark):
        return {}
    known = (one for one in (*_ours, *_looked_for) if _mark(provider_name, one).startswith(mark))
    return next(({INSTALLATION_KEY: one} for one in known), None)


def look_for(*installations: str) -> None:
    """Know what has these installations in a mark, too. For the command that deletes it."""
    global _looked_for
    _looked_for = installations


def _mark(provider_name: str, *installation: str) -> str:
    return hashlib.sha256("\n".join((provider_name, *installation)).encode()).hexdigest()


def foreign(found: Mapping[str, Any] | None) -> str | None:
    """Id of the other installation that a thing in the cloud belongs to; None = it is not known to be another's."""
    said = (found or {}).get(INSTALLATION_KEY)
    return str(said) if said and said not in _ours else None


def others(found: Iterable[Mapping[str, Any]], provider_name: str) -> Counter[str]:
    """Other installation -> how many things in the cloud it made for a provider of this name."""
    ids = (foreign(one) for one in found if one.get(PROVIDER_KEY) == provider_name)
    return Counter(one for one in ids if one is not None)


def for_node(node_id: str, pool_name: str, provider_name: str) -> dict[str, str]:
    """What is stored with an instance, and with all that is made for it."""
    return {NODE_KEY: node_id, POOL_KEY: pool_name, PROVIDER_KEY: provider_name, **of_installation()}


def is_of(found: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    """Was a thing in the cloud made for the node of this metadata?"""
    same = all(found.get(key) == wanted[key] for key in (NODE_KEY, PROVIDER_KEY))
    return same and foreign(found) is None


def node_id_of(found: Mapping[str, Any] | None, provider_name: str) -> str | None:
    """The node that a thing in the cloud was made for; None = it is not of this provider, or not of a node."""
    if not found or found.get(PROVIDER_KEY) != provider_name or foreign(found) is not None:
        return None
    node_id = found.get(NODE_KEY)
    return str(node_id) if node_id else None


def upload_of(found: Mapping[str, Any] | None, provider_name: str) -> tuple[str, str] | None:
    """Build id and upload id of an image; None = it is not of this provider, or not an image of ours."""
    if not found or found.get(PROVIDER_KEY) != provider_name or foreign(found) is not None:
        return None
    build, upload = found.get(BUILD_KEY), found.get(UPLOAD_KEY)
    return (str(build), str(upload)) if build and upload else None
