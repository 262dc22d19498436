# SPDX-License-Identifier: Apache-2.0
"""Facts about IBM Cloud, each with its source: what the simulated region says, and what the driver makes of it.

Sources: models and signatures of IBM's client ``ibm-vpc``, which is made of the definition of the API; pages of
https://cloud.ibm.com/docs/vpc; answers that users of IBM Cloud published.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest
import requests
from ibm_cloud_sdk_core import ApiException
from ibm_vpc import VpcV1
from ibm_vpc import vpc_v1 as models

from nodepool.driver.framework.cloud_errors import CloudNoCapacity, CloudQuota, CloudRefused
from nodepool.driver.ibmvpc import errors, types
from nodepool.driver.ibmvpc.errors import CAPACITY, PREEMPTED, IbmError, errors_in, meaning
from simulators.ibmvpc import instances
from tests.unit.simulators.ibmvpc.conftest import ZONE, Caller, with_group_name

#: Documents -> the model of each. That of a floating IP is bound.
MODELS: Final = {
    "instances": models.Instance,
    "floating_ips": models.FloatingIP,
    "volumes": models.Volume,
    "images": models.Image,
    "vpcs": models.VPC,
    "subnets": models.Subnet,
    "keys": models.Key,
}


@pytest.mark.parametrize(("kind", "model"), MODELS.items(), ids=MODELS)
def test_no_property_is_invented(caller: Caller, kind: str, model: Any) -> None:
    """``ibm-vpc``: the model has each property, at all depths, and those that must be there are; one of images is not,
    see `with_group_name`.
    """
    interface = caller.create().primary_network_interface.id
    caller.vpc.create_floating_ip({"name": "ip-1", "target": {"id": interface}})
    documents = getattr(caller.vpc, f"list_{kind}")().get_result()[kind]
    assert documents
    for document in map(with_group_name, documents) if kind == "images" else documents:
        shown = model.from_dict(document).to_dict()
        assert _paths(document) <= _paths(shown)


def _paths(document: Any, at: str = "") -> set[str]:
    """Names of properties, at all depths."""
    if isinstance(document, list):
        return {path for entry in document for path in _paths(entry, at)}
    if not isinstance(document, dict):
        return {at}
    return {at} | {path for name, value in document.items() for path in _paths(value, f"{at}.{name}")}


#: States that the driver or the simulated region names -> the enumeration of IBM's client.
STATES: Final = (
    ((types.RUNNING, types.FAILED, types.DELETING, *types.STOPPED, *instances._RUNS), models.Instance.StatusEnum),
    ((types.AVAILABLE, types.FAILED, types.DELETING), models.FloatingIP.StatusEnum),
    ((types.AVAILABLE, types.PENDING, types.FAILED, types.DELETING, *types.USABLE_IMAGES), models.Image.StatusEnum),
    ((PREEMPTED, "cannot_start_compute"), models.InstanceStatusReason.CodeEnum),
    (sorted(code for code in CAPACITY if code.startswith("cannot_start")), models.InstanceStatusReason.CodeEnum),
    (("image_data_corrupted", "image_request_in_progress"), models.ImageStatusReason.CodeEnum),
)


@pytest.mark.parametrize(("names", "enumeration"), STATES)
def test_states_are_those_of_the_api(names: tuple[str, ...], enumeration: Any) -> None:
    """``ibm-vpc``: values of its enumerations."""
    assert set(names) <= {state.value for state in enumeration}


#: https://cloud.ibm.com/docs/vpc?topic=vpc-instance-status-messages: reasons -> what the driver does.
REASONS: Final = {
    "cannot_start": CloudRefused,
    "cannot_start_capacity": CloudNoCapacity,
    "cannot_start_compute": CloudNoCapacity,
    "cannot_start_ip_address": CloudNoCapacity,
    "cannot_start_network": CloudRefused,
    "cannot_start_placement_group": CloudNoCapacity,
    "cannot_start_reservation_capacity": CloudNoCapacity,
    "cannot_start_reservation_expired": CloudNoCapacity,
    "cannot_start_storage": CloudRefused,
    "encryption_key_deleted": CloudRefused,
    "stopped_by_host_failure": CloudRefused,
    "stopped_by_preemption": CloudRefused,
    "stopped_for_image_creation": CloudRefused,
}


def test_each_reason_is_known() -> None:
    """``ibm-vpc``: a new one must be decided about. That of a preemption `IbmCreation` looks at itself."""
    assert REASONS.keys() == {reason.value for reason in models.InstanceStatusReason.CodeEnum}
    for code, kind in REASONS.items():
        assert type(meaning("head", [IbmError(code, "")])) is kind


class Recorded(NamedTuple):
    """An error that IBM answered somebody.

    :param provoke: what makes the simulated region answer the same.
    :param kind: what it is for the driver.
    """

    source: str
    status: int
    body: dict[str, Any]
    kind: type[Exception]
    provoke: Callable[[Caller], Any]


def _same_name(caller: Caller) -> None:
    caller.create("np1")
    caller.create("np1")


def _quota(caller: Caller, name: str, limit: int) -> None:
    caller.simulator.change(quotas={name: limit})


def _no_address(caller: Caller) -> None:
    _quota(caller, "floating_ips", 0)
    caller.vpc.create_floating_ip({"name": "ip-1", "zone": {"name": ZONE}})


def _no_memory(caller: Caller) -> None:
    _quota(caller, "memory", 1)
    caller.create()


RECORDED: Final = (
    Recorded(
        "output of Terraform, https://cloud.ibm.com/docs/pattern-wordpress-power-vpc, and of Schematics",
        400,
        {
            "errors": [
                {
                    "code": "validation_unique_failed",
                    "message": "Provided Name (sample-lsf-vpc) is not unique",
                    "target": {"name": "name", "type": "field", "value": "sample-lsf-vpc"},
                }
            ],
            "trace": "8a5c42e3-425a-492c-b972-96f3de56a65d",
        },
        CloudRefused,
        _same_name,
    ),
    Recorded(
        "cloud-barista/cb-tumblebug, src/core/csp/ibm: 40 is the quota of a zone",
        400,
        {
            "errors": [
                {
                    "code": "over_quota",
                    "message": "Creating a new floating IP address will put the user over quota. "
                    "Allocated: 40, Requested: 1, Quota: 40",
                }
            ],
            "trace": "e29df63c-7eb2-8412-3750-fab554863858",
        },
        CloudQuota,
        _no_address,
    ),
    Recorded(
        "https://cloud.ibm.com/docs/openshift?topic=openshift-ts-worker-vpc-quota",
        400,
        {
            "errors": [
                {
                    "code": "over_quota",
                    "message": "A VSI with this profile (30720GB generic instance storage) will put user over quota. "
                    "Allocated: 1013760GB, Quota: 983040GB",
                }
            ],
            "trace": "e29df63c-7eb2-8412-3750-fab554863858",
        },
        CloudQuota,
        _no_memory,
    ),
)


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda one: one.body["errors"][0]["message"].split(" (")[0][:40])
def test_recorded_errors(caller: Caller, recorded: Recorded) -> None:
    """The region answers with the same status, code, properties and words; the driver knows what it means."""
    (error,) = errors_in(recorded.body)
    assert type(meaning("head", [error], recorded.status)) is recorded.kind
    with pytest.raises(ApiException) as caught:
        recorded.provoke(caller)
    response = caught.value.http_response
    assert isinstance(response, requests.Response)
    assert response.status_code == recorded.status
    assert _paths(response.json()) == _paths(recorded.body)
    told = response.json()["errors"][0]
    assert told["code"] == error.code
    assert _words(told["message"]) == _words(error.message)


def _words(text: str) -> str:
    """Of a message, without what differs: numbers, and what is in brackets."""
    return re.sub(r"\d+|\([^)]*\)", "", text)


def test_floating_ips_cannot_be_changed_on_a_condition() -> None:
    """``ibm-vpc``: other things take ``If-Match``, floating IPs do not. So launchers claim them by their names."""
    assert "if_match" in inspect.signature(VpcV1.update_instance).parameters
    for change in (VpcV1.update_floating_ip, VpcV1.delete_floating_ip):
        assert "if_match" not in inspect.signature(change).parameters


def test_a_floating_ip_is_bound_only_to_what_has_none(caller: Caller) -> None:
    """``ibm-vpc``, of create_floating_ip and update_floating_ip: an interface must not have one already. What it is
    bound to itself does not count.
    """
    first, second = (caller.create(name).primary_network_interface.id for name in ("np1", "np2"))
    made = caller.vpc.create_floating_ip({"name": "ip-1", "target": {"id": first}}).get_result()
    with pytest.raises(ApiException):
        caller.vpc.create_floating_ip({"name": "ip-2", "target": {"id": first}})
    moved = caller.vpc.update_floating_ip(made["id"], {"target": {"id": second}}).get_result()
    assert moved["target"]["id"] == second


def test_codes_are_written_as_those_of_ibm() -> None:
    """https://cloud.ibm.com/docs/vpc?topic=vpc-rias-error-messages: lower case and underscores."""
    sets = (errors.QUOTA, errors.CAPACITY, errors.EXISTS, errors.THROTTLED, errors.LOGIN, errors.DENIED, errors.BUSY)
    for code in frozenset().union(*sets):
        assert code == code.lower()
        assert code.replace("_", "").isalnum()
