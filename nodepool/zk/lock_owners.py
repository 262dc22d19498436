# SPDX-License-Identifier: Apache-2.0
"""Who holds a lock: which launcher, executor of Zuul or person.

A contender for a lock seldom has an identifier, but it belongs to the session of its process, and so do the
components that this process registered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nodepool.model.record import InvalidRecord
from nodepool.zk import codec, locks, multi_read, paths
from nodepool.zk.client import ZooKeeperClient

#: Where processes register -> what they are called.
_ROOTS: Final = {paths.COMPONENTS: "", "/zuul/components": "Zuul "}
#: What begins the identifier of somebody at the command line.
COMMAND: Final = "nodepool command of "


class LockOwners:
    """The processes that are registered now.

    Blocks for some round trips when it is made. Raises ZKException.
    """

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client
        self._by_session: dict[int, str] = {}
        for root, owner in _ROOTS.items():
            kinds = sorted(multi_read.children(client, root))
            found = [f"{root}/{kind}" for kind in kinds]
            for kind, path, names in zip(kinds, found, multi_read.read_children(client, found), strict=True):
                entries = [f"{path}/{name}" for name in sorted(names or ())]
                for entry, answer in zip(entries, multi_read.read_data(client, entries), strict=True):
                    if answer is not None:
                        # A launcher registers itself and each of its pools.
                        what = "launcher" if kind == "pool" else kind
                        name = _hostname(answer[0]) or entry.rpartition("/")[2]
                        self._by_session.setdefault(answer[1].ephemeralOwner, f"{owner}{what} {name}")

    def of_nodes(self, node_ids: Sequence[str]) -> dict[str, str]:
        """Node id -> who holds its lock; free ones are left out. Many are read in a packet. Raises ZKException."""
        directories = [paths.node_lock(node_id) for node_id in node_ids]
        holders: dict[str, str] = {}
        for node_id, directory, names in zip(
            node_ids, directories, multi_read.read_children(self._client, directories), strict=True
        ):
            first = next(iter(locks.in_order(names or ())), None)
            if first is not None:
                holders[node_id] = f"{directory}/{first}"
        answers = multi_read.read_data(self._client, holders.values())
        return {
            node_id: self._name(*answer) for node_id, answer in zip(holders, answers, strict=True) if answer is not None
        }

    def of_node(self, node_id: str) -> str | None:
        """Who holds the lock of a node; None = nobody. Raises ZKException."""
        return self.of_nodes([node_id]).get(node_id)

    def _name(self, identifier: bytes, stat: Any) -> str:
        text = identifier.decode("utf-8", "replace")
        known = self._by_session.get(stat.ephemeralOwner)
        if known is not None:
            return known
        return text or f"session {stat.ephemeralOwner:#x}"


def _hostname(data: bytes) -> str | None:
    try:
        name = codec.decode(data).get("hostname")
    except InvalidRecord:
        return None
    return name if isinstance(name, str) and name else None
