# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openstack.create`, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway, CloudQuota
from nodepool.driver.openstack import create
from nodepool.driver.openstack.create import ServerCreation
from nodepool.driver.openstack.errors import refusal
from nodepool.driver.openstack.instance import OpenStackInstance
from nodepool.driver.statemachine import machines
from nodepool.exceptions import (
    LaunchNetworkException,
    LaunchNodepoolException,
    LaunchStatusException,
    QuotaException,
)
from tests.support.manual_executor import ManualExecutor
from tests.unit.driver.openstack.support import (
    METADATA,
    StubCloud,
    body,
    label_section,
    machine,
    server,
)

MakeCloud = Callable[..., StubCloud]


def list_and_advance(cloud: StubCloud, launch: ServerCreation, times: int, seconds: float = 0) -> None:
    """The server is in no list, for a while."""
    for _ in range(times):
        cloud.clock.now += seconds
        cloud.show()
        launch.advance()


def test_one_server(cloud: StubCloud) -> None:
    """From the call to the instance; L-3: the id is there as soon as the cloud gave it."""
    launch = machine(cloud)
    assert launch.advance() is None
    assert (launch.external_id, launch.state, launch.complete) == ("s1", "building", False)
    cloud.show(server())
    assert launch.advance() is None
    cloud.show(server(status="ACTIVE"))
    instance = launch.advance()
    assert isinstance(instance, OpenStackInstance)
    assert launch.complete
    assert (instance.external_id, instance.interface_ip, instance.az, instance.cloud) == (
        *("s1", "10.0.0.5"),
        *("nova", "example"),
    )
    assert instance.getQuotaInformation().get_resources() == {"cores": 2, "instances": 1, "ram": 4096}
    assert cloud.inventory._pause() == float("inf"), "nobody waits any more"
    assert cloud.stub.count("POST", "/servers") == 1


@pytest.mark.parametrize("volume", [False, True])
def test_is_woken_when_it_has_to_look(make_cloud: MakeCloud, volume: bool) -> None:
    """A server that is being built is no news, but for its volume, which is to be marked."""
    cloud = make_cloud(label_section(**{"boot-from-volume": volume, "volume-size": 80}))
    woken: list[str] = []
    launch = machine(cloud)
    launch.wake = lambda: woken.append(launch.state)
    launch.advance()
    for status, wakes in (("BUILD", volume), ("ERROR", True), ("ACTIVE", True)):
        woken.clear()
        cloud.show(server(status=status))
        assert bool(woken) is wakes, status


def test_boot_from_volume(make_cloud: MakeCloud) -> None:
    """O-6: the volume goes with the server and counts; it is marked as ours, so that a left over one is found."""
    cloud = make_cloud(label_section(**{"boot-from-volume": True, "volume-size": 80}))
    cloud.stub.answers["POST", "/volumes/v1/metadata"] = {}
    launch = machine(cloud)
    launch.advance()
    (device,) = body(cloud)["block_device_mapping_v2"]
    assert "imageRef" not in body(cloud)
    assert (device["uuid"], device["volume_size"], device["delete_on_termination"]) == ("i1", 80, True)
    volumes: dict[str, Any] = {"os-extended-volumes:volumes_attached": [{"id": "v1"}]}
    cloud.show(server(**volumes))
    launch.advance()
    cloud.show(server(status="ACTIVE", **volumes))
    instance = launch.advance()
    assert instance is not None
    resources = instance.getQuotaInformation().get_resources()
    assert (resources["volumes"], resources["volume-gb"]) == (1, 80)
    assert cloud.stub.count("POST", "/volumes/v1/metadata") == 1
    assert cloud.stub.bodies[cloud.stub.calls.index(("POST", "/volumes/v1/metadata"))] == {"metadata": METADATA}


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("No valid host was found.", LaunchStatusException),
        ("", LaunchStatusException),
        ("Build aborted: Quota exceeded for cores", QuotaException),
        ("Request exceeds allowed quota", QuotaException),
        ("Maximum number of ports exceeded", QuotaException),
    ],
)
@pytest.mark.parametrize("listed", [True, False])
def test_error_status(cloud: StubCloud, fault: str, kind: type[Exception], listed: bool) -> None:
    """O-3, O-4: the fault is told, also where lists lack it; the id is kept, so that the server is deleted."""
    broken = server(status="ERROR", fault={"message": fault, "code": 500})
    cloud.stub.answers["GET", "/servers/s1"] = {"server": broken}
    launch = machine(cloud)
    launch.advance()
    cloud.show(broken if listed else server(status="ERROR"))
    with pytest.raises(kind, match=f"provider cloud-a, label small: server s1 went to ERROR: {fault or 'the cloud'}"):
        launch.advance()
    assert launch.external_id == "s1"
    assert cloud.inventory._pause() == float("inf")


def test_error_status_without_an_answer(cloud: StubCloud) -> None:
    """O-4: that nobody says why does not make the launch any better."""
    launch = machine(cloud)
    launch.advance()
    cloud.show(server(status="ERROR"))
    with pytest.raises(LaunchStatusException, match="the cloud gives no reason"):
        launch.advance()


def test_error_status_that_passes(cloud: StubCloud) -> None:
    """A server that recovers while it is asked why it failed is as good as any."""
    launch = machine(cloud)
    launch.advance()
    cloud.others = ManualExecutor(eager=False)
    cloud.show(server(status="ERROR"))
    assert launch.advance() is None
    cloud.show(server(status="ACTIVE"))
    assert launch.advance() is not None


def test_quota_answer(cloud: StubCloud) -> None:
    """O-3, L-7."""
    cloud.stub.answers["POST", "/servers"] = CloudQuota("Quota exceeded for instances", 403)
    with pytest.raises(QuotaException):
        machine(cloud).advance()
    assert cloud.creations._nodes == {}


def test_refusal(cloud: StubCloud) -> None:
    """O-2: everything that was believed in is asked for again. Bad input: the text names label and remedy."""
    cloud.stub.answers["POST", "/servers"] = refusal("Provider cloud-a: doing", "Invalid key_name provided.", 400)
    launch = machine(cloud)
    with pytest.raises(LaunchNodepoolException) as caught:
        launch.advance()
    assert str(caught.value) == (
        "provider cloud-a, label small: the cloud refuses the server: 400 Invalid key_name provided.; "
        "correct key-name (None) of the label, or make the key pair for this user"
    )
    for _ in range(2):
        cloud.facts.flavors.get()
    assert cloud.stub.count("GET", "/flavors/detail") == 2
    assert launch.external_id is None


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ({"flavor-name": "nope"}, "no flavor named 'nope'"),
        ({"networks": ["nope"]}, "no network 'nope'"),
    ],
)
def test_bad_label(make_cloud: MakeCloud, label: dict[str, Any], text: str) -> None:
    """Bad input: nothing is made."""
    cloud = make_cloud(label_section(**label))
    with pytest.raises(LaunchNodepoolException, match=f"provider cloud-a, label small: .*{text}"):
        machine(cloud).advance()
    assert cloud.stub.count("POST", "/servers") == 0


class TestLostAnswer:
    """Never two servers for one node."""

    @pytest.fixture
    def cloud(self, cloud: StubCloud) -> StubCloud:
        cloud.stub.answers["POST", "/servers"] = CloudAway("timed out")
        return cloud

    def test_found(self, cloud: StubCloud) -> None:
        """The server that was made all the same is adopted."""
        launch = machine(cloud)
        launch.advance()
        assert launch.state == "searching"
        cloud.show(server("found"))
        launch.advance()
        assert (launch.state, launch.external_id) == ("building", "found")
        cloud.show(server("found", "ACTIVE"))
        instance = launch.advance()
        assert instance is not None
        assert instance.getQuotaInformation().get_resources()["cores"] == 2
        assert cloud.stub.count("POST", "/servers") == 1

    def test_not_found(self, cloud: StubCloud) -> None:
        """It is a failed attempt; a server that comes later is deleted, without touching that of the next attempt."""
        launch = machine(cloud)
        launch.advance()
        with pytest.raises(CloudAway, match="timed out") as raised:
            list_and_advance(cloud, launch, 20)
        assert raised.value.searched
        cloud.stub.answers["POST", "/servers"] = {"server": {"id": "s2"}}
        cloud.stub.answers["DELETE", "/servers/late"] = {}
        again = machine(cloud)
        again.advance()
        cloud.show(server("late"), server("s2"))
        assert cloud.stub.count("DELETE", "/servers/late") == 1
        assert cloud.stub.count("DELETE", "/servers/s2") == 0
        assert again.external_id == "s2"


class TestAbsent:
    """A server that is in no list."""

    def test_asked_for(self, cloud: StubCloud) -> None:
        """Lists may hide it: it is asked for itself before it is given up."""
        cloud.stub.answers["GET", "/servers/s1"] = {"server": server()}
        launch = machine(cloud)
        launch.advance()
        list_and_advance(cloud, launch, 3, machines.ABSENT_SECONDS + 1)
        del cloud.stub.answers["GET", "/servers/s1"]
        with pytest.raises(LaunchStatusException, match="s1 was deleted by somebody else"):
            list_and_advance(cloud, launch, 3, machines.ABSENT_SECONDS + 1)

    def test_shows_up_while_it_is_asked_for(self, cloud: StubCloud) -> None:
        """The answer that is not needed any more is not taken for a floating IP."""
        launch = machine(cloud)
        launch.advance()
        cloud.others = ManualExecutor(eager=False)
        list_and_advance(cloud, launch, 1, machines.ABSENT_SECONDS + 1)
        cloud.show(server(status="ACTIVE"))
        instance = launch.advance()
        assert instance is not None
        assert instance.interface_ip == "10.0.0.5"


def test_no_address(cloud: StubCloud) -> None:
    """Bad input: an instance without addresses; they may come late."""
    launch = machine(cloud)
    launch.advance()
    cloud.show(server(status="ACTIVE", addresses={}))
    assert launch.advance() is None
    cloud.clock.now += create.NO_ADDRESS_SECONDS + 1
    with pytest.raises(LaunchNetworkException, match="label small: server s1 is active, but has no address; check"):
        launch.advance()


def test_late_address(cloud: StubCloud) -> None:
    launch = machine(cloud)
    launch.advance()
    cloud.show(server(status="ACTIVE", addresses={}))
    launch.advance()
    cloud.show(server(status="ACTIVE"))
    assert launch.advance() is not None


def test_not_wanted_any_more(cloud: StubCloud) -> None:
    """A launcher that was stopped past its session makes no server for a node of somebody else."""
    launch = machine(cloud)
    launch.wanted = lambda: False
    with pytest.raises(LaunchStatusException, match="not wanted any more"):
        launch.advance()
    assert cloud.stub.count("POST", "/servers") == 0


@pytest.mark.parametrize("region_name", [None, "north"])
def test_region(make_cloud: MakeCloud, region_name: str | None) -> None:
    """reference/zookeeper 5.1: that of nodepool.yaml, and null without one, whatever clouds.yaml says."""
    more = {} if region_name is None else {"region-name": region_name}
    cloud = make_cloud(settings={"region_name": "RegionOne"}, **more)
    launch = machine(cloud)
    launch.advance()
    cloud.show(server(status="ACTIVE", accessIPv4="9.9.9.9"))
    instance = launch.advance()
    assert instance is not None
    assert instance.region == region_name
    assert [found.region for found in cloud.instances()] == [region_name]
