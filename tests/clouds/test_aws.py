# SPDX-License-Identifier: Apache-2.0
"""What only AWS has: fleets, dedicated hosts, spot, instance types, joined launches, Service Quotas."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clouds.site import Site

pytestmark = pytest.mark.parametrize("site", ["aws"], indirect=True)


def instances(site: Site) -> dict[str, Any]:
    """All that were made, by id."""
    with site.cloud.simulator.cloud() as cloud:
        return dict(cloud.instances.instances)


def test_record_and_tags(site: Site) -> None:
    """AW-2, AW-10, CM-1, CM-2: what the record says of the instance, and the instance of the node."""
    site.label["tags"] = {"team": "ci"}
    with site.served() as ((name, node),):
        (instance,) = instances(site).values()
    assert node["external_id"] == {"instance": instance.id}
    assert (node["cloud"], node["region"], node["az"]) == ("AWS", "us-east-1", instance.spec.zone)
    assert node["interface_ip"] == node["public_ipv4"] == instance.public_ipv4
    assert node["private_ipv4"] == instance.private_ipv4
    assert instance.tags.value == {"team": "ci", "Name": f"np{name}", **site.marks(name)}


def test_joined_launches(site: Site) -> None:
    """What waits for the bucket of RunInstances goes together, also when the answer is lost (CLOUDS: bursts)."""
    site.section["rate"] = 2
    lost = {"operation": "ec2.RunInstances", "after": True, "kind": "drop", "rate": 0.3}
    site.cloud.change(errors=[lost], throttles=True, hidden_rate=0.3)
    site.run(40)
    assert site.cloud.made == 40
    assert site.cloud.calls("create") < 30


def test_killed_between_call_and_tags(site: Site) -> None:
    """Instances that one call made for several nodes have no tags of their own yet: whose they are is known."""
    site.section["rate"] = 2
    site.cloud.change(boot_seconds=3, errors=[{"operation": "ec2.CreateTags", "kind": "hang"}])
    launcher = site.launch_process(4.0)
    requests = [site.submit() for _ in range(20)]

    def joined() -> bool:
        return sum("nodepool_batch" in one.tags.value for one in instances(site).values()) >= 5

    site.wait("launches went together", joined)
    launcher.kill()
    site.cloud.heal()
    site.launch()
    nodes = site.fulfilled(*requests, hurry=0.5)
    assert len({node["external_id"]["instance"] for node in nodes.values()}) == 20
    site.give_back(*requests)
    site.wait_empty(hurry=0.5)


def test_other_types(site: Site) -> None:
    """A type without room is left alone for a while, the next is tried, and no attempt of the request is spent."""
    site.section["launch-retries"] = 1
    site.cloud.choose_zones(site.section)
    site.label["instance-type"] = ["t3.small", "m5.large"]
    site.cloud.change(capacity=[{"instance_type": "t3.*"}, {"zone": "us-east-1a"}])
    with site.served(4) as nodes:
        assert {node["az"] for _, node in nodes} == {"us-east-1b"}
        assert {one.spec.type.name for one in instances(site).values()} == {"m5.large"}
    before = site.cloud.calls("create")
    later = site.submit()
    site.fulfilled(later)
    assert site.cloud.calls("create") == before + 1, "the places without room are left alone"
    site.give_back(later)
    site.wait_empty()


def test_all_nodes_of_a_request_in_one_zone(site: Site) -> None:
    """N-7: also where there is no room for all of them in the zone that comes first."""
    with site.cloud.simulator.cloud() as cloud:
        site.pool["subnet-id"] = [subnet.id for subnet in cloud.network.subnets.values()]
    site.section["launch-retries"] = 1
    site.cloud.no_room("us-east-1a")
    site.launch()
    for request in [site.submit(3) for _ in range(3)]:
        assert len({node["az"] for node in site.fulfilled(request).values()}) == 1
        site.give_back(request)
    site.wait_empty()


def test_spot_fallback(site: Site) -> None:
    """Spot falls back to on-demand where the label says so."""
    site.section["launch-retries"] = 1
    site.label.update({"use-spot": True, "spot-fallback": True})
    site.cloud.change(capacity=[{"spot": True, "room": 1}])
    with site.served(3) as nodes:
        assert sorted(node["node_properties"]["spot"] for _, node in nodes) == [False, False, True]


def test_instances_that_end_while_they_boot(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """AW-2: the cloud's words are in the log, and the node is launched again."""
    site.label["use-spot"] = True
    codes = {
        "Server.InternalError": "Internal error on launch",
        "Server.SpotInstanceTermination": "Spot instance termination",
    }
    rules = [{"kind": "failed", "code": code, "message": text, "count": 1} for code, text in codes.items()]
    site.cloud.change(boots=rules)
    site.run(1)
    for code, text in codes.items():
        assert f"{code}: {text}" in caplog.text


def test_spot_interruption(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """An instance that AWS takes away while a job uses it: the log has node and AWS's words; the node goes as usual."""
    site.label["use-spot"] = True
    with site.served() as ((name, node),):
        instance_id = node["external_id"]["instance"]
        site.cloud.do("interrupt", id=instance_id)
        # Lists are made when a launch waits for one.
        site.serve_all([site.submit()])
        text = f"Instance {instance_id} (spot) of node {name} ended: Server.SpotInstanceTermination: "
        site.wait("the log has it", lambda: text in caplog.text)


@pytest.mark.parametrize(
    ("quota", "denied", "code"),
    [
        ("L-1216C47A", ["servicequotas.*"], "VcpuLimitExceeded"),
        ("L-34B43A08", ["servicequotas.*"], "MaxSpotInstanceCountExceeded"),
        ("L-1216C47A", [], "L-1216C47A"),
    ],
)
def test_limits(site: Site, quota: str, denied: list[str], code: str) -> None:
    """AW-16: a limit of the account is no failure. The request waits, and ``nodepool explain`` has the cloud's code.
    AW-14: what Service Quotas say is not even tried; the reason names the quota.
    """
    site.label["use-spot"] = quota == "L-34B43A08"
    site.section["launch-retries"] = 1
    site.cloud.change(quotas={quota: 4}, denied=denied)
    site.launch()
    requests = [site.submit() for _ in range(2)]
    site.fulfilled(*requests)
    third = site.submit()
    site.wait("it is explained", lambda: code in site.command("explain", third, "-o", "json"))
    assert site.state(third) in ("requested", "pending")
    site.give_back(requests[0])
    site.fulfilled(third)
    site.give_back(requests[1], third)
    site.wait_empty()
    assert any(event.startswith("refused") for event in site.cloud.state()["events"]) == bool(denied)


def test_leaked_volume(site: Site) -> None:
    """AW-20: a volume with our marks goes; one without stays."""
    site.launch()
    ours = site.cloud.marks("cloud-a", site.znodes.installation_id())
    with site.cloud.simulator.cloud() as cloud:
        cloud.add_volume(metadata=ours)
        kept = cloud.add_volume()

    def swept() -> bool:
        with site.cloud.simulator.cloud() as cloud:
            return set(cloud.volumes.volumes) == {kept.id}

    site.wait("what was leaked is deleted", swept, hurry=1.0)


def test_fleet(site: Site) -> None:
    """AW-8, AW-9: the type that has room; a lost answer makes no second instance; one template for the label."""
    del site.label["instance-type"]
    site.label["fleet"] = {"instance-types": ["t3.small", "m5.large"], "allocation-strategy": "prioritized"}
    lost = {"operation": "ec2.CreateFleet", "kind": "drop", "after": True, "count": 2}
    site.cloud.change(errors=[lost], capacity=[{"instance_type": "t3.*"}], hidden_rate=0.5)
    site.pool["max-servers"] = 3
    site.run(4)
    assert site.cloud.made == 4
    assert site.cloud.most_instances <= 3
    assert {one.spec.type.name for one in instances(site).values()} == {"m5.large"}
    assert site.cloud.state()["contents"]["templates"] == 1


def test_dedicated_hosts(site: Site) -> None:
    """AW-5, AW-6: one instance on each host; a lost answer allocates no second one; both go."""
    site.label.update({"instance-type": "m5.large", "dedicated-host": True})
    site.pool["availability-zone"] = "us-east-1a"
    lost = {"kind": "drop", "after": True, "count": 1}
    rules = [{**lost, "operation": f"ec2.{name}"} for name in ("AllocateHosts", "RunInstances", "ReleaseHosts")]
    site.cloud.change(errors=rules, host_seconds=0.5)
    with site.served(3):
        assert len({one.spec.host_id for one in instances(site).values()}) == 3
    assert site.cloud.state()["events"]["hosts allocated"] == 3


def test_dedicated_host_of_a_launch_that_goes_on(site: Site) -> None:
    """L-18, AW-5: the instance keeps its host, and no other one is allocated."""
    site.label.update({"instance-type": "m5.large", "dedicated-host": True})
    site.pool["availability-zone"] = "us-east-1a"
    site.cloud.change(host_seconds=0.5)
    site.cloud.boots_take(60.0)
    site.launch()
    request = site.submit()
    nodes = site.znodes.nodes
    site.wait("the node names it", lambda: any("instance" in (one["external_id"] or ()) for one in nodes().values()))
    site.stop()
    (before,) = site.znodes.nodes().values()
    site.launch()
    ((_, node),) = site.fulfilled(request, hurry=0.5).items()
    assert node["external_id"] == before["external_id"]
    site.give_back(request)
    site.wait_empty(hurry=0.5)
    assert (site.cloud.made, site.cloud.state()["events"]["hosts allocated"]) == (1, 1)


def test_other_credentials(site: Site) -> None:
    """A key that AWS does not let in any more: nothing fails, and all goes on with one that it does."""
    site.launch()
    first = site.submit()
    site.fulfilled(first)
    site.cloud.change(access_key="AKIAOTHER")
    second = site.submit()
    site.wait("its trouble is known", lambda: "circuit" in site.command("explain", "cloud-a"))
    assert site.state(second) in ("requested", "pending")
    site.cloud.change(access_key="AKIASIMULATED")
    site.fulfilled(second, hurry=0.5)
    site.give_back(first, second)
    site.wait_empty(hurry=0.5)
