# SPDX-License-Identifier: Apache-2.0
"""A launcher of the released package beside one of ours, both with ``tenant-shares`` and ``mixed-nodesets``."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any, Final

import pytest

from benchmarks.support.simulated_cloud import OpenStackProvider
from simulators.openstack import SimulatorClient
from tests.support.launcher import OUR_COMMAND
from tests.support.launcher_config import write_config
from tests.support.pool_znodes import PoolZnodes
from tests.support.released import released_programs
from tests.support.wait import wait_for
from tests.support.workplace import Workplace

#: The released launcher is slow where many programs run.
WAIT_SECONDS = 240
SMALL, BOARD = OpenStackProvider(max_servers=4), OpenStackProvider(name="cloud-two", label="board")
SETTINGS: Final[Mapping[str, Any]] = {
    "labels": {SMALL.label: {}, BOARD.label: {"mixed-nodesets": True}},
    "extra": {"tenant-shares": [{"tenant-name": "rare"}]},
    "session_seconds": 10.0,
}
FLOOD = 24


@pytest.mark.timeout(900)
def test_shares_and_parts_beside_a_released_launcher(
    workplace: Workplace, znodes: PoolZnodes, cloud: SimulatorClient
) -> None:
    """MN-2, MN-4, FS-1: it serves a part as every request, also while ours is killed. It serves by age, ours gives the
    other tenant more; nothing is lost.
    """
    released = workplace.launch([SMALL], command=[str(released_programs().launcher)], wait=False, **SETTINGS)
    # Where it sees a server before its address, it logs a traceback and tries the launch again.
    released.expected_tracebacks = True
    workplace.wait_registered(released, 1)
    its_pools = {pool["id"] for pool in znodes.pools()}
    ours = workplace.launch([BOARD], command=list(OUR_COMMAND), wait=False, **SETTINGS)
    workplace.wait_registered(ours, 2)

    wholes = [znodes.submit(["board", "small"]) for _ in range(4)]
    for request_id in wholes:
        board, small = znodes.served(request_id, WAIT_SECONDS)
        assert (board["type"], small["type"], small["launcher"] in its_pools) == (["board"], ["small"], True)
        znodes.use_and_return(request_id)
        if request_id == wholes[0]:
            ours.kill()
            ours = workplace.launch([BOARD], command=list(OUR_COMMAND), wait=False, **SETTINGS)

    write_config(ours.config_path, workplace.zookeeper, workplace.chroot, [SMALL, BOARD], **SETTINGS)
    workplace.wait_registered(ours, 3)
    waiting = {znodes.submit(["small"], tenant_name=tenant): tenant for tenant in ["flood"] * FLOOD + ["rare"] * FLOOD}
    served: list[str] = []

    def serve() -> bool:
        for request_id in list(waiting):
            if znodes.request_state(request_id) == "fulfilled":
                served.append(waiting.pop(request_id))
                znodes.use_and_return(request_id)
        return not waiting

    wait_for("all are served", serve, WAIT_SECONDS)
    # By age alone none would be among them.
    assert served[:FLOOD].count("rare") > FLOOD / 6, served
    wait_for("no node is left", lambda: not znodes.nodes(), WAIT_SECONDS)
    wait_for("no server is left", lambda: not cloud.servers(), WAIT_SECONDS)
    assert not znodes.children("/nodepool/requests")
    assert released.stop(signal.SIGINT, seconds=180) == 0
