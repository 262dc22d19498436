# SPDX-License-Identifier: Apache-2.0
"""The launch of one server: its steps, then the body of its creation, then what a refusal means.

::

    ... -> building -> addressing -> complete
              |  ^
              v  |
             broken     (status ERROR: ask why)
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudQuota, CloudRefused, one_line
from nodepool.driver.framework.key_schema import dynamic_value
from nodepool.driver.openstack.errors import is_quota_text
from nodepool.driver.openstack.instance import OpenStackInstance, usage
from nodepool.driver.openstack.views import ACTIVE, BUILD, ERROR, Flavor, FloatingIp, Server
from nodepool.driver.statemachine.lost_creations import CreationKey
from nodepool.driver.statemachine.machines import CreationMachine, Step
from nodepool.exceptions import (
    CapacityException,
    LaunchError,
    LaunchNetworkException,
    LaunchNodepoolException,
    LaunchStatusException,
    QuotaException,
)

if TYPE_CHECKING:
    from nodepool.driver.openstack.cloud import OpenStackCloud
    from nodepool.driver.openstack.config import OpenStackLabel
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.model.request import NodeRequest

#: How long an active server may have no address.
NO_ADDRESS_SECONDS: Final = 15.0


class ServerCreation(CreationMachine[Server]):
    """Launches one server. Nova does not know a creation again: a lost one is looked for by its metadata.

    :param image_id: of the upload; None = the label's cloud image.
    :param metadata: keys that say whose the server is; they win over those of the user (D-1, O-11).
    :param az: availability zone, or None.
    """

    ADDRESSING: ClassVar[str] = "addressing"
    BROKEN: ClassVar[str] = "broken"

    cloud: OpenStackCloud

    def __init__(
        self,
        cloud: OpenStackCloud,
        hostname: str,
        label: OpenStackLabel,
        image_id: str | None,
        metadata: Mapping[str, str],
        request: NodeRequest | None,
        az: str | None,
        log: Log,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__(cloud, label.name, metadata, log, clock)
        self._hostname = hostname
        self._label = label
        self._image_id = image_id
        self._request = request
        self._az = az
        self._flavor: Flavor | None = None
        self._floating_ip: FloatingIp | None = None
        self._marked = False

    def steps(self) -> Mapping[str, Step]:
        return {**super().steps(), self.ADDRESSING: self._addressing, self.BROKEN: self._ask_why}

    # -- the creation; in a thread of the cloud --

    def create(self, key: CreationKey) -> str:
        label, facts = self._label, self.cloud.facts
        flavor = facts.flavor_of(label)
        image_id = self._image_id or facts.image_of(label)
        facts.networks.get()
        networks = facts.network_ids(label) or [n for n in [self.cloud.default_network()] if n]
        chosen = [{"uuid": network} for network in networks] or ("auto" if self.cloud.names_networks else None)
        metadata = server_metadata(self.cloud.provider, label, self.metadata, self._request, self.log)
        body = server_body(self._hostname, label, flavor, image_id, chosen, metadata, self._az)
        server_id = self.cloud.api.create_server(body, self.permit)
        self._flavor = flavor
        return server_id

    def refused(self, error: Exception) -> Exception:
        """What a refused creation means (O-2, O-3)."""
        if not isinstance(error, CloudRefused):
            return error
        if error.status in (400, 404):
            self.cloud.facts.clear()
        return refusal_of(self.where, self._label, self._az, error)

    def found(self) -> None:
        self._flavor = self.cloud.known_flavor(self._label)

    # -- steps --

    def lets_go_on(self, record: Server | None) -> bool:
        building = record is not None and record.status == BUILD and self.state == self.BUILDING
        return not building or self._label.boot_from_volume

    def seen(self, record: Server) -> bool:
        if record.status == ERROR:
            return self.go(self.BROKEN)
        self._mark_volumes(record)
        return record.status == ACTIVE and self.go(self.ADDRESSING)

    def _ask_why(self) -> bool:
        """Status ERROR: raise the reason.

        Lists seldom have it: Nova looks for faults in one of its databases only, so those of servers that found no
        host, or those of all others, are missing there. The server itself has it.
        """
        server_id = self.external_id
        server = self.cloud.inventory.get(server_id)
        if server is None or server.status != ERROR:
            self.forget_call()
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

    def _addressing(self) -> OpenStackInstance | bool:
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
        if self._label.pool.auto_floating_ip and self.cloud.floating.needed(server):
            note = f"nodepool {self.cloud.provider} node {self.node_id}"
            self.call(lambda: self.cloud.floating.attach(server, note))
            return False
        return self._instance(server)

    def _no_address(self) -> bool:
        # What Nova knows of addresses may come late, and not show as a change.
        self.need_complete_lists()
        if self.clock() - self.since > NO_ADDRESS_SECONDS:
            raise LaunchNetworkException(
                f"{self.where}: server {self.external_id} is active, but has no address; "
                "check the networks of the label and their subnets"
            )
        return False

    def _instance(self, server: Server) -> OpenStackInstance:
        flavor = self._flavor
        volume = self._label.volume_size if self._label.boot_from_volume else 0
        return OpenStackInstance(
            server,
            usage(
                server.cores or (flavor.cores if flavor else 0),
                server.ram or (flavor.ram if flavor else 0),
                len(server.volumes) or (1 if volume else 0),
                volume,
            ),
            self.cloud.facts.networks.known() or [],
            self.cloud.networks,
            cloud_name=self.cloud.config.cloud,
            region=self.cloud.region,
            floating_ip=self._floating_ip,
        )

    def _mark_volumes(self, server: Server) -> None:
        """A volume that Nova made for us must say whose it is, or nobody could tell when it is left over."""
        if self._marked or not self._label.boot_from_volume or not server.volumes:
            return
        self._marked = True
        self.cloud.volumes.begin(server.volumes, self.metadata)


# What a server is to be like: the body of its creation. Pure functions.


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


# What it means that a server was refused, or is broken: whose fault, and what to do about it (O-2 to O-4). Pure
# functions.

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
