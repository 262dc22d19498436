# SPDX-License-Identifier: Apache-2.0
"""The Zuul client uses nodes of the simulated IBM VPC region: what it reads of them, and that they go after use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from simulators.ibmvpc import IbmVpcSimulator
from tests.support.ibmvpc_place import ibmvpc_section
from tests.support.section_provider import SectionProvider
from tests.support.sshd import SshServer
from tests.support.wait import wait_for
from tests.support.workplace import Workplace

if TYPE_CHECKING:
    from tests.support.zuul_client import ZuulClient


@pytest.fixture
def region() -> Iterator[IbmVpcSimulator]:
    """Lists lag, and answers of creations get lost; in the end no instance or volume may be left."""
    with IbmVpcSimulator() as simulator:
        lost = {"operation": "vpc.create_*", "kind": "drop", "after": True, "count": 2}
        simulator.change(errors=[lost], hidden_rate=0.5, hidden_seconds=[0.2, 0.5])
        yield simulator
        state = simulator.state()
        assert (state["double_nodes"], state["bugs"]) == ([], [])
        assert (state["contents"]["instances"], state["contents"]["volumes"]) == (0, 0)


def test_nodes_of_a_job(
    workplace: Workplace, zuul: ZuulClient, sshd: SshServer, region: IbmVpcSimulator, tmp_path: Path
) -> None:
    """S-2, N-8, 5.3; IV-6, IV-7: addresses, login, host keys, cloud, region, zone and need, for a nodeset of two."""
    section = ibmvpc_section(region.write_credentials(tmp_path / "ibm.env"), sshd.port)
    pool = section["pools"][0]
    pool["node-attributes"] = {"executor-zone": "here"}
    pool |= {"zone": "us-south-2", "subnet": "ci-us-south-2"}
    pool["labels"].append({**pool["labels"][0], "name": "large", "profile": "bxf-4x16", "use-spot": True})
    workplace.launch([SectionProvider(section)])

    request = zuul.submit_and_wait(["large", "small"], tenant="tenant-one")
    assert request.state == "fulfilled"
    info = zuul.nodepool.getNodesetInfo(request, request.nodeset)
    assert (info.zone, info.provider, info.nodes) == ("here", "ibm-a", request.nodes)
    nodeset = zuul.accept(request)
    with region.cloud() as cloud:
        instances = {instance.name: instance for instance in cloud.resources.of("instances")}
        addresses = {found.name: found.document["address"] for found in cloud.resources.of("floating_ips")}
    for node, profile in zip(nodeset.getNodes(), ("bxf-4x16", "cx2-2x4"), strict=True):
        instance = instances[f"np{node.id}"].document
        assert instance["profile"]["name"] == profile
        assert instance["availability"]["class"] == ("spot" if profile == "bxf-4x16" else "standard")
        assert node.interface_ip == node.public_ipv4 == addresses[f"np{node.id}"]
        assert node.private_ipv4 == instance["primary_network_interface"]["primary_ip"]["address"]
        assert (node.cloud, node.region, node.az) == ("IBM", "us-south", "us-south-2")
        assert (node.username, node.connection_type, node.connection_port) == ("root", "ssh", sshd.port)
        assert set(node.host_keys) == set(sshd.host_keys)
        assert node.resources["cores"] == (4 if profile == "bxf-4x16" else 2)
    zuul.use(nodeset)
    zuul.give_back(nodeset)
    wait_for("all is gone", lambda: not workplace.znodes.nodes())
