# SPDX-License-Identifier: Apache-2.0
"""What names of the configuration stand for (IV-2, IV-8); and the adapter at a simulated region: what tests/clouds does
not ask for.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudRefused, CloudSetup
from nodepool.driver.framework.fact import Fact
from nodepool.driver.ibmvpc.client import MISSING_SECONDS
from nodepool.driver.ibmvpc.facts import FOUND_SECONDS, IbmFacts
from nodepool.driver.ibmvpc.types import IbmImage, IbmSubnet
from nodepool.driver.statemachine.instance import know_installation, node_id_of, others
from tests.support.manual_clock import ManualClock
from tests.support.provider_sections import label_of
from tests.support.tables import driver_table
from tests.support.wait import wait_for
from tests.unit.driver.ibmvpc import support
from tests.unit.driver.simulated_adapter import HOST, NODE

# -- names of the configuration --


class Region:
    """A client of a region that the test changes, and what is known of the region."""

    def __init__(self, **provider: Any) -> None:
        self.clock = ManualClock().rules()
        self.asked: list[str] = []
        self.known_groups = Fact(lambda: self.ids("groups"))
        self.of: dict[str, Any] = {"vpcs": {"ci": "vpc-1"}, "keys": {"zuul": "key-1"}, "groups": {"Default": "g0"}}
        self.of |= {"images": [{"name": "ibm-debian-12"}], "subnets": driver_table("ibmvpc", "subnets_of_a_region")}
        config = support.load(support.section(**provider))
        self.facts = IbmFacts(config, self)  # type: ignore[arg-type]
        self.label = label_of(config)

    def ids(self, kind: str) -> dict[str, str]:
        self.asked.append(kind)
        return dict(self.of[kind])

    def subnets(self) -> list[IbmSubnet]:
        return [IbmSubnet(one) for one in self.of["subnets"]]

    def profiles(self) -> dict[str, Any]:
        return {}

    def images(self, **filters: str) -> Iterator[IbmImage]:
        self.asked.append(f"images {filters}")
        usual = {"status": "available", "visibility": "public"}
        found = (IbmImage({"id": f"id-{one['name']}", **usual, **one}) for one in self.of["images"])
        return (one for one in found if filters.get("name") in (None, one.name))


def test_changes_are_seen() -> None:
    """IV-2 (today), IV-8: after a rejected launch, when a name is missing, and after a while. Many rejected launches do
    not make it read all the time.
    """
    region = Region()
    assert (region.facts.vpc_id(), region.facts.image(region.label, None)) == ("vpc-1", {"id": "id-ibm-debian-12"})
    region.clock.now += MISSING_SECONDS
    for number in (9, 10):
        region.of["vpcs"] = {"ci": f"vpc-{number}"}
        region.facts.forget()
        assert region.facts.vpc_id() == "vpc-9"
    region.of["keys"]["other"] = "key-2"
    region.clock.now += MISSING_SECONDS + 1
    assert (region.facts.key_id("other"), region.facts.vpc_id()) == ("key-2", "vpc-9")
    region.clock.now += 601
    assert region.facts.vpc_id() == "vpc-10"
    for seconds, identity in ((0, "id-ibm-debian-12"), (FOUND_SECONDS, "id-ibm-debian-12"), (1, "new")):
        region.clock.now += seconds
        assert region.facts.image(region.label, None) == {"id": identity}
        region.of["images"] = [{"name": "ibm-debian-12", "id": "new"}]


@pytest.mark.parametrize(("zones", "subnets", "found"), driver_table("ibmvpc", "subnets"))
def test_subnets(zones: list[str], subnets: list[str], found: list[str] | str) -> None:
    """IV-2: names are those of the VPC; each zone needs a subnet."""
    region = Region(zone=zones, subnet=subnets)
    if isinstance(found, str):
        with pytest.raises(CloudSetup, match=found):
            region.facts.subnets(region.label.pool)
    else:
        assert [subnet.id for subnet in region.facts.subnets(region.label.pool)] == found


@pytest.mark.parametrize(("keys", "images", "found", "asked"), driver_table("ibmvpc", "images"))
def test_images(keys: dict[str, Any], images: list[dict[str, Any]], found: Any, asked: list[str] | None) -> None:
    """IV-8: which image a launch takes."""
    region = Region(cloud_images=[{"name": "debian", "username": "root", **keys}])
    region.of["images"] = images
    if asked is None:
        with pytest.raises(CloudSetup, match=found):
            region.facts.image(region.label, None)
    else:
        assert (region.facts.image(region.label, None), region.asked) == (found, asked)


# -- launches --


@pytest.mark.parametrize(("data", "settings", "kind", "words"), driver_table("ibmvpc", "launches_that_fail"))
def test_launch_that_fails(
    tmp_path: Path, data: dict[str, Any], settings: dict[str, Any], kind: type[Exception], words: str
) -> None:
    """CM-6, IV-4: it says why, in the words of IBM, and nothing is left."""
    with support.at_simulator(tmp_path, support.changed(data, support.in_region)) as here:
        here.simulator.change(**settings)
        with pytest.raises(kind, match=words):
            here.launch()
        here.delete(HOST)
        assert here.contents() == {}


@pytest.mark.parametrize(("data", "settings", "orders", "place"), driver_table("ibmvpc", "other_places"))
def test_other_places(
    tmp_path: Path, data: dict[str, Any], settings: dict[str, Any], orders: int, place: list[Any]
) -> None:
    """CM-6, IV-5, IV-7: the next place that the label allows, without a failed attempt; later nodes leave the first one
    alone. What a node uses is that of its own profile.
    """
    with support.at_simulator(tmp_path, support.changed(data, support.in_region)) as here:
        here.simulator.change(**settings)
        with here.simulator.cloud() as cloud:
            small = cloud.network.add_subnet("small", "us-south-1", "10.241.0.0/29")
            while small.document["available_ipv4_address_count"]:
                cloud.network.take(small)
        found = here.launch()
        assert here.calls("vpc.create_instance") == orders
        with here.simulator.cloud() as cloud:
            (made,) = (one.document for one in cloud.resources.of("instances") if one.name == found.external_id)
        cores = found.getQuotaInformation().get_resources()["cores"]
        assert [found.az, made["availability"]["class"], cores, bool(found.public_ipv4)] == place
        here.launch("0000000043")
        assert here.calls("vpc.create_instance") == orders + 1
        for external_id in (found.external_id, "np0000000043"):
            here.delete(external_id)


def test_name_of_another_installation(here: support.Here) -> None:
    """CM-8, D-10: an instance of the name of a node, also in the group of its pool, is not taken for ours."""
    know_installation(("0" * 16,))
    here.launch()
    know_installation(("1" * 16,))
    with pytest.raises(CloudRefused, match="validation_unique_failed"):
        here.launch()
    listed = [one.metadata for one in here.adapter.listInstances()]
    assert [node_id_of(one, support.PROVIDER) for one in listed] == [None]
    assert others(listed, support.PROVIDER) == {"0" * 16: 1}


# -- what is left over --


def test_resources(tmp_path: Path) -> None:
    """IV-3, D-2, D-10: instances, free floating IPs and volumes say whose they are, by name, group or tag; what is in
    use is part of its instance. Each is deleted by itself.
    """
    know_installation(("0" * 16,))
    with support.at_simulator(tmp_path, support.in_region(pool={"public-ipv4": True, "floating-ip-pool": 0})) as here:
        here.launch()
        with here.simulator.cloud() as cloud:
            cloud.add_address("np0000000043", support.GROUP)
            cloud.add_volume("np0000000044", support.GROUP)
            for number, group in enumerate(["np_north_main", "Default"]):
                for add in (cloud.add_instance, cloud.add_address, cloud.add_volume):
                    add(f"np000000005{number}", group)
        ours = [one for one in here.adapter.listResources() if node_id_of(one.metadata, support.PROVIDER)]
        assert sorted((one.type, node_id_of(one.metadata, support.PROVIDER)) for one in ours) == [
            *(("floatingip", "0000000043"), ("instance", NODE)),
            ("volume", "0000000044"),
        ]
        know_installation(("1" * 16,))
        of_others = [one.type for one in here.adapter.listResources() if not node_id_of(one.metadata, support.PROVIDER)]
        assert of_others == ["instance", "volume", "volume"], "it is that of another installation"
        before = here.contents()
        for one in ours:
            here.adapter.deleteResource(one)
        # The boot volume goes with its instance; its floating IP is free from now on.
        left = {**before, "instances": 2, "floating_ips": 3, "volumes": before["volumes"] - 2}
        wait_for("they are deleted", lambda: here.contents() == left)
