# SPDX-License-Identifier: Apache-2.0
"""Launches and deletions, step by step: what is asked for, what refusals mean, floating IPs, facts, lists, quota."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from openstack.cloud import _utils

from nodepool.driver.framework.cloud_errors import CloudAway, CloudQuota, CloudRefused
from nodepool.driver.openstack import OpenStackAdapter
from nodepool.driver.openstack.api import Flavor, Server
from nodepool.driver.openstack.cloud import LATE_SECONDS, WIDE_SECONDS, ServerLists, choose_flavor, missing_flavor
from nodepool.driver.openstack.servers import ServerDeletion
from nodepool.driver.openstack.transport import refusal
from nodepool.driver.statemachine.inventory import ChangesNotListed
from nodepool.exceptions import (
    LaunchNetworkException,
    LaunchNodepoolException,
    RuntimeConfigurationException,
)
from nodepool.plan.launch import Failure, classify
from tests.support.manual_clock import ManualClock
from tests.support.tables import driver_table
from tests.unit.driver.openstack import support

MakeCloud = Callable[..., support.StubCloud]
VOLUME: dict[str, Any] = {"boot-from-volume": True, "volume-size": 80}
OURS = {"cores": 2, "instances": 1, "ram": 4096}
WITH_VOLUME = {"volumes": 1, "volume-gb": 80}
ATTACHED: dict[str, Any] = {"os-extended-volumes:volumes_attached": [{"id": "v1"}]}


# -- launches --


@pytest.mark.parametrize(("settings", "networks"), driver_table("openstack", "networks_that_are_sent"))
def test_what_is_not_configured_is_not_sent(make_cloud: MakeCloud, settings: dict[str, Any], networks: Any) -> None:
    cloud = make_cloud(settings=settings)
    cloud.creation("upload-1", None)
    sent = cloud.stub.body("POST", "/servers")["server"]
    assert sent.pop("networks", None) == networks
    assert (sorted(sent), sent["imageRef"]) == (["flavorRef", "imageRef", "metadata", "name"], "upload-1")


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize(("fault", "kind", "failure", "key"), driver_table("openstack", "faults"))
def test_error_status(
    cloud: support.StubCloud, fault: str, kind: type[Exception], failure: str, key: str, listed: bool
) -> None:
    """O-3, O-4: no room, a quota and a broken server differ; the text has the fault, also where lists lack it."""
    broken = support.server(status="ERROR", fault={"message": fault, "code": 500})
    cloud.stub.answers["GET", "/servers/s1"] = {"server": broken} if fault else CloudAway("500")
    launch = cloud.creation()
    cloud.show(broken if listed else support.server(status="ERROR"))
    wanted = f"provider cloud-a, label small: server s1 went to ERROR: {fault or 'the cloud gives no reason'}"
    with pytest.raises(kind, match=wanted) as caught:
        launch.advance()
    assert (classify(caught.value), getattr(caught.value, "statsd_key", "")) == (Failure[failure], key)
    assert launch.external_id == "s1"


@pytest.mark.parametrize(("text", "status", "wanted"), driver_table("openstack", "refusals"))
def test_refusals(make_cloud: MakeCloud, text: str, status: int, wanted: str) -> None:
    """O-2, O-3: the setting is named, as it stands in the file; what was believed in is asked for again."""
    settings = {"key-name": "mine", "networks": ["internal"]}
    cloud = make_cloud(support.label_section(**settings), pool={"security-groups": ["sg"]})
    cloud.stub.answers["POST", "/servers"] = refusal("Provider cloud-a: creating a server failed", text, status)
    kind = CloudQuota if "Quota" in text else LaunchNodepoolException
    with pytest.raises(kind) as caught:
        cloud.creation()
    assert type(caught.value) is kind
    assert str(caught.value).startswith("provider cloud-a, label small: ")
    assert wanted in str(caught.value)
    assert "s3cret" not in str(caught.value)
    cloud.facts.flavors.get()
    assert cloud.stub.count("GET", "/flavors/detail") == (2 if status in (400, 404) else 1)
    assert cloud.unanswered() == []


# -- floating IPs --


def with_floating_ips(cloud: support.StubCloud) -> support.StubCloud:
    networks = [("n1", "internal"), ("n2", "storage"), ("x1", "ext")]
    cloud.stub.answers["GET", "/networks"] = {
        "networks": [{"id": key, "name": name, "router:external": key == "x1"} for key, name in networks]
    }
    port = {"id": "p1", "network_id": "n1", "fixed_ips": [{"ip_address": "10.0.0.5"}], "device_id": "s1"}
    cloud.stub.answers["GET", "/ports"] = {"ports": [port]}
    made = {"id": "fip1", "floating_ip_address": "8.8.8.8", "port_id": "p1"}
    cloud.stub.answers["POST", "/floatingips"] = {"floatingip": made}
    return cloud


@pytest.mark.parametrize("row", driver_table("openstack", "floating_ip_made"))
def test_floating_ip(make_cloud: MakeCloud, monkeypatch: pytest.MonkeyPatch, row: tuple[Any, ...]) -> None:
    """O-5, O-12: made only if the server cannot be reached; it says whose it is."""
    settings, pool, more, interface, made = row
    monkeypatch.setattr(_utils, "localhost_supports_ipv6", lambda: True)
    cloud = with_floating_ips(make_cloud(settings=settings, pool=pool))
    # What is known of networks counts until the next answer.
    cloud.facts.networks.get()
    cloud.facts.clear()
    instance = cloud.launched(**more)
    assert (instance.interface_ip, instance.private_ipv4) == (interface, "10.0.0.5")
    assert cloud.stub.count("POST", "/floatingips") == made
    if made:
        sent = cloud.stub.body("POST", "/floatingips")["floatingip"]
        source = "n2" if "networks" in settings else "x1"
        assert sent.pop("description") == "nodepool cloud-a node 0000000042"
        assert sent == {"floating_network_id": source, "port_id": "p1", "fixed_ip_address": "10.0.0.5"}


@pytest.mark.parametrize(("error", "kind", "asked"), driver_table("openstack", "no_floating_ip"))
def test_no_floating_ip(
    cloud: support.StubCloud, error: list[Any], kind: type[Exception] | None, asked: list[int]
) -> None:
    """O-5"""
    with_floating_ips(cloud).stub.answers["POST", "/floatingips"] = support.answer_of(error)
    for wanted in asked:
        if kind is None:
            assert cloud.launched().interface_ip == "10.0.0.5"
        else:
            with pytest.raises(kind):
                cloud.launched()
        assert cloud.stub.count("POST", "/floatingips") == wanted
        cloud.clock.pass_seconds(200.0)
        cloud.show()


@pytest.mark.parametrize(("mark", "gateways", "ports", "result"), driver_table("openstack", "several_ports"))
def test_several_ports(
    make_cloud: MakeCloud, mark: str | None, gateways: tuple[str, ...], ports: tuple[str, ...], result: str
) -> None:
    """O-13: the floating IP goes to the port on the marked network; without a mark nothing is guessed."""
    settings = {"networks": [{"name": mark, "nat_destination": True}]} if mark else {}
    cloud = with_floating_ips(make_cloud(settings=settings))
    found = [
        {"id": f"p{n}", "network_id": one, "fixed_ips": [{"ip_address": f"10.0.{n}.5"}]} for n, one in enumerate(ports)
    ]
    cloud.stub.answers["GET", "/ports"] = {"ports": found}
    subnets = [{"id": one, "network_id": one, "gateway_ip": "10.0.0.1" * (one in gateways)} for one in ("n1", "n2")]
    cloud.stub.answers["GET", "/subnets"] = {"subnets": subnets}
    cloud.facts.networks.get()
    refused = pytest.raises(LaunchNetworkException, match=f"{result}; mark the network .* nat_destination: true")
    with refused if " " in result else nullcontext():
        made = cloud.floating.attach(Server(support.server()), "note")
        assert (made.fixed_address if made else "") == (result and f"10.0.{result[1]}.5")
    sent = [body["floatingip"]["port_id"] for body in cloud.stub.bodies if body]
    assert sent == ([result] if result[:1] == "p" else [])
    assert cloud.stub.count("GET", "/subnets") == (1 if mark is None and len(set(ports)) > 1 else 0)


# -- deletions --


def deletion(cloud: support.StubCloud, server_id: str | None = "s1") -> ServerDeletion:
    made = ServerDeletion(cloud, server_id, support.LOG)
    made.advance()
    return made


def fips(cloud: support.StubCloud) -> support.StubCloud:
    shown = [("fip1", "8.8.8.8", "p1", "10.0.0.5"), ("fip2", "8.8.4.4", "p2", "10.0.0.9")]
    keys = ("id", "floating_ip_address", "port_id", "fixed_ip_address")
    cloud.stub.answers["GET", "/floatingips"] = {"floatingips": [dict(zip(keys, one, strict=True)) for one in shown]}
    cloud.stub.answers["DELETE", "/floatingips/fip1"] = {}
    return cloud


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize(("seen", "port", "wanted"), driver_table("openstack", "floating_ip_deleted"))
def test_deletion_of_a_floating_ip(
    cloud: support.StubCloud, seen: dict[str, Any] | None, port: str, wanted: bool | None, listed: bool
) -> None:
    """O-5: before the server, also if another launcher made it a moment ago.

    A list from a moment ago, which has none, says nothing of a server that is not known or that needs one.
    """
    with_floating_ips(cloud).stub.answers["GET", "/ports"] = {"ports": [{"id": port, "device_id": "s1"}]}
    if listed:
        deletion(cloud, "s9")
        cloud.clock.now += 1
    fips(cloud)
    if seen is not None:
        cloud.show(support.server(status="ACTIVE", **seen))
    deletion(cloud)
    first = ["/floatingips/fip1"] if wanted or (wanted is None and not listed) else []
    assert cloud.stub.sent("DELETE") == [*["/servers/s9"][: int(listed)], *first, "/servers/s1"]


# -- facts --

SIZES = {"gpu-big": 8192, "std-b": 4096, "std-a": 4096, "std-big": 8192, "tiny": 512}
FLAVORS = [Flavor({"id": number, "name": name, "ram": ram}) for number, (name, ram) in enumerate(SIZES.items())]


@pytest.mark.parametrize(("name", "min_ram", "wanted"), driver_table("openstack", "flavors_of_labels"))
def test_choose_flavor(make_cloud: MakeCloud, name: str | None, min_ram: int, wanted: str) -> None:
    """O-1: by (ram, name) with a part of the name; without min-ram exactly the name, or the id. The text says so."""
    found = choose_flavor(FLAVORS, name, min_ram)
    if found is not None:
        assert found.name == wanted
        return
    label = support.only_label(make_cloud().config)
    label.flavor_name, label.min_ram = name, min_ram
    assert missing_flavor(label).startswith(f"the cloud has no flavor{wanted}; correct flavor-name or min-ram")


# -- lists --

LISTS = ("GET", "/servers/detail")


def at(second: int) -> str:
    return f"2026-01-01T12:00:{second:02}Z"


@pytest.fixture
def lists(cloud: support.StubCloud) -> ServerLists:
    return ServerLists(cloud.api)


@pytest.mark.parametrize("latest", [at(30), at(30)[:-1], "2026-01-01T14:00:30+02:00", "yesterday", ""])
def test_wide_and_narrow_lists(lists: ServerLists, cloud: support.StubCloud, latest: str) -> None:
    """O-8: the second before counts until its transactions can be expected to have ended."""
    if ":" not in latest:
        assert lists.changes_since(latest) is None, "what is no time asks for everything"
        return
    for seconds, wanted in ((0.0, 25), (0.4, 29), (0.2, 30), (WIDE_SECONDS - 0.6, 25)):
        cloud.clock.pass_seconds(seconds)
        assert lists.changes_since(latest) == at(wanted)


@pytest.mark.parametrize("since", [None, at(25)])
@pytest.mark.parametrize(("answer", "kind"), driver_table("openstack", "lists_after_another"))
def test_list_after_another(
    lists: ServerLists, cloud: support.StubCloud, since: str | None, answer: Any, kind: type[Exception] | None
) -> None:
    """D-2, O-8: wide after one of all, or one that failed. A cloud that refuses changes is asked for everything."""
    for wanted in (25, 29):
        assert lists.changes_since(at(30)) == at(wanted)
    cloud.stub.answers[LISTS] = support.answer_of(answer)
    if kind is None:
        lists.list(since)
    else:
        with pytest.raises(ChangesNotListed if kind is CloudRefused and since else kind):
            lists.list(since)
    assert lists.changes_since(at(30)) == at(29 if since and kind is None else 25)


@pytest.mark.parametrize(("listed", "late"), driver_table("openstack", "late_changes"))
def test_change_that_a_narrow_list_does_not_show(
    lists: ServerLists, cloud: support.StubCloud, listed: list[dict[str, Any]], late: bool
) -> None:
    """O-8: clocks of a cloud differ, or it is slow: lists are wide from then on, for a while."""
    cloud.stub.answers[LISTS] = {"servers": [support.server(updated=at(20))]}
    lists.list(None)
    cloud.clock.pass_seconds(WIDE_SECONDS)
    cloud.stub.answers[LISTS] = {"servers": [support.server(**one) for one in listed]}
    lists.list(lists.changes_since(at(30)))
    assert lists.changes_since(at(30)) == at(25 if late else 29)
    cloud.clock.pass_seconds(LATE_SECONDS)
    assert [lists.changes_since(at(31)) for _ in range(2)] == [at(26), at(30)]


# -- what the framework asks --

MakeAdapter = Callable[..., OpenStackAdapter]


@pytest.fixture
def transport() -> support.StubTransport:
    return support.StubTransport()


@pytest.fixture
def adapter(transport: support.StubTransport, clock: ManualClock) -> Iterator[MakeAdapter]:
    made: list[OpenStackAdapter] = []

    def make(label: dict[str, Any] | None = None) -> OpenStackAdapter:
        made.append(OpenStackAdapter(support.load(support.section(label))[0], transport))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        one.stop()


def test_quota(adapter: MakeAdapter, transport: support.StubTransport) -> None:
    """Q-4, Q-14: limits, needs, and what servers use, those of others too; volumes count when they are used here."""
    absolute = {"maxTotalCores": 20, "maxTotalRAMSize": -1, "maxTotalVolumes": 3, "maxTotalVolumeGigabytes": 100}
    transport.answers["GET", "/limits"] = {"limits": {"absolute": absolute}}
    transport.answers["GET", "/volumes/detail"] = {"volumes": [{"id": "v1", "size": 20}]}
    transport.answers["GET", "/flavors/old"] = {"flavor": {"id": "old", "vcpus": 3, "ram": 7}}
    foreign = support.server("x", "ACTIVE", metadata={}, flavor={"vcpus": 8, "ram": 100}, **ATTACHED)
    others = [
        support.server("o", flavor={"id": "old"}),
        support.server("p", flavor={"id": "x"}, **{"OS-EXT-STS:task_state": "deleting"}),
    ]
    transport.answers[LISTS] = {"servers": [support.server(), foreign, *others]}
    for volumes in (False, True):
        made = adapter(support.label_section(**VOLUME) if volumes else None)
        limits = made.getQuotaLimits().quota["compute"]
        assert [limits[key] for key in ("cores", "instances", "ram")] == [20, math.inf, math.inf]
        assert [limits[key] for key in WITH_VOLUME] == ([3, 100] if volumes else [math.inf] * 2)
        label: Any = support.only_label(made.config)
        assert made.getQuotaForLabel(label).get_resources() == {**OURS, **(WITH_VOLUME if volumes else {})}
        found = made.listInstances()
        used = [instance.getQuotaInformation().get_resources() for instance in found]
        size = {"volumes": 1, "volume-gb": 20 if volumes else 0}
        assert used[:2] == [OURS, {"cores": 8, "instances": 1, "ram": 100, **size}]
        assert used[2:] == [{"cores": cores, "instances": 1, "ram": ram} for cores, ram in ((3, 7), (0, 0))]
        assert [bool(instance.ends) for instance in found] == [False, False, False, True]
    transport.services.discard("block-storage")
    assert made.getQuotaLimits().quota["compute"]["volumes"] == math.inf
    label.flavor_name = "nope"
    with pytest.raises(RuntimeConfigurationException, match="the cloud has no flavor named 'nope'; correct"):
        made.getQuotaForLabel(label)


def test_check_without_networks(adapter: MakeAdapter, transport: support.StubTransport) -> None:
    """reference/commands: a cloud that does not list its networks says so; it tells no remedy."""
    made = adapter(support.label_section(networks=["lan"]))
    transport.answers["GET", "/networks"] = CloudAway(f"Provider {made.config.name}: reading networks failed: 503")
    found = [one for one in made.preflight() if "networks" in one.text and one.status == "failed"]
    assert [(one.text, one.remedy) for one in found] == [("reading networks failed: 503", "")]


def test_images(cloud: support.StubCloud) -> None:
    """O-7, O-10: a name may be an id; one that is missing is asked for every 300 s, and before a launch fails."""
    facts, label, image = cloud.facts, support.only_label(cloud.config), cloud.config.cloud_images["debian"]
    assert facts.image_id(image) == "i1"
    image.image_name = "uuid-1"
    cloud.stub.answers["GET", "/images/uuid-1"] = {"id": "uuid-1", "status": "active"}
    assert facts.image_of(label) == "uuid-1"
    image.image_name = "nope"
    cloud.stub.answers["GET", "/images/nope"] = {"id": "nope", "status": "queued"}
    cloud.stub.calls.clear()
    for seconds, asked in ((0.0, 1), (299.0, 1), (2.0, 2)):
        cloud.clock.pass_seconds(seconds)
        assert facts.image_id(image) is None
        assert cloud.stub.count("GET", "/images") == asked
    cloud.clock.pass_seconds(11.0)
    with pytest.raises(LaunchNodepoolException, match="label small: the cloud has no usable image 'nope'; correct"):
        facts.image_of(label)
    assert cloud.stub.count("GET", "/images") == 3
