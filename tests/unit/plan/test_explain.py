# SPDX-License-Identifier: Apache-2.0
"""`nodepool explain`: which subject a name stands for, why it is as it is, and what an operator can do about it."""

from __future__ import annotations

import json
from typing import Any

from nodepool.plan.explain import explain, explain_request, kind_of, similar
from nodepool.plan.triage import RequestKind
from tests.support.observed import FULL, like, request, timed, world
from tests.support.tables import rows


@rows(__file__, "explained")
def test_explained(subject: str, there: dict[str, Any], expected: dict[str, Any]) -> None:
    """D-9, D-10, E-3, E-4, E-5, E-6, E-7, E-9, E-10, E-11, M-4, M-7, S-17, T-13: one cause, one sentence, remedies."""
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
def test_what_a_name_stands_for(name: str, kind: str | None) -> None:
    """E-3"""
    absent = [{"host": "l1", "absent": [{"name": "cloud-2"}]}]
    seen = world({"requests": [{"labels": "wanted"}], "nodes": [{}], "pools": ["cloud-1 gpu"], "launchers": absent})
    assert kind_of(name, seen) == kind
    if kind is not None:
        answer = explain(name, kind, seen)
        assert (answer.id, answer.kind) == (name, "pool" if "/" in name else kind)
    assert [similar(text, seen) for text in ("cloud1", "zzz")] == [", did you mean 'cloud-1'?", ""]
    slashed = world({"statuses": ["eu/cloud-1", {"provider": "eu", "id": "x"}]})
    assert [slashed.provider_of(name) for name in ("eu/cloud-1/main", "eu/main", "x/y/z")] == ["eu/cloud-1", "eu", "x"]
