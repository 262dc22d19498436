# SPDX-License-Identifier: Apache-2.0
"""The simulated subscription, asked with Azure's own clients: their models refuse what does not have Azure's shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceNotFoundError
from azure.core.pipeline.transport import RequestsTransport
from azure.identity import ClientSecretCredential
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.network import NetworkManagementClient

from nodepool.driver.azure.launch_spec import vm_body
from nodepool.driver.azure.names import disk_name
from nodepool.driver.azure.places import VmPlace
from nodepool.testing.azure import AzureSettings, AzureSimulator, SizeCapacity, VmBootRule
from nodepool.testing.azure.resources import GROUP, LOCATION, SUBSCRIPTION, TENANT
from tests.unit.driver.azure.support import METADATA, PROVIDER, label_of, load, section


class PlainTransport(RequestsTransport):  # type: ignore[misc]
    """The clients insist on TLS; the simulator is behind a proxy that has it, as it were."""

    def send(self, request: Any, **options: Any) -> Any:
        url = request.url
        request.headers["X-Forwarded-Proto"] = "https"
        request.url = url.replace("https://", "http://", 1)
        try:
            return super().send(request, **options)
        finally:
            request.url = url


class Clients:
    """The clients of a subscription."""

    def __init__(self, simulator: AzureSimulator, secret: str = AzureSettings.client_secret) -> None:
        url = simulator.url.replace("http://", "https://")
        self.simulator = simulator
        self.credential: Any = ClientSecretCredential(
            TENANT,
            AzureSettings.client_id,
            secret,
            authority=url,
            disable_instance_discovery=True,
            transport=PlainTransport(),
        )
        options: dict[str, Any] = {
            "base_url": url,
            "credential_scopes": [f"{url}/.default"],
            "polling_interval": 0,
            "retry_total": 0,
        }
        self.compute: Any = ComputeManagementClient(
            self.credential, SUBSCRIPTION, transport=PlainTransport(), **options
        )
        self.network: Any = NetworkManagementClient(
            self.credential, SUBSCRIPTION, transport=PlainTransport(), **options
        )

    def close(self) -> None:
        self.compute.close()
        self.network.close()
        self.credential.close()

    def body(self, name: str, pool: dict[str, Any] | None = None) -> dict[str, Any]:
        """As the driver sends it."""
        label = label_of(load(section(pool=pool)))
        with self.simulator.cloud() as cloud:
            subnet = cloud.subnet_id
        image = label.cloud_image.reference()
        place = VmPlace("Standard_B1s", "1", True)
        return vm_body(name, name, PROVIDER, LOCATION, label, place, image, subnet, METADATA)

    def create(self, name: str) -> Any:
        return self.compute.virtual_machines.begin_create_or_update(
            GROUP, name, self.body(name), match_condition=MatchConditions.IfMissing
        ).result()


@pytest.fixture
def clients() -> Iterator[Clients]:
    with AzureSimulator(AzureSettings(page_limit=2)) as simulator:
        made = Clients(simulator)
        yield made
        made.close()
        assert not simulator.state()["bugs"]


def test_life_of_a_vm(clients: Clients) -> None:
    """AZ-4, AZ-5, AZ-7: the driver's order goes through Azure's client, and its answers through Azure's models."""
    vm = clients.create("np1")
    assert (vm.name, vm.location, vm.provisioning_state, vm.zones) == ("np1", LOCATION, "Succeeded", ["1"])
    assert (vm.priority, vm.eviction_policy, vm.hardware_profile.vm_size) == ("Spot", "Delete", "Standard_B1s")
    assert dict(vm.tags) == METADATA
    (used,) = vm.network_profile.network_interfaces
    nic = clients.network.network_interfaces.get(GROUP, used.id.rpartition("/")[2])
    assert nic.virtual_machine.id == vm.id
    (configuration,) = nic.ip_configurations
    assert configuration.private_ip_address.startswith("10.0.")
    address = clients.network.public_ip_addresses.get(GROUP, configuration.public_ip_address.id.rpartition("/")[2])
    assert address.ip_address.startswith("127.64.")
    assert (address.public_ip_allocation_method, address.sku.name) == ("Static", "Standard")
    assert dict(nic.tags) == dict(address.tags) == METADATA
    disk = clients.compute.disks.get(GROUP, vm.storage_profile.os_disk.name)
    assert (disk.managed_by, disk.disk_state) == (vm.id, "Attached")
    view = clients.compute.virtual_machines.instance_view(GROUP, "np1")
    assert [status.code for status in view.statuses] == ["ProvisioningState/succeeded", "PowerState/running"]
    clients.compute.virtual_machines.begin_delete(GROUP, "np1").result()
    with pytest.raises(ResourceNotFoundError):
        clients.compute.virtual_machines.get(GROUP, "np1")
    state = clients.simulator.state()["contents"]
    assert {kind: number for kind, number in state.items() if number} == {"images": 1}


def test_the_order_as_a_model(clients: Clients) -> None:
    """AZ-4, AZ-5: what the driver sends are fields that the model has."""
    from azure.mgmt.compute.models import VirtualMachine

    vm: Any = VirtualMachine(clients.body("np1", {"public-ipv6": True}))
    assert vm.os_profile.linux_configuration.ssh.public_keys[0].key_data == "ssh-ed25519 AAAA"
    (interface,) = vm.network_profile.network_interface_configurations
    assert (interface.delete_option, interface.primary, dict(interface.tags)) == ("Delete", True, METADATA)
    four, six = interface.ip_configurations
    assert (four.private_ip_address_version, six.private_ip_address_version) == ("IPv4", "IPv6")
    address = six.public_ip_address_configuration
    assert (address.public_ip_address_version, address.delete_option) == ("IPv6", "Delete")
    assert (address.sku.name, dict(address.tags)) == ("Standard", METADATA)
    assert vm.storage_profile.os_disk.delete_option == "Delete"


def test_vm_that_exists(clients: Clients) -> None:
    """CM-8."""
    clients.create("np1")
    with pytest.raises(HttpResponseError) as caught:
        clients.create("np1")
    assert caught.value.status_code == 412


def test_operation_that_fails(clients: Clients) -> None:
    """AZ-7: the client finds the error in the operation."""
    clients.simulator.change(boots=[VmBootRule(code="OSProvisioningTimedOut", message="too slow")])
    with pytest.raises(HttpResponseError) as caught:
        clients.create("np1")
    assert caught.value.error is not None
    assert (caught.value.error.code, caught.value.error.message) == ("OSProvisioningTimedOut", "too slow")
    assert clients.compute.virtual_machines.get(GROUP, "np1").provisioning_state == "Failed"


@pytest.mark.parametrize(
    ("settings", "status", "code"),
    [
        ({"quotas": {"lowPriorityCores": 0}}, 409, "OperationNotAllowed"),
        ({"quotas": {"virtualMachines": 0}}, 409, "OperationNotAllowed"),
        ({"capacity": [SizeCapacity()]}, 409, "ZonalAllocationFailed"),
        ({"denied": ["virtualMachines.put"]}, 403, "AuthorizationFailed"),
    ],
)
def test_errors(clients: Clients, settings: dict[str, Any], status: int, code: str) -> None:
    """AZ-10: status and code, as the client reads them."""
    clients.simulator.change(**settings)
    with pytest.raises(HttpResponseError) as caught:
        clients.create("np1")
    assert caught.value.error is not None
    assert (caught.value.status_code, caught.value.error.code) == (status, code)


def test_wrong_secret(clients: Clients) -> None:
    """AZ-1."""
    other = Clients(clients.simulator, "other")
    with pytest.raises(ClientAuthenticationError, match="AADSTS7000215"):
        list(other.compute.virtual_machines.list(GROUP))
    other.close()


def test_lists(clients: Clients) -> None:
    """AZ-3, AZ-9: all pages."""
    for number in range(3):
        clients.create(f"np{number}")
    assert [vm.name for vm in clients.compute.virtual_machines.list(GROUP)] == ["np0", "np1", "np2"]
    assert len(list(clients.network.network_interfaces.list(GROUP))) == 3
    assert len(list(clients.network.public_ip_addresses.list(GROUP))) == 3
    assert len(list(clients.compute.disks.list_by_resource_group(GROUP))) == 3
    assert [image.name for image in clients.compute.images.list_by_resource_group(GROUP)] == ["debian-12"]
    skus = {sku.name: sku for sku in clients.compute.resource_skus.list(filter=f"location eq '{LOCATION}'")}
    small = skus["Standard_B1s"]
    assert {entry.name: entry.value for entry in small.capabilities}["vCPUs"] == "1"
    assert (small.resource_type, small.family) == ("virtualMachines", "standardBSFamily")
    usages = {usage.name.value: usage for usage in clients.compute.usage.list(LOCATION)}
    assert (usages["virtualMachines"].current_value, usages["lowPriorityCores"].current_value) == (3, 3)
    addresses = {usage.name.value: usage for usage in clients.network.usages.list(LOCATION)}
    assert addresses["StandardSkuPublicIPAddresses"].current_value == 3
    assert clients.network.subnets.get(GROUP, "ci", "default").name == "default"


def test_what_belongs_to_a_vm_cannot_be_deleted(clients: Clients) -> None:
    """AZ-11."""
    clients.create("np1")
    belonging = {
        "np1-nic": clients.network.network_interfaces,
        "np1-v4-ip": clients.network.public_ip_addresses,
        disk_name("np1", PROVIDER): clients.compute.disks,
    }
    for name, operations in belonging.items():
        with pytest.raises(HttpResponseError):
            operations.begin_delete(GROUP, name).result()


def test_upload(clients: Clients) -> None:
    """AZ-12, AZ-13: the calls of an upload, and their long operations."""
    size = 1024 * 1024 + 512
    creation = {"createOption": "Upload", "uploadSizeBytes": size}
    disks, images = clients.compute.disks, clients.compute.images
    disk = disks.begin_create_or_update(
        GROUP, "d", {"location": LOCATION, "properties": {"creationData": creation, "osType": "Linux"}}
    ).result()
    assert (disk.provisioning_state, disk.disk_state) == ("Succeeded", "ReadyToUpload")
    access = disks.begin_grant_access(GROUP, "d", {"access": "Write", "durationInSeconds": 3600}).result()
    assert access.access_sas.startswith("https://127.0.0.1")
    with pytest.raises(HttpResponseError):
        disks.begin_delete(GROUP, "d").result()
    disks.begin_revoke_access(GROUP, "d").result()
    source = {"osDisk": {"osType": "Linux", "osState": "Generalized", "managedDisk": {"id": disk.id}}}
    with pytest.raises(HttpResponseError):
        # Nothing was written.
        images.begin_create_or_update(GROUP, "i", {"location": LOCATION, "properties": {"storageProfile": source}})
    disks.begin_delete(GROUP, "d").result()
    images.begin_delete(GROUP, "debian-12").result()
    assert not list(images.list_by_resource_group(GROUP))
