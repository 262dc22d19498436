# SPDX-License-Identifier: Apache-2.0
"""The simulated project of Google Compute Engine in a simulated world: the real driver, but no connection."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Final

import pytest
from google.auth import compute_engine

from nodepool.driver.gce import GceDriver
from nodepool.driver.gce.client import GoogleLogin
from nodepool.driver.gce.types import record_id
from simulators.gce.application import GceApplication
from simulators.gce.cloud import Project
from simulators.gce.settings import GceBootRule, GceErrorRule, GceSettings, ZoneCapacity
from simulators.gce.token_api import METADATA_PATH
from tests.model.cloud import ModelServer, cloud_of
from tests.model.moves import LAUNCH_RETRIES
from tests.model.simulated_cloud import LateRoomMoves, RestModelCloud, RestWorld
from tests.model.world import World
from tests.support.clouds import Gce, gce_section

FIRST_ZONE: Final = Gce.zones[0]
#: Seconds from the order until an instance is gone.
DELETE_SECONDS: Final = (0.0, 2.0)
#: More instances of a region than these are not begun at once.
CONCURRENT: Final = 1


class GceModelCloud(RestModelCloud):
    """:ivar project: what is there; the settings say what goes wrong."""

    driver_name = "gce"
    error_rule = GceErrorRule
    boot_rule = GceBootRule

    sizes: ClassVar = {"small": {"instance-type": "e2-small"}, "large": {"instance-type": "n1-standard-2"}}

    def __init__(self, world: World) -> None:
        boot = world.setup.boot_seconds
        settings = GceSettings(boot_seconds=(boot / 2, boot), delete_seconds=DELETE_SECONDS)
        self.project = Project(settings, world.setup.order, lambda: world.now)
        super().__init__(world, GceApplication(self.project), self.project.core)

    def is_login(self, path: str) -> bool:
        return path.startswith(METADATA_PATH)

    def make_driver(self) -> GceDriver:
        return GceDriver()

    def section(self) -> dict[str, Any]:
        return gce_section(Path("/etc/key.json"), "http://gce.invalid")

    def servers(self) -> list[ModelServer]:
        self._core.run_due()
        found = self.project.instances.all()
        return [ModelServer(record_id(one.spec.zone, one.name), one.spec.metadata) for one in found]

    def refuse_for_quota(self) -> None:
        """Its operation says it."""
        rule = GceBootRule(code="QUOTA_EXCEEDED", message="Quota 'CPUS' exceeded.  Limit: 24.0", status=403, count=1)
        self.knobs.boots.append(rule)

    def throttle(self) -> None:
        self._once("*", "403", reason="rateLimitExceeded", count=3)

    def no_room(self, late: bool) -> ZoneCapacity:
        return ZoneCapacity(zone=FIRST_ZONE, late=late)

    def set_crowded(self, crowded: bool) -> None:
        """Are few insertions of a region possible at once? Operations of more say it."""
        self.knobs.concurrent_operations = CONCURRENT if crowded else None

    def set_silent(self, silent: bool, by_warning: bool, whole: bool) -> None:
        """Does the first of the zones answer? If not: how do lists of all zones tell it, and do only lists fail?"""
        self.knobs.unreachable = [FIRST_ZONE] if silent else []
        self.knobs.unreachable_warnings = by_warning
        self.knobs.unreachable_seconds = 0.0 if whole else None

    def heal(self) -> None:
        super().heal()
        self.set_crowded(False)
        self.set_silent(False, False, False)


class GceMoves(LateRoomMoves):
    """What can happen in a project, too."""

    def do_crowded(self, number: int) -> None:
        cloud_of(self._world, GceModelCloud).set_crowded(number % 2 == 0)

    def do_silent_zone(self, number: int) -> None:
        # Nothing can be made or deleted there, and an instance there may be one that was not answered for.
        self._world.create_faults += LAUNCH_RETRIES
        cloud_of(self._world, GceModelCloud).set_silent(number % 3 != 0, number % 3 == 1, number % 2 == 0)


class GceWorld(RestWorld):
    """See `World`."""

    moves_class = GceMoves

    def make_cloud(self) -> GceModelCloud:
        return GceModelCloud(self)

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        super().patch(patch)
        # Tokens of the metadata server, without a look at the files of this machine.
        patch.setattr(GoogleLogin, "_credentials", _metadata_credentials)


def _metadata_credentials(*_: object) -> compute_engine.Credentials:
    return compute_engine.Credentials()  # type: ignore[no-untyped-call]
