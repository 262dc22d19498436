# SPDX-License-Identifier: Apache-2.0
"""Reads the body of a server creation and refuses it where Nova does, in Nova's words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulators.openstack.messages import ApiError, Json

if TYPE_CHECKING:
    from simulators.openstack.cloud import Cloud

#: From this microversion on ``networks`` must be given.
NETWORKS_NEEDED = (2, 37)
MAX_METADATA_LENGTH = 255
MAX_USER_DATA_LENGTH = 65535


@dataclass(frozen=True)
class CreateSpec:
    """A valid creation. ``volume_size`` is in GiB, 0 without a volume."""

    name: str
    flavor: Json
    image_id: str
    volume_size: int
    networks: list[str]
    security_groups: list[str]
    metadata: dict[str, str]
    key_name: str | None
    zone: str
    config_drive: bool
    user_data: str | None


def read_create_spec(cloud: Cloud, body: Json, version: tuple[int, int]) -> CreateSpec:
    """What the body asks for.

    :param body: the inner object of ``{"server": {...}}``.
    :raises ApiError: 400, 409 as Nova answers.
    """
    name = body.get("name")
    if not isinstance(name, str) or not name:
        raise ApiError(400, "Invalid input for field/attribute name. 'name' is a required property")
    image_id, volume_size = _source(body)
    if image_id not in cloud.images.images or cloud.images.images.get(image_id)["status"] != "active":
        raise ApiError(400, "Can not find requested image")
    if volume_size and not cloud.core.knobs.block_storage:
        raise ApiError(500, "Unexpected API Error. No endpoint for the block storage service.")
    zone = body.get("availability_zone")
    if zone and zone not in cloud.core.knobs.availability_zones:
        raise ApiError(400, "The requested availability zone is not available")
    key_name = body.get("key_name")
    if key_name and key_name not in cloud.compute.keypairs:
        raise ApiError(400, "Invalid key_name provided.")
    user_data = body.get("user_data")
    if user_data and len(user_data) > MAX_USER_DATA_LENGTH:
        raise ApiError(
            400, f"Invalid input for field/attribute user_data. Value: {user_data}. {user_data!r} is too long"
        )
    return CreateSpec(
        name=name,
        flavor=_flavor(cloud, body),
        image_id=image_id,
        volume_size=volume_size,
        networks=_networks(cloud, body, version),
        security_groups=_security_groups(cloud, body),
        metadata=_metadata(body),
        key_name=key_name,
        zone=zone or cloud.core.knobs.availability_zones[0],
        config_drive=str(body.get("config_drive", "")).lower() in ("true", "1"),
        user_data=user_data,
    )


def _source(body: Json) -> tuple[str, int]:
    for device in body.get("block_device_mapping_v2", []):
        if device.get("source_type") == "image" and device.get("destination_type") == "volume":
            return str(device.get("uuid", "")), int(device.get("volume_size", 0))
    reference = str(body.get("imageRef", ""))
    return reference.rsplit("/", 1)[-1], 0


def _flavor(cloud: Cloud, body: Json) -> Json:
    reference = str(body.get("flavorRef", "")).rsplit("/", 1)[-1]
    if reference not in cloud.compute.flavors:
        raise ApiError(400, f"Flavor {reference} could not be found.")
    return cloud.compute.flavors.get(reference)


def _networks(cloud: Cloud, body: Json, version: tuple[int, int]) -> list[str]:
    wanted = body.get("networks")
    if wanted is None and version >= NETWORKS_NEEDED:
        raise ApiError(400, "Invalid input for field/attribute server. 'networks' is a required property")
    if wanted == "none":
        return []
    if not wanted or wanted == "auto":
        usable = cloud.network.usable_networks()
        if len(usable) > 1:
            raise ApiError(409, "Multiple possible networks found, use a Network ID to be more specific.")
        return [entry["id"] for entry in usable]
    found = []
    for entry in wanted:
        key = entry.get("uuid", "")
        if key not in cloud.network.networks:
            raise ApiError(400, f"Network {key} could not be found.")
        if cloud.network.networks.get(key)["router:external"]:
            raise ApiError(403, f"It is not allowed to create an interface on external network {key}")
        found.append(key)
    return found


def _security_groups(cloud: Cloud, body: Json) -> list[str]:
    names = [str(entry.get("name", "")) for entry in body.get("security_groups", [])] or ["default"]
    known = {text for entry in cloud.network.security_groups for text in (entry["id"], entry["name"])}
    for name in names:
        if name not in known:
            raise ApiError(400, f"Security group {name} not found for project {cloud.core.project_id}.")
    return names


def _metadata(body: Json) -> dict[str, str]:
    metadata: dict[str, str] = body.get("metadata", {})
    for key, value in metadata.items():
        if not isinstance(value, str):
            raise ApiError(
                400, f"Invalid input for field/attribute {key}. Value: {value}. {value!r} is not of type 'string'"
            )
        if len(key) > MAX_METADATA_LENGTH or len(value) > MAX_METADATA_LENGTH:
            raise ApiError(400, f"Invalid input for field/attribute {key}. Value: {value}. {value!r} is too long")
    return dict(metadata)
