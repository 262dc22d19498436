# SPDX-License-Identifier: Apache-2.0
"""What a server is to be like: the body of its creation. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nodepool.driver.framework.dynamic_values import dynamic_value
from nodepool.driver.openstack.views import Flavor

if TYPE_CHECKING:
    from nodepool.driver.openstack.config import OpenStackLabel
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.model.request import NodeRequest


def server_body(
    hostname: str,
    label: OpenStackLabel,
    flavor: Flavor,
    image_id: str,
    networks: list[dict[str, str]] | str | None,
    metadata: Mapping[str, str],
    az: str | None,
) -> dict[str, Any]:
    """``server`` of ``POST /servers``; what is not configured is left to the cloud.

    :param networks: as Nova wants them; None = it is not said.
    """
    body: dict[str, Any] = {"name": hostname, "flavorRef": flavor.id, "metadata": dict(metadata)}
    if label.boot_from_volume:
        body["block_device_mapping_v2"] = [
            {
                "boot_index": 0,
                "uuid": image_id,
                "source_type": "image",
                "destination_type": "volume",
                "volume_size": label.volume_size,
                "delete_on_termination": True,
            }
        ]
    else:
        body["imageRef"] = image_id
    if networks is not None:
        body["networks"] = networks
    if label.key_name:
        body["key_name"] = label.key_name
    if label.pool.security_groups:
        body["security_groups"] = [{"name": name} for name in label.pool.security_groups]
    if az:
        body["availability_zone"] = az
    if label.config_drive is not None:
        body["config_drive"] = label.config_drive
    if label.userdata:
        body["user_data"] = base64.b64encode(label.userdata.encode()).decode("ascii")
    return body


def server_metadata(
    provider: str, label: OpenStackLabel, ours: Mapping[str, str], request: NodeRequest | None, log: Log
) -> dict[str, str]:
    """Metadata of a server: what the user wants, and over it what says whose it is (D-1, O-11)."""
    image = label.diskimage or label.cloud_image
    values = {str(key): str(value) for key, value in label.instance_properties.items()}
    for key, template in label.dynamic_instance_properties.items():
        text = dynamic_value(template, request)
        if text is None:
            log.error(
                "Provider %s, label %s: dynamic-instance-properties: %s cannot be formatted; it is left out",
                provider,
                label.name,
                key,
            )
        else:
            values[str(key)] = text
    values["groups"] = ",".join([provider, image.name if image else "", label.name])
    return {**values, **ours}
