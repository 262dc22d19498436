# SPDX-License-Identifier: Apache-2.0
"""What a pool shows of itself: its record, how much of it is stored, its launches, what waits (rules W, J-6)."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.launcher.pool.desk import Desk, Explanation, Snapshot, WaitingKind
from nodepool.launcher.pool.handlers import AGE_SECONDS, MAX_ERRORS, USUAL_OF, LaunchLog
from nodepool.launcher.pool.status import (
    HOST_SECONDS,
    MAX_BYTES,
    MAX_DECLINED,
    MAX_ENTRIES,
    MAX_HOST_SECONDS,
    MAX_KINDS,
    MAX_REQUESTS,
    PoolStatusMaker,
    StatusSources,
    bounded,
)
from nodepool.launcher.pool.worker import FIRST_SECONDS, MAX_LINES, WaitingLines
from nodepool.logconfig import get_annotated_logger
from nodepool.model import reasons
from nodepool.model.maintenance import Maintenance, Mode
from nodepool.model.quota import QuotaInformation
from nodepool.model.reasons import NEXT_PASS, Reason, ReasonCode
from nodepool.model.request import NodeRequest
from nodepool.model.status import (
    FailedLaunch,
    HostStatus,
    LabelStatus,
    LaunchesStatus,
    LaunchStatus,
    LimitStatus,
    PauseStatus,
    PoolStatus,
    RequestStatus,
)
from nodepool.plan.queue import RequestKind, RequestQueue
from nodepool.plan.request_stage import Progress, Stage
from tests.support.manual_clock import ManualClock, monotonic_clock
from tests.unit.launcher.conftest import home

FULL = Reason(ReasonCode.ROOM_INSTANCES, "20 of 20 instances", {"limit": 20, "used": 20, "needed": 1})
KIND = RequestKind(("small",), None, frozenset(), "tenant", reuse=True, min_ready=False)
POOL_LIMIT = LimitStatus("main", "instances", 20, 18)


def request(number: int, stage: Stage = Stage.LAUNCHING, reason: Reason = NEXT_PASS) -> Explanation:
    return Explanation(f"200-{number:010}", stage, reason, float(number))


def waiting(reason: Reason, since: float, count: int = 3) -> Snapshot:
    return Snapshot({}, [(KIND, count, WaitingKind(reason, since))], [], [])


class Site:
    """A pool whose state the test sets, and the maker of its status."""

    name, LAUNCHES = "cloud", True

    def __init__(self) -> None:
        self.pause: PauseStatus | None = None
        self.label_errors: dict[str, LabelStatus] = {}
        self.hosts: list[HostStatus] = []
        self.snapshot = Snapshot({}, [], [], [])
        self.tenant_limits: dict[str, dict[str, float]] = {}
        self.launching: list[LaunchStatus] = []
        self.context = SimpleNamespace(
            launcher_id="host-1",
            provider_name="cloud",
            pool_name="main",
            has_provider=True,
            hold=None,
            provider=self,
            config=SimpleNamespace(driver=SimpleNamespace(name="openstack")),
            labels=frozenset({"small", "gpu"}),
            max_concurrency=-1,
            launches_running=lambda: 5,
            tenant_limits=lambda: self.tenant_limits,
        )
        sources = StatusSources(
            cast(Any, SimpleNamespace(snapshot=lambda: self.snapshot)),
            launches=lambda: LaunchesStatus(1, 2, 3),
            launching=lambda: self.launching,
            usual=lambda label: 4.0,
            oldest=lambda kind: 7.0,
            ready=lambda: {"small": 2, "none": 0},
            tenant_use=lambda tenant: QuotaInformation(cores=3),
        )
        self.make = PoolStatusMaker(cast(Any, self.context), sources, "l1", "12.0.0", lambda: "0123456789ab").make

    def limitStatus(self, pool_name: str) -> list[LimitStatus]:
        return [POOL_LIMIT]

    def labelErrors(self) -> dict[str, LabelStatus]:
        return self.label_errors

    def missingInstances(self) -> dict[str, float]:
        return {"0000000002": 3.0, "0000000001": 2.0}

    def otherInstallations(self) -> dict[str, int]:
        return {"fedcba9876543210": 3}

    def hostStatus(self) -> list[HostStatus]:
        return self.hosts

    def pauseStatus(self) -> PauseStatus | None:
        return self.pause


@pytest.fixture
def site() -> Site:
    return Site()


def test_states(site: Site) -> None:
    """W-2, MT-3: each with its cause, and since when; what an operator did comes first."""
    paused = [request(2, Stage.PAUSED, FULL), request(1, Stage.PAUSED, FULL), request(0)]
    circuit = PauseStatus("provider.circuit-open", "HTTP 503", 6.0, 12.0)
    hold = Maintenance("provider", "cloud", Mode.PAUSE, "network", "alice@desk", 7.0, 99.0)
    held = "provider cloud is paused by alice@desk: network"
    for now, requests, pause, maintenance, expected in (
        (5.0, paused, None, None, ("paused", "room.instances", FULL.text, 5.0, None)),
        (7.0, paused, None, None, ("paused", "room.instances", FULL.text, 5.0, None)),
        (8.0, paused, circuit, None, ("unavailable", "provider.circuit-open", "HTTP 503", 6.0, 12.0)),
        (9.0, paused, replace(circuit, since=0.0, next=None), None, (*circuit_state(circuit), 6.0, None)),
        (9.5, paused, circuit, hold, ("maintenance", "provider.paused", held, 7.0, 99.0)),
        (10.0, [], None, None, ("running", None, None, 10.0, None)),
    ):
        site.snapshot, site.pause, site.context.hold = Snapshot({}, [], requests, []), pause, maintenance
        made = site.make(now)
        assert (made.state, made.code, made.text, made.since, made.next) == expected


def circuit_state(pause: PauseStatus) -> tuple[str, str, str]:
    return "unavailable", pause.code, pause.text


def test_many(site: Site) -> None:
    """W-7: the oldest of those that are served, the newest of those that were declined, the first kinds."""
    many = [request(number) for number in range(MAX_REQUESTS + 50)]
    kinds = [(KIND._replace(tenant_name=str(number)), 1, WaitingKind(FULL, 1.0)) for number in range(MAX_KINDS + 5)]
    site.snapshot = Snapshot({}, [], many, many)
    made = site.make(5.0)
    assert [shown.since for shown in made.requests] == list(range(len(made.requests)))
    assert (made.declined[-1].id, len(made.declined) <= MAX_DECLINED) == (many[-1].request_id, True)
    assert made.omitted >= 50
    site.snapshot = Snapshot({}, kinds, [], [])
    made = site.make(5.0)
    assert len(made.waiting) + made.omitted == MAX_KINDS + 5


@pytest.mark.parametrize(("count", "seconds"), [(100, 100 * HOST_SECONDS), (1000, MAX_HOST_SECONDS)])
def test_hosts(site: Site, count: int, seconds: float) -> None:
    """W-7, W-8, W-9: those with trouble come first, as the others may be cut; many are not asked for each time."""
    well, unknown = HostStatus("a", True), HostStatus("b")
    held, down = HostStatus("c", True, quarantine="alice: disk"), HostStatus("d", False)
    site.hosts = [well, unknown, held, down, HostStatus("of another pool", False, pool="other")]
    assert site.make(5.0).hosts == [unknown, held, down, well]
    many = site.hosts = [HostStatus(str(number), True) for number in range(count)]
    site.make(1000.0)
    site.hosts = []
    assert site.make(1000.0 + seconds * 0.99).hosts == many[:MAX_ENTRIES]
    assert site.make(1000.0 + seconds * 1.01).hosts == []


def stored(number: int, text: str = "") -> RequestStatus:
    return RequestStatus(f"200-{number:010}", "done", "label.unknown", text)


def test_size() -> None:
    """W-7: of declined requests the last ones stay, of others the first; the longest list or mapping is cut."""
    small = PoolStatus(requests=[stored(1)], hosts=[HostStatus("a")])
    assert bounded(small) is small
    entries = [stored(number) for number in range(MAX_ENTRIES + 5)]
    found = bounded(PoolStatus(requests=entries, declined=entries, omitted=2))
    assert (found.requests, found.declined, found.omitted) == (entries[:MAX_ENTRIES], entries[5:], 12)
    long = [stored(number, "x" * 2000) for number in range(150)]
    labels = {f"label-{number}": LabelStatus("label.broken", "x" * 300, 1.0) for number in range(500)}
    for status in (PoolStatus(declined=long, requests=long[:3]), PoolStatus(labels=labels, ready={"a": 1})):
        found = bounded(status)
        assert 0 < len(json.dumps(found.to_dict())) <= MAX_BYTES
        assert (found.requests, found.ready) == (status.requests, status.ready)
        assert found.omitted == len(status.declined) + len(status.labels) - len(found.declined) - len(found.labels)
        assert found.declined[-1:] == status.declined[-1:]
        assert found.declined or found.labels
    found = bounded(PoolStatus(requests=[stored(1, "x" * MAX_BYTES)] * 200))
    assert (found.requests, found.omitted) == ([], 200)


# -- launches of the last 15 minutes


def test_launch_log() -> None:
    """W-6: what is old is not counted; nothing is lost when the time is set back."""
    clock = ManualClock()
    log = LaunchLog(clock)
    log.ready("small")
    log.failed("1", "small", "error.status", "the server is\nin state ERROR")
    error = FailedLaunch("error.status", "the server is in state ERROR", clock(), "1", "small")
    assert log.status(3) == LaunchesStatus(3, 1, 1, error)
    clock.pass_seconds(AGE_SECONDS / 2)
    log.ready()
    assert log.status(0) == LaunchesStatus(0, 2, 1, error)
    clock.pass_seconds(AGE_SECONDS / 2 + 1)
    assert log.status(0) == LaunchesStatus(0, 1, 0, None)
    clock.pass_seconds(AGE_SECONDS)
    assert log.status(0) == LaunchesStatus()
    log.ready()
    clock.pass_seconds(-3600)
    for _ in range(100):
        log.ready()
    assert log.status(0).ok_15m == 101
    assert len(log._spans) == 2, "one count for each span; what it keeps has no public name"


def test_errors_and_usual_times_of_launches() -> None:
    """J-3, W-6: the last error of each of the last nodes; the median of the last launches of a label."""
    clock = ManualClock()
    log = LaunchLog(clock)
    for number in range(MAX_ERRORS + 2):
        log.failed(str(number), "small", "error.status", f"first of {number}")
    log.failed("5", "small", "error.quota", "the last one")
    assert [log.error_of(node) for node in ("5", "6", "0", "1")] == ["the last one", "first of 6", "", ""]
    for seconds, usual in ((2.0, None), (100.0, None), (4.0, 4.0), *((9.0, ...),) * USUAL_OF):
        log.ready("small", clock() - seconds)
        assert usual is ... or log.usual("small") == usual
    log.ready("large", clock() - 60.0)
    assert (log.usual("small"), log.usual("large")) == (9.0, None)


# -- why requests wait


class Lines:
    """A pool and its passes; what waits, and for what, is up to the test."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock, self.queue, self.requests = clock, RequestQueue(), dict[str, NodeRequest]()
        self.desk = Desk(self.queue)
        place = cast(Any, SimpleNamespace(cache=SimpleNamespace(requests=self.requests)))
        self.lines = WaitingLines(place, self.desk, self.queue, logging.getLogger("test.lines"))

    def add(self, number: int, label: str = "small") -> NodeRequest:
        request = NodeRequest(f"200-{number:04d}")
        request.node_types, request.created_time = [label], self.clock.now
        request.event_id, request.requestor_data = f"e{number}", {"job_name": "unit"}
        self.requests[request.key] = request
        self.queue.put(request)
        return request

    def run_pass(self, seconds: float = 0.0, reason: Reason = FULL) -> None:
        self.clock.pass_seconds(seconds)
        self.desk.explanations.begin_pass()
        for bucket in self.queue.buckets():
            self.desk.explanations.waits(bucket.kind, reason)
        self.lines.tell()


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Lines:
    caplog.set_level(logging.INFO, "test.lines")
    clock = monotonic_clock(monkeypatch, home(WaitingLines))
    monkeypatch.setattr(home(WaitingLines), "wall_time", clock)
    return Lines(clock)


def test_request_that_waits(pool: Lines, caplog: pytest.LogCaptureFixture) -> None:
    """J-6: a line with ids, age, cause and origin; the next one after a minute. The pool looks when it is time."""
    request = pool.add(1)
    pool.run_pass()
    assert caplog.messages == []
    assert pool.lines.next_look() == pytest.approx(FIRST_SECONDS)
    pool.run_pass(FIRST_SECONDS)
    line = f"[e: e1] [node_request: 200-0001] Waiting for 2 s: {FULL.text} (small; job unit)"
    assert caplog.messages == [line]
    assert (vars(caplog.records[0])["code"], vars(caplog.records[0])["job"]) == ("room.instances", "unit")
    pool.run_pass(50)
    assert len(caplog.messages) == 1
    pool.run_pass(pool.lines.next_look() or 0.0)
    assert caplog.messages[1:] == [line.replace("for 2 s", "for 60 s")]
    del pool.requests[request.key]
    pool.run_pass(100)
    pool.queue.discard(request.key)
    pool.run_pass(100)
    assert (len(caplog.messages), pool.lines.next_look()) == (2, None)


def test_many_that_wait(pool: Lines, caplog: pytest.LogCaptureFixture) -> None:
    """J-6: one line for a kind, about the oldest; hundreds of kinds are not hundreds of lines."""
    for number in range(12):
        pool.add(number)
    for number in range(12, 12 + MAX_LINES + 6):
        pool.add(number, f"label{number}")
    pool.run_pass()
    pool.run_pass(FIRST_SECONDS)
    assert caplog.messages[0].startswith("[e: e0] [node_request: 200-0000] Waiting for 2 s with 11 later ones: ")
    assert (len(caplog.messages), caplog.messages[-1]) == (MAX_LINES + 1, "Waiting: requests of 7 more kinds")


def test_wait_for_another_pool(pool: Lines, caplog: pytest.LogCaptureFixture) -> None:
    """J-6: it has no line, and is no reason to look."""
    pool.add(1)
    for seconds in (0.0, 100.0, 1000.0):
        pool.run_pass(seconds, reasons.FIRST_CHOICE)
    assert (caplog.messages, pool.lines.next_look()) == ([], None)


def test_request_that_pauses_the_pool(pool: Lines, caplog: pytest.LogCaptureFixture) -> None:
    """J-6: its line was written when that began, see Q-9; again after a minute."""
    request = pool.add(1)
    log = get_annotated_logger(logging.getLogger("test.lines"), node_request_id=request.id)
    handler = cast(Any, SimpleNamespace(request=request, progress=Progress(request.key, pool.clock.now), log=log))
    pool.desk.open(handler, Stage.LOCKING)
    pool.desk.move(request.key, Stage.GATHERING)
    handler.progress.move(Stage.PAUSED, pool.clock.now, FULL)
    for seconds in (0.0, 30.0, 29.0, 1.0, 30.0):
        pool.run_pass(seconds)
    assert caplog.messages == [f"[node_request: 200-0001] Pausing for 60 s already: {FULL.text}"]
