# SPDX-License-Identifier: Apache-2.0
"""What must hold after each write of a world with builders, and at its end: what is judged after chaos, too."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodepool.zk.connection import CHANGED, CREATED, DELETED
from tests.chaos.images.image_audit import ImageAudit
from tests.chaos.images.remains import Forgotten, Remains
from tests.chaos.transaction_log import Write
from tests.model.image_layout import FORMATS, IMAGES
from tests.model.invariants import Invariants

if TYPE_CHECKING:
    from tests.model.image_world import ImageWorld
    from tests.model.server import Change

KINDS = {CREATED: "create", CHANGED: "set", DELETED: "delete"}
BUILD_FILE = re.compile(r"(?P<image>.+)-(?P<build_id>[0-9a-f]{32})\..+")


class ImageInvariants(Invariants):
    """Looks at what is committed, and at clouds and disks in the end."""

    _world: ImageWorld

    def __init__(self, world: ImageWorld) -> None:
        super().__init__(world)
        self._audit: ImageAudit | None = None

    def committed(self, changes: Sequence[Change]) -> None:
        """B-11, U-2, U-12, R-1, R-2."""
        world = self._world
        if self._audit is None:
            self._audit = ImageAudit("", [world.hand.session.id], world.removed)
        for change in changes:
            znode = world.server.znodes.get(change.path)
            data = b"" if znode is None else znode.data
            self._audit.follow([Write(world.steps, change.session.id, KINDS[change.kind], change.path, data)])
        for text in self._audit.violations:
            world.violation(text)
        self._audit.violations.clear()

    def look(self) -> None:
        """There is nothing else to see after a step."""

    def at_the_end(self) -> None:
        """All is ready everywhere, and nothing else is there."""
        world = self._world
        remains = Remains(
            world.stored(),
            {provider: [self._shown(image) for image in world.cloud_of(provider).all()] for provider in FORMATS},
            [self._files(builder.directory / "images") for builder in world.builders if builder.knows_own_records],
            world.built,
            (),
            Forgotten(),
        )
        for kind, which in remains.wrong(IMAGES, FORMATS).items():
            world.violation(f"{kind}: {which}")
        for builder in world.launchers:
            if not builder.serving or not builder.client.connected:
                world.violation(f"{builder.name} does not serve")

    @staticmethod
    def _shown(image: Any) -> dict[str, Any]:
        """As Glance shows it."""
        base = {"id": image.id, "name": image.name, "status": image.status, "checksum": image.md5}
        return {**base, **image.metadata}

    @staticmethod
    def _files(directory: Path) -> dict[tuple[str, str], list[Path]]:
        found: dict[tuple[str, str], list[Path]] = {}
        for path in sorted(directory.iterdir()):
            if match := BUILD_FILE.fullmatch(path.name):
                found.setdefault((match["image"], match["build_id"]), []).append(path)
        return found
