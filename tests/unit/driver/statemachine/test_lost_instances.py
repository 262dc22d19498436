# SPDX-License-Identifier: Apache-2.0
"""Nodes whose instance is gone although nobody deleted it (D-9); on all clouds: `LostMachineContract`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nodepool.driver import gateway
from nodepool.driver.statemachine import lost_instances
from nodepool.driver.statemachine.lost_instances import UNPROVED_SECONDS, LostInstances
from nodepool.exceptions import CloudUnavailableException
from nodepool.metrics import reports as metrics
from nodepool.model import states
from nodepool.model.node import Node
from tests.support.machine_driver import MachineAdapter, MachineInstance
from tests.support.manual_clock import ManualClock
from tests.unit.driver.statemachine.conftest import MakeSite, Site

REASON = ("SpotEviction", "the cloud wanted it back")


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    monkeypatch.setattr(metrics, "report_end", lambda provider, reason: found.append((provider, reason)))
    return found


class Answers:
    """What the cloud says of an instance alone: an error, or whether it is gone."""

    def __init__(self) -> None:
        self.answer: bool | Exception | None = True
        self.asked: list[Any] = []

    def is_gone(self, external_id: Any) -> bool | None:
        self.asked.append(external_id)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    made = Answers()
    monkeypatch.setattr(MachineAdapter, "whyLost", lambda _self, _external_id: REASON)
    monkeypatch.setattr(MachineAdapter, "isGone", lambda _self, external_id: made.is_gone(external_id))
    return made


@pytest.fixture
def site(make_site: MakeSite, answers: Answers) -> Site:
    return make_site()


def idle(site: Site) -> Node:
    """A ready node that is for nobody."""
    (node,) = site.serve("small")
    node.allocated_to = None
    site.zk.storeNode(node)
    return node


def state(site: Site, node: Node) -> str | None:
    found = site.zk.getNode(node.key)
    return None if found is None else found.state


def look(site: Site, listed: list[Any], lost: LostInstances | None = None) -> bool:
    judge = lost or site.provider.lost
    return judge.look(judge.alive(), listed)


def test_idle_node(site: Site, answers: Answers, counted: list[tuple[str, str]]) -> None:
    """Two lists and a look: not handed out after the first, deleted and told of after the second, once."""
    node = idle(site)
    site.cloud.delete(node.external_id)
    site.provider.cleanupLeakedResources()
    assert (state(site, node), site.provider.lostInstances(), answers.asked) == (states.READY, [], [])
    (other,) = site.serve("small")
    assert other.key != node.key
    for _ in range(2):
        site.provider.cleanupLeakedResources()
    (told,) = site.provider.lostInstances()
    assert (told.node_id, told.code) == (node.key, REASON[0])
    assert told.text == f"{REASON[1]}; the node is deleted"
    assert (state(site, node), state(site, other)) == (states.DELETING, states.READY)
    assert answers.asked == [node.external_id]
    assert (site.provider.lostInstances(), counted) == ([], [("nowhere", "SpotEviction")])


@pytest.mark.parametrize("used_as", [states.IN_USE, states.HOLD, states.READY])
def test_node_in_use(site: Site, used_as: str) -> None:
    """It is only told of, also one that is ready and for a request; it is deleted when it is ready and for nobody."""
    (node,) = site.serve("small")
    node.state = used_as
    site.zk.storeNode(node)
    for _ in range(3):
        look(site, [])
    assert state(site, node) == used_as
    (told,) = site.provider.lostInstances()
    assert told.text.endswith(f"; the node is {used_as}")
    if used_as == states.READY:
        node.allocated_to = None
        site.zk.storeNode(node)
        look(site, [])
        assert (state(site, node), site.provider.lostInstances()) == (states.DELETING, [])


def test_backing_node(site: Site) -> None:
    """T-15: the provider that has its nodes on it learns from ``user_data``, although it holds the lock."""
    (node,) = site.serve("small")
    node.state = states.IN_USE
    node.user_data = json.dumps({"owner": "NodePool:metastatic:shared", "slots": 2, "nodes": ["1", None], "more": 1})
    site.zk.storeNode(node)
    site.zk.lockNode(node)
    for _ in range(3):
        look(site, [])
    found = site.zk.getNode(node.key)
    assert found is not None
    assert json.loads(found.user_data) == {
        **json.loads(node.user_data),
        "failed": True,
        "lost": list(REASON),
    }
    assert found.state == states.IN_USE


@pytest.mark.parametrize("user_data", [None, "no JSON", "[]", '{"owner": "somebody"}', {"owner": "a dict"}])
def test_data_of_others(site: Site, user_data: Any) -> None:
    """What Zuul or another user has in a node stays as it is."""
    (node,) = site.serve("small")
    node.state = states.IN_USE
    node.user_data = user_data
    site.zk.storeNode(node)
    for _ in range(3):
        look(site, [])
    found = site.zk.getNode(node.key)
    assert found is not None
    assert (found.user_data, found.version) == (user_data, node.version)


def test_deleted_by_us(site: Site, counted: list[tuple[str, str]]) -> None:
    """A node that is being deleted, or gone, is nobody's loss."""
    (node,) = site.serve("small")
    site.delete(node)
    for _ in range(3):
        site.provider.cleanupLeakedResources()
    assert (site.provider.lostInstances(), counted) == ([], [])


def test_seen_again(site: Site, answers: Answers) -> None:
    """One list that lacks it says nothing: lists may be late."""
    node = idle(site)
    listed = site.provider.listNodes()
    for shown in ([], listed, [], listed):
        look(site, shown)
        assert site.provider.lost.in_doubt(node.key) == (not shown)
    assert (state(site, node), answers.asked) == (states.READY, [])


def test_there_although_lists_lack_it(site: Site, answers: Answers) -> None:
    """The cloud shows it when it is asked for it alone: it can be used, and is not asked for with each list."""
    node = idle(site)
    answers.answer = False
    for _ in range(4):
        look(site, [])
    assert answers.asked == [node.external_id]
    assert (state(site, node), site.provider.lost.in_doubt(node.key)) == (states.READY, False)


def test_cloud_that_does_not_answer(site: Site, answers: Answers) -> None:
    """Whether it is gone is not known: it stays, and is not handed out, until the cloud says so."""
    node = idle(site)
    answers.answer = CloudUnavailableException("no answer")
    for _ in range(3):
        look(site, [])
    assert (state(site, node), site.provider.lost.in_doubt(node.key)) == (states.READY, True)
    answers.answer = True
    look(site, [])
    assert state(site, node) == states.DELETING


def test_list_that_fails(site: Site, answers: Answers) -> None:
    """What was not listed is not missing."""
    node = idle(site)
    site.cloud.set(down=True)
    for _ in range(3):
        with pytest.raises(CloudUnavailableException):
            site.provider.cleanupLeakedResources()
    site.cloud.set(down=False)
    site.provider.cleanupLeakedResources()
    assert (state(site, node), site.provider.lost.in_doubt(node.key)) == (states.READY, False)


def test_ready_after_the_list_began(site: Site) -> None:
    """A list says nothing of an instance that was made meanwhile."""
    before = site.provider.lost.alive()
    node = idle(site)
    for _ in range(3):
        site.provider.lost.look(before, [])
    assert (state(site, node), site.provider.lost.in_doubt(node.key)) == (states.READY, False)


def test_lists_that_lag(site: Site, answers: Answers) -> None:
    """The two lists must be further apart than the lag."""
    idle(site)
    clock = ManualClock()
    lost = LostInstances(site.provider, site.provider.log, 10.0, clock)
    assert look(site, [], lost)
    assert not look(site, [], lost)
    assert answers.asked == []
    clock.pass_seconds(10)
    look(site, [], lost)
    assert len(answers.asked) == 1


def test_listed_as_ending(site: Site, answers: Answers) -> None:
    """A spot instance that is being taken away is lost at once, with the reason that its record gives."""
    node = idle(site)
    (found,) = site.provider.listNodes()
    found.ends = REASON
    look(site, [found])
    assert (state(site, node), answers.asked) == (states.DELETING, [])
    assert [told.code for told in site.provider.lostInstances()] == [REASON[0]]


def test_without_metadata(site: Site) -> None:
    """An instance whose metadata somebody removed is there all the same."""
    node = idle(site)
    (found,) = site.provider.listNodes()
    found.metadata = {}
    for _ in range(3):
        look(site, [found])
    assert (state(site, node), site.provider.lost.in_doubt(node.key)) == (states.READY, False)


def test_taken_just_now(site: Site) -> None:
    """A request was faster: the node is left to it, and told of."""
    node = idle(site)
    taken = site.zk.getNode(node.key)
    assert taken is not None
    site.zk.lockNode(taken)
    for _ in range(2):
        look(site, [])
    assert state(site, node) == states.READY
    assert [told.text for told in site.provider.lostInstances()] == [f"{REASON[1]}; the node is ready"]


def test_many(site: Site, answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cloud is asked for a few at a time; the others stay in doubt."""
    monkeypatch.setattr(lost_instances, "MOST_LOOKS", 1)
    nodes = [idle(site) for _ in range(1)]
    (second,) = site.serve("large")
    look(site, [])
    assert look(site, [])
    assert len(answers.asked) == 1
    assert all(site.provider.lost.in_doubt(node.key) for node in (*nodes, second))
    look(site, [])
    assert len(answers.asked) == 2


class TestAllAtOnce:
    """Complete lists lack all: another project or region may be listed by mistake. The loss is held."""

    @pytest.fixture
    def nodes(self, site: Site) -> list[Node]:
        nodes = list(site.serve("small", "small", "small"))
        for node in nodes:
            node.allocated_to = None
            site.zk.storeNode(node)
        return nodes

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def lost(self, site: Site, clock: ManualClock) -> LostInstances:
        return LostInstances(site.provider, site.provider.log, 0.0, clock)

    def states(self, site: Site, nodes: list[Node]) -> set[str | None]:
        return {state(site, node) for node in nodes}

    def test_held(
        self, site: Site, nodes: list[Node], lost: LostInstances, clock: ManualClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        """They are named and not used, whatever is launched in the wrong place. Then they are lost."""
        before = site.provider.listNodes()
        for _ in range(3):
            look(site, [], lost)
        assert (self.states(site, nodes), lost.take()) == ({states.READY}, [])
        assert all(lost.in_doubt(node.key) for node in nodes)
        assert lost.held.keys() == {node.key for node in nodes}
        assert caplog.text.count("shows no instance of 3 nodes any more") == 1
        (new,) = site.serve("large")
        listed = [
            one for one in site.provider.listNodes() if one.external_id not in [old.external_id for old in before]
        ]
        until = lost.held
        clock.pass_seconds(lost_instances.HELD_SECONDS - 1)
        look(site, listed, lost)
        assert (self.states(site, nodes), lost.held, lost.in_doubt(new.key)) == ({states.READY}, until, False)
        clock.pass_seconds(1)
        look(site, listed, lost)
        assert (self.states(site, nodes), lost.held) == ({states.DELETING}, {})
        assert len(lost.take()) == 3
        assert state(site, new) == states.READY

    def test_place_is_right(self, site: Site, nodes: list[Node], lost: LostInstances) -> None:
        """A list shows one of them again: the others are lost as any other."""
        first, *others = nodes
        listed = [one for one in site.provider.listNodes() if one.external_id == first.external_id]
        for _ in range(2):
            look(site, [], lost)
        look(site, listed, lost)
        assert (state(site, first), self.states(site, others)) == (states.READY, {states.DELETING})
        assert (lost.held, lost.in_doubt(first.key)) == ({}, False)

    def test_there_when_it_is_asked_for(
        self, site: Site, nodes: list[Node], lost: LostInstances, answers: Answers
    ) -> None:
        """The lists lack them, but the cloud has one: the place is right, and the others are asked for, too."""
        answers.answer = False
        for _ in range(3):
            look(site, [], lost)
        assert (lost.held, len(answers.asked)) == ({}, 3)
        assert not any(lost.in_doubt(node.key) for node in nodes)

    def test_fewer_are_left(self, site: Site, nodes: list[Node], lost: LostInstances) -> None:
        """It stays held when one of them is deleted, e.g. after its use; and ends with the last one."""
        for _ in range(2):
            look(site, [], lost)
        site.delete(nodes[0])
        look(site, [], lost)
        assert (self.states(site, nodes[1:]), len(lost.held)) == ({states.READY}, 2)
        for node in nodes[1:]:
            site.delete(node)
        look(site, [], lost)
        assert lost.held == {}

    def test_others_of_their_age_are_there(self, site: Site, nodes: list[Node], lost: LostInstances) -> None:
        """Three of four: the place is right."""
        (fourth,) = site.serve("large")
        first = nodes[0]
        listed = [one for one in site.provider.listNodes() if one.external_id == first.external_id]
        for _ in range(2):
            look(site, listed, lost)
        assert (self.states(site, nodes[1:]), lost.held) == ({states.DELETING}, {})
        assert state(site, fourth) == states.READY

    def test_ends_that_are_listed(self, site: Site, nodes: list[Node], lost: LostInstances) -> None:
        """Spot instances that the cloud takes away together are lost at once."""
        listed = site.provider.listNodes()
        for one in listed:
            one.ends = REASON
        look(site, listed, lost)
        assert (self.states(site, nodes), lost.held) == ({states.DELETING}, {})

    def test_provider_shows_them(self, site: Site, nodes: list[Node]) -> None:
        """For the status record."""
        for node in nodes:
            site.cloud.delete(node.external_id)
        for _ in range(2):
            site.provider.cleanupLeakedResources()
        assert gateway.missing_instances(site.provider).keys() == {node.key for node in nodes}


class TestReleasedDriver:
    """A driver written for 11.0.0 has lists only."""

    @pytest.fixture
    def site(self, make_site: MakeSite) -> Site:
        return make_site()

    def test_lists_alone(self, site: Site) -> None:
        """In doubt at once, and lost after two minutes; the text says that no reason is known."""
        node = idle(site)
        clock = ManualClock()
        lost = LostInstances(site.provider, site.provider.log, 0.0, clock)
        look(site, site.provider.listNodes(), lost)
        for _ in range(3):
            assert state(site, node) == states.READY
            look(site, [], lost)
            assert lost.in_doubt(node.key)
            clock.pass_seconds(UNPROVED_SECONDS / 2)
        assert state(site, node) == states.DELETING
        assert [told.code for told in lost.take()] == ["NotFound"]

    def test_never_listed(self, site: Site) -> None:
        """Lists that do not show its instances, ever, say nothing."""
        node = idle(site)
        clock = ManualClock()
        lost = LostInstances(site.provider, site.provider.log, 0.0, clock)
        for _ in range(3):
            look(site, [], lost)
            clock.pass_seconds(UNPROVED_SECONDS)
        assert (state(site, node), lost.in_doubt(node.key)) == (states.READY, False)

    def test_listed_as_deleted(self, site: Site) -> None:
        node = idle(site)
        (found,) = site.cloud.instances()
        shown = MachineInstance(found)
        shown.deleted = True
        look(site, [shown])
        assert state(site, node) == states.DELETING
