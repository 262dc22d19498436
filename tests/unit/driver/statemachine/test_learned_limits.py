# SPDX-License-Identifier: Apache-2.0
"""A cloud that refuses what is over a quota of which it does not tell (rule L-7)."""

from __future__ import annotations

import pytest

from nodepool.driver.statemachine import StateMachine
from nodepool.driver.statemachine.learned_limits import LearnedLimits
from nodepool.exceptions import QuotaException
from nodepool.model import states
from nodepool.plan import learned_limit
from nodepool.plan.backoff import Backoff
from tests.support.machine_driver import CreateMachine
from tests.support.wait import DEADLINE_SECONDS, wait_for
from tests.unit.driver.statemachine.conftest import MakeSite


class Provider:
    """Nodes by id, and a clock."""

    def __init__(self) -> None:
        self.nodes: set[str] = set()
        self.now = 0.0
        self.learned_limits = LearnedLimits(lambda: len(self.nodes), self.nodes.__contains__, lambda: self.now)

    def launch(self, node_id: str) -> None:
        self.nodes.add(node_id)
        self.learned_limits.begun("main", "small", node_id)

    def allows(self, label: str = "small") -> bool:
        return self.learned_limits.allows("main", label)


@pytest.fixture
def full() -> Provider:
    """The cloud has two nodes and refused a third."""
    provider = Provider()
    for node_id in "abc":
        provider.launch(node_id)
    provider.learned_limits.refused("main", "small", "c", "quota exceeded")
    provider.nodes.discard("c")
    return provider


def test_full_until_a_node_goes(full: Provider) -> None:
    assert not full.allows()
    full.nodes.discard("a")
    assert full.allows()


def test_what_is_known(full: Provider) -> None:
    """L-7: with how many nodes it was full, and how many there are."""
    full.nodes.discard("a")
    assert full.learned_limits.known("main", "small") == (2, 1, "quota exceeded")
    assert full.learned_limits.known("main", "tiny") is None


def test_other_labels_are_not_concerned(full: Provider) -> None:
    """They may need less of whatever is used up."""
    assert full.allows("tiny")


def test_refused_nodes_do_not_count(full: Provider) -> None:
    """Several were under way at once, and none of them has been removed when the last one is refused."""
    provider = Provider()
    for node_id in "abcde":
        provider.launch(node_id)
    for node_id in "cde":
        provider.learned_limits.refused("main", "small", node_id, "quota exceeded")
    provider.nodes -= set("cde")
    assert not provider.allows()
    provider.nodes.discard("a")
    assert provider.allows()


def test_probe_that_works_ends_it(full: Provider) -> None:
    full.now = learned_limit.PROBE.first_seconds
    assert full.allows()
    full.launch("d")
    full.learned_limits.ended("main", "small", "d", ready=True)
    assert full.allows()


def test_probe_that_fails_does_not(full: Provider) -> None:
    full.now = learned_limit.PROBE.first_seconds
    assert full.allows()
    full.launch("d")
    full.learned_limits.ended("main", "small", "d", ready=False)
    full.nodes.discard("d")
    assert not full.allows()


def test_replacement_proves_nothing(full: Provider) -> None:
    full.nodes.discard("a")
    full.launch("d")
    full.learned_limits.ended("main", "small", "d", ready=True)
    assert not full.allows()


def test_request_waits_for_a_node_to_go_and_no_longer(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """L-7: the pool pauses, the cloud is not asked again and again, and the next deletion lets the request go on."""
    monkeypatch.setattr(learned_limit, "PROBE", Backoff(3600.0, 3600.0))
    site = make_site()
    refusals: list[StateMachine] = []

    def room_for_one(machine: StateMachine) -> None:
        if isinstance(machine, CreateMachine) and machine.state == machine.START and site.cloud.instances():
            refusals.append(machine)
            raise QuotaException("Maximum number of ports exceeded")

    site.adapter.hooks.append(room_for_one)
    (node,) = site.serve("small")
    handler = site.worker.accept(site.worker.submit("small"))
    wait_for("the launch is refused", lambda: handler.poll() or handler.paused)
    for _ in range(20):
        handler.run()
    assert handler.unfinished
    assert len(refusals) == 1
    site.delete(node)
    handler.run()
    site.worker.drive(handler, DEADLINE_SECONDS)
    assert handler.request.state == states.FULFILLED
    assert len(refusals) == 1
