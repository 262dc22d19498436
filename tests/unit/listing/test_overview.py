# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

from nodepool.listing.overview import Overview, as_object, as_report, capacity_table, problem_line, sentence
from nodepool.listing.table import BAD, GOOD, WAITING, Paragraph, Table, as_text, render
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.status import LimitStatus, PoolStatus, WaitingStatus
from nodepool.plan.attention import StatusProblem
from nodepool.plan.explain import LongWait, WaitCause
from nodepool.plan.observed import NodeIndex
from nodepool.plan.pool_summary import summarize

#: 2026-11-23 12:00:00 UTC
NOON = 1795435200.0
GPU = LongWait(("gpu",), WaitCause("cloud-1/main", "room.cores", "cores 80 of 80"), 9, NOON - 900, ["200-1", "200-2"])
ARM = LongWait(("arm",), WaitCause("cloud-2/main", "provider.circuit-open", "HTTP 503"), 3, NOON - 800, ["200-9"])
GONE = StatusProblem("provider", "provider cloud-2 is unavailable: HTTP 503", NOON - 7200, NOON + 12, "explain cloud-2")


def test_the_sentence() -> None:
    assert sentence([GPU, ARM], [GONE], 0) == (
        "12 requests wait longer than 5 min: 9 for gpu (cloud-1/main: cores 80 of 80), "
        "3 for arm (cloud-2/main: HTTP 503)."
    )
    one = LongWait(("a", "b"), WaitCause(text="no pool tells why"), 1, NOON, ["200-1"])
    assert sentence([one], [], 0) == "1 request waits longer than 5 min: 1 for a,b (no pool tells why)."
    long = LongWait(("a",), WaitCause(text="x" * 100), 1, NOON, ["200-1"])
    assert sentence([long], [], 0).endswith(f"1 for a ({'x' * 80}...).")
    assert sentence([GPU, ARM, one, one, one], [], 0).endswith("1 for a,b (no pool tells why), 2 for others.")


def test_the_sentence_when_nothing_waits() -> None:
    assert sentence([], [], 2) == "All is well. No request waits longer than 5 min (2 wait now)."
    assert sentence([], [GONE], 1) == "No request waits longer than 5 min (1 waits now); 1 thing needs attention."
    assert sentence([], [GONE, GONE], 0).endswith("2 things need attention.")


def test_a_problem_in_a_line() -> None:
    assert problem_line(GONE, NOON).text == (
        "- provider cloud-2 is unavailable: HTTP 503; since 10:00:00 (2 h); next try in 12 s; "
        "see: nodepool explain cloud-2"
    )
    pause = StatusProblem("maintenance", "pool a/b is paused\x1b", None, NOON + 60)
    assert problem_line(pause, NOON).text == "- pool a/b is paused ; ends in 1 min"


def test_colours() -> None:
    """What keeps requests from being served is red; what somebody wanted so is not."""
    pause = StatusProblem("maintenance", "pool a/b is paused")
    assert [style for _, style in problem_line(GONE, NOON).spans] == ["", BAD, ""]
    assert [style for _, style in problem_line(pause, NOON).spans] == ["", WAITING, ""]
    table = capacity_table([], {})
    firsts = []
    for problems, waits in (([], []), ([GONE], []), ([GONE], [GPU])):
        first = as_report(Overview("The sentence.", problems, waits, table, NOON)).parts[0]
        assert isinstance(first, Paragraph)
        firsts += [style for _, style in first.spans]
    assert firsts == [GOOD, WAITING, BAD]


def test_capacity() -> None:
    status = PoolStatus(
        host="l1",
        provider="cloud-1",
        pool="main",
        state="paused",
        waiting=(WaitingStatus(("gpu",), count=9),),
        limits=(LimitStatus("cloud", "cores", 80, 72, 8, 1.0),),
    )
    nodes = []
    for state in (states.READY, states.READY, states.IN_USE, states.HOLD, states.USED):
        nodes.append(Node("gpu", "1"))
        nodes[-1].provider, nodes[-1].pool, nodes[-1].state = "cloud-1", "main", state
    table = capacity_table(summarize([status]), NodeIndex.of(nodes).counts)
    assert [column.key for column in table.columns] == [
        *("pool", "state", "ready", "in_use", "building", "deleting", "hold", "waiting", "limiting")
    ]
    assert table.rows == [["cloud-1/main", "paused", 2, 1, 0, 0, 1, 9, "cores 72 + 8 of 80"]]


def test_as_text() -> None:
    table = Table(capacity_table([], {}).columns, [["a/b", "running", 0, 0, 0, 0, 0, 0, None]])
    lines = as_text(as_report(Overview("The sentence.", [GONE], [], table, NOON))).splitlines()
    assert lines[:3] == ["The sentence.", "", "Needs attention:"]
    assert lines[3].startswith("- provider cloud-2 is unavailable")
    assert lines[4:] == ["", "Capacity:", *render(table).splitlines()]
    nothing = Overview("The sentence.", [], [], capacity_table([], {}), NOON)
    assert as_text(as_report(nothing)) == "The sentence."


def test_as_json() -> None:
    table = Table(capacity_table([], {}).columns, [["a/b", "running", 0, 0, 0, 0, 0, 0, None]])
    told = json.loads(json.dumps(as_object(Overview("The sentence.", [GONE], [GPU], table, NOON))))
    assert told["sentence"] == "The sentence."
    assert told["waiting"] == [
        {
            "labels": ["gpu"],
            "count": 9,
            "oldest": NOON - 900,
            "pool": "cloud-1/main",
            "code": "room.cores",
            "text": "cores 80 of 80",
            "requests": ["200-1", "200-2"],
        }
    ]
    assert told["problems"] == [
        {
            "kind": "provider",
            "text": "provider cloud-2 is unavailable: HTTP 503",
            "since": NOON - 7200,
            "next": NOON + 12,
            "command": "explain cloud-2",
        }
    ]
    assert told["capacity"][0]["pool"] == "a/b"
