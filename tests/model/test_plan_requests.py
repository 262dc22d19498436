# SPDX-License-Identifier: Apache-2.0
"""Properties of the decisions about who serves a request."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.model.status import AccessRule
from nodepool.plan import launch as plan_nodes
from nodepool.plan import triage
from nodepool.plan.launch import stands_before
from tests.model.budget import budget

LABELS = ("a", "b", "c")
ALLOWED = (AccessRule(("t",)),)


@st.composite
def registries(draw: st.DrawFn) -> list[triage.PoolInfo]:
    """Pools with different ids."""
    return [
        triage.PoolInfo(
            f"pool{number}",
            draw(st.sampled_from(("one", "two"))),
            draw(st.frozensets(st.sampled_from(LABELS))),
            draw(st.sampled_from((50, 100))),
            draw(st.booleans()),
            access=draw(st.sampled_from((None, (), ALLOWED, (ALLOWED[0]._replace(labels=frozenset("a")),)))),
        )
        for number in range(draw(st.integers(1, 5)))
    ]


KINDS = st.builds(
    triage.RequestKind,
    st.lists(st.sampled_from(LABELS), max_size=3).map(lambda labels: tuple(sorted(labels))),
    st.sampled_from((None, None, "one", "two", "nobody")),
    st.frozensets(st.sampled_from([f"pool{number}" for number in range(5)])),
    st.sampled_from((None, "t", "u")),
    st.just(True),
    st.just(False),
)


def of_11(kind: triage.RequestKind, me: triage.PoolInfo, pools: list[triage.PoolInfo]) -> triage.Verdict:
    """What a launcher says; one of 11.0.0 does not know who has access."""
    others = pools if me.access is not None else [replace(pool, access=None) for pool in pools]
    return triage.screen(kind, me, others)


@given(pools=registries(), kind=KINDS)
@budget(150)
def test_a_request_is_considered_or_refused_by_somebody_until_it_ends(
    pools: list[triage.PoolInfo], kind: triage.RequestKind
) -> None:
    """A-2 to A-6, A-15, A-24: no pool waits for one that waits for it.

    Whoever considers it may refuse it in the end. So the worst case is that all do; then it fails.
    """
    declined = set(kind.declined_by)
    for _ in range(len(pools) + 1):
        now = kind._replace(declined_by=frozenset(declined))
        verdicts = {pool.id: of_11(now, pool, pools) for pool in pools}
        active = [pool_id for pool_id, verdict in verdicts.items() if not isinstance(verdict, triage.Leave)]
        state = triage.declined_state(now, [pool.id for pool in pools])
        if state == states.FAILED:
            assert not active
            assert declined >= {pool.id for pool in pools}
            return
        assert active, f"everybody leaves it: {verdicts}"
        for pool in pools:
            if isinstance(verdicts[pool.id], triage.Consider):
                assert pool.serves(now)
            if isinstance(verdicts[pool.id], triage.Decline):
                assert not pool.serves(now)
        declined.add(active[0])
    raise AssertionError("no end")


@given(pools=registries(), kind=KINDS, gone=st.integers(0, 4), request=st.integers(0, 10**6))
@budget(120)
def test_each_request_has_one_first_choice_and_others_after_it(
    pools: list[triage.PoolInfo], kind: triage.RequestKind, gone: int, request: int
) -> None:
    request_id = f"500-{request:010d}"
    able = triage.able_pools(kind, pools)
    chosen = triage.first_choice(request_id, able)
    assert (chosen is None) == (not able)
    # In whatever order one knows them.
    assert triage.first_choice(request_id, able[::-1]) == chosen
    # Who goes changes the answer only for what was his.
    rest = [pool for pool in able if pool.id != f"pool{gone}"]
    if chosen in rest:
        assert triage.first_choice(request_id, rest) == chosen
    # One after the other, all have their turn.
    left, turns = list(able), []
    while left:
        turn = triage.first_choice(request_id, left)
        assert turn is not None
        turns.append(turn)
        left.remove(turn)
    assert sorted(turn.id for turn in turns) == sorted(pool.id for pool in able)


@given(rooms=st.lists(st.sampled_from((None, 0, 1, 10, 50, 200)), min_size=2, max_size=5), twin=st.booleans())
@budget(20)
def test_each_pool_has_a_share_that_is_as_its_room(rooms: list[float | None], twin: bool) -> None:
    """A-25: a pool of two launchers counts once. As long as the room of one is not known, all have the same share."""
    pools = [triage.PoolInfo(f"pool{n}", f"cloud{n}", frozenset("a"), 100, False, "main") for n in range(len(rooms))]
    if twin:
        pools.append(replace(pools[0], id="twin"))
    weights = triage.weights_of(zip(pools, [*rooms, rooms[0]], strict=False), lambda _: 0)
    chosen = Counter(triage.first_choice(f"100-{n:010}", pools, weights) for n in range(2000))
    known = [room or 0 for room in rooms]
    total = sum(known) if None not in rooms and any(known) else 0
    for pool, room in zip(pools, known, strict=False):
        found = chosen[pool] + (chosen[pools[-1]] if twin and pool is pools[0] and total else 0)
        assert abs(found / 2000 - (room / total if total else 1 / len(pools))) < 0.06
    # Who gets more room takes requests, and gives none away.
    if total:
        more = {**weights, "pool1": weights["pool1"] + 5}
        for request_id in (f"100-{n:010}" for n in range(100)):
            before, now = (triage.first_choice(request_id, pools, given) for given in (weights, more))
            assert now in (before, pools[1])


@given(actions=st.lists(st.tuples(st.integers(0, 9), st.integers(-1, 3), st.sampled_from(LABELS)), max_size=60))
@budget(100)
def test_the_queue_has_each_request_once_and_in_order(actions: list[tuple[int, int, str]]) -> None:
    """A-1. A priority of -1 takes a request out."""
    queue = triage.RequestQueue()
    expected: dict[str | None, NodeRequest] = {}
    for number, priority, label in actions:
        request = NodeRequest(f"{(number % 2) * 100 + 100}-{number:010d}")
        request.relative_priority, request.node_types = priority, [label]
        if priority < 0:
            queue.discard(request.key)
            expected.pop(request.id, None)
        else:
            queue.put(request)
            expected[request.id] = request
    queued = [request_id for bucket in queue.buckets() for request_id in bucket]
    assert sorted(queued) == sorted(str(request_id) for request_id in expected)
    assert len(queue) == len(expected)
    for bucket in queue.buckets():
        keys = [expected[request_id].order_key for request_id in bucket]
        assert keys == sorted(keys)
        assert all(triage.RequestKind.of(expected[request_id]) == bucket.kind for request_id in bucket)
        assert bucket.head_key == keys[0]


def _ready(number: int, labels: list[str], allocated_to: str | None) -> Node:
    node = Node(labels)
    node.id, node.state, node.allocated_to = f"{number:010d}", states.READY, allocated_to
    return node


def _request(number: int, label: str, state: str) -> NodeRequest:
    request = NodeRequest(f"900-{number:010d}")
    request.node_types, request.state, request.requestor = [label], state, triage.MIN_READY_REQUESTOR
    return request


@given(
    wanted=st.dictionaries(st.sampled_from(LABELS), st.integers(0, 4)),
    ready=st.lists(
        st.tuples(st.lists(st.sampled_from(LABELS), min_size=1, unique=True), st.integers(0, 3)), max_size=6
    ),
    requests=st.lists(st.tuples(st.sampled_from(LABELS), st.sampled_from(NodeRequest.STATES)), max_size=4),
)
@budget(120)
def test_min_ready_is_reached_and_not_exceeded(
    wanted: dict[str, int], ready: list[tuple[list[str], int]], requests: list[tuple[str, str]]
) -> None:
    """M-1, M-6: what is asked for fills the gap; asked again before anything happened, nothing more is wanted."""
    asked = [_request(number, *request) for number, request in enumerate(requests)]
    nodes = [
        _ready(number, labels, f"900-{owner:010d}" if owner else None) for number, (labels, owner) in enumerate(ready)
    ]
    missing = plan_nodes.missing(wanted, nodes, asked)
    for label, count in missing.items():
        assert count <= max(0, wanted[label])
        asked += [_request(100 + number, label, states.REQUESTED) for number in range(count)]
    # What is too much stays too much: only requests that no pool has begun to serve are withdrawn (M-8).
    surplus = {label: count for label, count in missing.items() if count < 0}
    assert plan_nodes.missing(wanted, nodes, asked) == surplus


@given(
    waiting=st.lists(
        st.tuples(st.integers(1, 3), st.integers(0, 3), st.sampled_from(("one", "two")), st.sampled_from(("a", "b"))),
        min_size=2,
        max_size=5,
    ),
    own_limit=st.booleans(),
)
@budget(120)
def test_of_requests_that_wait_for_each_other_the_first_stays_and_the_others_give_way(
    waiting: list[tuple[int, int, str, str]], own_limit: bool
) -> None:
    """All have the same answer, so exactly those go that stand in the way of one before them."""
    requests: dict[str | None, NodeRequest] = {}
    nodes: list[Node] = []
    for number, (wanted, held, provider, pool) in enumerate(waiting):
        request = NodeRequest(f"500-{number:010d}")
        request.node_types, request.state, request.tenant_name = ["a"] * wanted, states.PENDING, "everybody"
        requests[request.id] = request
        for _ in range(min(held, wanted)):
            node = _ready(len(nodes), ["a"], request.id)
            node.provider, node.pool = provider, pool
            # As all of them: that of a tenant without limits is nothing that requests share.
            node.tenant_name = request.tenant_name
            nodes.append(node)
    for number, (_, _, provider, pool) in enumerate(waiting):
        mine = requests[f"500-{number:010d}"]
        first = stands_before(mine, provider, pool if own_limit else None, nodes, requests.get)
        before = [
            other
            for other, (wanted, held, its_provider, its_pool) in zip(
                list(requests.values())[:number], waiting, strict=False
            )
            if 0 < min(held, wanted) < wanted and its_provider == provider and (its_pool == pool or not own_limit)
        ]
        assert first is (before[0] if before else None)
