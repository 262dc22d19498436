# SPDX-License-Identifier: Apache-2.0
"""What ours made with the id of its installation is used and cleaned by the released launcher after a way back."""

from __future__ import annotations

import signal

import pytest

from benchmarks.support.simulated_cloud import LABEL, OpenStackProvider
from simulators.openstack import SimulatorClient
from tests.support.launcher import OUR_COMMAND
from tests.support.pool_znodes import PoolZnodes
from tests.support.released import released_programs
from tests.support.wait import wait_for
from tests.support.workplace import Workplace


@pytest.mark.timeout(600)
def test_way_back(workplace: Workplace, znodes: PoolZnodes, cloud: SimulatorClient) -> None:
    """D-10: a node that is ready serves a request and is deleted; a server whose node was lost is found as leaked."""
    providers = [OpenStackProvider()]
    ours = workplace.launch(providers, command=list(OUR_COMMAND), wait=False, labels={LABEL: {"min-ready": 2}})
    workplace.wait_registered(ours, 1)
    wait_for("two nodes are ready", lambda: len(znodes.free_nodes()) == 2, 90)
    owners = {server["metadata"].get("nodepool_installation_id") for server in cloud.servers()}
    assert owners == {znodes.installation_id()}
    assert ours.stop(signal.SIGINT, seconds=60) == 0
    lost, kept = sorted(znodes.free_nodes())
    znodes.vanish(lost)

    released = workplace.launch(providers, command=[str(released_programs().launcher)], wait=False)
    workplace.wait_registered(released, 1)
    request_id = znodes.submit([LABEL])
    assert [node["id"] for node in znodes.served(request_id, 90)] == [kept]
    znodes.use_and_return(request_id)
    wait_for("no server is left", lambda: not cloud.servers(), 300)
    assert released.stop(signal.SIGINT, seconds=60) == 0
