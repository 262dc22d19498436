# SPDX-License-Identifier: Apache-2.0
"""Properties of the decisions about nodes: who gets which, and what becomes of one that nobody holds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.plan import backing
from nodepool.plan.launch import Deallocate, Delete, Keep, is_orphan, judge_age, judge_unlocked, reset_lost_request
from nodepool.plan.static import HostFacts as Facts
from nodepool.plan.static import HostId, HostSpec, SlotId, decide, is_free, new_node, slot_of
from nodepool.plan.triage import ReadyNodes, can_match
from tests.model.budget import budget

LABELS = st.sampled_from(("a", "b", "c"))


def _node(number: int, labels: list[str], az: str | None = None) -> Node:
    node = Node(labels)
    node.id, node.state, node.az, node.state_time = f"{number:010d}", states.READY, az, 0.0
    return node


@given(
    free=st.lists(st.tuples(st.lists(LABELS, min_size=1, max_size=3, unique=True), st.sampled_from((None, "x", "y")))),
    wanted=st.lists(LABELS, min_size=1, max_size=5),
    zone=st.sampled_from((None, "x")),
)
@budget(150)
def test_no_node_is_chosen_twice_and_all_fit(
    free: list[tuple[list[str], str | None]], wanted: list[str], zone: str | None
) -> None:
    """N-1, N-2, N-5, N-7."""
    ready = ReadyNodes()
    for number, (labels, az) in enumerate(free):
        ready.put(_node(number, labels, az))
    chosen = ready.choose(wanted, zone)
    assert len({node.id for node in chosen.values()}) == len(chosen)
    assert all(wanted[position] in node.type for position, node in chosen.items())
    assert len({node.az for node in chosen.values() if node.az is not None} | ({zone} - {None})) <= 1
    if len(chosen) < len(wanted) and all(az is None for _, az in free) and zone is None:
        # The best there is: with all of them wanted at once no more could be matched.
        assert not can_match(wanted, [labels for labels, _ in free])
    if len(chosen) == len(wanted):
        assert can_match(wanted, [labels for labels, _ in free])
        assert ready.could_serve(wanted)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    node = _node(draw(st.integers(0, 99)), ["a"])
    node.state = draw(st.sampled_from(states.NODE_STATES))
    node.allocated_to = draw(st.sampled_from((None, "500-0000000000")))
    node.state_time = draw(st.floats(0, 1000))
    node.hold_expiration = draw(st.sampled_from((None, 0, 100)))
    return node


REQUESTS = st.sampled_from((None, *NodeRequest.STATES))


def _lookup(state: str | None, node: Node) -> NodeRequest | None:
    if state is None:
        return None
    request = NodeRequest(node.allocated_to)
    request.state = state
    return request


@given(node=nodes(), state=REQUESTS)
@budget(150)
def test_what_nobody_needs_goes_and_what_somebody_may_need_stays(node: Node, state: str | None) -> None:
    """X-1, C-9, C-10."""
    action = judge_unlocked(node, lambda _: _lookup(state, node))
    if node.state in states.DELETABLE_STATES:
        assert isinstance(action, Delete)
    elif node.state in (states.HOLD, states.TESTING):
        assert isinstance(action, Keep)
    elif node.state == states.READY:
        # A machine that is good is never deleted here.
        assert isinstance(action, Deallocate) == (node.allocated_to is not None and state is None)
        assert not isinstance(action, Delete)
    lost = is_orphan(node, lambda _: _lookup(state, node))
    if lost:
        assert isinstance(action, Keep)
        assert state in (states.REQUESTED, states.PENDING)
        assert node.allocated_to is not None


@given(
    node=nodes(), now=st.floats(0, 2000), ready_age=st.sampled_from((0.0, 50.0)), hold_age=st.sampled_from((0.0, 99.0))
)
@budget(120)
def test_age_ends_only_unused_ready_nodes_and_held_ones(
    node: Node, now: float, ready_age: float, hold_age: float
) -> None:
    """C-5, C-6."""
    action = judge_age(node, now, lambda _: ready_age, hold_age)
    if isinstance(action, Delete):
        assert node.state == states.HOLD or (node.state == states.READY and node.allocated_to is None)
        # Once too old, always too old.
        assert isinstance(judge_age(node, now + 1, lambda _: ready_age, hold_age), Delete)


@given(held=st.lists(nodes(), max_size=4))
@budget(100)
def test_a_lost_request_is_as_new_and_its_nodes_are_nobodys(held: list[Node]) -> None:
    """C-4."""
    request = NodeRequest("500-0000000000")
    request.state, request.nodes = states.PENDING, ["x"]
    reset_lost_request(request, held)
    assert (request.state, request.nodes) == (states.REQUESTED, [])
    assert all(node.allocated_to is None and node.state != states.INIT for node in held)


BACKINGS = st.builds(
    backing.Backing,
    st.uuids().map(str),
    st.just(backing.BackingKind("a", "b")),
    st.lists(st.sampled_from((None, None, "somebody")), max_size=4).map(tuple),
    st.booleans(),
    st.floats(0, 100),
    st.none() | st.floats(0, 100),
)
RULES = st.builds(backing.Rules, st.integers(1, 4), st.floats(0, 50), st.floats(0, 50), st.none() | st.floats(1, 99))


@given(waiting=st.lists(st.text("xyz", min_size=1), unique=True, max_size=8), places=st.lists(BACKINGS), rules=RULES)
@budget(120)
def test_a_slot_is_given_once_and_none_stays_free_while_somebody_waits(
    waiting: list[str], places: list[backing.Backing], rules: backing.Rules
) -> None:
    """T-1, T-7, T-9 to T-11."""
    given_out = backing.assign(waiting, places, rules)
    assert len({(one.backing_id, one.slot) for one in given_out}) == len(given_out)
    assert [one.node_id for one in given_out] == waiting[: len(given_out)]
    by_id = {place.id: place for place in places}
    assert all(by_id[one.backing_id].holders[one.slot] is None for one in given_out)
    free = sum(place.holders.count(None) for place in places if backing.accepts(place, rules))
    assert len(given_out) == min(len(waiting), free)


@given(
    waiting=st.dictionaries(st.text("xyz", min_size=1), st.sampled_from((None, "r1", "r2", "gone")), max_size=8),
    requests=st.lists(st.sampled_from(("r1", "r2", "r3")), unique=True),
    slots=st.integers(1, 4),
)
@budget(100)
def test_each_waiting_node_has_a_place_to_come_or_is_counted(
    waiting: dict[str, str | None], requests: list[str], slots: int
) -> None:
    """T-2."""
    shares, without = backing.share(waiting, requests, slots)
    assert set(shares) | set(without) == set(waiting)
    assert not set(shares) & set(without)
    assert set(shares.values()) <= set(requests)
    fresh = [node for node in shares if waiting[node] != shares[node]]
    for request in requests:
        kept = [node for node, wanted in waiting.items() if wanted == request]
        added = [node for node in fresh if shares[node] == request]
        assert not added or len(kept) + len(added) <= slots


@given(place=BACKINGS, rules=st.none() | RULES)
@budget(100)
def test_a_backing_node_with_somebody_on_it_is_kept(place: backing.Backing, rules: backing.Rules | None) -> None:
    """T-8."""
    decision = backing.fate(place, rules)
    if place.idle_seconds is None:
        assert decision == backing.Retain(backing.NEVER_SECONDS)
    elif isinstance(decision, backing.Retain):
        assert decision.seconds > 0


HOSTS = [HostId(name, "zuul", 22) for name in ("h1", "h2", "h3")]


@given(
    specs=st.lists(st.tuples(st.sampled_from(HOSTS), st.integers(1, 3), st.booleans()), unique_by=lambda spec: spec[0]),
    there=st.lists(
        st.tuples(
            st.sampled_from(HOSTS),
            st.integers(0, 3),
            st.sampled_from((states.READY, states.IN_USE, states.DELETING)),
            st.booleans(),
        ),
        max_size=8,
    ),
)
@budget(120)
def test_static_slots_have_one_node_each_and_nodes_in_use_are_left_alone(
    specs: list[tuple[HostId, int, bool]], there: list[tuple[HostId, int, str, bool]]
) -> None:
    """S: what is done to free nodes only, and done once leads to nothing more to do."""
    hosts = {host: HostSpec(host, "main", ("a",), slots=slots, check=check) for host, slots, check in specs}
    facts = Facts(("key",))
    found, locked = [], set()
    for number, (host, slot, state, is_locked) in enumerate(there):
        node = new_node("static", HostSpec(host, "main", ("a",)), slot, facts)
        node.id, node.state = f"{number:010d}", state
        found.append(node)
        if is_locked:
            locked.add(node.id)
    plan = decide(hosts, found, lambda node: node.id in locked)
    touched = [node for node, _ in (*plan.update, *plan.deregister)] + plan.rescan
    assert all(is_free(node) and node.id not in locked for node in touched)
    assert len({node.id for node in touched}) == len(touched)
    gone = {node.id for node, _ in plan.deregister}
    left = [slot_of(node) for node in found if node.id not in gone]
    new = [SlotId(host, slot) for host, slots in plan.register.items() for slot in slots]
    assert not set(new) & set(left)
    wanted = {SlotId(host, slot) for host, spec in hosts.items() for slot in range(spec.slots)}
    assert wanted <= {*left, *new}
    assert set(new) <= wanted
