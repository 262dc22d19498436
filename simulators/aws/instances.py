# SPDX-License-Identifier: Apache-2.0
"""Instances of the simulated region, from RunInstances until they are no longer shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from simulators.aws import settings as kinds
from simulators.aws.core import RegionCore
from simulators.aws.hosts import SimulatedHosts
from simulators.aws.instance_record import (
    PENDING,
    RUNNING,
    SHUTTING_DOWN,
    TERMINATED,
    InstanceState,
    SimulatedInstance,
)
from simulators.aws.network import Vpc
from simulators.aws.quota_list import vcpu_quota
from simulators.aws.run_spec import RunSpec
from simulators.aws.settings import InstanceBootRule
from simulators.aws.volumes import SimulatedVolumes
from simulators.base.lag import Lagging
from simulators.base.messages import ApiError
from simulators.base.observer import Observer

MANY = 1_000_000
USER_ENDED = InstanceState(
    SHUTTING_DOWN, "Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown"
)
SPOT_ENDED = InstanceState(
    SHUTTING_DOWN,
    "Server.SpotInstanceTermination",
    "Server.SpotInstanceTermination: Spot instance termination",
)


class SimulatedInstances:
    """All instances by id, in the order in which they were made. The caller holds the core's lock."""

    def __init__(self, core: RegionCore, network: Vpc, volumes: SimulatedVolumes, hosts: SimulatedHosts) -> None:
        self.core = core
        self.hosts = hosts
        self.network = network
        self.volumes = volumes
        self.instances: dict[str, SimulatedInstance] = {}
        self.observer = Observer()
        #: Live instances by type, zone, and whether they are spot instances.
        self._live: Counter[tuple[str, str, bool]] = Counter()
        #: Their vCPUs by code of quota.
        self._vcpus: Counter[str] = Counter()

    # -- room --

    def capacity(self, kind: str, zone: str, spot: bool) -> int:
        """How many more instances of a type a zone takes."""
        for rule in self.core.knobs.capacity:
            if rule.matches(kind, zone, spot):
                used = sum(number for key, number in self._live.items() if rule.matches(*key))
                return max(0, rule.room - used)
        return MANY

    def room(self, spec: RunSpec, least: int, most: int) -> int:
        """How many instances there will be: as many as possible, but not fewer than ``least``.

        :raises ApiError: the account or the zone has no room for so many.
        """
        number = most
        if spec.host_id is not None:
            self.hosts.check_room(spec.host_id, spec.type)
            number = 1
        for found, error in self._limits(spec):
            if found < least:
                raise error(found)
            number = min(number, found)
        return number

    def _limits(self, spec: RunSpec) -> list[tuple[int, Callable[[int], ApiError]]]:
        knobs = self.core.knobs
        limits: list[tuple[int, Callable[[int], ApiError]]] = []
        if knobs.instance_limit >= 0:
            left = max(0, knobs.instance_limit - self._live.total())
            text = f"Your quota allows for {left} more running instance(s). You requested at least 1"
            limits.append((left, lambda _left: ApiError(400, text, "InstanceLimitExceeded")))
        code = vcpu_quota(spec.type.name, spec.spot)
        if code in knobs.quotas and spec.host_id is None:
            limit = int(knobs.quotas[code])
            left = max(0, limit - self._vcpus[code]) // spec.type.vcpus
            limits.append((left, lambda _left: _vcpu_error(limit, spec.spot)))
        for device in spec.devices:
            left = self.volumes.room(device.type, device.size_gib)
            text = f"You have exceeded your maximum {device.type} storage limit."
            limits.append((left, lambda _left, text=text: ApiError(400, text, "VolumeLimitExceeded")))  # type: ignore[misc]
        if spec.host_id is None:
            room = self.capacity(spec.type.name, spec.zone, spec.spot)
            limits.append((room, lambda _left: _capacity_error(spec)))
        limits.append((spec.subnet.addresses.free, lambda left: _addresses_error(spec, left)))
        return limits

    # -- life --

    def run(self, spec: RunSpec, number: int) -> list[SimulatedInstance]:
        """Makes instances, all in one reservation, and decides what will become of them."""
        reservation_id = self.core.new_id("r")
        return [self._run_one(spec, reservation_id, index) for index in range(number)]

    def _run_one(self, spec: RunSpec, reservation_id: str, index: int) -> SimulatedInstance:
        core, knobs = self.core, self.core.knobs
        tags: Lagging[dict[str, str]] = Lagging(spec.tags, core.now)
        if knobs.late_tags and core.happens(knobs.tag_lag_rate, "tag lag"):
            tags = Lagging({}, core.now)
            tags.set(spec.tags, core.draw(knobs.tag_lag_seconds, "tag lag seconds"))
        instance = SimulatedInstance(
            id=core.new_id("i"),
            reservation_id=reservation_id,
            launch_index=index,
            spec=spec,
            launched=core.stamp(),
            state=Lagging(InstanceState(PENDING, "pending", "pending"), core.now),
            tags=tags,
            private_ipv4=spec.subnet.addresses.take() or "",
            public_ipv4=self.network.public.take() if spec.public_ipv4 else None,
            spot_request_id=core.new_id("sir") if spec.spot else None,
        )
        # They lead to the same host over IPv6.
        instance.ipv6 = [f"::ffff:{instance.private_ipv4}"] * spec.ipv6_count
        if core.happens(knobs.hidden_rate, "hidden"):
            instance.visible_at = core.now() + core.draw(knobs.hidden_seconds, "hidden seconds")
        self._add_volumes(instance)
        self.instances[instance.id] = instance
        self._count(instance, 1)
        self.changed(instance)
        core.events["instances created"] += 1
        self._begin_boot(instance)
        return instance

    def _add_volumes(self, instance: SimulatedInstance) -> None:
        spec = instance.spec
        for device in spec.devices:
            volume = self.volumes.create(device.size_gib, device.type, spec.zone, dict(spec.volume_tags))
            volume.snapshot_id, volume.device = device.snapshot_id, device.name
            volume.iops, volume.throughput = device.iops, device.throughput
            volume.instance_id, volume.delete_on_termination = instance.id, device.delete_on_termination
            instance.volumes.append(volume)

    def _begin_boot(self, instance: SimulatedInstance) -> None:
        core, spec = self.core, instance.spec
        rules = (rule for rule in core.knobs.boots if rule.matches(spec.type.name, spec.spot))
        rule = next((rule for rule in rules if core.applies(rule, "boot faults")), None)
        if rule is not None:
            core.events[f"boots {rule.kind}"] += 1
        core.after(core.knobs.boot_seconds, "boot", lambda: self._end_boot(instance, rule))

    def _end_boot(self, instance: SimulatedInstance, rule: InstanceBootRule | None) -> None:
        if instance.name != PENDING or (rule is not None and rule.kind == kinds.STUCK):
            return
        if rule is not None and rule.kind == kinds.FAILED:
            reason = InstanceState(TERMINATED, rule.code, f"{rule.code}: {rule.message}")
            self._terminate(instance, reason)
            return
        self._set_state(instance, InstanceState(RUNNING))
        self.core.events["instances running"] += 1
        if rule is not None:
            ended = (
                SPOT_ENDED
                if instance.spec.spot
                else InstanceState(SHUTTING_DOWN, rule.code, f"{rule.code}: {rule.message}")
            )
            self.core.at(self.core.now() + rule.seconds, lambda: self.end(instance, ended))

    def terminate(self, instance: SimulatedInstance) -> None:
        """Accepts the end of an instance, and decides whether it happens."""
        core = self.core
        rule = next((rule for rule in core.knobs.ends if core.applies(rule, "end faults")), None)
        if rule is not None:
            core.events[f"ends {rule.kind}"] += 1
            if rule.kind == kinds.SWALLOWED:
                return
        self.end(instance, USER_ENDED, stuck=rule is not None)

    def end(self, instance: SimulatedInstance, reason: InstanceState, stuck: bool = False) -> None:
        """The instance shuts down, for this reason; twice does nothing."""
        if not instance.live:
            return
        self._set_state(instance, reason)
        if not stuck:
            self.core.after(self.core.knobs.end_seconds, "end", lambda: self._terminate(instance, reason))

    def interrupt(self, instance: SimulatedInstance) -> None:
        """AWS takes a spot instance away."""
        self.end(instance, SPOT_ENDED)

    def release_stuck(self) -> None:
        """Ends what is stuck: pending instances run, those that shut down end."""
        for instance in list(self.instances.values()):
            if instance.name == SHUTTING_DOWN:
                self._terminate(instance, instance.state.value)
            elif instance.name == PENDING:
                self._end_boot(instance, None)

    def _terminate(self, instance: SimulatedInstance, reason: InstanceState) -> None:
        if instance.name == TERMINATED:
            return
        self._set_state(instance, InstanceState(TERMINATED, reason.reason_code, reason.reason))
        self._count(instance, -1)
        self.observer.absent(instance.id)
        instance.spec.subnet.addresses.give_back(instance.private_ipv4)
        if instance.public_ipv4:
            self.network.public.give_back(instance.public_ipv4)
        self.volumes.instance_ended(instance.id)
        core = self.core
        core.events["instances terminated"] += 1
        core.at(core.now() + core.knobs.terminated_seconds, lambda: self.forget(instance))

    def forget(self, instance: SimulatedInstance) -> None:
        """It is shown no more; also for tests in which an instance vanishes."""
        if instance.name != TERMINATED:
            self._terminate(instance, USER_ENDED)
        self.instances.pop(instance.id, None)

    def changed(self, instance: SimulatedInstance) -> None:
        """Must follow a change of tags."""
        if instance.name != TERMINATED:
            kind = instance.spec.type
            self.observer.present(instance.id, instance.node_metadata, kind.cores, kind.ram_mib)

    # -- inside --

    def _set_state(self, instance: SimulatedInstance, state: InstanceState) -> None:
        lag = self.core.draw(self.core.knobs.state_lag_seconds, "state lag")
        instance.state.set(state, lag)

    def _count(self, instance: SimulatedInstance, sign: int) -> None:
        spec = instance.spec
        if spec.host_id is not None:
            # It counts as a host.
            on_host = self.hosts.get(spec.host_id).instances
            (on_host.add if sign > 0 else on_host.discard)(instance.id)
            return
        self._live[spec.type.name, spec.zone, spec.spot] += sign
        self._vcpus[vcpu_quota(spec.type.name, spec.spot)] += sign * spec.type.vcpus

    # -- looks --

    def visible(self) -> list[SimulatedInstance]:
        """Those that lists show."""
        now = self.core.now()
        return [instance for instance in self.instances.values() if instance.visible_at <= now]

    def get(self, ids: list[str]) -> list[SimulatedInstance]:
        """Instances by id.

        :raises ApiError: 400, one of them does not exist, or not yet for who asks.
        """
        malformed = [given for given in ids if not given.startswith("i-")]
        if malformed:
            raise ApiError(400, f'Invalid id: "{malformed[0]}"', "InvalidInstanceID.Malformed")
        now = self.core.now()
        known = {given for given in ids if given in self.instances and self.instances[given].visible_at <= now}
        missing = [given for given in ids if given not in known]
        if missing:
            many = len(missing) > 1
            text = f"The instance ID{'s' if many else ''} '{', '.join(missing)}' do{'' if many else 'es'} not exist"
            raise ApiError(400, text, "InvalidInstanceID.NotFound")
        return [self.instances[given] for given in ids]


def _vcpu_error(limit: int, spot: bool) -> ApiError:
    if spot:
        return ApiError(400, "Max spot instance count exceeded", "MaxSpotInstanceCountExceeded")
    text = (
        f"You have requested more vCPU capacity than your current vCPU limit of {limit} allows for the instance bucket "
        "that the specified instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request to "
        "request an adjustment to this limit."
    )
    return ApiError(400, text, "VcpuLimitExceeded")


def _capacity_error(spec: RunSpec) -> ApiError:
    text = (
        "There is no Spot capacity available that matches your request."
        if spec.spot
        else f"We currently do not have sufficient {spec.type.name} capacity in the Availability Zone you requested "
        f"({spec.zone}). Our system will be working on provisioning additional capacity."
    )
    return ApiError(500, text, "InsufficientInstanceCapacity")


def _addresses_error(spec: RunSpec, left: int) -> ApiError:
    text = f"There are not enough free addresses in subnet '{spec.subnet.id}' for so many instances; {left} are left."
    return ApiError(400, text, "InsufficientFreeAddressesInSubnet")
