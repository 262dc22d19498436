# SPDX-License-Identifier: Apache-2.0
"""Azure's Resource Manager, as far as the released driver asks it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from tests.functional.released_drivers.cloud import Surroundings
from tests.functional.released_drivers.http_double import Answer, Call
from tests.functional.released_drivers.recording import RecordingCloud, body_answer

LOCATION = "westus"
GROUP = "/subscriptions/sub/resourceGroups/nodepool"
NETWORK = f"{GROUP}/providers/Microsoft.Network"
COMPUTE = f"{GROUP}/providers/Microsoft.Compute"
SIZE = {
    "name": "Standard_B2s",
    "resourceType": "virtualMachines",
    "locations": [LOCATION],
    "locationInfo": [{"location": LOCATION, "zones": []}],
    "capabilities": [{"name": "vCPUs", "value": "2"}, {"name": "MemoryGB", "value": "4"}],
}
USAGES = [
    {"name": {"value": "cores"}, "limit": 20, "currentValue": 0},
    {"name": {"value": "virtualMachines"}, "limit": 100, "currentValue": 0},
]


class Azure(RecordingCloud):
    """A resource group with a network. A machine brings its interface, address and disk, and takes them along."""

    driver: ClassVar[str] = "azure"
    hosts: ClassVar[tuple[str, ...]] = ("login.microsoftonline.com", "management.azure.com")

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        #: By kind and name.
        self._machines: dict[str, dict[str, Any]] = {}
        account = {"clientId": "id", "clientSecret": "secret", "subscriptionId": "sub", "tenantId": "tenant"}
        self._account = self.directory / "azure.json"
        self._account.write_text(json.dumps(account), encoding="utf-8")
        token = {"access_token": "token", "expires_in": 3600, "expires_on": 4102444800, "token_type": "Bearer"}
        self.route("POST", "/tenant/oauth2/.*", body_answer(token))
        self.route("GET", "/subscriptions/sub/providers/Microsoft.Compute/skus/?", body_answer({"value": [SIZE]}))
        self.route("GET", ".*/locations/westus/usages", body_answer({"value": USAGES}))
        self.route("GET", f"({NETWORK}/virtualNetworks/lab/subnets/default)", self._subnet)
        self.route("PUT", f"{COMPUTE}/virtualMachines/(.+)", self._create)
        self.route("DELETE", f"{COMPUTE}/virtualMachines/(.+)", self._delete)
        self.route("GET", f"{COMPUTE}/virtualMachines", self._list_machines)
        self.route("GET", f"{COMPUTE}/disks", body_answer({"value": []}))
        self.route("GET", f"{COMPUTE}/images", body_answer({"value": []}))
        self.route("GET", f"{NETWORK}/networkInterfaces", self._list_interfaces)
        self.route("GET", f"{NETWORK}/publicIPAddresses", self._list_addresses)

    def section(self) -> dict[str, Any]:
        reference = {"sku": "12", "publisher": "Debian", "version": "latest", "offer": "debian-12"}
        image = {"name": "debian", "username": "zuul", "key": "ssh-ed25519 AAAA", "image-reference": reference}
        label = {
            "name": self.label,
            "cloud-image": "debian",
            "hardware-profile": {"vm-size": "Standard_B2s"},
            "tags": {"team": "ci"},
            "dynamic-tags": {"tenant": "{request.tenant_name}"},
        }
        pool = {"name": self.pool, "max-servers": 5, "host-key-checking": False, "labels": [label]}
        return {
            "location": LOCATION,
            "resource-group": "nodepool",
            "resource-group-location": LOCATION,
            "auth-path": str(self._account),
            "network": "lab",
            "rate": 50,
            "cloud-images": [image],
            "pools": [pool],
        }

    def machines(self) -> set[str]:
        return {machine["tags"]["nodepool_node_id"] for machine in list(self._machines.values())}

    def check_node(self, node: Mapping[str, Any]) -> None:
        assert (node["cloud"], node["region"], node["username"]) == ("Azure", LOCATION, "zuul")
        assert (node["public_ipv4"], node["private_ipv4"]) == ("203.0.113.1", "10.0.0.4")
        assert node["interface_ip"] == node["public_ipv4"]
        # The instance that the released machine returns does not know its size: cores and RAM are 0 in 11.0.0, too.
        assert node["resources"] == {"instances": 1, "cores": 0, "ram": 0}
        sent = self.asked("PUT", f"/virtualMachines/{node['external_id']}$")[-1].json()
        assert sent["location"] == LOCATION
        assert (sent["tags"]["team"], sent["tags"]["tenant"]) == ("ci", "tenant")
        assert sent["properties"]["hardwareProfile"] == {"vmSize": "Standard_B2s"}

    def _subnet(self, call: Call, path: str) -> Answer:
        return Answer(body={"id": path, "name": "default", "properties": {"addressPrefix": "10.0.0.0/24"}})

    def _create(self, call: Call, name: str) -> Answer:
        own = {"id": f"{COMPUTE}/virtualMachines/{name}", "name": name, "type": "Microsoft.Compute/virtualMachines"}
        sent = {**call.json(), **own}
        nic = {"id": f"{NETWORK}/networkInterfaces/{name}-nic", "properties": {"primary": True}}
        made = {"provisioningState": "Succeeded", "networkProfile": {"networkInterfaces": [nic]}}
        self._machines[name] = {**sent, "properties": {**sent["properties"], **made}}
        return Answer(201, {**sent, "properties": {**sent["properties"], "provisioningState": "Creating"}})

    def _delete(self, call: Call, name: str) -> Answer:
        found = self._machines.pop(name, None)
        return Answer(202 if found else 204)

    def _list_machines(self, call: Call) -> Answer:
        return Answer(body={"value": list(self._machines.values())})

    def _list_interfaces(self, call: Call) -> Answer:
        def interface(name: str) -> dict[str, Any]:
            address = {
                **self._part("publicIPAddresses", f"{name}-v4-ip"),
                "properties": {"provisioningState": "Succeeded", "publicIPAddressVersion": "IPv4"},
            }
            properties = {
                "privateIPAddress": "10.0.0.4",
                "privateIPAddressVersion": "IPv4",
                "publicIPAddress": address,
                "provisioningState": "Succeeded",
            }
            configuration = {"name": f"{name}-v4-config", "properties": properties}
            inner = {"provisioningState": "Succeeded", "ipConfigurations": [configuration]}
            return {**self._part("networkInterfaces", f"{name}-nic"), "properties": inner}

        return Answer(body={"value": [interface(name) for name in self._machines]})

    def _list_addresses(self, call: Call) -> Answer:
        properties = {"provisioningState": "Succeeded", "ipAddress": "203.0.113.1", "publicIPAddressVersion": "IPv4"}
        names = [f"{name}-v4-ip" for name in self._machines]
        return Answer(
            body={"value": [{**self._part("publicIPAddresses", name), "properties": properties} for name in names]}
        )

    @staticmethod
    def _part(kind: str, name: str) -> dict[str, Any]:
        own = {"id": f"{NETWORK}/{kind}/{name}", "name": name, "type": f"Microsoft.Network/{kind}"}
        return {**own, "location": LOCATION, "tags": {}}
