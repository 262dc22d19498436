# SPDX-License-Identifier: Apache-2.0
"""The backing nodes of a metastatic provider go on when its launcher is replaced, and replaced back."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from benchmarks.support.simulated_cloud import LABEL, OpenStackProvider
from simulators.openstack import SimulatorClient
from tests.support.launcher import OUR_COMMAND
from tests.support.launcher_config import MetastaticProvider
from tests.support.pool_znodes import PoolZnodes
from tests.support.released import released_programs
from tests.support.workplace import Workplace

PROVIDERS = (
    OpenStackProvider(),
    MetastaticProvider(
        ["slot"],
        LABEL,
        rules={"max-parallel-jobs": 3, "grace-time": 600},
        pool_settings={"host-key-checking": False},
    ),
)
POOLS = len(PROVIDERS)


@pytest.mark.timeout(300)
def test_backing_node_is_used_by_both(workplace: Workplace, znodes: PoolZnodes, cloud: SimulatorClient) -> None:
    """5.6, T-6: each launcher finds the backing node that the one before has made, and gives out its free slots."""
    released = [str(released_programs().launcher)]
    places = []
    for command in (released, list(OUR_COMMAND), released):
        launcher = workplace.launch(PROVIDERS, command=command, wait=False)
        workplace.wait_registered(launcher, POOLS)
        request_id = znodes.submit(["slot"])
        (node,) = znodes.served(request_id, 90)
        data = _object(node["driver_data"])
        places.append((data["backing_node"], node["slot"]))
        assert launcher.stop(signal.SIGINT, seconds=60) == 0
    (backing,) = {backing for backing, _ in places}
    assert sorted(slot for _, slot in places) == [0, 1, 2]
    assert [server["metadata"]["nodepool_node_id"] for server in cloud.servers()] == [backing]


def _object(value: Any) -> dict[str, Any]:
    """What a driver has stored, which may be text."""
    found = json.loads(value) if isinstance(value, str) else value
    assert isinstance(found, dict)
    return found
