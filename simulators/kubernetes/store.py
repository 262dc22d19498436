# SPDX-License-Identifier: Apache-2.0
"""The objects of the cluster, their versions, and what happened to them."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from simulators.base.core import SimulationCore
from simulators.base.messages import new_id
from simulators.kubernetes.errors import already_exists, not_found
from simulators.kubernetes.kinds import STORED, ObjectKind
from simulators.kubernetes.settings import KubernetesSettings

Json = dict[str, Any]
Core = SimulationCore[KubernetesSettings]
Key = tuple[str, str]

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"


class ObjectEvent(NamedTuple):
    """Something that happened to an object.

    :param content: the object afterwards; of a deletion: as it was last. Nobody may change it.
    :param before: the object before; None for a new one.
    """

    kind: str
    version: int
    content: Json
    before: Json | None


Listener = Callable[[ObjectEvent], None]


class ObjectTable:
    """Objects of one kind, with the last events of them."""

    def __init__(self) -> None:
        self.objects: dict[Key, Json] = {}
        self.events: deque[ObjectEvent] = deque()
        #: A watch can begin after this version, and after no older one.
        self.oldest = 0
        self.listeners: list[Listener] = []


class Store:
    """All objects. The caller holds the core's lock. What was stored is never changed, but replaced."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.version = 1
        self._tables = {kind: ObjectTable() for kind in STORED}

    def stamp(self) -> str:
        """The present time as objects have it."""
        return datetime.fromtimestamp(self.core.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def table(self, kind: ObjectKind) -> ObjectTable:
        """Objects and events of this kind."""
        return self._tables[kind]

    def find(self, kind: ObjectKind, namespace: str, name: str) -> Json | None:
        """The object, not to be changed; None = there is none."""
        return self._tables[kind].objects.get((namespace, name))

    def get(self, kind: ObjectKind, namespace: str, name: str) -> Json:
        """The object, not to be changed.

        :raises Refused: 404.
        """
        found = self.find(kind, namespace, name)
        if found is None:
            raise not_found(kind, name)
        return found

    def all(self, kind: ObjectKind, namespace: str = "") -> Iterator[Json]:
        """All objects of the kind, of a namespace if one is given, in the order of their names."""
        objects = self._tables[kind].objects
        for key in sorted(objects):
            if not namespace or key[0] == namespace:
                yield objects[key]

    def contents(self, namespace: str) -> Iterator[tuple[ObjectKind, Json]]:
        """All that is in a namespace."""
        for kind in STORED:
            if kind.namespaced:
                for content in self.all(kind, namespace):
                    yield kind, content

    def add(self, kind: ObjectKind, content: Json) -> Json:
        """Stores a new object; what every object has is added.

        :raises Refused: 409, there is one with this name.
        """
        metadata = content["metadata"]
        key = (metadata.get("namespace", "") if kind.namespaced else "", metadata["name"])
        if key in self._tables[kind].objects:
            raise already_exists(kind, key[1])
        metadata["uid"] = new_id()
        metadata["creationTimestamp"] = self.stamp()
        content = {"kind": kind.name, "apiVersion": kind.api_version} | content
        self.core.events[f"{kind.plural} created"] += 1
        return self._put(kind, key, content, None)

    def change(self, kind: ObjectKind, before: Json, change: Callable[[Json], None]) -> Json:
        """Stores an object that was changed. If nothing is changed nothing happens."""
        content = copy.deepcopy(before)
        change(content)
        if content == before:
            return before
        return self._put(kind, _key(content), content, before)

    def remove(self, kind: ObjectKind, content: Json) -> None:
        """The object is gone."""
        key = _key(content)
        table = self._tables[kind]
        before = table.objects.pop(key, None)
        if before is None:
            return
        self.version += 1
        last = before | {"metadata": before["metadata"] | {"resourceVersion": str(self.version)}}
        self.core.events[f"{kind.plural} deleted"] += 1
        self._tell(table, ObjectEvent(DELETED, self.version, last, before))

    def forget(self) -> None:
        """All events so far are forgotten: a watch that would go on from an older version has expired."""
        for table in self._tables.values():
            table.events.clear()
            table.oldest = self.version

    def _put(self, kind: ObjectKind, key: Key, content: Json, before: Json | None) -> Json:
        table = self._tables[kind]
        self.version += 1
        content["metadata"]["resourceVersion"] = str(self.version)
        table.objects[key] = content
        self._tell(table, ObjectEvent(ADDED if before is None else MODIFIED, self.version, content, before))
        return content

    def _tell(self, table: ObjectTable, event: ObjectEvent) -> None:
        table.events.append(event)
        while len(table.events) > self.core.knobs.history:
            table.oldest = table.events.popleft().version
        for listener in tuple(table.listeners):
            listener(event)


def _key(content: Json) -> Key:
    metadata = content["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
