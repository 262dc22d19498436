# SPDX-License-Identifier: Apache-2.0
"""The simulated project, held to Google's own description of its APIs (the discovery documents)."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import pytest

from simulators.gce import GceSimulator, ZoneCapacity, catalog
from simulators.gce.compute_api import PREFIX
from tests.unit.simulators.gce.conftest import BOOT, DELETE, ZONE, Caller

Description = dict[str, Any]


def description(name: str) -> Description:
    documents = resources.files("googleapiclient.discovery_cache") / "documents"
    found: Description = json.loads((documents / f"{name}.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def compute() -> Description:
    return description("compute.v1")


def method_of(compute: Description, name: str) -> Description:
    collection, _, method = name.partition(".")
    found: Description = compute["resources"][collection]["methods"][method]
    return found


def test_methods(compute: Description) -> None:
    """Each has the name, the HTTP method and the path that Google says."""
    assert compute["rootUrl"] + compute["servicePath"] == f"https://compute.googleapis.com{PREFIX}"
    simulator = GceSimulator()
    table = simulator.application.compute.table
    assert len(table) > 40
    for name, (method, template) in table.items():
        described = method_of(compute, name)
        parts = ["{}" if part.startswith("{") else part for part in described["path"].split("/")]
        assert (name, method, template) == (name, described["httpMethod"], "/".join(parts))


def test_metrics(compute: Description) -> None:
    """Quotas have names that there are."""
    known = compute["schemas"]["Quota"]["properties"]["metric"]["enum"]
    assert {*catalog.REGION_QUOTAS, *catalog.PROJECT_QUOTAS} <= set(known)


def faults(compute: Description, schema: Description, content: Any, where: str) -> list[str]:
    """What of an answer is not as described: fields that there are not, and values of another kind."""
    if "$ref" in schema:
        return faults(compute, compute["schemas"][schema["$ref"]], content, where)
    kind = schema.get("type")
    kinds: dict[Any, Any] = {"string": str, "integer": int, "boolean": bool, "number": (int, float), "array": list}
    if not isinstance(content, kinds.get(kind, dict)):
        return [f"{where} is {content!r}, not {kind}"]
    if kind == "string" and schema.get("enum") and content not in schema["enum"]:
        return [f"{where} is {content!r}"]
    if kind == "array":
        return [fault for entry in content for fault in faults(compute, schema["items"], entry, f"{where}[]")]
    if kind != "object":
        return []
    properties, more = schema.get("properties", {}), schema.get("additionalProperties")
    found = []
    for name, value in content.items():
        inner = properties.get(name, more)
        found += [f"{where}.{name}"] if inner is None else faults(compute, inner, value, f"{where}.{name}")
    return found


def test_answers(compute: Description, caller: Caller) -> None:
    """Every field of every answer is one that Google has, of its kind."""
    caller.insert("np1", labels={"a": "b"}, serviceAccounts=[{"email": "default", "scopes": []}])
    caller.insert("np2", scheduling={"provisioningModel": "SPOT"}, tags={"items": ["ssh"]})
    caller.clock.pass_seconds(BOOT)
    caller.simulator.change(capacity=[ZoneCapacity(room=2)])
    caller.insert("np3")
    caller.simulator.change(quotas={"INSTANCES": 3})
    caller.insert("np4")
    caller.clock.pass_seconds(BOOT + DELETE)
    with caller.simulator.cloud() as cloud:
        cloud.add_address("a1")
        cloud.images.add("built", "ours", {"a": "b"})
        (instance,) = [one for one in cloud.instances.all() if one.spec.spot]
        cloud.instances.preempt(instance)
    operation = caller.get(f"zones/{ZONE}/operations")["items"][0]["name"]
    zone, region = f"zones/{ZONE}", "regions/us-central1"
    paths = {
        "projects.get": "",
        "zones.get": zone,
        "zones.list": "zones",
        "regions.get": region,
        "regions.list": "regions",
        "machineTypes.get": f"{zone}/machineTypes/e2-micro",
        "machineTypes.list": f"{zone}/machineTypes",
        "networks.get": "global/networks/default",
        "subnetworks.get": f"{region}/subnetworks/default",
        "instances.get": f"{zone}/instances/np1",
        "instances.list": f"{zone}/instances",
        "instances.aggregatedList": "aggregated/instances",
        "instances.getSerialPortOutput": f"{zone}/instances/np1/serialPort",
        "disks.get": f"{zone}/disks/np1",
        "disks.list": f"{zone}/disks",
        "disks.aggregatedList": "aggregated/disks",
        "addresses.get": f"{region}/addresses/a1",
        "addresses.list": f"{region}/addresses",
        "addresses.aggregatedList": "aggregated/addresses",
        "images.get": "global/images/built",
        "images.list": "global/images",
        "images.getFromFamily": "global/images/family/ours",
        "zoneOperations.get": f"{zone}/operations/{operation}",
        "zoneOperations.list": f"{zone}/operations",
        "regionOperations.list": f"{region}/operations",
        "globalOperations.list": "global/operations",
        "globalOperations.aggregatedList": "aggregated/operations",
    }
    asked = {
        name for name, (method, _template) in caller.simulator.application.compute.table.items() if method == "GET"
    }
    assert asked - set(paths) == {"globalOperations.get", "regionOperations.get"}, "those are as zoneOperations.get"
    for name, path in paths.items():
        response = method_of(compute, name)["response"]
        assert faults(compute, response, caller.get(path), name) == []


def test_objects() -> None:
    """The same for Cloud Storage."""
    storage = description("storage.v1")
    simulator = GceSimulator()
    with simulator.cloud() as cloud:
        made = cloud.objects.put("nodepool-images", "o", b"abc", {"metadata": {"a": "b"}})
    assert faults(storage, {"$ref": "Object"}, made, "object") == []
