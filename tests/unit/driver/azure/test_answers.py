# SPDX-License-Identifier: Apache-2.0
"""What Azure answers, and what the driver makes of it: lists, records, errors, operations, proofs.

Each row says where the answer is published. ``SDK``: models and code of azure-mgmt-compute, azure-mgmt-network,
azure-mgmt-core and azure-core, which are made of Azure's own specification. ``EXAMPLES``: ``specification`` of
Azure/azure-rest-api-specs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.driver.azure.client import (
    ADDRESSES,
    IMAGES,
    INTERFACES,
    VMS,
    Addresses,
    ArmApi,
    ArmResource,
    CloudBusy,
    addresses_of,
    by_id,
    errors_in,
    meaning,
)
from nodepool.driver.azure.facts import AzureFacts
from nodepool.driver.azure.images import follow
from nodepool.driver.azure.machines import BUSY_TIMES, AzureCreation, AzureDeletion, AzureMachines
from nodepool.driver.framework.cloud_errors import CloudAway, CloudNoCapacity, CloudRefused, CodedError
from nodepool.driver.framework.http.plain_http import HttpAnswer
from nodepool.driver.framework.http.rest_calls import RestAnswer
from nodepool.driver.framework.uploads import ImageTime
from nodepool.driver.statemachine import Order
from tests.support.manual_clock import ManualClock
from tests.support.provider_sections import has
from tests.support.tables import driver_table
from tests.unit.driver.azure.support import METADATA, Recording, arm, load, section
from tests.unit.driver.simulated_adapter import LOG


def error(code: str, message: str = "m", **more: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, **more}}


# -- lists and records --


@pytest.mark.parametrize(("entries", "more"), driver_table("azure", "pages"))
def test_pages(entries: list[str], more: dict[str, Any]) -> None:
    """CM-4: lists come in pages."""
    client, http = arm((200, {"value": [{"name": one} for one in entries], **more}), (200, {"value": [{"name": "z"}]}))
    link = more.get("nextLink")
    assert [record.id for record in client.vms()] == [*entries, *(["z"] if link else [])]
    assert http.asked[1:] == ([f"GET {link}"] if link else [])


@pytest.mark.parametrize(("kind", "data", "expected"), driver_table("azure", "records"))
def test_records(kind: str, data: Any, expected: dict[str, Any]) -> None:
    """AZ-7: null and absent are the same; names, ids and the names of tags ignore case."""
    # SDK azure-core, ContentDecodePolicy: texts may begin with a byte order mark
    client, _ = arm((200, b"\xef\xbb\xbf" + json.dumps(data).encode()))
    kinds = {"interface": INTERFACES, "address": ADDRESSES, "image": IMAGES}
    has(client.vm("x") if kind == "vm" else client.one_of(kinds[kind], "x"), **expected)


# SDK ResourceSku. learn.microsoft.com/azure/azure-resource-manager/troubleshooting/error-sku-not-available has the
# restrictions: a zone that is closed for the subscription is in locationInfo all the same.
def test_sizes_and_quota() -> None:
    """AZ-9: numbers are texts in the one, and numbers in the other."""
    client, _ = arm((200, {"value": driver_table("azure", "sizes")}))
    assert [list(vars(size).values()) for size in client.sizes().values()] == [
        ["Standard_D4s_v5", "standardDSv5Family", 4, 3584, ("1", "3"), ""],
        ["Y", "", 0, 0, (), "NotAvailableForSubscription"],
        ["X", "", 0, 0, (), ""],
    ]
    # SDK Usage: int64; what is 2^63 - 1 is no limit
    usage = {"name": {"value": "cores", "localizedValue": None}, "limit": 9223372036854775807, "currentValue": 4}
    client, http = arm((200, {"value": [usage]}), (200, {"value": []}))
    assert [vars(one) for one in client.usages()] == [{"name": "cores", "limit": float(2**63), "used": 4.0}]
    # The location of the configuration is "North Europe".
    assert "/locations/northeurope/usages" in http.asked[0]


@pytest.mark.parametrize(("configurations", "public", "found"), driver_table("azure", "addresses"))
def test_addresses(configurations: list[Any], public: dict[str, str | None], found: tuple[Any, ...] | None) -> None:
    """AZ-7: each configuration has a private address, and each public address is there."""
    entries = [
        {"privateIPAddressVersion": version, "privateIPAddress": private, "publicIPAddress": {"id": public_id}}
        for version, private, public_id in configurations
    ]
    properties = {"ipConfigurations": [{"properties": entry} for entry in entries]}
    known = by_id(
        ArmResource({"id": f"/A/{name}", "properties": {"ipAddress": address}}) for name, address in public.items()
    )
    got = addresses_of(ArmResource({"id": "/A/nic", "name": "nic", "properties": properties}), known)
    assert got == (None if found is None else Addresses(*found))


def test_why_a_vm_failed() -> None:
    """AZ-7: the operation is forgotten; learn.microsoft.com/azure/virtual-machines/states-billing has the states."""
    failed = {"code": "ProvisioningState/failed/AllocationFailed", "level": "Error", "message": None, "time": None}
    states = {"statuses": [{"code": "PowerState/running"}, failed, {"code": "ProvisioningState/failed"}]}
    client, http = arm((404, error("NotFound")), (200, states))
    assert isinstance(
        client.vm_failure("np1", "https://management.azure.com:443/subscriptions/s/o", "here"), CloudNoCapacity
    )
    assert len(http.asked) == 2
    client, _ = arm((200, {}))
    assert client.vm_failure("np1", None, "here") is None


# -- errors --


@pytest.mark.parametrize(("code", "message", "status", "kind"), driver_table("azure", "kinds"))
def test_kinds(code: str, message: str, status: int, kind: type[Exception]) -> None:
    """AZ-10 (not repeated), CM-5, CM-6: the words of Azure, and what has no mapping is counted as unknown."""
    found = meaning("here", [CodedError(code, message)], status)
    assert type(found) is kind
    assert message in str(found)
    if isinstance(found, CloudAway):
        assert found.maybe_done is (status in (500, 503))
    assert code != "SomethingNew" or getattr(found, "statsd_key", None) == "error.unknown"


def test_details_say_more() -> None:
    """AZ-10: the code that says something may be in the details, or in a message that is JSON."""
    inner = json.dumps(error("ZonalAllocationFailed", "none"))
    errors = errors_in(error("DeploymentFailed", "One failed", details=[{"code": "Conflict", "message": inner}]))
    text = "here: DeploymentFailed: One failed / Conflict / ZonalAllocationFailed: none"
    assert str(meaning("here", errors, 409)) == text
    endless: dict[str, Any] = {"code": "A", "message": "m"}
    endless["details"] = [endless]
    assert len(errors_in(endless)) == 5


@pytest.mark.parametrize(("status", "data", "kind"), driver_table("azure", "answers"))
def test_answers(status: int, data: Any, kind: type[Exception]) -> None:
    """CM-6, CM-7: what the next step is, and what proves that something is absent."""
    client, http = arm((status, data))
    with pytest.raises(kind) as caught:
        client.vms() if isinstance(data, dict) and "nextLink" in data else client.vm("np1")
    assert type(caught.value) is kind
    assert not any("elsewhere" in url for url in http.asked), "no other host sees the token"


@pytest.mark.parametrize(
    ("status", "code", "message", "detail", "kind", "again"), driver_table("azure", "refused_midway")
)
def test_refused_midway(status: int, code: str, message: str, detail: str, kind: type[Exception], again: bool) -> None:
    """AZ-11, CM-6: while something else is under way a deletion is repeated; a creation only if that has an end."""
    client, http = arm((status, error(code, message, details=[{"code": detail, "message": "m"}] if detail else [])))
    with pytest.raises(kind) as caught:
        client.delete(VMS, "np1")
    assert (type(caught.value), len(http.asked)) == (kind, 1)
    cloud: Any = SimpleNamespace(provider="north", record_id=str)
    assert isinstance(caught.value, CloudRefused)
    assert AzureDeletion(cloud, "np1", LOG).busy(caught.value) is again
    label: Any = SimpleNamespace(name="small", tags={}, dynamic_tags={})
    creation = AzureCreation(cloud, Order("np1", label, None, METADATA, None, None, LOG))
    *pauses, last = [creation.put_off(caught.value) for _ in range(BUSY_TIMES + 1)]
    assert last is None
    assert [pause is not None for pause in pauses] == [kind is CloudBusy] * BUSY_TIMES
    # An interface is reserved for so long.
    assert kind is not CloudBusy or sum(pause or 0.0 for pause in pauses) > 120.0


@pytest.mark.parametrize(("headers", "seconds"), driver_table("azure", "pause_before_throttling"))
def test_pause_before_throttling(headers: dict[str, str], seconds: float | None) -> None:
    """CM-5: the class slows down before Azure refuses calls."""
    assert ArmApi().seconds_left_alone("write", HttpAnswer(200, headers, b"")) == seconds


# -- operations --


@pytest.mark.parametrize(("headers", "answers", "seconds", "output", "words"), driver_table("azure", "operation"))
def test_operation(
    headers: Mapping[str, str],
    answers: list[Recording],
    seconds: float | None,
    output: Any,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """AZ-12: as long as it runs it is looked at again, and what waits for it hears why it failed.

    ``seconds`` pass between two looks; None: it is not wanted any more.
    """
    # It waits for real; a function of the module.
    monkeypatch.setitem(ImageTime.looks.__globals__, "wait_wanted", lambda *_: True)
    client, http = arm(*answers)
    clock = ManualClock().rules()

    def wanted() -> None:
        if seconds is None:
            raise RuntimeError("not wanted")
        clock.pass_seconds(seconds)

    if not words:
        assert follow(client, RestAnswer(202, "at once", headers), "x", wanted) == output
        assert len(http.asked) == len(answers)
        return
    with pytest.raises(output, match=words):
        follow(client, RestAnswer(202, None, headers), "x", wanted)


# -- is a VM absent? --


@pytest.mark.parametrize(("names", "answer", "absent", "kind", "asked"), driver_table("azure", "proof_of_absence"))
def test_proof_of_absence(
    names: list[str], answer: Recording, absent: list[str] | None, kind: type[Exception], asked: str
) -> None:
    """AZ-11, CM-7: lists are late, so two services of Azure must say so."""
    client, http = arm(answer)
    config = load(section())
    machines = AzureMachines(config, client, AzureFacts(config, client))
    if absent is None:
        with pytest.raises(kind):
            machines.prove_absence(lambda: names)
    else:
        found = machines.prove_absence(lambda: names)
        assert (list(found), {type(one) for one in found.values()} <= {kind}) == (absent, True)
    assert [f"/{asked}?" in f"{url}?" for url in http.asked] == [True]
