# SPDX-License-Identifier: Apache-2.0
"""What AWS says: errors, and small values with only what the driver uses.

First what error codes mean, in the words of `nodepool.driver.framework.cloud_errors` (AW-16, CM-6). Then instances,
volumes and images, then snapshots and imports. Then the tag of instances that one call made, the quotas that instances
count against, and how lists of instances are read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final, NamedTuple
from xml.etree import ElementTree

from nodepool.driver.framework import cloud_errors
from nodepool.driver.framework.http.rest_calls import PROXY
from nodepool.driver.statemachine import instance
from nodepool.driver.statemachine.inventory import CloudRecord


class AwsNotFound(cloud_errors.CloudSetup, cloud_errors.CloudNotFound):
    """The object of the call does not exist. In a launch it is something that the configuration names."""


class AwsErrors(cloud_errors.CodedErrors):
    """What the codes mean."""

    #: A limit of the account is used up. It may be free again soon, so the launch waits.
    quota = frozenset(
        {
            *("VcpuLimitExceeded", "InstanceLimitExceeded", "MaxSpotInstanceCountExceeded", "VolumeLimitExceeded"),
            *("MaxIOPSLimitExceeded", "HostLimitExceeded", "SnapshotLimitExceeded", "AddressLimitExceeded"),
            *("NetworkInterfaceLimitExceeded", "ResourceCountLimitExceeded", "PendingSnapshotLimitExceeded"),
            *("ServiceQuotaExceededException", "ConcurrentLimitExceededException", "ConcurrentSnapshotLimitExceeded"),
        }
    )
    #: There is no room in this zone, or none of this type. Others may have some.
    capacity = frozenset(
        {
            *("InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientCapacityOnHost"),
            *("InsufficientFreeAddressesInSubnet", "InsufficientCapacity", "InsufficientAddressCapacity"),
            *("InsufficientVolumeCapacity", "InsufficientReservedInstanceCapacity", "UnfulfillableCapacity"),
            *("SpotMaxPriceTooLow", "Unsupported"),
        }
    )
    #: Too many calls: nothing was done.
    throttled_codes = frozenset(
        {
            *("RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled"),
            *("RequestThrottledException", "EC2ThrottledException", "TooManyRequestsException", "SlowDown"),
            *("BandwidthLimitExceeded", "PriorRequestNotComplete"),
        }
    )
    #: The credentials are not (or no longer) valid: nothing was done.
    login = frozenset(
        {
            *("AuthFailure", "InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch"),
            *("ExpiredToken", "ExpiredTokenException", "RequestExpired", "MissingAuthenticationToken"),
            *("InvalidAccessKeyId", "IncompleteSignature", "Blocked", "PendingVerification", "RequestTimeTooSkewed"),
        }
    )
    #: AWS has trouble of its own. Who knows what was done?
    away = frozenset(
        {
            *("InternalError", "InternalFailure", "InternalServerError", "ServiceUnavailable", "Unavailable"),
            *("RequestTimeout", "RequestTimeoutException", "ServiceException"),
        }
    )
    #: The credentials are good, but not for this.
    denied = frozenset({"UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "OperationNotPermitted"})
    #: The remedy for each that has one.
    remedies: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(denied, "allow it in the IAM policy of the credentials"),
        "AuthFailure": "check the credentials, and the clock of this machine",
        "RequestTimeTooSkewed": "correct the clock of this machine",
        "InvalidKeyPair.NotFound": "correct key-name of the label, or import the key pair in this region",
        "InvalidSubnetID.NotFound": "correct subnet-id of the pool",
        "InvalidSubnet": "correct subnet-id of the pool",
        "InvalidGroup.NotFound": "correct security-group-id of the pool",
        "InvalidGroupId.Malformed": "correct security-group-id of the pool",
        "InvalidAMIID.NotFound": "correct image-id, or upload the image again",
        "InvalidAMIID.Malformed": "correct image-id",
        "InvalidAMIID.Unavailable": "the image does not exist any more: correct image-id, or upload it again",
        "InvalidParameterCombination": "check instance-type, image and volume of the label: they do not fit together",
        "VPCIdNotSpecified": "the account has no default VPC in the region: add subnet-id to the pool",
        "MissingInput": "the account has no default VPC in the region: add subnet-id to the pool",
        "NoSuchBucket": "create the bucket, or correct bucket-name",
        "OptInRequired": "accept the terms of the image in the AWS Marketplace, or enable the region",
        "PendingVerification": "AWS still checks the account",
    }
    more_quota = "ask for more under Service Quotas, or lower max-servers"

    def not_found(self, text: str, errors: Sequence[cloud_errors.CodedError], code: str) -> cloud_errors.CloudRefused:
        return AwsNotFound(text, code=code)


_ERRORS: Final = AwsErrors()
THROTTLED: Final = _ERRORS.throttled_codes
#: In the codes for what is not there, or cannot be there because no id looks like that.
_ABSENT: Final = (".NotFound", ".Malformed", "NoSuch", "ResourceNotFound")
_INSTANCE_IDS: Final = re.compile(r"\bi-[0-9a-f]+\b")


def meaning(head: str, code: str, message: str, status: int) -> cloud_errors.CloudRefused | cloud_errors.CloudAway:
    """The exception for an error that AWS answers with.

    :param head: whose call it was, and which.
    :param status: of HTTP.
    """
    error = cloud_errors.CodedError(code, cloud_errors.one_line(message))
    if not code and status != 429:
        # All errors of AWS have codes. Without one it is the page of a proxy, which proves nothing.
        said = f"{head}: status {status} without a code {error.message}".rstrip()
        return cloud_errors.CloudAway(f"{said}; {PROXY}", code=str(status))
    if status != 429 and status < 500:
        # The code says more.
        status = 404 if any(word in code for word in _ABSENT) else 0
    return _ERRORS.meaning(head, [error], status)


def records_of(reservations: Iterable[Mapping[str, Any]]) -> list[AwsRecord]:
    """The instances of a list of EC2, whose entries are reservations."""
    return [AwsRecord(data) for reservation in reservations for data in reservation.get("Instances") or ()]


def instance_ids_in(text: str) -> set[str]:
    """Ids of instances that an error names."""
    return set(_INSTANCE_IDS.findall(text))


def instance_of_fleet(head: str, answer: Mapping[str, Any]) -> str:
    """The id of the instance of an answer of CreateFleet.

    :param head: whose call it was, and which.
    :raises CloudRefused: there is none: no room if one of the types may have some later, a limit if one of them waits
        for that, else the first error.
    """
    for group in answer.get("Instances") or ():
        for instance_id in group.get("InstanceIds") or ():
            return str(instance_id)
    listed = [(str(one.get("ErrorCode", "")), str(one.get("ErrorMessage", ""))) for one in answer.get("Errors") or ()]
    errors = {(code, text): meaning(head, code, text, 200) for code, text in listed}
    if not errors:
        # What became of it, lists will show.
        raise cloud_errors.CloudAway(f"{head}: the answer has neither an instance nor an error")
    # The first of the best kind.
    kinds = (cloud_errors.CloudNoCapacity, cloud_errors.CloudQuota, Exception)
    chosen = next(error for kind in kinds for error in errors.values() if isinstance(error, kind))
    others = [f"{code}: {text}" for (code, text), error in errors.items() if error is not chosen]
    if others:
        chosen.args = (f"{chosen}; of other types: {'; '.join(others)}", *chosen.args[1:])
    raise chosen


# Values.

#: The root of an AMI that is made of a snapshot, and that most images have.
ROOT_DEVICE: Final = "/dev/sda1"
PENDING: Final = "pending"
RUNNING: Final = "running"
SHUTTING_DOWN: Final = "shutting-down"
TERMINATED: Final = "terminated"


def tags_of(data: Mapping[str, Any]) -> dict[str, str]:
    """The tags of anything."""
    return {tag["Key"]: tag.get("Value", "") for tag in data.get("Tags") or ()}


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Tags as AWS takes them."""
    return [{"Key": name, "Value": value} for name, value in tags.items()]


def filled(values: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a call without those that have no value."""
    return {name: value for name, value in values.items() if value not in (None, "", [], {})}


def tag_specifications(tags: Mapping[str, str], *kinds: str) -> list[dict[str, Any]]:
    """Tags that things of these kinds have from their first moment on."""
    return [{"ResourceType": kind, "Tags": tag_list(tags)} for kind in kinds]


class AwsRecord(CloudRecord):
    """An instance as a list shows it: a record of the inventory (AW-2). EC2 cannot list what changed.

    :ivar gone: lists show terminated instances for an hour. ``host_id``: of a dedicated host.
    :ivar reason_code: with ``reason`` why it is in its state.
    :ivar launch_index: among the instances of one call. ``batched``: its tags are only those that it has in common with
        them.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        placement, reason = data.get("Placement") or {}, data.get("StateReason") or {}
        devices = [device.get("Ebs") or {} for device in data.get("BlockDeviceMappings") or ()]
        tags = tags_of(data)
        self.id: str = data["InstanceId"]
        self.status: str = (data.get("State") or {}).get("Name", "")
        self.gone = self.status == TERMINATED
        self.launch_index = int(data.get("AmiLaunchIndex") or 0)
        self.batched = lacks_own(tags)
        self.metadata = with_node(tags, self.launch_index)
        self.type: str = data.get("InstanceType", "")
        self.zone: str | None = placement.get("AvailabilityZone") or None
        self.spot = data.get("InstanceLifecycle") == "spot"
        self.host_id: str | None = placement.get("HostId") or None
        self.public_ipv4: str | None = data.get("PublicIpAddress") or None
        self.private_ipv4: str | None = data.get("PrivateIpAddress") or None
        self.ipv6 = _first_ipv6(data.get("NetworkInterfaces") or ())
        self.volume_ids = tuple(str(ebs["VolumeId"]) for ebs in devices if ebs.get("VolumeId"))
        self.reason_code: str = reason.get("Code", "")
        self.reason: str = reason.get("Message", "")


class AwsVolume(CloudRecord):
    """A volume of EBS."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.id, self.status = str(data["VolumeId"]), str(data.get("State", ""))
        # It does not say of which node of a batch it is. What no instance has any more is to go with the first.
        self.metadata = with_node(tags_of(data), 0)
        self.type, self.size_gib, self.iops = data.get("VolumeType", ""), data.get("Size", 0), data.get("Iops", 0)


class AwsImage(CloudRecord):
    """An AMI.

    :ivar created: time as a text that grows with time.
    :ivar devices: device name and ``Ebs`` of each volume that comes with it, the root first.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.id, self.name = str(data["ImageId"]), str(data.get("Name", ""))
        self.status, self.created = str(data.get("State", "")), str(data.get("CreationDate", ""))
        self.metadata = tags_of(data)
        found = [(device.get("DeviceName", ""), device.get("Ebs")) for device in data.get("BlockDeviceMappings") or ()]
        # A device without one is no volume of EBS.
        devices: list[tuple[str, Mapping[str, Any]]] = [(name, ebs) for name, ebs in found if ebs]
        self.devices = sorted(devices, key=lambda device: device[0] != data.get("RootDeviceName"))


class InstanceType(CloudRecord):
    """A type, such as ``t3.medium``."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        cpu, memory = data.get("VCpuInfo") or {}, data.get("MemoryInfo") or {}
        self.name = str(data["InstanceType"])
        self.vcpus: int = cpu.get("DefaultVCpus", 0)
        self.cores: int = cpu.get("DefaultCores", self.vcpus)
        self.ram_mib: int = memory.get("SizeInMiB", 0)


class Subnet(CloudRecord):
    """A subnet. ``free``: addresses that are left."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.id, self.zone = str(data["SubnetId"]), str(data.get("AvailabilityZone", ""))
        self.vpc, self.free = str(data.get("VpcId", "")), data.get("AvailableIpAddressCount", 1)
        self.ipv6 = bool(data.get("Ipv6CidrBlockAssociationSet"))


class LaunchTemplate(CloudRecord):
    """A launch template of ours."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.id, self.name = str(data["LaunchTemplateId"]), str(data.get("LaunchTemplateName", ""))
        self.created: datetime | None = data.get("CreateTime")


#: States of hosts that will never work, and of those that are deleted.
FAILED: Final = frozenset({"permanent-failure", "released", "released-permanent-failure"})
RELEASED: Final = frozenset({"released", "released-permanent-failure"})
#: AWS keeps hosts of macOS so long after their allocation.
MAC_TIME: Final = timedelta(hours=24)


class AwsHost(CloudRecord):
    """A dedicated host. ``used``: are there instances on it?"""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.id, self.status = str(data["HostId"]), str(data.get("State", ""))
        self.metadata = tags_of(data)
        self.type = str((data.get("HostProperties") or {}).get("InstanceType", ""))
        self.allocated: datetime | None = data.get("AllocationTime")
        self.used = bool(data.get("Instances"))

    def may_be_released(self, now: datetime) -> bool:
        """Would AWS let it go? It keeps those with instances, those that it cleans, and young ones of macOS."""
        if self.used or self.status in RELEASED or self.status in ("pending", "configuring"):
            return False
        young = self.allocated is not None and now - self.allocated < MAC_TIME
        return not (young and self.type.startswith("mac"))


def _first_ipv6(interfaces: Iterable[Mapping[str, Any]]) -> str | None:
    """The first IPv6 address of the first interface."""
    first: Mapping[str, Any] = next(iter(interfaces), {})
    return next((address.get("Ipv6Address") for address in first.get("Ipv6Addresses") or ()), None)


# What AWS says of snapshots and of imports, as small values: only what the driver uses.

COMPLETED: Final = "completed"
ERROR: Final = "error"
#: State of an AMI, and of a dedicated host.
AVAILABLE: Final = "available"
#: States of import tasks that have come to nothing.
FAILED_TASKS: Final = ("deleting", "deleted")


class AwsSnapshot(CloudRecord):
    """A snapshot of EBS. ``reason``: why it is in its state."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.id, self.status = str(data["SnapshotId"]), str(data.get("State", ""))
        self.reason, self.metadata = str(data.get("StateMessage", "")), tags_of(data)


class ImportTask(CloudRecord):
    """An import out of S3, of a snapshot or of an AMI. What AWS does not say is "".

    :ivar status: ``active``, ``completed``, ``deleting``, ``deleted``. ``progress``: percent, as a text.
    :ivar message: what it is doing, or why it failed. ``image_id``, ``snapshot_ids``: what it has made.
    :ivar bucket: with ``key`` what it reads.
    """

    def __init__(self, data: Mapping[str, Any], whole: bool) -> None:
        state = data if whole else data.get("SnapshotTaskDetail") or {}
        disks = data.get("SnapshotDetails") or [] if whole else [state]
        source: Mapping[str, Any] = next((disk["UserBucket"] for disk in disks if disk.get("UserBucket")), {})
        self.id = str(data["ImportTaskId"])
        self.status, self.message = str(state.get("Status", "")), str(state.get("StatusMessage", ""))
        self.progress = str(state.get("Progress", ""))
        self.metadata = tags_of(data)
        self.image_id = str(data.get("ImageId", ""))
        self.snapshot_ids = tuple(str(disk["SnapshotId"]) for disk in disks if disk.get("SnapshotId"))
        self.bucket, self.key = str(source.get("S3Bucket", "")), str(source.get("S3Key", ""))

    @property
    def result_ids(self) -> tuple[str, ...]:
        """What it has made: AMI and snapshots."""
        return (self.image_id, *self.snapshot_ids) if self.image_id else self.snapshot_ids


# Where an instance may be launched.


class LaunchPlace(NamedTuple):
    """One combination. ``subnet_id`` or ``zone`` or neither."""

    instance_type: str
    subnet_id: str | None
    zone: str | None
    spot: bool

    def __str__(self) -> str:
        where = self.subnet_id or self.zone or "any zone"
        return f"{self.instance_type}{' (spot)' if self.spot else ''} in {where}"


# The tag of instances that one call made for several nodes: it says for which. Pure functions.
#
# All instances of a call have the same tags. Each has a launch index, from 0: that of its node in the tag. So what was
# made is never without its node, also if the launcher ends before each instance has tags of its own.

BATCH_KEY: Final = "nodepool_batch"
#: Longest value of a tag.
_MAX_VALUE: Final = 256
#: Of each instance alone; what else its tags say it has in common with the others.
OWN_KEYS: Final = (instance.NODE_KEY, "Name")


def batch_value(node_ids: Iterable[str]) -> str:
    """The tag's value, for node ids in the order of launch indexes."""
    return " ".join(node_ids)


def fits(node_ids: Iterable[str]) -> bool:
    """Is there room in the tag?"""
    return len(batch_value(node_ids)) <= _MAX_VALUE


def with_node(tags: dict[str, str], index: int) -> dict[str, str]:
    """Tags that say of which node something is; they do by themselves, or as those of a batch.

    :param index: launch index of the instance.
    """
    if not lacks_own(tags):
        return tags
    node_ids = tags[BATCH_KEY].split()
    return {**tags, instance.NODE_KEY: node_ids[index]} if index < len(node_ids) else tags


def lacks_own(tags: Mapping[str, str]) -> bool:
    """Are they those that a batch has in common?"""
    return BATCH_KEY in tags and instance.NODE_KEY not in tags


# Which quota of the account an instance or a volume counts against (AW-12, AW-13). Pure functions.
#
# Service Quotas names the families in the names of its quotas, such as "Running On-Demand Standard (A, C, D, H, I, M,
# R, T, Z) instances", so that families to come are known. Until it has answered, the codes of Nodepool 11 count.

#: Families -> code of instances on demand, of spot instances (AW-12).
_RELEASED: Final[dict[tuple[str, ...], tuple[str, str | None]]] = {
    ("a", "c", "d", "h", "i", "m", "r", "t", "z"): ("L-1216C47A", "L-34B43A08"),
    ("dl",): ("L-6E869C2A", "L-85EED4F7"),
    ("f",): ("L-74FC7D96", "L-88CF9481"),
    ("g", "vt"): ("L-DB2E81BA", "L-3819A6DF"),
    ("u",): ("L-43DA4232", None),
    ("inf",): ("L-1945791B", "L-B5D1601B"),
    ("p",): ("L-417A185B", "L-7212CCBC"),
    ("x",): ("L-7295265B", "L-E3A00192"),
    ("trn",): ("L-2C3B7624", "L-6B0D517C"),
    ("hpc",): ("L-F7808C92", None),
}
#: Type of volume -> code of its storage in GiB, of its IOPS (AW-13).
VOLUMES: Final[dict[str, tuple[str, str | None]]] = {
    "io1": ("L-FD252861", "L-B3A130E6"),
    "io2": ("L-09BD8365", "L-8D977E7E"),
    "gp2": ("L-D18FCD1D", None),
    "gp3": ("L-7A658B76", None),
    "st1": ("L-82ACEF56", None),
    "sc1": ("L-17AF77E8", None),
    "standard": ("L-9CF3C2EB", None),
}
#: Of these codes the limit is in TiB. Nodepool 11 takes 1000 GiB for one.
STORAGE: Final = frozenset(storage for storage, _ in VOLUMES.values())
GIB_A_TIB: Final = 1000

_ON_DEMAND: Final = re.compile(r"Running On-Demand (.+?) instances", re.IGNORECASE)
_SPOT: Final = re.compile(r"All (.+?) Spot Instance Requests", re.IGNORECASE)
_HOSTS: Final = re.compile(r"Running Dedicated (\S+) Hosts", re.IGNORECASE)
_FAMILY: Final = re.compile(r"[a-z]+\d*")
#: What Service Quotas calls the families ``u-6tb1``, ``u7i`` ...
_HIGH_MEMORY: Final = "high memory"
#: Instances of macOS are on dedicated hosts only, which have quotas of their own.
_ONLY_ON_HOSTS: Final = frozenset({"mac"})


class AccountQuota(NamedTuple):
    """One quota of Service Quotas."""

    code: str
    name: str
    value: float


class QuotaCodes:
    """Codes by the names of types, and what the limits are.

    :param quotas: none = Service Quotas has not answered.
    """

    def __init__(self, quotas: Iterable[AccountQuota] = ()) -> None:
        self._on_demand = {family: codes[0] for families, codes in _RELEASED.items() for family in families}
        self._spot = {
            family: codes[1] for families, codes in _RELEASED.items() for family in families if codes[1] is not None
        }
        self._hosts: dict[str, str] = {}
        #: Limits by code.
        self.values: dict[str, float] = {}
        for quota in quotas:
            self.values[quota.code] = quota.value
            if found := _ON_DEMAND.fullmatch(quota.name):
                self._on_demand.update(dict.fromkeys(_families(found[1]), quota.code))
            elif found := _SPOT.fullmatch(quota.name):
                self._spot.update(dict.fromkeys(_families(found[1]), quota.code))
            elif found := _HOSTS.fullmatch(quota.name):
                self._hosts[found[1].lower()] = quota.code

    def of_instance(self, instance_type: str, *, spot: bool) -> str | None:
        """The quota of the vCPUs of an instance; None = it is not known."""
        known = self._on_demand.keys() | self._spot.keys()
        return _code_of(instance_type.lower(), self._spot if spot else self._on_demand, known)

    def of_host(self, instance_type: str) -> str | None:
        """The quota of dedicated hosts for a type; None = it is not known."""
        return self._hosts.get(instance_type.lower().partition(".")[0])


def _families(text: str) -> list[str]:
    """The families that the name of a quota lists: "Standard (A, C)", "G and VT", "P4, P3 and P2", "High Memory"."""
    if text.lower() == _HIGH_MEMORY:
        return ["u"]
    listed = re.search(r"\((.+)\)", text)
    return _FAMILY.findall((listed[1] if listed else text).lower().replace(" and ", ", "))


def _code_of(instance_type: str, codes: Mapping[str, str], known: Collection[str]) -> str | None:
    """:param known: families that have a quota, if not this one."""
    found = re.match(r"([a-z]+)(\d*)", instance_type)
    if found is None or found[1] in _ONLY_ON_HOSTS:
        return None
    letters, generation = found.groups()
    # Some generations have a quota of their own.
    names = [letters + generation, letters]
    if letters not in known:
        # "im4gn" belongs to "I", "gr6" to "G".
        names += [letters[:length] for length in range(len(letters) - 1, 0, -1)]
    return next((codes[name] for name in names if name in codes), None)


# Reads the answers of DescribeInstances: only what the driver uses, and for that in a third of the time of botocore.
#
# What it makes is a part of what botocore makes of the same answer; see `nodepool.driver.aws.types.AwsRecord`.

#: Name in the answer -> its name for botocore, and how its content is read: None = as text, a mapping = as such a
#: structure, a list = as a list of such structures.
_Fields = Mapping[str, tuple[str, Any]]
_IPV6: Final[_Fields] = {"ipv6Address": ("Ipv6Address", None)}
_INSTANCE: Final[_Fields] = {
    "instanceId": ("InstanceId", None),
    "instanceType": ("InstanceType", None),
    "instanceLifecycle": ("InstanceLifecycle", None),
    "ipAddress": ("PublicIpAddress", None),
    "privateIpAddress": ("PrivateIpAddress", None),
    "amiLaunchIndex": ("AmiLaunchIndex", None),
    "instanceState": ("State", {"name": ("Name", None)}),
    "stateReason": ("StateReason", {"code": ("Code", None), "message": ("Message", None)}),
    "placement": ("Placement", {"availabilityZone": ("AvailabilityZone", None), "hostId": ("HostId", None)}),
    "tagSet": ("Tags", [{"key": ("Key", None), "value": ("Value", None)}]),
    "blockDeviceMapping": ("BlockDeviceMappings", [{"ebs": ("Ebs", {"volumeId": ("VolumeId", None)})}]),
    "networkInterfaceSet": ("NetworkInterfaces", [{"ipv6AddressesSet": ("Ipv6Addresses", [_IPV6])}]),
}


def instances_in(body: bytes) -> tuple[list[dict[str, Any]], str]:
    """Instances of one page, and the token of the next; "" = it was the last.

    :raises xml.etree.ElementTree.ParseError: it is no XML.
    :raises ValueError: it is another answer.
    """
    root = ElementTree.fromstring(body)
    # All names are in one namespace, the version of the API: "{http://ec2.amazonaws.com/doc/2016-11-15/}".
    space = root.tag[: root.tag.rfind("}") + 1]
    if root.tag != f"{space}DescribeInstancesResponse":
        raise ValueError(f"it is a {root.tag[len(space) :]}")
    found = root.iterfind(f"{space}reservationSet/{space}item/{space}instancesSet/{space}item")
    return [_read(item, _INSTANCE, len(space)) for item in found], root.findtext(f"{space}nextToken") or ""


def _read(element: ElementTree.Element, fields: _Fields, cut: int) -> dict[str, Any]:
    """:param cut: characters of the namespace."""
    data: dict[str, Any] = {}
    for child in element:
        field = fields.get(child.tag[cut:])
        if field is None:
            continue
        name, inner = field
        if inner is None:
            data[name] = child.text or ""
        elif isinstance(inner, list):
            data[name] = [_read(item, inner[0], cut) for item in child]
        else:
            data[name] = _read(child, inner, cut)
    return data
