# SPDX-License-Identifier: Apache-2.0
"""Rules of the framework on every cloud: machines that are gone although nobody deleted them, and those of others."""

from __future__ import annotations

from nodepool.driver.interface import Provider
from nodepool.driver.statemachine import StateMachineProvider
from nodepool.driver.statemachine.leaks import LostInstances
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.testing.harness import DriverHarness
from nodepool.testing.memory_zk import MemoryZooKeeper
from nodepool.testing.pool_worker import PoolWorkerStandIn


class LostMachineContract(DriverHarness):
    """To be mixed into the contract of a driver."""

    def test_lost_machines(self, provider: Provider, worker: PoolWorkerStandIn) -> None:
        """An idle node is not handed out once a list lacks its machine; it is deleted when a second list lacks it, and
        the cloud says that there is none. One that is in use is only told of.
        """
        assert isinstance(provider, StateMachineProvider)
        # What the clouds' lists lag behind is not waited for.
        provider.lost = LostInstances(provider, provider.log, lag_seconds=0.0)
        zk = worker.getZK()
        used, idle = self.get_node(worker, provider), self.get_ready_node(worker, provider)
        idle.allocated_to = None
        zk.storeNode(idle)
        for node in (used, idle):
            provider.cleanupNode(node.external_id)
            provider.waitForNodeCleanup(node.external_id)

        provider.cleanupLeakedResources()
        _, (other,) = worker.serve(self.label, timeout=self.node_seconds)
        assert other.key != idle.key, "a node was handed out that has no machine"

        def state_of(node: Node) -> str:
            provider.cleanupLeakedResources()
            found = zk.getNode(node.key)
            return "" if found is None else str(found.state)

        self.wait_until("the idle node is deleted", lambda: state_of(idle) == states.DELETING)
        assert state_of(used) == states.IN_USE
        assert state_of(other) == states.READY
        told = provider.lostInstances()
        assert {lost.node_id: bool(lost.code and lost.text) for lost in told} == {used.key: True, idle.key: True}
        assert len(told) == 2
        for node in (used, other):
            self.release(worker, provider, node)
        deleted = zk.getNode(idle.key)
        assert deleted is not None
        zk.nodes.lock_and_save(deleted)
        self.bounded("the deletion of the idle node", provider.startNodeCleanup(deleted).join, self.node_seconds)

    def is_clean(self) -> bool:
        """Has the sweep deleted what machines leave behind, such as addresses? Override it where it may come later."""
        return True

    def test_other_installation(self, provider: Provider, worker: PoolWorkerStandIn, zk: MemoryZooKeeper) -> None:
        """D-10: what bears the id of another installation stays, until that is adopted."""
        ours, other = "0123456789abcdef", "fedcba9876543210"

        def sweep(*ids: str) -> None:
            zk.installation = ids
            provider.cleanupLeakedResources()

        def found() -> list[str]:
            return [machine.external_id for machine in provider.listNodes() if not machine.deleted]

        sweep(other)
        node = self.get_node(worker, provider)
        zk.deleteRawNode(node.key)
        for _ in range(3):
            sweep(ours)
        assert found() == [node.external_id]

        def gone() -> bool:
            sweep(ours, other)
            return not found() and self.is_clean()

        self.wait_until("what was adopted is deleted", gone)
