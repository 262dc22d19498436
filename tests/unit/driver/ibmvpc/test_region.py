# SPDX-License-Identifier: Apache-2.0
"""What names of the configuration stand for (IV-2, IV-8); and the adapter at a simulated region: what tests/clouds does
not ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import (
    CloudAway,
    CloudNoCapacity,
    CloudNoCapacityLater,
    CloudQuota,
    CloudRefused,
    CloudSetup,
)
from nodepool.driver.framework.fact import Fact
from nodepool.driver.ibmvpc.client import MISSING_SECONDS
from nodepool.driver.ibmvpc.facts import FOUND_SECONDS, IbmFacts
from nodepool.driver.ibmvpc.types import IbmImage, IbmProfile, IbmSubnet
from nodepool.driver.statemachine.instance import know_installation, node_id_of, others
from nodepool.exceptions import LaunchStatusException, RuntimeConfigurationException
from simulators.ibmvpc import ProfileCapacity, VpcBootRule, VpcErrorRule
from tests.support.manual_clock import ManualClock
from tests.support.wait import wait_for
from tests.unit.driver.azure.tables import table
from tests.unit.driver.ibmvpc.support import (
    GROUP,
    PROVIDER,
    Here,
    at_simulator,
    changed,
    in_region,
    label_of,
    load,
    refusal,
    section,
)
from tests.unit.driver.simulated_adapter import HOST, NODE

# -- names of the configuration --


def image(name: str, **more: Any) -> IbmImage:
    return IbmImage.of({"id": f"id-{name}", "name": name, "status": "available", "visibility": "public", **more})


class Region:
    """A region that the test changes, and what is known of it."""

    def __init__(self, **provider: Any) -> None:
        self.clock = ManualClock()
        self.asked: list[str] = []
        self.known_groups = Fact(self.groups, self.clock)
        self.of = {"vpcs": {"ci": "vpc-1"}, "keys": {"zuul": "key-1"}, "groups": {"Default": "g0"}}
        self.subnet_list = [
            IbmSubnet("s1", "nodes-1", "vpc-1", "us-south-1", 250),
            IbmSubnet("s2", "nodes-2", "vpc-1", "us-south-2", 250),
            IbmSubnet("s3", "nodes-1", "vpc-2", "us-south-1", 250),
        ]
        self.image_list = [image("ibm-debian-12")]
        self.refusal: Exception | None = None
        self.made_by_others = False
        self.when_made: Callable[[], None] = lambda: None
        config = load(section(**provider))
        self.facts = IbmFacts(config, self, self.clock)  # type: ignore[arg-type]
        self.label = label_of(config)

    def _names(self, kind: str) -> dict[str, str]:
        self.asked.append(kind)
        return dict(self.of[kind])

    def vpcs(self) -> dict[str, str]:
        return self._names("vpcs")

    def keys(self) -> dict[str, str]:
        return self._names("keys")

    def groups(self) -> dict[str, str]:
        return self._names("groups")

    def subnets(self) -> list[IbmSubnet]:
        return list(self.subnet_list)

    def profiles(self) -> dict[str, IbmProfile]:
        return {"bx2-2x8": IbmProfile("bx2-2x8", 2, 8)}

    def create_group(self, name: str) -> str:
        self.asked.append(f"make {name}")
        self.when_made()
        if self.refusal is None or self.made_by_others:
            self.of["groups"][name] = f"id-{name}"
        if self.refusal is not None:
            raise self.refusal
        return f"id-{name}"

    def images(self, **filters: str) -> Iterator[IbmImage]:
        self.asked.append(f"images {filters}")
        return (one for one in self.image_list if filters.get("name") in (None, one.name))

    def image(self) -> Any:
        return self.facts.image(self.label, None)


def test_names() -> None:
    """IV-2: each list is asked for once; the group of the pool is made when it is not there."""
    region = Region()
    for _ in range(2):
        ids = region.facts.launch_ids(region.label, None)
        assert (ids.vpc, ids.group, ids.keys) == ("vpc-1", f"id-{GROUP}", ["key-1"])
        assert ids.image == {"id": "id-ibm-debian-12"}
    assert [region.asked.count(what) for what in (f"make {GROUP}", "vpcs", "keys")] == [1, 1, 1]
    assert region.facts.launch_ids(region.label, "r006-1").image == {"id": "r006-1"}


def test_groups() -> None:
    """IV-2 (today): another launcher may make the same group at once. Many launches may want one that IBM refuses: it
    is asked again after a while. A rejected launch meanwhile waits for no call.
    """
    region = Region()
    region.refusal = refusal("not_authorized", 403)
    region.when_made = region.facts.forget
    for _ in range(3):
        with pytest.raises(CloudRefused, match="not_authorized"):
            region.facts.group_id("np_x_y")
        region.facts.forget()
    assert region.asked.count("make np_x_y") == 1
    region.clock.now += MISSING_SECONDS
    region.refusal, region.made_by_others = refusal("name_in_use", 409), True
    assert region.facts.group_id("np_x_y") == "id-np_x_y"


def test_changes_are_seen() -> None:
    """IV-2 (today): after a rejected launch, when a name is missing, and after a while. Many rejected launches do not
    make it read all the time.
    """
    region = Region()
    region.facts.launch_ids(region.label, None)
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


def test_what_is_missing() -> None:
    """IV-2: the name, and the key to correct; it is not asked for again at once."""
    region = Region()
    region.of = {**region.of, "vpcs": {}, "keys": {}}
    for _ in range(2):
        with pytest.raises(CloudSetup, match="no VPC 'ci'; correct vpc"):
            region.facts.vpc_id()
    assert region.asked == ["vpcs"]
    with pytest.raises(CloudSetup, match="no SSH key 'zuul'"):
        region.facts.key_id("zuul")
    with pytest.raises(RuntimeConfigurationException, match="us-south has no profile 'x'"):
        region.facts.profile("x")


@pytest.mark.parametrize(("zones", "subnets", "found"), table("ibmvpc", "subnets"))
def test_subnets(zones: list[str], subnets: list[str], found: list[str] | str) -> None:
    """IV-2: names are those of the VPC; each zone needs a subnet."""
    region = Region(zone=zones, subnet=subnets)
    if isinstance(found, str):
        with pytest.raises(CloudSetup, match=found):
            region.facts.subnets(region.label.pool)
    else:
        assert [subnet.id for subnet in region.facts.subnets(region.label.pool)] == found


@pytest.mark.parametrize(("keys", "images", "found", "asked"), table("ibmvpc", "images"))
def test_images(keys: dict[str, Any], images: list[dict[str, Any]], found: Any, asked: list[str] | None) -> None:
    """IV-8: which image a launch takes."""
    region = Region(cloud_images=[{"name": "debian", "username": "root", **keys}])
    region.image_list = [image(**given) for given in images]
    if asked is None:
        with pytest.raises(CloudSetup, match=found):
            region.image()
    else:
        assert (region.image(), region.asked) == (found, asked)


def test_newer_image() -> None:
    """IV-8: an image of a name is looked up again after a while."""
    region = Region()
    assert region.image() == {"id": "id-ibm-debian-12"}
    region.image_list = [image("ibm-debian-12", id="new")]
    assert region.image() == {"id": "id-ibm-debian-12"}
    region.clock.now += FOUND_SECONDS + 1
    assert region.image() == {"id": "new"}


# -- launches --

PUBLIC = {"public-ipv4": True}
ZONES: dict[str, Any] = {"zone": ["us-south-1", "us-south-2"], "subnet": ["ci-us-south-1", "ci-us-south-2"]}
NO_MORE = VpcErrorRule(operation="vpc.create_floating_ip", kind="409", code="insufficient_ip_addresses")
NO_DISK = VpcBootRule(code="cannot_start_storage", message="no disk", count=1)
TAKEN = VpcBootRule(kind="failed", code="stopped_by_preemption", count=1)


@pytest.mark.parametrize(
    ("data", "settings", "kind", "words"),
    [
        (in_region(), {"boots": [NO_DISK]}, LaunchStatusException, f"{HOST} is failed: cannot_start_storage: no disk"),
        (in_region(), {"quotas": {"instances": 0}}, CloudQuota, "over_quota"),
        (in_region(subnet="nothing"), {}, CloudSetup, "no subnet 'nothing'"),
        (in_region(), {"capacity": [ProfileCapacity()]}, CloudNoCapacityLater, "cannot_start_capacity"),
        (
            in_region({"profile": "bxf-2x8", "use-spot": True}),
            {"boots": [TAKEN]},
            CloudNoCapacityLater,
            "stopped_by_preemption",
        ),
        # A quota waits; the instance is deleted.
        (
            in_region(pool=PUBLIC),
            {"quotas": {"floating_ips": 0}},
            CloudQuota,
            "creating a floating IP failed: over_quota",
        ),
        # Status 409, and not for now only: the launch ends.
        (in_region(pool=PUBLIC), {"errors": [NO_MORE]}, CloudNoCapacity, "insufficient_ip_addresses"),
    ],
)
def test_launch_that_fails(
    tmp_path: Path, data: dict[str, Any], settings: dict[str, Any], kind: type[Exception], words: str
) -> None:
    """CM-6, IV-4: it says why, in the words of IBM, and nothing is left."""
    with at_simulator(tmp_path, data, **settings) as here:
        with pytest.raises(kind, match=words):
            here.launch()
        here.delete(HOST)
        assert here.contents() == {}


@pytest.mark.parametrize("operation", ["vpc.list_subnets", "vpc.list_keys"])
def test_nothing_is_known_before(here: Here, operation: str) -> None:
    """CM-8: no answer to what is asked before the order: nothing was made, and there is nothing to look for."""
    here.simulator.change(errors=[VpcErrorRule(operation=operation, kind="503")])
    with pytest.raises(CloudAway) as caught:
        here.launch()
    assert not caught.value.maybe_done
    assert not list(here.adapter.unansweredCreations())
    assert here.calls("vpc.create_instance") == 0


def test_name_of_others(here: Here) -> None:
    """CM-8, IV-2: an instance of the name in another group is neither adopted nor deleted."""
    with here.simulator.cloud() as cloud:
        cloud.add_instance(HOST, "np_north_main")
    with pytest.raises(CloudRefused, match="validation_unique_failed"):
        here.launch()
    here.delete(HOST)
    assert here.contents()["instances"] == 1
    here.delete(here.launch(attempt=2).external_id)


def test_name_of_another_installation(here: Here) -> None:
    """D-10: it has a provider, a pool and a node of the same names. Its instance is not adopted."""
    know_installation(("0" * 16,))
    here.launch()
    know_installation(("1" * 16,))
    with pytest.raises(CloudRefused, match="validation_unique_failed"):
        here.launch()
    (listed,) = here.adapter.listInstances()
    assert node_id_of(listed.metadata, PROVIDER) is None
    assert others([listed.metadata], PROVIDER) == {"0" * 16: 1}
    know_installation(("0" * 16,))
    here.delete(HOST)


def test_next_profile(tmp_path: Path) -> None:
    """IV-7: profiles after zones; what a node uses is that of its own."""
    data = in_region({"profile": ["bx2-4x16", "bx2-2x8"]})
    with at_simulator(tmp_path, data, capacity=[ProfileCapacity(profile="bx2-4x16")]) as here:
        need = here.adapter.getQuotaForLabel(label_of(here.adapter.config))
        assert need.get_resources() == {"instances": 1, "cores": 4, "ram": 16}
        found = here.launch()
        assert found.getQuotaInformation().get_resources() == {"instances": 1, "cores": 2, "ram": 8}
        here.delete(found.external_id)


def test_full_subnet(tmp_path: Path) -> None:
    """IBM refuses at once when a subnet has no more addresses: the next subnet, without a failed attempt."""
    with at_simulator(tmp_path, in_region(subnet=["small", "ci-us-south-1"])) as here:
        with here.simulator.cloud() as cloud:
            small = cloud.network.add_subnet("small", "us-south-1", "10.241.0.0/29")
            while small.document["available_ipv4_address_count"]:
                cloud.network.take(small)
        assert here.launch().external_id == HOST
        assert here.calls("vpc.create_instance") == 2
        here.delete(HOST)


def test_spot_fallback(tmp_path: Path) -> None:
    """IV-5: without capacity for spot instances the node is a standard one, and no attempt is spent."""
    data = in_region({"profile": "bxf-2x8", "use-spot": True, "spot-fallback": True})
    with at_simulator(tmp_path, data, capacity=[ProfileCapacity(spot=True)]) as here:
        found = here.launch()
        with here.simulator.cloud() as cloud:
            (instance,) = cloud.resources.of("instances")
            assert instance.document["availability"]["class"] == "standard"
        here.delete(found.external_id)


def test_next_place(tmp_path: Path) -> None:
    """CM-6: capacity that IBM misses at once, or after it took the order: the next zone; later nodes leave it alone."""
    with at_simulator(tmp_path, in_region(**ZONES), capacity=[ProfileCapacity(zone="us-south-1")]) as here:
        found, later = here.launch(), here.launch("0000000043")
        assert (found.az, found.external_id, later.external_id) == ("us-south-2", f"{HOST}-1-1", "np0000000043")
        assert here.calls("vpc.create_instance") == 3
        for one in (found, later):
            here.delete(one.external_id)
        assert here.contents() == {}


def test_no_instance_is_made_that_would_get_no_floating_ip(tmp_path: Path) -> None:
    """CM-6: a quota that is used up is the reason of later launches, too, until a floating IP becomes free."""
    with at_simulator(tmp_path, in_region(pool=PUBLIC)) as here:
        here.launch()
        here.simulator.change(quotas={"floating_ips": 1})
        for node in ("0000000043", "0000000044"):
            with pytest.raises(CloudQuota, match=r"new floating IP address will put the user over quota.*Quota: 1;"):
                here.launch(node)
        here.delete("np0000000043")
        assert here.calls("vpc.create_instance") == 2
        here.delete(HOST)
        assert here.launch("0000000045").public_ipv4
        here.delete("np0000000045")


def test_floating_ip_in_another_zone(tmp_path: Path) -> None:
    """CM-6: the quota of floating IPs is that of a zone: the next one is tried, and no attempt is spent on it."""
    with at_simulator(tmp_path, in_region(pool={**PUBLIC, **ZONES})) as here:
        rule = VpcErrorRule(operation="vpc.create_floating_ip", kind="400", code="over_quota", count=1)
        here.simulator.change(errors=[rule])
        found, next_one = here.launch(), here.launch("0000000043")
        assert (found.az, next_one.az, bool(found.public_ipv4)) == ("us-south-2", "us-south-2", True)
        assert here.calls("vpc.create_instance") == here.calls("vpc.create_floating_ip") == 3
        for name in (found.external_id, "np0000000043"):
            here.delete(name)


# -- what is left over --


def test_resources(tmp_path: Path) -> None:
    """IV-3, D-2, D-10: instances, free floating IPs and volumes say whose they are, by name, group or tag; what is in
    use is part of its instance. Each is deleted by itself.
    """
    know_installation(("0" * 16,))
    pool = {**PUBLIC, "floating-ip-pool": 0}
    with at_simulator(tmp_path, in_region(pool=pool)) as here:
        here.launch()
        with here.simulator.cloud() as cloud:
            cloud.add_address("np0000000043", GROUP)
            cloud.add_volume("np0000000044", GROUP)
            for number, group in enumerate(["np_north_main", "Default"]):
                for add in (cloud.add_instance, cloud.add_address, cloud.add_volume):
                    add(f"np000000005{number}", group)
        found = list(here.adapter.listResources())
        ours = [one for one in found if node_id_of(one.metadata, PROVIDER)]
        assert sorted((one.type, node_id_of(one.metadata, PROVIDER)) for one in ours) == [
            *(("floatingip", "0000000043"), ("instance", NODE)),
            ("volume", "0000000044"),
        ]
        know_installation(("1" * 16,))
        of_others = [one.type for one in here.adapter.listResources() if not node_id_of(one.metadata, PROVIDER)]
        assert of_others == ["instance", "volume", "volume"], "it is that of another installation"
        before = here.contents()
        for one in ours:
            here.adapter.deleteResource(one)
        # The boot volume goes with its instance; its floating IP is free from now on.
        left = {**before, "instances": 2, "floating_ips": 3, "volumes": before["volumes"] - 2}
        wait_for("they are deleted", lambda: here.contents() == left)


# -- nodepool check --


def test_check(here: Here) -> None:
    """reference/commands: everything is there, but for what is made with the first launch."""
    found = {result.subject: result.status for result in here.adapter.preflight()}
    label = "label small of pool main"
    assert found == {"region us-south": "ok", "pool main": "warning", label: "ok", "quota": "warning"}
    assert here.calls("platform.create_resource_group") == 0


def test_check_of_uploads(tmp_path: Path) -> None:
    """reference/commands: bucket, its service and the operating systems of images."""
    storage = {"instance-name": "storage", "endpoint": "", "bucket-name": "images"}
    images: list[dict[str, Any]] = [{"name": "debian", "operating-system": "debian-12-amd64"}]
    images += [{"name": name, "operating-system": "nothing", "pause": name == "paused"} for name in ("other", "paused")]
    with at_simulator(tmp_path, in_region(object_storage=storage, diskimages=images)) as here:
        found = {result.subject: result.status for result in here.adapter.preflight()}
        assert (found["object storage"], found["diskimage debian"], found["diskimage other"]) == ("ok", "ok", "failed")
        assert "diskimage paused" not in found
        here.simulator.change(buckets=["others"])
        (bad,) = (result for result in here.adapter.preflight() if result.subject == "object storage")
        assert "NoSuchBucket" in bad.text


@pytest.mark.parametrize(("data", "words"), table("ibmvpc", "check_finds"))
def test_check_finds(tmp_path: Path, data: dict[str, Any], words: str) -> None:
    """reference/commands: one line each with cause and remedy."""
    with at_simulator(tmp_path, changed(data, in_region)) as here:
        bad = [result for result in here.adapter.preflight() if not result.ok]
        assert any(words in result.text and result.remedy for result in bad), bad
