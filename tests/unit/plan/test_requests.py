# SPDX-License-Identifier: Apache-2.0
"""A waiting request in a pool: its place in the queue, whether the pool serves it, and the stages that follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from nodepool.model.node import Node
from nodepool.model.reasons import (
    EXCEEDS_QUOTA,
    FIRST_CHOICE,
    IMAGE_MISSING,
    NO_LAUNCHES,
    NO_READY_NODE,
    POOL_DISABLED,
    SIBLING_SERVES,
    Reason,
    ReasonCode,
    pool_paused,
    quota_used_up,
    tenant_limit,
)
from nodepool.model.request import NodeRequest
from nodepool.plan.nodes import ReadyNodes
from nodepool.plan.queue import MIN_READY_REQUESTOR, RequestKind, RequestQueue
from nodepool.plan.request_stage import ENDED, LOCKED, MOVES, STORY_MOVES, UNFINISHED, ImpossibleMove, Progress, Stage
from nodepool.plan.retries import GAP_SECONDS, TOLD, Reminders, next_reminder
from nodepool.plan.triage import (
    MAX_REASONS,
    MAX_TEXT,
    Consider,
    Decline,
    Fulfil,
    Launch,
    Leave,
    PoolInfo,
    Verdict,
    Wait,
    able_pools,
    declined_state,
    first_choice,
    screen,
    triage,
    triage_kind,
    why_failed,
)

ARCHITECTURE = Path(__file__).parents[3] / "doc" / "source" / "explanation" / "architecture.rst"
ME = PoolInfo("me", "cloud", frozenset({"small", "large"}), 100, paused=False)


def make(id: str, *labels: str, **fields: Any) -> NodeRequest:
    request = NodeRequest(id)
    request.node_types = list(labels or ("small",))
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def kind(*labels: str, provider: str | None = None, declined_by: tuple[str, ...] = ()) -> RequestKind:
    return RequestKind(labels, provider, frozenset(declined_by), None, True, False)


def pool(id: str, *labels: str, **changes: Any) -> PoolInfo:
    return replace(ME, id=id, labels=frozenset(labels or ME.labels), **changes)


# -- the queue


def test_kinds_and_their_marks() -> None:
    """E-1: a kind holds what a pool judges by; its mark is the same in each process."""
    first = RequestKind.of(make("200-1", "a", "b"))
    assert RequestKind.of(make("100-2", "b", "a", relative_priority=4, event_id="e")) == first
    changes: list[dict[str, Any]] = [{"provider": "p"}, {"tenant_name": "t"}, {"node_types": ["a", "a"]}]
    marked: list[dict[str, Any]] = [
        *({}, {"declined_by": ["x"]}, {"declined_by": ["x", "y"]}, {"reuse": False}),
        {"requestor": MIN_READY_REQUESTOR},
    ]
    assert all(RequestKind.of(make("200-1", "a", "b", **change)) != first for change in [*changes, *marked[1:]])
    marks = [RequestKind.of(make("200-1", **fields)).mark for fields in marked]
    assert (len(set(marks)), marks[0]) == (len(marks), "9b9cecbe")


def test_order_in_a_bucket() -> None:
    """A-1: PPP as text, relative priority, sequence."""
    queue = RequestQueue()
    for id, relative in (("300-1", 0), ("100-9", 3), ("100-8", 3), ("100-7", 11), ("099-5", 9)):
        queue.put(make(id, relative_priority=relative))
    [bucket] = queue.buckets()
    assert list(bucket) == ["099-5", "100-8", "100-9", "100-7", "300-1"]
    assert (bucket.head, bucket.head_key, len(bucket)) == ("099-5", ("099", 9, "5"), 5)
    for request_id in bucket:
        queue.discard(request_id)
    assert (len(queue), queue.buckets(), queue.oldest(bucket.kind), bucket.oldest()) == (0, [], None, None)


class QueueMachine(RuleBasedStateMachine):
    """The queue against a plain dictionary that is sorted anew each time."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = RequestQueue()
        self.model: dict[str, NodeRequest] = {}

    @rule(
        id=st.sampled_from([f"{priority}-{number}" for priority in (100, 200) for number in range(7)]),
        relative=st.integers(-1, 2),
        labels=st.lists(st.sampled_from("ab"), max_size=2),
        declined=st.sampled_from([[], ["p"]]),
    )
    def put(self, id: str, relative: int, labels: list[str], declined: list[str]) -> None:
        request = make(id, relative_priority=relative, declined_by=declined, node_types=labels)
        self.queue.put(request)
        self.model[id] = request

    @rule(number=st.integers(0, 6), priority=st.sampled_from(["100", "200"]))
    def discard(self, number: int, priority: str) -> None:
        self.queue.discard(f"{priority}-{number}")
        self.model.pop(f"{priority}-{number}", None)

    @rule()
    def clear(self) -> None:
        self.queue.clear()
        self.model.clear()

    @invariant()
    def same_as_the_model(self) -> None:
        """W-5: the oldest of a kind has the lowest sequence, whatever its priority."""
        expected: dict[RequestKind, list[str]] = {}
        for request_id, request in sorted(self.model.items(), key=lambda entry: entry[1].order_key):
            expected.setdefault(RequestKind.of(request), []).append(request_id)
        assert {bucket.kind: list(bucket) for bucket in self.queue.buckets()} == expected
        assert len(self.queue) == len(self.model)
        assert all(request_id in self.queue for request_id in self.model)
        for bucket in self.queue.buckets():
            assert self.queue.oldest(bucket.kind) == min(bucket, key=lambda key: (key.partition("-")[2], key))


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=40)


def test_oldest_of_each_kind() -> None:
    """W-5: the one with the lowest sequence, whatever its priority."""
    queue = RequestQueue()
    for id in ("100-2", "200-1", "200-3"):
        queue.put(make(id))
    assert queue.oldest(RequestKind.of(make("x"))) == "200-1"


# -- may a pool serve a kind

OTHER = pool("other", provider_name="wanted")
WISH = kind("small", provider="wanted")
GPU = kind("gpu", "small", declined_by=("declined",))
NOT_HERE = Decline(Reason(ReasonCode.LABEL_UNKNOWN, "label(s) gpu not available in this pool"))


@pytest.mark.parametrize(
    ("request_", "registered", "expected"),
    [
        (kind("small", "small"), [], Consider),
        (kind(), [], Consider),
        # declined before, also what is unknown: once only.
        (kind("small", declined_by=("me",)), [], Leave),
        (kind("unknown", declined_by=("me",)), [], Leave),
        # the wanted provider, if a pool of it supports all labels and has not declined; paused ones too.
        (WISH, [OTHER], Leave),
        (WISH, [replace(OTHER, paused=True)], Leave),
        (WISH, [replace(OTHER, provider_name="another")], Consider),
        (kind("small", "large", provider="wanted"), [pool("other", "small", provider_name="wanted")], Consider),
        (kind("small", provider="wanted", declined_by=("other",)), [OTHER], Consider),
        # together: otherwise each would leave the request to the other.
        (kind("small", provider="cloud"), [pool("third", provider_name="third", priority=1)], Consider),
        (kind("small", provider="cloud"), [pool("better", priority=1)], Leave),
        # a better priority, unless it is paused, cannot serve it or has declined.
        (kind("small"), [pool("better", priority=99)], Leave),
        (kind("small"), [pool("better", priority=99, paused=True)], Consider),
        (kind("small"), [pool("better", "large", priority=99)], Consider),
        (kind("small"), [pool("same", priority=100), pool("worse", priority=101)], Consider),
        (kind("small", declined_by=("declined",)), [pool("declined", priority=1)], Consider),
        # labels that are not here: left to a pool that has them all, else declined.
        (kind("gpu"), [pool("other", "gpu", priority=200, paused=True)], Leave),
        (GPU, [], NOT_HERE),
        (GPU, [pool("other", "arm")], NOT_HERE),
        (GPU, [pool("declined", "gpu", "small")], NOT_HERE),
        (GPU, [pool("half", "gpu")], NOT_HERE),
    ],
)
def test_may_a_pool_serve_a_kind(request_: RequestKind, registered: list[PoolInfo], expected: Any) -> None:
    """A-2, A-3, A-4, A-5, A-6, A-20: the first rule that holds."""
    verdict = screen(request_, ME, [ME, *registered])
    assert verdict == expected if isinstance(expected, Decline) else isinstance(verdict, expected)


def test_the_other_pool_does_not_act_either_way() -> None:
    """A-3: who has the wish of a request to another provider leaves it."""
    better = pool("better", provider_name="third", priority=1)
    assert isinstance(screen(kind("small", provider="cloud"), better, [ME, better]), Leave)


@pytest.mark.parametrize(
    ("declined_by", "registered", "absent", "state"),
    [
        (["a"], ["a"], [], "failed"),
        (["a"], ["a", "b"], [], "requested"),
        (["a", "b"], ["a", "b"], [], "failed"),
        (["a", "old"], ["a"], [], "failed"),
        (["a", "old"], ["a", "b"], [], "requested"),
        (["a"], ["a"], [pool("away")], "requested"),
        (["a"], ["a"], [pool("away", "large")], "failed"),
        (["a", "declined"], ["a"], [pool("declined")], "failed"),
    ],
)
def test_state_after_a_refusal(
    declined_by: list[str], registered: list[str], absent: list[PoolInfo], state: str
) -> None:
    """A-15: a pool whose launcher is being restarted is waited for, if it could serve the request."""
    assert declined_state(["small"], declined_by, registered, absent) == state


def test_label_of_a_pool_that_went_a_moment_ago() -> None:
    """A-15: its launcher is being restarted: no pool declines for it, unless it had declined itself."""
    absent = [pool("restarted", "gpu")]
    assert isinstance(screen(kind("gpu"), ME, [ME], absent), Leave)
    assert isinstance(screen(kind("gpu", declined_by=("restarted",)), ME, [ME], absent), Decline)
    assert isinstance(screen(kind("gpu", "huge"), ME, [ME], absent), Decline)
    assert screen(kind("small"), ME, [ME], absent) == Consider()


LABELS = ("small", "large", "gpu")
POOLS = st.lists(
    st.builds(
        PoolInfo,
        id=st.sampled_from("abcd"),
        provider_name=st.sampled_from(["cloud", "other"]),
        labels=st.frozensets(st.sampled_from(LABELS)),
        priority=st.sampled_from([1, 100]),
        paused=st.booleans(),
    ),
    min_size=1,
    unique_by=lambda info: info.id,
)
WANTED = st.lists(st.sampled_from(LABELS), max_size=3)


@given(POOLS, WANTED, st.sampled_from([None, "cloud", "other", "unknown"]), st.frozensets(st.sampled_from("abcd")))
def test_some_pool_acts(
    pools: list[PoolInfo], labels: list[str], provider: str | None, declined: frozenset[str]
) -> None:
    """Among pools that have not declined at least one takes the request or declines it."""
    request = kind(*labels, provider=provider, declined_by=tuple(declined))
    left = [info for info in pools if info.id not in declined]
    assert not left or not all(isinstance(screen(request, info, pools), Leave) for info in left)


# -- one pool for each request, the same for every launcher


def test_first_choice() -> None:
    """The order of the registry does not matter; shares are even; of a pool that goes only its own are moved."""
    pools = [pool(f"pool-{number}") for number in range(5)]

    def chosen(request_id: str, pools: list[PoolInfo]) -> str:
        found = first_choice(request_id, pools)
        assert found is not None
        return found.id

    requests = [f"200-{number:010}" for number in range(2000)]
    found = {request: chosen(request, pools) for request in requests}
    assert found == {request: chosen(request, pools[::-1]) for request in requests}
    counts = Counter(found.values())
    assert min(counts[one.id] for one in pools) > 0.8 * len(requests) / len(pools)
    assert all(before in (chosen(request, pools[1:]), "pool-0") for request, before in found.items())
    assert first_choice("200-0000000000", []) is None


def test_pools_that_may_be_the_first_choice() -> None:
    """A-3, A-4: a pool that would leave such a request anyway is not asked."""
    plain, other = pool("plain", "small"), pool("other", provider_name="other-cloud")
    better = pool("better", "small", priority=50)
    assert able_pools(kind("large"), [plain, better, other]) == [other]
    assert able_pools(kind("small", provider="other-cloud"), [plain, other]) == [other]
    assert able_pools(kind("small"), [plain, better, other]) == [better]


# -- what a pool does with a waiting request

TENANT_FULL = tenant_limit("poor", "instances", limit=2, used=2, needed=1)
PAUSED = pool_paused("100-0", quota_used_up("pool main", "cores", limit=8, used=8, needed=4))
ORDER = Reason(ReasonCode.WAIT_TENANT_ORDER, "another one first")
HELD = Reason(ReasonCode.PROVIDER_PAUSED, "provider one is paused")
AWAY = Reason(ReasonCode.PROVIDER_CIRCUIT_OPEN, "HTTP 503")
FULL = quota_used_up("pool main", "instances", limit=4, used=4, needed=1)


@dataclass
class View:
    """A pool with room for all that comes; each test changes something."""

    ready_labels: tuple[str, ...] = ()
    launches: bool = True
    sibling_serves: bool = False
    turn_of_another: bool = False
    max_concurrency: float = -1
    launches_running: int = 0
    paused: bool = False
    why_paused: Reason = PAUSED
    provider_paused: str | None = None
    basic_objection: Reason | None = None
    objection: Reason | None = None
    tenant_limited: bool = False
    tenant_order: Reason | None = None
    tenant_full: Reason | None = None
    shortage_of_ready: Reason | None = None
    shortage: Reason | None = None
    verdict: Verdict = field(default_factory=Consider)
    agreed: bool = False
    hold: Reason | None = None

    @property
    def ready(self) -> ReadyNodes:
        found = ReadyNodes()
        for number, label in enumerate(self.ready_labels):
            node = Node(label, id=str(number))
            node.state = "ready"
            found.put(node)
        return found

    def tenant_shortage(self, nodes: Sequence[Node] | None = None) -> Reason | None:
        return self.tenant_full if nodes is None else self.shortage_of_ready

    def no_ready_node(self, labels: Sequence[str]) -> Reason:
        return NO_READY_NODE

    def screened(self, kind: RequestKind) -> Verdict:
        return self.verdict

    def held(self, kind: RequestKind) -> Reason | None:
        return self.hold

    def driver_agreed(self, kind: RequestKind) -> bool:
        return self.agreed


def judge(view: dict[str, Any], *labels: str, **fields: Any) -> Any:
    head = make("100-1", node_types=list(labels), **fields)
    return triage(RequestKind.of(head), head, View(**view))


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        # what the registry says comes first.
        ({"verdict": Leave(FIRST_CHOICE), "hold": HELD}, Leave(FIRST_CHOICE)),
        ({"verdict": Decline(POOL_DISABLED)}, Decline(POOL_DISABLED)),
        # MT-3, MT-5: what an operator holds back, whatever else there is to say of it.
        ({"hold": HELD, "ready_labels": ("small",)}, Wait(HELD)),
        ({"hold": HELD, "launches": False, "agreed": True}, Wait(HELD)),
        # nothing is asked of the driver again for requests that only a ready node can serve.
        ({"launches": False, "agreed": True}, Wait(NO_READY_NODE)),
        ({"launches": False, "agreed": True, "ready_labels": ("small",)}, Consider()),
        ({"launches": False, "agreed": False}, Consider()),
        ({"launches": True, "agreed": True}, Consider()),
    ],
)
def test_judged_by_kind(view: dict[str, Any], expected: Any) -> None:
    """A-7, MT-3, MT-5."""
    assert triage_kind(RequestKind.of(make("100-1")), View(**view)) == expected


READY: dict[str, Any] = {"ready_labels": ("small",)}
LIMITED: dict[str, Any] = {**READY, "tenant_limited": True}


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        ({}, Launch()),
        (READY, Fulfil),
        ({"sibling_serves": True, "max_concurrency": 0}, Leave(SIBLING_SERVES)),
        # a pool that could do nothing for the request has no turn to give away.
        ({"turn_of_another": True}, Leave(FIRST_CHOICE)),
        ({"turn_of_another": True, "paused": True}, Wait(PAUSED)),
        ({"turn_of_another": True, "provider_paused": "HTTP 503"}, Wait(AWAY)),
        ({"turn_of_another": True, "launches": False}, Wait(NO_READY_NODE)),
        ({"turn_of_another": True, "launches": False, **READY}, Leave(FIRST_CHOICE)),
        ({"turn_of_another": True, "paused": True, **READY}, Leave(FIRST_CHOICE)),
        # all objections are asked for only where the handler does not get to it.
        ({"max_concurrency": 0, **READY}, Decline(NO_LAUNCHES)),
        ({"objection": EXCEEDS_QUOTA}, Launch()),
        ({"basic_objection": POOL_DISABLED}, Decline(POOL_DISABLED)),
        *(
            ({"objection": EXCEEDS_QUOTA, "launches_running": 1, **stopped}, Decline(EXCEEDS_QUOTA))
            for stopped in ({"paused": True}, {"launches": False}, {"provider_paused": "x"}, {"max_concurrency": 1})
        ),
        # also with ready nodes. Those are there whether the cloud answers or not.
        ({"paused": True, **READY}, Wait(PAUSED)),
        ({"provider_paused": "HTTP 503", **READY}, Fulfil),
        ({"provider_paused": "HTTP 503"}, Wait(AWAY)),
        ({"max_concurrency": 2, "launches_running": 1}, Launch()),
        # the first one that does not fit keeps the room for itself; an order comes before a limit.
        ({"tenant_full": TENANT_FULL}, Wait(TENANT_FULL, first_of_tenant=True)),
        ({"tenant_full": TENANT_FULL, "tenant_order": ORDER}, Wait(ORDER)),
        # where others may fill the limit at the same time, it is looked at again under the lock.
        (LIMITED, Launch()),
        ({**LIMITED, "launches": False}, Fulfil),
        ({**LIMITED, "shortage_of_ready": TENANT_FULL}, Launch()),
        ({**LIMITED, "shortage_of_ready": TENANT_FULL, "provider_paused": "HTTP 503"}, Wait),
        # others than min-ready are taken at once: they pause the pool, and make room.
        ({"shortage": FULL}, Launch()),
    ],
)
def test_head_of_the_queue(view: dict[str, Any], expected: Any) -> None:
    """A-5, A-8, A-9, A-13, A-22, Q-7, Q-15."""
    verdict = judge(view, "small")
    assert isinstance(verdict, expected) if isinstance(expected, type) else verdict == expected


def test_ready_nodes() -> None:
    """N-1, N-4, A-20: in the order of the wanted labels, all of them, and only if they may be reused."""
    verdict = judge({"ready_labels": ("big", "small")}, "small", "big")
    assert isinstance(verdict, Fulfil)
    assert [node.type for node in verdict.nodes] == [["small"], ["big"]]
    assert judge({}) == Fulfil(())
    assert judge(READY, "small", reuse=False) == Launch()
    assert judge(READY, "small", "small") == Launch()
    assert judge({**READY, "launches": False}, "small", "small") == Wait(NO_READY_NODE)


@pytest.mark.parametrize("running", [2, 3])
def test_max_concurrency(running: int) -> None:
    """A-10"""
    verdict = judge({"max_concurrency": 2, "launches_running": running}, "small")
    text = "max-concurrency of 2 launches is reached"
    assert verdict == Wait(Reason(ReasonCode.WAIT_MAX_CONCURRENCY, text, {"limit": 2, "used": running}))


def test_what_keeps_nodes_ready_waits_for_room_in_the_queue() -> None:
    """Q-7, M-7: it is taken when there is room."""
    for view, expected in [
        ({"shortage": FULL}, Wait(FULL)),
        ({"shortage": FULL, "objection": EXCEEDS_QUOTA}, Decline(EXCEEDS_QUOTA)),
        ({}, Launch()),
    ]:
        assert judge(view, "small", reuse=False, requestor=MIN_READY_REQUESTOR) == expected


# -- why it failed, and what is logged again

UNKNOWN = Reason(ReasonCode.LABEL_UNKNOWN, "label(s) gpu not available in this pool")
BROKEN = Reason(ReasonCode.LABEL_BROKEN, "no such flavor")
MANY_POOLS = "p0/m, p1/m, p2/m and 97 more: images are not available"
NO_IMAGE = {f"p{number}/m": IMAGE_MISSING for number in range(100)}
ELSEWHERE = "far/main: of another launcher, whose log says why"


@pytest.mark.parametrize(
    ("reasons", "code", "text"),
    [
        ({"lab/a": UNKNOWN, "c/m": BROKEN, "far/main": None}, BROKEN.code, f"c/m: {BROKEN.text}; {ELSEWHERE}"),
        ({"lab/a": UNKNOWN, "lab/b": UNKNOWN}, UNKNOWN.code, f"lab/a, lab/b: {UNKNOWN.text}"),
        ({"lab/a": UNKNOWN, "far/main": None}, None, ELSEWHERE),
        (NO_IMAGE, IMAGE_MISSING.code, MANY_POOLS),
    ],
)
def test_why_failed(reasons: dict[str, Reason | None], code: ReasonCode | None, text: str) -> None:
    """J-3: what says most comes first; pools without the label count only if no other one may have it."""
    found = why_failed(reasons)
    assert (found.code if code else None, found.text) == (code, text)


def test_why_failed_is_bounded() -> None:
    """J-3: hundreds of pools are one line."""
    reasons = {f"p/{number}": Reason(ReasonCode.LAUNCH_FAILED, f"{number:03d}" + "x" * 1000) for number in range(100)}
    line = why_failed(reasons).text
    assert line.endswith("95 more reasons")
    assert len(line) < MAX_REASONS * (MAX_TEXT + 20)


@pytest.mark.parametrize(
    ("lasted", "expected"),
    [(0, 60), (2, 60), (60, 300), (299, 300), (301, 900), (900, 3600), (3600, 7200), (9000, 10800)],
)
def test_schedule_of_reminders(lasted: float, expected: float) -> None:
    """J-6: after 1, 5 and 15 minutes, then once an hour."""
    assert next_reminder(lasted) == expected


@pytest.mark.parametrize(
    ("looks", "expected", "next_due"),
    [
        ([(range(10), "a")], [(2, "a")], 60.0),
        (
            [(range(10), "a"), (range(10, 1000), "ab")],
            [*((2, "a"), (12, "b"), (60, "a"), (70, "b"), (300, "a"), (310, "b"), (900, "a"), (910, "b"))],
            3600.0,
        ),
        # What was not looked at for long is logged once, not once for each time that was missed.
        ([(range(0, 1002, 1000), "a")], [(1000, "a")], 3600.0),
        # What comes and goes within a minute is not logged each time; what ended is forgotten.
        ([(range(5), "a"), (range(5, 30), "")], [(2, "a")], None),
        (
            [(range(5), "a"), (range(5, 30), ""), (range(30, 50), "a"), (range(50, 51 + int(GAP_SECONDS)), "")],
            [(2, "a")],
            None,
        ),
        (
            [(range(5), "a"), (range(5, 6 + int(GAP_SECONDS)), ""), (range(200, 210), "a")],
            [(2, "a"), (202, "a")],
            260.0,
        ),
    ],
)
def test_reminders(looks: list[tuple[range, str]], expected: list[tuple[int, str]], next_due: float | None) -> None:
    """J-6: once after the first seconds, then as scheduled; each thing has its own beginning."""
    reminders: Reminders[str] = Reminders(2.0)
    found = [(now, one) for times, lasting in looks for now in times for one in reminders.due(lasting, float(now))]
    assert (found, reminders.next_due) == (expected, next_due)


def test_reasons_that_are_logged_again() -> None:
    """J-6: those of room, limits, pauses and broken providers; not those of other pools."""
    assert {ReasonCode.ROOM_CORES, ReasonCode.WAIT_POOL_PAUSED, ReasonCode.WAIT_READY_NODE} <= TOLD
    assert {ReasonCode.PROVIDER_CIRCUIT_OPEN, ReasonCode.ROOM_TENANT, ReasonCode.QUOTA_UNKNOWN} <= TOLD
    assert not {ReasonCode.TURN_OF_LABEL, ReasonCode.WAIT_ORDER, ReasonCode.REQUEST_LOCKED} & TOLD


# -- its stages


def reachable(start: Stage) -> set[Stage]:
    found: set[Stage] = set()
    more = {start}
    while more:
        found |= more
        more = {target for origin, target in MOVES if origin in found} - found
    return found


def test_moves_of_the_table() -> None:
    """Every stage is reached, and ends; the lock is held from the answer to the end."""
    assert reachable(Stage.WAITING) == set(Stage)
    assert all(Stage.DONE in reachable(stage) for stage in Stage)
    assert not [target for origin, target in MOVES if origin is Stage.DONE]
    assert all(reason and origin is not target for (origin, target), reason in MOVES.items())
    assert {origin for origin, target in MOVES if target in LOCKED and origin not in LOCKED} == {Stage.LOCKING}
    assert {target for origin, target in MOVES if origin in LOCKED and target not in LOCKED} == ENDED
    assert UNFINISHED.isdisjoint(ENDED)


@pytest.mark.parametrize("origin", Stage)
@pytest.mark.parametrize("target", Stage)
def test_only_moves_of_the_table(origin: Stage, target: Stage) -> None:
    """Listeners hear of a move after it, and only if there was one."""
    progress, heard = Progress("100-1", 0.0), list[Stage]()
    progress.stage = origin
    progress.on_move = lambda moved: heard.append(moved.stage)
    if (origin, target) in MOVES:
        progress.move(target, 1.0)
        assert (progress.stage, progress.since, heard) == (target, 1.0, [target])
    else:
        with pytest.raises(ImpossibleMove, match=f"100-1 cannot go from {origin.value} to {target.value}"):
            progress.move(target, 1.0)
        assert (progress.stage, heard) == (origin, [])


def test_story() -> None:
    """What led to an impossible move is named; the story is bounded."""
    progress = Progress("100-1", 0.0)
    assert progress.story(2.0) == "waiting since 2.0 s, without a move before"
    progress.move(Stage.LOCKING, 1.0)
    progress.move(Stage.GATHERING, 2.5)
    with pytest.raises(
        ImpossibleMove, match=r"waiting, then locking 3.0 s ago \(there is room to launch its nodes\), "
    ):
        progress.move(Stage.CHECKING, 4.0)
    assert progress.story(4.0).endswith("gathering 1.5 s ago (locked and pending)")
    turning = Progress("100-1", 0.0)
    for turn in range(STORY_MOVES):
        turning.move(Stage.DEFERRED, turn)
        turning.move(Stage.WAITING, turn)
    assert len(turning.moves) == STORY_MOVES


def test_picture_in_the_documentation() -> None:
    """`architecture.rst` shows each move, and no other."""
    text = ARCHITECTURE.read_text(encoding="utf-8")
    begin = text.index(".. moves of a request")
    lines = [line.strip() for line in text[begin : text.index("\n\n\n", begin)].splitlines()]
    shown = [line for line in lines if "->" in line]
    assert shown == [f"{origin.value} -> {target.value}: {reason}" for (origin, target), reason in MOVES.items()]
