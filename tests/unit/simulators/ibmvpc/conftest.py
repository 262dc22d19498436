# SPDX-License-Identifier: Apache-2.0
"""A region whose time the test moves, and IBM's own clients."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Protocol

import pytest
from ibm_cloud_sdk_core import ApiException
from ibm_cloud_sdk_core.authenticators import Authenticator, IAMAuthenticator, NoAuthAuthenticator
from ibm_platform_services import GlobalTaggingV1, ResourceControllerV2, ResourceManagerV2
from ibm_vpc import VpcV1
from ibm_vpc.vpc_v1 import FloatingIP, Image, Instance, Volume

from simulators.ibmvpc import IbmVpcSettings, IbmVpcSimulator
from simulators.ibmvpc.images import IMAGE_NAME
from simulators.ibmvpc.network import KEY_NAME
from tests.support.manual_clock import ManualClock

ZONE = "us-south-1"


@cache
def _first(kind: Any) -> Any:
    """A client that others are copies of. Each of its own would read all certificates of the machine: 0.1 s."""
    arguments = ("2026-10-06",) if kind is VpcV1 else ()
    return kind(*arguments, authenticator=NoAuthAuthenticator())


class Caller:
    """A region and IBM's clients. ``clock`` is the region's; its time passes only when the test says so."""

    def __init__(self, simulator: IbmVpcSimulator, clock: ManualClock) -> None:
        self.simulator = simulator
        self.clock = clock
        self._login: Any = IAMAuthenticator(IbmVpcSettings.api_key, url=simulator.url)
        self.vpc: Any = self.client()
        self.groups: Any = self._service(ResourceManagerV2)
        self.controller: Any = self._service(ResourceControllerV2)
        self.tagging: Any = self._service(GlobalTaggingV1)

    def client(self, login: Authenticator | None = None, version: str = "2026-10-06") -> Any:
        """A client of the VPC API."""
        service = self._service(VpcV1, login, "/v1")
        service.version = version
        return service

    def _service(self, kind: Any, login: Authenticator | None = None, path: str = "") -> Any:
        service = copy.copy(_first(kind))
        service.authenticator = login or self._login
        service.set_service_url(self.simulator.url + path)
        return service

    @staticmethod
    def close() -> None:
        """Ends the connections; other regions can be asked afterwards."""
        for kind in (VpcV1, ResourceManagerV2, ResourceControllerV2, GlobalTaggingV1):
            _first(kind).http_client.close()

    @property
    def token(self) -> str:
        return str(self._login.token_manager.get_token())

    def id_of(self, kind: str, name: str) -> str:
        """The id of something that is there, whatever lists show."""
        with self.simulator.cloud() as cloud:
            found = cloud.resources.named(kind, name)
        assert found is not None
        return found.id

    def prototype(self, name: str = "np1", **more: Any) -> dict[str, Any]:
        """The body of an instance."""
        return {
            "name": name,
            "profile": {"name": "cx2-2x4"},
            "zone": {"name": ZONE},
            "image": {"id": self.id_of("images", IMAGE_NAME)},
            "keys": [{"id": self.id_of("keys", KEY_NAME)}],
            "primary_network_interface": {"name": "eth0", "subnet": {"id": self.subnet()}},
            **more,
        }

    def subnet(self, zone: str = ZONE) -> str:
        return self.id_of("subnets", f"ci-{zone}")

    def create(self, name: str = "np1", **more: Any) -> Instance:
        """An instance; what is wrong with its shape is an error."""
        return Instance.from_dict(self.vpc.create_instance(self.prototype(name, **more)).get_result())

    def instance(self, name: str = "np1") -> Instance | None:
        """As the list has it; None = it does not."""
        found = self.vpc.list_instances(name=name).get_result()["instances"]
        return Instance.from_dict(found[0]) if found else None

    def status(self, name: str = "np1") -> str:
        instance = self.instance(name)
        return instance.status if instance is not None else ""

    def volumes(self) -> list[Volume]:
        return [Volume.from_dict(found) for found in self.vpc.list_volumes().get_result()["volumes"] or ()]

    def addresses(self) -> list[FloatingIP]:
        # A list without entries may have null for them.
        found = self.vpc.list_floating_ips().get_result()["floating_ips"]
        return [FloatingIP.from_dict(one) for one in found or ()]

    def image(self, image_id: str) -> Image:
        return Image.from_dict(self.vpc.get_image(image_id).get_result())


@pytest.fixture
def caller() -> Iterator[Caller]:
    # IBM's clients look at the time of the machine: whether their token has ended.
    clock = ManualClock(time.time())
    with IbmVpcSimulator(IbmVpcSettings(by_turns=False), clock=clock) as simulator:
        caller = Caller(simulator, clock)
        yield caller
        caller.close()
        assert simulator.state()["bugs"] == []


def with_group_name(image: dict[str, Any]) -> dict[str, Any]:
    """An image of a list, as IBM's client wants it.

    In the client (``ibm_vpc.vpc_v1.ResourceGroupReference``), which is made of the definition of the API, the name of
    a resource group is required. IBM's list of images has only its id, as Nodepool 11.0.0 says of it
    (``ibmvpc/adapter.py``).
    """
    assert set(image["resource_group"]) == {"href", "id"}
    return {**image, "resource_group": {**image["resource_group"], "name": "Default"}}


class Refused(Protocol):
    """Status and IBM's code of a call that is refused."""

    def __call__(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> tuple[int, str]: ...


@pytest.fixture
def refused() -> Refused:
    def code(call: Callable[..., Any], *arguments: Any, **named: Any) -> tuple[int, str]:
        with pytest.raises(ApiException) as caught:
            call(*arguments, **named)
        assert caught.value.http_response is not None
        content = caught.value.http_response.json()
        told = content["errors"][0]["code"] if "errors" in content else content.get("error_code", "")
        return caught.value.status_code, told

    return code
