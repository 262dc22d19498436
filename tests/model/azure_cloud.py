# SPDX-License-Identifier: Apache-2.0
"""The simulated subscription of Azure in a simulated world: the real driver, but no connection."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Final

import pytest

from nodepool.driver.azure import AzureDriver, login
from nodepool.driver.azure.login import AuthFile
from simulators.azure.application import AzureApplication
from simulators.azure.cloud import IMAGE, Subscription
from simulators.azure.resources import SUBSCRIPTION, TENANT, resource_id
from simulators.azure.settings import ArmErrorRule, AzureSettings, SizeCapacity, VmBootRule
from tests.model.simulated_cloud import RestModelCloud, RestWorld
from tests.model.world import World
from tests.support.clouds import azure_section

URL: Final = "http://arm.invalid"
#: Seconds from the order until a VM is gone.
DELETE_SECONDS: Final = (0.0, 2.0)
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
    error_rule = ArmErrorRule
    boot_rule = VmBootRule

    sizes: ClassVar = {
        "small": {"hardware-profile": {"vm-size": "Standard_B1s"}},
        "large": {"hardware-profile": {"vm-size": "Standard_D2s_v5"}},
    }

    def __init__(self, world: World) -> None:
        boot = world.setup.boot_seconds
        settings = AzureSettings(boot_seconds=(boot / 2, boot), delete_seconds=DELETE_SECONDS, nic_reserved_seconds=5.0)
        self.subscription = Subscription(settings, world.setup.order, lambda: world.now)
        super().__init__(world, AzureApplication(self.subscription), self.subscription.core)

    def make_driver(self) -> AzureDriver:
        return AzureDriver()

    def section(self) -> dict[str, Any]:
        section = azure_section(Path("/etc/azure.json"))
        # By its id: it is not looked for.
        image = {"name": "debian", "image-id": resource_id("images", IMAGE), "username": "zuul", "key": "ssh-ed25519 A"}
        return {**section, "cloud-images": [image]}

    def refuse_for_quota(self) -> None:
        self._once(self.create_call, "403", code="QuotaExceeded")

    def throttle(self) -> None:
        self._once("virtualMachines.*", "429", count=3)

    def no_room(self, late: bool) -> SizeCapacity:
        return SizeCapacity(zone="1", late=late)


class AzureWorld(RestWorld):
    """See `World`."""

    def make_cloud(self) -> AzureModelCloud:
        return AzureModelCloud(self)

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        super().patch(patch)
        patch.setattr(login, "read_auth_file", lambda _path: ACCOUNT)
