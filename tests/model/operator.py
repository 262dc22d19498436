# SPDX-License-Identifier: Apache-2.0
"""Who pauses providers, pools, labels and launchers of a simulated world, and resumes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kazoo.protocol.serialization import Create, Delete, SetData

from nodepool.model.status import Maintenance, Mode, znode_name
from nodepool.zk import paths
from tests.model.layout import CLOUD, LAB

if TYPE_CHECKING:
    from tests.model.world import World

#: What may be paused.
SUBJECTS = (
    ("provider", CLOUD),
    ("pool", f"{CLOUD}/main"),
    ("pool", f"{CLOUD}/second"),
    ("label", "small"),
    ("label", "large"),
    ("provider", LAB),
    ("launcher", "nl0"),
)
#: A pause that ends by itself does so after so many seconds.
PAUSE_SECONDS = 12.0


class Operator:
    """Writes maintenance records; each write is seen by launchers when its event arrives."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._session = world.server.open("operator")
        self._written: set[str] = set()

    def pause(self, number: int) -> None:
        """:param number: says what, and whether it ends by itself."""
        kind, name = SUBJECTS[number % len(SUBJECTS)]
        until = self._world.now + PAUSE_SECONDS if number % 3 == 0 else None
        record = Maintenance(kind, name, Mode.PAUSE, "model", "operator", self._world.now, until)
        path = paths.maintenance(kind, znode_name(name))
        data = paths.encode(record.to_dict())
        if path in self._world.server.znodes:
            self._write(SetData(path, data, -1))
        else:
            self._make_directories(path)
            self._write(Create(path, data, [], 0))
        self._written.add(path)

    def resume_all(self) -> None:
        """End what was not ended by itself."""
        for path in sorted(self._written):
            if path in self._world.server.znodes:
                self._write(Delete(path, -1))
        self._written.clear()

    def _make_directories(self, path: str) -> None:
        parts = path.split("/")[1:-1]
        for depth in range(1, len(parts) + 1):
            directory = "/" + "/".join(parts[:depth])
            if directory not in self._world.server.znodes:
                self._write(Create(directory, b"", [], 0))

    def _write(self, request: object) -> None:
        self._world.server.handle(self._session, request)
