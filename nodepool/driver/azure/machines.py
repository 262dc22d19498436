# SPDX-License-Identifier: Apache-2.0
"""VMs of one provider: how they are listed and deleted."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from nodepool.clock import monotonic
from nodepool.driver.azure.client import CALL_SECONDS, VMS, Arm
from nodepool.driver.azure.errors import CloudBusy
from nodepool.driver.azure.facts import VmPlace
from nodepool.driver.azure.types import (
    CREATING,
    DELETING,
    SUCCEEDED,
    Addresses,
    Interface,
    PublicAddress,
    VmRecord,
    addresses_of,
    by_id,
    name_of,
)
from nodepool.driver.framework.cloud_errors import CloudNotFound, CloudRefused, CloudSetup
from nodepool.driver.framework.orders import Batches
from nodepool.driver.framework.places import ZonePlaces
from nodepool.driver.statemachine import DeletionMachine, Instance, InstanceCloud
from nodepool.driver.statemachine.instance import NODE_KEY, PROVIDER_KEY, mark_of, of_mark
from nodepool.exceptions import LaunchError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nodepool.driver.azure.config import AzureProviderConfig
    from nodepool.driver.azure.facts import AzureFacts, SubscriptionLimits
    from nodepool.model.quota import QuotaInformation

log = logging.getLogger("nodepool.driver.azure.machines")

#: While more VMs are being made, addresses are looked up so often at most, in seconds.
LOOK_UP_SECONDS: Final = 1.0
#: Names of spot VMs that are remembered; with more of them those that are gone are forgotten.
MOST_SPOT: Final = 5000
#: Why a VM is gone. Azure does not tell it of VMs that are deleted.
EVICTED: Final = "SpotEviction"
DELETED: Final = "NotFound"


class AzureMachines(InstanceCloud[VmRecord]):
    """What launches and deletions of one provider share."""

    # New VMs may be missing in lists for some time, and deleted ones be in them.
    lag_seconds = 10.0
    # An answer may take twice as long as each of its parts.
    call_seconds = 2 * CALL_SECONDS
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

    def __init__(self, config: AzureProviderConfig, client: Arm, facts: AzureFacts, limits: SubscriptionLimits) -> None:
        super().__init__(config.name)
        self.config = config
        self.client = client
        self.facts = facts
        self.limits = limits
        self.places: ZonePlaces[VmPlace] = ZonePlaces()
        #: Addresses of VMs, which do not change, by ``vm_id``. It is never replaced: one thread may list while another
        #: one looks at a VM.
        self._addresses: dict[str, Addresses] = {}
        #: Names of spot VMs of ours that a list has shown, the latest last. The same thread changes it.
        self._spot: dict[str, None] = {}
        self._looked_up_at = float("-inf")
        self._proofs: Batches[str] = Batches(AbsenceProof(client).look, self.others, MANY)

    def list_instances(self, since: str | None) -> list[VmRecord]:
        records = self.client.vms()
        self._note_spot(records)
        unknown = [record for record in records if self._may_have_addresses(record)]
        ready = [record for record in unknown if record.status == SUCCEEDED]
        if len(ready) == 1 and len(unknown) <= self.looks_singly:
            self._look_up_one(ready[0])
        elif ready and (self._looked_up_at + LOOK_UP_SECONDS <= monotonic() or len(ready) == len(unknown)):
            self._looked_up_at = monotonic()
            self._look_up(unknown)
        there = {record.vm_id for record in records}
        for vm_id in self._addresses.keys() - there:
            self._addresses.pop(vm_id, None)
        return [self._with_addresses(record) for record in records]

    def look_at(self, record_id: str) -> VmRecord:
        record = self.client.vm(record_id)
        if record.status == SUCCEEDED and self._may_have_addresses(record):
            self._look_up_one(record)
        return self._with_addresses(record)

    def _with_addresses(self, record: VmRecord) -> VmRecord:
        # While it is being made its addresses are no news: whoever waits for it would look at it for nothing.
        known = self._addresses.get(record.vm_id) if record.status != CREATING else None
        return record if known is None else record._replace(addresses=known)

    def _note_spot(self, records: list[VmRecord]) -> None:
        self._spot |= {record.id: None for record in records if record.spot and self._is_ours(record)}
        if len(self._spot) > MOST_SPOT:
            there = {record.id for record in records}
            self._spot = {name: None for name in self._spot if name in there}

    def why_lost(self, name: str) -> tuple[str, str]:
        """Why a VM is in no list any more that nobody here deleted: code and text. Any thread; does not block."""
        if name in self._spot:
            return EVICTED, f"spot VM {name} is gone: Azure evicted it, or others deleted it"
        return DELETED, f"VM {name} is gone: somebody deleted it, or Azure evicted it if it was a spot VM"

    def record_id(self, external_id: Any) -> str | None:
        # Azure names things without regard to case.
        found = super().record_id(external_id)
        return None if found is None else found.lower()

    def why_ended(self, record: VmRecord) -> tuple[str, str] | None:
        if record.status != DELETING:
            return None
        if record.spot:
            return EVICTED, f"spot VM {record.id} is being deleted: Azure evicted it, or others deleted it"
        return DELETED, f"VM {record.id} is being deleted"

    def _is_ours(self, record: VmRecord) -> bool:
        return record.metadata.get(PROVIDER_KEY) == self.provider

    def _may_have_addresses(self, record: VmRecord) -> bool:
        """Has a VM addresses that are not known? Its interface is made first, so a VM may have them long before it is
        ready."""
        return record.status in (CREATING, SUCCEEDED) and record.vm_id not in self._addresses and self._is_ours(record)

    def _look_up(self, records: list[VmRecord]) -> None:
        """Two lists for all VMs that have become ready since the last time, and for those that are about to."""
        interfaces = {interface.id: interface for interface in self.client.interfaces()}
        wanted = (interfaces.get(record.interface_id) for record in records)
        public = by_id(self.client.addresses()) if any(one.public_ids for one in wanted if one is not None) else {}
        for record in records:
            self._note_addresses(record, interfaces.get(record.interface_id), public)

    def _look_up_one(self, record: VmRecord) -> None:
        """The same for one VM: its interface and its public addresses alone."""
        try:
            interface = self.client.interface(name_of(record.interface_id))
            public = by_id([self.client.address(name_of(public_id)) for public_id in interface.public_ids])
        except CloudNotFound as error:
            log.debug("Provider %s: the addresses of VM %s are not there yet: %s", self.provider, record.id, error)
        else:
            self._note_addresses(record, interface, public)

    def _note_addresses(
        self, record: VmRecord, interface: Interface | None, public: Mapping[str, PublicAddress]
    ) -> None:
        found = None if interface is None else addresses_of(interface, public)
        if found is not None:
            self._addresses[record.vm_id] = found

    def get_instance(self, record_id: str) -> VmRecord:
        # Its addresses are in the next list.
        return self.client.vm(record_id)

    def begin_proof(self, record_id: str) -> Future[VmRecord | None]:
        # Batches tell of errors only: that it is there still is no news.
        proof: Future[Any] = self._proofs.add(record_id)
        return proof

    def delete_instance(self, record_id: str) -> None:
        self.client.delete(VMS, record_id)

    def close(self) -> None:
        self.client.close()


class AzureDeletion(DeletionMachine[VmRecord]):
    """Deletes a VM, and with it what was made with it, and waits until it is gone."""

    def begun(self, record: VmRecord) -> bool:
        return record.status == DELETING

    def busy(self, error: LaunchError) -> bool:
        # What is in the way of a deletion will end, but for what an operator has to change.
        if not isinstance(error, CloudRefused) or isinstance(error, CloudSetup):
            return False
        return error.status == 409 or isinstance(error, CloudBusy)


# Are VMs gone that lists do not show any more? Lists of Azure are late, so that alone proves nothing (AZ-11, CM-7).

#: So many VMs are asked for one by one: the answer 404 is the proof.
FEW: Final = 1
#: From one of these calls to the next, in seconds.
PAUSE_SECONDS: Final = 1.5
#: VMs that one list of interfaces proves to be gone.
MANY: Final = 1000


class AbsenceProof:
    """For VMs that were in lists, whose deletion was accepted, and that a later list lacks.

    A VM cannot be without its network interface, and the interface says which VM it belongs to. So a VM that the list
    of VMs lacks, and to which no interface belongs, is gone: two services of Azure say so. For many VMs that is one
    call instead of one for each. All methods block; any thread may call them.
    """

    def __init__(self, client: Arm, clock: Callable[[], float] = monotonic) -> None:
        self._client = client
        self._clock = clock
        #: When the last call of a proof began. One thread at a time uses it.
        self._looked_at = float("-inf")

    def look(self, take: Callable[[], list[str]]) -> Mapping[str, Exception]:
        """For `nodepool.driver.framework.orders.Batches`: NotFound for each VM that is gone; nothing = not known yet.

        :param take: gives the names of VMs.
        """
        # Those that go meanwhile need no call of their own.
        self._client.calls.pause(self._looked_at + PAUSE_SECONDS - self._clock())
        self._looked_at = self._clock()
        names = take()
        if len(names) <= FEW:
            return {name: error for name in names if (error := self._ask(name)) is not None}
        used = names_used(self._client.interfaces())
        where = f"Provider {self._client.calls.provider}"
        return {
            name: CloudNotFound(f"{where}: {name} is gone, and its interface is free", code="NotFound", status=404)
            for name in names
            if interface_name(name) not in used
        }

    def _ask(self, name: str) -> Exception | None:
        try:
            self._client.vm(name)
        except LaunchError as error:
            return error
        return None


def names_used(interfaces: Iterable[Interface]) -> set[str]:
    """Names, in lower case, of the interfaces that belong to a VM. Pure."""
    return {interface.name.lower() for interface in interfaces if interface.used}


# Names of what is made for a node (AZ-5). Pure.
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


# `AzureInstance`: a VM as the framework sees it (AZ-8).


class AzureInstance(Instance):
    """One VM.

    :param used: what it uses of the quota.
    :param ends: see `Instance`.
    """

    def __init__(self, record: VmRecord, used: QuotaInformation, ends: tuple[str, str] | None = None) -> None:
        super().__init__()
        self.ends = ends
        addresses = record.addresses
        self.ready = record.status == SUCCEEDED
        self.external_id = record.id
        self.metadata = dict(record.metadata)
        self.cloud = "Azure"
        self.region = record.location
        self.az = record.zone
        self.public_ipv4 = addresses.public_ipv4
        self.public_ipv6 = addresses.public_ipv6
        self.private_ipv4 = addresses.private_ipv4
        self.private_ipv6 = addresses.private_ipv6
        self.interface_ip = self.public_ipv4 or self.public_ipv6 or self.private_ipv4 or self.private_ipv6
        self._used = used

    def getQuotaInformation(self) -> QuotaInformation:
        return self._used
