# SPDX-License-Identifier: Apache-2.0
"""Nodes whose instance is not there although no launcher deleted it (D-9); on all clouds: `LostMachineContract`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nodepool.driver.statemachine.leaks import HELD_SECONDS, LostInstances
from nodepool.exceptions import CloudUnavailableException
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.support.machine_driver import MachineAdapter
from tests.support.manual_clock import ManualClock
from tests.unit.driver.statemachine.conftest import MakeSite, Site

REASON = ("SpotEviction", "the cloud wanted it back")


class Losing:
    """A site, and a judge of lists with a clock; ``answer`` is what the cloud says of an instance alone.

    :param lag: of the lists. ``proves``: can the driver look at one instance? Those written for 11.0.0 cannot.
    """

    site: Site

    def __init__(self, make: MakeSite, patch: pytest.MonkeyPatch, lag: float = 0.0, *, proves: bool = True) -> None:
        self.answer: bool | Exception = True
        self.asked: list[Any] = []
        if proves:
            patch.setattr(MachineAdapter, "whyLost", lambda _self, _external_id: REASON)
            patch.setattr(MachineAdapter, "isGone", lambda _self, external_id: self._is_gone(external_id))
        self.site, self.clock = make(), ManualClock().rules()
        self.lost = LostInstances(self.site.provider, self.site.provider.log, lag)

    def _is_gone(self, external_id: Any) -> bool:
        self.asked.append(external_id)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def idle(self, *labels: str) -> list[Node]:
        """Ready nodes of no request."""
        nodes = self.site.serve(*labels)
        for node in nodes:
            node.allocated_to = None
            self.site.zk.storeNode(node)
        return nodes

    def look(self, *listed: Any, times: int = 1) -> bool:
        """Is there to be another look soon?"""
        return [self.lost.look(self.lost.alive(), list(listed)) for _ in range(times)][-1]

    def listed(self, *nodes: Node, **fields: Any) -> list[Any]:
        """What the cloud shows of nodes."""
        ids = {node.external_id for node in nodes}
        found = [one for one in self.site.provider.listNodes() if one.external_id in ids]
        for one in found:
            vars(one).update(fields)
        return found

    def states(self, *nodes: Node) -> set[tuple[str, bool]]:
        """Of nodes, and whether their instances are in doubt."""
        stored = [self.site.zk.getNode(node.key) for node in nodes]
        return {(node.state, self.lost.in_doubt(node.key)) for node in stored if node is not None}


@pytest.fixture
def losing(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> Losing:
    return Losing(make_site, monkeypatch)


WELL, IN_DOUBT, LOST = (states.READY, False), (states.READY, True), states.DELETING


OWNED = {"owner": "NodePool:metastatic:shared", "slots": 2, "nodes": ["1", None], "more": 1}


@pytest.mark.parametrize("user_data", [json.dumps(OWNED), None, "no JSON", "[]", '{"owner": "x"}', {"owner": "a dict"}])
def test_data_of_a_node(losing: Losing, zk: MemoryZooKeeper, user_data: Any) -> None:
    """T-15: the provider that has its nodes on it learns from ``user_data``, although it holds the lock.

    What Zuul or another user has in a node stays as it is.
    """
    (node,) = losing.site.serve("small")
    node.state, node.user_data = states.IN_USE, user_data
    zk.storeNode(node)
    zk.lockNode(node)
    losing.look(times=3)
    found = zk.getNode(node.key)
    assert found is not None
    assert found.state == states.IN_USE
    if user_data == json.dumps(OWNED):
        assert json.loads(found.user_data) == {**OWNED, "failed": True, "lost": list(REASON)}
    else:
        assert (found.user_data, found.version) == (user_data, node.version)


@pytest.mark.parametrize(
    ("lists", "answer", "seen", "asked"),
    [
        ([0, 1, 0, 1], True, [IN_DOUBT, WELL, IN_DOUBT, WELL], 0),
        ([0, 0, 0, 0], False, [IN_DOUBT, WELL, WELL, WELL], 1),
        ([0, 0, 0], CloudUnavailableException("no answer"), [IN_DOUBT] * 3, 2),
        ([2, 2, 2], True, [WELL] * 3, 0),
        ([3], True, [(LOST, True)], 0),
        ([4], True, [(LOST, True)], 0),
    ],
)
def test_lists_and_looks(
    losing: Losing, lists: list[int], answer: bool | Exception, seen: list[Any], asked: int
) -> None:
    """D-9: one list says nothing; the cloud is asked for the instance alone. Until it answers, that is in doubt.

    :param lists: 0 = lacks it, 1 = shows it, 2 = without its metadata, 3 = as ending, with a reason, 4 = as deleted.
    """
    (node,) = losing.idle("small")
    losing.answer = answer
    shown: list[dict[str, Any]] = [{}, {}, {"metadata": {}}, {"ends": REASON}, {"deleted": True}]
    for kind, expected in zip(lists, seen, strict=True):
        losing.look(*(losing.listed(node, **shown[kind]) if kind else []))
        assert {state for state, _ in losing.states(node)} == {expected[0]}
        assert expected[0] == LOST or losing.states(node) == {expected}
    assert len(losing.asked) == asked
    if isinstance(answer, Exception):
        losing.answer = True
        losing.look()
        assert {state for state, _ in losing.states(node)} == {LOST}


# -- all at once: another project or region may be listed by mistake, and the loss is held


@pytest.fixture
def nodes(losing: Losing) -> list[Node]:
    return losing.idle("small", "small", "small")


def test_held(losing: Losing, nodes: list[Node], caplog: pytest.LogCaptureFixture) -> None:
    """D-9: they are named and not used, whatever is launched in the wrong place. Then they are lost."""
    losing.look(times=3)
    assert (losing.states(*nodes), losing.lost.take()) == ({IN_DOUBT}, [])
    assert losing.lost.held.keys() == {node.key for node in nodes}
    assert caplog.text.count("shows no instance of 3 nodes any more") == 1
    (new,) = losing.site.serve("large")
    until = losing.lost.held
    losing.clock.pass_seconds(HELD_SECONDS - 1)
    losing.look(*losing.listed(new))
    assert (losing.states(*nodes), losing.lost.held, losing.states(new)) == ({IN_DOUBT}, until, {WELL})
    losing.clock.pass_seconds(1)
    losing.look(*losing.listed(new))
    assert ({state for state, _ in losing.states(*nodes)}, losing.lost.held) == ({LOST}, {})
    assert (len(losing.lost.take()), losing.states(new)) == (3, {WELL})


@pytest.mark.parametrize("how", ["one is listed again", "one was listed", "the cloud has one", "ends are listed"])
def test_not_held(losing: Losing, nodes: list[Node], how: str) -> None:
    """D-9: the place is right: the others are lost, or asked for, as any other."""
    first, *others = nodes
    if how == "ends are listed":
        losing.look(*losing.listed(*nodes, ends=REASON))
        others = nodes
    elif how == "the cloud has one":
        losing.answer = False
        losing.look(times=3)
        assert (losing.states(*nodes), len(losing.asked), losing.lost.held) == ({WELL}, 3, {})
        return
    else:
        losing.look(*(losing.listed(first) if how == "one was listed" else []), times=2)
        losing.look(*losing.listed(first))
        assert losing.states(first) == {WELL}
    assert ({state for state, _ in losing.states(*others)}, losing.lost.held) == ({LOST}, {})
