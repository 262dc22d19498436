# SPDX-License-Identifier: Apache-2.0
"""Instances as the lists of a cloud show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from nodepool.driver.statemachine import instance

PROVIDER = "somewhere"
NODE = "0000000042"


class Seen(NamedTuple):
    """An instance; ``updated`` counts seconds."""

    id: str
    status: str = "running"
    updated: str = "0"
    metadata: Mapping[str, str] = {}

    @property
    def gone(self) -> bool:
        return self.status == "gone"


def seen(record_id: str, status: str = "running", *, node_id: str = NODE, provider: str = PROVIDER) -> Seen:
    """An instance of the node."""
    return Seen(record_id, status, metadata=instance.for_node(node_id, "main", provider))
