# SPDX-License-Identifier: Apache-2.0
"""Instances of the simulated region: how they are made, what becomes of them, and what goes with them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from simulators.base.observer import NODE_KEY, PROVIDER_KEY, Observer
from simulators.ibmvpc.core import IbmCore, VpcError, href
from simulators.ibmvpc.floating_ips import VpcFloatingIps
from simulators.ibmvpc.instance_document import instance_document
from simulators.ibmvpc.instance_spec import VpcInstanceSpec
from simulators.ibmvpc.interfaces import VpcInterface, make_interface
from simulators.ibmvpc.network import VpcNetwork, reference
from simulators.ibmvpc.quota import VpcQuotas
from simulators.ibmvpc.resources import INSTANCES, VOLUMES, VpcResource, VpcTable
from simulators.ibmvpc.settings import DELETE_STUCK, PREEMPTED, STOPPED, STUCK, VpcBootRule
from simulators.ibmvpc.volumes import VpcVolumes

_TEXTS: Final = {
    "cannot_start_capacity": "Can't start instance because resource capacity is unavailable.",
    "cannot_start_compute": "Can't start instance because of a compute resource problem.",
    PREEMPTED: "The virtual server instance was stopped due to preemption.",
}
_NODE: Final = re.compile(r"np(\d+)(?:-\d+){0,2}")
_GROUP: Final = re.compile(r"np_([^_]+)_[^_]+")
_RUNS: Final = ("running", "stopped", "failed")


@dataclass
class _Belongings:
    """What an instance has besides its document."""

    interface: VpcInterface
    volume_id: str
    delete_volume: bool


class VpcInstances:
    """All of them. The caller holds the core's lock."""

    def __init__(
        self,
        core: IbmCore,
        resources: VpcTable,
        network: VpcNetwork,
        volumes: VpcVolumes,
        addresses: VpcFloatingIps,
        quotas: VpcQuotas,
    ) -> None:
        self.core = core
        self.observer = Observer()
        self._resources = resources
        self._network = network
        self._volumes = volumes
        self._addresses = addresses
        self._quotas = quotas
        self._machines: dict[str, _Belongings] = {}
        #: Instances whose deletion is stuck.
        self._stuck: list[VpcResource] = []
        #: Deleted instances that lists still have.
        self.ghosts: list[VpcResource] = []

    # -- making them --

    def create(self, spec: VpcInstanceSpec) -> VpcResource:
        """Accepts a POST.

        :raises VpcError: there is no room.
        """
        self._quotas.check_instance(spec.profile)
        core = self.core
        rule = self._capacity_rule(spec) or next(
            (
                rule
                for rule in core.knobs.boots
                if rule.matches(spec.profile.name, spec.spot) and core.applies(rule, "boots")
            ),
            None,
        )
        instance = self._add(spec, rule)
        if core.happens(core.knobs.hidden_rate, "hidden"):
            instance.listed = False
            core.after(core.knobs.hidden_seconds, "hidden", lambda: setattr(instance, "listed", True))
        if rule is None or rule.kind != STUCK:
            seconds = core.draw(core.knobs.boot_seconds, "boot")
            core.at(core.now() + seconds / 2, lambda: self._start(instance))
            core.at(core.now() + seconds, lambda: self._boot(instance, rule))
        return instance

    def _capacity_rule(self, spec: VpcInstanceSpec) -> VpcBootRule | None:
        for rule in self.core.knobs.capacity:
            if rule.matches(spec.profile.name, spec.zone, spec.spot):
                living = sum(
                    rule.matches(
                        found.document["profile"]["name"], found.zone, found.document["availability"]["class"] == "spot"
                    )
                    for found in self._resources.of(INSTANCES)
                    if found.status != "failed"
                )
                return VpcBootRule(code="cannot_start_capacity") if living >= rule.room else None
        return None

    def _add(self, spec: VpcInstanceSpec, rule: VpcBootRule | None) -> VpcResource:
        core = self.core
        identity = core.new_id(spec.zone, "_")
        address = self._network.take(spec.subnet)
        interface = make_interface(core, identity, spec.subnet, address, spec.interface, spec.attachment)
        document = instance_document(core, identity, spec, interface)
        volume_name = spec.volume_name or f"{spec.name}-boot-{core.number()}"
        volume = self._volumes.add(volume_name, spec.zone, spec.group, spec.tags, spec.capacity)
        attachment_id = core.new_id(spec.zone)
        attachment = {
            "device": {"id": f"{attachment_id}-device"},
            "href": href(f"{INSTANCES}/{identity}/volume_attachments/{attachment_id}"),
            "id": attachment_id,
            "name": "boot",
        }
        delete_volume = spec.delete_volume and not (rule is not None and rule.leave_volume)
        self._volumes.attach(volume, document, attachment, spec.delete_volume)
        shown = {**attachment, "volume": reference(volume.document)}
        document |= {"boot_volume_attachment": shown, "volume_attachments": [shown]}
        self._addresses.interfaces[interface.id] = interface
        self._machines[identity] = _Belongings(interface, volume.id, delete_volume)
        core.events["instances made"] += 1
        instance = self._resources.add(VpcResource(INSTANCES, core.number(), document))
        metadata = node_metadata(instance)
        self.observer.present(identity, metadata, spec.profile.vcpus, spec.profile.memory * 1024)
        return instance

    # -- what becomes of them --

    def _start(self, instance: VpcResource) -> None:
        if instance.status == "pending":
            instance.document |= {"status": "starting", "lifecycle_state": "stable"}

    def _boot(self, instance: VpcResource, rule: VpcBootRule | None) -> None:
        if instance.status not in ("pending", "starting"):
            return
        if rule is not None and rule.kind != STOPPED:
            self._end(instance, "failed", rule.code or "cannot_start_compute", rule.message)
            self.core.events["instances failed"] += 1
            return
        instance.document |= {"status": "running", "lifecycle_state": "stable"}
        if rule is not None:
            code = rule.code or PREEMPTED
            self.core.after((rule.seconds,) * 2, "stop", lambda: self.stop(instance, code, rule.message))

    def stop(self, instance: VpcResource, code: str = PREEMPTED, message: str = "") -> None:
        """IBM stops it, or takes it away if it is to be deleted when it is preempted."""
        if instance.status != "running":
            return
        self.core.events[f"instances {code}"] += 1
        if code == PREEMPTED and instance.document["availability_policy"]["preemption"] == "delete":
            self._remove(instance)
        else:
            self._end(instance, "stopped", code, message)

    def _end(self, instance: VpcResource, status: str, code: str, message: str) -> None:
        text = message or _TEXTS.get(code, "The instance cannot be used.")
        where = f"https://cloud.ibm.com/docs/vpc?topic=vpc-instance-status-messages#{code.replace('_', '-')}"
        reasons = [{"code": code, "message": text, "more_info": where}]
        instance.document |= {"status": status, "status_reasons": reasons}

    def delete(self, instance: VpcResource) -> None:
        """Accepts a DELETE.

        :raises VpcError: not in its status.
        """
        core = self.core
        if core.knobs.delete_conflicts and instance.status not in _RUNS:
            text = "The instance cannot be deleted in the current status."
            raise VpcError(409, "instance_delete_conflict", text, "id", instance.id)
        if instance.status == "deleting":
            return
        rule = next((rule for rule in core.knobs.deletes if core.applies(rule, "deletes")), None)
        if rule is not None and rule.kind != DELETE_STUCK:
            core.events["deletions swallowed"] += 1
            return
        instance.document |= {"status": "deleting", "lifecycle_state": "deleting"}
        if rule is not None:
            self._stuck.append(instance)
            return
        core.after(core.knobs.delete_seconds, "delete", lambda: self._remove(instance))

    def _remove(self, instance: VpcResource) -> None:
        """It is gone; floating IPs are free, and its volume goes with it as it was told."""
        if self._resources.find(INSTANCES, instance.id) is None:
            return
        core, machine = self.core, self._machines.pop(instance.id)
        self._resources.remove(instance)
        self.observer.absent(instance.id)
        core.events["instances deleted"] += 1
        if core.happens(core.knobs.ghost_rate, "ghost"):
            instance.document["status"] = "deleting"
            self.ghosts.append(instance)
            core.after(core.knobs.ghost_seconds, "ghost", lambda: self.ghosts.remove(instance))
        self._addresses.release(machine.interface)
        self._network.give_back(machine.interface.subnet.id, machine.interface.address)
        volume = self._resources.find(VOLUMES, machine.volume_id)
        if volume is None:
            return
        self._volumes.detach(volume)
        if machine.delete_volume and not core.happens(core.knobs.leak_rate, "leak"):
            self._volumes.remove(volume)

    def release_stuck(self) -> None:
        """Ends what is stuck in its deletion."""
        stuck, self._stuck = self._stuck, []
        for instance in stuck:
            self._remove(instance)

    def forget(self, instance: VpcResource) -> None:
        """Removes an instance behind everybody's back."""
        self._remove(instance)

    def interface(self, instance: VpcResource) -> VpcInterface:
        """Its primary interface."""
        return self._machines[instance.id].interface


def node_metadata(instance: VpcResource) -> dict[str, str]:
    """Which node it belongs to, by the names that are the only mark of it."""
    node, group = _NODE.fullmatch(instance.name), _GROUP.fullmatch(instance.group_name)
    if node is None or group is None:
        return {}
    return {NODE_KEY: node[1], PROVIDER_KEY: group[1]}
