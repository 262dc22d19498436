# SPDX-License-Identifier: Apache-2.0
"""A simulated project whose time the test moves, and a plain client with a token of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from simulators.gce import GceSettings, GceSimulator
from simulators.gce.links import PROJECT
from tests.support.manual_clock import ManualClock

ZONE = "us-central1-a"
#: Boot and deletion take these seconds.
BOOT, DELETE = 10.0, 2.0


class Caller:
    """Sends calls as they are; answers are status and content."""

    def __init__(self, simulator: GceSimulator, clock: ManualClock) -> None:
        self.simulator = simulator
        self.clock = clock
        self.session = requests.Session()
        self.session.trust_env = False
        where = f"{simulator.url}/computeMetadata/v1/instance/service-accounts/default/token"
        with self.session.get(where, headers={"Metadata-Flavor": "Google"}) as answer:
            self.session.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"

    def call(self, method: str, path: str, body: Any = None, **query: object) -> tuple[int, Any]:
        """``path``: below the project."""
        url = f"{self.simulator.url}/compute/v1/projects/{PROJECT}/{path}".rstrip("/")
        parameters = {name: str(value) for name, value in query.items()}
        with self.session.request(method, url, json=body, params=parameters) as answer:
            return answer.status_code, answer.json()

    def get(self, path: str, **query: object) -> Any:
        status, content = self.call("GET", path, **query)
        assert status == 200, content
        return content

    def body(self, name: str, **changes: Any) -> dict[str, Any]:
        """Of an insert."""
        disk = {"sourceImage": "projects/debian-cloud/global/images/family/debian-12", "diskSizeGb": "20"}
        external = {"type": "ONE_TO_ONE_NAT", "name": "External NAT"}
        found: dict[str, Any] = {
            "name": name,
            "machineType": f"zones/{ZONE}/machineTypes/n1-standard-1",
            "disks": [{"boot": True, "autoDelete": True, "initializeParams": disk}],
            "networkInterfaces": [{"network": "global/networks/default", "accessConfigs": [external]}],
        }
        return {**found, **changes}

    def insert(self, name: str, request_id: str = "", **changes: Any) -> Any:
        """The operation of an insert."""
        query = {"requestId": request_id} if request_id else {}
        status, content = self.call("POST", f"zones/{ZONE}/instances", self.body(name, **changes), **query)
        assert status == 200, content
        return content

    def operation(self, operation: Any) -> Any:
        return self.get(f"zones/{ZONE}/operations/{operation['name']}")

    def status(self, name: str) -> str | None:
        """Of an instance; None = there is none."""
        status, content = self.call("GET", f"zones/{ZONE}/instances/{name}")
        return content["status"] if status == 200 else None


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_800_000_000.0)


@pytest.fixture
def caller(clock: ManualClock) -> Iterator[Caller]:
    settings = GceSettings(boot_seconds=(BOOT, BOOT), delete_seconds=(DELETE, DELETE), image_seconds=(5.0, 5.0))
    settings.token_seconds = 1e9
    with GceSimulator(settings, clock=clock) as simulator:
        made = Caller(simulator, clock)
        yield made
        made.session.close()
        assert not simulator.state()["bugs"]
