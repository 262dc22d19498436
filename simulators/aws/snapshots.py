# SPDX-License-Identifier: Apache-2.0
"""Snapshots of the simulated region: whole ones, and those that are written block by block.

Data are not kept: of each block there is its SHA-256.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Final

from simulators.aws.core import RegionCore
from simulators.aws.images import SimulatedImages
from simulators.base.messages import ApiError

PENDING: Final = "pending"
COMPLETED: Final = "completed"
ERROR: Final = "error"
BLOCK_BYTES: Final = 512 * 1024
BLOCKS_A_GIB: Final = 2**30 // BLOCK_BYTES


@dataclass
class SimulatedSnapshot:
    """One snapshot.

    :param blocks: index -> SHA-256, of one that is or was written block by block.
    """

    id: str
    size_gib: int
    created: str
    state: str = COMPLETED
    message: str = ""
    description: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    blocks: dict[int, bytes] = field(default_factory=dict)


class SimulatedSnapshots:
    """Snapshots of the account by id. The caller holds the core's lock."""

    def __init__(self, core: RegionCore, images: SimulatedImages) -> None:
        self.core = core
        self._images = images
        self.snapshots: dict[str, SimulatedSnapshot] = {}

    def add(self, size_gib: int, state: str = COMPLETED, description: str = "") -> SimulatedSnapshot:
        """Adds one without tags."""
        core = self.core
        snapshot = SimulatedSnapshot(core.new_id("snap"), size_gib, core.stamp(), state, description=description)
        self.snapshots[snapshot.id] = snapshot
        core.events["snapshots created"] += 1
        return snapshot

    def get(self, snapshot_id: str) -> SimulatedSnapshot:
        """A snapshot.

        :raises ApiError: 400.
        """
        if snapshot_id not in self.snapshots:
            raise ApiError(400, f"The snapshot '{snapshot_id}' does not exist.", "InvalidSnapshot.NotFound")
        return self.snapshots[snapshot_id]

    def delete(self, snapshot_id: str) -> None:
        """Deletes one.

        :raises ApiError: 400, there is none, or an image is made of it.
        """
        self.get(snapshot_id)
        for image in self._images.images.values():
            if any(device["Ebs"].get("SnapshotId") == snapshot_id for device in image.devices):
                text = f"The snapshot {snapshot_id} is currently in use by {image.id}"
                raise ApiError(400, text, "InvalidSnapshot.InUse")
        del self.snapshots[snapshot_id]
        self.core.events["snapshots deleted"] += 1

    def complete(self, snapshot: SimulatedSnapshot, blocks: int, digest: bytes | None) -> None:
        """All blocks of it are written; what does not fit is found out later.

        :param digest: SHA-256 over those of the blocks; None = it is not compared.
        """
        own = hashlib.sha256(b"".join(found for _, found in sorted(snapshot.blocks.items()))).digest()
        wrong = digest is not None and (digest != own or blocks != len(snapshot.blocks))

        def end() -> None:
            snapshot.state = ERROR if wrong else COMPLETED
            snapshot.message = "The checksum or the number of blocks does not match." if wrong else ""

        self.core.after(self.core.knobs.complete_seconds, "complete", end)
