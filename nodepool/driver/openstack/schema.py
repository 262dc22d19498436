# SPDX-License-Identifier: Apache-2.0
"""Schema of a provider section of the OpenStack driver (reference/configuration 7)."""

from __future__ import annotations

from typing import Any

from nodepool.driver.config import ConfigPool, ProviderConfig, connection_schema, integer, nonempty, number, port
from nodepool.driver.framework.images import known_images, one_image


def provider_schema() -> Any:
    """Voluptuous schema of the whole section; it also checks that labels name images that the provider has."""
    import voluptuous as v

    diskimage = {
        v.Required("name"): nonempty(),
        "pause": bool,
        "config-drive": bool,
        "meta": dict,
        "connection-type": str,
        "connection-port": port(),
    }
    cloud_image = v.All(
        {
            v.Required("name"): nonempty(),
            "config-drive": bool,
            "image-id": nonempty(),
            "image-name": nonempty(),
            "username": v.Any(str, None),
            **connection_schema(),
        },
        _one_image_key,
    )
    section = {
        **ProviderConfig.getCommonSchemaDict(),
        v.Required("cloud"): nonempty(),
        "region-name": v.Any(str, None),
        "rate": number(0),
        "boot-timeout": number(0),
        "launch-timeout": number(0),
        "launch-retries": integer(1),
        "image-upload-timeout": number(0),
        "image-name-format": nonempty(),
        "post-upload-hook": v.Any(str, None),
        "clean-floating-ips": bool,
        "port-cleanup-interval": number(0),
        "nodepool-id": v.Any(str, None),
        "diskimages": [diskimage],
        "cloud-images": [cloud_image],
        "pools": [_pool()],
    }
    return v.Schema(v.All(section, known_images))


def _pool() -> dict[Any, Any]:
    return {
        **ConfigPool.getCommonSchemaDict(),
        "max-cores": integer(),
        "max-ram": integer(),
        "max-volumes": integer(),
        "max-volume-gb": integer(),
        "ignore-provider-quota": bool,
        "availability-zones": [str],
        "networks": [str],
        "security-groups": [str],
        "auto-floating-ip": bool,
        "host-key-checking": bool,
        "labels": [_label()],
    }


def _label() -> Any:
    import voluptuous as v

    fields = {
        v.Required("name"): nonempty(),
        "diskimage": nonempty(),
        "cloud-image": nonempty(),
        "flavor-name": nonempty(),
        "min-ram": integer(0),
        "key-name": v.Any(str, None),
        "console-log": bool,
        "boot-from-volume": bool,
        "volume-size": integer(1),
        "instance-properties": v.Any(dict, None),
        "dynamic-instance-properties": v.Any(dict, None),
        "userdata": v.Any(str, None),
        "networks": [str],
        "host-key-checking": bool,
    }
    return v.All(fields, one_image, _a_flavor)


def _a_flavor(label: dict[str, Any]) -> dict[str, Any]:
    import voluptuous as v

    if "flavor-name" not in label and "min-ram" not in label:
        raise v.Invalid("flavor-name or min-ram is needed")
    return label


def _one_image_key(image: dict[str, Any]) -> dict[str, Any]:
    import voluptuous as v

    if "image-id" in image and "image-name" in image:
        raise v.Invalid("only one of image-id and image-name can be given")
    return image
