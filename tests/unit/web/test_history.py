# SPDX-License-Identifier: Apache-2.0
"""What ``nodepool-web`` keeps: samples, lives, and their file; in virtual time."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.reasons import ReasonCode
from nodepool.model.request import NodeRequest
from nodepool.model.status import FailedLaunch, LaunchesStatus, LimitStatus, RequestStatus
from nodepool.plan.explain import wait_kind
from nodepool.plan.triage import MIN_READY_REQUESTOR
from nodepool.web import history
from nodepool.web.history import MOST_BYTES, MOST_ENDED, MOST_OPEN, MOST_STATES, STEPS, History, HistoryWorker, Life
from nodepool.web.snapshot import WebSnapshot
from tests.support import observed
from tests.support.manual_clock import ManualClock
from tests.support.observed import NOW
from tests.support.web_records import HOSTILE
from tests.support.web_site import GivenSnapshots, WebSite

REQUEST, NODE = "200-0000000007", "0000000001"


class Keeper:
    """A history with its worker, whose passes the test makes; time stands still between them.

    :param path: of the file.
    """

    def __init__(self, path: Path, now: float = NOW) -> None:
        self.clock = ManualClock(now).rules("time")
        self.history = History()
        self.snapshots = GivenSnapshots(WebSnapshot(0, observed.seen()))
        self.worker = HistoryWorker(self.history, self.snapshots, str(path))

    @property
    def now(self) -> float:
        return self.clock.now

    def passes(self, seconds: float = 0.0, **fields: Any) -> None:
        """A pass after so many seconds.

        :param fields: what is seen from now on, see `observed.seen`.
        """
        self.clock.now += seconds
        seen = observed.seen(*fields.pop("requests", ()), **fields) if fields else self.snapshots.snapshot.observed
        self.snapshots.snapshot = WebSnapshot(0, seen.at(self.now))
        self.worker.run_once()

    def note(self, *records: Node | NodeRequest) -> None:
        """Records have changed."""
        for one in records:
            self.history.note("node" if isinstance(one, Node) else "request", one.key, one)
        self.passes()

    def remove(self, kind: str, *ids: str) -> None:
        """Records were removed."""
        for one in ids:
            self.history.note(kind, one, None)
        self.passes()

    def life(self, kind: str, record_id: str) -> Life:
        found = self.history.life(kind, record_id)
        assert found is not None
        return found

    def stop(self) -> None:
        """The thread ends; what is not in the file is written."""
        if not self.worker.stopping:
            self.worker.stop()
            self.worker.run()


Start = Callable[..., Keeper]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a process, as it were, with the same file as the one before."""
    started: list[Keeper] = []

    def start(now: float = NOW, path: Path = tmp_path / "history.sqlite") -> Keeper:
        started.append(Keeper(path, now))
        return started[-1]

    yield start
    for one in started:
        one.stop()


def request(state: str, at: float = NOW, **fields: Any) -> NodeRequest:
    return observed.request(7, state=state, state_time=at, **fields)


def node(state: str, at: float, **fields: Any) -> Node:
    return observed.node(1, state=state, state_time=at, **{"allocated_to": REQUEST, **fields})


def test_life_of_a_request_and_its_node(start: Start) -> None:
    """All states with their times; the node knows its job when the request is over, also in the next process."""
    one = start()
    one.note(request(states.REQUESTED), request(states.PENDING, NOW + 1))
    one.note(node(states.BUILDING, NOW + 2), node(states.READY, NOW + 20))
    one.note(request(states.FULFILLED, NOW + 21, nodes=[NODE]))
    one.clock.now += 22
    one.remove("request", REQUEST)
    over = one.life("request", REQUEST)
    assert (over.result, over.ended, over.waited) == ("fulfilled", NOW + 22, 21 + 412)
    assert over.times == (("requested", NOW), ("pending", NOW + 1), ("fulfilled", NOW + 21))
    job = {"tenant": "t1", "job": "unit", "pipeline": "check", "labels": ["gpu"]}
    assert over.facts.items() >= {**job, "nodes": [NODE]}.items()
    one.note(node(states.IN_USE, NOW + 23, public_ipv4="192.0.2.1"))
    one.stop()

    other = start(NOW + 30)
    other.passes(requests=(), nodes=observed.known(node(states.IN_USE, NOW + 23)))
    assert other.life("request", REQUEST) == over
    assert other.life("node", NODE).ended is None
    other.note(node(states.USED, NOW + 50), node(states.DELETING, NOW + 51))
    other.remove("node", NODE)
    over = other.history.ended("node")[0]
    assert [state for state, _ in over.times] == ["building", "ready", "in-use", "used", "deleting"]
    assert over.facts.items() >= {**job, "request": REQUEST, "provider": "cloud-1", "public_ipv4": "192.0.2.1"}.items()
    assert (over.id, over.result, over.created) == (NODE, "used", NOW - 100)


def test_results(start: Start) -> None:
    """How a request ended of which nothing was read between its begin and its end; why launches failed."""
    one = start()
    one.note(request(states.REQUESTED))
    one.remove("request", REQUEST)
    assert one.life("request", REQUEST).result == "removed"
    # Its node is read a moment after it was removed.
    one.note(node(states.IN_USE, NOW))
    assert one.life("request", REQUEST).result == "fulfilled"
    assert one.life("request", REQUEST).facts["nodes"] == [NODE]

    failed = observed.request(8, state=states.FAILED, state_time=NOW)
    broken = observed.node(2, state=states.FAILED, state_time=NOW)
    deleted = observed.node(3)
    deleted.delete("alice")
    one.note(failed, broken, deleted)
    one.remove("request", failed.key)
    one.remove("node", broken.key, deleted.key)
    declined = RequestStatus(failed.key, "done", "launch.failed", "every launch failed")
    error = FailedLaunch("error.status", "no host", NOW, broken.key)
    one.passes(
        10, statuses=[observed.status("cloud-1", declined=[declined], launches=LaunchesStatus(last_error=error))]
    )
    found = [(life.result, life.reason) for life in (*one.history.ended("request"), *one.history.ended("node"))]
    expected = [("failed", "every launch failed"), ("fulfilled", "")]
    assert found == [*expected, ("unused", "deleted by alice"), ("failed", "no host")]
    client = WebSite(one.snapshots.snapshot, history=one.history).client
    items = client.get("/api/v1/ended/requests?sort=-ended&fields=id,result").json()["items"]
    assert [(item["id"], item["result"]) for item in items] == [(REQUEST, "fulfilled"), (failed.key, "failed")]
    assert client.get("/api/v1/ended/nodes?since=1s").json()["total"] == 0


def test_reasons(start: Start) -> None:
    """WP-107: what a request waited for that was slow or removed; many launches of a pool that failed at once."""
    one, error = start(), FailedLaunch("error.status", "no host", NOW, "0000000009")
    status = observed.status(
        "cloud-1", requests=[RequestStatus(observed.request(3).key, "paused", "room.cores", "full")]
    )
    waiting = [observed.request(1), observed.request(2), observed.request(3, state=states.PENDING)]
    one.note(*waiting, observed.request(4))
    one.passes(10, requests=waiting, statuses=[replace(status, launches=LaunchesStatus(last_error=error))])
    one.note(*(observed.request(n, state=states.FULFILLED, state_time=NOW, created_time=NOW - 90) for n in (2, 3)))
    one.note(observed.node(2, state=states.FAILED), observed.node(3, state=states.FAILED, provider="lab"))
    one.remove("request", *(life.key for life in waiting), observed.request(4).key)
    one.remove("node", "0000000002", "0000000003")
    one.passes(50)
    found = {int(life.id[-2:]): life.reason for life in one.history.ended("request")}
    assert found[1] == found[2] != ""
    assert found[1].startswith("it waited: ")
    assert (found[3], found[4]) == ("it waited: full", "")
    assert [life.reason for life in one.history.ended("node")] == [
        "",
        "a launch of its pool failed at that time: no host",
    ]


def test_what_ended_while_nobody_looked(start: Start) -> None:
    one = start()
    one.note(node(states.READY, NOW), observed.node(2))
    one.stop()
    other = start(NOW + 100)
    other.passes(requests=(), nodes=observed.known(observed.node(2)))
    ended = other.history.ended("node")
    assert [(life.id, life.ended, life.reason) for life in ended] == [
        (NODE, NOW + 100, "nodepool-web did not run when it ended")
    ]
    assert other.life("node", "0000000002").ended is None


def test_bounds_of_lives(start: Start) -> None:
    """A number of lives, of states in each, and of characters; whatever other programs write."""
    one = start()
    many = [observed.node(number) for number in range(MOST_OPEN + 5)]
    one.note(*many)
    assert one.history.life("node", many[-1].key) is None
    one.remove("node", *(each.key for each in many))
    assert [len(one.history.ended("node")), one.history.ended("node")[0].id] == [MOST_ENDED, many[MOST_OPEN - 1].key]
    for number in range(100):
        one.note(node(states.READY if number % 2 else states.IN_USE, NOW + number))
    times = one.life("node", NODE).times
    assert [len(times), times[0][1], times[-1][1]] == [MOST_STATES, NOW, NOW + 99]
    odd = observed.request(9, *[HOSTILE * 200] * 50, id=HOSTILE, requestor_data={HOSTILE: HOSTILE * 100, "n": 1})
    ready = request(states.REQUESTED, requestor=MIN_READY_REQUESTOR)
    one.note(odd, ready)
    one.stop()
    other = start(NOW)
    other.passes()
    facts = other.life("request", HOSTILE).facts
    assert (len(facts["labels"]), len(facts["labels"][0]), len(facts[HOSTILE])) == (20, 300, 300)
    assert other.history.life("request", REQUEST) is None


def test_samples(start: Start) -> None:
    """Each 10 s, and means of a minute and of ten; all in one file after a restart."""
    at = NOW // 600 * 600
    one = start(at)
    limits = [LimitStatus("pool", "instances", 20, 1), LimitStatus("cloud", "cores", 32, 4, 8, NOW)]
    status = observed.status("cloud-1", limits=limits, launches=LaunchesStatus(0, 3, 1))
    nodes = [observed.node(number, state=states.IN_USE) for number in (1, 2)]
    nodes += [observed.node(3, state=states.TESTING), observed.node(4, provider="lab")]
    for number in range(68):
        some = nodes[: 2 + number % 2]
        waiting = [observed.request(5, state=states.PENDING, state_time=at)] if number == 0 else []
        one.passes(10 if number else 0, requests=waiting, nodes=observed.known(*some, nodes[3]), statuses=[status])
        if number == 3:
            one.note(request(states.REQUESTED), request(states.FULFILLED, one.now, created_time=one.now - 30))
    times = {step: [when for when, _ in one.history.samples(step)] for step in STEPS}
    assert {step: len(found) for step, found in times.items()} == {10: 68, 60: 11, 600: 1}
    first, second = (values for _, values in one.history.samples(10)[:2])
    # In use, building, ready, deleting, hold; the limit in nodes, and how many nodes there were.
    assert first["providers"] == {"cloud-1": [2, 0, 0, 0, 0, 12, 2], "lab": [0, 0, 1, 0, 0, None, 1]}
    assert (second["providers"]["cloud-1"], second["all"]) == ([2, 1, 0, 0, 0, 18, 3], [2, 1, 1, 0, 0, None, 4])
    assert (first["waiting"], second["waiting"]) == ({"launch": 1, "most": 1}, {"most": 0})
    minute = one.history.samples(60)[0][1]
    assert minute["providers"]["cloud-1"] == [2, 0.5, 0, 0, 0, 18, 3]
    assert (minute["waiting"], minute["waits"], minute["launches"]) == ({"launch": 0.17, "most": 1}, {"15": 1}, [3, 1])
    one.stop()

    other = start(one.now + 5)
    other.passes()
    assert {step: [when for when, _ in other.history.samples(step)] for step in STEPS} == times
    # An administrator sets the clock back.
    other.passes(-305)
    assert other.history.sampled_at == other.now // 10 * 10


@pytest.mark.parametrize(
    ("kind", "codes"),
    [
        ("launch", "served.launching served.gathering"),
        ("room", "room.cores room.hidden quota.unknown wait.pool-paused wait.max-concurrency"),
        ("slot", "wait.ready-node room.static"),
        ("tenant", "room.tenant wait.tenant-order"),
        ("away", "provider.circuit-open provider.starting pool.missing"),
        ("maintenance", "provider.paused pool.draining label.paused launcher.draining"),
        ("declined", "label.unknown image.missing launch.failed"),
        ("turn", "wait.order turn.of-priority request.locked"),
    ],
)
def test_kinds_of_waiting(kind: str, codes: str) -> None:
    """The longest begin of a code that is known decides."""
    assert {wait_kind(ReasonCode(code).value) for code in codes.split()} == {kind}


def test_nothing_is_sampled_of_half_a_snapshot(start: Start) -> None:
    one = start()
    one.snapshots.snapshot = WebSnapshot(0, observed.seen(), complete=False)
    one.worker.run_once()
    assert (one.history.sampled_at, one.history.samples(10)) == (0, [])


def test_size_of_the_file(start: Start, tmp_path: Path) -> None:
    """As many samples as are kept, of a site with 100 providers, and old ones go."""
    one = start()
    statuses = [
        observed.status(f"provider-{number}", limits=[LimitStatus("pool", "instances", 900)]) for number in range(150)
    ]
    one.passes(requests=(), statuses=statuses)
    data = one.history.everything().samples[0][2]
    counts = {step: seconds // step for step, seconds in STEPS.items()}
    assert len(data) < 8_000
    assert sum(counts.values()) * 8_000 + 2 * (MOST_ENDED + MOST_OPEN) * 1_500 < MOST_BYTES
    for _ in range(400):
        one.passes(10, requests=())
    assert len(one.history.samples(10)) == counts[10]
    one.stop()
    with closing(sqlite3.connect(tmp_path / "history.sqlite")) as found:
        assert found.execute("SELECT count(*) FROM samples WHERE step = 10").fetchone() == (counts[10],)


@pytest.mark.parametrize("trouble", ["absent directory", "no database", "other database", "later release", "in use"])
def test_file_that_cannot_be_used(trouble: str, start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One line of the log. The file stays as it is, and the history goes on in memory."""
    path = tmp_path / "found.sqlite"
    if trouble == "absent directory":
        path = tmp_path / "absent" / "history.sqlite"
    elif trouble == "no database":
        path.write_text("accounts\n" * 1000)
    elif trouble == "in use":
        start(path=path).passes()
    else:
        with closing(sqlite3.connect(path)) as made:
            made.execute("PRAGMA user_version = 2" if trouble == "later release" else "CREATE TABLE accounts (name)")
            made.commit()
    before = path.read_bytes() if path.exists() else None
    one = start(path=path)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            one.passes(400)
    lines = [line.getMessage() for line in caplog.records if line.levelno >= logging.INFO]
    assert len(lines) == 1
    assert lines[0].startswith(f"The history of the web pages is kept in memory only: {path}: ")
    assert len(one.history.samples(10)) == 3
    assert before == (path.read_bytes() if path.exists() else None)


def test_full_file(start: Start, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be written is written when there is room again."""
    with monkeypatch.context() as small:
        small.setattr(history, "MOST_BYTES", 8 * 4096)
        one = start()
        with caplog.at_level(logging.INFO):
            for number in range(30):
                one.note(*(observed.node(30 * number + each) for each in range(30)))
                one.passes(10)
    assert "memory only" in caplog.text
    with caplog.at_level(logging.INFO):
        one.passes(300)
    assert "is in" in caplog.records[-1].getMessage()
    one.stop()
    other = start(one.now)
    other.passes()
    assert len(other.history.samples(10)) == 32
    assert other.life("node", f"{899:010}").times == (("ready", NOW - 50),)


def test_file_after_a_clock_went_back(start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that could not be used is tried again, whatever the clock says. Its user alone can read it."""
    one = start()
    one.passes(10)
    other = start(one.now)
    other.passes(10)
    one.stop()
    with caplog.at_level(logging.INFO):
        other.passes(-86_400)
    assert caplog.records[-1].getMessage() == f"The history of the web pages is in {tmp_path / 'history.sqlite'} again"
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_file_of_a_process_that_ends(start: Start) -> None:
    """The next process begins before the last one has ended: it reads the file as soon as it may."""
    one = start()
    one.note(node(states.READY, NOW))
    one.passes(10)
    other = start(one.now)
    other.passes(10)
    assert other.history.life("node", NODE) is None
    one.stop()
    other.passes(300, requests=(), nodes=observed.known(node(states.READY, NOW)))
    assert other.life("node", NODE).ended is None
    assert len(other.history.samples(10)) == 4


def test_charts(start: Start) -> None:
    """WP-48: the curves of a range over the same times, of the providers with most nodes or of all; a gap is empty."""
    one = start(NOW // 600 * 600)
    site = WebSite(history=one.history)
    empty = site.client.get("/charts.json").json()
    assert (empty["range"], empty["step"], empty["times"], empty["p50"]) == ("1h", 20, [], [])
    nodes = [observed.node(number, provider=f"cloud-{number % 9}", state=states.IN_USE) for number in range(1, 31)]
    fulfilled = [observed.request(number, state=states.FULFILLED, state_time=one.now + 5) for number in range(20)]
    for number, request in enumerate(fulfilled):
        request.created_time = one.now + 5 - (100 if number == 0 else 10)
    one.clock.now += 5
    one.note(*fulfilled)
    waiting = [observed.request(9, "absent"), observed.request(10, state=states.PENDING)]
    for seconds in (10, 10, 60):
        one.passes(seconds, requests=waiting, nodes=observed.known(*nodes))
    hour = site.client.get("/charts.json?range=1h").json()
    begin = hour["times"][0]
    assert [at - begin for at in hour["times"]] == [0, 20, 40, 80]
    names = [provider["name"] for provider in hour["providers"]]
    assert names == ["", "cloud-1", "cloud-2", "cloud-3", "cloud-0", "cloud-4", "cloud-5"]
    assert (hour["more"], hour["providers"][0]["in-use"]) == (3, [15, 30, None, 30])
    assert (hour["waiting"]["launch"], hour["waiting"]["away"]) == ([0.5, 1, None, 1], [0.5, 1, None, 1])
    assert (hour["p50"][1], hour["p95"][1]) == (10, 10)
    every = site.client.get("/charts.json?range=24h&providers=all").json()
    assert (every["step"], len(every["providers"]), every["more"]) == (300, 10, 0)
    answer = site.client.get("/charts.json?range=7d")
    known = {"if-none-match": answer.headers["etag"]}
    assert site.client.get("/charts.json?range=7d", headers=known).status_code == 304
    assert site.client.get("/charts.json?range=2y").status_code == 400
