# SPDX-License-Identifier: Apache-2.0
"""`nodepool status`: pools of several launchers as one, what waits for long, what needs attention, and events."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from nodepool.model.event import Event
from nodepool.model.status import LauncherComponent, LimitStatus
from nodepool.plan.attention import merged, pool_events, problems
from nodepool.plan.explain import causes, long_waits
from nodepool.plan.observed import ownerless
from nodepool.plan.pool_summary import by_provider, free, fullness, limit_owner, limiting, newest_limits, summarize
from tests.support.observed import NOW, like, request, status_of, timed, world
from tests.support.tables import rows

# -- several launchers (OV-3)


@rows(__file__, "summaries")
def test_summaries(statuses: list[Any], expected: list[dict[str, Any]]) -> None:
    """OV-3"""
    found = summarize(map(status_of, statuses))
    assert like(json.loads(json.dumps([asdict(one) for one in found])), timed(expected)) == timed(expected)
    assert sum(map(len, by_provider(found).values())) == len(found)


@rows(__file__, "free_of_a_limit")
def test_what_is_free(limit: float | None, used: float, others: float, left: float | None, part: float) -> None:
    """OV-3"""
    cores = LimitStatus("pool", "cores", limit, used, others)
    assert (free(cores), round(fullness(cores), 9)) == (left, part)


def test_limits() -> None:
    """OV-3: the newest answer of a cloud counts; the fullest limit is named, but not those of launches and tenants."""
    old, new = LimitStatus("cloud", "cores", 80, 1, 0, 100.0), LimitStatus("cloud", "cores", 90, 1, 0, 200.0)
    pool = LimitStatus("pool", "instances", 20, 3)
    assert (newest_limits([old, pool, new]), newest_limits([new, old])) == ([new, pool], [new])
    cores, ram = LimitStatus("cloud", "cores", 80, 40), LimitStatus("cloud", "ram", 100, 51)
    others = [LimitStatus("provider", "launches", 1, 1), LimitStatus("tenant:t1", "cores", 1, 1)]
    assert limiting([cores, ram, LimitStatus("pool", "instances", None, 99), *others]) == ram
    assert (limiting([LimitStatus("pool", "instances")]), limiting([cores, *others])) == (None, cores)
    (summary,) = summarize([status_of("cloud")])
    owners = [limit_owner(summary, LimitStatus(scope)) for scope in ("pool", "provider", "cloud", "tenant:t1")]
    assert owners == ["cloud/main", "cloud", "cloud", "t1"]


# -- what waits for long (OV-1)


@rows(__file__, "long_waits")
def test_long_waits(requests: list[Any], statuses: list[Any], expected: list[dict[str, Any]]) -> None:
    """OV-1"""
    pools = [{"provider": "cloud", "labels": "gpu a b"}] if statuses else []
    found = long_waits(world({"requests": requests, "pools": pools, "statuses": statuses}))
    assert like(json.loads(json.dumps([asdict(one) for one in found])), timed(expected)) == timed(expected)


def test_cause_of_each_request() -> None:
    """What is served has a cause of its own; of those that wait for the same, one is explained. Fulfilled: none."""
    waiting = {"labels": ["gpu"], "tenant": "t1", "code": "room.cores", "text": "full"}
    served = {"id": "200-0000000003", "stage": "launching", "code": "served.launching", "text": "launched"}
    there = {"pools": ["cloud gpu"], "statuses": [{"provider": "cloud", "waiting": [waiting], "requests": [served]}]}
    requests = [request(1), request(2), request(3, state="pending"), request(4, state="fulfilled")]
    found = causes(requests, world(there))
    assert {key[-1]: cause.text for key, cause in found.items()} == {"1": "full", "2": "full", "3": "launched"}


# -- what needs attention (OV-2)


@rows(__file__, "attention")
def test_attention(there: dict[str, Any], registered: list[str], expected: list[dict[str, Any]]) -> None:
    """D-9, D-10, E-10, OV-2, OV-8, S-17"""
    seen = world({"launchers": [{"host": "l1", "version": "12.0.0", "config": "9f3c"}], **there})
    known = [LauncherComponent(*text.split()) for text in registered]
    found = [asdict(problem) for problem in problems(summarize(seen.statuses), known, seen)]
    assert like(found, timed(expected)) == timed(expected)


# -- what no running daemon manages (OV-8)


@rows(__file__, "ownerless")
def test_ownerless(there: dict[str, Any], expected: list[dict[str, Any]]) -> None:
    """OV-8"""
    found = list(ownerless(world({"pools": ["lab arm"], **there})))
    told = [{name: getattr(one, name) for name in ("kind", "name", "left", "text", "remedy")} for one in found]
    assert like(told, expected) == expected


# -- events (OV-4, OV-5)


@rows(__file__, "events")
def test_events(before: dict[str, Any] | None, after: dict[str, Any], expected: list[dict[str, Any]]) -> None:
    """OV-4"""
    old = None if before is None else status_of({"provider": "cloud", **before})
    found = [event.to_dict() for event in pool_events(old, status_of({"provider": "cloud", **after}), NOW)]
    assert like(found, timed(expected)) == timed(expected)


def test_merged_events() -> None:
    """OV-5: what all launchers see is one event; one that comes back is not; older ones are left out."""
    events = [Event(at, actor, "provider a", "unavailable") for at, actor in [(2, "l2"), (1, "l1"), (3, "l2")]]
    assert merged(events) == [Event(1, "l1, l2", "provider a", "unavailable")]
    many = [Event(1, f"l{number}", "provider a", "unavailable") for number in range(5)]
    assert merged(many)[0].actor == "l0, l1, l2 and 2 more"
    turns = [(1, "unavailable"), (2, "available"), (3, "unavailable"), (90, "unavailable")]
    flapping = [Event(at, "l1", "provider a", what) for at, what in turns]
    assert merged(flapping[::-1]) == flapping
    assert merged([Event(1, "l1", "x 1"), Event(2, "l1", "x 2")], since=2) == [Event(2, "l1", "x 2")]
