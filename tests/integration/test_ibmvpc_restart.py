# SPDX-License-Identifier: Apache-2.0
"""A launcher is killed while IBM has done what it asked for and no answer came; another one takes over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodepool.testing.ibmvpc import IbmVpcSimulator
from tests.support.ibmvpc_place import ibmvpc_section
from tests.support.pool_znodes import PoolZnodes
from tests.support.section_provider import SectionProvider
from tests.support.sshd import SshServer
from tests.support.wait import wait_for
from tests.support.workplace import Workplace

NODES = 5
#: A launcher that was killed holds its locks for that long.
SESSION_SECONDS = 4.0


@pytest.fixture
def region() -> Iterator[IbmVpcSimulator]:
    with IbmVpcSimulator() as simulator:
        yield simulator
        assert (simulator.state()["double_nodes"], simulator.state()["bugs"]) == ([], [])


@pytest.mark.parametrize("operation", ["create_instance", "create_floating_ip", "delete_instance"])
def test_killed_before_the_answer(
    region: IbmVpcSimulator,
    sshd: SshServer,
    workplace: Workplace,
    znodes: PoolZnodes,
    tmp_path: Path,
    operation: str,
) -> None:
    """F-1, IV-3, IV-13: each node has one instance in the end, and no instance, volume or floating IP is lost."""
    section = ibmvpc_section(region.write_credentials(tmp_path / "ibm.env"), sshd.port)
    section["pools"][0] |= {"max-servers": NODES + 2, "floating-ip-pool": 0}

    def launch() -> None:
        # What the killed one left is not yet in order when the other one begins.
        first = not workplace.launchers
        workplace.launch([SectionProvider(section)], session_seconds=SESSION_SECONDS, wait=first)

    region.change(errors=[{"operation": f"vpc.{operation}", "kind": "hang", "after": True}])
    launch()
    requests = [znodes.submit(["small"]) for _ in range(NODES)]
    if operation == "delete_instance":
        _give_back(znodes, requests)
    wait_for("the call was made", lambda: region.state()["calls"].get(f"vpc.{operation}", 0) >= 2)
    workplace.launchers[0].kill()
    region.change(errors=[], hidden_rate=0.5, ghost_rate=0.5)
    launch()
    if operation != "delete_instance":
        _give_back(znodes, requests)

    def empty() -> bool:
        contents = region.state()["contents"]
        assert not any(contents.values()), contents
        assert znodes.nodes() == {}
        return True

    wait_for("nothing is left", empty, 90)
    assert region.state()["peak_by_provider"]["ibm-a"] <= NODES + 2


def _give_back(znodes: PoolZnodes, requests: list[str]) -> None:
    """Waits until all are served, with an instance each, and gives them back."""

    def served() -> bool:
        states = [znodes.request_state(request) for request in requests]
        assert states.count("fulfilled") == len(requests), states
        return True

    wait_for("all are served", served, 90)
    nodes = [node for request in requests for node in (znodes.request(request) or {})["nodes"]]
    assert len({(znodes.node(node) or {})["external_id"] for node in nodes}) == NODES
    for request, node in zip(requests, nodes, strict=True):
        znodes.change_node(node, state="used")
        znodes.delete_request(request)
