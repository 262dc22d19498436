# SPDX-License-Identifier: Apache-2.0
"""A waiting request in a pool: its place in the queue, whether the pool serves it, and the stages that follow."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.model import reasons
from nodepool.model.reasons import Reason, ReasonCode
from nodepool.model.status import AccessRule
from nodepool.plan import triage
from nodepool.plan.explain import explain, explain_request
from nodepool.plan.observed import UnclearName, meant, similar
from nodepool.plan.triage import MIN_READY_REQUESTOR, MOVES, ImpossibleMove, Progress, ReadyNodes, RequestKind, Stage
from tests.support.observed import FULL, like, node, request, timed, world
from tests.support.tables import rows, table

ME = triage.PoolInfo("me", "cloud", frozenset({"small", "large"}), 100, paused=False)


def kind(labels: str = "small", **fields: Any) -> RequestKind:
    return RequestKind.of(request(1, node_types=labels.split(), **fields))


def pool(id: str, labels: str = "small large", **changes: Any) -> triage.PoolInfo:
    return replace(ME, id=id, labels=frozenset(labels.split()), **changes)


# -- may a pool serve a kind


@rows(__file__, "may_a_pool_serve_a_kind")
def test_may_a_pool_serve_a_kind(
    labels: str, wish: dict[str, Any], registered: list[dict[str, Any]], expected: str
) -> None:
    """A-2, A-3, A-4, A-5, A-6, A-20: the first rule that holds."""
    verdict = triage.screen(kind(labels, **wish), ME, [ME, *(pool(**other) for other in registered)])
    assert type(verdict).__name__ == expected
    missing = Reason(ReasonCode.LABEL_UNKNOWN, "label(s) gpu not available in this pool")
    assert not isinstance(verdict, triage.Decline) or verdict.reason == missing


@rows(__file__, "state_after_a_refusal")
def test_state_after_a_refusal(declined_by: list[str], registered: list[str], absent: list[str], state: str) -> None:
    """A-15: a pool whose launcher is being restarted is waited for, if it could serve the request."""
    gone = [pool(*name.split("/")) for name in absent]
    assert triage.declined_state(kind(declined_by=declined_by), registered, gone) == state


@rows(__file__, "access")
def test_access(
    rules: list[list[str]], others: dict[str, Any] | None, who: dict[str, Any], verdict: str, text: str
) -> None:
    """A-24: by the pool's own rules and those of the others; one of 11.0.0 publishes none, and must not wait."""

    def access(rules: list[list[str]] | None) -> Any:
        read = [{"tenants": tenants.split(), "labels": labels} for tenants, *labels in rules or ()]
        return AccessRule.read(None if rules is None else [{k: v for k, v in rule.items() if v} for rule in read])

    me = replace(ME, access=access(rules))
    able = [pool(name, access=access(found), priority=50) for name, found in (others or {}).items()]
    found = triage.screen(kind("small large", **who), me, [me, *able])
    assert type(found).__name__ == verdict
    assert text in getattr(found, "reason", reasons.NO_ROOM).text
    assert not isinstance(found, triage.Decline) or found.reason.code is ReasonCode.ACCESS_TENANT


def test_label_of_a_pool_that_went_a_moment_ago() -> None:
    """A-15: its launcher is being restarted: no pool declines for it, unless it had declined itself."""
    absent = [pool("restarted", "gpu")]
    assert isinstance(triage.screen(kind("gpu"), ME, [ME], absent), triage.Leave)
    assert isinstance(triage.screen(kind("gpu", declined_by=["restarted"]), ME, [ME], absent), triage.Decline)
    assert isinstance(triage.screen(kind("gpu huge"), ME, [ME], absent), triage.Decline)
    closed = [replace(absent[0], access=(AccessRule(("other",)),))]
    assert isinstance(triage.screen(kind("gpu"), ME, [ME], closed), triage.Decline)
    assert triage.screen(kind("small"), ME, [ME], absent) == triage.Consider()


# -- what a pool does with a waiting request

#: By the names that they have in the tables. Some are what the view of a pool says, whatever that is.
REASONS = {name: value for name, value in vars(reasons).items() if isinstance(value, Reason)} | {
    "AWAY": Reason(ReasonCode.PROVIDER_CIRCUIT_OPEN, "HTTP 503"),
    **{name: Reason(ReasonCode.WAIT_ORDER, name) for name in ("PAUSED", "HELD", "FULL", "TENANT_FULL", "ORDER")},
}
#: A pool with room for all that comes.
ROOM: dict[str, Any] = {
    **dict.fromkeys(("launches", "no_ready_node", "screened"), True),
    **dict.fromkeys(("sibling_serves", "turns", "paused", "tenant_limited", "agreed"), False),
    **dict.fromkeys(("provider_paused", "basic_objection", "objection", "tenant_order", "tenant_full"), None),
    **dict.fromkeys(("shortage", "shortage_of_ready", "hold"), None),
    "max_concurrency": -1,
    "launches_running": 0,
    "ready": "",
    "why_paused": REASONS["PAUSED"],
}


def view_of(change: dict[str, Any]) -> Any:
    """What triage reads of a pool.

    :param change: what is different from `ROOM`; reasons by their names, labels of ready nodes.
    """
    view = SimpleNamespace(**{name: REASONS.get(str(value), value) for name, value in {**ROOM, **change}.items()})
    word, _, name = change.get("screened", "Consider").partition(" ")
    screened = getattr(triage, word)(*([REASONS[name]] if name else []))
    view.screened = lambda _: screened
    labels, view.ready = view.ready, ReadyNodes()
    for number, label in enumerate(labels.split()):
        view.ready.put(node(number, label))
    view.held, view.driver_agreed = lambda _: view.hold, lambda _: view.agreed
    view.tenant_shortage = lambda nodes=None: view.tenant_full if nodes is None else view.shortage_of_ready
    view.no_ready_node = lambda _: reasons.NO_READY_NODE
    return view


def words(verdict: Any) -> str:
    """A verdict as the tables have it, such as ``Wait FULL``."""
    names = [name for name, reason in REASONS.items() if reason == getattr(verdict, "reason", None)]
    first = ["first"] if getattr(verdict, "first_of_tenant", False) else []
    return " ".join([type(verdict).__name__, *names, *first])


def judge(view: dict[str, Any], labels: str = "small", **fields: Any) -> Any:
    head = request(1, node_types=labels.split(), **fields)
    return triage.triage(RequestKind.of(head), head, view_of(view))


@rows(__file__, "verdicts_of_kinds")
def test_judged_by_kind(view: dict[str, Any], expected: str) -> None:
    """A-2 to A-6, A-7, MT-3, MT-5: what the registry says, then what an operator holds back, then the driver."""
    assert words(triage.triage_kind(kind(), view_of(view))) == expected


@rows(__file__, "verdicts_of_heads")
def test_head_of_the_queue(view: dict[str, Any], expected: str) -> None:
    """A-5, A-8, A-9, A-13, A-22, M-7, Q-7, Q-15."""
    fields: dict[str, Any] = {"reuse": False, "requestor": MIN_READY_REQUESTOR} if view.get("min_ready") else {}
    assert words(judge(view, **fields)) == expected


def test_ready_nodes() -> None:
    """N-1, N-4, A-20: in the order of the wanted labels, all of them, and only if they may be reused."""
    verdict = judge({"ready": "big small"}, "small big")
    assert isinstance(verdict, triage.Fulfil)
    assert [node.type for node in verdict.nodes] == [["small"], ["big"]]
    assert judge({}, "") == triage.Fulfil(())
    assert words(judge({"ready": "small"}, reuse=False)) == words(judge({"ready": "small"}, "small small")) == "Launch"
    assert words(judge({"ready": "small", "launches": False}, "small small")) == "Wait NO_READY_NODE"


@pytest.mark.parametrize("running", [2, 3])
def test_max_concurrency(running: int) -> None:
    """A-10"""
    found = judge({"max_concurrency": 2, "launches_running": running}).reason
    text = "max-concurrency of 2 launches is reached"
    assert found == Reason(ReasonCode.WAIT_MAX_CONCURRENCY, text, {"limit": 2, "used": running})


# -- why it failed, and what is logged again


@rows(__file__, "why_failed")
def test_why_failed(answers: dict[str, list[str] | None], code: str, text: str) -> None:
    """J-3: what says most comes first; pools without the label count only if no other one may have it."""
    found = triage.why_failed(
        {name: Reason(ReasonCode(told[0]), told[1]) if told else None for name, told in answers.items()}
    )
    assert (found.code.value, found.text) == (code, text)


def test_why_failed_is_bounded() -> None:
    """J-3: hundreds of pools are one line."""
    many = triage.why_failed({f"p{number}/m": reasons.IMAGE_MISSING for number in range(100)}).text
    assert many == "p0/m, p1/m, p2/m and 97 more: images are not available"
    answers = {f"p/{number}": Reason(ReasonCode.LAUNCH_FAILED, f"{number:03d}" + "x" * 1000) for number in range(100)}
    line = triage.why_failed(answers).text
    assert line.endswith("95 more reasons")
    assert len(line) < triage.MAX_REASONS * (triage.MAX_TEXT + 20)


# -- its stages


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


def test_kinds_and_their_marks() -> None:
    """E-1: a kind holds what a pool judges by; its mark is the same in each process."""
    first = kind("a b")
    assert kind("b a", relative_priority=4, event_id="e") == first
    marked: list[dict[str, Any]] = [
        *({"declined_by": ["x"]}, {"declined_by": ["x", "y"]}, {"reuse": False}),
        {"requestor": MIN_READY_REQUESTOR},
    ]
    changes: list[dict[str, Any]] = [{"provider": "p"}, {"tenant_name": "t"}, {"labels": "a a"}]
    assert all(kind(**{"labels": "a b", **change}) != first for change in [*changes, *marked])
    marks = [first.mark, *(kind(**fields).mark for fields in marked)]
    assert (len(set(marks)), marks[0]) == (len(marks), "5174456a")


@rows(__file__, "hints")
def test_hint(labels: str, hint: str) -> None:
    """J-3: of registered pools and of the configuration."""
    pools = [
        triage.PoolInfo("id", "cloud", frozenset(served.split()), 100, False, "main")
        for served in ("debian-small debian-large", "centos debian-small")
    ]
    configured = {"debian-small": False, "ubuntu-big": False, "fedora": True}
    assert triage.label_hint(labels.split(), pools, configured) == hint


# -- explanations


@rows(__file__, "explained")
def test_explained(subject: str, there: dict[str, Any], expected: dict[str, Any]) -> None:
    """D-9, D-10, E-3 to E-7, E-9 to E-16, M-4, M-7, MN-6, S-17, T-13: one cause, one sentence, remedies."""
    kind, _, name = subject.partition(" ")
    found = json.loads(json.dumps(explain(name, kind, world(there)).to_dict()))
    assert like(found, timed(expected)) == timed(expected)
    assert found["id"] == name


@rows(__file__, "remedies")
def test_remedies(codes: str, pool: dict[str, Any], there: dict[str, Any], expected: list[str]) -> None:
    """E-8, T-13: who has the room, and what ends the trouble."""
    for code in codes.split():
        waiting = {"labels": ["gpu"], "tenant": "t1", "code": code, "text": pool.get("text", "text")}
        status = {"provider": "cloud-1", **pool, "waiting": [waiting]}
        seen = world({"requests": [{}], "pools": ["cloud-1 gpu"], "statuses": [status], **there})
        (one,) = seen.requests.values()
        assert like(explain_request(one, seen).remedies, expected) == expected


def test_kinds_with_the_same_labels() -> None:
    """E-1: a request that another pool declined waits for something else than one that none has declined."""
    marks = [RequestKind.of(request(declined_by=others)).mark for others in ([], ["another"])]
    waiting = [
        {"labels": ["gpu"], "tenant": "t1", "code": code, "mark": mark}
        for code, mark in zip((FULL[0], "wait.order"), marks, strict=True)
    ]
    for declined_by, codes in (
        ([], ["room.cores"]),
        (["another"], ["wait.order"]),
        # What is known of its like.
        (["another", "and another"], ["room.cores", "wait.order"]),
    ):
        there = {"requests": [{"declined_by": declined_by}], "pools": ["cloud-1 gpu"]}
        seen = world({**there, "statuses": [{"provider": "cloud-1", "waiting": waiting}]})
        (one,) = seen.requests.values()
        assert explain_request(one, seen).code in codes


@rows(__file__, "names")
def test_what_a_name_stands_for(name: str, meaning: str | None) -> None:
    """E-3"""
    seen = world(table(__file__, "named_world"))
    if meaning and "say which" in meaning:
        with pytest.raises(UnclearName, match=re.escape(meaning)):
            meant(name, seen)
        return
    found = meant(name, seen)
    assert (found and " ".join(found)) == meaning
    if found is not None:
        kind, full = found
        told = explain(full, kind, seen).to_dict()
        assert (told["id"], told["kind"]) == (full, "image" if kind == "build" else kind)


def test_what_may_be_meant() -> None:
    """E-3"""
    seen = world(table(__file__, "named_world"))
    words = ("cloud1", "zzz", "h11", "0000000099")
    near = [", did you mean 'cloud-1'?", "", ", did you mean 'h1'?", "; no such id has been given yet"]
    assert [similar(text, seen) for text in words] == near
    assert meant("0000000001", seen, ["request"]) is None
    slashed = world({"statuses": ["eu/cloud-1", {"provider": "eu", "id": "x"}]})
    assert [slashed.provider_of(name) for name in ("eu/cloud-1/main", "eu/main", "x/y/z")] == ["eu/cloud-1", "eu", "x"]
