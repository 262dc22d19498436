# SPDX-License-Identifier: Apache-2.0
"""What all simulated OpenStack services share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from nodepool.testing.openstack.knobs import Knobs
from nodepool.testing.openstack.messages import new_id
from nodepool.testing.simulator.core import SimulationCore


class Core(SimulationCore[Knobs]):
    """The project, the user, and times as the services write them."""

    def __init__(self, knobs: Knobs, seed: int, clock: Callable[[], float] | None = None) -> None:
        super().__init__(knobs, seed, clock)
        self.project_id = new_id().replace("-", "")
        self.user_id = new_id().replace("-", "")

    def stamp(self) -> str:
        """Now, as the services write it: whole seconds, UTC."""
        return datetime.fromtimestamp(self.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
