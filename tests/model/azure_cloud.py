# SPDX-License-Identifier: Apache-2.0
"""The simulated subscription of Azure in a simulated world: the real driver, but no connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest

from nodepool.driver.azure import AzureDriver, login
from nodepool.driver.azure.auth_file import AuthFile
from nodepool.driver.azure.config import AzureProviderConfig
from nodepool.testing.azure.application import AzureApplication
from nodepool.testing.azure.cloud import IMAGE, NETWORK, Subscription
from nodepool.testing.azure.machines import VMS
from nodepool.testing.azure.resources import GROUP, LOCATION, SUBSCRIPTION, TENANT, resource_id
from nodepool.testing.azure.settings import ArmErrorRule, AzureSettings, SizeCapacity, VmBootRule
from tests.model.cloud import ModelServer
from tests.model.moves import Moves
from tests.model.rest_cloud import RestModelCloud, RestWorld
from tests.model.setup import Move, Setup

URL: Final = "http://arm.invalid"
#: Seconds from the order until a VM is gone.
DELETE_SECONDS: Final = (0.0, 2.0)
#: What a label's VMs are.
SIZES: Final = {"small": "Standard_B1s", "large": "Standard_D2s_v5"}
ACCOUNT: Final = AuthFile(
    SUBSCRIPTION,
    TENANT,
    AzureSettings.client_id,
    URL,
    URL,
    f"{URL}/identity",
    client_secret=AzureSettings.client_secret,
)


class AzureModelCloud(RestModelCloud):
    """:ivar subscription: what is there; the settings say what goes wrong."""

    driver_name = "azure"

    def __init__(self, world: AzureWorld) -> None:
        boot = world.setup.boot_seconds
        settings = AzureSettings(boot_seconds=(boot / 2, boot), delete_seconds=DELETE_SECONDS, nic_reserved_seconds=5.0)
        self.subscription = Subscription(settings, world.setup.order, lambda: world.now)
        super().__init__(world, AzureApplication(self.subscription))

    @property
    def knobs(self) -> AzureSettings:
        return self.subscription.core.knobs

    def make_driver(self) -> AzureDriver:
        return AzureDriver()

    def provider_config(self, name: str, pools: Sequence[dict[str, Any]]) -> AzureProviderConfig:
        image = {"name": "debian", "image-id": resource_id("images", IMAGE), "username": "zuul", "key": "ssh-ed25519 A"}
        section = {
            "name": name,
            "driver": self.driver_name,
            "location": LOCATION,
            "resource-group": GROUP,
            "resource-group-location": LOCATION,
            "auth-path": "/etc/azure.json",
            "network": NETWORK,
            "rate": 0,
            "cloud-images": [image],
            "pools": [self._pool(pool) for pool in pools],
        }
        config = AzureProviderConfig(section)
        config.getSchema()(section)
        return config

    @staticmethod
    def _pool(pool: dict[str, Any]) -> dict[str, Any]:
        labels = [
            {"name": label["name"], "cloud-image": "debian", "hardware-profile": {"vm-size": SIZES[label["name"]]}}
            for label in pool["labels"]
        ]
        return {**pool, "labels": labels, "availability-zones": ["1", "2"], "host-key-checking": False}

    @property
    def creations(self) -> int:
        return self.subscription.core.events["VMs made"]

    def servers(self) -> list[ModelServer]:
        self.subscription.core.run_due()
        return [ModelServer(vm.name, vm.tags) for vm in self.subscription.resources.of(VMS)]

    def server_of(self, external_id: Any) -> str | None:
        return external_id if isinstance(external_id, str) else None

    def lose_answer(self) -> None:
        self._once("virtualMachines.put", "drop", after=True)

    def fail_creation(self) -> None:
        self.knobs.boots.append(VmBootRule(count=1))

    def refuse_for_quota(self) -> None:
        self._once("virtualMachines.put", "403", code="QuotaExceeded")

    def throttle(self) -> None:
        """The next calls are put off."""
        self._once("virtualMachines.*", "429", count=3)

    def set_away(self, away: bool) -> None:
        self.knobs.errors = [ArmErrorRule(operation="*", kind="503")] if away else []

    def set_room(self, room: bool, late: bool) -> None:
        """Has the first of the zones some? If not: does that show late?"""
        self.knobs.capacity = [] if room else [SizeCapacity(zone="1", late=late)]

    def set_lag(self, lags: bool) -> None:
        """Do lists show late which VMs are new, and which are gone?"""
        self.knobs.hidden_rate = self.knobs.ghost_rate = 0.5 if lags else 0.0
        self.knobs.hidden_seconds = self.knobs.ghost_seconds = (0.5, 4.0)

    def heal(self) -> None:
        self.set_away(False)
        self.set_room(True, False)
        self.set_lag(False)
        self.knobs.boots = []

    def _once(self, operation: str, kind: str, *, after: bool = False, code: str = "", count: int = 1) -> None:
        self.knobs.errors.insert(0, ArmErrorRule(operation=operation, kind=kind, after=after, code=code, count=count))


class AzureMoves(Moves):
    """What can happen in a subscription, too."""

    @property
    def _subscription(self) -> AzureModelCloud:
        cloud = self._world.cloud
        assert isinstance(cloud, AzureModelCloud)
        return cloud

    def do_throttled(self, _: int) -> None:
        self._subscription.throttle()

    def do_no_room(self, number: int) -> None:
        self._subscription.set_room(number % 3 == 0, number % 3 == 1)

    def do_lag(self, number: int) -> None:
        self._subscription.set_lag(number % 2 == 0)


class AzureWorld(RestWorld):
    """See `World`."""

    def __init__(self, setup: Setup, *, trace: bool = False) -> None:
        super().__init__(setup, trace=trace)
        self.moves = AzureMoves(self)

    def make_cloud(self) -> AzureModelCloud:
        return AzureModelCloud(self)

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        super().patch(patch)
        patch.setattr(login, "read_auth_file", lambda _path: ACCOUNT)


def replay_azure(setup: Setup, *moves: Move, trace: bool = False) -> None:
    """One run. Raises `Violated`."""
    with AzureWorld(setup, trace=trace) as made:
        made.play(moves)
