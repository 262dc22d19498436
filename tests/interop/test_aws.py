# SPDX-License-Identifier: Apache-2.0
"""The Zuul client uses nodes of the simulated AWS region: what it reads of them, and that they go when it is done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from simulators.aws import AwsSimulator
from tests.support.aws_provider import aws_section
from tests.support.section_provider import SectionProvider
from tests.support.sshd import SshServer
from tests.support.wait import wait_for
from tests.support.workplace import Workplace

if TYPE_CHECKING:
    from tests.support.zuul_client import ZuulClient


@pytest.fixture
def region(monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsSimulator]:
    """Lists and tags lag, and some answers of RunInstances get lost; in the end nothing may be left."""
    with AwsSimulator() as simulator:
        lost = {"operation": "ec2.RunInstances", "kind": "drop", "after": True, "count": 1}
        simulator.change(errors=[lost], hidden_rate=0.5, hidden_seconds=[0.2, 0.5], tag_lag_rate=0.5)
        for name, value in simulator.environment.items():
            monkeypatch.setenv(name, value)
        yield simulator
        state = simulator.state()
        assert (state["double_nodes"], state["bugs"]) == ([], [])
        assert (state["contents"]["instances"], state["contents"]["volumes"]) == (0, 0)


def test_nodes_of_a_job(workplace: Workplace, zuul: ZuulClient, sshd: SshServer, region: AwsSimulator) -> None:
    """S-2, N-8, 5.3; AW-10: addresses, login, host keys, cloud and zone, for a nodeset of two labels."""
    with region.cloud() as cloud:
        section = aws_section(cloud.image_id, sshd.port)
    pool = section["pools"][0]
    pool["node-attributes"] = {"executor-zone": "here"}
    pool["availability-zone"] = "us-east-1b"
    pool["labels"].append({**pool["labels"][0], "name": "large", "instance-type": "t3.large", "use-spot": True})
    workplace.launch([SectionProvider(section)])

    request = zuul.submit_and_wait(["large", "small"], tenant="tenant-one")
    assert request.state == "fulfilled"
    info = zuul.nodepool.getNodesetInfo(request, request.nodeset)
    assert (info.zone, info.provider, info.nodes) == ("here", "region-a", request.nodes)
    nodeset = zuul.accept(request)
    nodes = nodeset.getNodes()
    with region.cloud() as cloud:
        instances = {one.tags.value["nodepool_node_id"]: one for one in cloud.instances.instances.values()}
    for node, kind in zip(nodes, ("t3.large", "t3.small"), strict=True):
        instance = instances[node.id]
        assert instance.spec.type.name == kind
        assert node.interface_ip == node.public_ipv4 == instance.public_ipv4
        assert (node.cloud, node.region, node.az) == ("AWS", "us-east-1", "us-east-1b")
        assert (node.username, node.connection_type, node.connection_port) == ("admin", "ssh", sshd.port)
        assert set(node.host_keys) == set(sshd.host_keys)
        assert node.node_properties["spot"] == (kind == "t3.large")
    zuul.use(nodeset)
    zuul.give_back(nodeset)
    wait_for("all is gone", lambda: not workplace.znodes.nodes())
