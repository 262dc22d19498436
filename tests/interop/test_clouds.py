# SPDX-License-Identifier: Apache-2.0
"""The Zuul client uses nodes of the simulated public clouds: what it reads of them, and that they go after use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.support.clouds import CLOUDS, PROVIDER, SimulatedCloud
from tests.support.section_provider import SectionProvider
from tests.support.sshd import SshServer
from tests.support.wait import wait_for
from tests.support.workplace import Workplace

if TYPE_CHECKING:
    from tests.support.zuul_client import ZuulClient

Json = dict[str, Any]


def _aws(region: Any, name: str, node: Any, large: bool) -> None:
    instance = region.instances.instances[name]
    assert instance.spec.type.name == ("t3.large" if large else "t3.small")
    assert node.public_ipv4 == instance.public_ipv4
    assert node.node_properties["spot"] == large


def _azure(subscription: Any, name: str, node: Any, large: bool) -> None:
    vm = subscription.resources.get("virtualMachines", name)
    assert vm.properties["hardwareProfile"]["vmSize"] == ("Standard_D2s_v5" if large else "Standard_B1s")
    assert node.public_ipv4 != node.private_ipv4
    assert node.resources["cores"] == (2 if large else 1)


def _gce(project: Any, name: str, node: Any, large: bool) -> None:
    (instance,) = [one for one in project.instances.all() if one.name == name]
    assert (instance.spec.type.name, instance.spec.spot) == ("n2-standard-4" if large else "n1-standard-1", large)
    (interface,) = instance.document["networkInterfaces"]
    assert node.public_ipv4 == interface["accessConfigs"][0]["natIP"]


def _ibmvpc(region: Any, name: str, node: Any, large: bool) -> None:
    instance = region.resources.named("instances", name).document
    assert instance["profile"]["name"] == ("bxf-4x16" if large else "cx2-2x4")
    assert instance["availability"]["class"] == ("spot" if large else "standard")
    assert node.public_ipv4 == region.resources.named("floating_ips", name).document["address"]
    assert node.private_ipv4 == instance["primary_network_interface"]["primary_ip"]["address"]
    assert node.resources["cores"] == (4 if large else 2)


class Case(NamedTuple):
    """A cloud.

    :param place: cloud and region that Zuul reads of a node.
    :param large: keys of a label with other instances than ``small``.
    :param check: what a node says is what its instance is.
    """

    name: str
    username: str
    place: tuple[str, str]
    large: Json
    check: Callable[[Any, str, Any, bool], None]


CASES = (
    Case("aws", "admin", ("AWS", "us-east-1"), {"instance-type": "t3.large"}, _aws),
    Case("azure", "zuul", ("Azure", "northeurope"), {"hardware-profile": {"vm-size": "Standard_D2s_v5"}}, _azure),
    Case("gce", "zuul", ("Google", "us-central1"), {"instance-type": "n2-standard-4"}, _gce),
    Case("ibmvpc", "root", ("IBM", "us-south"), {"profile": "bxf-4x16"}, _ibmvpc),
)


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
def cloud(case: Case, tmp_path: Path, sshd: SshServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedCloud]:
    """Lists lag, and the answer of a creation gets lost; in the end nothing may be left."""
    made = CLOUDS[case.name](tmp_path, sshd.port)
    with made.simulator:
        made.fail("create", "drop", after=True, count=1)
        made.lists_are_late(0.5, 0.5)
        for name, value in made.environment().items():
            monkeypatch.setenv(name, value)
        yield made
        state = made.state()
        assert (state["double_nodes"], state["bugs"]) == ([], [])
        assert made.left() == {}


def test_nodes_of_a_job(
    workplace: Workplace, zuul: ZuulClient, sshd: SshServer, cloud: SimulatedCloud, case: Case
) -> None:
    """S-2, N-8, 5.3; AW-10, AZ-8, GC-6, IV-6, IV-7: addresses, login, host keys, cloud, region, zone and need, for a
    nodeset of two labels."""
    section = cloud.section()
    pool = section["pools"][0]
    pool["node-attributes"] = {"executor-zone": "here"}
    zone = cloud.zones[1]
    cloud.choose_zones(section, zone)
    pool["labels"].append({**pool["labels"][0], "name": "large", "use-spot": True, **case.large})
    workplace.launch([SectionProvider(section)])

    request = zuul.submit_and_wait(["large", "small"], tenant="tenant-one")
    assert request.state == "fulfilled"
    info = zuul.nodepool.getNodesetInfo(request, request.nodeset)
    assert (info.zone, info.provider, info.nodes) == ("here", PROVIDER, request.nodes)
    nodeset = zuul.accept(request)
    with cloud.simulator.cloud() as contents:
        for node, large in zip(nodeset.getNodes(), (True, False), strict=True):
            case.check(contents, cloud.instances()[node.id], node, large)
            assert node.interface_ip == node.public_ipv4
            assert (node.cloud, node.region, node.az) == (*case.place, zone)
            assert (node.username, node.connection_type) == (case.username, "ssh")
            assert node.connection_port == sshd.port
            assert set(node.host_keys) == set(sshd.host_keys)
    zuul.use(nodeset)
    zuul.give_back(nodeset)
    wait_for("all is gone", lambda: not workplace.znodes.nodes())
