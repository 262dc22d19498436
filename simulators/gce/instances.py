# SPDX-License-Identifier: Apache-2.0
"""Instances: how they are made, fail and go, with their disks and addresses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from simulators.base.messages import ApiError, Json
from simulators.base.observer import Observer
from simulators.gce import quotas
from simulators.gce.errors import RATE, already_exists, operation_error
from simulators.gce.instance_spec import InsertDisk, InsertSpec
from simulators.gce.links import GLOBAL, PROJECT, ZONES, link, path_of, zone_scope
from simulators.gce.operations import PREEMPTED as PREEMPTED_OPERATION
from simulators.gce.operations import SYSTEM, ProjectOperation
from simulators.gce.resources import ProjectResource, fingerprint
from simulators.gce.settings import DELETE_FAILED, FAILED, PREEMPTED, STUCK, GceBootRule

if TYPE_CHECKING:
    from simulators.gce.cloud import Project

PROVISIONING, STAGING, RUNNING, STOPPING, TERMINATED = "PROVISIONING", "STAGING", "RUNNING", "STOPPING", "TERMINATED"
#: When an operation is worked on, and when the instance is STAGING, as shares of the time of the boot.
_RUN_AT, _STAGING_AT = 0.2, 0.5
STOCKOUT: Final = (
    "The zone 'projects/{project}/zones/{zone}' does not have enough resources available to fulfill the request."
)
CONCURRENT: Final = (
    "Quota 'INSERT_INSTANCE_OPERATIONS' exceeded.  Limit: {limit} concurrent operations in region {region}."
)


@dataclass(kw_only=True)
class ProjectInstance(ProjectResource):
    """One of them.

    :param insert: the operation that makes it; ``deletions``: those that delete it.
    """

    spec: InsertSpec
    insert: ProjectOperation | None = None
    deletions: list[ProjectOperation] = field(default_factory=list)

    @property
    def status(self) -> str:
        return str(self.document["status"])


class ProjectInstances:
    """All instances of a project."""

    def __init__(self, cloud: Project) -> None:
        self.cloud = cloud
        self.observer = Observer()
        #: Deleted instances that lists still show.
        self.ghosts: list[ProjectInstance] = []
        self._stuck: list[ProjectInstance] = []

    def all(self) -> Iterator[ProjectInstance]:
        for instance in self.cloud.resources.of("instances"):
            assert isinstance(instance, ProjectInstance)
            yield instance

    # -- making them --

    def create(self, spec: InsertSpec, request_id: str = "") -> ProjectOperation:
        """Accepts an insert.

        :raises ApiError: it is refused.
        """
        cloud, core = self.cloud, self.cloud.core
        self._check_names(spec)
        exceeded = quotas.exceeded(cloud, spec)
        if exceeded is not None and not core.knobs.late_quotas:
            raise exceeded.refusal()
        error = self._too_many(spec) if exceeded is None else exceeded.error()
        if error is not None:
            return self._refuse_later(spec, error, request_id)
        rule = self._no_room(spec) or next(
            (
                rule
                for rule in core.knobs.boots
                if fnmatchcase(spec.type.name, rule.machine_type) and core.applies(rule, "boots")
            ),
            None,
        )
        instance = self._add(spec)
        operation = instance.insert = cloud.operations.begin("insert", instance, request_id)
        core.events["instances made"] += 1
        if core.happens(core.knobs.hidden_rate, "hidden"):
            instance.listed = False
            core.after(core.knobs.hidden_seconds, "hidden", lambda: setattr(instance, "listed", True))
        self._plan_boot(instance, operation, rule)
        return operation

    def _refuse_later(self, spec: InsertSpec, error: Json, request_id: str) -> ProjectOperation:
        """Nothing is made, not even for a while; only the operation tells it."""
        cloud, core = self.cloud, self.cloud.core
        document = {"id": cloud.resources.new_id()}
        target = ProjectResource(PROJECT, zone_scope(spec.zone), "instances", spec.name, document)
        operation = cloud.operations.begin("insert", target, request_id)
        core.events[f"inserts failed {error['code']}"] += 1
        core.after(core.knobs.delete_seconds, "refuse", lambda: cloud.operations.end(operation, error, 403))
        return operation

    def _plan_boot(self, instance: ProjectInstance, operation: ProjectOperation, rule: GceBootRule | None) -> None:
        core = self.cloud.core
        seconds, now = core.draw(core.knobs.boot_seconds, "boot"), core.now()
        core.at(now + seconds * _RUN_AT, lambda: self.cloud.operations.run(operation))
        if rule is None or rule.kind != STUCK:
            core.at(now + seconds * _STAGING_AT, lambda: self._stage(instance))
            core.at(now + seconds, lambda: self._boot(instance, operation, rule))

    def _check_names(self, spec: InsertSpec) -> None:
        scope = zone_scope(spec.zone)
        for collection, name in [("instances", spec.name), *(("disks", disk.name) for disk in spec.disks)]:
            path = path_of(PROJECT, scope, collection, name)
            if self.cloud.resources.find(path) is not None:
                raise already_exists(path)

    def _too_many(self, spec: InsertSpec) -> Json | None:
        most, region = self.cloud.core.knobs.concurrent_operations, self.cloud.region_of(spec.zone)
        if most is None:
            return None
        running = sum(
            ZONES.get(operation.scope.removeprefix("zones/")) == region
            for operation in self.cloud.operations.running("insert")
        )
        if running < most:
            return None
        if not self.cloud.core.knobs.late_quotas:
            raise ApiError(403, "Rate Limit Exceeded", RATE)
        return operation_error("CONCURRENT_OPERATIONS_QUOTA_EXCEEDED", CONCURRENT.format(limit=most, region=region))

    def _no_room(self, spec: InsertSpec) -> GceBootRule | None:
        """What becomes of an instance for which the zone has no room; None = there is."""
        for rule in self.cloud.core.knobs.capacity:
            if not rule.matches(spec.type.name, spec.zone, spec.spot):
                continue
            living = sum(
                rule.matches(one.spec.type.name, one.spec.zone, one.spec.spot) and one.status != TERMINATED
                for one in self.all()
            )
            if living < rule.room:
                return None
            message = STOCKOUT.format(project=PROJECT, zone=spec.zone)
            if not rule.late:
                raise ApiError(503, message, "insufficientCapacity")
            code = "ZONE_RESOURCE_POOL_EXHAUSTED"
            if rule.details:
                code, message = f"{code}_WITH_DETAILS", f"{message}  '(resource type:compute)'."
            else:
                message = f"{message}  Try a different zone, or try again later."
            return GceBootRule(kind=FAILED, code=code, message=message, status=503)
        return None

    def _add(self, spec: InsertSpec) -> ProjectInstance:
        body = spec.body
        items = [{"key": key, "value": value} for key, value in spec.metadata.items()]
        document: Json = {
            "tags": {**(body.get("tags") or {}), "fingerprint": fingerprint(str(body.get("tags")))},
            "machineType": link(path_of(PROJECT, zone_scope(spec.zone), "machineTypes", spec.type.name)),
            "status": PROVISIONING,
            "canIpForward": bool(body.get("canIpForward")),
            "networkInterfaces": [self._interface(number, e) for number, e in enumerate(body["networkInterfaces"])],
            "disks": [self._add_disk(spec, number, disk) for number, disk in enumerate(spec.disks)],
            "metadata": {"kind": "compute#metadata", "fingerprint": fingerprint(str(items)), "items": items},
            "serviceAccounts": list(body.get("serviceAccounts") or []),
            "scheduling": _scheduling(spec),
            "cpuPlatform": "Unknown CPU Platform",
            "startRestricted": False,
            "deletionProtection": bool(body.get("deletionProtection")),
            "shieldedInstanceConfig": {
                "enableSecureBoot": False,
                "enableVtpm": True,
                "enableIntegrityMonitoring": True,
                **(body.get("shieldedInstanceConfig") or {}),
            },
            "fingerprint": fingerprint(spec.name),
        }
        document |= {name: body[name] for name in ("description", "minCpuPlatform", "hostname") if name in body}
        instance = ProjectInstance(PROJECT, zone_scope(spec.zone), "instances", spec.name, document, spec=spec)
        self.cloud.resources.add(instance, spec.labels)
        for entry in instance.document["disks"]:
            self._disk_of(entry).document["users"] = [instance.link]
        self.observer.present(instance.document["id"], spec.metadata, spec.type.cpus, spec.type.memory_mb)
        return instance

    def _interface(self, number: int, given: Json) -> Json:
        network = given.get("network") or "global/networks/default"
        shown: Json = {
            "kind": "compute#networkInterface",
            "name": f"nic{number}",
            "network": link(path_of(PROJECT, GLOBAL, "networks", network.rpartition("/")[2])),
            "networkIP": self.cloud.take_address(),
            "stackType": "IPV4_ONLY",
            "fingerprint": fingerprint(str(number)),
        }
        if given.get("subnetwork"):
            shown["subnetwork"] = given["subnetwork"]
        if given.get("accessConfigs"):
            # The address itself comes with the boot.
            shown["accessConfigs"] = [
                {
                    "kind": "compute#accessConfig",
                    "type": "ONE_TO_ONE_NAT",
                    "name": entry.get("name") or "External NAT",
                    "networkTier": entry.get("networkTier") or "PREMIUM",
                }
                for entry in given["accessConfigs"]
            ]
        return shown

    def _add_disk(self, spec: InsertSpec, number: int, disk: InsertDisk) -> Json:
        document: Json = {
            "sizeGb": str(disk.size_gb),
            "status": "READY",
            "sourceImage": link(disk.image),
            "type": link(path_of(PROJECT, zone_scope(spec.zone), "diskTypes", disk.type)),
            "physicalBlockSizeBytes": "4096",
        }
        made = ProjectResource(PROJECT, zone_scope(spec.zone), "disks", disk.name, document)
        self.cloud.resources.add(made, disk.labels)
        return {
            "kind": "compute#attachedDisk",
            "type": "PERSISTENT",
            "mode": "READ_WRITE",
            "source": made.link,
            "deviceName": disk.device_name,
            "index": number,
            "boot": number == 0,
            "autoDelete": disk.auto_delete,
            "interface": "SCSI",
            "diskSizeGb": str(disk.size_gb),
            "architecture": "X86_64",
        }

    def _disk_of(self, entry: Json) -> ProjectResource:
        return self.cloud.resources.get(entry["source"].partition("/compute/v1/")[2])

    # -- what becomes of them --

    def _present(self, instance: ProjectInstance) -> bool:
        return self.cloud.resources.find(instance.path) is instance

    def _stage(self, instance: ProjectInstance) -> None:
        if self._present(instance) and instance.status == PROVISIONING:
            instance.document["status"] = STAGING

    def _boot(self, instance: ProjectInstance, operation: ProjectOperation, rule: GceBootRule | None) -> None:
        if not self._present(instance) or instance.status not in (PROVISIONING, STAGING):
            return
        cloud, core = self.cloud, self.cloud.core
        if rule is not None and rule.kind == FAILED:
            core.events[f"inserts failed {rule.code}"] += 1
            self._remove(instance, leave=False, visible=False)
            cloud.operations.end(operation, _failure(rule, instance.spec), rule.status)
            return
        instance.document |= {"status": RUNNING, "lastStartTimestamp": core.stamp(), "cpuPlatform": "AMD Rome"}
        for interface in instance.document["networkInterfaces"]:
            for access in interface.get("accessConfigs", ()):
                access["natIP"] = cloud.take_public_address()
        cloud.operations.end(operation)
        if rule is not None:
            end = self.preempt if rule.kind == PREEMPTED else self.terminate
            core.after((rule.seconds, rule.seconds), "end", lambda: end(instance))

    def preempt(self, instance: ProjectInstance) -> None:
        """Google takes a spot instance away."""
        if not self._present(instance) or instance.status != RUNNING:
            return
        self.cloud.core.events["instances preempted"] += 1
        operation = self.cloud.operations.done(PREEMPTED_OPERATION, instance, user=SYSTEM)
        operation.document["statusMessage"] = "Instance was preempted."
        if instance.spec.termination == "DELETE":
            self._remove(instance, leave=False)
        else:
            self.terminate(instance)

    def terminate(self, instance: ProjectInstance) -> None:
        """It has stopped; what belongs to it stays, but for its external address."""
        if self._present(instance) and instance.status == RUNNING:
            instance.document |= {"status": TERMINATED, "lastStopTimestamp": self.cloud.core.stamp()}
            self._give_back_public(instance)

    def delete(self, instance: ProjectInstance, request_id: str = "") -> ProjectOperation:
        """Accepts a DELETE."""
        core, operations = self.cloud.core, self.cloud.operations
        operation = operations.begin("delete", instance, request_id)
        operations.run(operation)
        begun = bool(instance.deletions)
        rule = None if begun else next((rule for rule in core.knobs.deletes if core.applies(rule, "deletes")), None)
        if rule is not None and rule.kind == DELETE_FAILED:
            core.events["deletions failed"] += 1
            error = operation_error("INTERNAL_ERROR", "Internal error. Please try again or contact Google Support.")
            core.after(core.knobs.delete_seconds, "delete", lambda: operations.end(operation, error, 500))
            return operation
        instance.deletions.append(operation)
        instance.document["status"] = STOPPING
        if instance.insert is not None and not instance.insert.over:
            error = operation_error("OPERATION_CANCELED_BY_USER", "The operation was canceled by a deletion.")
            operations.end(instance.insert, error, 409)
        if rule is not None:
            self._stuck.append(instance)
        elif not begun:
            core.after(core.knobs.delete_seconds, "delete", lambda: self._delete(instance))
        return operation

    def _delete(self, instance: ProjectInstance) -> None:
        self._remove(instance, leave=self.cloud.core.happens(self.cloud.core.knobs.leak_rate, "leak"))

    def _remove(self, instance: ProjectInstance, leave: bool, visible: bool = True) -> None:
        """The instance is gone.

        :param leave: its boot disk stays.
        :param visible: lists may show it for a while.
        """
        cloud, core = self.cloud, self.cloud.core
        if not self._present(instance):
            return
        cloud.resources.remove(instance)
        self.observer.absent(instance.document["id"])
        core.events["instances deleted"] += 1
        self._give_back_public(instance)
        for interface in instance.document["networkInterfaces"]:
            cloud.give_back_address(interface["networkIP"])
        for entry in instance.document["disks"]:
            disk = self._disk_of(entry)
            disk.document.pop("users", None)
            if entry["autoDelete"] and not leave:
                cloud.resources.remove(disk)
        if visible and core.happens(core.knobs.ghost_rate, "ghost"):
            instance.document["status"] = STOPPING
            self.ghosts.append(instance)
            core.after(core.knobs.ghost_seconds, "ghost", lambda: self.ghosts.remove(instance))
        for operation in instance.deletions:
            cloud.operations.end(operation)

    def _give_back_public(self, instance: ProjectInstance) -> None:
        for interface in instance.document["networkInterfaces"]:
            for access in interface.get("accessConfigs", ()):
                address = access.pop("natIP", None)
                if address is not None:
                    self.cloud.give_back_public_address(address)

    def release_stuck(self) -> None:
        """Ends what is stuck in its deletion."""
        stuck, self._stuck = self._stuck, []
        for instance in stuck:
            self._remove(instance, leave=False)

    def forget(self, instance: ProjectInstance) -> None:
        """Removes an instance behind everybody's back."""
        self._remove(instance, leave=False, visible=False)


def _scheduling(spec: InsertSpec) -> Json:
    given = dict(spec.body.get("scheduling") or {})
    if not spec.spot:
        defaults: Json = {"onHostMaintenance": "MIGRATE", "automaticRestart": True, "preemptible": False}
        return {**defaults, "provisioningModel": "STANDARD", **given}
    defaults = {"onHostMaintenance": "TERMINATE", "automaticRestart": False, "preemptible": True}
    if given.get("provisioningModel") == "SPOT":
        defaults |= {"provisioningModel": "SPOT", "instanceTerminationAction": spec.termination}
    else:
        defaults["provisioningModel"] = "STANDARD"
    return {**given, **defaults}


def _failure(rule: GceBootRule, spec: InsertSpec) -> Json:
    if not rule.code.startswith("ZONE_RESOURCE_POOL_EXHAUSTED"):
        return operation_error(rule.code, rule.message)
    text = (
        f"A {spec.type.name} VM instance is currently unavailable in the {spec.zone} zone. Alternatively, you can try "
        "your request again with a different VM hardware configuration or at a later time. For more information, see "
        "the troubleshooting documentation."
    )
    where = {"vmType": spec.type.name, "zone": spec.zone, "attachment": "", "zonesAvailable": ""}
    troubles = {
        "description": "Troubleshooting documentation",
        "url": "https://cloud.google.com/compute/docs/resource-error",
    }
    return operation_error(
        rule.code,
        rule.message,
        {"help": {"links": [troubles]}},
        {"localizedMessage": {"locale": "en-US", "message": text}},
        {"errorInfo": {"domain": "compute.googleapis.com", "reason": "resource_availability", "metadatas": where}},
    )
