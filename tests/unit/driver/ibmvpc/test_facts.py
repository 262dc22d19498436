# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.ibmvpc.facts` (IV-2, IV-8)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudRefused, CloudSetup
from nodepool.driver.framework.fact import Fact
from nodepool.driver.ibmvpc.client import MISSING_SECONDS
from nodepool.driver.ibmvpc.facts import FOUND_SECONDS, IbmFacts
from nodepool.driver.ibmvpc.types import IbmImage, IbmProfile, IbmSubnet
from nodepool.exceptions import RuntimeConfigurationException
from tests.support.manual_clock import ManualClock
from tests.unit.driver.ibmvpc.support import GROUP, label_of, load, refusal, section


def image(name: str, **more: Any) -> IbmImage:
    given = {"id": f"id-{name}", "name": name, "status": "available", "visibility": "public", **more}
    return IbmImage.of(given)


class Client:
    """A region that the test changes."""

    def __init__(self, clock: ManualClock) -> None:
        self.asked: list[str] = []
        self.known_groups = Fact(self.groups, clock)
        self.vpc_ids = {"ci": "vpc-1"}
        self.subnet_list = [
            IbmSubnet("s1", "nodes-1", "vpc-1", "us-south-1", 250),
            IbmSubnet("s2", "nodes-2", "vpc-1", "us-south-2", 250),
            IbmSubnet("s3", "nodes-1", "vpc-2", "us-south-1", 250),
        ]
        self.key_ids = {"zuul": "key-1"}
        self.group_ids = {"Default": "g0"}
        self.profile_list = {"bx2-2x8": IbmProfile("bx2-2x8", 2, 8)}
        self.image_list = [image("ibm-debian-12")]
        self.group_made_by_others = False

    def vpcs(self) -> dict[str, str]:
        self.asked.append("vpcs")
        return dict(self.vpc_ids)

    def subnets(self) -> list[IbmSubnet]:
        self.asked.append("subnets")
        return list(self.subnet_list)

    def keys(self) -> dict[str, str]:
        self.asked.append("keys")
        return dict(self.key_ids)

    def profiles(self) -> dict[str, IbmProfile]:
        self.asked.append("profiles")
        return dict(self.profile_list)

    def groups(self) -> dict[str, str]:
        self.asked.append("groups")
        return dict(self.group_ids)

    def create_group(self, name: str) -> str:
        self.asked.append(f"make {name}")
        self.group_ids[name] = f"id-{name}"
        if self.group_made_by_others:
            raise refusal("name_in_use", 409)
        return self.group_ids[name]

    def images(self, **filters: str) -> Iterator[IbmImage]:
        self.asked.append(f"images {filters}")
        return (one for one in self.image_list if filters.get("name") in (None, one.name))


class Here:
    def __init__(self, **provider: Any) -> None:
        self.config = load(section(**provider))
        self.clock = ManualClock()
        self.client = Client(self.clock)
        self.facts = IbmFacts(self.config, self.client, self.clock)  # type: ignore[arg-type]
        self.label = label_of(self.config)


@pytest.fixture
def here() -> Here:
    return Here()


def test_launch(here: Here) -> None:
    """IV-2: each list is asked for once; the group of the pool is made when it is not there."""
    for _ in range(2):
        ids = here.facts.launch_ids(here.label, None)
        assert (ids.vpc, ids.group, ids.image, ids.keys) == (
            "vpc-1",
            f"id-{GROUP}",
            {"id": "id-ibm-debian-12"},
            ["key-1"],
        )
    assert here.client.asked.count(f"make {GROUP}") == here.client.asked.count("vpcs") == 1
    assert here.client.asked.count("keys") == 1
    assert here.facts.launch_ids(here.label, "r006-1").image == {"id": "r006-1"}


def test_group_that_another_launcher_made(here: Here) -> None:
    """IV-2: two launchers may make the same group at once."""
    here.client.group_made_by_others = True
    assert here.facts.group_id("np_x_y") == "id-np_x_y"


def test_group_that_cannot_be_made(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> str:
        raise refusal("not_authorized", 403)

    monkeypatch.setattr(here.client, "create_group", refuse)
    with pytest.raises(CloudRefused, match="not_authorized"):
        here.facts.group_id("np_x_y")


def test_group_that_was_refused(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """IV-2 (today): many launches may want it; IBM is asked again after a while."""
    asked: list[str] = []

    def refuse(name: str) -> str:
        asked.append(name)
        raise refusal("not_authorized", 403)

    monkeypatch.setattr(here.client, "create_group", refuse)
    for _ in range(3):
        with pytest.raises(CloudRefused, match="not_authorized"):
            here.facts.group_id("np_x_y")
        here.facts.forget()
    assert asked == ["np_x_y"]
    here.clock.now += MISSING_SECONDS
    monkeypatch.setattr(here.client, "create_group", lambda name: f"id-{name}")
    assert here.facts.group_id("np_x_y") == "id-np_x_y"


def test_forgetting_waits_for_no_call(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """IV-2 (today): a rejected launch is handled where other launches go on; it waits for no call of IBM."""

    def make(name: str) -> str:
        here.facts.forget()
        return f"id-{name}"

    monkeypatch.setattr(here.client, "create_group", make)
    thread = threading.Thread(target=here.facts.group_id, args=("np_x_y",), daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()


def test_changes_are_seen(here: Here) -> None:
    """IV-2 (today): after a rejected launch, when a name is missing, and after a while."""
    here.facts.launch_ids(here.label, None)
    here.client.vpc_ids = {"ci": "vpc-9"}
    assert here.facts.vpc_id() == "vpc-1"
    here.facts.forget()
    assert here.facts.vpc_id() == "vpc-9"
    here.client.key_ids["other"] = "key-2"
    here.clock.now += MISSING_SECONDS + 1
    assert here.facts.key_id("other") == "key-2"
    here.client.vpc_ids = {"ci": "vpc-10"}
    here.clock.now += 601
    assert here.facts.vpc_id() == "vpc-10"


def test_many_rejected_launches(here: Here) -> None:
    """IV-2 (today): they do not make it read all the time."""
    for _ in range(3):
        here.facts.forget()
        here.facts.vpc_id()
    assert here.client.asked.count("vpcs") == 1
    here.clock.now += MISSING_SECONDS
    here.facts.forget()
    here.facts.vpc_id()
    assert here.client.asked.count("vpcs") == 2


def test_what_is_missing(here: Here) -> None:
    """IV-2: the name, and the key to correct; nobody asks again at once."""
    here.client.vpc_ids = {}
    here.client.key_ids = {}
    for _ in range(2):
        with pytest.raises(CloudSetup, match="no VPC 'ci'; correct vpc"):
            here.facts.vpc_id()
    assert here.client.asked == ["vpcs"]
    with pytest.raises(CloudSetup, match="no SSH key 'zuul'"):
        here.facts.key_id("zuul")
    with pytest.raises(RuntimeConfigurationException, match="us-south has no profile 'x'"):
        here.facts.profile("x")


def test_subnets() -> None:
    """Names are those of the VPC; each zone needs a subnet."""
    here = Here(zone=["us-south-2", "us-south-1"], subnet=["nodes-1", "s2"])
    pool = here.config.pools["main"]
    assert [subnet.id for subnet in here.facts.subnets(pool)] == ["s1", "s2"]
    here.client.subnet_list = here.client.subnet_list[:1]
    here.facts.forget()
    with pytest.raises(CloudSetup, match="VPC 'ci' has no subnet 's2'; correct subnet of pool main"):
        here.facts.subnets(pool)


def test_subnet_of_another_zone() -> None:
    here = Here(zone="us-south-3")
    with pytest.raises(CloudSetup, match=r"no subnet of pool main is in zone us-south-3, only nodes-1 \(us-south-1\)"):
        here.facts.subnets(here.config.pools["main"])


# -- images --

DEBIAN = {"family": "Debian", "version": "12", "display_name": "Debian 12", "dedicated_host_only": False}


def with_filter(**given: Any) -> Here:
    return Here(cloud_images=[{"name": "debian", "username": "root", "image-filter": given}])


def test_first_image_that_matches() -> None:
    """IV-8: fields are equal, hyphens stand for underscores; of several the first one listed."""
    here = with_filter(**{"operating-system": {"family": "Debian", "display-name": "Debian 12"}})
    here.client.image_list = [
        image("a", operating_system={**DEBIAN, "family": "Ubuntu"}),
        image("b", operating_system=DEBIAN, status="obsolete"),
        image("c", operating_system=DEBIAN),
        image("d", operating_system=DEBIAN),
    ]
    assert here.facts.image(here.label, None) == {"id": "id-c"}


def test_owner_and_status() -> None:
    """IV-8 (today): the owner type shows as visibility."""
    here = with_filter(**{"owner-type": "user", "status": "deprecated"})
    here.client.image_list = [
        image("a"),
        image("b", visibility="private"),
        image("c", visibility="private", status="deprecated"),
    ]
    assert here.facts.image(here.label, None) == {"id": "id-c"}
    assert here.client.asked == ["images {'visibility': 'private'}"]


def test_newer_image(here: Here) -> None:
    """An image of a name is looked up again after a while."""
    assert here.facts.image(here.label, None) == {"id": "id-ibm-debian-12"}
    here.client.image_list = [image("ibm-debian-12", id="new")]
    assert here.facts.image(here.label, None) == {"id": "id-ibm-debian-12"}
    here.clock.now += FOUND_SECONDS + 1
    assert here.facts.image(here.label, None) == {"id": "new"}


def test_no_image(here: Here) -> None:
    here.client.image_list = []
    with pytest.raises(CloudSetup, match="no image with the name 'ibm-debian-12'; correct cloud image 'debian'"):
        here.facts.image(here.label, None)
    there = with_filter(**{"operating-system": {"family": "Debian"}})
    with pytest.raises(CloudSetup, match="image-filter family=Debian"):
        there.facts.image(there.label, None)


@pytest.mark.parametrize(("key", "reference"), [("image-id", "id"), ("image-href", "href")])
def test_image_that_is_named(key: str, reference: str) -> None:
    here = Here(cloud_images=[{"name": "debian", "username": "root", key: "there"}])
    assert here.facts.image(here.label, None) == {reference: "there"}
    assert here.client.asked == []
