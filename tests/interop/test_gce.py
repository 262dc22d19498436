# SPDX-License-Identifier: Apache-2.0
"""The Zuul client uses nodes of the simulated Google project: what it reads of them, and that they go in the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from simulators.gce import GceSimulator
from tests.support.gce_place import gce_section
from tests.support.section_provider import SectionProvider
from tests.support.sshd import SshServer
from tests.support.wait import wait_for
from tests.support.workplace import Workplace

if TYPE_CHECKING:
    from tests.support.zuul_client import ZuulClient


@pytest.fixture
def project() -> Iterator[GceSimulator]:
    """Lists lag, and an answer of an insert gets lost; in the end nothing may be left."""
    with GceSimulator() as simulator:
        lost = {"operation": "instances.insert", "kind": "drop", "after": True, "count": 1}
        simulator.change(errors=[lost], hidden_rate=0.5, hidden_seconds=[0.2, 0.5])
        yield simulator
        state = simulator.state()
        assert (state["double_nodes"], state["bugs"]) == ([], [])
        assert (state["contents"]["instances"], state["contents"]["disks"]) == (0, 0)


def test_nodes_of_a_job(
    workplace: Workplace, zuul: ZuulClient, sshd: SshServer, project: GceSimulator, tmp_path: Path
) -> None:
    """S-2, N-8, 5.3; GC-6: addresses, login, host keys, cloud and zone, for a nodeset of two labels."""
    section = gce_section(project.write_key_file(tmp_path / "key.json"), project.url, sshd.port)
    section["zone"] = "us-central1-b"
    pool = section["pools"][0]
    pool["node-attributes"] = {"executor-zone": "here"}
    pool["labels"].append({**pool["labels"][0], "name": "large", "instance-type": "n2-standard-4", "use-spot": True})
    workplace.launch([SectionProvider(section)])

    request = zuul.submit_and_wait(["large", "small"], tenant="tenant-one")
    assert request.state == "fulfilled"
    info = zuul.nodepool.getNodesetInfo(request, request.nodeset)
    assert (info.zone, info.provider, info.nodes) == ("here", "gce-a", request.nodes)
    nodeset = zuul.accept(request)
    nodes = nodeset.getNodes()
    with project.cloud() as cloud:
        instances = {one.spec.metadata["nodepool_node_id"]: one for one in cloud.instances.all()}
    for node, kind in zip(nodes, ("n2-standard-4", "n1-standard-1"), strict=True):
        instance = instances[node.id]
        assert (instance.spec.type.name, instance.spec.spot) == (kind, kind == "n2-standard-4")
        (interface,) = instance.document["networkInterfaces"]
        assert node.interface_ip == node.public_ipv4 == interface["accessConfigs"][0]["natIP"]
        assert (node.cloud, node.region, node.az) == ("Google", "us-central1", "us-central1-b")
        assert (node.username, node.connection_type, node.connection_port) == ("zuul", "ssh", sshd.port)
        assert set(node.host_keys) == set(sshd.host_keys)
    zuul.use(nodeset)
    zuul.give_back(nodeset)
    wait_for("all is gone", lambda: not workplace.znodes.nodes())
