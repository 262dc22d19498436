# SPDX-License-Identifier: Apache-2.0
"""For how long a request waits that was given back for another one (rules Q-10, Q-12)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nodepool.model import states
from nodepool.model.request import NodeRequest
from nodepool.plan import nodes
from tests.support.scripted_driver import ScriptedHandler, Stage


class Standoff:
    """A request of the stage that was given back for ``first``, which holds a ready node, too, and waits."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.first: NodeRequest = stage.submit("big", "big")
        stage.add_ready("big", allocated_to=self.first.id)
        self.first.state = states.PENDING
        stage.zk.requests.lock_and_save(self.first)
        self.ready = stage.add_ready("small")
        stage.provider.room = 0
        self.handler: ScriptedHandler = stage.begin("small", "small")
        assert self.handler.done
        stage.ready_nodes.put(self.ready)

    def room(self) -> None:
        self.stage.provider.room = 1

    def served(self) -> None:
        self.first.state = states.FULFILLED
        self.stage.zk.storeNodeRequest(self.first)

    def given_back(self) -> None:
        self.first.state = states.REQUESTED
        self.stage.zk.requests.finish(self.first)

    def cancelled(self) -> None:
        self.stage.zk.deleteNodeRequest(self.first)

    def free_node(self) -> None:
        self.stage.add_ready("small")

    def reload(self) -> None:
        twin = Stage()
        self.stage.config = self.stage.provider.provider = twin.config


@pytest.fixture
def met(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Standoff:
    monkeypatch.setattr(nodes, "PATIENCE_SECONDS", 0.0)
    return Standoff(stage)


@pytest.mark.parametrize(
    "change",
    [Standoff.room, Standoff.served, Standoff.given_back, Standoff.cancelled, Standoff.free_node, Standoff.reload],
    ids=lambda change: change.__name__,
)
def test_until(met: Standoff, change: Callable[[Standoff], None]) -> None:
    """Whatever may change its place, and nothing else."""
    assert met.handler.yields()
    assert met.handler.yields()
    change(met)
    assert not met.handler.yields()


def test_no_reuse(stage: Stage, met: Standoff) -> None:
    """N-4: free nodes are nothing for it."""
    met.handler.request.reuse = False
    met.free_node()
    assert met.handler.yields()


def test_given_back_for_another_reason(stage: Stage) -> None:
    """Q-12: taken again after a moment, as ever."""
    handler = stage.begin("small")
    handler.end(0, states.READY)
    handler.give_back_when_launched()
    assert not handler.yields()
