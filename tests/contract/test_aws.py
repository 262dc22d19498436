# SPDX-License-Identifier: Apache-2.0
"""The AWS driver keeps the contract: on moto, and in the simulated region, which is slow and whose lists lag."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.driver.aws import AwsDriver
from nodepool.testing.contract import DriverContract
from simulators.aws import AwsSettings, AwsSimulator
from tests.support.lost_machine_contract import LostMachineContract
from tests.support.moto_server import KEY_NAME, REGION, MotoServer


class AwsContract(DriverContract):
    """Two pools, an image of the cloud's. Nothing scans the instances: no sshd answers there."""

    label = "small"
    unknown_external_id = {"instance": "i-0123456789abcdef0"}  # noqa: RUF012 - of the suite
    zone = f"{REGION}a"
    key_name = KEY_NAME
    image_id: str

    def make_driver(self) -> AwsDriver:
        return AwsDriver()

    def provider_section(self) -> dict[str, Any]:
        pool = {"host-key-checking": False, "availability-zone": self.zone}
        return {
            "name": "somewhere",
            "driver": "aws",
            "region-name": REGION,
            "rate": 0,
            "cloud-images": [{"name": "debian", "image-id": self.image_id, "username": "admin"}],
            "pools": [
                {"name": "main", "labels": [self.label_of("small", "t3.small")], **pool},
                {
                    "name": "other",
                    "max-servers": 5,
                    "labels": [self.label_of("large", "t3.large")],
                    **pool,
                },
            ],
        }

    def label_of(self, name: str, instance_type: str) -> dict[str, Any]:
        """A label whose nodes are of a type."""
        return {"name": name, "cloud-image": "debian", "key-name": self.key_name, **self.kind_of(instance_type)}

    def kind_of(self, instance_type: str) -> dict[str, Any]:
        return {"instance-type": instance_type}


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    server = MotoServer(tmp_path_factory.mktemp("moto"))
    server.start()
    server.reset()
    yield server
    server.stop()


class TestAws(AwsContract):
    """On moto."""

    def test_preflight(self, provider_config: Any) -> None:
        """``nodepool check``: all is there; moto does not tell limits."""
        adapter = self.make_driver().getAdapter(provider_config)
        try:
            found = {result.subject: result.status for result in adapter.preflight()}
        finally:
            adapter.stop()
        assert found.pop("quota") == "warning"
        assert set(found) == {f"region {REGION}", "label small of pool main", "label large of pool other"}
        assert set(found.values()) == {"ok"}

    @pytest.fixture(autouse=True)
    def _cloud(self, moto: MotoServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """A cloud that is empty before and after each test. moto takes long to be as new."""
        self.image_id = moto.image_id()
        for name, value in moto.environment.items():
            monkeypatch.setenv(name, value)
        yield
        left = [instance["InstanceId"] for instance in moto.instances()]
        left += [host["HostId"] for host in moto.ec2.describe_hosts()["Hosts"] if host["State"] != "released"]
        if left:
            moto.reset()
        assert not left, f"instances or hosts left behind: {left}"


class TestFleet(TestAws):
    """The same with fleets: AWS chooses the type."""

    def kind_of(self, instance_type: str) -> dict[str, Any]:
        return {"fleet": {"instance-types": [instance_type], "allocation-strategy": "prioritized"}}


class TestDedicatedHosts(TestAws):
    """The same with a host for each node."""

    def kind_of(self, instance_type: str) -> dict[str, Any]:
        return {"instance-type": instance_type, "dedicated-host": True}


class TestAwsSimulator(LostMachineContract, AwsContract):
    """In the simulated region."""

    zone = "us-east-1b"
    key_name = "zuul"

    @pytest.fixture(autouse=True)
    def _cloud(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """A region of its own for each test, which must be empty at the end."""
        settings = AwsSettings(hidden_rate=0.3, hidden_seconds=(0.1, 0.3), tag_lag_rate=0.3, tag_lag_seconds=(0.1, 0.3))
        settings.empty_pages = True
        with AwsSimulator(settings) as simulator:
            with simulator.cloud() as cloud:
                self.image_id = cloud.image_id
            for name, value in simulator.environment.items():
                monkeypatch.setenv(name, value)
            yield
            state = simulator.state()
        assert state["bugs"] == []
        assert state["double_nodes"] == []
        assert state["contents"] == {"instances": 0, "volumes": 0, "images": 1, "hosts": 0, "templates": 0}
