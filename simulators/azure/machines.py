# SPDX-License-Identifier: Apache-2.0
"""VMs: how they are made, fail and go, with their network interfaces, public addresses and disks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from simulators.azure import catalog, shapes
from simulators.azure.resources import ArmResource, resource_id
from simulators.azure.settings import EVICTED, FAILED, STUCK, SWALLOWED, SizeCapacity, VmBootRule
from simulators.azure.vm_spec import VmSpec
from simulators.base.messages import ApiError, Json, new_id
from simulators.base.observer import Observer

if TYPE_CHECKING:
    from simulators.azure.cloud import Subscription

VMS, NICS, ADDRESSES, DISKS = "virtualMachines", "networkInterfaces", "publicIPAddresses", "disks"
NO_CAPACITY = "Allocation failed. We do not have sufficient capacity for the requested VM size in this region."
EXCEEDED = (
    "Operation could not be completed as it results in exceeding approved {title} quota. Additional details - "
    "Deployment Model: Resource Manager, Location: {location}, Current Limit: {limit}, Current Usage: {used}, "
    "Additional Required: {more}, (Minimum) New Limit Required: {needed}."
)


class SimulatedMachines:
    """All VMs of a subscription."""

    def __init__(self, cloud: Subscription) -> None:
        self.cloud = cloud
        self.observer = Observer()
        self._spot: set[str] = set()
        #: VMs whose deletion is stuck.
        self._stuck: list[ArmResource] = []
        self.failures: dict[str, Json] = {}

    # -- making them --

    def create(self, spec: VmSpec) -> tuple[ArmResource, str]:
        """Accepts a PUT; returns the VM and the id of the operation.

        :raises ApiError: there is no room.
        """
        self._check_quota(spec)
        late = self._check_capacity(spec)
        vm = self._add(spec)
        core = self.cloud.core
        operation = self.cloud.operations.begin(vm.document["id"])
        core.events["VMs made"] += 1
        rule = late or next(
            (
                rule
                for rule in core.knobs.boots
                if catalog_matches(rule, spec.size.name) and core.applies(rule, "boots")
            ),
            None,
        )
        if core.happens(core.knobs.hidden_rate, "hidden"):
            vm.listed = False
            core.after(core.knobs.hidden_seconds, "hidden", lambda: setattr(vm, "listed", True))
        if rule is None or rule.kind != STUCK:
            core.after(core.knobs.boot_seconds, "boot", lambda: self._boot(vm, operation, rule))
        return vm, operation

    def _add(self, spec: VmSpec) -> ArmResource:
        resources = self.cloud.resources
        properties = {
            **{key: value for key, value in spec.properties.items() if key not in ("osProfile", "networkProfile")},
            "vmId": new_id(),
            "provisioningState": "Creating",
            "timeCreated": self.cloud.core.stamp(),
        }
        profile = {key: value for key, value in spec.properties["osProfile"].items() if key not in _SECRETS}
        properties["osProfile"] = profile
        properties["storageProfile"] = {**properties["storageProfile"]}
        properties.pop("userData", None)
        shapes.complete_vm(properties)
        none: tuple[dict[str, Any], ...] = ({}, {"zones": None}, {"zones": []})
        more = {"zones": [spec.zone]} if spec.zone else self.cloud.core.turn("zones", *none)
        vm = resources.add(VMS, spec.name, properties, spec.tags, **more)
        interfaces = [self._add_interface(vm, interface) for interface in spec.interfaces]
        properties["networkProfile"] = {
            "networkInterfaces": [
                {"id": nic.document["id"], "properties": {"primary": True, "deleteOption": "Delete"}}
                for nic in interfaces
            ]
        }
        disk = properties["storageProfile"]["osDisk"]
        name = disk.get("name") or f"{spec.name}_OsDisk_1_{new_id().replace('-', '')}"
        disk_properties = {
            "provisioningState": "Succeeded",
            "diskState": "Attached",
            "diskSizeGB": disk["diskSizeGB"],
            "creationData": {"createOption": "FromImage"},
            **shapes.disk_properties(self.cloud.core.stamp()),
        }
        sku = {"name": "Premium_LRS", "tier": "Premium"}
        resources.add(DISKS, name, disk_properties, managedBy=vm.document["id"], sku=sku)
        disk |= {"name": name, "managedDisk": {"id": resource_id(DISKS, name), "storageAccountType": "Premium_LRS"}}
        if spec.spot:
            self._spot.add(vm.document["id"])
        self.observer.present(vm.properties["vmId"], vm.tags, spec.size.cores, int(spec.size.ram_gib * 1024))
        return vm

    def _add_interface(self, vm: ArmResource, interface: Json) -> ArmResource:
        configurations = []
        nic_id = resource_id(NICS, interface["name"])
        for entry in interface["properties"]["ipConfigurations"]:
            given = entry["properties"]
            version = given.get("privateIPAddressVersion", "IPv4")
            shown: Json = {
                "provisioningState": "Succeeded",
                "privateIPAddress": self.cloud.take_address(version),
                "privateIPAllocationMethod": "Dynamic",
                "privateIPAddressVersion": version,
                "primary": bool(given.get("primary")),
                "subnet": given["subnet"],
            }
            configuration_id = f"{nic_id}/ipConfigurations/{entry['name']}"
            if public := given.get("publicIPAddressConfiguration"):
                address = self.cloud.resources.add(
                    ADDRESSES,
                    public["name"],
                    {
                        "provisioningState": "Succeeded",
                        "ipAddress": self.cloud.take_public_address(version),
                        "publicIPAddressVersion": public["properties"].get("publicIPAddressVersion", "IPv4"),
                        "publicIPAllocationMethod": public["properties"].get("publicIPAllocationMethod", "Static"),
                        "ipConfiguration": {"id": configuration_id},
                        **shapes.address_properties(),
                    },
                    public.get("tags"),
                    sku=public.get("sku"),
                    **shapes.etag(),
                )
                shown["publicIPAddress"] = {"id": address.document["id"]}
            of_kind = {"type": "Microsoft.Network/networkInterfaces/ipConfigurations", **shapes.etag()}
            configurations.append({"name": entry["name"], "id": configuration_id, **of_kind, "properties": shown})
        properties = {
            "provisioningState": "Succeeded",
            "ipConfigurations": configurations,
            "primary": True,
            "virtualMachine": {"id": vm.document["id"]},
            **shapes.interface_properties(),
        }
        return self.cloud.resources.add(NICS, interface["name"], properties, interface.get("tags"), **shapes.etag())

    # -- room --

    def used(self) -> Counter[str]:
        """What lives now, by name of usage."""
        found: Counter[str] = Counter()
        for vm in self.cloud.resources.of(VMS):
            size = catalog.SIZES[vm.properties["hardwareProfile"]["vmSize"].lower()]
            found[catalog.MACHINES] += 1
            found += _cores(size, vm.document["id"] in self._spot)
        found[catalog.ADDRESSES] = self.cloud.resources.count(ADDRESSES)
        return found

    def _check_quota(self, spec: VmSpec) -> None:
        wanted = Counter({catalog.MACHINES: 1, catalog.ADDRESSES: spec.public_addresses})
        wanted += _cores(spec.size, spec.spot)
        limits, used = self.cloud.core.knobs.quotas, self.used()
        for name, more in wanted.items():
            limit = limits.get(name)
            if limit is None or used[name] + more <= limit:
                continue
            if name == catalog.ADDRESSES:
                text = f"Cannot create more than {limit} public IP addresses for this subscription in this region."
                raise ApiError(400, text, "PublicIPCountLimitReached")
            needed, title = used[name] + more, catalog.TITLES.get(name, name)
            text = EXCEEDED.format(
                title=title, location="northeurope", limit=limit, used=used[name], more=more, needed=needed
            )
            raise ApiError(409, text, "OperationNotAllowed")

    def _check_capacity(self, spec: VmSpec) -> VmBootRule | None:
        for rule in self.cloud.core.knobs.capacity:
            if rule.matches(spec.size.name, spec.zone, spec.spot):
                if self._living(rule) < rule.room:
                    return None
                code = "ZonalAllocationFailed" if spec.zone else "AllocationFailed"
                if not rule.late:
                    raise ApiError(409, NO_CAPACITY, code)
                return VmBootRule(kind=FAILED, code=code, message=NO_CAPACITY)
        return None

    def _living(self, rule: SizeCapacity) -> int:
        return sum(
            rule.matches(
                catalog.SIZES[vm.properties["hardwareProfile"]["vmSize"].lower()].name,
                next(iter(vm.document.get("zones") or ()), ""),
                vm.document["id"] in self._spot,
            )
            for vm in self.cloud.resources.of(VMS)
            if vm.properties["provisioningState"] != "Failed"
        )

    # -- what becomes of them --

    def _boot(self, vm: ArmResource, operation: str, rule: VmBootRule | None) -> None:
        if vm.properties["provisioningState"] != "Creating":
            return
        if rule is not None and rule.kind == FAILED:
            error: Json = {"code": rule.code, "message": rule.message}
            if rule.nested:
                error = {"code": "ResourceOperationFailure", "message": "The operation failed.", "details": [error]}
            vm.properties["provisioningState"] = "Failed"
            self.failures[vm.document["id"]] = error
            self.cloud.operations.end(operation, error)
            self.cloud.core.events["VMs failed"] += 1
            return
        vm.properties["provisioningState"] = "Succeeded"
        self.cloud.operations.end(operation)
        if rule is not None and rule.kind == EVICTED:
            self.cloud.core.after((rule.seconds, rule.seconds), "evict", lambda: self.evict(vm))

    def evict(self, vm: ArmResource) -> None:
        """Azure takes a spot VM away."""
        self.cloud.core.events["VMs evicted"] += 1
        self._remove(vm, leave=False)

    def delete(self, vm: ArmResource) -> str:
        """Accepts a DELETE; returns the id of the operation."""
        core = self.cloud.core
        operation = self.cloud.operations.begin(vm.document["id"])
        if vm.properties["provisioningState"] == "Deleting":
            return operation
        rule = next((rule for rule in core.knobs.deletes if core.applies(rule, "deletes")), None)
        if rule is not None and rule.kind == SWALLOWED:
            core.events["deletions swallowed"] += 1
            return operation
        failed = vm.properties["provisioningState"] == "Failed"
        vm.properties["provisioningState"] = "Deleting"
        if rule is not None:
            self._stuck.append(vm)
            return operation
        core.after(core.knobs.delete_seconds, "delete", lambda: self._delete(vm, operation, failed))
        return operation

    def _delete(self, vm: ArmResource, operation: str, failed: bool) -> None:
        core = self.cloud.core
        self._remove(vm, leave=failed or core.happens(core.knobs.leak_rate, "leak"))
        self.cloud.operations.end(operation)

    def _remove(self, vm: ArmResource, leave: bool) -> None:
        """The VM is gone.

        :param leave: what belongs to it stays.
        """
        resources, core = self.cloud.resources, self.cloud.core
        if resources.find(VMS, vm.name) is not vm:
            return
        resources.remove(vm)
        self._spot.discard(vm.document["id"])
        self.observer.absent(vm.properties["vmId"])
        self.failures.pop(vm.document["id"], None)
        core.events["VMs deleted"] += 1
        if core.happens(core.knobs.ghost_rate, "ghost"):
            self.cloud.ghosts.append(vm)
            core.after(core.knobs.ghost_seconds, "ghost", lambda: self.cloud.ghosts.remove(vm))
        for nic in resources.of(NICS):
            if (nic.properties.get("virtualMachine") or {}).get("id", "").lower() == vm.document["id"].lower():
                self.cloud.clear(nic.properties, "virtualMachine")
                nic.reserved_until = core.now() + core.knobs.nic_reserved_seconds
                if not leave:
                    self.cloud.remove_interface(nic, with_addresses=True)
        for disk in resources.of(DISKS):
            if disk.document.get("managedBy") == vm.document["id"]:
                self.cloud.clear(disk.document, "managedBy")
                disk.properties["diskState"] = "Unattached"
                if not leave:
                    resources.remove(disk)

    def release_stuck(self) -> None:
        """Ends what is stuck in its deletion."""
        stuck, self._stuck = self._stuck, []
        for vm in stuck:
            self._remove(vm, leave=False)

    def forget(self, vm: ArmResource) -> None:
        """Removes a VM behind everybody's back."""
        self._remove(vm, leave=False)


_SECRETS = ("adminPassword", "customData")


def _cores(size: catalog.SimulatedSize, spot: bool) -> Counter[str]:
    if spot:
        return Counter({catalog.SPOT_CORES: size.cores})
    return Counter({catalog.CORES: size.cores, size.family: size.cores})


def catalog_matches(rule: VmBootRule, size: str) -> bool:
    """Is the rule for VMs of the size?"""
    from fnmatch import fnmatchcase

    return fnmatchcase(size, rule.size)
