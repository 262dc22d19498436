# SPDX-License-Identifier: Apache-2.0
"""Facts about IBM Cloud, each with its source: what the simulated region says, and what the driver makes of it.

Sources: models and signatures of IBM's client ``ibm-vpc``, which is made of the definition of the API; pages of
https://cloud.ibm.com/docs/vpc; answers that users of IBM Cloud published.
"""

from __future__ import annotations

import copy
import inspect
import re
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import requests
import yaml
from ibm_cloud_sdk_core import ApiException
from ibm_cloud_sdk_core.authenticators import (
    IAMAuthenticator,
    NoAuthAuthenticator,
)
from ibm_vpc import VpcV1
from ibm_vpc import vpc_v1 as models

from nodepool.driver.framework.cloud_errors import CloudNoCapacity, CloudQuota, CloudRefused, CodedError
from nodepool.driver.ibmvpc import types
from simulators.ibmvpc import IbmVpcSettings, IbmVpcSimulator
from simulators.ibmvpc.images import IMAGE_NAME
from simulators.ibmvpc.network import KEY_NAME
from tests.support.manual_clock import ManualClock

HERE: Final = Path(__file__).parent
#: What errors are for the driver.
KINDS: Final = {"refused": CloudRefused, "quota": CloudQuota, "capacity": CloudNoCapacity}
ZONE: Final = "us-south-1"
VERSION: Final = "2026-10-06"
Refusal = tuple[int, str]


@cache
def _client() -> Any:
    """A client that others are copies of. Each of its own would read all certificates of the machine: 0.1 s."""
    return VpcV1(VERSION, authenticator=NoAuthAuthenticator())


class Caller:
    """A region whose time stands still, and IBM's client of it."""

    def __init__(self, simulator: IbmVpcSimulator) -> None:
        self.simulator = simulator
        self.vpc: Any = copy.copy(_client())
        self.vpc.authenticator = IAMAuthenticator(IbmVpcSettings.api_key, url=simulator.url)
        self.vpc.set_service_url(f"{simulator.url}/v1")

    def id_of(self, kind: str, name: str) -> str:
        """The id of something that is there, whatever lists show."""
        with self.simulator.cloud() as cloud:
            found = cloud.resources.named(kind, name)
        assert found is not None
        return found.id

    def create(self, name: str = "np1", **more: Any) -> models.Instance:
        """An instance; what is wrong with its shape is an error."""
        subnet = {"id": self.id_of("subnets", f"ci-{ZONE}")}
        prototype = {
            "name": name,
            "profile": {"name": "cx2-2x4"},
            "zone": {"name": ZONE},
            "image": {"id": self.id_of("images", IMAGE_NAME)},
            "keys": [{"id": self.id_of("keys", KEY_NAME)}],
            "primary_network_interface": {"name": "eth0", "subnet": subnet},
            **more,
        }
        return models.Instance.from_dict(self.vpc.create_instance(prototype).get_result())

    def interface(self, name: str = "np1") -> Any:
        """That of a new instance."""
        return self.create(name).primary_network_interface

    def bind(self, name: str, interface: Any) -> Any:
        """A new floating IP of an interface."""
        return self.vpc.create_floating_ip({"name": name, "target": {"id": interface.id}}).get_result()


@pytest.fixture
def caller() -> Iterator[Caller]:
    # IBM's clients look at the time of the machine: whether their token has ended.
    clock = ManualClock(time.time())
    with IbmVpcSimulator(IbmVpcSettings(by_turns=False), clock=clock) as simulator:
        yield Caller(simulator)
        _client().http_client.close()
        assert simulator.state()["bugs"] == []


def refused(call: Callable[..., Any], *arguments: Any, **named: Any) -> Refusal:
    """Status and IBM's code of a call that is refused."""
    with pytest.raises(ApiException) as caught:
        call(*arguments, **named)
    assert caught.value.http_response is not None
    content = caught.value.http_response.json()
    told = content["errors"][0]["code"] if "errors" in content else content.get("error_code", "")
    return caught.value.status_code, told


def with_group_name(image: dict[str, Any]) -> dict[str, Any]:
    """An image of a list, as IBM's client wants it.

    In the client (``ibm_vpc.vpc_v1.ResourceGroupReference``), which is made of the definition of the API, the name of
    a resource group is required. IBM's list of images has only its id, as Nodepool 11.0.0 says of it
    (``ibmvpc/__init__.py``).
    """
    assert set(image["resource_group"]) == {"href", "id"}
    return {**image, "resource_group": {**image["resource_group"], "name": "Default"}}


#: Lists -> the models of the list and of its entries.
LISTS: Final = {
    "vpcs": (models.VPCCollection, models.VPC),
    "subnets": (models.SubnetCollection, models.Subnet),
    "keys": (models.KeyCollection, models.Key),
    "images": (models.ImageCollection, models.Image),
    "instance_profiles": (models.InstanceProfileCollection, None),
    "operating_systems": (models.OperatingSystemCollection, None),
    "instances": (models.InstanceCollection, models.Instance),
    "volumes": (models.VolumeCollection, models.Volume),
    "floating_ips": (models.FloatingIPCollection, models.FloatingIP),
}


@pytest.mark.parametrize("kind", LISTS)
def test_no_property_is_invented(caller: Caller, kind: str) -> None:
    """``ibm-vpc``: the model has each property, at all depths, and those that must be there are; one of images is not,
    see `with_group_name`.
    """
    caller.bind("ip-1", caller.interface())
    whole, one = LISTS[kind]
    answer = getattr(caller.vpc, f"list_{kind}")(limit=100).get_result()
    if kind == "images":
        answer["images"] = list(map(with_group_name, answer["images"]))
    assert whole.from_dict(answer).total_count > 0
    for document in answer[kind] if one is not None else ():
        assert _paths(document) <= _paths(one.from_dict(document).to_dict())


def _paths(document: Any, at: str = "") -> set[str]:
    """Names of properties, at all depths."""
    if isinstance(document, list):
        return {path for entry in document for path in _paths(entry, at)}
    if not isinstance(document, dict):
        return {at}
    return {at} | {path for name, value in document.items() for path in _paths(value, f"{at}.{name}")}


#: States that the driver names -> the enumeration of IBM's client.
STATES: Final = (
    ((types.RUNNING, types.FAILED, types.DELETING, *types.STOPPED), models.Instance.StatusEnum),
    ((types.AVAILABLE, types.FAILED, types.DELETING), models.FloatingIP.StatusEnum),
    ((types.AVAILABLE, types.PENDING, types.FAILED, types.DELETING, *types.USABLE_IMAGES), models.Image.StatusEnum),
    ((types.PREEMPTED, "cannot_start_compute"), models.InstanceStatusReason.CodeEnum),
    (
        sorted(code for code in types.VpcApi.capacity if code.startswith("cannot_start")),
        models.InstanceStatusReason.CodeEnum,
    ),
    (("image_data_corrupted", "image_request_in_progress"), models.ImageStatusReason.CodeEnum),
)


@pytest.mark.parametrize(("names", "enumeration"), STATES)
def test_states_are_those_of_the_api(names: tuple[str, ...], enumeration: Any) -> None:
    """``ibm-vpc``: values of its enumerations."""
    assert set(names) <= {state.value for state in enumeration}


def test_each_reason_is_known() -> None:
    """``ibm-vpc``: a new one must be decided about. That of a preemption `IbmCreation` looks at itself."""
    reasons = yaml.safe_load((HERE / "reasons.yaml").read_text(encoding="utf-8"))
    assert {code for codes in reasons.values() for code in codes} == {
        reason.value for reason in models.InstanceStatusReason.CodeEnum
    }
    for kind, codes in reasons.items():
        assert {type(types.meaning("head", [CodedError(code, "")])) for code in codes} == {KINDS[kind]}


def _same_name(caller: Caller) -> None:
    caller.create("np1")
    caller.create("np1")


def _no_address(caller: Caller) -> None:
    caller.simulator.change(quotas={"floating_ips": 0})
    caller.vpc.create_floating_ip({"name": "ip-1", "zone": {"name": ZONE}})


def _no_memory(caller: Caller) -> None:
    caller.simulator.change(quotas={"memory": 1})
    caller.create()


#: Errors that IBM answered somebody: ``recorded_errors.yaml`` has the sources. Kind -> what it is for the driver.
RECORDED: Final = yaml.safe_load((HERE / "recorded_errors.yaml").read_text(encoding="utf-8"))
PROVOKE: Final = {"same name": _same_name, "no address": _no_address, "no memory": _no_memory}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_errors(caller: Caller, name: str) -> None:
    """The region answers with the same status, code, properties and words; the driver knows what it means."""
    recorded = RECORDED[name]
    (error,) = types.errors_in(recorded["body"])
    assert type(types.meaning("head", [error], recorded["status"])) is KINDS[recorded["kind"]]
    with pytest.raises(ApiException) as caught:
        PROVOKE[name](caller)
    response = caught.value.http_response
    assert isinstance(response, requests.Response)
    assert response.status_code == recorded["status"]
    assert _paths(response.json()) == _paths(recorded["body"])
    told = response.json()["errors"][0]
    assert told["code"] == error.code
    assert _words(told["message"]) == _words(error.message)


def _words(text: str) -> str:
    """Of a message, without what differs: numbers, and what is in brackets."""
    return re.sub(r"\d+|\([^)]*\)", "", text)


def test_what_the_api_cannot_do(caller: Caller) -> None:
    """``ibm-vpc``: other things take ``If-Match``, floating IPs do not. So launchers claim them by their names. A
    floating IP is bound only to what has none; what it is bound to itself does not count.

    https://cloud.ibm.com/docs/vpc?topic=vpc-rias-error-messages: codes are lower case and underscores.
    """
    assert "if_match" in inspect.signature(VpcV1.update_instance).parameters
    for change in (VpcV1.update_floating_ip, VpcV1.delete_floating_ip):
        assert "if_match" not in inspect.signature(change).parameters
    first, second = caller.interface("np1"), caller.interface("np2")
    made = caller.bind("ip-1", first)
    assert refused(caller.bind, "ip-2", first) == (409, "network_interface_in_use")
    moved = caller.vpc.update_floating_ip(made["id"], {"target": {"id": second.id}}).get_result()
    assert moved["target"]["id"] == second.id
    api = types.VpcApi
    for code in frozenset().union(
        *(api.quota, api.capacity, api.exists, api.throttled_codes, api.login, api.denied, api.busy)
    ):
        assert code == code.lower()
        assert code.replace("_", "").isalnum()
