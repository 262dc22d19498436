# SPDX-License-Identifier: Apache-2.0
"""VMs of one Azure provider.

First how they are listed and deleted, with the proof that one is deleted, then names and one VM, then its launch
(`AzureCreation`), then the body of the call that makes it.
"""

from __future__ import annotations

import base64
import logging
import re
import secrets
import string
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, cast

from nodepool.clock import monotonic
from nodepool.driver.azure import client as arm
from nodepool.driver.azure.config import AzureImageSettings, AzureLabel, AzurePool, AzureProviderConfig
from nodepool.driver.azure.facts import AzureFacts, VmPlace, places_of
from nodepool.driver.config import dynamic_values
from nodepool.driver.framework.cloud_errors import (
    CloudNoCapacity,
    CloudNoCapacityLater,
    CloudNotFound,
    CloudQuota,
    CloudRefused,
    CloudSetup,
    nothing_sent,
)
from nodepool.driver.framework.quota_support import ZonePlaces
from nodepool.driver.statemachine import (
    CloudInstance,
    CreationKey,
    DeletionMachine,
    Instance,
    InstanceCloud,
    Order,
    PlacedCreation,
)
from nodepool.driver.statemachine.adapter import Log
from nodepool.driver.statemachine.instance import NODE_KEY, PROVIDER_KEY, is_of, mark_of, of_mark
from nodepool.driver.statemachine.inventory import Batches
from nodepool.exceptions import LaunchError, LaunchStatusException
from nodepool.model.request import NodeRequest
from nodepool.plan.retries import Backoff

log = logging.getLogger("nodepool.driver.azure.machines")

#: While more VMs are being made, addresses are looked up so often at most, in seconds.
LOOK_UP_SECONDS: Final = 1.0
#: Names of spot VMs that are remembered; with more of them those that are deleted are forgotten.
MOST_SPOT: Final = 5000
#: Why a VM has ended. Azure does not tell it of VMs that are deleted.
EVICTED: Final = "SpotEviction"
DELETED: Final = "NotFound"
#: From one call that proves absences to the next, in seconds.
PROOF_SECONDS: Final = 1.5
#: VMs that one such call is about.
MOST_PROOFS: Final = 1000


class AzureMachines(InstanceCloud[arm.VmRecord]):
    """What launches and deletions of one provider share."""

    # New VMs may be missing in lists for some time, and deleted ones be in them.
    lag_seconds = 10.0
    # An answer may take twice as long as each of its parts.
    call_seconds = 2 * arm.CALL_SECONDS
    # An order takes a second or two to be answered, and Azure takes ten of them a second in the long run.
    create_threads = 24
    other_threads = 16
    most_threads = 36
    # A VM takes some 20 s to boot, and a list of many VMs is a large answer. Azure takes 240 lists in three minutes,
    # and 36 questions a minute after one VM: pauses that begin like this and grow with the wait stay below both.
    shortest_list_pause = 1.6
    list_price = 0.3
    looks_singly = 2
    absence_is_proved = True
    resumes_launches = True

    def __init__(self, config: AzureProviderConfig, client: arm.Arm, facts: AzureFacts) -> None:
        super().__init__(config.name)
        self.config = config
        self.client = client
        self.facts = facts
        self.places: ZonePlaces[VmPlace] = ZonePlaces()
        #: Addresses of VMs, which do not change, by ``vm_id``. It is never replaced: one thread may list while another
        #: one looks at a VM.
        self._addresses: dict[str, arm.Addresses] = {}
        #: Names of spot VMs of ours that a list has shown, the latest last. The same thread changes it.
        self._spot: dict[str, None] = {}
        self._looked_up_at = float("-inf")
        #: When the last call of a proof began. One thread at a time uses it.
        self._proved_at = float("-inf")
        self._proofs: Batches[str] = Batches(self.prove_absence, self.others, MOST_PROOFS)

    def list_instances(self, since: str | None) -> list[arm.VmRecord]:
        records = self.client.vms()
        self._note_spot(records)
        unknown = [record for record in records if self._may_have_addresses(record)]
        ready = [record for record in unknown if record.status == arm.SUCCEEDED]
        if len(ready) == 1 and len(unknown) <= self.looks_singly:
            self._look_up_one(ready[0])
        elif ready and (self._looked_up_at + LOOK_UP_SECONDS <= monotonic() or len(ready) == len(unknown)):
            self._looked_up_at = monotonic()
            self._look_up(unknown)
        there = {record.vm_id for record in records}
        for vm_id in self._addresses.keys() - there:
            self._addresses.pop(vm_id, None)
        return [self._with_addresses(record) for record in records]

    def look_at(self, record_id: str) -> arm.VmRecord:
        record = self.client.vm(record_id)
        if record.status == arm.SUCCEEDED and self._may_have_addresses(record):
            self._look_up_one(record)
        return self._with_addresses(record)

    def _with_addresses(self, record: arm.VmRecord) -> arm.VmRecord:
        # While it is being made its addresses are no news: who waits for it would look at it for nothing.
        known = self._addresses.get(record.vm_id) if record.status != arm.CREATING else None
        return record if known is None else record._replace(addresses=known)

    def _note_spot(self, records: list[arm.VmRecord]) -> None:
        self._spot |= {record.id: None for record in records if record.spot and self._is_ours(record)}
        if len(self._spot) > MOST_SPOT:
            there = {record.id for record in records}
            self._spot = {name: None for name in self._spot if name in there}

    def why_lost(self, external_id: Any) -> tuple[str, str] | None:
        """See `Adapter.whyLost`. Any thread."""
        name = self.record_id(external_id)
        if name is None:
            return None
        if name in self._spot:
            return EVICTED, f"spot VM {name} does not exist any more: Azure evicted it, or others deleted it"
        return (
            DELETED,
            f"VM {name} does not exist any more: it was deleted by others, or evicted by Azure if it was a spot VM",
        )

    def record_id(self, external_id: Any) -> str | None:
        # Azure names things without regard to case.
        found = super().record_id(external_id)
        return None if found is None else found.lower()

    def why_ended(self, record: arm.VmRecord) -> tuple[str, str] | None:
        if record.status != arm.DELETING:
            return None
        if record.spot:
            return EVICTED, f"spot VM {record.id} is being deleted: Azure evicted it, or others deleted it"
        return DELETED, f"VM {record.id} is being deleted"

    def _is_ours(self, record: arm.VmRecord) -> bool:
        return record.metadata.get(PROVIDER_KEY) == self.provider

    def _may_have_addresses(self, record: arm.VmRecord) -> bool:
        """Has a VM addresses that are not known? Its interface is made first, so a VM may have them long before it is
        ready."""
        return (
            record.status in (arm.CREATING, arm.SUCCEEDED)
            and record.vm_id not in self._addresses
            and self._is_ours(record)
        )

    def _look_up(self, records: list[arm.VmRecord]) -> None:
        """Two lists for all VMs that have become ready since the last time, and for those that are about to."""
        interfaces = arm.by_id(self.client.all_of(arm.INTERFACES))
        wanted = (interfaces.get(record.interface_id) for record in records)
        public = arm.by_id(self.client.all_of(arm.ADDRESSES)) if any(one.public_ids for one in wanted if one) else {}
        for record in records:
            self._note_addresses(record, interfaces.get(record.interface_id), public)

    def _look_up_one(self, record: arm.VmRecord) -> None:
        """The same for one VM: its interface and its public addresses alone."""
        try:
            interface = self.client.one_of(arm.INTERFACES, arm.name_of(record.interface_id))
            public = arm.by_id(
                self.client.one_of(arm.ADDRESSES, arm.name_of(public_id)) for public_id in interface.public_ids
            )
        except CloudNotFound as error:
            log.debug("Provider %s: the addresses of VM %s are not there yet: %s", self.provider, record.id, error)
        else:
            self._note_addresses(record, interface, public)

    def _note_addresses(
        self, record: arm.VmRecord, interface: arm.ArmResource | None, public: Mapping[str, arm.ArmResource]
    ) -> None:
        found = None if interface is None else arm.addresses_of(interface, public)
        if found is not None:
            self._addresses[record.vm_id] = found

    def get_instance(self, record_id: str) -> arm.VmRecord:
        # Its addresses are in the next list.
        return self.client.vm(record_id)

    def begin_proof(self, record_id: str) -> Future[arm.VmRecord | None]:
        # Batches tell of errors only: that it is there still is no news.
        return cast("Future[arm.VmRecord | None]", self._proofs.add(record_id))

    def prove_absence(self, take: Callable[[], list[str]]) -> Mapping[str, Exception]:
        """Are VMs deleted that lists do not show any more? Lists of Azure are late: alone they prove nothing (AZ-11,
        CM-7). For `Batches`: NotFound for each VM that is deleted; nothing = not known yet.

        A VM cannot be without its network interface, and the interface says which VM it belongs to. So a VM that the
        list of VMs lacks, and to which no interface belongs, is deleted: two services of Azure say so. For many VMs
        that is one call in place of one for each. Blocks.

        :param take: gives the names of VMs.
        """
        # Those that are deleted meanwhile need no call of their own.
        self.client.calls.pause(self._proved_at + PROOF_SECONDS - monotonic())
        self._proved_at = monotonic()
        names = take()
        if len(names) <= 1:
            found: dict[str, Exception] = {}
            for name in names:
                try:
                    self.client.vm(name)
                except LaunchError as error:
                    found[name] = error
            return found
        used = {interface.name.lower() for interface in self.client.all_of(arm.INTERFACES) if interface.used}
        where = f"Provider {self.provider}"
        return {
            name: CloudNotFound(f"{where}: {name} is deleted, and its interface is free", code="NotFound", status=404)
            for name in names
            if interface_name(name) not in used
        }

    def delete_instance(self, record_id: str) -> None:
        self.client.delete(arm.VMS, record_id)

    def learn(self, records: Sequence[arm.VmRecord]) -> None:
        if records:
            self.facts.know_sizes()

    def instance(self, record: arm.VmRecord) -> CloudInstance:
        """See AZ-8."""
        return CloudInstance(
            record,
            self.facts.use_of(record),
            ready=record.status == arm.SUCCEEDED,
            cloud="Azure",
            region=record.location,
            az=record.zone,
            **record.addresses._asdict(),
        )

    def close(self) -> None:
        self.client.calls.close()


class AzureDeletion(DeletionMachine[arm.VmRecord]):
    """Deletes a VM, and with it what was made with it, and waits until it has ended."""

    def begun(self, record: arm.VmRecord) -> bool:
        return record.status == arm.DELETING

    def busy(self, error: LaunchError) -> bool:
        # What is in the way of a deletion will end, but for what an operator has to change.
        if not isinstance(error, CloudRefused) or isinstance(error, CloudSetup):
            return False
        return error.status == 409 or isinstance(error, arm.CloudBusy)


# Names of what is made for a node (AZ-5). Pure functions.
#
# Azure does not give tags of a VM to its disk, so the name of the disk says whose it is.

_MARK_DIGITS: Final = 12
_DISK: Final = re.compile(r"np(\d+)(?:-\d+){0,2}-os-([0-9a-f]{12})")


def interface_name(vm: str) -> str:
    """Of the network interface of a VM."""
    return f"{vm}-nic"


def disk_name(vm: str, provider: str) -> str:
    """Of the OS disk of a VM."""
    return f"{vm}-os-{mark_of(provider, _MARK_DIGITS)}"


def disk_metadata(name: str, provider: str) -> dict[str, str]:
    """What the name of a disk says; empty = it is none of ours, or of another installation (D-10)."""
    found = _DISK.fullmatch(name.lower())
    whose = None if found is None else of_mark(found[2], provider)
    if found is None or whose is None:
        return {}
    return {NODE_KEY: found[1], PROVIDER_KEY: provider, **whose}


# `AzureCreation`: the launch of one VM.

#: Status of HTTP: there is a VM of the name.
_EXISTS: Final = 412
#: Pauses of a creation that something else is in the way of, and how many; Azure reserves an interface for 180 s.
BUSY_PAUSE: Final = Backoff(2.0, 30.0)
BUSY_TIMES: Final = 9


class AzureCreation(PlacedCreation[arm.VmRecord, VmPlace]):
    """Makes a VM and waits until it can be reached. A creation without an answer is sent again: its name is its key."""

    idempotent = True
    deletion_class = AzureDeletion
    no_capacity = "AllocationFailed"

    cloud: AzureMachines

    def __init__(self, cloud: AzureMachines, order: Order) -> None:
        super().__init__(cloud, order)
        self._tags = vm_tags(self.label, self.metadata, order.request, order.log)
        #: Address of the operation, if Azure reported.
        self._operation: str | None = None
        #: How often something else was in the way.
        self._busy = 0
        #: Asks why the VM failed.
        self._why: Future[Exception | None] | None = None

    # -- making it --

    def all_places(self) -> list[VmPlace]:
        return places_of(self.label)

    def create_at(self, place: VmPlace, key: CreationKey) -> str:
        # Azure keeps the name of a network interface for 180 s after a failure, and may still show the VM of before.
        name, hostname = key.name(self.order.hostname), self.order.hostname
        with nothing_sent():
            image = self.cloud.facts.image_reference(self.label, self.order.image)
            subnet = self.cloud.facts.subnet_id()
        body = vm_body(name, hostname, self.label, place, image, subnet, self._tags)
        try:
            self._operation = self.cloud.client.create_vm(name, body, partial(self.permit_at, place))
        except CloudRefused as error:
            if error.status != _EXISTS:
                raise
            # Of an order of ours that was not answered, or of others.
            found = self.cloud.client.vm(name)
            if not is_of(found.metadata, self.metadata):
                raise
            self.log.info("VM %s was made by an order that was not answered", name)
        return name.lower()

    def put_off(self, error: Exception) -> float | None:
        if not isinstance(error, arm.CloudBusy) or self._busy >= BUSY_TIMES:
            return None
        self._busy += 1
        pause = BUSY_PAUSE.pause(self._busy)
        self.waits_for = str(error)
        self.log.info("Something else is under way, tried again in %g s: %s", pause, error)
        return pause

    def forget(self) -> None:
        self.cloud.facts.forget()

    def moved(self) -> None:
        self._operation = self._why = None

    # -- waiting for it --

    def lets_go_on(self, record: arm.VmRecord | None) -> bool:
        return record is None or record.status in (arm.FAILED, arm.DELETING) or self._is_up(record)

    def _is_up(self, record: arm.VmRecord) -> bool:
        return record.status == arm.SUCCEEDED and record.addresses != arm.Addresses()

    def seen(self, record: arm.VmRecord) -> Instance | bool:
        if record.status == arm.FAILED:
            return self._failed(record)
        if record.status == arm.DELETING:
            raise self.gone()
        if not self._is_up(record):
            return False
        self.settled()
        return self.cloud.instance(record)

    def _failed(self, record: arm.VmRecord) -> bool:
        """Ask why, then raise the answer."""
        head = f"{self.where}: VM {record.id} failed"
        if self._why is None:
            operation, client = self._operation, self.cloud.client
            self._why = self.cloud.others.submit(client.vm_failure, record.id, operation, head)
            self._why.add_done_callback(lambda _: self.wake())
        if not self._why.done():
            return False
        error = self._why.exception() or self._why.result()
        if isinstance(error, CloudQuota):
            raise error
        if isinstance(error, CloudNoCapacity):
            raise CloudNoCapacityLater(str(error)) from error
        text = "Azure gives no reason" if error is None else str(error)
        raise LaunchStatusException(text if text.startswith(head) else f"{head}: {text}") from error

    def gone(self) -> Exception:
        if self.places and self.places[0].spot:
            return CloudNoCapacityLater(
                f"{self.where}: spot VM {self.record_id} was evicted by Azure, or deleted by others"
            )
        return super().gone()


# What a VM is to be like: the body of the PUT that makes it, its network interface, its addresses and its disk (AZ-4,
# AZ-5). Pure functions, but for a random password.

PASSWORD_LENGTH: Final = 64
#: What the names of tags must not have.
_NOT_IN_TAGS: Final = str.maketrans(dict.fromkeys("<>%&\\?/", "_"))
MAX_TAG_VALUE: Final = 256


def vm_tags(label: AzureLabel, metadata: Mapping[str, str], request: NodeRequest | None, log: Log) -> dict[str, str]:
    """Tags: the label's, the dynamic ones, and what says whose it is; the later one wins (CM-2)."""
    tags = {**label.tags, **dynamic_values(label, "dynamic-tags", request, log), **metadata}
    return {name.translate(_NOT_IN_TAGS): value[:MAX_TAG_VALUE] for name, value in tags.items()}


def generated_password() -> str:
    """Letters and digits; Azure wants three kinds of characters."""
    random = (secrets.choice(string.ascii_letters + string.digits) for _ in range(PASSWORD_LENGTH - 3))
    return "aA0" + "".join(random)


def vm_body(
    name: str,
    hostname: str,
    label: AzureLabel,
    place: VmPlace,
    image: Mapping[str, str],
    subnet_id: str,
    tags: Mapping[str, str],
) -> dict[str, Any]:
    """The body.

    :param name: of the VM.
    :param hostname: what the VM calls itself. Windows takes 15 characters, which names of later creations exceed.
    :param image: ``imageReference``.
    """
    config = label.pool.provider
    disk: dict[str, Any] = {"name": disk_name(name, config.name), "createOption": "FromImage", "deleteOption": "Delete"}
    if label.volume_size:
        disk["diskSizeGB"] = label.volume_size
    source = label.diskimage or label.cloud_image
    assert source is not None
    properties: dict[str, Any] = {
        "hardwareProfile": {"vmSize": place.size},
        "storageProfile": {"imageReference": dict(image), "osDisk": disk},
        "osProfile": _os_profile(hostname, source),
        "networkProfile": {
            "networkApiVersion": arm.NETWORK_VERSION,
            "networkInterfaceConfigurations": [_interface(name, label.pool, subnet_id, tags)],
        },
    }
    if label.console_log:
        # Azure keeps it itself.
        properties["diagnosticsProfile"] = {"bootDiagnostics": {"enabled": True}}
    if label.custom_data:
        properties["osProfile"]["customData"] = _encoded(label.custom_data)
    if label.user_data:
        properties["userData"] = _encoded(label.user_data)
    if place.spot:
        properties |= {"priority": "Spot", "evictionPolicy": "Delete", "billingProfile": {"maxPrice": -1}}
    body: dict[str, Any] = {"location": config.location, "tags": dict(tags), "properties": properties}
    if place.zone:
        body["zones"] = [place.zone]
    return body


def _os_profile(hostname: str, image: AzureImageSettings) -> dict[str, Any]:
    profile: dict[str, Any] = {"computerName": hostname, "adminUsername": image.username}
    if image.ssh_key:
        path = f"/home/{image.username}/.ssh/authorized_keys"
        profile["linuxConfiguration"] = {
            "ssh": {"publicKeys": [{"path": path, "keyData": image.ssh_key}]},
            "disablePasswordAuthentication": True,
        }
    if image.password:
        profile["adminPassword"] = image.password
    elif image.generate_password:
        profile["adminPassword"] = generated_password()
    return profile


def _interface(name: str, pool: AzurePool, subnet_id: str, tags: Mapping[str, str]) -> dict[str, Any]:
    """One interface with a configuration for each family of addresses."""
    configurations: list[dict[str, Any]] = []
    for wanted, public, version in ((pool.ipv4, pool.public_ipv4, "v4"), (pool.ipv6, pool.public_ipv6, "v6")):
        if not wanted:
            continue
        properties: dict[str, Any] = {
            "subnet": {"id": subnet_id},
            "privateIPAddressVersion": f"IP{version}",
            # Of several one must be.
            "primary": not configurations,
        }
        if public:
            properties["publicIPAddressConfiguration"] = {
                "name": f"{name}-{version}-ip",
                "sku": {"name": "Standard", "tier": "Regional"},
                "properties": {
                    "deleteOption": "Delete",
                    "publicIPAllocationMethod": "Static",
                    "publicIPAddressVersion": f"IP{version}",
                },
                "tags": dict(tags),
            }
        configurations.append({"name": f"{name}-{version}-config", "properties": properties})
    return {
        "name": interface_name(name),
        "properties": {"primary": True, "deleteOption": "Delete", "ipConfigurations": configurations},
        "tags": dict(tags),
    }


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
