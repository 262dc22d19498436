# SPDX-License-Identifier: Apache-2.0
"""What only IBM VPC has: floating IPs that are kept for later nodes, and volumes that stay."""

from __future__ import annotations

import pytest

from tests.clouds.site import Site

pytestmark = pytest.mark.parametrize("site", ["ibmvpc"], indirect=True)


def test_record_and_names(site: Site) -> None:
    """IV-3, IV-6, IV-7, CM-8: what the record says, and what the instance, its group and its address are called."""
    with site.served() as ((name, node),):
        assert node["external_id"] == f"np{name}"
        with site.cloud.simulator.cloud() as cloud:
            instance = cloud.resources.named("instances", f"np{name}")
            (address,) = cloud.resources.of("floating_ips")
        assert (instance.group_name, address.group_name) == ("np_cloud-a_main", "np_cloud-a_main")
        assert address.name == instance.name
        assert (node["cloud"], node["region"], node["az"]) == ("IBM", "us-south", "us-south-1")
        assert node["interface_ip"] == node["public_ipv4"] == address.document["address"]
        assert node["private_ipv4"].startswith("10.240.")
        assert [node["resources"][what] for what in ("cores", "instances", "ram")] == [2, 1, 4]


def test_addresses_whose_answers_are_lost(site: Site) -> None:
    """IV-13: no node has two addresses, and free ones are used again."""
    rules = [{"operation": f"vpc.{name}", "after": True, "count": 2} for name in ("create_*", "update_floating_ip")]
    site.cloud.change(errors=[{**rule, "kind": kind} for rule in rules for kind in ("500", "drop")])
    site.cloud.lists_are_late(rate=0.5, seconds=0.5)
    site.pool["max-servers"] = 6
    site.run(10)
    assert site.cloud.made == 10
    assert site.cloud.state()["contents"]["floating_ips"] <= 10


def test_killed_while_an_address_is_made(site: Site) -> None:
    """F-1, IV-13: no address is lost, and none is kept."""
    site.pool["floating-ip-pool"] = 0
    site.cloud.change(errors=[{"operation": "vpc.create_floating_ip", "kind": "hang", "after": True}])
    launcher = site.launch_process(4.0)
    requests = [site.submit() for _ in range(3)]
    site.wait("it is asked for", lambda: site.cloud.state()["calls"].get("vpc.create_floating_ip"))
    launcher.kill()
    site.cloud.heal()
    site.launch()
    site.fulfilled(*requests)
    site.give_back(*requests)
    site.wait_empty(hurry=0.5)
    site.wait("no address is kept", lambda: not site.cloud.state()["contents"]["floating_ips"], hurry=1.0)


def test_nodes_without_address(site: Site) -> None:
    """One order and one deletion a node, and nothing of addresses."""
    site.section["public-ipv4"] = False
    site.run(8)
    assert (site.cloud.calls("create"), site.cloud.calls("delete")) == (8, 8)
    calls = site.cloud.state()["calls"]
    assert calls.get("vpc.get_instance", 0) <= 8
    assert "vpc.create_floating_ip" not in calls


def test_left_volume(site: Site) -> None:
    """IV-4: the volume of an instance that failed, which stays, is swept; the next attempt works."""
    site.cloud.change(boots=[{"count": 1, "code": "cannot_start_storage", "leave_volume": True}])
    site.run(1, end_hurry=1.0)
