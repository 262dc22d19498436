# SPDX-License-Identifier: Apache-2.0
"""A provider that is paused while a launcher of the released package serves it, too (MT-2, MT-4)."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from benchmarks.support.simulated_cloud import LABEL, OpenStackProvider
from simulators.openstack import SimulatorClient
from tests.support.command_line import CommandLine
from tests.support.launcher import OUR_COMMAND, LauncherProcess
from tests.support.launcher_config import MetastaticProvider, Provider
from tests.support.pool_znodes import PoolZnodes
from tests.support.released import released_programs
from tests.support.wait import wait_for
from tests.support.workplace import Workplace

CLOUD = OpenStackProvider()
SLOTS = MetastaticProvider(["slot"], LABEL, rules={"max-parallel-jobs": 1, "grace-time": 0})
#: The released launcher is slow where many programs run.
WAIT_SECONDS = 240
SESSION_SECONDS = 40.0


class Pair:
    """A released launcher, and one of ours beside it."""

    def __init__(self, workplace: Workplace, released: list[Provider], ours: list[Provider]) -> None:
        self.znodes = workplace.znodes
        self.released, self.released_pools = self._launch(workplace, released, [str(released_programs().launcher)])
        # Where it sees a server before its address, it logs a traceback and tries the launch again.
        self.released.expected_tracebacks = True
        self.ours, self.our_pools = self._launch(workplace, ours, list(OUR_COMMAND))
        self.command = CommandLine(self.ours.config_path)

    def _launch(
        self, workplace: Workplace, providers: list[Provider], command: list[str]
    ) -> tuple[LauncherProcess, set[str]]:
        before = {pool["id"] for pool in self.znodes.pools()}
        launcher = workplace.launch(providers, command=command, wait=False, session_seconds=SESSION_SECONDS)
        workplace.wait_registered(launcher, len(before) + len(providers))
        return launcher, {pool["id"] for pool in self.znodes.pools()} - before

    def run(self, *arguments: str) -> str:
        done = self.command(*arguments)
        assert done.status == 0, done.err
        return done.out

    def paused(self) -> set[str]:
        """Ids of the pools that say so."""
        return {pool["id"] for pool in self.znodes.pools() if pool["paused"]}

    def entries_of_released(self) -> list[dict[str, Any]]:
        """What the released launcher tells of its pools."""
        return [pool for pool in self.znodes.pools() if pool["id"] in self.released_pools]

    def serve(self, label: str, count: int) -> list[dict[str, Any]]:
        """The nodes of new requests; none may fail."""
        requests = [self.znodes.submit([label]) for _ in range(count)]
        return [self.znodes.served(request_id, WAIT_SECONDS)[0] for request_id in requests]


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("cloud")
def test_pause_of_a_provider_that_both_have(workplace: Workplace, znodes: PoolZnodes) -> None:
    """MT-2, MT-4: ours takes nothing, the released one goes on; without it requests wait, and none fails."""
    pair = Pair(workplace, [CLOUD], [CLOUD])
    before = pair.entries_of_released()
    assert len(before) == 1
    pair.run("pause", "provider", CLOUD.name, "--reason", "network")
    wait_for("ours says that it is paused", lambda: pair.paused() == pair.our_pools)
    nodes = pair.serve(LABEL, 6)
    assert {node["launcher"] for node in nodes} == pair.released_pools
    wait_for("it tells the same as before", lambda: pair.entries_of_released() == before)
    # It ends as always, and what nobody else can serve waits.
    assert pair.released.stop(signal.SIGINT, seconds=180) == 0
    waiting = znodes.submit([LABEL])
    wait_for("ours says why it waits", lambda: "provider.paused" in pair.run("explain", waiting), WAIT_SECONDS)
    assert znodes.request_state(waiting) == "requested"
    pair.run("resume", "provider", CLOUD.name)
    (node,) = znodes.served(waiting, WAIT_SECONDS)
    assert node["launcher"] in pair.our_pools


@pytest.mark.timeout(900)
def test_backing_nodes_of_a_released_launcher(workplace: Workplace, znodes: PoolZnodes, cloud: SimulatorClient) -> None:
    """T-13: it does not know that its provider is paused: our metastatic provider gets backing nodes as always."""
    pair = Pair(workplace, [CLOUD], [SLOTS])
    pair.run("pause", "provider", CLOUD.name)
    (first,) = pair.serve("slot", 1)
    assert first["launcher"] in pair.our_pools
    assert [server["metadata"]["nodepool_provider_name"] for server in cloud.servers()] == [CLOUD.name]
    backing = znodes.node(first["driver_data"]["backing_node"])
    assert (backing or {})["launcher"] in pair.released_pools
    assert not pair.paused()
