# SPDX-License-Identifier: Apache-2.0
"""`AzureCreation`: the launch of one VM."""

from __future__ import annotations

import base64
import secrets
import string
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.azure import machines
from nodepool.driver.azure.client import NETWORK_VERSION
from nodepool.driver.azure.errors import CloudBusy
from nodepool.driver.azure.facts import VmPlace, places_of
from nodepool.driver.azure.machines import AzureDeletion, AzureInstance, AzureMachines
from nodepool.driver.azure.types import DELETING, FAILED, SUCCEEDED, Addresses, VmRecord
from nodepool.driver.framework.cloud_errors import (
    CloudNoCapacity,
    CloudNoCapacityLater,
    CloudQuota,
    CloudRefused,
    nothing_sent,
)
from nodepool.driver.framework.key_schema import dynamic_value
from nodepool.driver.statemachine import CreationKey, CreationMachine, Instance
from nodepool.driver.statemachine.instance import is_of
from nodepool.exceptions import LaunchError, LaunchStatusException
from nodepool.plan.retries import Backoff

if TYPE_CHECKING:
    from nodepool.driver.azure.config import AzureCloudImage, AzureDiskImage, AzureLabel, AzurePool
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.model.request import NodeRequest

#: Status of HTTP: there is a VM of the name.
_EXISTS: Final = 412
#: Pauses of a creation that something else is in the way of, and how many; Azure reserves an interface for 180 s.
BUSY_PAUSE: Final = Backoff(2.0, 30.0)
BUSY_TIMES: Final = 9


class AzureCreation(CreationMachine[VmRecord]):
    """Makes a VM and waits until it can be reached. A creation without an answer is sent again: its name is its key.

    :param image_name: of the upload; None = the label's cloud image.
    :param az: the zone of a node that the request has already.
    """

    idempotent = True

    cloud: AzureMachines

    def __init__(
        self,
        cloud: AzureMachines,
        hostname: str,
        label: AzureLabel,
        image_name: str | None,
        metadata: Mapping[str, str],
        request: NodeRequest | None,
        az: str | None,
        log: Log,
    ) -> None:
        super().__init__(cloud, label.name, metadata, log)
        self._hostname = hostname
        self._label = label
        self._image_name = image_name
        self._request = request
        self._az = az
        self._tags = vm_tags(label, metadata, request, log)
        #: Where to try it, the present one first. One thread at a time works on it.
        self._places: list[VmPlace] = []
        #: Address of the operation, if Azure told.
        self._operation: str | None = None
        #: How often something else was in the way.
        self._busy = 0
        #: Asks why the VM failed.
        self._why: Future[Exception | None] | None = None

    # -- making it --

    def create(self, key: CreationKey) -> str:
        # Azure keeps the name of a network interface for 180 s after a failure, and may still show the VM of before.
        name = key.name(self._hostname)
        if not self._places:
            self._places = self.cloud.places.to_try(places_of(self._label), self._request, self._az)
        while True:
            try:
                return self._create_at(self._places[0], name)
            except CloudNoCapacity as error:
                if not self._another_place(error):
                    raise

    def _another_place(self, error: Exception) -> bool:
        """The present place has no capacity. Is there another one?"""
        self.cloud.places.no_room_for(self._places[0], self._request)
        if len(self._places) == 1:
            return False
        self.log.info("No capacity for %s, trying %s: %s", self._places[0], self._places[1], error)
        del self._places[0]
        return True

    def _create_at(self, place: VmPlace, name: str) -> str:
        facts, config = self.cloud.facts, self.cloud.config
        with nothing_sent():
            image = facts.image_reference(self._label, self._image_name)
            subnet = facts.subnet_id()
        body = vm_body(
            name, self._hostname, config.name, config.location, self._label, place, image, subnet, self._tags
        )
        try:
            self._operation = self.cloud.client.create_vm(name, body, self._permit_at(place))
        except CloudRefused as error:
            if error.status != _EXISTS:
                raise
            # Of an order of ours that was not answered, or of somebody else.
            found = self.cloud.client.vm(name)
            if not is_of(found.metadata, self.metadata):
                raise
            self.log.info("VM %s was made by an order that was not answered", name)
        return name.lower()

    def _permit_at(self, place: VmPlace) -> Callable[[], None]:
        def permit() -> None:
            self.permit()
            # Where another launch found no capacity meanwhile, if there is another place.
            if len(self._places) > 1 and self.cloud.places.rests(place):
                raise CloudNoCapacity(
                    f"{self.where}: there was no capacity for another launch", code="AllocationFailed"
                )

        return permit

    def put_off(self, error: Exception) -> float | None:
        if not isinstance(error, CloudBusy) or self._busy >= BUSY_TIMES:
            return None
        self._busy += 1
        pause = BUSY_PAUSE.pause(self._busy)
        self.waits_for = str(error)
        self.log.info("Something else is under way, tried again in %g s: %s", pause, error)
        return pause

    def refused(self, error: Exception) -> Exception:
        if isinstance(error, CloudRefused) and not isinstance(error, (CloudQuota, CloudNoCapacity)):
            # What it was to be made of may be gone, or another one now.
            self.cloud.facts.forget()
        return error

    def begin_anew(self, error: LaunchError) -> float | None:
        # What shows at once `create` has looked at.
        if not isinstance(error, CloudNoCapacityLater) or not self._another_place(error):
            return None
        self._operation = self._why = None
        return 0.0

    def discard(self, record_id: str) -> AzureDeletion:
        return AzureDeletion(self.cloud, record_id, self.log, self.clock)

    # -- waiting for it --

    def lets_go_on(self, record: VmRecord | None) -> bool:
        return record is None or record.status in (FAILED, DELETING) or self._is_up(record)

    def _is_up(self, record: VmRecord) -> bool:
        return record.status == SUCCEEDED and record.addresses != Addresses()

    def seen(self, record: VmRecord) -> Instance | bool:
        if record.status == FAILED:
            return self._failed(record)
        if record.status == DELETING:
            raise self.gone()
        if not self._is_up(record):
            return False
        if self._places:
            self.cloud.places.made(self._places[0], self._request)
        return AzureInstance(record, self.cloud.limits.use_of(record))

    def _failed(self, record: VmRecord) -> bool:
        """Ask why, then raise the answer."""
        head = f"{self.where}: VM {record.id} failed"
        if self._why is None:
            operation, client = self._operation, self.cloud.client
            self._why = self.submit(lambda: client.vm_failure(record.id, operation, head))
            self._why.add_done_callback(lambda _: self.wake())
        if not self._why.done():
            return False
        error = self._why.exception() or self._why.result()
        raise self._meaning(head, error) from error

    def _meaning(self, head: str, error: BaseException | None) -> Exception:
        """The error of a launch whose VM failed."""
        if isinstance(error, CloudQuota):
            return error
        if isinstance(error, CloudNoCapacity):
            return CloudNoCapacityLater(str(error))
        if error is None:
            return LaunchStatusException(f"{head}: Azure gives no reason")
        text = str(error)
        return LaunchStatusException(text if text.startswith(head) else f"{head}: {text}")

    def gone(self) -> Exception:
        if self._places and self._places[0].spot:
            return CloudNoCapacityLater(
                f"{self.where}: spot VM {self.record_id} was evicted by Azure, or somebody deleted it"
            )
        return super().gone()


# What a VM is to be like: the body of the PUT that makes it, its network interface, its addresses and its disk (AZ-4,
# AZ-5). Pure, but for a password that nobody knows.

PASSWORD_LENGTH: Final = 64
#: Azure wants three kinds of characters.
_KINDS: Final = (string.ascii_lowercase, string.ascii_uppercase, string.digits)
#: What the names of tags must not have.
_NOT_IN_TAGS: Final = str.maketrans(dict.fromkeys("<>%&\\?/", "_"))
MAX_TAG_VALUE: Final = 256


def vm_tags(label: AzureLabel, metadata: Mapping[str, str], request: NodeRequest | None, log: Log) -> dict[str, str]:
    """Tags: the label's, the dynamic ones, and what says whose it is; the later one wins (CM-2)."""
    tags = dict(label.tags)
    for name, template in label.dynamic_tags.items():
        value = dynamic_value(template, request)
        if value is None:
            log.error("Label %s: dynamic-tags: %s cannot be formatted; it is left out", label.name, name)
        else:
            tags[name] = value
    return {name.translate(_NOT_IN_TAGS): value[:MAX_TAG_VALUE] for name, value in {**tags, **metadata}.items()}


def generated_password() -> str:
    """Letters and digits, of each kind at least one."""
    while True:
        password = "".join(secrets.choice("".join(_KINDS)) for _ in range(PASSWORD_LENGTH))
        if all(set(password) & set(kind) for kind in _KINDS):
            return password


def vm_body(
    name: str,
    hostname: str,
    provider: str,
    location: str,
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
    disk: dict[str, Any] = {
        "name": machines.disk_name(name, provider),
        "createOption": "FromImage",
        "deleteOption": "Delete",
    }
    if label.volume_size:
        disk["diskSizeGB"] = label.volume_size
    source = label.diskimage or label.cloud_image
    assert source is not None
    properties: dict[str, Any] = {
        "hardwareProfile": {"vmSize": place.size},
        "storageProfile": {"imageReference": dict(image), "osDisk": disk},
        "osProfile": _os_profile(hostname, source),
        "networkProfile": {
            "networkApiVersion": NETWORK_VERSION,
            "networkInterfaceConfigurations": [_interface(name, label.pool, subnet_id, tags)],
        },
    }
    if label.custom_data:
        properties["osProfile"]["customData"] = _encoded(label.custom_data)
    if label.user_data:
        properties["userData"] = _encoded(label.user_data)
    if place.spot:
        properties |= {"priority": "Spot", "evictionPolicy": "Delete", "billingProfile": {"maxPrice": -1}}
    body: dict[str, Any] = {"location": location, "tags": dict(tags), "properties": properties}
    if place.zone:
        body["zones"] = [place.zone]
    return body


def _os_profile(hostname: str, image: AzureCloudImage | AzureDiskImage) -> dict[str, Any]:
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
        "name": machines.interface_name(name),
        "properties": {"primary": True, "deleteOption": "Delete", "ipConfigurations": configurations},
        "tags": dict(tags),
    }


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
