# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openstack.create` and ``spec``, step by step."""

from __future__ import annotations

import base64
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.driver.openstack import create
from nodepool.driver.openstack.create import CreateMachine
from nodepool.driver.openstack.errors import CloudAway, CloudQuota, CloudRefused
from nodepool.driver.openstack.instance import OpenStackInstance
from nodepool.driver.openstack.spec import dynamic_value
from nodepool.exceptions import (
    CloudUnavailableException,
    LaunchNetworkException,
    LaunchNodepoolException,
    LaunchStatusException,
    QuotaException,
)
from tests.unit.driver.openstack.support import (
    LOG,
    METADATA,
    ManualExecutor,
    StubCloud,
    label_section,
    only_label,
    server,
)

MakeCloud = Callable[..., StubCloud]
REQUEST: Any = SimpleNamespace(id="200-7", node_types=["small"], requestor="zuul", tenant_name="t", event_id="e")


def machine(cloud: StubCloud, *, image_id: str | None = None, az: str | None = "az1") -> CreateMachine:
    label = only_label(cloud.config)
    return CreateMachine(cloud, "np0000000042", label, image_id, METADATA, REQUEST, az, LOG, cloud.clock)


def body(cloud: StubCloud) -> dict[str, Any]:
    """Of the creation."""
    found: dict[str, Any] = cloud.stub.bodies[cloud.stub.calls.index(("POST", "/servers"))]["server"]
    return found


def list_and_advance(cloud: StubCloud, launch: CreateMachine, times: int, seconds: float = 0) -> None:
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
    assert cloud.servers._pause() == float("inf"), "nobody waits any more"
    assert cloud.stub.count("POST", "/servers") == 1


def test_does_not_block(cloud: StubCloud) -> None:
    """driver-api 8: the call is made in another thread; its end wakes the machine."""
    cloud.creators = ManualExecutor(eager=False)  # type: ignore[assignment]
    launch = machine(cloud)
    woken: list[int] = []
    launch.wake = lambda: woken.append(1)
    assert launch.advance() is None
    assert (launch.state, cloud.stub.calls, woken) == ("submitting", [], [])
    cloud.creators.run()  # type: ignore[attr-defined]
    assert woken == [1]
    launch.advance()
    assert launch.state == "building"


def test_body(make_cloud: MakeCloud) -> None:
    """config.md 7: every option of a label and its pool reaches the cloud."""
    label = label_section(
        **{
            "key-name": "key",
            "userdata": "#cloud-config",
            "networks": ["internal"],
            "instance-properties": {"a": 1, "nodepool_node_id": "forged", "groups": "forged"},
            "dynamic-instance-properties": {"who": "{request.requestor} {request.labels}", "bad": "{request.nope.x}"},
        }
    )
    images = [{"name": "debian", "config-drive": True}]
    cloud = make_cloud(label, pool={"security-groups": ["sg"]}, **{"cloud-images": images})
    machine(cloud).advance()
    assert body(cloud) == {
        "name": "np0000000042",
        "flavorRef": "f1",
        "imageRef": "i1",
        "key_name": "key",
        "availability_zone": "az1",
        "config_drive": True,
        "user_data": base64.b64encode(b"#cloud-config").decode(),
        "networks": [{"uuid": "n1"}],
        "security_groups": [{"name": "sg"}],
        "metadata": {"a": "1", "who": "zuul ['small']", "groups": "cloud-a,debian,small", **METADATA},
    }


def test_what_is_not_configured_is_not_sent(cloud: StubCloud) -> None:
    machine(cloud, image_id="upload-1", az=None).advance()
    assert sorted(body(cloud)) == ["flavorRef", "imageRef", "metadata", "name"]
    assert body(cloud)["imageRef"] == "upload-1"


def test_default_network_of_clouds_yaml(make_cloud: MakeCloud) -> None:
    """openstacksdk's rule: without networks the ``default_interface`` is used."""
    cloud = make_cloud(settings={"networks": [{"name": "internal", "default_interface": True}]})
    machine(cloud).advance()
    assert body(cloud)["networks"] == [{"uuid": "n1"}]


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
def test_error_status(cloud: StubCloud, fault: str, kind: type[Exception]) -> None:
    """O-3, O-4: the fault is told; the id is kept, so that the server is deleted."""
    launch = machine(cloud)
    launch.advance()
    cloud.show(server(status="ERROR", fault={"message": fault, "code": 500}))
    with pytest.raises(kind, match=f"provider cloud-a, label small: server s1 went to ERROR: {fault or 'the cloud'}"):
        launch.advance()
    assert launch.external_id == "s1"
    assert cloud.servers._pause() == float("inf")


def test_quota_answer(cloud: StubCloud) -> None:
    """O-3, L-7."""
    cloud.stub.answers["POST", "/servers"] = CloudQuota("Quota exceeded for instances", 403)
    with pytest.raises(QuotaException):
        machine(cloud).advance()
    assert cloud.claims._claims == {}


def test_refusal(cloud: StubCloud) -> None:
    """O-2: everything that was believed in is asked for again. Bad input: the text names label and remedy."""
    cloud.stub.answers["POST", "/servers"] = CloudRefused("Provider cloud-a: 400 Invalid key_name provided.", 400)
    launch = machine(cloud)
    with pytest.raises(LaunchNodepoolException) as caught:
        launch.advance()
    for text in (
        "provider cloud-a, label small",
        "Invalid key_name",
        "check flavor, image, networks",
        "key-name",
        "az1",
    ):
        assert text in str(caught.value)
    assert cloud.facts.flavors.known() is None
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


def test_cloud_is_away(cloud: StubCloud) -> None:
    """A call that was not sent made nothing: it is a failure at once."""
    cloud.stub.answers["POST", "/servers"] = CloudAway("Connection refused", maybe_done=False)
    with pytest.raises(CloudUnavailableException):
        machine(cloud).advance()


class TestLostAnswer:
    """DESIGN 5: never two servers for one node."""

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

    def test_hidden_for_a_while(self, cloud: StubCloud) -> None:
        """One list does not prove that there is none."""
        launch = machine(cloud)
        launch.advance()
        for _ in range(3):
            cloud.show()
            launch.advance()
        assert launch.state == "searching"
        cloud.show(server("found"))
        launch.advance()
        assert launch.external_id == "found"

    def test_not_found(self, cloud: StubCloud) -> None:
        """It is a failed attempt; a server that comes later is deleted, without touching that of the next attempt."""
        launch = machine(cloud)
        launch.advance()
        with pytest.raises(CloudAway, match="timed out"):
            list_and_advance(cloud, launch, 20)
        cloud.stub.answers["POST", "/servers"] = {"server": {"id": "s2"}}
        cloud.stub.answers["DELETE", "/servers/late"] = {}
        again = machine(cloud)
        again.advance()
        cloud.show(server("late"), server("s2"))
        assert cloud.stub.count("DELETE", "/servers/late") == 1
        assert cloud.stub.count("DELETE", "/servers/s2") == 0
        assert again.external_id == "s2"

    def test_cloud_stays_away(self, cloud: StubCloud) -> None:
        """When nothing can be listed the framework must know, so that the provider can be given a rest."""
        cloud.stub.answers["GET", "/servers/detail"] = CloudAway("503")
        launch = machine(cloud)
        launch.advance()
        cloud.servers.poll(complete=True)
        launch.advance()
        cloud.servers.poll(complete=True)
        with pytest.raises(CloudAway, match="timed out"):
            launch.advance()

    def test_nothing_is_listed(self, cloud: StubCloud) -> None:
        """The search does not last for ever."""
        launch = machine(cloud)
        launch.advance()
        cloud.clock.now += 10 * create.SEARCH_SECONDS
        with pytest.raises(CloudAway):
            launch.advance()


class TestAbsent:
    """A server that is in no list."""

    def test_deleted_by_somebody(self, cloud: StubCloud) -> None:
        launch = machine(cloud)
        launch.advance()
        cloud.show(server(status="DELETED"))
        with pytest.raises(LaunchStatusException, match="deleted by somebody else"):
            launch.advance()

    def test_asked_for(self, cloud: StubCloud) -> None:
        """Lists may hide it: it is asked for itself before it is given up."""
        cloud.stub.answers["GET", "/servers/s1"] = {"server": server()}
        launch = machine(cloud)
        launch.advance()
        list_and_advance(cloud, launch, 3, create.ABSENT_SECONDS + 1)
        del cloud.stub.answers["GET", "/servers/s1"]
        with pytest.raises(LaunchStatusException, match="is gone"):
            list_and_advance(cloud, launch, 3, create.ABSENT_SECONDS + 1)


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


class TestFloatingIp:
    """O-5"""

    @pytest.fixture
    def cloud(self, make_cloud: MakeCloud) -> StubCloud:
        return self.with_external_network(make_cloud())

    @staticmethod
    def with_external_network(cloud: StubCloud) -> StubCloud:
        networks = [{"id": "n1", "name": "internal"}, {"id": "x1", "name": "ext", "router:external": True}]
        cloud.stub.answers["GET", "/networks"] = {"networks": networks}
        port = {"id": "p1", "network_id": "n1", "fixed_ips": [{"ip_address": "10.0.0.5"}], "device_id": "s1"}
        cloud.stub.answers["GET", "/ports"] = {"ports": [port]}
        made = {"id": "fip1", "floating_ip_address": "8.8.8.8", "port_id": "p1"}
        cloud.stub.answers["POST", "/floatingips"] = {"floatingip": made}
        return cloud

    def test_made_and_attached(self, cloud: StubCloud) -> None:
        launch = machine(cloud)
        launch.advance()
        cloud.show(server(status="ACTIVE"))
        assert launch.advance() is None
        instance = launch.advance()
        assert instance is not None
        assert (instance.interface_ip, instance.public_ipv4, instance.private_ipv4) == (
            *("8.8.8.8", "8.8.8.8"),
            "10.0.0.5",
        )
        (sent,) = [b["floatingip"] for b in cloud.stub.bodies if b and "floatingip" in b]
        assert (sent["floating_network_id"], sent["port_id"], sent["fixed_ip_address"]) == ("x1", "p1", "10.0.0.5")
        assert METADATA["nodepool_node_id"] in sent["description"]

    def test_not_when_switched_off(self, make_cloud: MakeCloud) -> None:
        cloud = self.with_external_network(make_cloud(pool={"auto-floating-ip": False}))
        launch = machine(cloud)
        launch.advance()
        cloud.show(server(status="ACTIVE"))
        instance = launch.advance()
        assert instance is not None
        assert instance.interface_ip == "10.0.0.5"

    def test_not_when_reachable(self, cloud: StubCloud) -> None:
        launch = machine(cloud)
        launch.advance()
        cloud.show(server(status="ACTIVE", accessIPv4="9.9.9.9"))
        instance = launch.advance()
        assert instance is not None
        assert instance.public_ipv4 == "9.9.9.9"
        assert cloud.stub.count("POST", "/floatingips") == 0

    def test_no_route(self, cloud: StubCloud) -> None:
        """A network without a router to the outside needs none; that is asked once."""
        del cloud.stub.answers["POST", "/floatingips"]
        for _ in range(2):
            launch = machine(cloud)
            launch.advance()
            cloud.show(server(status="ACTIVE"))
            instance = launch.advance() or launch.advance()
            assert instance is not None
            assert instance.interface_ip == "10.0.0.5"
            cloud.show()
        assert cloud.stub.count("POST", "/floatingips") == 1

    def test_quota(self, cloud: StubCloud) -> None:
        cloud.stub.answers["POST", "/floatingips"] = CloudQuota("Quota exceeded for floatingip", 409)
        launch = machine(cloud)
        launch.advance()
        cloud.show(server(status="ACTIVE"))
        launch.advance()
        with pytest.raises(QuotaException):
            launch.advance()
        assert launch.external_id == "s1"


def test_given_up_before_its_turn(cloud: StubCloud) -> None:
    """A creation that waited too long for its turn is not sent any more: nobody would know of the server."""
    cloud.creators = ManualExecutor(eager=False)  # type: ignore[assignment]
    machine(cloud).advance()
    cloud.clock.now += create.GIVEN_UP_SECONDS + 1
    cloud.creators.run()  # type: ignore[attr-defined]
    assert cloud.stub.count("POST", "/servers") == 0


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        ("{request.id}-{request.tenant_name}", "200-7-t"),
        ("{request.relative_priority}", "None"),
        (7, "7"),
        ("{request.nope}", None),
        ("{other}", None),
        ("{", None),
        ("{request.zk}", None),
    ],
)
def test_dynamic_value(template: Any, wanted: str | None) -> None:
    """L-15: a bad format skips that value only; nothing but the documented fields can be reached."""
    assert dynamic_value(template, REQUEST) == wanted
