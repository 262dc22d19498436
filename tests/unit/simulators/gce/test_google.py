# SPDX-License-Identifier: Apache-2.0
"""The simulated project, held to Google's own description of its APIs (discovery documents), clients and logins."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources
from typing import Any, Final

import pytest
from google.auth.transport.requests import AuthorizedSession
from google.oauth2 import service_account

from simulators.gce import GceSettings, GceSimulator, ZoneCapacity, catalog
from simulators.gce.compute_api import PREFIX
from simulators.gce.links import PROJECT
from tests.support.manual_clock import ManualClock

ZONE: Final = "us-central1-a"
SCOPES: Final = ["https://www.googleapis.com/auth/cloud-platform"]
Description = dict[str, Any]


class Project:
    """A project whose time passes when the test says so, and Google's login with the key of its account."""

    def __init__(self, simulator: GceSimulator) -> None:
        # It takes two seconds, and each process of pytest loads this file.
        from google.cloud import compute_v1

        self.models = compute_v1
        self.simulator = simulator
        account: Any = service_account.Credentials
        self.credentials = account.from_service_account_info(simulator.key, scopes=SCOPES)
        options = {"api_endpoint": simulator.url}
        self.instances: Any = self.models.InstancesClient(credentials=self.credentials, client_options=options)

    def insert(self, name: str, **more: Any) -> Any:
        """Its operation. The types of the client refuse what does not have Google's shape."""
        models, source = self.models, "projects/debian-cloud/global/images/family/debian-12"
        disk = models.AttachedDiskInitializeParams(source_image=source, labels={"nodepool_node_id": "1"})
        external = models.AccessConfig(type_="ONE_TO_ONE_NAT", name="External NAT")
        instance = models.Instance(
            name=name,
            machine_type=f"zones/{ZONE}/machineTypes/n2-standard-2",
            labels={"nodepool_node_id": "1"},
            metadata=models.Metadata(items=[models.Items(key="ssh-keys", value="zuul:ssh-ed25519 AAAA")]),
            disks=[models.AttachedDisk(boot=True, auto_delete=True, initialize_params=disk)],
            network_interfaces=[models.NetworkInterface(network="global/networks/default", access_configs=[external])],
            **more,
        )
        return self.instances.insert_unary(project=PROJECT, zone=ZONE, instance_resource=instance)


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
    """Each has the name, the HTTP method and the path that Google says; quotas have names that there are."""
    assert compute["rootUrl"] + compute["servicePath"] == f"https://compute.googleapis.com{PREFIX}"
    table = GceSimulator().application.compute.table
    assert len(table) > 40
    for name, (method, template) in table.items():
        described = method_of(compute, name)
        parts = ["{}" if part.startswith("{") else part for part in described["path"].split("/")]
        assert (name, method, template) == (name, described["httpMethod"], "/".join(parts))
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


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_800_000_000.0)


@pytest.fixture
def project(clock: ManualClock) -> Iterator[Project]:
    with GceSimulator(GceSettings(token_seconds=1e9), clock=clock) as simulator:
        yield Project(simulator)
        assert not simulator.state()["bugs"]


def test_answers(compute: Description, project: Project, clock: ManualClock) -> None:
    """Every field of every answer is one that Google has, of its kind; also in Cloud Storage."""
    models = project.models
    account = models.ServiceAccount(email="default", scopes=[])
    spot = models.Scheduling(provisioning_model="SPOT", instance_termination_action="STOP")
    operation = project.insert("np1", service_accounts=[account])
    project.insert("np2", scheduling=spot, tags=models.Tags(items=["ssh"]))
    clock.pass_seconds(1.0)
    project.simulator.change(capacity=[ZoneCapacity(room=2)])
    project.insert("np3")
    project.simulator.change(quotas={"INSTANCES": 3})
    project.insert("np4")
    clock.pass_seconds(1.0)
    with project.simulator.cloud() as cloud:
        cloud.add_address("a1")
        cloud.images.add("built", "ours", {"a": "b"})
        (instance,) = [one for one in cloud.instances.all() if one.spec.spot]
        cloud.instances.preempt(instance)
        stored = cloud.objects.put("nodepool-images", "o", b"abc", {"metadata": {"a": "b"}})
    assert faults(description("storage.v1"), {"$ref": "Object"}, stored, "object") == []
    values = {"region": "us-central1", "machineType": "e2-micro", "network": "default", "subnetwork": "default"}
    values |= {"instance": "np1", "disk": "np1", "address": "a1", "image": "built", "family": "ours"}
    values |= {"zone": ZONE, "operation": operation.name, "project": PROJECT}
    session = AuthorizedSession(project.credentials)  # type: ignore[no-untyped-call]
    with session:
        session.trust_env = False
        for name, (method, _template) in project.simulator.application.compute.table.items():
            # Those are as zoneOperations.get.
            if method == "GET" and name not in ("globalOperations.get", "regionOperations.get"):
                described = method_of(compute, name)
                path = described["path"].format(**values, resourceId="np1")
                with session.get(f"{project.simulator.url}{PREFIX}{path}") as answer:
                    assert answer.status_code == 200, (name, answer.text)
                    assert faults(compute, described["response"], answer.json(), name) == []
