# SPDX-License-Identifier: Apache-2.0
"""What Compute Engine says, as small values: only what the driver uses. `FIELDS` names what is asked for.

After these values come ownership in labels, and names of instances and images.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.statemachine.instance import POOL_KEY, PROVIDER_KEY
from nodepool.driver.statemachine.inventory import CloudRecord

if TYPE_CHECKING:
    from nodepool.driver.statemachine import CreationKey

RUNNING: Final = "RUNNING"
DONE: Final = "DONE"
READY: Final = "READY"
DELETING: Final = "DELETING"
#: Code of the warning that a list of all zones has for a zone that does not answer.
UNREACHABLE: Final = "UNREACHABLE"
#: States of an instance that comes up, in their order; then it is RUNNING.
COMING: Final = frozenset({"PENDING", "PROVISIONING", "STAGING"})
#: States of an instance that somebody stopped or that is being deleted.
ENDING: Final = frozenset(
    {"PENDING_STOP", "STOPPING", "DEPROVISIONING", "TERMINATED", "STOPPED", "SUSPENDING", "SUSPENDED"}
)
#: ``operationType`` of what takes a spot instance away.
PREEMPTED: Final = "compute.instances.preempted"

#: Of each entry of a list, as ``fields`` of Google's APIs names them.
INSTANCE_FIELDS: Final = (
    "name,zone,status,machineType,labels,scheduling(provisioningModel,preemptible),"
    "networkInterfaces(networkIP,accessConfigs(natIP))"
)
OPERATION_FIELDS: Final = "name,zone,targetLink,status,statusMessage,httpErrorStatusCode,error"
DISK_FIELDS: Final = "name,zone,labels,users,status"
ADDRESS_FIELDS: Final = "name,labels,users,status"
IMAGE_FIELDS: Final = "name,selfLink,status,labels,diskSizeGb"
MACHINE_FIELDS: Final = "name,guestCpus,memoryMb"


def name_of(link: str | None) -> str:
    """The last part of a link; "" = there is none."""
    return (link or "").rpartition("/")[2]


class GceRecord(CloudRecord):
    """An instance as a list shows it: a record of the inventory (GC-5, GC-6). ``id`` has zone and name.

    What is gone is in no list; what is stopped costs its disk.
    """

    def __init__(self, data: Mapping[str, Any], labels: LabelReader) -> None:
        scheduling = data.get("scheduling") or {}
        interface: Mapping[str, Any] = next(iter(data.get("networkInterfaces") or ()), {})
        access: Mapping[str, Any] = next(iter(interface.get("accessConfigs") or ()), {})
        self.name: str = data["name"]
        self.zone = name_of(data.get("zone"))
        self.id = record_id(self.zone, self.name)
        self.status: str = data.get("status") or ""
        self.metadata = labels.metadata(data.get("labels"))
        self.machine_type = name_of(data.get("machineType"))
        self.spot = scheduling.get("provisioningModel") == "SPOT" or bool(scheduling.get("preemptible"))
        self.public_ipv4: str | None = access.get("natIP") or None
        self.private_ipv4: str | None = interface.get("networkIP") or None


class Operation(CloudRecord):
    """Something that Compute Engine works on. ``data`` is as it is shown, for errors."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.name: str = data["name"]
        self.zone = name_of(data.get("zone"))
        self.target = name_of(data.get("targetLink"))
        self.done = data.get("status") == DONE
        self.data = data


class Leftover(CloudRecord):
    """A disk or an address, which is in no zone. ``used``: an instance has it."""

    def __init__(self, data: Mapping[str, Any], labels: LabelReader) -> None:
        self.name: str = data["name"]
        self.zone = name_of(data.get("zone"))
        self.metadata = labels.metadata(data.get("labels"))
        self.used = bool(data.get("users")) or data.get("status") == "IN_USE"


class MachineType(CloudRecord):
    """A machine type of a zone (GC-7). ``series``, such as ``n2d``, is in the name of its quota."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.series: str = data["name"].partition("-")[0].lower()
        self.cores = int(data.get("guestCpus") or 0)
        self.ram_mib = int(data.get("memoryMb") or 0)


class GceImage(CloudRecord):
    """An image of the project."""

    def __init__(self, data: Mapping[str, Any], labels: LabelReader) -> None:
        self.name: str = data["name"]
        self.link: str = data.get("selfLink") or ""
        self.status: str = data.get("status") or ""
        self.metadata = labels.metadata(data.get("labels"))
        self.size_gib = int(data.get("diskSizeGb") or 0)


# Ownership in labels of Compute Engine, whose values are small letters, digits, ``_`` and ``-``, at most 63. Pure
# functions.
#
# A value that is none, such as a provider's name with a dot, is changed, and its hash is added. With the names of
# provider and pools at hand it is recognised.

_VALUE: Final = re.compile(r"[a-z0-9_-]{0,63}")
_NOT_IN_VALUES: Final = re.compile(r"[^a-z0-9_-]")
_MOST: Final = 63
_HASH: Final = 12


def label_value(text: str) -> str:
    """A text as the value of a label."""
    if _VALUE.fullmatch(text):
        return text
    digits = hashlib.sha256(text.encode()).hexdigest()[:_HASH]
    return f"{_NOT_IN_VALUES.sub('-', text.lower())[: _MOST - _HASH - 1]}-{digits}"


def labels_of(metadata: Mapping[str, str]) -> dict[str, str]:
    """Metadata as labels; keys are ours, and fit."""
    return {key: label_value(value) for key, value in metadata.items()}


class LabelReader:
    """Reads what `labels_of` wrote.

    :param provider: its name; ``pools`` the names of its pools.
    """

    def __init__(self, provider: str, pools: Iterable[str]) -> None:
        self._provider = provider
        self._known = {
            PROVIDER_KEY: {label_value(provider): provider},
            POOL_KEY: {label_value(pool): pool for pool in pools},
        }

    def metadata(self, labels: Mapping[str, str] | None) -> dict[str, str]:
        """What labels say of the owner; empty = nothing."""
        found = {key: value for key, value in (labels or {}).items() if key.startswith("nodepool_")}
        return {key: self._known.get(key, {}).get(value, value) for key, value in found.items()}

    @property
    def own_filter(self) -> str:
        """A filter of lists: what this provider labelled."""
        return f'labels.{PROVIDER_KEY}="{label_value(self._provider)}"'


# Names of instances and images, and ids of requests. Pure functions.

#: Of an image: a small letter first, then small letters, digits and ``-``.
_IMAGE_NAME: Final = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
_NOT_IN_NAMES: Final = re.compile(r"[^-a-z0-9]")


def request_id(key: CreationKey, zone: str) -> str:
    """What makes Compute Engine know a call again: a UUID, the same for the same creation in the same zone."""
    return str(uuid.UUID(hashlib.sha256(f"{key.text}\0{zone}".encode()).hexdigest()[:32], version=4))


def image_name(name: str) -> str:
    """The name of an image in Compute Engine, for that of an upload."""
    if _IMAGE_NAME.fullmatch(name):
        return name
    digits = hashlib.sha256(name.encode()).hexdigest()[:_HASH]
    head = _NOT_IN_NAMES.sub("-", name.lower())[: 60 - _HASH].strip("-")
    return f"{head}-{digits}" if head[:1].isalpha() else f"i-{head}-{digits}".replace("--", "-")


def record_id(zone: str, name: str) -> str:
    """Of an instance: names are unique in a zone."""
    return f"{zone}/{name}"


def zone_and_name(record_id: str) -> tuple[str, str]:
    """What `record_id` was made of."""
    zone, _, name = record_id.rpartition("/")
    return zone, name
