# SPDX-License-Identifier: Apache-2.0
"""What it means that a server was refused, or is broken: whose fault, and what to do about it (O-2 to O-4). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nodepool.driver.framework.cloud_errors import CloudQuota, CloudRefused
from nodepool.driver.framework.cloud_texts import one_line
from nodepool.driver.openstack.errors import is_quota_text
from nodepool.exceptions import CapacityException, LaunchNodepoolException, LaunchStatusException, QuotaException

if TYPE_CHECKING:
    from nodepool.driver.openstack.config import OpenStackLabel
    from nodepool.driver.openstack.views import Server

#: What Nova says, in lower case, and the setting that it is about; the first that is found counts.
_SUBJECTS: Final = (
    ("key_name", "key"),
    ("keypair", "key"),
    ("security group", "groups"),
    ("availability zone", "zone"),
    ("availability_zone", "zone"),
    ("user_data", "userdata"),
    ("user data", "userdata"),
    ("metadata", "properties"),
    ("network", "networks"),
    ("subnet", "networks"),
    ("fixed ip", "networks"),
    ("volume", "volume"),
    ("block device", "volume"),
    # "Flavor's disk is too small for requested image" is about both; the flavor is what can be chosen.
    ("flavor", "flavor"),
    ("image", "image"),
    ("field/attribute", "properties"),
    ("policy", "role"),
)


class CloudFull(LaunchStatusException, CapacityException):
    """The server went to ERROR because no host has room for it: nothing is wrong with the label."""


def refusal_of(where: str, label: OpenStackLabel, az: str | None, error: CloudRefused) -> Exception:
    """The error of a launch whose server was refused.

    :param where: provider and label, for the text.
    :param az: the zone that was asked for.
    """
    if isinstance(error, CloudQuota):
        return CloudQuota(f"{where}: a quota of the cloud is used up: {error.said}", error.status)
    said = _without_secrets(error.said)
    return LaunchNodepoolException(f"{where}: the cloud refuses the server: {said}; {remedy(label, az, said)}")


def error_status(where: str, server: Server) -> Exception:
    """The error of a launch whose server went to ERROR."""
    fault = one_line(server.fault) or "the cloud gives no reason"
    text = f"{where}: server {server.id} went to ERROR: {fault}"
    if is_quota_text(server.fault):
        return QuotaException(text)
    if _no_room(server.fault):
        return CloudFull(f"{text}; the cloud has no host with room for this flavor in this zone, or none that fits")
    return LaunchStatusException(text)


def remedy(label: OpenStackLabel, az: str | None, said: str) -> str:
    """What to correct so that the cloud takes the server."""
    lower = said.lower()
    subject = next((subject for words, subject in _SUBJECTS if words in lower), "")
    image = label.diskimage or label.cloud_image
    texts = {
        "key": f"correct key-name ({label.key_name!r}) of the label, or make the key pair for this user",
        "groups": f"correct security-groups {label.pool.security_groups} of pool {label.pool.name}",
        "zone": f"correct availability-zones of pool {label.pool.name}: {az!r} was asked for",
        "userdata": "correct userdata of the label: at most 65535 bytes when written in base64",
        "properties": "correct instance-properties of the label: at most 255 characters each",
        "networks": f"correct networks {label.networks} of the label or its pool",
        "volume": f"correct boot-from-volume or volume-size ({label.volume_size}) of the label",
        "flavor": f"correct flavor-name ({label.flavor_name!r}) or min-ram ({label.min_ram}) of the label",
        "image": f"correct the image {'' if image is None else image.name!r} of the label, or upload it again",
        "role": "the user of the cloud in clouds.yaml needs a role that may do this",
    }
    return texts.get(
        subject,
        f"check flavor, image, networks, security groups, key-name and availability zone ({az or 'any'}) of the label",
    )


def _no_room(fault: str) -> bool:
    lower = fault.lower()
    return "no valid host" in lower or "insufficient compute resources" in lower


def _without_secrets(said: str) -> str:
    """Nova quotes what it does not like; user data may hold passwords."""
    head, found, _ = said.partition("user_data")
    return said if not found else f"{head}{found}. (The value is not shown.)"
