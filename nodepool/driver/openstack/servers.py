# SPDX-License-Identifier: Apache-2.0
"""Servers of one OpenStack provider.

First the deletion of a server, and its launch in steps, then what a refusal means, then what can be left over.

::

    ... -> building -> addressing -> complete
              |  ^
              v  |
             broken     (status ERROR: ask why)
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, ClassVar, Final

from nodepool.clock import monotonic
from nodepool.driver.config import dynamic_values
from nodepool.driver.framework.cloud_errors import CloudNotFound, CloudQuota, CloudRefused, one_line
from nodepool.driver.openstack.api import ACTIVE, BUILD, ERROR, Flavor, FloatingIp, Server, Volume
from nodepool.driver.openstack.cloud import OpenStackCloud, usage
from nodepool.driver.openstack.config import OpenStackLabel
from nodepool.driver.openstack.transport import is_quota_text
from nodepool.driver.statemachine import CloudResource, ResourceKind, ResourceKinds
from nodepool.driver.statemachine.adapter import SWEEP_LIST_SECONDS, CreationKey, Instance
from nodepool.driver.statemachine.creation import CreationMachine
from nodepool.driver.statemachine.deletion import DeletionMachine
from nodepool.driver.statemachine.instance import Order
from nodepool.driver.statemachine.leaks import LOOK_AGAIN_SECONDS
from nodepool.exceptions import (
    CapacityException,
    LaunchError,
    LaunchNetworkException,
    LaunchNodepoolException,
    LaunchStatusException,
    QuotaException,
)
from nodepool.metrics import reports
from nodepool.plan.retries import SeenTwice

#: How long an active server may have no address.
NO_ADDRESS_SECONDS: Final = 15.0


class ServerDeletion(DeletionMachine[Server]):
    """Its floating IP is deleted first (O-5)."""

    cloud: OpenStackCloud

    def before(self, record: Server | None) -> Callable[[], Any] | None:
        server_id, floating = self.external_id, self.cloud.floating
        if not floating.may_have(server_id, record):
            return None
        return lambda: floating.release(server_id, record)

    def begun(self, record: Server) -> bool:
        return record.deleting and record.status != ERROR

    def busy(self, error: LaunchError) -> bool:
        """Another operation on the server is under way."""
        return isinstance(error, CloudRefused) and error.status == 409


class ServerCreation(CreationMachine[Server]):
    """Launches one server. Nova does not know a creation again: a lost one is looked for by its metadata.

    Keys that say whose the server is win over those of the user (D-1, O-11).
    """

    ADDRESSING: ClassVar[str] = "addressing"
    BROKEN: ClassVar[str] = "broken"

    deletion_class = ServerDeletion

    cloud: OpenStackCloud

    def __init__(self, cloud: OpenStackCloud, order: Order) -> None:
        super().__init__(cloud, order)
        self._flavor: Flavor | None = None
        self._floating_ip: FloatingIp | None = None
        self._marked = False

    # -- the creation; in a thread of the cloud --

    def create(self, key: CreationKey) -> str:
        facts = self.cloud.facts
        flavor = facts.flavor_of(self.label)
        image_id = self.order.image or facts.image_of(self.label)
        facts.networks.get()
        server_id = self.cloud.api.create_server(self._body(flavor, image_id), self.permit)
        self._flavor = flavor
        return server_id

    def _body(self, flavor: Flavor, image_id: str) -> dict[str, Any]:
        """``server`` of ``POST /servers``; what is not configured is left to the cloud."""
        label, cloud = self.label, self.cloud
        networks = [cloud.facts.network_id(name, label) for name in label.networks]
        networks = networks or [n for n in [cloud.default_network()] if n]
        body: dict[str, Any] = {"name": self.order.hostname, "flavorRef": flavor.id, "metadata": self._metadata()}
        if label.boot_from_volume:
            volume = {"volume_size": label.volume_size, "delete_on_termination": True}
            place = {"boot_index": 0, "uuid": image_id, "source_type": "image", "destination_type": "volume"}
            body["block_device_mapping_v2"] = [{**place, **volume}]
        else:
            body["imageRef"] = image_id
        userdata = base64.b64encode(label.userdata.encode()).decode("ascii") if label.userdata else None
        optional = {
            "networks": [{"uuid": network} for network in networks] or ("auto" if cloud.names_networks else None),
            "key_name": label.key_name or None,
            "security_groups": [{"name": name} for name in label.pool.security_groups] or None,
            "availability_zone": self.order.az or None,
            "config_drive": label.config_drive,
            "user_data": userdata,
        }
        return {**body, **{key: value for key, value in optional.items() if value is not None}}

    def _metadata(self) -> dict[str, str]:
        """What the user wants, and over it what says whose the server is (D-1, O-11)."""
        label, provider = self.label, self.cloud.provider
        image = label.diskimage or label.cloud_image
        values = {str(key): str(value) for key, value in label.instance_properties.items()}
        values.update(dynamic_values(label, "dynamic-instance-properties", self.order.request, self.log))
        values["groups"] = ",".join([provider, image.name if image else "", label.name])
        return {**values, **self.metadata}

    def refused(self, error: Exception) -> Exception:
        """What a refused creation means (O-2, O-3)."""
        if not isinstance(error, CloudRefused):
            return error
        if error.status in (400, 404):
            self.cloud.facts.clear()
        return refusal_of(self.where, self.label, self.order.az, error)

    def found(self) -> None:
        self._flavor = self.cloud.known_flavor(self.label)

    # -- steps --

    def lets_go_on(self, record: Server | None) -> bool:
        building = record is not None and record.status == BUILD and self.state == self.BUILDING
        return not building or self.label.boot_from_volume

    def seen(self, record: Server) -> bool:
        if record.status == ERROR:
            return self.go(self.BROKEN)
        self._mark_volumes(record)
        return record.status == ACTIVE and self.go(self.ADDRESSING)

    def _broken(self) -> bool:
        """Status ERROR: raise the reason.

        Lists seldom have it: Nova looks for faults in one of its databases only, so those of servers that found no
        host, or those of all others, are missing there. The server itself has it.
        """
        server_id = self.external_id
        server = self.cloud.inventory.get(server_id)
        if server is None or server.status != ERROR:
            self._call = None
            return self.go(self.BUILDING)
        if server.fault:
            raise error_status(self.where, server)
        if not self.calling:
            self.call(lambda: self.cloud.api.server(server_id))
        if not self.answered:
            return False
        try:
            server = self.answer()
        except LaunchError as error:
            self.log.debug("Server %s: its fault is not known: %s", server_id, error)
        raise error_status(self.where, server)

    def _addressing(self) -> Instance | bool:
        server = self.cloud.inventory.get(self.external_id)
        if server is None or server.status == ERROR:
            return self.go(self.BUILDING)
        if self.calling:
            if not self.answered:
                return False
            self._floating_ip = self.answer()
            return self._instance(server)
        if not server.addresses:
            return self._no_address()
        if self.label.pool.auto_floating_ip and self.cloud.floating.needed(server):
            note = f"nodepool {self.cloud.provider} node {self.node_id}"
            self.call(lambda: self.cloud.floating.attach(server, note))
            return False
        return self._instance(server)

    def _no_address(self) -> bool:
        # What Nova knows of addresses may come late, and not show as a change.
        self.need_complete_lists()
        if monotonic() - self.since > NO_ADDRESS_SECONDS:
            raise LaunchNetworkException(
                f"{self.where}: server {self.external_id} is active, but has no address; "
                "check the networks of the label and their subnets"
            )
        return False

    def _instance(self, server: Server) -> Instance:
        cores, ram = (self._flavor.cores, self._flavor.ram) if self._flavor else (0, 0)
        volumes, size = (1, self.label.volume_size) if self.label.boot_from_volume else (0, 0)
        used = usage(server.cores or cores, server.ram or ram, len(server.volumes) or volumes, size)
        return self.cloud.shown(server, used, self._floating_ip)

    def _mark_volumes(self, server: Server) -> None:
        """A volume that Nova made for us must say whose it is, or no one could tell when it is left over."""
        if self._marked or not self.label.boot_from_volume or not server.volumes:
            return
        self._marked = True
        self.cloud.volumes.begin(server.volumes, self.metadata)


# What it means that a server was refused, or is broken: whose fault, and what to do about it (O-2 to O-4). Pure
# functions.

#: What Nova says, in lower case, and what to correct then; the first that is found counts.
_REMEDIES: Final = (
    (("key_name", "keypair"), "correct key-name ({label.key_name!r}) of the label, or make the key pair for this user"),
    (("security group",), "correct security-groups {pool.security_groups} of pool {pool.name}"),
    (
        ("availability zone", "availability_zone"),
        "correct availability-zones of pool {pool.name}: {az!r} was asked for",
    ),
    (("user_data", "user data"), "correct userdata of the label: at most 65535 bytes when written in base64"),
    (("metadata",), "correct instance-properties of the label: at most 255 characters each"),
    (("network", "subnet", "fixed ip"), "correct networks {label.networks} of the label or its pool"),
    (("volume", "block device"), "correct boot-from-volume or volume-size ({label.volume_size}) of the label"),
    # "Flavor's disk is too small for requested image" is about both; the flavor is what can be chosen.
    (("flavor",), "correct flavor-name ({label.flavor_name!r}) or min-ram ({label.min_ram}) of the label"),
    (("image",), "correct the image {image!r} of the label, or upload it again"),
    (("field/attribute",), "correct instance-properties of the label: at most 255 characters each"),
    (("policy",), "the user of the cloud in clouds.yaml needs a role that may do this"),
    (("",), "check flavor, image, networks, security groups, key-name and availability zone ({any_az}) of the label"),
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
    lower = server.fault.lower()
    if "no valid host" in lower or "insufficient compute resources" in lower:
        return CloudFull(f"{text}; the cloud has no host with room for this flavor in this zone, or none that fits")
    return LaunchStatusException(text)


def remedy(label: OpenStackLabel, az: str | None, said: str) -> str:
    """What to correct so that the cloud takes the server."""
    lower, image = said.lower(), label.diskimage or label.cloud_image
    text = next(text for words, text in _REMEDIES if any(word in lower for word in words))
    return text.format(label=label, pool=label.pool, az=az, any_az=az or "any", image=image.name if image else "")


def _without_secrets(said: str) -> str:
    """Nova quotes what it does not like; user data may hold passwords."""
    head, found, _ = said.partition("user_data")
    return said if not found else f"{head}{found}. (The value is not shown.)"


# What can be left over in the cloud (rules D).
#
# Servers and volumes carry our metadata and are left to the framework. Ports and floating IPs carry none: those that
# nothing uses are deleted here, when they were seen so twice. Images are the matter of builders.

leaks_log = logging.getLogger("nodepool.driver.openstack.adapter")

INSTANCE: Final = "instance"
VOLUME_KIND: Final = "volume"
_OURS: Final = "nodepool_provider_name"
#: Seconds between two looks for volumes where no label needs any: earlier ones may have left some.
OLD_VOLUMES_SECONDS: Final = 600.0


class Leaks:
    """Called by one thread at a time."""

    def __init__(self, cloud: OpenStackCloud) -> None:
        self._cloud = cloud
        self._config = cloud.config
        self._down_ports: SeenTwice[str] = SeenTwice()
        self._ports_checked_at = float("-inf")
        self._free_ips: SeenTwice[str] = SeenTwice()
        #: All that says whose it is. Its lists also delete ports and floating IPs that are left over.
        self.kinds = ResourceKinds(cloud.config.name, self._rows())

    def _rows(self) -> Iterator[ResourceKind[CloudResource]]:
        api = self._cloud.api
        yield ResourceKind(INSTANCE, self._servers, self._delete_server, vital=True)
        idle_seconds = 0.0 if self._config.uses_volumes else OLD_VOLUMES_SECONDS
        yield ResourceKind(VOLUME_KIND, self._left_volumes, lambda found: api.delete_volume(found.id), idle_seconds)
        yield ResourceKind("port", self._clean_ports, lambda _: None)
        yield ResourceKind("floating IP", self._clean_floating_ips, lambda _: None)

    def suspected(self) -> bool:
        """Is there something that another look, soon, may delete?"""
        # A look that comes before the interval is over does not count for ports.
        ports = self._down_ports.new and self._config.port_cleanup_interval <= LOOK_AGAIN_SECONDS
        return self._free_ips.new or ports

    def _delete_server(self, resource: CloudResource) -> None:
        server = self._cloud.inventory.get(resource.id)
        if self._cloud.floating.may_have(resource.id, server):
            self._cloud.floating.release(resource.id, server)
        self._cloud.delete_instance(resource.id)

    def _listed_servers(self) -> list[Server]:
        return self._cloud.inventory.all(SWEEP_LIST_SECONDS)

    def _servers(self) -> list[CloudResource]:
        return [CloudResource(server.metadata, INSTANCE, server.id) for server in self._listed_servers()]

    def _left_volumes(self) -> list[CloudResource]:
        """Of our servers. Where no label needs any, the cloud need not have volumes, or let us see them."""
        try:
            volumes = self._volumes(self._listed_servers())
        except LaunchError as error:
            if self._config.uses_volumes:
                raise
            leaks_log.debug("Provider %s: volumes of earlier labels cannot be looked for: %s", self._config.name, error)
            return []
        return [
            CloudResource(volume.metadata, VOLUME_KIND, volume.id)
            for volume in volumes
            if not volume.attached and not volume.deleting and _OURS in volume.metadata
        ]

    def _volumes(self, servers: Iterable[Server]) -> list[Volume]:
        """All of the project. Those of our servers that no one could mark so far are marked now."""
        self._cloud.volumes.catch_up()
        volumes = self._cloud.api.volumes()
        marked = {volume.id for volume in volumes if _OURS in volume.metadata}
        self._cloud.volumes.seen(marked, {volume.id for volume in volumes} - marked, servers)
        return volumes

    # -- what says nothing: nothing of it is left to the framework --

    def _clean_ports(self) -> list[CloudResource]:
        """D-6: DOWN, owned by no one or by Nova, in two checks that are far enough apart."""
        interval = self._config.port_cleanup_interval
        now = monotonic()
        if interval <= 0 or now - self._ports_checked_at < interval:
            return []
        self._ports_checked_at = now
        # A server that is being made has a port that is DOWN, too.
        in_use = {server.id for server in self._listed_servers()}
        down = {
            port.id
            for port in self._cloud.api.ports(status="DOWN")
            if port.status == "DOWN"
            and (not port.owner or port.owner.startswith("compute:"))
            and port.device not in in_use
        }
        self._delete_each("port", self._down_ports.look(down), self._cloud.api.delete_port)
        return []

    def _clean_floating_ips(self) -> list[CloudResource]:
        """D-7: attached to nothing in two checks: one that is just being attached by someone is spared."""
        if not self._config.clean_floating_ips:
            return []
        free = {floating.id for floating in self._cloud.floating.unattached()}
        self._delete_each("floatingip", self._free_ips.look(free), self._cloud.api.delete_floating_ip)
        return []

    def _delete_each(self, kind: str, ids: Collection[str], delete: Callable[[str], None]) -> None:
        """D-5."""
        for leaked in sorted(ids):
            leaks_log.warning("Provider %s: deleting leaked %s %s", self._config.name, kind, leaked)
            try:
                delete(leaked)
            except CloudNotFound:
                continue
            except CloudRefused as error:
                leaks_log.error("Provider %s: %s %s could not be deleted: %s", self._config.name, kind, leaked, error)
                continue
            reports.report_leaks(self._config.name, f"{kind}s")
