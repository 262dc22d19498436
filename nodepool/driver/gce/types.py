# SPDX-License-Identifier: Apache-2.0
"""What Compute Engine and Cloud Storage say: errors, and small values with only what the driver uses.

First what errors mean, in the words of `nodepool.driver.framework.cloud_errors` (CM-6). An answer has ``{"error":
{"code": 403, "message", "errors": [{"reason", "message"}]}}``; an operation that failed has ``{"error": {"errors":
[{"code": "QUOTA_EXCEEDED", "message", "errorDetails": [...]}]}}``. Then the values, what is asked for, ownership
in labels, and names of instances and images.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from nodepool.driver.framework.cloud_errors import (
    CloudAway,
    CloudNotFound,
    CloudRefused,
    CloudSetup,
    CodedError,
    codes,
    mappings_in,
)
from nodepool.driver.framework.http.rest_calls import CodedApi
from nodepool.driver.statemachine import CreationKey
from nodepool.driver.statemachine.instance import POOL_KEY, PROVIDER_KEY
from nodepool.driver.statemachine.inventory import CloudRecord

if TYPE_CHECKING:
    from nodepool.driver.framework.http.plain_http import HttpAnswer

#: Google says so of a spot instance that it takes away while it is created.
UNSUPPORTED: Final = "UNSUPPORTED_OPERATION"
#: Too many operations are under way: the same succeeds a moment later.
CONCURRENT: Final = frozenset({"CONCURRENT_OPERATIONS_QUOTA_EXCEEDED", "concurrentOperationsQuotaExceeded"})
#: Too many calls: nothing was done.
THROTTLED: Final = CONCURRENT | codes(
    "rateLimitExceeded userRateLimitExceeded RATE_LIMIT_EXCEEDED RESOURCE_OPERATION_RATE_EXCEEDED "
    "resourceOperationRateExceeded"
)
#: Refused only for now: something else is under way.
BUSY: Final = codes(
    "resourceNotReady RESOURCE_NOT_READY resourceInUseByAnotherResource RESOURCE_IN_USE_BY_ANOTHER_RESOURCE"
)
EXISTS: Final = frozenset({"alreadyExists", "RESOURCE_ALREADY_EXISTS", "conflict"})
_ROLE: Final = "give the service account the roles that the documentation of the driver shows"
#: Google does not know a zone: the same code as for a label whose parts do not fit together.
_UNKNOWN_ZONE: Final = "Unknown zone"
#: The project of a path is not there. Nothing else is known of what was asked for.
_NO_PROJECT: Final = re.compile(r"resource 'projects/[^/']+' was not found")
#: JSON has some numbers of Google as texts.
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
#: A limit of calls whose reason is that of a quota.
_RATE_WORDS: Final = re.compile(r"per (?:minute|second|100 seconds)", re.IGNORECASE)


class GceApi(CodedApi):
    """What the answers mean."""

    #: A quota of the project is used up. It may be free again soon, so the launch waits.
    quota = codes("QUOTA_EXCEEDED quotaExceeded IP_SPACE_EXHAUSTED IP_SPACE_EXHAUSTED_WITH_DETAILS limitExceeded")
    #: The zone has no capacity for such an instance. Another zone or machine type may have some.
    capacity = codes(
        "ZONE_RESOURCE_POOL_EXHAUSTED ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS insufficientCapacity "
        "VM_MIN_COUNT_NOT_REACHED"
    )
    capacity_first = True
    throttled_codes = THROTTLED
    #: The credentials are good, but not for this.
    denied = codes("forbidden insufficientPermissions accessNotConfigured PERMISSIONS_ERROR conditionNotMet")
    #: Google has trouble of its own. Who knows what was done?
    away = frozenset({"backendError", "internalError", "INTERNAL_ERROR", "SERVICE_UNAVAILABLE"})
    busy = BUSY
    #: The remedy for each that has one.
    remedies: ClassVar[Mapping[str, str]] = {
        "forbidden": _ROLE,
        "insufficientPermissions": _ROLE,
        "PERMISSIONS_ERROR": _ROLE,
        "accessNotConfigured": "enable the Compute Engine API in the project",
        "conditionNotMet": "a policy of the organization forbids it: change the policy or the label",
        "IP_SPACE_EXHAUSTED": "use a larger subnetwork, or lower max-servers",
        "IP_SPACE_EXHAUSTED_WITH_DETAILS": "use a larger subnetwork, or lower max-servers",
        "invalid": "check instance-type, image, volume-type and volume-size of the label: they do not fit together",
    }
    more_quota = "ask for more under Quotas in the Google Cloud console, or lower max-servers"

    def throttled(self, answer: HttpAnswer) -> bool:
        if answer.status == 429:
            return True
        return answer.status == 403 and any(map(self.is_throttling, self.errors_in(answer.data)))

    def is_throttling(self, error: CodedError) -> bool:
        return error.code in THROTTLED or (self.is_quota(error) and _RATE_WORDS.search(error.message) is not None)

    def remedy_for(self, errors: Sequence[CodedError], status: int) -> str | None:
        if any(_UNKNOWN_ZONE in error.message for error in errors):
            return "correct zone of the provider"
        return super().remedy_for(errors, status)

    def not_found(self, text: str, errors: Sequence[CodedError], code: str) -> CloudRefused:
        # A machine type that is not found is another matter, and a deletion in no project was no success.
        if any(_NO_PROJECT.search(error.message) for error in errors):
            return CloudSetup(f"{text}; correct project", code=code, status=404)
        return CloudNotFound(text, code=code, status=404)

    def errors_in(self, data: Any) -> list[CodedError]:
        """Of an answer or an operation. After a message stands which quota, or which limit of calls, it is about."""
        if isinstance(data, list) and data:
            # Some of Google's servers answer with an array, see googleapiclient.errors.HttpError.
            data = data[0]
        outer = data.get("error") if isinstance(data, dict) else None
        if isinstance(outer, str):
            # As OAuth has it, RFC 6749, 5.2.
            return [CodedError(outer, str(data.get("error_description") or ""))]
        if not isinstance(outer, dict):
            return []
        entries = mappings_in(outer.get("errors"))
        if not entries and isinstance(outer.get("message"), str):
            entries = [{"code": outer.get("status") or outer.get("code"), "message": outer["message"]}]
        found = []
        for number, entry in enumerate(entries):
            about = _metric(entry.get("errorDetails")) or ("" if number else _error_info(outer.get("details")))
            words = (str(entry.get("message") or ""), f"({about})" if about else "")
            code = entry.get("reason") or entry.get("code")
            found.append(CodedError(str(code or ""), " ".join(filter(None, words))))
        return found


def _error_info(details: Any) -> str:
    """What an answer tells beside its reason, e.g. of which limit ``rateLimitExceeded`` is
    (https://cloud.google.com/apis/design/errors, ErrorInfo).
    """
    for detail in mappings_in(details):
        if isinstance(detail.get("reason"), str):
            more = detail.get("metadatas") or detail.get("metadata")
            where = more.get("location") or more.get("quota_location") if isinstance(more, dict) else None
            return f"{detail['reason']} in {where}" if where else detail["reason"]
    return ""


def _metric(details: Any) -> str:
    """A quota, with limit and place, as Google tells it."""
    for detail in mappings_in(details):
        quota = detail.get("quotaInfo")
        if isinstance(quota, dict):
            where = ", ".join(f"{key} {value}" for key, value in (quota.get("dimensions") or {}).items())
            limit = str(quota.get("limit"))
            number = f" is {float(limit):g}" if _NUMBER.fullmatch(limit) else ""
            return f"{quota.get('metricName')}{number}" + (f" in {where}" if where else "")
    return ""


_API: Final = GceApi()
errors_in: Final = _API.errors_in


def operation_failure(head: str, operation: Mapping[str, Any]) -> CloudRefused | CloudAway | None:
    """The exception for an operation that is over; None = it succeeded."""
    errors = errors_in(operation)
    status = operation.get("httpErrorStatusCode")
    return _API.meaning(head, errors, int(status or 0)) if errors or status else None


# What there is in a project, as small values.

RUNNING: Final = "RUNNING"
DONE: Final = "DONE"
READY: Final = "READY"
DELETING: Final = "DELETING"
#: Code of the warning that a list of all zones has for a zone that does not answer.
UNREACHABLE: Final = "UNREACHABLE"
#: States of an instance that others stopped or that is being deleted.
ENDING: Final = codes("PENDING_STOP STOPPING DEPROVISIONING TERMINATED STOPPED SUSPENDING SUSPENDED")
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

    What is deleted is in no list; what is stopped costs its disk.
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
