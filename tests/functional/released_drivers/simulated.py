# SPDX-License-Identifier: Apache-2.0
"""Drivers of public clouds, and that of OpenStack, on simulated clouds.

Some drivers know only the addresses of the real cloud: a proxy stands for these.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, ClassVar

from benchmarks.support.public_azure import HOSTS as AZURE_HOSTS
from benchmarks.support.public_azure import AzureTranslation
from benchmarks.support.public_cloud import Translation, public_cloud
from benchmarks.support.simulated_gce import HOSTS as GCE_HOSTS
from benchmarks.support.simulated_ibmvpc import HOSTS as IBM_HOSTS
from simulators.ibmvpc import IbmVpcSettings, write_credentials
from simulators.openstack import CLOUD_NAME
from tests.functional.released_drivers.cloud import Cloud, Surroundings
from tests.support import clouds

DYNAMIC = {"tenant": "{request.tenant_name}"}


class Simulated(Cloud):
    """A row with a simulated cloud."""

    simulated: ClassVar[type[clouds.SimulatedCloud]]
    #: Keys of a label, and those of the provider. Those without a value are left out, as 11.0.0 did not have them.
    more_label: ClassVar[Mapping[str, Any]] = {}
    more: ClassVar[Mapping[str, Any]] = {"rate": 50}
    #: What a node says of itself; ``tags``: what its instance bears besides the name of the provider.
    says: ClassVar[Mapping[str, Any]]
    tags: ClassVar[Mapping[str, str]] = {}

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self.cloud = self.simulated(self.directory, surroundings.sshd.port)
        self._running = ExitStack()
        self._section: dict[str, Any] = {}
        self._foreign = ""

    def section(self) -> dict[str, Any]:
        return {key: value for key, value in self._section.items() if key not in ("name", "driver")}

    def public(self) -> AbstractContextManager[object]:
        """The cloud is at the addresses of the public one."""
        return nullcontext()

    def prepare(self) -> None:
        self._running.enter_context(self.cloud.simulator)
        # A released driver knows one form of what clouds write in several.
        self.cloud.change(by_turns=False)
        self._running.enter_context(self.public())
        self.environment = dict(self.cloud.environment())
        self._section = {
            key: value for key, value in {**self.cloud.section(), **self.more}.items() if value is not None
        }
        (pool,) = self._section["pools"]
        pool["max-servers"] = 5
        pool["labels"][0] |= self.more_label

    def stop(self) -> None:
        self._running.close()

    def machines(self) -> set[str]:
        return set(self.cloud.instances())

    def trouble(self) -> str:
        state = self.cloud.state()
        return f"in the simulator: {found}" if (found := state["bugs"] + state["double_nodes"]) else ""

    def check_node(self, node: Mapping[str, Any]) -> None:
        assert {key: node[key] for key in self.says} == self.says
        assert node["interface_ip"] == (node["public_ipv4"] or node["private_ipv4"])
        assert node["host_keys"]
        assert set(node["host_keys"]) <= set(self.surroundings.sshd.host_keys)
        marks = dict(self.cloud.marked())[self.cloud.instance_of(node)]
        wanted = {**self.tags, "nodepool_provider_name": self.provider}
        assert {key: marks.get(key) for key in wanted} == wanted

    def leave(self) -> set[str]:
        """Two instances: one of ours, and one that is not."""
        self._foreign = self.cloud.leak("other", "")
        return {self.cloud.leak(self.provider, "")}

    def left(self) -> set[str]:
        there = set(self.cloud.names())
        if self._foreign not in there:
            raise RuntimeError("an instance that is not ours was deleted")
        return there


class Aws(Simulated):
    driver: ClassVar[str] = "aws"
    kind: ClassVar[str] = "simulator of AWS"
    simulated = clouds.Aws
    more_label: ClassVar = {
        "volume-type": "gp3",
        "volume-size": 40,
        "tags": {"team": "ci"},
        "dynamic-tags": DYNAMIC,
    }
    says: ClassVar = {
        "cloud": "AWS",
        "region": "us-east-1",
        "username": "admin",
        "node_properties": {"spot": False, "fleet": False},
    }
    tags: ClassVar = {"team": "ci", "tenant": "tenant"}

    def check_node(self, node: Mapping[str, Any]) -> None:
        super().check_node(node)
        assert node["az"].startswith("us-east-1")
        assert node["resources"]["L-1216C47A"] == 2

    def leave(self) -> set[str]:
        """Volumes, too."""
        with self.cloud.simulator.cloud() as region:
            region.add_volume(metadata=self.cloud.marks("other", ""))
            volume = region.add_volume(metadata=self.cloud.marks(self.provider, "")).id
        return {*super().leave(), volume}

    def left(self) -> set[str]:
        with self.cloud.simulator.cloud() as region:
            volumes = set(region.volumes.volumes)
        return super().left() | volumes


class Azure(Simulated):
    driver: ClassVar[str] = "azure"
    kind: ClassVar[str] = "simulator of Azure"
    simulated = clouds.Azure
    more_label: ClassVar = {"tags": {"team": "ci"}, "dynamic-tags": DYNAMIC}
    says: ClassVar = {
        "cloud": "Azure",
        "region": "northeurope",
        "username": "zuul",
        # The instance that the released machine returns does not know its size: cores and RAM are 0 in 11.0.0, too.
        "resources": {"instances": 1, "cores": 0, "ram": 0},
    }
    tags: ClassVar = {"team": "ci", "tenant": "tenant"}

    def public(self) -> AbstractContextManager[object]:
        return public_cloud(self.directory, self.cloud.simulator.url, AZURE_HOSTS, AzureTranslation(closes=True))


class Gce(Simulated):
    driver: ClassVar[str] = "gce"
    kind: ClassVar[str] = "simulator of Compute Engine"
    simulated = clouds.Gce
    more: ClassVar = {"rate": None, "endpoint": None, "object-storage": None, "credentials-file": None}
    more_label: ClassVar = {"volume-size": 20}
    says: ClassVar = {
        "cloud": "Google",
        "region": "us-central1",
        "az": "us-central1-a",
        "username": "zuul",
        "resources": {"instances": 1, "cores": 1, "ram": 3840},
    }

    def public(self) -> AbstractContextManager[object]:
        return public_cloud(self.directory, self.cloud.simulator.url, GCE_HOSTS, Translation(closes=True))

    def prepare(self) -> None:
        super().prepare()
        # httplib2, which Google's client makes its calls with, has a variable of its own.
        self.environment["HTTPLIB2_CA_CERTS"] = os.environ["REQUESTS_CA_BUNDLE"]
        self.environment["GOOGLE_APPLICATION_CREDENTIALS"] = str(self.directory / "key.json")


class _OlderVersion(Translation):
    """The released driver reads addresses where the API had them before 2022-03-29; its library is of a later time."""

    def request(self, path: str, body: bytes) -> tuple[str, bytes]:
        return re.sub(r"\bversion=[-\d]+", "version=2022-03-28", path), body


class IbmVpc(Simulated):
    driver: ClassVar[str] = "ibmvpc"
    kind: ClassVar[str] = "simulator of IBM VPC"
    simulated = clouds.IbmVpc
    more: ClassVar = {"rate": 50, "quota": {"instances": 10, "cores": 20, "ram": 100}}
    says: ClassVar = {
        "cloud": "IBM",
        "region": "us-south",
        "az": "us-south-1",
        "username": "root",
        "resources": {"instances": 1, "cores": 2, "ram": 4},
    }

    def prepare(self) -> None:
        super().prepare()
        # The released driver takes no other addresses.
        login = {"VPC_AUTH_TYPE": "iam", "VPC_APIKEY": IbmVpcSettings.api_key}
        write_credentials(self.directory / "ibm.env", login)
        # As in an account that is in use. The driver knows those groups only that are there when it starts.
        for provider in (self.provider, "other"):
            self.cloud.do("add", kind="resource_group", name=f"np_{provider}_{self.pool}")

    def public(self) -> AbstractContextManager[object]:
        return public_cloud(self.directory, self.cloud.simulator.url, IBM_HOSTS, _OlderVersion(closes=True))


class OpenStack(Simulated):
    """It hides our driver of that name."""

    driver: ClassVar[str] = "openstack"
    kind: ClassVar[str] = "simulator of OpenStack"
    simulated = clouds.OpenStack
    more: ClassVar = {"rate": 0.01}
    more_label: ClassVar = {"flavor-name": "medium", "dynamic-instance-properties": DYNAMIC}
    says: ClassVar = {
        "cloud": CLOUD_NAME,
        "username": "debian",
        "resources": {"instances": 1, "cores": 2, "ram": 4096},
    }
    tags: ClassVar = {"tenant": "tenant"}


class RenamedOpenStack(OpenStack):
    """The same under another name, as a site has it that made a copy to change it."""

    driver: ClassVar[str] = "openstack_copy"
    original: ClassVar[str] = "openstack"
