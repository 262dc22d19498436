# SPDX-License-Identifier: Apache-2.0
"""`AwsSimulator`: a region on a loopback port, for botocore and everything that uses it."""

from __future__ import annotations

from collections.abc import Callable

from simulators.aws.application import AwsApplication
from simulators.aws.cloud import Region
from simulators.aws.settings import AwsSettings
from simulators.base.messages import Json
from simulators.base.simulator import Simulator

SECRET_KEY = "simulated-secret"


class AwsSimulator(Simulator[Region]):
    """A region with memory. Use it as a context manager, or call `start` and `stop`.

    :param settings: to begin with; change them at any time with `change`.
    :param seed: the same seed, settings and order of calls give the same times and faults.
    :param port: 0 chooses a free one.
    :param clock: seconds since the epoch, for tests that make time pass.
    """

    def __init__(
        self,
        settings: AwsSettings | None = None,
        seed: int = 0,
        port: int = 0,
        clock: Callable[[], float] | None = None,
    ) -> None:
        cloud = Region(settings, seed, clock)
        self.application = AwsApplication(cloud)
        super().__init__(cloud, cloud.core, self.application, port)

    def state(self) -> Json:
        """Counters, contents and peaks, as ``GET /admin/state`` gives them."""
        with self.cloud():
            return self.application.admin.state()

    @property
    def environment(self) -> dict[str, str]:
        """What programs that use botocore need in their environment to find it; nothing else is asked."""
        return environment(self.url, self._core.knobs.access_key)


def environment(url: str, access_key: str = AwsSettings.access_key) -> dict[str, str]:
    """The same for a region at an address."""
    return {
        "AWS_ACCESS_KEY_ID": access_key,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_ENDPOINT_URL": url,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    }
