# SPDX-License-Identifier: Apache-2.0
"""The simulated project of Google Compute Engine in a simulated world: the real driver, but no connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest
from google.auth import compute_engine

from nodepool.driver.gce import GceDriver
from nodepool.driver.gce.client import GoogleLogin
from nodepool.driver.gce.config import GceProviderConfig
from nodepool.driver.gce.types import record_id
from simulators.gce.application import GceApplication
from simulators.gce.cloud import FAMILY, Project
from simulators.gce.links import IMAGE_PROJECT, PROJECT
from simulators.gce.settings import GceBootRule, GceErrorRule, GceSettings, ZoneCapacity
from simulators.gce.token_api import METADATA_PATH
from tests.model.cloud import ModelServer
from tests.model.moves import LAUNCH_RETRIES
from tests.model.rest_cloud import RestModelCloud, RestWorld
from tests.model.setup import Move, Setup
from tests.model.simulated_cloud import LateRoomMoves

REGION: Final = "us-central1"
ZONES: Final = (f"{REGION}-a", f"{REGION}-b")
#: Seconds from the order until an instance is gone.
DELETE_SECONDS: Final = (0.0, 2.0)
#: What a label's instances are.
TYPES: Final = {"small": "e2-small", "large": "n1-standard-2"}
#: More instances of a region than these are not begun at once.
CONCURRENT: Final = 1


class GceModelCloud(RestModelCloud):
    """:ivar project: what is there; the settings say what goes wrong."""

    driver_name = "gce"
    create_call = "instances.insert"
    error_rule = GceErrorRule
    boot_rule = GceBootRule

    def __init__(self, world: GceWorld) -> None:
        boot = world.setup.boot_seconds
        settings = GceSettings(boot_seconds=(boot / 2, boot), delete_seconds=DELETE_SECONDS)
        self.project = Project(settings, world.setup.order, lambda: world.now)
        super().__init__(world, GceApplication(self.project))

    @property
    def knobs(self) -> GceSettings:
        return self.project.core.knobs

    def is_login(self, path: str) -> bool:
        return path.startswith(METADATA_PATH)

    def make_driver(self) -> GceDriver:
        return GceDriver()

    def provider_config(self, name: str, pools: Sequence[dict[str, Any]]) -> GceProviderConfig:
        image = {
            "name": "debian",
            "image-project": IMAGE_PROJECT,
            "image-family": FAMILY,
            "username": "zuul",
            "key": "ssh-ed25519 A",
        }
        section = {
            "name": name,
            "driver": self.driver_name,
            "project": PROJECT,
            "region": REGION,
            "zone": list(ZONES),
            "endpoint": "http://gce.invalid",
            "rate": 0,
            "cloud-images": [image],
            "pools": [self._pool(pool) for pool in pools],
        }
        config = GceProviderConfig(section)
        config.getSchema()(section)
        return config

    @staticmethod
    def _pool(pool: dict[str, Any]) -> dict[str, Any]:
        labels = [
            {"name": label["name"], "cloud-image": "debian", "instance-type": TYPES[label["name"]]}
            for label in pool["labels"]
        ]
        return {**pool, "labels": labels, "host-key-checking": False}

    @property
    def creations(self) -> int:
        return self.project.core.events["instances made"]

    def servers(self) -> list[ModelServer]:
        self.project.core.run_due()
        found = self.project.instances.all()
        return [ModelServer(record_id(one.spec.zone, one.name), one.spec.metadata) for one in found]

    def refuse_for_quota(self) -> None:
        """Its operation says it."""
        rule = GceBootRule(code="QUOTA_EXCEEDED", message="Quota 'CPUS' exceeded.  Limit: 24.0", status=403, count=1)
        self.knobs.boots.append(rule)

    def throttle(self) -> None:
        self._once("*", "403", reason="rateLimitExceeded", count=3)

    def no_room(self, late: bool) -> ZoneCapacity:
        return ZoneCapacity(zone=ZONES[0], late=late)

    def set_crowded(self, crowded: bool) -> None:
        """Are few insertions of a region possible at once? Operations of more say it."""
        self.knobs.concurrent_operations = CONCURRENT if crowded else None

    def set_silent(self, silent: bool, by_warning: bool, whole: bool) -> None:
        """Does the first of the zones answer? If not: how do lists of all zones tell it, and do only lists fail?"""
        self.knobs.unreachable = [ZONES[0]] if silent else []
        self.knobs.unreachable_warnings = by_warning
        self.knobs.unreachable_seconds = 0.0 if whole else None

    def heal(self) -> None:
        super().heal()
        self.set_crowded(False)
        self.set_silent(False, False, False)


class GceMoves(LateRoomMoves):
    """What can happen in a project, too."""

    @property
    def _project(self) -> GceModelCloud:
        cloud = self._world.cloud
        assert isinstance(cloud, GceModelCloud)
        return cloud

    def do_crowded(self, number: int) -> None:
        self._project.set_crowded(number % 2 == 0)

    def do_silent_zone(self, number: int) -> None:
        # Nothing can be made or deleted there, and an instance there may be one that was not answered for.
        self._world.create_faults += LAUNCH_RETRIES
        self._project.set_silent(number % 3 != 0, number % 3 == 1, number % 2 == 0)


class GceWorld(RestWorld):
    """See `World`."""

    def __init__(self, setup: Setup, *, trace: bool = False) -> None:
        super().__init__(setup, trace=trace)
        self.moves = GceMoves(self)

    def make_cloud(self) -> GceModelCloud:
        return GceModelCloud(self)

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        super().patch(patch)
        # Tokens of the metadata server, without a look at the files of this machine.
        patch.setattr(GoogleLogin, "_credentials", _metadata_credentials)


def _metadata_credentials(*_: object) -> compute_engine.Credentials:
    return compute_engine.Credentials()  # type: ignore[no-untyped-call]


def replay_gce(setup: Setup, *moves: Move, trace: bool = False) -> None:
    """One run. Raises `Violated`."""
    with GceWorld(setup, trace=trace) as made:
        made.play(moves)
