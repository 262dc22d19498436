# SPDX-License-Identifier: Apache-2.0
"""The simulated project, held to Google's own description of its APIs (discovery documents), clients and logins."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources
from typing import Any, Final

import pytest
from google.api_core.exceptions import NotFound
from google.auth.transport.requests import AuthorizedSession
from google.cloud import compute_v1
from google.oauth2 import service_account

from simulators.gce import GceBootRule, GceSettings, GceSimulator, ZoneCapacity, catalog
from simulators.gce.compute_api import PREFIX
from simulators.gce.links import PROJECT
from tests.support.manual_clock import ManualClock

ZONE: Final = "us-central1-a"
SCOPES: Final = ["https://www.googleapis.com/auth/cloud-platform"]
WHERE: Final = {"project": PROJECT, "zone": ZONE}
Description = dict[str, Any]


class Project:
    """A project whose time passes when the test says so, and Google's clients with the key of its account."""

    def __init__(self, simulator: GceSimulator, clock: ManualClock) -> None:
        self.simulator = simulator
        self.passes = clock.pass_seconds
        self._account: Any = service_account.Credentials
        self.instances = self.client("Instances")

    def client(self, name: str) -> Any:
        """For example of ``Instances``."""
        options = {"api_endpoint": self.simulator.url}
        return getattr(compute_v1, f"{name}Client")(credentials=self.credentials(), client_options=options)

    def credentials(self) -> Any:
        """Of the account's key."""
        return self._account.from_service_account_info(self.simulator.key, scopes=SCOPES)

    def insert(self, name: str, **more: Any) -> Any:
        """Its operation. The types of the client refuse what does not have Google's shape."""
        disk = compute_v1.AttachedDiskInitializeParams(
            source_image="projects/debian-cloud/global/images/family/debian-12",
            disk_size_gb=20,
            disk_type=f"zones/{ZONE}/diskTypes/pd-ssd",
            labels={"nodepool_node_id": "1"},
        )
        external = compute_v1.AccessConfig(type_="ONE_TO_ONE_NAT", name="External NAT")
        interface = compute_v1.NetworkInterface(network="global/networks/default", access_configs=[external])
        instance = compute_v1.Instance(
            name=name,
            machine_type=f"zones/{ZONE}/machineTypes/n2-standard-2",
            labels={"nodepool_node_id": "1"},
            metadata=compute_v1.Metadata(items=[compute_v1.Items(key="ssh-keys", value="zuul:ssh-ed25519 AAAA")]),
            disks=[compute_v1.AttachedDisk(boot=True, auto_delete=True, initialize_params=disk)],
            network_interfaces=[interface],
            **more,
        )
        return self.instances.insert_unary(**WHERE, instance_resource=instance)

    def operation(self, made: Any) -> Any:
        return self.client("ZoneOperations").get(**WHERE, operation=made.name)


@pytest.fixture
def project() -> Iterator[Project]:
    clock = ManualClock(1_800_000_000.0)
    with GceSimulator(GceSettings(page_limit=2, token_seconds=1e9), clock=clock) as simulator:
        yield Project(simulator, clock)
        assert not simulator.state()["bugs"]


SPOT: Final = compute_v1.Scheduling(provisioning_model="SPOT", instance_termination_action="STOP")


def test_life_of_an_instance(project: Project) -> None:
    """From the insert to the end, with operation, disk, console and labels."""
    operation = project.insert("np1", scheduling=SPOT)
    assert (operation.status, operation.operation_type) == (compute_v1.Operation.Status.PENDING, "insert")
    project.passes(1.0)
    done = project.operation(operation)
    assert done.status == compute_v1.Operation.Status.DONE
    assert not done.error.errors
    instance = project.instances.get(**WHERE, instance="np1")
    assert (instance.name, instance.status, dict(instance.labels)) == ("np1", "RUNNING", {"nodepool_node_id": "1"})
    assert (instance.scheduling.provisioning_model, instance.scheduling.preemptible) == ("SPOT", True)
    (interface,) = instance.network_interfaces
    assert interface.network_i_p.startswith("10.128.")
    assert interface.access_configs[0].nat_i_p.startswith("127.64.")
    assert [(item.key, item.value) for item in instance.metadata.items] == [("ssh-keys", "zuul:ssh-ed25519 AAAA")]
    disk = project.client("Disks").get(**WHERE, disk="np1")
    assert (disk.size_gb, list(disk.users), dict(disk.labels)) == (20, [instance.self_link], {"nodepool_node_id": "1"})
    console = project.instances.get_serial_port_output(**WHERE, instance="np1")
    assert console.contents.startswith("Booting np1")
    labels = compute_v1.InstancesSetLabelsRequest(labels={"a": "b"}, label_fingerprint=instance.label_fingerprint)
    project.instances.set_labels_unary(**WHERE, instance="np1", instances_set_labels_request_resource=labels)
    assert dict(project.instances.get(**WHERE, instance="np1").labels) == {"a": "b"}
    project.instances.delete_unary(**WHERE, instance="np1")
    project.passes(1.0)
    with pytest.raises(NotFound):
        project.instances.get(**WHERE, instance="np1")
    kinds = [entry.operation_type for entry in project.client("ZoneOperations").list(**WHERE)]
    assert kinds == ["insert", "setLabels", "delete"]


def test_failed_operation(project: Project) -> None:
    """The error is in the operation, with details."""
    project.simulator.change(quotas={"PREEMPTIBLE_CPUS": 1})
    first = project.insert("np1", scheduling=SPOT)
    project.simulator.change(quotas={}, boots=[GceBootRule(code="ZONE_RESOURCE_POOL_EXHAUSTED", status=503)])
    second = project.insert("np2", scheduling=SPOT)
    project.passes(1.0)
    (error,) = project.operation(first).error.errors
    info = error.error_details[0].quota_info
    assert (error.code, info.metric_name, info.limit) == (
        *("QUOTA_EXCEEDED", "compute.googleapis.com/preemptible_cpus", 1.0),
    )
    done = project.operation(second)
    reasons = [entry.error_info.reason for entry in done.error.errors[0].error_details if "error_info" in entry]
    assert (done.http_error_status_code, reasons) == (503, ["resource_availability"])


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


def test_answers(compute: Description, project: Project) -> None:
    """Every field of every answer is one that Google has, of its kind; also in Cloud Storage."""
    project.simulator.change(page_limit=500)
    account = compute_v1.ServiceAccount(email="default", scopes=[])
    operation = project.insert("np1", service_accounts=[account])
    project.insert("np2", scheduling=SPOT, tags=compute_v1.Tags(items=["ssh"]))
    project.passes(1.0)
    project.simulator.change(capacity=[ZoneCapacity(room=2)])
    project.insert("np3")
    project.simulator.change(quotas={"INSTANCES": 3})
    project.insert("np4")
    project.passes(1.0)
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
    session = AuthorizedSession(project.credentials())  # type: ignore[no-untyped-call]
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
