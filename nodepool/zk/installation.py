# SPDX-License-Identifier: Apache-2.0
"""The id of an installation: all launchers, builders and commands of one ZooKeeper (reference/zookeeper).

It is made once, at random, by the process that asks first. All that is made in clouds bears it. So two installations
in one cloud project, whose providers have the same name, know their things apart (D-10).
"""

from __future__ import annotations

import uuid
from typing import Any, Final, NamedTuple

from nodepool.exceptions import ZKException
from nodepool.model.record import InvalidRecord
from nodepool.zk import paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.transactions import read_one, replace

#: Hexadecimal digits of an id: a value of labels of every cloud.
DIGITS: Final = 16
_ID: Final = "id"
_ADOPTED: Final = "adopted"


class Installation(NamedTuple):
    """:param adopted: ids of earlier installations whose things are ours now, such as before a loss of ZooKeeper."""

    id: str
    adopted: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """Its own comes first."""
        return (self.id, *self.adopted)


def is_id(text: Any) -> bool:
    """Can it be the id of an installation?"""
    return isinstance(text, str) and len(text) == DIGITS and set(text) <= set("0123456789abcdef")


def read(client: ZooKeeperClient) -> Installation | None:
    """What is stored; None = nothing yet. Blocks for a round trip. Raises ZKException, also for what is no record."""
    found = read_one(client, paths.INSTALLATION)
    return None if found is None else _decode(found[0])


def get(client: ZooKeeperClient) -> Installation:
    """The same; it is made if there is none. Of several who make it at the same time one wins. Blocks."""
    return read(client) or adopt(client, ())


def adopt(client: ZooKeeperClient, ids: tuple[str, ...]) -> Installation:
    """Things that bear these ids are ours from now on. Blocks. Returns what is stored then.

    The first of them becomes the id of an installation that has none yet.
    """

    def adopted(data: bytes | None) -> bytes:
        if data is None:
            return _encode(Installation((*ids, uuid.uuid4().hex[:DIGITS])[0], ids[1:]))
        before = _decode(data)
        new = [one for one in ids if one not in before.ids]
        return _encode(Installation(before.id, (*before.adopted, *new))) if new else data

    return _decode(replace(client, paths.INSTALLATION, adopted))


def _encode(installation: Installation) -> bytes:
    return paths.encode({_ID: installation.id, _ADOPTED: list(installation.adopted)})


def _decode(data: bytes) -> Installation:
    try:
        record = paths.decode(data)
        found, adopted = record.get(_ID), record.get(_ADOPTED) or []
        if is_id(found) and isinstance(adopted, list) and all(map(is_id, adopted)):
            return Installation(str(found), tuple(adopted))
        problem = f"it must have an id of {DIGITS} hexadecimal digits"
    except InvalidRecord as error:
        problem = str(error)
    raise ZKException(f"{paths.INSTALLATION} cannot be read: {problem}")
