# SPDX-License-Identifier: Apache-2.0
"""Launches that a released launcher has begun, and that ours ends after its death (L-18, C-4)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from benchmarks.support.simulated_cloud import LABEL, OpenStackProvider
from simulators.openstack import SimulatorClient
from tests.support.launcher import OUR_COMMAND
from tests.support.pool_znodes import PoolZnodes
from tests.support.released import released_programs
from tests.support.sshd import SshServer
from tests.support.wait import wait_for
from tests.support.workplace import Workplace

#: A boot that the released launcher does not see the end of, in seconds.
LONG_SECONDS = 15.0


def _ordered(cloud: SimulatorClient, znodes: PoolZnodes, *, made: bool) -> str:
    """The creation is under way; its answer does not come."""
    cloud.change(errors=[{"operation": "compute.create_server", "kind": "hang", "after": made, "count": 1}])
    request_id = znodes.submit([LABEL])
    wait_for("the order has arrived", lambda: cloud.state()["calls"].get("compute.create_server"), 60)
    wait_for("it is carried out", lambda: len(cloud.servers()) == made, 60)
    return request_id


def _booting(cloud: SimulatorClient, znodes: PoolZnodes) -> str:
    """The server is there, and the node names it."""
    cloud.change(boot_seconds=[LONG_SECONDS, LONG_SECONDS])
    request_id = znodes.submit([LABEL])
    wait_for("the node names its server", partial(_names_server, znodes), 60)
    return request_id


def _scanned(cloud: SimulatorClient, znodes: PoolZnodes) -> str:
    """The server runs, and does not answer to the scan of its keys."""
    request_id = znodes.submit([LABEL])
    wait_for("the node names its server", partial(_names_server, znodes), 60)
    wait_for("it runs", lambda: {server["status"] for server in cloud.servers()} == {"ACTIVE"}, 60)
    return request_id


def _names_server(znodes: PoolZnodes) -> bool:
    return any(node.get("external_id") for node in znodes.nodes("building").values())


REACH: dict[str, Callable[[SimulatorClient, PoolZnodes], str]] = {
    "ordered": partial(_ordered, made=False),
    "made": partial(_ordered, made=True),
    "booting": _booting,
    "scanned": _scanned,
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("state", REACH)
def test_launch_of_a_released_launcher(
    workplace: Workplace, znodes: PoolZnodes, cloud: SimulatorClient, tmp_path: Path, state: str
) -> None:
    """The request is served with one server, which is the one that was there; nothing else is left."""
    keys = SshServer(tmp_path / "sshd")
    if state == "scanned":
        # The port stays the same.
        keys.start()
        keys.stop()
    provider = OpenStackProvider(ssh_port=keys.port or None)
    released = workplace.launch(
        [provider], command=[str(released_programs().launcher)], wait=False, session_seconds=5.0
    )
    # Where it sees a server before its address, it logs a traceback and tries the launch again.
    released.expected_tracebacks = True
    workplace.wait_registered(released, 1)
    request_id = REACH[state](cloud, znodes)
    released.kill()
    before = {server["id"] for server in cloud.servers()}
    assert bool(before) is (state != "ordered")
    cloud.change(errors=[])
    if state == "scanned":
        keys.start()

    ours = workplace.launch([provider], command=list(OUR_COMMAND), wait=False)
    workplace.wait_registered(ours, 1)
    (node,) = znodes.served(request_id, 120)
    wait_for("one server is there", lambda: len(cloud.servers()) == 1, 120)
    (server,) = cloud.servers()
    assert not before or server["id"] in before, "another server was made"
    assert server["metadata"]["nodepool_node_id"] == node["id"]
    znodes.use_and_return(request_id)
    wait_for("nothing is left", lambda: not cloud.servers() and not znodes.nodes(), 120)
    keys.stop()
