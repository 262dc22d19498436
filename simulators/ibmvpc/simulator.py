# SPDX-License-Identifier: Apache-2.0
"""`IbmVpcSimulator`: a region of IBM Cloud on a loopback port."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from simulators.base.messages import Json
from simulators.base.simulator import Simulator
from simulators.ibmvpc.application import IbmVpcApplication
from simulators.ibmvpc.cloud import VpcRegion
from simulators.ibmvpc.settings import IbmVpcSettings


class IbmVpcSimulator(Simulator[VpcRegion]):
    """A region with memory. Use it as a context manager, or call `start` and `stop`.

    :param settings: to begin with; change them at any time with `change`.
    :param seed: the same seed, settings and order of calls give the same times and faults.
    :param port: 0 chooses a free one.
    :param clock: seconds since the epoch, for tests that make time pass.
    """

    def __init__(
        self,
        settings: IbmVpcSettings | None = None,
        seed: int = 0,
        port: int = 0,
        clock: Callable[[], float] | None = None,
    ) -> None:
        cloud = VpcRegion(settings, seed, clock)
        self.application = IbmVpcApplication(cloud)
        super().__init__(cloud, cloud.core, self.application, port)

    def state(self) -> Json:
        """Counters, contents and peaks, as ``GET /admin/state`` gives them."""
        with self.cloud():
            return self.application.admin.state()

    @property
    def environment(self) -> dict[str, str]:
        """What programs that use IBM's clients need in their environment to find it; nothing else is asked."""
        return environment(self.url, self._core.knobs.api_key)

    def write_credentials(self, path: Path) -> Path:
        """Writes what ``credentials-file`` of a provider is; returns the path."""
        return write_credentials(path, self.environment)


def environment(url: str, api_key: str = IbmVpcSettings.api_key) -> dict[str, str]:
    """The same for a region at an address."""
    services = ("VPC", "RESOURCE_MANAGER", "RESOURCE_CONTROLLER", "GLOBAL_TAGGING")
    found = {f"{service}_URL": url for service in services} | {"VPC_URL": f"{url}/v1"}
    for service in services:
        login = {"AUTH_TYPE": "iam", "APIKEY": api_key, "AUTH_URL": url}
        found |= {f"{service}_{name}": value for name, value in login.items()}
    return found


def write_credentials(path: Path, variables: Mapping[str, str]) -> Path:
    """Writes variables as IBM's clients read them from a file; returns the path."""
    path.write_text("".join(f"{name}={value}\n" for name, value in variables.items()), encoding="utf-8")
    return path
