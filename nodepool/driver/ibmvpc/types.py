# SPDX-License-Identifier: Apache-2.0
"""What IBM says: errors, and small values with only what the driver uses.

First what errors mean, in the words of `nodepool.driver.framework.cloud_errors` (CM-6). An answer has ``{"errors":
[{"code", "message", "target"}], "trace"}``; an instance that does not start has reasons with codes of their own. Then
come the values, then the names by which our things are known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

from nodepool.driver.framework.cloud_errors import (
    CloudAway,
    CloudNoCapacity,
    CloudNotFound,
    CloudQuota,
    CloudRefused,
    CodedError,
    codes,
    mappings_in,
)
from nodepool.driver.framework.cloud_errors import texts_of as texts_of
from nodepool.driver.framework.http.rest_calls import CodedApi
from nodepool.driver.statemachine import instance as tags
from nodepool.driver.statemachine.inventory import CloudRecord

#: There is no capacity in this zone, or none of this profile. Others may have some.
CAPACITY: Final = codes(
    "cannot_start_capacity cannot_start_compute cannot_start_placement_group cannot_start_ip_address "
    "cannot_start_reservation_capacity cannot_start_reservation_expired insufficient_capacity "
    "insufficient_available_ip_addresses insufficient_ip_addresses subnet_is_full"
)
#: IBM took a spot instance away.
PREEMPTED: Final = "stopped_by_preemption"
#: Something has the name already: it may be ours, of an order that was not answered.
EXISTS: Final = frozenset({"validation_unique_failed", "name_in_use"})
#: Refused only for now: something else is under way.
BUSY: Final = codes("resource_in_use resource_locked instance_pending floating_ip_pending volume_in_use conflict")
_GRANT: Final = "give the credentials the access policies that the documentation of the driver shows"

#: Names of code and message in errors, as the SDK of IBM knows them (ibm_cloud_sdk_core.api_exception), and IAM's.
_CODES: Final = ("code", "error_code", "errorCode")
_MESSAGES: Final = ("message", "error", "errorMessage")


class VpcApi(CodedApi):
    """What the answers of the API of VPC, of resource groups and of object storage mean."""

    #: A quota of the account or of the region is used up. It may be free again soon, so the launch waits.
    quota = frozenset({"over_quota", "quota_exceeded", "limit_exceeded", "vpc_resource_limit_exceeded"})
    capacity = CAPACITY
    #: Too many calls: nothing was done.
    throttled_codes = frozenset({"too_many_requests", "rate_limit_exceeded"})
    #: The credentials are not, or no longer, valid: nothing was done.
    login = frozenset({"not_authenticated", "invalid_token", "token_expired"})
    #: The credentials are good, but not for this.
    denied = frozenset({"not_authorized", "forbidden"})
    #: IBM has trouble of its own. Who knows what was done?
    away = frozenset({"internal_error", "service_unavailable", "service_error"})
    busy = BUSY
    exists = EXISTS
    #: The remedy for each that has one.
    remedies: ClassVar[Mapping[str, str]] = {
        "not_authorized": _GRANT,
        "forbidden": _GRANT,
        "image_not_found": "correct the image of the label",
        "profile_not_found": "correct profile of the label",
        "instance_profile_not_found": "correct profile of the label",
        "subnet_not_found": "correct subnet",
        "zone_not_found": "correct zone",
        "vpc_not_found": "correct vpc",
        "key_not_found": "correct keys of the image",
        "validation_unique_failed": "something else in the region has the name; delete it, or use another region",
        "insufficient_available_ip_addresses": "use a larger subnet, or lower max-servers",
        "cannot_start_ip_address": "use a larger subnet, or lower max-servers",
    }
    more_quota = "ask IBM for more in a support case, or lower max-servers and quota"

    def errors_in(self, data: Any) -> list[CodedError]:
        """Resource groups, IAM and gateways have their own names for code and message; some have a message only."""
        if not isinstance(data, dict):
            return []
        errors = mappings_in(data.get("errors")) or [data]
        named = ((_first_of(error, _CODES), _first_of(error, _MESSAGES)) for error in errors)
        return [CodedError(code, message) for code, message in named if code or message]

    def remedy_for(self, errors: Sequence[CodedError], status: int) -> str | None:
        return super().remedy_for(errors, status) or (_GRANT if status == 403 and errors else None)


def _first_of(error: Mapping[str, Any], names: Iterable[str]) -> str:
    return next((str(error[name]) for name in names if isinstance(error.get(name), str | int)), "")


_API: Final = VpcApi()
errors_in: Final = _API.errors_in
meaning: Final = _API.meaning


def reasons_of(data: Any) -> tuple[CodedError, ...]:
    """``status_reasons`` of an instance or an image."""
    found = mappings_in(data.get("status_reasons")) if isinstance(data, dict) else []
    return tuple(CodedError(str(reason.get("code") or ""), str(reason.get("message") or "")) for reason in found)


def exists(error: CloudRefused) -> bool:
    """Was an order refused because something has the name already?"""
    return error.code in EXISTS


def busy(error: Exception) -> bool:
    """Was a call refused only for now, because something else is under way?

    IBM answers 409 also where a quota or a lack of addresses is the reason.
    """
    if not isinstance(error, CloudRefused) or isinstance(error, (CloudQuota, CloudNoCapacity)):
        return False
    return error.status == 409 or error.code in BUSY


def passes(error: CloudRefused | CloudAway) -> bool:
    """May a call for a floating IP work when it is made again, with what the next list says?"""
    if isinstance(error, CloudAway):
        # Whether it was done the list says.
        return error.maybe_done
    if isinstance(error, (CloudQuota, CloudNoCapacity)):
        return False
    # The one that was chosen is deleted, has another use, or is worked on by others.
    return isinstance(error, CloudNotFound) or exists(error) or busy(error)


# What there is in a region, as small values.

#: States of an instance.
RUNNING: Final = "running"
FAILED: Final = "failed"
DELETING: Final = "deleting"
STOPPED: Final = ("stopped", "stopping")
_DELETED_VOLUMES: Final = ("pending_deletion", DELETING)
#: States of images: can be used, as of floating IPs; is imported.
AVAILABLE: Final = "available"
PENDING: Final = "pending"
USABLE_IMAGES: Final = (AVAILABLE, "deprecated", "partially_available")
#: The end of a time in UTC, which may have a fraction.
_AFTER_SECONDS: Final = re.compile(r"(\.\d+)?Z$")


def _name(data: Any) -> str:
    return str((data or {}).get("name") or "")


def _id(data: Any) -> str:
    return str((data or {}).get("id") or "")


class IbmRecord(CloudRecord):
    """An instance as a list shows it: a record of the inventory. What is deleted is in no list.

    :param provider: whose instances are known by their names.
    :ivar id: its name if it is ours, which is known before it is made; else as ``instance_id``, what IBM calls it.
    """

    def __init__(self, data: Mapping[str, Any], provider: str) -> None:
        interface = data.get("primary_network_interface") or {}
        self.metadata = node_metadata(data["name"], _name(data.get("resource_group")))
        self.instance_id: str = data["id"]
        self.id: str = data["name"] if self.metadata.get(tags.PROVIDER_KEY) == provider else data["id"]
        self.status: str = data.get("status") or ""
        self.reasons = reasons_of(data)
        self.cores = int((data.get("vcpu") or {}).get("count") or 0)
        self.ram_gib = int(data.get("memory") or 0)
        self.zone = _name(data.get("zone"))
        self.interface_id = _id(interface)
        self.private_ipv4 = _address(interface)
        self.spot = (data.get("availability") or {}).get("class") == "spot"


def _address(interface: Mapping[str, Any]) -> str | None:
    """``primary_ip`` of an interface (IV-6); 0.0.0.0 stands for one that is not chosen yet."""
    found = (interface.get("primary_ip") or {}).get("address") or interface.get("primary_ipv4_address")
    return str(found) if found and found != "0.0.0.0" else None


class IbmFloatingIp(CloudRecord):
    """A floating IP.

    :ivar group_id: of its resource group. ``metadata``: whose it is; empty = it is not of a node. ``target``: id of
        what it is bound to; "" = nothing. ``created``: in one form, so that texts can be compared.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.id: str = data["id"]
        self.name: str = data["name"]
        self.address: str = data.get("address") or ""
        self.status: str = data.get("status") or ""
        self.zone = _name(data.get("zone"))
        self.group_id = _id(data.get("resource_group"))
        self.metadata = floating_metadata(self.name, _name(data.get("resource_group")))
        self.target = _id(data.get("target"))
        self.created = _AFTER_SECONDS.sub("Z", data.get("created_at") or "")

    @property
    def free(self) -> bool:
        """Can it be bound?"""
        return not self.target and self.status == AVAILABLE

    @property
    def failed(self) -> bool:
        """Will it never be of use?"""
        return self.status == FAILED

    @property
    def unused(self) -> bool:
        """May it be deleted?"""
        return not self.target and self.status in (AVAILABLE, FAILED)


class IbmVolume:
    """A volume.

    :ivar used: an instance has it, or it is deleted now. ``instance_ids``: what IBM calls the instances that have it.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.id, self.name, self.group = str(data["id"]), str(data["name"]), _name(data.get("resource_group"))
        self.tags = [str(tag) for tag in data.get("user_tags") or ()]
        attached = data.get("volume_attachments") or ()
        self.used = bool(attached) or data.get("status") in _DELETED_VOLUMES
        self.instance_ids = [found for one in attached if (found := _id(one.get("instance")))]


class IbmSubnet:
    """A subnet. ``vpc`` is the id of its VPC, ``free`` the number of addresses that are not used."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.id, self.name = str(data["id"]), str(data["name"])
        self.vpc, self.zone = _id(data.get("vpc")), _name(data.get("zone"))
        self.free: int | None = data.get("available_ipv4_address_count")


class IbmProfile:
    """A profile of instances; memory is in GiB (IV-7)."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.name = str(data["name"])
        self.cores, self.ram_gib = _number(data.get("vcpu_count")), _number(data.get("memory"))


def _number(field: Any) -> int:
    """A number of a profile. One that can be chosen has a default."""
    found = field if isinstance(field, dict) else {}
    return int(found.get("value") or found.get("default") or 0)


class IbmImage:
    """An image.

    :ivar sha256: of the file that it was made of, in hexadecimal digits; None = IBM does not say.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.id, self.name, self.group = str(data["id"]), str(data["name"]), _name(data.get("resource_group"))
        self.status, self.visibility = data.get("status") or "", data.get("visibility") or ""
        self.reasons = reasons_of(data)
        self.operating_system: Mapping[str, Any] = data.get("operating_system") or {}
        self.sha256: str | None = ((data.get("file") or {}).get("checksums") or {}).get("sha256")


# Names by which our things are known: they and resource groups say whose a thing is (IV-3). Pure functions.
#
# An instance cannot carry a tag from the call that makes it. So its name has the node, and its resource group has
# provider and pool. The names are those of Nodepool 11.0.0; a part that the driver adds follows a hyphen.

#: Keys of the user tags of boot volumes.
_TAGS: Final = (tags.NODE_KEY, tags.POOL_KEY, tags.PROVIDER_KEY, tags.INSTALLATION_KEY)
_GROUP: Final = re.compile(r"np_([^_]+)_([^_]+)")
_IMAGE_GROUP: Final = re.compile(r"npimages_([^_]+)")
_NODE: Final = re.compile(r"np(\d+)(?:-\d+){0,2}")
#: A floating IP that a launcher has taken over: the name that it had before, and the id of the launcher.
_TAKEN_OVER: Final = re.compile(r"(np\d+(?:-\d+){0,2})-c[0-9a-f]{8}")
#: Digits of the mark of a provider in names of images, which have at most 63 characters.
_MARK_DIGITS: Final = 8
#: Upload, provider and build. The provider was not in the names that this driver gave first.
_IMAGE: Final = re.compile(r"npimage(\d+)-(?:([0-9a-f]{8})-)?([0-9a-z]+)")


def group_of_pool(provider: str, pool: str) -> str:
    """Resource group of the nodes of a pool."""
    return f"np_{provider}_{pool}"


def group_of_images(provider: str) -> str:
    """Resource group of uploaded images."""
    return f"npimages_{provider}"


def node_metadata(name: str, group: str) -> dict[str, str]:
    """Whose an instance, a floating IP or a volume is; empty = it is none of a node of any provider.

    :param group: name of its resource group.
    """
    node, owner = _NODE.fullmatch(name), _GROUP.fullmatch(group)
    return {tags.NODE_KEY: node[1], tags.POOL_KEY: owner[2], tags.PROVIDER_KEY: owner[1]} if node and owner else {}


def floating_metadata(name: str, group: str) -> dict[str, str]:
    """The same of a floating IP, which a launcher may have taken over."""
    taken = _TAKEN_OVER.fullmatch(name)
    return node_metadata(taken[1] if taken else name, group)


def own_name(name: str, launcher: str) -> str:
    """A name for a floating IP that no other launcher gives it.

    :param name: that it has; it may be such a name. ``launcher``: eight hexadecimal digits.
    """
    taken = _TAKEN_OVER.fullmatch(name)
    return f"{taken[1] if taken else name}-c{launcher}"


def volume_tags(metadata: Mapping[str, str]) -> list[str]:
    """User tags of a boot volume, the one thing that can have some from the beginning. IBM makes them lower case."""
    return [f"{key}:{metadata[key]}".lower() for key in _TAGS if key in metadata]


def metadata_of_tags(volume: IbmVolume, provider: str) -> dict[str, str]:
    """What `volume_tags` says, if a volume is of this provider; else nothing.

    Snapshots and tools carry tags on to volumes of others, which are in other resource groups.
    """
    found = dict(tag.split(":", 1) for tag in volume.tags if ":" in tag)
    owner = _GROUP.fullmatch(volume.group)
    if (
        owner is None
        or owner[1] != provider
        or found.get(tags.PROVIDER_KEY) != provider.lower()
        or tags.NODE_KEY not in found
    ):
        return {}
    installation = {key: value for key, value in found.items() if key == tags.INSTALLATION_KEY}
    return {tags.NODE_KEY: found[tags.NODE_KEY], tags.PROVIDER_KEY: provider, **installation}


def image_name(metadata: Mapping[str, str], provider: str) -> str:
    """Of an uploaded image. Names are unique in a region, and ids of uploads begin again with each build and with each
    provider: so it has all three (IV-10).
    """
    return f"npimage{metadata[tags.UPLOAD_KEY]}-{tags.mark_of(provider, _MARK_DIGITS)}-{metadata[tags.BUILD_KEY]}"


def image_metadata(name: str, group: str) -> dict[str, str]:
    """Whose an image is; empty = it is none that this driver uploaded, or of another installation (D-10).

    Images of Nodepool 11.0.0 do not say of which build they are. Only their records know them.
    """
    image, owner = _IMAGE.fullmatch(name), _IMAGE_GROUP.fullmatch(group)
    if not image or not owner:
        return {}
    whose = {} if image[2] is None else tags.of_mark(image[2], owner[1])
    return (
        {}
        if whose is None
        else {tags.UPLOAD_KEY: image[1], tags.BUILD_KEY: image[3], tags.PROVIDER_KEY: owner[1], **whose}
    )


# Types of what may be left over in a region (IV-3).

INSTANCE: Final = "instance"
FLOATING_IP: Final = "floatingip"
VOLUME: Final = "volume"
IMAGE: Final = "image"
OBJECT: Final = "object"
PART: Final = "part"
