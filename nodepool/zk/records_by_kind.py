# SPDX-License-Identifier: Apache-2.0
"""`RecordsByKind`: a cache of the znodes ``<root>/<kind>/<name>``, each a record for itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable
from typing import Any, Generic, TypeVar

from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.subtree_cache import SubtreeCache

E = TypeVar("E")


class RecordsByKind(SubtreeCache[[]], Generic[E]):
    """Keeps an entry of each znode of the kinds that are known; listeners are called when something changed.

    Entries stay through a lost connection, until everything was read again.

    :param kinds: others are passed over: a later release may have more of them.
    """

    def __init__(self, client: ZooKeeperClient, root: str, kinds: Iterable[str], trouble: str) -> None:
        super().__init__(client, root, trouble)
        #: Kind -> name of the znode -> entry. Changed in the connection thread only; others copy before they look.
        self._entries: dict[str, dict[str, E]] = {kind: {} for kind in kinds}
        self._changed = False

    # -- connection thread --

    @abstractmethod
    def _entry(self, kind: str, name: str, data: bytes, stat: Any) -> E:
        """What is kept of the data of a znode."""

    def _renew(self) -> bool:
        """Entries have changed; returns whether listeners are to know."""
        return True

    def _place(self, path: str) -> tuple[str, str]:
        """Kind and name of a znode; without what it does not have. What is further below has another's name."""
        kind, _, name = path[len(self._root) + 1 :].partition("/")
        return kind, name

    def _has_data(self, path: str) -> bool:
        kind, name = self._place(path)
        return kind in self._entries and name != "" and "/" not in name

    def _has_children(self, path: str) -> bool:
        kind, name = self._place(path)
        return name == "" and (kind == "" or kind in self._entries)

    def _on_data(self, path: str, data: bytes, stat: Any) -> None:
        kind, name = self._place(path)
        self._entries[kind][name] = self._entry(kind, name, data, stat)
        self._changed = True

    def _on_gone(self, path: str) -> None:
        kind, name = self._place(path)
        if name:
            if self._entries.get(kind, {}).pop(name, None) is not None:
                self._changed = True
        else:
            self._on_children(path, ())

    def _on_children(self, path: str, names: Collection[str]) -> None:
        kind, _ = self._place(path)
        if kind:
            for name in self._entries.get(kind, {}).keys() - set(names):
                self._on_gone(f"{path}/{name}")
        else:
            for absent in self._entries.keys() - set(names):
                self._on_children(f"{path}/{absent}", ())

    def _on_settled(self) -> None:
        if self._changed:
            self._changed = False
            if self._renew():
                self._notify()

    def _on_complete(self) -> None:
        self._changed = False
        self._renew()
        self.ready.set()
        self._notify()
