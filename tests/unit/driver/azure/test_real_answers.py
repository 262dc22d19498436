# SPDX-License-Identifier: Apache-2.0
"""Answers that Azure gives, each with the place where it is published, read by the calls of the driver.

``SDK``: models and code of azure-mgmt-compute, azure-mgmt-network, azure-mgmt-core and azure-core, which are made of
Azure's own specification. ``EXAMPLES``: ``specification`` of Azure/azure-rest-api-specs.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.driver.azure import images
from nodepool.driver.azure.client import VMS, Arm
from nodepool.driver.azure.errors import CloudBusy
from nodepool.driver.azure.images import AzureImageCalls, follow
from nodepool.driver.azure.machines import BUSY_TIMES, AzureCreation, AzureDeletion
from nodepool.driver.azure.types import Usage, VmSize
from nodepool.driver.framework.cloud_errors import (
    CloudAway,
    CloudNoCapacity,
    CloudNotFound,
    CloudQuota,
    CloudRefused,
    CloudSetup,
    NotFoundByProxy,
)
from nodepool.driver.framework.http import rest_calls
from nodepool.driver.framework.http.plain_http import HttpAnswer, PlainHttp
from nodepool.driver.framework.http.rest_calls import RestAnswer
from nodepool.plan.retries import Backoff
from tests.support.manual_clock import ManualClock
from tests.unit.driver.azure.support import METADATA, load, section

HERE = "https://management.azure.com"
IDS = "/subscriptions/s/resourceGroups/g/providers"
JSON = {"Content-Type": "application/json; charset=utf-8"}
LOG = logging.LoggerAdapter(logging.getLogger("test"), {})
PAGE = {"Content-Type": "text/html"}
OPERATION = f"{HERE}:443/subscriptions/s/providers/Microsoft.Compute/locations/north/operations/o?api-version=1"
RESULT = f"{OPERATION}&monitor=true"


class Recorded(PlainHttp):
    """Gives answers in turn, the last one again and again.

    :param answers: status, headers, and a value that becomes JSON, or the content itself.
    """

    def __init__(self, *answers: tuple[int, Mapping[str, str], Any]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def send(self, method: str, url: str, *_: Any) -> HttpAnswer:
        self.asked.append(f"{method} {url}")
        status, headers, data = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        content = data if isinstance(data, bytes) else json.dumps(data).encode()
        return HttpAnswer(status, headers, content)

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_calls, "READ_AGAIN", Backoff(0.0, 0.0))
    monkeypatch.setattr(images, "POLL_SECONDS", 0.0)


def arm(*answers: tuple[int, Mapping[str, str], Any]) -> tuple[Arm, Recorded]:
    account = SimpleNamespace(arm_url=HERE, subscription_id="s")
    login: Any = SimpleNamespace(account=account, headers=dict, refused=lambda _headers: None)
    http = Recorded(*answers)
    return Arm(load(section(resource_group="g", location="North Europe")), http, login), http


def vm(name: str) -> dict[str, Any]:
    return {"name": name, "location": "northeurope", "properties": {"provisioningState": "Succeeded", "vmId": name}}


NEXT = f"{IDS}/Microsoft.Compute/virtualMachines?api-version=2022-11-01&$skiptoken=83afce64!/Subscriptions/S/VMs/X"
#: First page of VMs, before one with the VM ``z``.
PAGES: dict[str, dict[str, Any]] = {
    # github.com/Azure/azure-sdk-for-java/issues/36506, github.com/Azure/azure-sdk-for-go/issues/21296
    "port": {"value": [vm("a")], "nextLink": f"{HERE}:443{NEXT}"},
    # RFC 3986, 6.2.2.1; the ids in the same links are in another case
    "case": {"value": [vm("a")], "nextLink": f"https://Management.Azure.com{NEXT}"},
    # github.com/projectkudu/AzureResourceExplorer/pull/255: pages are filtered late, and may be empty
    "empty": {"value": [], "nextLink": f"{HERE}{NEXT}"},
}


@pytest.mark.parametrize("page", PAGES)
def test_next_page(page: str) -> None:
    client, http = arm((200, JSON, PAGES[page]), (200, JSON, {"value": [vm("z")]}))
    assert [record.id for record in client.vms()] == [*("a" for _ in PAGES[page]["value"]), "z"]
    assert http.asked[1] == f"GET {PAGES[page]['nextLink']}"


@pytest.mark.parametrize(
    "more",
    [
        {},
        # github.com/Azure/azure-resource-manager-rpc, Get Resource: omitted or null
        {"nextLink": None},
        # github.com/Azure/azure-powershell/issues/19166: some services do
        {"nextLink": ""},
    ],
)
def test_last_page(more: dict[str, Any]) -> None:
    client, _ = arm((200, JSON, {"value": [vm("a")], **more}))
    assert [record.id for record in client.vms()] == ["a"]


READ: dict[str, tuple[Callable[[Arm], Any], Any, Any]] = {
    # EXAMPLES virtualMachineExamples/VirtualMachine_Get.json of 2024-07-01: no zones, no properties of the interface
    "VM": (
        lambda client: client.vm("myVM"),
        {
            "name": "myVM",
            "location": "West US",
            "tags": {"myTag1": "tagValue1"},
            "properties": {
                "vmId": "0f47b100-583c-48e3-a4c0-aefc2c9bbcc1",
                "hardwareProfile": {"vmSize": "Standard_DS3_v2"},
                "networkProfile": {"networkInterfaces": [{"id": f"{IDS}/Microsoft.Network/networkInterfaces/NIC"}]},
                "provisioningState": "Succeeded",
            },
        },
        {"id": "myvm", "status": "Succeeded", "zone": "", "spot": False, "metadata": {"myTag1": "tagValue1"}},
    ),
    # EXAMPLES virtualMachineExamples/VirtualMachine_List_MinimumSet_Gen.json of 2024-07-01
    "id alone": (
        lambda client: client.vm("x"),
        {"location": "eastus", "id": f"{IDS}/Microsoft.Compute/virtualMachines/VM1"},
        {"id": "vm1", "status": "", "interface_id": ""},
    ),
    # SDK: all of these are optional; azure-core compares states without case
    "nulls": (
        lambda client: client.vm("x"),
        {
            "name": "x",
            "zones": None,
            "tags": None,
            "properties": {
                "provisioningState": "succeeded",
                "priority": None,
                "hardwareProfile": None,
                "networkProfile": {"networkInterfaces": [{"id": None, "properties": None}]},
            },
        },
        {"status": "Succeeded", "metadata": {}, "size": "", "zone": "", "interface_id": "", "spot": False},
    ),
    # SDK VirtualMachinePriorityTypes
    "spot": (lambda client: client.vm("x"), {"name": "x", "properties": {"priority": "SpotPlus"}}, {"spot": True}),
    # SDK NetworkInterfacePropertiesFormat, PublicIPAddressPropertiesFormat
    "interface": (
        lambda client: client.interface("x"),
        {
            "id": f"{IDS}/MICROSOFT.NETWORK/networkInterfaces/X-NIC",
            "name": "X-NIC",
            "tags": None,
            "properties": {
                "virtualMachine": None,
                "ipConfigurations": [{"properties": {"privateIPAddress": None, "publicIPAddress": None}}],
            },
        },
        {"id": f"{IDS}/microsoft.network/networkInterfaces/x-nic".lower(), "used": False, "public_ids": []},
    ),
    "address": (
        lambda client: client.address("x"),
        {"id": "/A/X", "name": "X", "properties": {"ipAddress": None, "ipConfiguration": None}},
        {"id": "/a/x", "used": False, "address": None},
    ),
    # SDK ImageProperties
    "image": (
        lambda client: client.image("x"),
        {"id": "/A/X", "name": "X", "location": "North Europe", "tags": None, "properties": None},
        {"id": "/A/X", "status": "", "metadata": {}},
    ),
}


@pytest.mark.parametrize("what", READ)
def test_record(what: str) -> None:
    """Null and absent are the same, and ids ignore case."""
    ask, data, expected = READ[what]
    # SDK azure-core, ContentDecodePolicy: texts may begin with a byte order mark
    client, _ = arm((200, JSON, b"\xef\xbb\xbf" + json.dumps(data).encode()))
    found = ask(client)
    assert {name: getattr(found, name) for name in expected} == expected


def test_sizes_and_quota() -> None:
    """Numbers are texts in the one, and numbers in the other."""
    # SDK ResourceSku. learn.microsoft.com/azure/azure-resource-manager/troubleshooting/error-sku-not-available has the
    # restrictions: a zone that is closed for the subscription is in locationInfo all the same.
    size = {
        "resourceType": "virtualMachines",
        "name": "Standard_D4s_v5",
        "family": "standardDSv5Family",
        "locationInfo": [{"location": "NorthEurope", "zones": ["1", "2", "3"]}],
        "capabilities": [{"name": "vCPUs", "value": "4"}, {"name": "MemoryGB", "value": "3.5"}],
        "restrictions": [
            {
                "type": "Zone",
                "values": ["northeurope"],
                "restrictionInfo": {"locations": ["northeurope"], "zones": ["2"]},
                "reasonCode": "NotAvailableForSubscription",
            }
        ],
    }
    nothing = {"resourceType": "virtualMachines", "name": "X", "capabilities": None, "locationInfo": None}
    client, http = arm((200, JSON, {"value": [size, nothing, {"resourceType": "disks", "name": "P10"}]}))
    assert client.sizes() == {
        "standard_d4s_v5": VmSize("Standard_D4s_v5", "standardDSv5Family", 4, 3584, ("1", "3"), ""),
        "x": VmSize("X", "", 0, 0, (), ""),
    }
    # SDK Usage: int64; what is 2^63 - 1 is no limit
    usage = {"name": {"value": "cores", "localizedValue": None}, "limit": 9223372036854775807, "currentValue": 4}
    client, http = arm((200, JSON, {"value": [usage]}), (200, JSON, {"value": []}))
    assert client.usages() == [Usage("cores", float(2**63), 4.0)]
    # The location of the configuration is "North Europe".
    assert "/locations/northeurope/usages" in http.asked[0]


QUOTA = "Cannot create more than 10 IPv4 Standard SKU public IP addresses for this subscription in this region."
ERRORS: dict[str, tuple[int, Mapping[str, str], Any, type[Exception]]] = {
    # learn.microsoft.com/azure/networking/troubleshoot-failed-state; SDK CloudError
    "missing": (404, JSON, {"error": {"code": "ResourceNotFound", "message": "not found"}}, CloudNotFound),
    # SDK azure-core: a text that is no JSON has a status alone. Only Azure can say that something is not there.
    "page of a proxy": (404, PAGE, b"<html><h1>404 Not Found</h1></html>", NotFoundByProxy),
    "no content": (404, {}, b"", NotFoundByProxy),
    # learn.microsoft.com/azure/azure-resource-manager/troubleshooting/common-deployment-errors
    "another subscription": (404, JSON, {"error": {"code": "SubscriptionNotFound", "message": "s"}}, CloudSetup),
    "another service": (404, JSON, {"error": {"code": "InvalidResourceType", "message": "s"}}, CloudSetup),
    # In a deployment, as a message that is JSON: a public log of the tests of cloud-provider-azure
    "limit of a network": (
        400,
        JSON,
        {"error": {"code": "IPv4StandardSkuPublicIpCountLimitReached", "message": QUOTA, "details": []}},
        CloudQuota,
    ),
    # Azure/go-autorest, autorest/azure/azure.go, ServiceError.UnmarshalJSON: details that are one error, or null, and
    # inner errors that are a list
    "details are one error": (
        409,
        JSON,
        {"error": {"code": "Conflict", "message": "m", "details": {"code": "ZonalAllocationFailed", "message": "m"}}},
        CloudNoCapacity,
    ),
    "inner errors are a list": (
        409,
        JSON,
        {"error": {"code": "Conflict", "details": None, "innererror": [{"code": "SkuNotAvailable"}]}},
        CloudNoCapacity,
    ),
    "list of errors": (409, JSON, [{"code": "AllocationFailed", "message": "m"}], CloudNoCapacity),
    "HTML": (503, PAGE, b"<html><body><h1>503 Service Unavailable</h1></body></html>", CloudAway),
    # A portal of a network answers with status 200.
    "portal": (200, PAGE, b"<html>Sign in</html>", CloudAway),
    "another value": (200, JSON, [None, 7], CloudAway),
}


@pytest.mark.parametrize("what", ERRORS)
def test_error(what: str) -> None:
    status, headers, data, kind = ERRORS[what]
    client, _ = arm((status, headers, data))
    with pytest.raises(kind) as caught:
        client.vm("np1")
    assert type(caught.value) is kind


MARKED = (
    "Operation 'startTenantUpdate' is not allowed on VM 'x' since the VM is marked for deletion. You can only retry "
    "the Delete operation (or wait for an ongoing one to complete)."
)
IMAGE_USED = (
    "Operation 'Image Delete' is not allowed since the Virtual Machines 'x' are being provisioned using the Image 'y'."
)
ALLOCATED = "Public IP address x can not be deleted since it is still allocated to resource y."
RESERVED = "Nic(s) in request is reserved for another Virtual Machine for 180 seconds. Please provide another nic(s)."
LOCKED = "The scope 'x' cannot perform delete operation because following scope(s) are locked: 'y'."
#: What is refused while something else is under way: status, error, its kind; is a deletion repeated, and a creation?
MIDWAY: dict[str, tuple[int, dict[str, Any], type[Exception], bool, bool]] = {
    # github.com/hashicorp/terraform-provider-azurerm, and microsoft/AzureTRE/issues/3193
    "another operation": (
        409,
        {
            "code": "AnotherOperationInProgress",
            "message": "Another operation on this or dependent resource",
            "details": [],
        },
        CloudBusy,
        True,
        True,
    ),
    # github.com/cloudfoundry/bosh-azure-cpi-release/issues/173
    "concurrent": (
        409,
        {"code": "Conflict", "message": "The request failed due to conflict with a concurrent request. "},
        CloudBusy,
        True,
        True,
    ),
    # github.com/Azure/azure-sdk-for-python/issues/2702
    "marked for deletion": (409, {"code": "OperationNotAllowed", "message": MARKED}, CloudBusy, True, True),
    # github.com/cloudfoundry/bosh-azure-cpi-release/issues/179, hashicorp/terraform/issues/7986: the status of too many
    # calls, about one resource
    "retryable": (
        429,
        {
            "code": "RetryableError",
            "message": "A retryable error occured.",
            "details": [
                {"code": "RetryableErrorDueToAnotherOperation", "message": "The call can be retried in 14 seconds."}
            ],
        },
        CloudBusy,
        True,
        True,
    ),
    "not provisioned": (
        429,
        {
            "code": "RetryableError",
            "message": "A retryable error occured.",
            "details": [{"code": "ReferencedResourceNotProvisioned", "message": "is not in Succeeded state"}],
        },
        CloudBusy,
        True,
        True,
    ),
    # github.com/Azure/azure-sdk-for-python/issues/5167
    "preempted": (
        409,
        {"code": "OperationPreempted", "message": "Operation execution has been preempted by a more recent operation."},
        CloudBusy,
        True,
        True,
    ),
    # github.com/cloudfoundry/bosh-azure-cpi-release/issues/366
    "reserved": (400, {"code": "NicReservedForAnotherVm", "message": RESERVED, "details": []}, CloudBusy, True, True),
    # github.com/coreos/fedora-coreos-tracker/issues/1444
    "image in use": (409, {"code": "OperationNotAllowed", "message": IMAGE_USED}, CloudBusy, True, True),
    # any other conflict: a deletion ends it or waits for its end; what is created as before is refused as before
    "other conflict": (409, {"code": "Conflict", "message": "m"}, CloudRefused, True, False),
    "no code": (409, {"code": "", "message": "m"}, CloudRefused, True, False),
    # github.com/ernestio/ernest/issues/514, hashicorp/terraform-provider-azurerm/issues/2566: of a left over address,
    # that is deleted with the next search for leaks
    "allocated": (
        400,
        {"code": "PublicIPAddressCannotBeDeleted", "message": ALLOCATED, "details": []},
        CloudRefused,
        False,
        False,
    ),
    # github.com/hashicorp/terraform-provider-azurerm/issues/17478: no wait helps
    "lock": (409, {"code": "ScopeLocked", "message": LOCKED}, CloudSetup, False, False),
    # github.com/Azure/azure-cli/issues/28679
    "group goes": (
        409,
        {"code": "ResourceGroupBeingDeleted", "message": "The resource group 'g' is in deprovisioning state"},
        CloudSetup,
        False,
        False,
    ),
}


@pytest.mark.parametrize("what", MIDWAY)
def test_refused_midway(what: str) -> None:
    status, error, kind, again, anew = MIDWAY[what]
    client, http = arm((status, JSON, {"error": error}))
    with pytest.raises(kind) as caught:
        client.delete(VMS, "np1")
    assert type(caught.value) is kind
    assert len(http.asked) == 1
    cloud: Any = SimpleNamespace(provider="north")
    assert isinstance(caught.value, CloudRefused)
    assert AzureDeletion(cloud, "np1", LOG).busy(caught.value) is again
    label: Any = SimpleNamespace(name="small", tags={}, dynamic_tags={})
    creation = AzureCreation(cloud, "np1", label, None, METADATA, None, None, LOG)
    pauses = [creation.put_off(caught.value) for _ in range(BUSY_TIMES + 1)]
    assert pauses[-1] is None
    assert [pause is not None for pause in pauses[:-1]] == [anew] * BUSY_TIMES
    # An interface is reserved for so long.
    assert not anew or sum(pause or 0.0 for pause in pauses) > 120.0


ASYNC = {"Azure-AsyncOperation": OPERATION, "Location": RESULT}
RUNS = (200, JSON, {"status": "InProgress"})
ENDS: dict[str, tuple[tuple[int, Mapping[str, str], Any], list[tuple[int, Mapping[str, str], Any]], Any]] = {
    # azure-resource-manager-rpc, Asynchronous Operations: any other value means that it runs; SDK azure-core
    "state of a service": ((202, ASYNC, b""), [(200, JSON, {"status": "Validating"}), RUNS], {"x": 1}),
    "in another case": ((202, ASYNC, b""), [(200, JSON, {"status": "inProgress", "error": None})], {"x": 1}),
    # github.com/hashicorp/go-azure-sdk/issues/740
    "not known yet": (
        (202, ASYNC, b""),
        [(404, JSON, {"error": {"code": "ResourceNotFound", "message": "m"}}), RUNS],
        {"x": 1},
    ),
    # SDK LocationPolling: 202 without a body until it ends
    "by location": ((202, {"Location": RESULT}, b""), [(202, {"Location": RESULT}, b""), (204, {}, b"")], None),
}


@pytest.mark.parametrize("what", ENDS)
def test_operation(what: str) -> None:
    (status, headers, _), answers, output = ENDS[what]
    if output is not None:
        answers = [*answers, (200, JSON, {"status": "Succeeded", "properties": {"output": output}})]
    client, http = arm(*answers)
    assert follow(client, RestAnswer(status, None, headers), "x", ManualClock()) == output
    assert len(http.asked) == len(answers)


@pytest.mark.parametrize("status", ["Failed", "Canceled", "canceled"])
def test_operation_fails(status: str) -> None:
    """SDK azure-core has the states; the error may be null."""
    client, _ = arm((200, JSON, {"status": status, "error": None, "properties": None}))
    with pytest.raises(CloudRefused, match=f"ended as '{status.lower()}'"):
        follow(client, RestAnswer(202, None, ASYNC), "x", ManualClock())


def test_operation_stays_unknown() -> None:
    client, _ = arm((404, JSON, {"error": {"code": "ResourceNotFound", "message": "m"}}))
    clock = ManualClock()
    with pytest.raises(CloudNotFound):
        follow(client, RestAnswer(202, None, ASYNC), "x", clock, wanted=lambda: clock.pass_seconds(20.0))


def test_access_by_location() -> None:
    """SDK azure-core reads what a POST has made at ``Location``; the operation need not have it."""
    client, http = arm(
        (202, ASYNC, b""), (200, JSON, {"status": "Succeeded", "name": "o"}), (200, JSON, {"accessSAS": "https://x/y"})
    )
    calls = AzureImageCalls(client, http, "northeurope", ManualClock())
    assert calls.begin_access("d", lambda: None) == "https://x/y"
    assert http.asked[1:] == [f"GET {OPERATION}", f"GET {RESULT}"]


def test_image_is_not_there_at_once() -> None:
    """github.com/Azure/azure-rest-api-specs/issues/10148: GET gives 404 although the operation has succeeded.

    SDK BodyContentPolling: without an operation the state of the resource counts.
    """
    image = {"id": "/i", "name": "i", "properties": {"provisioningState": "Creating"}}
    done = {**image, "properties": {"provisioningState": "Succeeded"}}
    missing = (404, JSON, {"error": {"code": "NotFound", "message": "m"}})
    client, http = arm((201, JSON, image), missing, (200, JSON, image), (200, JSON, done))
    AzureImageCalls(client, http, "northeurope", ManualClock()).create_image("i", "d", {}, lambda: None)
    assert len(http.asked) == 4


def test_why_a_vm_failed() -> None:
    """The operation is forgotten; learn.microsoft.com/azure/virtual-machines/states-billing has the states."""
    states = {
        "statuses": [
            {
                "code": "ProvisioningState/failed/AllocationFailed",
                "level": "Error",
                "displayStatus": "Provisioning failed",
                "message": None,
                "time": None,
            }
        ]
    }
    client, http = arm((404, JSON, {"error": {"code": "NotFound", "message": "m"}}), (200, JSON, states))
    assert isinstance(client.vm_failure("np1", OPERATION, "here"), CloudNoCapacity)
    assert len(http.asked) == 2
