# SPDX-License-Identifier: Apache-2.0
"""What Compute Engine says, as small values: only what the driver uses. `FIELDS` names what is asked for.

After these values come ownership in labels, and names of instances and images.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nodepool.driver.statemachine.instance import POOL_KEY, PROVIDER_KEY

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
OPERATION_FIELDS: Final = "name,zone,operationType,targetLink,status,statusMessage,httpErrorStatusCode,error"
DISK_FIELDS: Final = "name,zone,labels,users,status"
ADDRESS_FIELDS: Final = "name,labels,users,status"
IMAGE_FIELDS: Final = "name,selfLink,status,labels,diskSizeGb,archiveSizeBytes,deprecated(state)"
MACHINE_FIELDS: Final = "name,guestCpus,memoryMb"


def name_of(link: str | None) -> str:
    """The last part of a link; "" = there is none."""
    return (link or "").rpartition("/")[2]


class GceRecord(NamedTuple):
    """An instance as a list shows it: a record of the inventory (GC-5, GC-6). ``id`` has zone and name."""

    id: str
    name: str
    zone: str
    status: str
    metadata: Mapping[str, str]
    machine_type: str
    spot: bool
    public_ipv4: str | None
    private_ipv4: str | None
    #: Compute Engine does not list what changed.
    updated: str = ""

    @property
    def gone(self) -> bool:
        """What is gone is in no list; what is stopped costs its disk."""
        return False

    @classmethod
    def of(cls, data: Mapping[str, Any], labels: LabelReader) -> GceRecord:
        scheduling = data.get("scheduling") or {}
        interface: Mapping[str, Any] = next(iter(data.get("networkInterfaces") or ()), {})
        access: Mapping[str, Any] = next(iter(interface.get("accessConfigs") or ()), {})
        zone = name_of(data.get("zone"))
        return cls(
            id=record_id(zone, data["name"]),
            name=data["name"],
            zone=zone,
            status=data.get("status") or "",
            metadata=labels.metadata(data.get("labels")),
            machine_type=name_of(data.get("machineType")),
            spot=scheduling.get("provisioningModel") == "SPOT" or bool(scheduling.get("preemptible")),
            public_ipv4=access.get("natIP") or None,
            private_ipv4=interface.get("networkIP") or None,
        )


class Operation(NamedTuple):
    """Something that Compute Engine works on. ``data`` is as it is shown, for errors."""

    name: str
    zone: str
    kind: str
    target: str
    done: bool
    data: Mapping[str, Any]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Operation:
        return cls(
            name=data["name"],
            zone=name_of(data.get("zone")),
            kind=data.get("operationType") or "",
            target=name_of(data.get("targetLink")),
            done=data.get("status") == DONE,
            data=data,
        )


class Leftover(NamedTuple):
    """A disk or an address. ``zone`` is "" for an address."""

    name: str
    zone: str
    metadata: Mapping[str, str]
    #: An instance has it.
    used: bool

    @classmethod
    def of(cls, data: Mapping[str, Any], labels: LabelReader) -> Leftover:
        used = bool(data.get("users")) or data.get("status") == "IN_USE"
        return cls(data["name"], name_of(data.get("zone")), labels.metadata(data.get("labels")), used)


class MachineType(NamedTuple):
    """A machine type of a zone (GC-7)."""

    name: str
    cores: int
    ram_mib: int

    @property
    def series(self) -> str:
        """E.g. ``n2d``; its quota has that name."""
        return self.name.partition("-")[0].lower()

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> MachineType:
        return cls(data["name"], int(data.get("guestCpus") or 0), int(data.get("memoryMb") or 0))


class GceQuota(NamedTuple):
    """A quota of the region or of the project."""

    metric: str
    limit: float
    used: float

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> GceQuota:
        return cls(str(data.get("metric") or ""), float(data.get("limit") or 0), float(data.get("usage") or 0))


class GceImage(NamedTuple):
    """An image of the project."""

    name: str
    link: str
    status: str
    metadata: Mapping[str, str]
    size_gib: int
    archive_bytes: int

    @classmethod
    def of(cls, data: Mapping[str, Any], labels: LabelReader) -> GceImage:
        return cls(
            name=data["name"],
            link=data.get("selfLink") or "",
            status=data.get("status") or "",
            metadata=labels.metadata(data.get("labels")),
            size_gib=int(data.get("diskSizeGb") or 0),
            archive_bytes=int(data.get("archiveSizeBytes") or 0),
        )


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
