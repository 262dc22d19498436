# SPDX-License-Identifier: Apache-2.0
"""The simulated subscription of Azure in a simulated world: the real driver, but no connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest

from nodepool.driver.azure import AzureDriver, login
from nodepool.driver.azure.config import AzureProviderConfig
from nodepool.driver.azure.login import AuthFile
from simulators.azure.application import AzureApplication
from simulators.azure.cloud import IMAGE, NETWORK, Subscription
from simulators.azure.machines import VMS
from simulators.azure.resources import GROUP, LOCATION, SUBSCRIPTION, TENANT, resource_id
from simulators.azure.settings import ArmErrorRule, AzureSettings, SizeCapacity, VmBootRule
from tests.model.cloud import ModelServer
from tests.model.rest_cloud import RestModelCloud, RestWorld
from tests.model.setup import Move, Setup
from tests.model.simulated_cloud import LateRoomMoves

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
    create_call = "virtualMachines.put"
    error_rule = ArmErrorRule
    boot_rule = VmBootRule

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

    def refuse_for_quota(self) -> None:
        self._once(self.create_call, "403", code="QuotaExceeded")

    def throttle(self) -> None:
        self._once("virtualMachines.*", "429", count=3)

    def no_room(self, late: bool) -> SizeCapacity:
        return SizeCapacity(zone="1", late=late)


class AzureWorld(RestWorld):
    """See `World`."""

    def __init__(self, setup: Setup, *, trace: bool = False) -> None:
        super().__init__(setup, trace=trace)
        self.moves = LateRoomMoves(self)

    def make_cloud(self) -> AzureModelCloud:
        return AzureModelCloud(self)

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        super().patch(patch)
        patch.setattr(login, "read_auth_file", lambda _path: ACCOUNT)


def replay_azure(setup: Setup, *moves: Move, trace: bool = False) -> None:
    """One run. Raises `Violated`."""
    with AzureWorld(setup, trace=trace) as made:
        made.play(moves)
