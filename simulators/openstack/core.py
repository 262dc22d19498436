# SPDX-License-Identifier: Apache-2.0
"""What all simulated OpenStack services share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from simulators.base.core import SimulationCore
from simulators.openstack.knobs import Knobs
from simulators.openstack.messages import new_id, not_found

#: How long a service may not know a thing that it has just accepted.
UNKNOWN_SECONDS = 0.1


class Core(SimulationCore[Knobs]):
    """The project, the user, and times as the services write them."""

    def __init__(self, knobs: Knobs, seed: int, clock: Callable[[], float] | None = None) -> None:
        super().__init__(knobs, seed, clock)
        self.project_id = new_id().replace("-", "")
        self.user_id = new_id().replace("-", "")
        self._known_at: dict[str, float] = {}

    def accepted(self, what: str, key: str) -> None:
        """One in a few new things is not known at once to whom asks for it: databases follow each other."""
        if self.turn(f"new {what}", False, False, True, False):
            self._known_at[key] = self.now() + UNKNOWN_SECONDS

    def check_known(self, what: str, key: str) -> None:
        """:raises ApiError: 404, a thing that was accepted a moment ago."""
        if self.now() < self._known_at.get(key, 0.0):
            raise not_found(what, key)
        self._known_at.pop(key, None)

    def stamp(self) -> str:
        """Now, as the services write it: whole seconds, UTC."""
        return datetime.fromtimestamp(self.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
