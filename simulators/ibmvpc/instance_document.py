# SPDX-License-Identifier: Apache-2.0
"""How an instance looks, and how it looked to clients of older versions of the API."""

from __future__ import annotations

from simulators.base.messages import Json
from simulators.ibmvpc.core import IbmCore, crn, href, zone_reference
from simulators.ibmvpc.instance_spec import VpcInstanceSpec
from simulators.ibmvpc.interfaces import VpcInterface
from simulators.ibmvpc.network import reference
from simulators.ibmvpc.resources import INSTANCES

#: Versions before it have the address of an interface in another place.
_RESERVED_IPS = "2022-03-29"


def instance_document(core: IbmCore, identity: str, spec: VpcInstanceSpec, interface: VpcInterface) -> Json:
    """A new instance: pending. Its boot volume is added later."""
    profile = spec.profile
    vcpu = {"architecture": profile.architecture, "count": profile.vcpus, "manufacturer": "intel", "percentage": 100}
    profile_reference = {
        "href": href(f"instance/profiles/{profile.name}"),
        "name": profile.name,
        "resource_type": "instance_profile",
    }
    document = {
        "availability": {"class": "spot" if spec.spot else "standard"},
        "availability_policy": {"host_failure": "restart", "preemption": spec.preemption},
        "bandwidth": profile.vcpus * 2000,
        "cluster_network_attachments": [],
        "confidential_compute_mode": "disabled",
        "created_at": core.stamp(),
        "crn": crn("instance", identity, spec.zone),
        "disks": [],
        "enable_secure_boot": False,
        "health_reasons": [],
        "health_state": "ok",
        "href": href(f"{INSTANCES}/{identity}"),
        "id": identity,
        "image": reference(spec.image.document),
        "lifecycle_reasons": [],
        "lifecycle_state": "pending",
        "memory": profile.memory,
        "metadata_service": {"enabled": False, "protocol": "http", "response_hop_limit": 1},
        "name": spec.name,
        "network_attachments": [],
        "network_interfaces": [interface.own_reference()],
        "primary_network_interface": interface.own_reference(),
        "profile": profile_reference,
        "reservation_affinity": {"policy": "disabled", "pool": []},
        "resource_group": spec.group.reference,
        "resource_type": "instance",
        "software_attachments": [],
        "startable": True,
        "status": "pending",
        "status_reasons": [],
        "threads_per_core": 2,
        "total_network_bandwidth": profile.vcpus * 1500,
        "total_volume_bandwidth": profile.vcpus * 500,
        "vcpu": vcpu,
        "volume_attachments": [],
        "volume_bandwidth_qos_mode": "weighted",
        "vpc": spec.subnet.document["vpc"],
        "zone": zone_reference(spec.zone),
    }
    if interface.attachment_id:
        document["network_attachments"] = [interface.attachment_reference()]
        document["primary_network_attachment"] = interface.attachment_reference()
    return document


def shown_instance(document: Json, version: str) -> Json:
    """As a client of that version of the API sees it."""
    if version >= _RESERVED_IPS:
        return document
    interfaces = [_older(found) for found in document["network_interfaces"]]
    primary = _older(document["primary_network_interface"])
    return {**document, "network_interfaces": interfaces, "primary_network_interface": primary}


def _older(interface: Json) -> Json:
    shown = {name: value for name, value in interface.items() if name != "primary_ip"}
    return {**shown, "primary_ipv4_address": interface["primary_ip"]["address"]}
