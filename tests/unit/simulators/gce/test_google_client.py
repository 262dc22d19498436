# SPDX-License-Identifier: Apache-2.0
"""The simulated project, asked with Google's own clients: their types refuse what does not have Google's shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.api_core.exceptions import Forbidden, NotFound, TooManyRequests, Unauthorized
from google.cloud import compute_v1
from google.oauth2 import service_account

from simulators.gce import GceBootRule, GceSettings, GceSimulator
from simulators.gce.links import PROJECT
from tests.support.manual_clock import ManualClock

ZONE = "us-central1-a"
SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
WHERE = {"project": PROJECT, "zone": ZONE}


def credentials_of(key: dict[str, Any]) -> Any:
    """Of a service account, by its key."""
    maker: Any = service_account.Credentials
    return maker.from_service_account_info(key, scopes=SCOPES)


class Clients:
    """The clients of a project, with the key of its service account."""

    def __init__(self, simulator: GceSimulator, clock: ManualClock) -> None:
        self.simulator = simulator
        self.clock = clock
        self._credentials: Any = credentials_of(simulator.key)
        self.instances = self.client("Instances")

    def client(self, name: str) -> Any:
        """For example of ``Instances``."""
        options = {"api_endpoint": self.simulator.url}
        return getattr(compute_v1, f"{name}Client")(credentials=self._credentials, client_options=options)

    def insert(self, name: str) -> Any:
        """Its operation."""
        disk = compute_v1.AttachedDiskInitializeParams(
            source_image="projects/debian-cloud/global/images/family/debian-12",
            disk_size_gb=20,
            disk_type=f"zones/{ZONE}/diskTypes/pd-ssd",
            labels={"nodepool_node_id": "1"},
        )
        external = compute_v1.AccessConfig(type_="ONE_TO_ONE_NAT", name="External NAT")
        instance = compute_v1.Instance(
            name=name,
            machine_type=f"zones/{ZONE}/machineTypes/n2-standard-2",
            labels={"nodepool_node_id": "1"},
            metadata=compute_v1.Metadata(items=[compute_v1.Items(key="ssh-keys", value="zuul:ssh-ed25519 AAAA")]),
            disks=[compute_v1.AttachedDisk(boot=True, auto_delete=True, initialize_params=disk)],
            network_interfaces=[
                compute_v1.NetworkInterface(network="global/networks/default", access_configs=[external])
            ],
            scheduling=compute_v1.Scheduling(provisioning_model="SPOT", instance_termination_action="STOP"),
        )
        return self.instances.insert_unary(**WHERE, instance_resource=instance)


@pytest.fixture
def clients() -> Iterator[Clients]:
    clock = ManualClock(1_800_000_000.0)
    with GceSimulator(GceSettings(page_limit=2), clock=clock) as simulator:
        yield Clients(simulator, clock)
        assert not simulator.state()["bugs"]


def test_life_of_an_instance(clients: Clients) -> None:
    """From the insert to the end, with operation, disk, console and labels."""
    operation = clients.insert("np1")
    assert (operation.status, operation.operation_type) == (compute_v1.Operation.Status.PENDING, "insert")
    clients.clock.pass_seconds(1.0)
    operations = clients.client("ZoneOperations")
    done = operations.get(**WHERE, operation=operation.name)
    assert done.status == compute_v1.Operation.Status.DONE
    assert not done.error.errors
    instance = clients.instances.get(**WHERE, instance="np1")
    assert (instance.name, instance.status, dict(instance.labels)) == ("np1", "RUNNING", {"nodepool_node_id": "1"})
    assert (instance.scheduling.provisioning_model, instance.scheduling.preemptible) == ("SPOT", True)
    (interface,) = instance.network_interfaces
    assert interface.network_i_p.startswith("10.128.")
    assert interface.access_configs[0].nat_i_p.startswith("127.64.")
    assert [(item.key, item.value) for item in instance.metadata.items] == [("ssh-keys", "zuul:ssh-ed25519 AAAA")]
    disk = clients.client("Disks").get(**WHERE, disk="np1")
    assert (disk.size_gb, list(disk.users), dict(disk.labels)) == (20, [instance.self_link], {"nodepool_node_id": "1"})
    console = clients.instances.get_serial_port_output(**WHERE, instance="np1")
    assert console.contents.startswith("Booting np1")
    labels = compute_v1.InstancesSetLabelsRequest(labels={"a": "b"}, label_fingerprint=instance.label_fingerprint)
    clients.instances.set_labels_unary(**WHERE, instance="np1", instances_set_labels_request_resource=labels)
    assert dict(clients.instances.get(**WHERE, instance="np1").labels) == {"a": "b"}
    clients.instances.delete_unary(**WHERE, instance="np1")
    clients.clock.pass_seconds(1.0)
    with pytest.raises(NotFound):
        clients.instances.get(**WHERE, instance="np1")
    assert [entry.operation_type for entry in operations.list(**WHERE)] == ["insert", "setLabels", "delete"]


def test_failed_operation(clients: Clients) -> None:
    """The error is in the operation, with details."""
    clients.simulator.change(quotas={"PREEMPTIBLE_CPUS": 1})
    first = clients.insert("np1")
    clients.simulator.change(quotas={}, boots=[GceBootRule(code="ZONE_RESOURCE_POOL_EXHAUSTED", status=503)])
    second = clients.insert("np2")
    clients.clock.pass_seconds(1.0)
    operations = clients.client("ZoneOperations")
    (error,) = operations.get(**WHERE, operation=first.name).error.errors
    assert error.code == "QUOTA_EXCEEDED"
    info = error.error_details[0].quota_info
    assert (info.metric_name, info.limit) == ("compute.googleapis.com/preemptible_cpus", 1.0)
    done = operations.get(**WHERE, operation=second.name)
    assert done.http_error_status_code == 503
    details = {key: entry for entry in done.error.errors[0].error_details for key in ("error_info",) if key in entry}
    assert details["error_info"].error_info.reason == "resource_availability"


def test_lists(clients: Clients) -> None:
    """The client goes through all pages, of one zone and of all."""
    for number in range(5):
        clients.insert(f"np{number}")
    clients.clock.pass_seconds(1.0)
    names = [f"np{number}" for number in range(5)]
    assert [instance.name for instance in clients.instances.list(**WHERE)] == names
    request = compute_v1.AggregatedListInstancesRequest(project=PROJECT, filter="labels.nodepool_node_id=1")
    found = [one.name for _scope, part in clients.instances.aggregated_list(request) for one in part.instances]
    assert found == names
    assert len(list(clients.client("Disks").list(**WHERE))) == 5
    assert not list(clients.client("Addresses").list(project=PROJECT, region="us-central1"))


def test_what_seldom_changes(clients: Clients) -> None:
    """Images, machine types and quotas."""
    machine = clients.client("MachineTypes").get(**WHERE, machine_type="n1-standard-1")
    assert (machine.guest_cpus, machine.memory_mb) == (1, 3840)
    assert len(list(clients.client("MachineTypes").list(**WHERE))) > 5
    image = clients.client("Images").get_from_family(project="debian-cloud", family="debian-12")
    assert (image.status, image.disk_size_gb, image.family) == ("READY", 10, "debian-12")
    region = clients.client("Regions").get(project=PROJECT, region="us-central1")
    assert {quota.metric for quota in region.quotas} > {"CPUS", "N2_CPUS", "INSTANCES", "IN_USE_ADDRESSES"}
    assert len(region.zones) == 4
    assert clients.client("Zones").get(**WHERE).region.endswith("/regions/us-central1")
    project = clients.client("Projects").get(project=PROJECT)
    assert "CPUS_ALL_REGIONS" in [quota.metric for quota in project.quotas]


def test_errors(clients: Clients) -> None:
    """The client knows them by status, and shows reason and domain."""
    rate = {"operation": "instances.list", "kind": "403", "reason": "rateLimitExceeded", "count": 1}
    clients.simulator.change(errors=[rate, {"operation": "instances.list", "kind": "429", "count": 1}])
    with pytest.raises(Forbidden) as caught:
        list(clients.instances.list(**WHERE))
    assert caught.value.errors[0]["reason"] == "rateLimitExceeded"
    with pytest.raises(TooManyRequests):
        list(clients.instances.list(**WHERE))
    clients.simulator.change(denied=["instances.*"])
    with pytest.raises(Forbidden, match=r"compute\.instances\.list"):
        list(clients.instances.list(**WHERE))


def test_other_key(clients: Clients) -> None:
    """An assertion of another account is refused."""
    key = clients.simulator.key | {"client_email": "other@example.com"}
    credentials = credentials_of(key)
    client = compute_v1.InstancesClient(credentials=credentials, client_options={"api_endpoint": clients.simulator.url})
    with pytest.raises(Unauthorized):
        list(client.list(**WHERE))
