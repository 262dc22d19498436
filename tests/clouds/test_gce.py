# SPDX-License-Identifier: Apache-2.0
"""What only Google Compute Engine has: operations that fail late, limits of operations, types, disks that stay."""

from __future__ import annotations

import pytest

from tests.clouds.site import Site

pytestmark = pytest.mark.parametrize("site", ["gce"], indirect=True)


def test_record_and_metadata(site: Site) -> None:
    """GC-3, GC-6, CM-1, CM-8: what the record says of the instance, and the instance of the node."""
    with site.served() as ((name, node),):
        with site.cloud.simulator.cloud() as cloud:
            (instance,) = cloud.instances.all()
            address = instance.document["networkInterfaces"][0]
            items = dict(instance.spec.metadata)
        assert node["external_id"] == instance.name == f"np{name}"
        assert (node["cloud"], node["region"], node["az"]) == ("Google", "us-central1", "us-central1-a")
        assert node["private_ipv4"] == address["networkIP"]
        assert node["interface_ip"] == node["public_ipv4"] == address["accessConfigs"][0]["natIP"]
        assert items["ssh-keys"] == "zuul:ssh-ed25519 AAAA"
        assert items["nodepool_node_id"] == name
        assert (items["nodepool_pool_name"], items["nodepool_provider_name"]) == ("main", "cloud-a")
    assert site.cloud.state()["calls"].get("zoneOperations.get", 0) == 0


@pytest.mark.parametrize("late", [True, False], ids=["late", "at-once"])
def test_quota_that_refuses(site: Site, late: bool) -> None:
    """GC-5, GC-7 (not repeated): none fails, whether the call or its operation is refused."""
    site.cloud.change(quotas={"CPUS": 2}, late_quotas=late)
    site.section["launch-retries"] = 1
    site.run(5, hurry=0.5)


@pytest.mark.parametrize("late", [True, False], ids=["late", "at-once"])
def test_next_zone(site: Site, late: bool) -> None:
    """GC-5 (not repeated): no attempt is spent on a zone without capacity."""
    site.section["launch-retries"] = 1
    site.cloud.choose_zones(site.section)
    site.cloud.change(capacity=[{"zone": "us-central1-a", "late": late, "details": True}])
    with site.served() as ((_, node),):
        assert node["az"] == "us-central1-b"


@pytest.mark.parametrize("kind", ["type", "spot"])
def test_next_machine_type(site: Site, kind: str) -> None:
    """The second type of the list, or a standard instance, when there is no capacity for what comes first."""
    site.section["launch-retries"] = 1
    if kind == "type":
        site.label["instance-type"] = ["c2-standard-4", "n1-standard-1"]
    else:
        site.label.update({"use-spot": True, "spot-fallback": True})
    site.cloud.change(capacity=[{"machine_type": "c2-*"} if kind == "type" else {"spot": True}])
    with site.served(), site.cloud.simulator.cloud() as cloud:
        assert [(one.spec.type.name, one.spec.spot) for one in cloud.instances.all()] == [("n1-standard-1", False)]


def test_too_many_at_once(site: Site) -> None:
    """Operations over the region's limit are begun again, and no attempt is spent."""
    site.section["launch-retries"] = 1
    site.cloud.change(concurrent_operations=2)
    site.run(6)


def test_left_disk(site: Site) -> None:
    """GC-8: a boot disk that stayed when its instance went is swept, by its labels."""
    site.cloud.change(leak_rate=1.0)
    site.run(1, end_hurry=1.0)
