# SPDX-License-Identifier: Apache-2.0
"""What a pool shows of itself: its record, how much of it is stored, its launches, what waits (rules W, J-6)."""

from __future__ import annotations

import json
import logging

import pytest

from nodepool.driver.fake import FakeProvider
from nodepool.driver.fake.cloud import FakeCloud
from nodepool.launcher.pool.desk import AGE_SECONDS, MAX_CONSOLE_BYTES, MAX_CONSOLES, MAX_ERRORS, USUAL_OF, LaunchLog
from nodepool.launcher.pool.worker import AGAIN_SECONDS, FIRST_SECONDS, PoolWorker, WaitingLines
from nodepool.launcher.status import HOST_SECONDS, MAX_BYTES, MAX_ENTRIES, MAX_HOST_SECONDS, PoolStatusMaker, bounded
from nodepool.model import status
from tests.support.local_launcher import fake_provider
from tests.support.manual_clock import ManualClock, monotonic_clock
from tests.support.pool_znodes import PoolZnodes
from tests.support.still_launcher import StillLauncher
from tests.unit.launcher.conftest import Log, Patch, Still, home


@pytest.fixture
def launcher(still: Still, cloud_name: str, cloud: FakeCloud) -> StillLauncher:
    """Its pool has room for one node."""
    return still([fake_provider("one", ("small", "big"), cloud=cloud_name, pool_max_servers=1)])


@pytest.fixture
def worker(launcher: StillLauncher) -> PoolWorker:
    return launcher.worker()


def fill(launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes, *labels: str) -> list[str]:
    """The pool has its node; requests for these labels wait, the first of them with a pause of the pool."""
    first = znodes.submit(["small"])
    launcher.passes(worker, "the node is there", lambda: znodes.request_state(first) == "fulfilled")
    ids = [znodes.submit([label], event_id=f"e{number}") for number, label in enumerate(labels)]
    launcher.passes(worker, "it is full", lambda: worker.desk.paused and len(worker.queue) == len(ids) - 1)
    return ids


# -- the record


def test_states(launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes, monkeypatch: Patch) -> None:
    """W-2, MT-3: each with its cause, and since when. Nothing is another one when nothing changed."""
    make = PoolStatusMaker(worker.context).make
    running = make(1.0)
    assert (running.state, running.code, running.since, make(5.0)) == ("running", None, 1.0, running)
    fill(launcher, worker, znodes, "small")
    paused = make(6.0)
    assert (paused.state, paused.code, paused.since) == ("paused", "room.instances", 6.0)
    assert make(7.0) == paused
    for now, pause, since, after in (
        (8.0, status.PauseStatus("provider.circuit-open", "HTTP 503", 6.5, 12.0), 6.5, 12.0),
        (9.0, status.PauseStatus("provider.circuit-open", "HTTP 504"), 6.5, None),
    ):
        monkeypatch.setattr(FakeProvider, "pauseStatus", lambda _: pause)  # noqa: B023
        found = make(now)
        assert (found.state, found.code, found.text, found.since, found.next) == (
            *("unavailable", pause.code, pause.text, since),
            after,
        )


def test_hosts(worker: PoolWorker, monkeypatch: Patch) -> None:
    """W-7, W-8, W-9: those with trouble come first, as the others may be cut; many are not asked for each time."""
    well, unknown = status.HostStatus("a", True), status.HostStatus("b")
    held, down = status.HostStatus("c", True, quarantine="alice: disk"), status.HostStatus("d", False)
    hosts = [well, unknown, held, down, status.HostStatus("of another pool", False, pool="other")]
    monkeypatch.setattr(FakeProvider, "hostStatus", lambda _: hosts)
    make = PoolStatusMaker(worker.context).make
    assert make(5.0).hosts == [unknown, held, down, well]
    for begin, count, seconds in ((1000.0, 100, 100 * HOST_SECONDS), (2000.0, 1000, MAX_HOST_SECONDS)):
        many = hosts = [status.HostStatus(str(number), True) for number in range(count)]
        make(begin)
        hosts = []
        assert make(begin + seconds * 0.99).hosts == many[:MAX_ENTRIES]
        assert make(begin + seconds * 1.01).hosts == []


def test_slots(launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes, monkeypatch: Patch) -> None:
    """Slots of hosts in service are a limit; a slot is free if its node is ready and no request has it."""
    request = znodes.submit(["small"])
    launcher.passes(worker, "the node is there", lambda: znodes.request_state(request) == "fulfilled")
    taken = [node.key for node in worker.context.cache.nodes.values()]
    hosts = [status.HostStatus("a", True, slots=3, nodes=taken), status.HostStatus("b", False, slots=9)]
    monkeypatch.setattr(FakeProvider, "hostStatus", lambda _: hosts)
    assert PoolStatusMaker(worker.context).make(5.0).limits[-1] == status.LimitStatus("pool", "slots", 3, 1)


def stored(number: int, text: str = "") -> status.RequestStatus:
    return status.RequestStatus(f"200-{number:010}", "done", "label.unknown", text)


def test_size() -> None:
    """W-7: of declined requests the last ones stay, of others the first; the longest list or mapping is cut."""
    small = status.PoolStatus(requests=[stored(1)], hosts=[status.HostStatus("a")])
    assert bounded(small) is small
    entries = [stored(number) for number in range(MAX_ENTRIES + 5)]
    found = bounded(status.PoolStatus(requests=entries, declined=entries, omitted=2))
    assert (found.requests, found.declined, found.omitted) == (entries[:MAX_ENTRIES], entries[5:], 12)
    long = [stored(number, "x" * 2000) for number in range(150)]
    labels = {f"label-{number}": status.LabelStatus("label.broken", "x" * 300, 1.0) for number in range(500)}
    declined = status.PoolStatus(declined=long, requests=long[:3])
    for told in (declined, status.PoolStatus(labels=labels, missing={"a": 1})):
        found = bounded(told)
        assert 0 < len(json.dumps(found.to_dict())) <= MAX_BYTES
        assert (found.requests, found.missing) == (told.requests, told.missing)
        assert found.omitted == len(told.declined) + len(told.labels) - len(found.declined) - len(found.labels)
        assert found.declined[-1:] == told.declined[-1:]
        assert found.declined or found.labels
    found = bounded(status.PoolStatus(requests=[stored(1, "x" * MAX_BYTES)] * 200))
    assert (found.requests, found.omitted) == ([], 200)


# -- launches of the last 15 minutes


def test_errors_and_usual_times_of_launches(monkeypatch: Patch) -> None:
    """J-3, W-6: the last error of each of the last nodes; the median of the last launches of a label."""
    clock, log = ManualClock(), LaunchLog()
    monkeypatch.setattr(home(LaunchLog), "wall_time", clock)
    for number in range(MAX_ERRORS + 2):
        log.failed(str(number), "small", "error.status", f"first of {number}")
    log.failed("5", "small", "error.quota", "the last one")
    assert [log.error_of(node) for node in ("5", "6", "0", "1")] == ["the last one", "first of 6", "", ""]
    for seconds, usual in ((2.0, None), (100.0, None), (4.0, 4.0), *((9.0, ...),) * USUAL_OF):
        log.ready("small", clock() - seconds)
        assert usual is ... or log.usual("small") == usual
    log.ready("large", clock() - 60.0)
    assert (log.usual("small"), log.usual("large")) == (9.0, None)


def test_lines(
    launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes, monkeypatch: Patch, caplog: Log
) -> None:
    """J-6: for each kind a line about the oldest, with ids, cause and origin; the next one ten minutes later."""
    clock = monotonic_clock(monkeypatch, home(WaitingLines), now=1e6)
    _, oldest, *_ = fill(launcher, worker, znodes, "small", "small", "small")
    caplog.set_level(logging.INFO)

    def lines(seconds: float) -> list[str]:
        """What a pass logs, a while later."""
        clock.pass_seconds(seconds)
        caplog.clear()
        launcher.settle()
        worker.run_once()
        return [text for text in caplog.messages if "Waiting" in text]

    assert lines(FIRST_SECONDS) == []
    (first,) = lines(FIRST_SECONDS)
    assert first.startswith(f"[e: e1] [node_request: {oldest}] Waiting for ")
    assert first.endswith(" (small; job job, tenant tenant)")
    assert lines(AGAIN_SECONDS - 1) == []
    assert len(lines(1)) == 1


def test_many(launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes, monkeypatch: Patch) -> None:
    """W-5, W-7: the kinds that are known for longest, and the last ones that were declined; the others are counted."""
    fill(launcher, worker, znodes, "small", "small")
    # After a pass has seen the others: which kind of those that come with one pass is the first one is not fixed.
    for label in ("big", "gpu", "gpu", "gpu"):
        znodes.submit([label])
    launcher.passes(worker, "they are declined", lambda: len(worker.desk.snapshot().declined) == 3)
    for name in ("MAX_KINDS", "MAX_DECLINED"):
        monkeypatch.setattr(home(PoolStatusMaker), name, 1)
    make = PoolStatusMaker(worker.context).make
    found = make(5.0)
    ((kind,), (last,)) = found.waiting, found.declined
    snapshot = worker.desk.snapshot()
    assert (kind.labels, kind.count) == (snapshot.kinds[0][0].labels, snapshot.kinds[0][1])
    assert (kind.code, kind.tenant) == ("wait.pool-paused", "tenant")
    assert last.id == snapshot.declined[-1].request_id
    assert found.omitted == 1
    monkeypatch.setattr(home(PoolStatusMaker), "MAX_REQUESTS", 0)
    assert (make(6.0).requests, make(6.0).omitted) == ([], 2)


def test_launch_log(monkeypatch: Patch) -> None:
    """W-6: what is old is not counted; nothing is lost when the time is set back."""
    clock, log = ManualClock(), LaunchLog()
    monkeypatch.setattr(home(LaunchLog), "wall_time", clock)
    log.ready("small")
    log.failed("1", "small", "error.status", "the server is\nin state ERROR")
    error = status.FailedLaunch("error.status", "the server is in state ERROR", clock(), "1", "small")
    assert log.status(3) == status.LaunchesStatus(3, 1, 1, error)
    clock.pass_seconds(AGE_SECONDS / 2)
    log.ready()
    assert log.status(0) == status.LaunchesStatus(0, 2, 1, error)
    clock.pass_seconds(AGE_SECONDS / 2 + 1)
    assert log.status(0) == status.LaunchesStatus(0, 1, 0, None)
    clock.pass_seconds(AGE_SECONDS)
    assert log.status(0) == status.LaunchesStatus()
    log.ready()
    clock.pass_seconds(-3600)
    for _ in range(100):
        log.ready()
    assert log.status(0).ok_15m == 101


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("\x1b[31mred\x1b[0m\r\n\x1b[2J\x1bclogin:\x07 \x9b1m\n", "red\nlogin:   1m"),
        ("\udce4\x00panic", "panic"),
        ("ä" * 5000, "ä" * (MAX_CONSOLE_BYTES // 2)),
        ("€" * 5000, "€" * (MAX_CONSOLE_BYTES // 3)),
        ("\x1b[" * 99999, ""),
    ],
)
def test_consoles(text: str, kept: str) -> None:
    """L-16: what a terminal shows, of the last nodes; escapes and characters are not cut."""
    log = LaunchLog()
    for number in range(MAX_CONSOLES):
        log.keep_console(str(number), "old")
    log.keep_console("new", text)
    assert log.consoles() == {**{str(number): "old" for number in range(1, MAX_CONSOLES)}, "new": kept}
