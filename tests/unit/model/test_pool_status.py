# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from nodepool.model.event import Event
from nodepool.model.record import InvalidRecord
from nodepool.model.status import (
    AbsentProvider,
    FailedLaunch,
    HostStatus,
    LabelStatus,
    LauncherStatus,
    LaunchesStatus,
    LimitStatus,
    PoolStatus,
    ReloadStatus,
    RequestStatus,
    WaitingStatus,
)

FULL = PoolStatus(
    id="l1-PoolWorker.cloud-1-main-1",
    host="l1",
    version="12.0.0",
    config="9f3c",
    provider="cloud-1",
    pool="main",
    driver="openstack",
    state="unavailable",
    since=1763809000.5,
    code="provider.circuit-open",
    text="HTTP 503 five times",
    next=1763809012,
    limits=(LimitStatus("cloud", "cores", 80, 72, 8, 1763809101), LimitStatus("pool", "instances", None, 3)),
    labels={"gpu": LabelStatus("label.broken", "the cloud has no flavor named 'm1.small'", 1763808000)},
    ready={"debian": 2},
    waiting=(
        WaitingStatus(
            ("debian",), None, "t1", 12, 1763808911, "room.instances", "20 of 20 instances", {"limit": 20}, 1763808912
        ),
    ),
    requests=(RequestStatus("200-0000000001", "launching", "served.launching", "its nodes are being launched", {}, 1),),
    declined=(RequestStatus("200-0000000000", "done", "label.broken", "no flavor", {}, 2),),
    launches=LaunchesStatus(5, 31, 2, FailedLaunch("error.status", "no valid host", 1763809050, "0000000123", "gpu")),
    hosts=(HostStatus("zuul@node9:22", False, "cannot connect", 1763700000, 1763809200, None, 2, ("0000000005",)),),
    omitted=3,
)


@pytest.mark.parametrize("status", [FULL, PoolStatus()])
def test_written_and_read(status: PoolStatus) -> None:
    assert PoolStatus.of_record(json.loads(json.dumps(status.to_dict()))) == status


def test_of_another_version() -> None:
    """Unknown keys are ignored, missing ones have their defaults."""
    read = PoolStatus.of_record({"id": "x", "unknown": [1], "limits": [{"scope": "pool", "new": 1}]})
    assert read == PoolStatus(id="x", limits=(LimitStatus("pool"),))


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": 1},
        {"since": "x"},
        {"since": True},
        {"since": float("inf")},
        {"omitted": 1.5},
        {"limits": {}},
        {"limits": [1]},
        {"limits": [{"limit": "x"}]},
        {"labels": []},
        {"labels": {"a": 1}},
        {"ready": {"a": "b"}},
        {"launches": None},
        {"launches": {"last_error": 1}},
        {"hosts": [{"up": "yes"}]},
    ],
)
def test_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidRecord):
        PoolStatus.of_record(wrong)


def test_documentation_has_each_key() -> None:
    """reference/zookeeper 9.1 and 9.2."""
    page = (Path(__file__).parents[3] / "doc" / "source" / "reference" / "zookeeper.rst").read_text(encoding="utf-8")
    pool, launcher = page[page.index("9.1 Pool") :].split("9.2 Launcher")
    parts = (
        PoolStatus,
        LimitStatus,
        LabelStatus,
        WaitingStatus,
        RequestStatus,
        LaunchesStatus,
        FailedLaunch,
        HostStatus,
    )
    for text, kinds in ((pool, parts), (launcher, (LauncherStatus, ReloadStatus, AbsentProvider, Event))):
        named = set(re.findall(r"``(\w+)``", text))
        for kind in kinds:
            assert named >= {field.name for field in fields(kind)}, kind
