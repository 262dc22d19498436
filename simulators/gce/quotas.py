# SPDX-License-Identifier: Apache-2.0
"""What the instances and disks of a region use, and what a new instance would exceed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from simulators.base.messages import ApiError, Json
from simulators.gce import catalog
from simulators.gce.errors import operation_error
from simulators.gce.links import PROJECT, region_scope

if TYPE_CHECKING:
    from simulators.gce.cloud import Project
    from simulators.gce.instance_spec import InsertSpec
    from simulators.gce.instances import ProjectInstance


class Exceeded(NamedTuple):
    """A quota that has no room. ``region``: "" = it is the project's."""

    metric: str
    limit: float
    region: str

    @property
    def message(self) -> str:
        where = f" in region {self.region}" if self.region else " globally"
        return f"Quota '{self.metric}' exceeded.  Limit: {self.limit:.1f}{where}."

    def refusal(self) -> ApiError:
        """Of the call."""
        return ApiError(403, self.message, "quotaExceeded")

    def error(self) -> Json:
        """Of the operation."""
        scope = "region" if self.region else "global"
        info = {
            "metricName": f"compute.googleapis.com/{self.metric.lower()}",
            "limitName": f"{self.metric.replace('_', '-')}-per-project{'-region' if self.region else ''}",
            "dimensions": {scope: self.region or "global"},
            "limit": self.limit,
        }
        return operation_error("QUOTA_EXCEEDED", self.message, {"quotaInfo": info})


def limits(cloud: Project) -> dict[str, float]:
    """Of each region."""
    return {**catalog.REGION_QUOTAS, **cloud.core.knobs.quotas}


def project_limits(cloud: Project) -> dict[str, float]:
    return {**catalog.PROJECT_QUOTAS, **cloud.core.knobs.project_quotas}


def wanted(cloud: Project, spec: InsertSpec) -> Counter[str]:
    """What a new instance takes, by metric; CPUS_ALL_REGIONS is one of them."""
    found = _cores(cloud, spec)
    found[catalog.INSTANCES] += 1
    found[catalog.ADDRESSES] += spec.addresses
    for disk in spec.disks:
        found[catalog.DISK_METRICS[disk.type]] += disk.size_gb
    return found


def _cores(cloud: Project, spec: InsertSpec) -> Counter[str]:
    """Spot instances have a quota of their own, if the project was given one, and count nowhere else then."""
    if spec.spot and limits(cloud)[catalog.PREEMPTIBLE_CPUS] > 0:
        return Counter({catalog.PREEMPTIBLE_CPUS: spec.type.cpus})
    return Counter({spec.type.metric: spec.type.cpus, catalog.CPUS_ALL_REGIONS: spec.type.cpus})


def used(cloud: Project, region: str = "") -> Counter[str]:
    """What there is now. ``region``: "" = everywhere."""
    found: Counter[str] = Counter()
    instances: list[ProjectInstance] = list(cloud.instances.all())
    for instance in instances:
        if region and cloud.region_of(instance.spec.zone) != region:
            continue
        found[catalog.INSTANCES] += 1
        found[catalog.ADDRESSES] += instance.spec.addresses
        if instance.document["status"] != "TERMINATED":
            found += _cores(cloud, instance.spec)
    for disk in cloud.resources.of("disks"):
        zone = disk.scope.removeprefix("zones/")
        if not region or cloud.region_of(zone) == region:
            kind = disk.document["type"].rpartition("/")[2]
            found[catalog.DISK_METRICS[kind]] += int(disk.document["sizeGb"])
    for address in cloud.resources.of("addresses"):
        found["STATIC_ADDRESSES"] += not region or address.scope == region_scope(region)
    found["IMAGES"] = sum(image.project == PROJECT for image in cloud.resources.of("images"))
    return found


def exceeded(cloud: Project, spec: InsertSpec) -> Exceeded | None:
    """The first quota that a new instance would exceed; None = there is room."""
    region = cloud.region_of(spec.zone)
    here, everywhere = used(cloud, region), used(cloud)
    for metric, number in wanted(cloud, spec).items():
        if metric in project_limits(cloud):
            limit, present, where = project_limits(cloud)[metric], everywhere[metric], ""
        else:
            limit, present, where = limits(cloud)[metric], here[metric], region
        if number and present + number > limit:
            return Exceeded(metric, float(limit), where)
    return None
