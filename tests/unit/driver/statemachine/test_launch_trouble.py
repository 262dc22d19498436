# SPDX-License-Identifier: Apache-2.0
"""Launches when the node, the lock, ZooKeeper or the cloud is taken away (rules L)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.statemachine import StateMachine
from nodepool.exceptions import CloudUnavailableException, LaunchHeldException, ZKConflict, ZKConnectionError
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.plan.backoff import Backoff
from nodepool.plan.circuit_breaker import TRIP_FAILURES
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.support.machine_driver import CreateMachine
from tests.support.wait import wait_for
from tests.unit.driver.statemachine.conftest import MakeSite


def test_node_is_taken_away(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """A launch whose node vanished deletes what it made; the request gets another node."""
    site = make_site({"hang": True})
    handler = site.worker.accept(site.worker.submit("small"))
    wait_for("the instance is known", lambda: [node for node in zk.nodeIterator() if node.external_id])
    (node,) = zk.nodeIterator()
    zk.deleteRawNode(node.key)
    site.cloud.set(hang=False)
    wait_for("the launch ended", handler.launchesComplete)
    wait_for("its instance is gone", lambda: not site.cloud.instances())


@pytest.mark.parametrize("answer", [True, False], ids=["known", "unknown"])
def test_node_that_is_ready_without_our_knowledge(
    make_site: MakeSite, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch, answer: bool
) -> None:
    """Its instance stays: somebody else may have freed it already, and hand it out. Also if nobody knows."""
    site = make_site()

    def lost(node: Node) -> None:
        plain(node)
        if node.state == states.READY:
            raise ZKConflict("somebody has changed it since")

    def away(node_id: str) -> Node | None:
        raise ZKConnectionError("no answer")

    plain = zk.storeNode
    monkeypatch.setattr(zk, "storeNode", lost)
    if not answer:
        monkeypatch.setattr(zk, "getNode", away)
    handler = site.worker.accept(site.worker.submit("small"))
    wait_for("the launch ended", handler.launchesComplete)
    assert [node.state for node in handler.nodeset] == [states.ABORTED]
    wait_for("nothing is left to be done", lambda: len(site.provider.scheduler) == 0)
    assert site.adapter.calls["delete"] == 0
    assert len(site.cloud.instances()) == 1


def test_cloud_that_rests_aborts(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """F-5: launches of a cloud that went away are aborted, the request is given back, not declined."""
    monkeypatch.setattr("nodepool.plan.circuit_breaker.TRIP_SECONDS", 0.0)
    site = make_site({"launch-retries": 1})
    wait_for("limits are known", site.provider.estimatedNodepoolQuota)
    site.cloud.set(down=True)
    request = site.worker.submit("small")
    handler = site.worker.accept(request)
    wait_for("the launch ended", handler.launchesComplete)
    assert site.provider.calls.circuit_open
    assert "circuit breaker is open" in (site.provider.pausedReason() or "")
    assert [node.state for node in handler.nodeset] == [states.ABORTED]
    handler.poll()
    handler.run()
    stored = site.zk.getNodeRequest(request.key)
    assert stored is not None
    assert (stored.state, stored.declined_by) == (states.REQUESTED, [])
    site.cloud.set(down=False)
    wait_for("the rest ends", lambda: site.provider.pausedReason() is None)
    site.serve("small")


def test_one_probe_at_a_time(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cloud that comes and goes: the circuit breaker has a new probe each time it opens, and the one before ends."""
    monkeypatch.setattr("nodepool.plan.circuit_breaker.TRIP_SECONDS", 0.0)
    site = make_site()
    site.cloud.set(down=True)
    for _ in range(3):
        site.provider.calls.worked()
        for _ in range(TRIP_FAILURES):
            site.provider.calls.failed(CloudUnavailableException("down"))
        assert site.provider.calls.circuit_open
    wait_for("one is left", lambda: len(site.provider.scheduler) == 1)
    assert site.provider.calls.circuit_open
    site.cloud.set(down=False)
    wait_for("it ends with the rest", lambda: not site.provider.calls.circuit_open and not len(site.provider.scheduler))


def test_driver_that_exits_in_between(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """sys.exit() where the machine is made: the launch fails, and its thread goes on."""
    site = make_site({"launch-retries": 1})

    def leave(*_: Any) -> None:
        raise SystemExit(3)

    monkeypatch.setattr(site.adapter, "getCreateStateMachine", leave)
    site.fail("small")


def test_one_error_is_no_outage(make_site: MakeSite) -> None:
    """L-6: the cloud is there, but refuses this launch each time: the request is declined."""
    site = make_site({"launch-retries": 2})

    def refuse(machine: StateMachine) -> None:
        if isinstance(machine, CreateMachine):
            raise CloudUnavailableException("500")

    site.adapter.hooks.append(refuse)
    site.fail("small")
    assert not site.provider.calls.circuit_open


def test_cut_off_from_zookeeper(make_site: MakeSite, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is made as long as it is not certain that the node is still ours."""
    monkeypatch.setattr("nodepool.plan.launch_attempt.PACE", Backoff(0.01, 0.01))
    site = make_site()
    asked: list[int] = []

    def unsure(_node: Node) -> bool:
        asked.append(len(site.cloud.instances()))
        return len(asked) > 3

    monkeypatch.setattr(zk, "surelyLocked", unsure)
    site.serve("small")
    assert asked[:4] == [0, 0, 0, 0]


def test_lost_lock_before_the_creation(
    make_site: MakeSite, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node is somebody else's: no instance, and the request gets another node."""
    site = make_site()
    locks = iter([False])

    def lost(node: Node) -> bool:
        for _ in locks:
            raise ZKConflict(f"the lock of node {node.id} is lost")
        return True

    monkeypatch.setattr(zk, "surelyLocked", lost)
    (node,) = site.serve("small")
    assert [instance.metadata["nodepool_node_id"] for instance in site.cloud.instances()] == [node.id]


def test_machines_may_ask(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """A machine learns whether what it makes is still wanted."""
    site = make_site()
    answers: list[bool] = []

    def look(machine: StateMachine) -> None:
        answers.append(machine.wanted())
        (node,) = zk.nodeIterator()
        running = site.provider.launch_of(node.key)
        assert running is not None
        lock, running.node.lock = running.node.lock, None
        answers.append(machine.wanted())
        running.node.lock = lock
        site.adapter.hooks.clear()

    site.adapter.hooks.append(look)
    site.serve("small")
    assert answers == [True, False]


def test_machines_of_a_launcher_that_ends_are_not_wanted(make_site: MakeSite) -> None:
    """G-14: the request was handed over, somebody else makes its instance."""
    site = make_site({"hang": True})
    handler = site.worker.accept(site.worker.submit("small"))
    machines: list[StateMachine] = []
    site.adapter.hooks.append(machines.append)
    wait_for("it is launched", lambda: machines)
    assert machines[0].wanted()
    handler.hand_over()
    assert not machines[0].wanted()


def test_machines_of_earlier_attempts_are_not_wanted(make_site: MakeSite) -> None:
    """L-4: a creation of a given up attempt that gets its turn late would make a second instance of the node."""
    site = make_site({"hang": True, "launch-timeout": 0.3, "launch-retries": 2})
    machines: list[StateMachine] = []
    answers: list[list[bool]] = []

    def look(machine: StateMachine) -> None:
        if isinstance(machine, CreateMachine) and machine not in machines:
            machines.append(machine)
            answers.append([each.wanted() for each in machines])

    site.adapter.hooks.append(look)
    site.fail("small")
    assert answers == [[True], [False, True]]
    assert [machine.wanted() for machine in machines] == [False, False]


def test_what_is_out_of_service_is_no_failure(
    make_site: MakeSite, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T-13: the launch is aborted at its first attempt, is not counted, and the request waits."""
    site = make_site({"launch-retries": 3})
    held = LaunchHeldException("what it waits for is paused")

    def advance(machine: CreateMachine) -> None:
        raise held

    with monkeypatch.context() as patch:
        patch.setattr(CreateMachine, "advance", advance)
        handler = site.worker.accept(site.worker.submit("small"))
        wait_for("the launch ended", handler.launchesComplete)
    assert [node.state for node in handler.nodeset] == [states.ABORTED]
    assert site.worker.launch_errors == {}
    assert site.provider.pausedReason() is None
    assert handler.hasRemainingQuota("small"), "no limit was learned"
    handler.poll()
    assert handler.paused
