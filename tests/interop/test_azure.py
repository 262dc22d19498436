# SPDX-License-Identifier: Apache-2.0
"""The Zuul client uses nodes of the simulated Azure subscription: what it reads of them, and that they go after use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from simulators.azure import AzureSimulator
from tests.support.azure_place import azure_section
from tests.support.section_provider import SectionProvider
from tests.support.sshd import SshServer
from tests.support.wait import wait_for
from tests.support.workplace import Workplace

if TYPE_CHECKING:
    from tests.support.zuul_client import ZuulClient


@pytest.fixture
def subscription() -> Iterator[AzureSimulator]:
    """Lists lag, ids change case, and the answer of a PUT gets lost; in the end nothing may be left."""
    with AzureSimulator() as simulator:
        lost = {"operation": "virtualMachines.put", "kind": "drop", "after": True, "count": 1}
        simulator.change(errors=[lost], hidden_rate=0.5, hidden_seconds=[0.2, 0.5])
        yield simulator
        state = simulator.state()
        assert (state["double_nodes"], state["bugs"]) == ([], [])
        kinds = ("vms", "nics", "addresses", "disks")
        assert {kind: state["contents"][kind] for kind in kinds} == dict.fromkeys(kinds, 0)


def test_nodes_of_a_job(
    workplace: Workplace, zuul: ZuulClient, sshd: SshServer, subscription: AzureSimulator, tmp_path: Path
) -> None:
    """S-2, N-8, 5.3; AZ-8: addresses, login, host keys, cloud, region and zone, for a nodeset of two labels."""
    section = azure_section(subscription.write_auth_file(tmp_path / "azure.json"), sshd.port)
    pool = section["pools"][0]
    pool["node-attributes"] = {"executor-zone": "here"}
    pool["availability-zones"] = ["2"]
    large = {"name": "large", "hardware-profile": {"vm-size": "Standard_D2s_v5"}, "use-spot": True}
    pool["labels"].append({**pool["labels"][0], **large})
    workplace.launch([SectionProvider(section)])

    request = zuul.submit_and_wait(["large", "small"], tenant="tenant-one")
    assert request.state == "fulfilled"
    info = zuul.nodepool.getNodesetInfo(request, request.nodeset)
    assert (info.zone, info.provider, info.nodes) == ("here", "azure-a", request.nodes)
    nodeset = zuul.accept(request)
    with subscription.cloud() as cloud:
        vms = {vm.tags["nodepool_node_id"]: vm for vm in cloud.resources.of("virtualMachines")}
    for node, size in zip(nodeset.getNodes(), ("Standard_D2s_v5", "Standard_B1s"), strict=True):
        vm = vms[node.id]
        assert vm.properties["hardwareProfile"]["vmSize"] == size
        assert node.interface_ip == node.public_ipv4 != node.private_ipv4
        assert (node.cloud, node.region, node.az) == ("Azure", "northeurope", "2")
        assert (node.username, node.connection_type, node.connection_port) == ("zuul", "ssh", sshd.port)
        assert set(node.host_keys) == set(sshd.host_keys)
        assert node.resources["cores"] == (2 if size == "Standard_D2s_v5" else 1)
    zuul.use(nodeset)
    zuul.give_back(nodeset)
    wait_for("all is gone", lambda: not workplace.znodes.nodes())
