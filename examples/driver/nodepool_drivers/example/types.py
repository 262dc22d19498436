# SPDX-License-Identifier: Apache-2.0
"""What the cloud says, as small values: only what the driver uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


# [record]
class Machine(NamedTuple):
    """A machine as a list shows it: a record of the inventory."""

    id: str
    status: str
    metadata: Mapping[str, str]
    address: str
    zone: str | None
    cores: int
    ram: int
    #: This cloud cannot list what changed.
    updated: str = ""

    @property
    def gone(self) -> bool:
        """Lists of this cloud do not show machines that are gone."""
        return False

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Machine:
        return cls(data["id"], data["status"], data["tags"], data["address"], data["zone"], data["cores"], data["ram"])
