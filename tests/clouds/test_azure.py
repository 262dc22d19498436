# SPDX-License-Identifier: Apache-2.0
"""What only Azure has: interfaces, addresses and disks beside a VM, operations that fail late, evictions."""

from __future__ import annotations

import pytest

from tests.clouds.site import Site

pytestmark = pytest.mark.parametrize("site", ["azure"], indirect=True)


def test_record_and_tags(site: Site) -> None:
    """AZ-8, CM-1, CM-8: what the record says of the VM, and the VM of the node."""
    site.label["tags"] = {"team": "ci"}
    with site.served() as ((name, node),):
        with site.cloud.simulator.cloud() as cloud:
            tags = cloud.resources.get("virtualMachines", f"np{name}").tags
        assert node["external_id"] == f"np{name}"
        assert (node["cloud"], node["region"], node["az"]) == ("Azure", "northeurope", "")
        assert node["interface_ip"] == node["public_ipv4"]
        assert node["private_ipv4"].startswith("10.0.")
        assert node["resources"] == {
            "cores": 1,
            "instances": 1,
            "ram": 1024,
            "regularCores": 1,
            "standardBSFamily": 1,
            "StandardSkuPublicIPAddresses": 1,
        }
        assert tags == {
            "team": "ci",
            "nodepool_installation_id": site.znodes.installation_id(),
            "nodepool_node_id": name,
            "nodepool_pool_name": "main",
            "nodepool_provider_name": "cloud-a",
        }
    assert site.cloud.state()["calls"].get("operations.get", 0) == 0


def test_name_of_the_next_attempt(site: Site) -> None:
    """AZ-7, AZ-11: a VM that failed is deleted, the next attempt has another name, and what it leaves is swept."""
    site.cloud.fail_boots("failed", count=1)
    with site.served(end_hurry=1.0) as ((_, node),):
        assert node["external_id"].endswith("-2")


def test_capacity_that_is_missing_late(site: Site) -> None:
    """AZ-10 (not repeated): Azure accepts a VM and finds no capacity then: the next zone, and no attempt is spent."""
    site.section["launch-retries"] = 1
    site.cloud.choose_zones(site.section)
    site.cloud.change(capacity=[{"zone": "1", "late": True}])
    with site.served(end_hurry=1.0) as ((_, node),):
        assert node["az"] == "2"


def test_what_deletions_leave(site: Site) -> None:
    """Interface, address and disk that stay when their VM goes are swept."""
    site.cloud.change(leak_rate=1.0)
    site.run(1, end_hurry=1.0)


def test_evicted_in_use(site: Site) -> None:
    """A spot VM that Azure takes away while a job uses it is named among the events."""
    site.label["use-spot"] = True
    site.launch()
    request = site.submit()
    ((name, node),) = site.fulfilled(request).items()
    site.use(name)
    site.cloud.do("evict", name=node["external_id"])
    site.wait("it is an event", lambda: "SpotEviction" in site.command("explain", name), hurry=1.0)
    site.give_back(request)
    site.release(name)
    site.wait_empty(hurry=0.5)
