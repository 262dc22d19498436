# SPDX-License-Identifier: Apache-2.0
"""Volumes of the simulated region."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from simulators.aws.core import RegionCore
from simulators.aws.quota_list import STORAGE
from simulators.base.messages import ApiError

AVAILABLE, IN_USE = "available", "in-use"
GIB_A_TIB: Final = 1024


@dataclass
class SimulatedVolume:
    """One volume. ``instance_id``: None = it is attached to nothing."""

    id: str
    size_gib: int
    type: str
    zone: str
    created: str
    snapshot_id: str = ""
    iops: int = 0
    throughput: int = 0
    instance_id: str | None = None
    device: str = ""
    delete_on_termination: bool = False
    encrypted: bool = False
    tags: dict[str, str] = field(default_factory=dict)

    @property
    def state(self) -> str:
        return AVAILABLE if self.instance_id is None else IN_USE


class SimulatedVolumes:
    """Volumes by id. The caller holds the core's lock."""

    def __init__(self, core: RegionCore) -> None:
        self.core = core
        self.volumes: dict[str, SimulatedVolume] = {}
        #: GiB by type.
        self._used: dict[str, int] = {}

    def room(self, kind: str, size_gib: int) -> int:
        """How many volumes of a size the account may still have; many, if there is no limit."""
        limit = self.core.knobs.quotas.get(STORAGE.get(kind, ""))
        if limit is None or size_gib <= 0:
            return 1_000_000
        return max(0, int(limit * GIB_A_TIB - self._used.get(kind, 0)) // size_gib)

    def create(self, size_gib: int, kind: str, zone: str, tags: dict[str, str]) -> SimulatedVolume:
        """Makes a volume that is attached to nothing."""
        volume = SimulatedVolume(self.core.new_id("vol"), size_gib, kind, zone, self.core.stamp(), tags=tags)
        self.volumes[volume.id] = volume
        self._used[kind] = self._used.get(kind, 0) + size_gib
        self.core.events["volumes created"] += 1
        return volume

    def get(self, volume_id: str) -> SimulatedVolume:
        """A volume.

        :raises ApiError: 400.
        """
        if volume_id not in self.volumes:
            raise ApiError(400, f"The volume '{volume_id}' does not exist.", "InvalidVolume.NotFound")
        return self.volumes[volume_id]

    def delete(self, volume_id: str) -> None:
        """Deletes a volume.

        :raises ApiError: 400, there is none, or it is attached.
        """
        volume = self.get(volume_id)
        if volume.instance_id is not None:
            raise ApiError(400, f"Volume {volume_id} is currently attached to {volume.instance_id}", "VolumeInUse")
        self._remove(volume)

    def instance_ended(self, instance_id: str) -> None:
        """The volumes of an instance go, or are attached to nothing."""
        for volume in [volume for volume in self.volumes.values() if volume.instance_id == instance_id]:
            volume.instance_id = None
            if volume.delete_on_termination:
                self._remove(volume)

    def of(self, instance_id: str) -> list[SimulatedVolume]:
        """The volumes of an instance."""
        return [volume for volume in self.volumes.values() if volume.instance_id == instance_id]

    def _remove(self, volume: SimulatedVolume) -> None:
        del self.volumes[volume.id]
        self._used[volume.type] -= volume.size_gib
        self.core.events["volumes deleted"] += 1
