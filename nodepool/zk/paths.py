# SPDX-License-Identifier: Apache-2.0
"""Znode paths (reference/zookeeper 2)."""

from __future__ import annotations

import re
from typing import Final

NODES: Final = "/nodepool/nodes"
REQUESTS: Final = "/nodepool/requests"
REQUEST_LOCKS: Final = "/nodepool/requests-lock"
IMAGES: Final = "/nodepool/images"
COMPONENTS: Final = "/nodepool/components"
ELECTIONS: Final = "/nodepool/elections"
STATUS: Final = "/nodepool/status"
MAINTENANCE: Final = "/nodepool/maintenance"
INSTALLATION: Final = "/nodepool/installation"

#: Child that holds lock contenders; never a record.
LOCK: Final = "lock"
#: What Kazoo puts between the unique part and the sequence of a contender's name.
CONTENDER_MARK: Final = "__lock__"
_CONTENDER: Final = re.compile(rf"{CONTENDER_MARK}(-?\d{{10}})$")


def is_name(text: str) -> bool:
    """Can a znode have this name? Ids come out of JSON, where anything may stand, and ZooKeeper refuses the rest."""
    return text.isprintable() and "/" not in text and text not in ("", ".", "..")


def contender_sequence(name: str) -> str | None:
    """What Kazoo orders the children of a lock directory by, the holder first; None = it leaves this one out."""
    found = _CONTENDER.search(name)
    return None if found is None else found[1]


def node(node_id: str) -> str:
    return f"{NODES}/{node_id}"


def node_lock(node_id: str) -> str:
    return f"{NODES}/{node_id}/{LOCK}"


def request(request_id: str) -> str:
    return f"{REQUESTS}/{request_id}"


def request_lock(request_id: str) -> str:
    return f"{REQUEST_LOCKS}/{request_id}"


def election(name: str) -> str:
    return f"{ELECTIONS}/{name}"


def maintenance(kind: str, znode: str = "") -> str:
    """:param znode: `nodepool.model.maintenance.znode_name` of a subject; empty = the directory of a kind."""
    return f"{MAINTENANCE}/{kind}/{znode}".rstrip("/")


def static_mutex(provider_name: str) -> str:
    """Guards registration of one static provider's hosts among launchers."""
    return f"{ELECTIONS}/static-{provider_name.replace('/', '_')}"
