# SPDX-License-Identifier: Apache-2.0
"""`GceSimulator`: a project on a loopback port."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from simulators.base.messages import Json
from simulators.base.simulator import Simulator
from simulators.gce.application import GceApplication
from simulators.gce.cloud import Project
from simulators.gce.links import PROJECT
from simulators.gce.service_key import private_key
from simulators.gce.settings import GceSettings
from simulators.gce.token_api import TOKEN_PATH


class GceSimulator(Simulator[Project]):
    """A project with memory. Use it as a context manager, or call `start` and `stop`.

    :param settings: to begin with; change them at any time with `change`.
    :param seed: the same seed, settings and order of calls give the same times and faults.
    :param port: 0 chooses a free one.
    :param clock: seconds since the epoch, for tests that make time pass.
    """

    def __init__(
        self,
        settings: GceSettings | None = None,
        seed: int = 0,
        port: int = 0,
        clock: Callable[[], float] | None = None,
    ) -> None:
        cloud = Project(settings, seed, clock)
        self.application = GceApplication(cloud)
        super().__init__(cloud, cloud.core, self.application, port)

    def state(self) -> Json:
        """Counters, contents and peaks, as ``GET /admin/state`` gives them."""
        with self.cloud():
            return self.application.admin.state()

    @property
    def key(self) -> Json:
        """The key of the service account, as Google gives it in a file."""
        with self.cloud() as cloud:
            email = cloud.email
        return {
            "type": "service_account",
            "project_id": PROJECT,
            "private_key_id": "0123456789abcdef0123456789abcdef01234567",
            "private_key": private_key(),
            "client_email": email,
            "client_id": "100000000000000000001",
            "auth_uri": f"{self.url}/o/oauth2/auth",
            "token_uri": f"{self.url}{TOKEN_PATH}",
            "universe_domain": "googleapis.com",
        }

    def write_key_file(self, path: Path) -> Path:
        """Writes the key of the service account; returns the path. It names the address: start the simulator first."""
        path.write_text(json.dumps(self.key), encoding="utf-8")
        path.chmod(0o600)
        return path
