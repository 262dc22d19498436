# SPDX-License-Identifier: Apache-2.0
"""Answers as text."""

from __future__ import annotations

import time

import pytest

from nodepool.listing.overview import explanation_text
from nodepool.model import states
from nodepool.model.status import FailedLaunch, LaunchesStatus, LimitStatus
from nodepool.plan import explain
from nodepool.plan.observed import Observed
from tests.support.observed import NOW, component, known, node, request, seen, status, waiting


def shown(name: str, observed: Observed) -> list[str]:
    kind = explain.kind_of(name, observed)
    assert kind is not None
    return explanation_text(explain.explain(name, kind, observed), NOW).splitlines()


def observed() -> Observed:
    error = FailedLaunch("error.status", "no flavor", NOW - 65, "0000000009")
    told = status(
        "cloud-1",
        since=NOW - 61,
        waiting=[waiting("gpu")],
        limits=[
            LimitStatus("cloud", "cores", 80, 72, 8, NOW),
            LimitStatus("cloud", "ram", None, 9),
            LimitStatus("pool", "ram", 2e8, 2048),
        ],
        launches=LaunchesStatus(1, 30, 2, error),
    )
    pools = [component("cloud-1", "gpu"), component("cloud-1", "gpu", host="l2")]
    return seen(request(7), nodes=known(node(1, state=states.HOLD)), registered=pools, statuses=[told])


def test_request() -> None:
    lines = shown("200-0000000007", observed())
    assert lines[0] == ("Request 200-0000000007 waits for room in cloud-1/main: 80 of 80 cores in use, 8 more needed.")
    assert "  Age       6 min" in lines
    assert "  Reason    room.cores" in lines
    at = lines.index("Pools:")
    assert lines[at + 1] == "  cloud-1/main  waits  room.cores  for 1 min  l1  80 of 80 cores in use, 8 more needed"
    assert "  2025-11-22 10:49:48  submitted" in lines
    assert lines[lines.index("To do:") + 1 :] == [
        "  others use 8 of 80 cores of the same cloud quota",
        "  nodes on hold take room: 0000000001; nodepool delete 0000000001 frees it",
    ]


def test_node() -> None:
    lines = shown("0000000001", observed())
    assert lines[0] == "Node 0000000001 is kept on hold, without end."
    assert "  Locked         no" in lines


def test_node_on_hold() -> None:
    one = node(1, state=states.HOLD)
    one.hold(by="alice@desk", reason="bug 17", seconds=3600)
    lines = shown("0000000001", seen(nodes=known(one)))
    assert "  Held by        alice@desk" in lines
    assert "  Held until     2025-11-22 11:55:50" in lines


def test_moments_are_local_as_in_events_and_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "UTC-5")
        time.tzset()
        lines = shown("200-0000000007", observed())
    time.tzset()
    assert "  2025-11-22 15:49:48  submitted" in lines


def test_label() -> None:
    lines = shown("gpu", observed())
    assert lines[0].startswith("Label gpu is served by cloud-1/main; 0 free nodes; 1 request wants it")
    assert "  cloud-1/main  0 free  1 hold" in lines
    assert any(line.startswith("  cloud-1/main  3  gpu  t1  for 6 min") for line in lines)


def test_provider() -> None:
    lines = shown("cloud-1", observed())
    assert lines[0] == "Provider cloud-1 works; 80 of 80 cores are used."
    assert "  cloud-1/main: cores of cloud: 72 of 80, others 8, 0 free" in lines
    assert "  cloud-1/main: ram of pool: 2048 of 200000000, 199997952 free" in lines
    assert "  cloud-1/main: launches: 1 running, in 15 minutes 30 ready, 2 failed" in lines
    assert "  cloud-1/main: last failure, for 1 min: no flavor" in lines
    assert lines[lines.index("Launchers that tell no status:") + 1] == "  l2 (11.0.0): cloud-1/main"


def test_no_escape_sequence_reaches_the_terminal() -> None:
    hostile = request(7, "\x1b[31mgpu")
    assert "\x1b" not in "".join(shown(hostile.key, seen(hostile)))


def test_question() -> None:
    (line,) = shown("200-0000000007", seen(request(7, "gpus"), registered=[component("cloud-1", "gpu")]))[:1]
    assert line.endswith("did you mean 'gpu'?")
