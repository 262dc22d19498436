# SPDX-License-Identifier: Apache-2.0
"""What a node says about itself: from its label before the launch, from its instance after (rules L, Q-17)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.config import DEFAULT_PORT

if TYPE_CHECKING:
    from nodepool.driver.config import ConfigPool, LabelSettings, ProviderConfig
    from nodepool.driver.statemachine.instance import Instance
    from nodepool.model.node import Node

#: Hosts of Windows take no longer names (L-2).
HOSTNAME_CHARACTERS: Final = 15
#: What an instance may say instead of its image (L-14).
OVERRIDES: Final = ("username", "python_path", "shell_type", "connection_type", "connection_port")


def hostname(node_id: str | None) -> str:
    """Of the instance of a node."""
    return f"np{node_id}"[:HOSTNAME_CHARACTERS]


def diskimage_of(label: LabelSettings) -> Any:
    """The uploaded image of a label; None = it has none. Drivers without images need not know the attribute."""
    return getattr(label, "diskimage", None)


def describe(node: Node, label: LabelSettings, provider: ProviderConfig) -> None:
    """Fill in how one logs in, as the image of a label says (L-1): an uploaded one as the provider names it."""
    image, diskimage = getattr(label, "cloud_image", None), diskimage_of(label)
    if diskimage is not None:
        # In drivers written for 11.0.0 that of the label is the one of the top level, which knows no connection.
        image = getattr(provider, "diskimages", {}).get(diskimage.name, diskimage)
    if image is None:
        return
    # Images of drivers written for 11.0.0 may lack what they do not configure.
    node.username = getattr(image, "username", None)
    # Ansible needs a text.
    node.python_path = getattr(image, "python_path", None) or "auto"
    node.shell_type = getattr(image, "shell_type", None)
    node.connection_type = getattr(image, "connection_type", "ssh")
    node.connection_port = getattr(image, "connection_port", DEFAULT_PORT)


def take_instance(node: Node, instance: Instance, pool: ConfigPool) -> None:
    """Fill in what the cloud says about an instance that is there."""
    if instance.external_id:
        node.external_id = instance.external_id
    for name in ("public_ipv4", "public_ipv6", "private_ipv4", "private_ipv6", "host_id", "driver_data", "slot"):
        setattr(node, name, getattr(instance, name, None))
    for name in ("cloud", "region", "az"):
        value = getattr(instance, name, None)
        if value is not None:
            setattr(node, name, value)
    node.interface_ip = address_of(instance, pool)
    if getattr(instance, "node_properties", None):
        node.node_properties = instance.node_properties
    for name in OVERRIDES:
        if hasattr(instance, name):
            setattr(node, name, getattr(instance, name))
    if hasattr(instance, "host_keys"):
        node.host_keys = list(instance.host_keys or ())
    defaults: dict[str, Any] | None = getattr(instance, "node_attributes", None)
    if defaults:
        node.attributes = {**defaults, **(pool.node_attributes or {})}
    node.resources = resources_of(instance) or node.resources


def address_of(instance: Instance, pool: ConfigPool) -> str | None:
    """Where Zuul connects to (L-13)."""
    public = (getattr(instance, "public_ipv4", None), getattr(instance, "public_ipv6", None))
    private = (getattr(instance, "private_ipv4", None), getattr(instance, "private_ipv6", None))
    choice: list[str | None] = [instance.interface_ip, *public, *private]
    if getattr(pool, "use_internal_ip", False):
        choice = [*private, *choice]
    return next((address for address in choice if address), None)


def resources_of(instance: Instance) -> dict[str, float] | None:
    """What an instance uses; None = its driver does not say."""
    try:
        return instance.getQuotaInformation().get_resources()
    except NotImplementedError:
        # The default of `Instance`: how a driver of the released interface says that it does not know.
        return None
