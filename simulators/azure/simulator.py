# SPDX-License-Identifier: Apache-2.0
"""`AzureSimulator`: a subscription on a loopback port."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from simulators.azure.application import AzureApplication
from simulators.azure.cloud import Subscription
from simulators.azure.resources import SUBSCRIPTION, TENANT
from simulators.azure.settings import AzureSettings
from simulators.base.messages import Json
from simulators.base.simulator import Simulator


class AzureSimulator(Simulator[Subscription]):
    """A subscription with memory. Use it as a context manager, or call `start` and `stop`.

    :param settings: to begin with; change them at any time with `change`.
    :param seed: the same seed, settings and order of calls give the same times and faults.
    :param port: 0 chooses a free one.
    :param clock: seconds since the epoch, for tests that make time pass.
    """

    def __init__(
        self,
        settings: AzureSettings | None = None,
        seed: int = 0,
        port: int = 0,
        clock: Callable[[], float] | None = None,
    ) -> None:
        cloud = Subscription(settings, seed, clock)
        self.application = AzureApplication(cloud)
        super().__init__(cloud, cloud.core, self.application, port)

    def state(self) -> Json:
        """Counters, contents and peaks, as ``GET /admin/state`` gives them."""
        with self.cloud():
            return self.application.admin.state()

    def write_auth_file(self, path: Path) -> Path:
        """Writes what ``auth-path`` of a provider leads to; returns the path."""
        return write_auth_file(path, self.url, self._core.knobs.client_id, self._core.knobs.client_secret)


def write_auth_file(
    path: Path,
    url: str,
    client_id: str = AzureSettings.client_id,
    client_secret: str = AzureSettings.client_secret,
) -> Path:
    """The same for a subscription at an address."""
    content = {
        "clientId": client_id,
        "clientSecret": client_secret,
        "subscriptionId": SUBSCRIPTION,
        "tenantId": TENANT,
        "activeDirectoryEndpointUrl": url,
        "resourceManagerEndpointUrl": f"{url}/",
        "managedIdentityEndpointUrl": f"{url}/metadata/identity/oauth2/token",
    }
    path.write_text(json.dumps(content), encoding="utf-8")
    return path
