# SPDX-License-Identifier: Apache-2.0
"""What an instance is to be like: the body of the call that makes it (IV-5). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from nodepool.driver.ibmvpc.names import volume_tags

if TYPE_CHECKING:
    from nodepool.driver.ibmvpc.config import IbmLabel
    from nodepool.driver.ibmvpc.places import IbmPlace


class LaunchIds(NamedTuple):
    """What the names of the configuration stand for.

    :param image: ``{"id": ...}`` or ``{"href": ...}``.
    """

    vpc: str
    group: str
    image: Mapping[str, str]
    keys: Sequence[str]


def instance_body(
    name: str, label: IbmLabel, place: IbmPlace, ids: LaunchIds, metadata: Mapping[str, str]
) -> dict[str, Any]:
    """The body.

    :param metadata: whose it is. Name and resource group say it, too.
    """
    volume: dict[str, Any] = {
        "name": name,
        "profile": {"name": "general-purpose"},
        "user_tags": volume_tags(metadata),
    }
    if label.volume_size:
        volume["capacity"] = label.volume_size
    body: dict[str, Any] = {
        "name": name,
        "profile": {"name": place.profile},
        "resource_group": {"id": ids.group},
        "vpc": {"id": ids.vpc},
        "zone": {"name": place.zone},
        "image": dict(ids.image),
        "keys": [{"id": key} for key in ids.keys],
        "primary_network_interface": {"name": "eth0", "subnet": {"id": place.subnet_id}},
        "boot_volume_attachment": {"delete_volume_on_instance_delete": True, "volume": volume},
    }
    if label.user_data:
        body["user_data"] = label.user_data
    if place.spot:
        # Who runs a job on it must see that it was taken away, and why: so it is not deleted by itself.
        body |= {"availability": {"class": "spot"}, "availability_policy": {"preemption": "stop"}}
    return body
