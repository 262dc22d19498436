# SPDX-License-Identifier: Apache-2.0
"""What a launcher tells of itself: records, events, hints and gauges, and what operators hold back in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.config.objects import Label
from nodepool.launcher.events import EventRing, HoldEvents, LabelHints, ReloadEvents
from nodepool.launcher.maintenance import MaintenanceEvents
from nodepool.launcher.pool_registry import MaintenanceState
from nodepool.launcher.status import ALL_SECONDS, StatsWorker, StatusWorker
from nodepool.metrics.registry import Metric, MetricKind, Registry
from nodepool.metrics.reports import Gauges
from nodepool.metrics.statsd import StatsdSink, get_client
from nodepool.model.event import Event, What
from nodepool.model.maintenance import Maintenance, Mode
from nodepool.model.node import Node
from nodepool.model.status import LauncherStatus, PoolStatus
from nodepool.plan.triage import PoolInfo
from tests.support.manual_clock import ManualClock
from tests.support.statsd_server import StatsdServer
from tests.support.tables import rows
from tests.unit.launcher.conftest import home

PAUSE = Maintenance("provider", "cloud", Mode.PAUSE, "new switch", "alice", 5.0)

# -- the record of the launcher, and what is published when


class Reporting:
    """A status worker with the pools ``one`` and ``two``; it is its own writer, and what it wrote is in ``calls``."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.pools = [self.pool("one"), self.pool("two")]
        self.launcher = LauncherStatus(host="l1")
        self.calls: list[tuple[str, str]] = []
        self.events: list[Event] = []
        self.looks: list[str] = []
        report: Any = SimpleNamespace(name="l1-7", make=lambda: self.launcher)
        writer: Any = self
        self.worker = StatusWorker(lambda: self.pools, report, writer, self.events.append, self.clock)

    def pool(self, name: str) -> Any:
        made = SimpleNamespace(launcher_id=name, shown=PoolStatus(id=name, provider=name, state="running", since=1.0))
        made.status = SimpleNamespace(make=lambda now: self.look(made))
        return made

    def look(self, pool: Any) -> Any:
        self.looks.append(pool.launcher_id)
        if pool.shown.state == "broken":
            raise RuntimeError("no status")
        return pool.shown

    def tell(self, number: int, **changes: Any) -> None:
        self.pools[number].shown = replace(self.pools[number].shown, **changes)

    def set(self, kind: str, name: str, status: Any) -> None:
        self.calls.append((name, status.state))

    def remove(self, kind: str, name: str) -> None:
        self.calls.append((name, "removed"))

    def run(self, *changed: str) -> list[tuple[str, str]]:
        """What a pass writes."""
        for name in changed:
            self.worker.changed(name)
        self.calls = []
        self.worker.run_once()
        return self.calls


def test_what_is_published() -> None:
    """W-1, W-8: what changed alone; a pool without a pass is not looked at, but all are in a while. One that went goes.
    An error of one stops no other; what follows from two records is an event.
    """
    site = Reporting()
    assert site.run() == [("one", "running"), ("two", "running"), ("l1-7", "running")]
    site.looks.clear()
    for number in (0, 1):
        site.tell(number, state="paused")
    assert (site.run("one"), site.run("one"), site.looks) == ([("one", "paused")], [], ["one"] * 2)
    site.clock.pass_seconds(ALL_SECONDS)
    assert (site.run(), site.run()) == ([("two", "paused")], [])
    site.tell(0, state="broken")
    site.tell(1, state="unavailable", code="provider.circuit-open", text="HTTP 503", since=9.0)
    assert site.run("one", "two") == [("two", "unavailable")]
    assert [(event.subject, event.what, event.at) for event in site.events] == [("provider two", "unavailable", 9.0)]
    site.launcher = replace(site.launcher, state="draining")
    assert site.run("") == [("l1-7", "draining")]
    site.pools = [site.pools[0], site.pool("three")]
    assert site.run() == [("three", "running"), ("two", "removed")]
    assert site.run() == []
    site.worker.start()
    site.worker.stop()
    site.worker.join(20)
    assert not site.worker.is_alive()


# -- events


def test_maintenance_events() -> None:
    """OV-4"""
    records: dict[tuple[str, str], Maintenance] = {}
    tell: list[Callable[[], None]] = []
    ring = EventRing()
    cache = SimpleNamespace(add_listener=tell.append, snapshot=lambda: dict(records))
    MaintenanceEvents(cast(Any, cache), ring, "l1")
    began, drained = "provider cloud is paused by alice: new switch", "provider cloud is drained by alice: new switch"
    for record, seen in (
        (PAUSE, [began]),
        (PAUSE, [began]),
        (replace(PAUSE, until=500.0), [began]),
        (replace(PAUSE, mode=Mode.DRAIN), [began, drained]),
    ):
        records["provider", "cloud"] = record
        tell[0]()
        assert [event.text for event in ring.last(10)] == seen
    records.clear()
    tell[0]()
    assert (ring.last(10)[0].at, ring.last(10)[0].subject) == (5.0, "provider cloud")
    assert [event.what for event in ring.last(10)] == ["maintenance began", "maintenance began", "maintenance ended"]


class Nodes(dict[str, Node]):
    """The part of the node cache that is asked."""

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self.tell = listener

    def put(self, node_id: str, **fields: Any) -> None:
        """It changes; without fields it goes."""
        self.pop(node_id, None)
        if fields:
            self[node_id] = Node("small", node_id)
            self[node_id].load({"type": ["small"], **fields})
        self.tell(node_id)


@rows(__file__, "holds")
def test_nodes_on_hold(fields: dict[str, Any], text: str) -> None:
    """OV-4: one event for each time that a node is held, with who did it and why; of other nodes there is none."""
    nodes, ring = Nodes(), EventRing()
    HoldEvents(cast(Any, nodes), ring, "l1")
    for node_id, state, since in (
        *(("01", "ready", 1e4), ("02", "hold", 2e4), ("02", "hold", 2e4), ("03", "in-use", 3e4)),
        # Held again, with a time between, or while nothing was heard of it.
        *(("02", "ready", 4e4), ("02", "hold", 5e4), ("02", "hold", 6e4)),
    ):
        nodes.put(node_id, state=state, state_time=since, **fields)
    assert [event.at for event in ring.last(10)] == [2e4, 5e4, 6e4]
    assert {(one.subject, one.what, one.text) for one in ring.last(10)} == {("node 02", What.HELD.value, text)}


def test_nodes_that_operators_delete() -> None:
    """OV-4: one event, by the operator; what a launcher deletes itself is none."""
    nodes, ring = Nodes(), EventRing()
    HoldEvents(cast(Any, nodes), ring, "l1")
    for _ in range(2):
        nodes.put("01", state="deleting", deleted_by="alice@desk", state_time=7.0)
    nodes.put("02", state="deleting", state_time=7.0)
    nodes.put("03", state="ready", deleted_by="alice@desk", state_time=7.0)
    nodes.put("01")
    assert [(event.at, event.actor, event.subject, event.text) for event in ring.last(10)] == [
        (7.0, "alice@desk", "node 01", "delete by alice@desk")
    ]


@rows(__file__, "reloads")
def test_reload_events(ok: bool, texts: list[str], events: list[str]) -> None:
    """OV-4: each change is one; many of them do not push out other events."""
    ring = EventRing(100, lambda: 5.0)
    reloads = ReloadEvents(ring, "l1", "/etc/np.yaml", lambda: 5.0)
    reloads.ended(ok, texts)
    last = reloads.last
    assert last is not None
    assert (last.at, last.ok, last.text.partition("; ")[0]) == (5.0, ok, texts[0] if texts else last.text)
    what = "reloaded" if ok else "reload failed"
    assert [(event.subject, event.what, event.text) for event in ring.last(100)] == [
        ("configuration np.yaml", what, text) for text in events
    ]


# -- what operators hold back


@rows(__file__, "drains")
def test_records_of_the_launcher(before: str | None, after: str | None, held: bool, ends: bool) -> None:
    """MT-8: a drained launcher ends, but not for a record that is older than its start: that was on purpose."""
    for name in ("l1", "l1.example.com"):
        records: dict[tuple[str, str], Maintenance] = {}
        state = MaintenanceState(lambda: records, ["l1", "l1.example.com"], lambda: 1000.0)  # noqa: B023
        for mode, since in ((before, 900.0), (after, 1001.0)):
            if mode is not None:
                records["launcher", name] = Maintenance("launcher", name, Mode(mode), since=since)
            if since == 900.0:
                state.note_start()
        assert (state.launcher is not None, state.of_pool("one", "main") is not None) == (held, held)
        assert state.ends_when_idle == ends
        state.drain("SIGTERM")
        assert state.launcher is not None
        assert (state.launcher.mode, state.ends_when_idle) == (Mode.DRAIN, True)
        assert state.launcher.text == "launcher l1 is drained: SIGTERM", "no record ends that"


# -- hints about labels


def pool(*labels: str) -> PoolInfo:
    return PoolInfo("id", "cloud", frozenset(labels), 100, False, "main")


@rows(__file__, "hints")
def test_hint(labels: str, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """J-3: of registered pools and of the configuration. Many requests cost one search, until the pools change."""
    configured = {name: Label(name) for name in ("debian-small", "ubuntu-big", "fedora")}
    configured["fedora"].pools.append(cast(Any, object()))
    pools = [pool("debian-small", "debian-large"), pool("centos", "debian-small")]
    hints = LabelHints(lambda: pools, lambda: configured)
    assert hints.hint(labels.split()) == hint
    monkeypatch.setattr(home(LabelHints), "did_you_mean", lambda *_: "another search")
    assert hints.hint(labels.split()) == hint
    pools = [pool(*labels.split())]
    assert hints.hint(labels.split()) == ""
    monkeypatch.setattr(home(LabelHints), "MAX_HINTS", 2)
    assert [hints.hint([label]) != "" for label in "bcdb"] == [True] * 4


# -- gauges

OWN = Metric("own", MetricKind.GAUGE, (), "Of the launcher.", lambda: ["own"])
LIMIT = Metric("limit", MetricKind.GAUGE, (), "Of the launcher.", lambda: ["limit"])
READY, SMALL = "nodepool.nodes.ready:{}|g", "nodepool.label.small.nodes.ready:{}|g"


class Stats:
    """A stats worker, what it asks, and what it sends."""

    def __init__(self, server: StatsdServer) -> None:
        client = get_client(server.environ)
        assert client is not None
        self.server, self.client = server, client
        self.clock = ManualClock()
        self.leader = True
        self.asked = 0
        self.nodes: list[Node] = []
        #: Groups of gauges that raise.
        self.failing: set[object] = set()
        self.worker = StatsWorker(
            client,
            Registry([StatsdSink(lambda: client)]),
            is_leader=self._is_leader,
            nodes=lambda: self._or_raise("nodes", self.nodes),
            requests=list,
            pools=list,
            limits=lambda: self._gauge(LIMIT, 3),
            internals=lambda: self._gauge(OWN, 7),
            clock=self.clock,
        )

    def _is_leader(self) -> bool:
        self.asked += 1
        return self.leader

    def _or_raise(self, group: object, value: Any) -> Any:
        if group in self.failing:
            raise RuntimeError("broken on purpose")
        return value

    def _gauge(self, metric: Metric, value: float) -> Gauges:
        return {self._or_raise(metric, metric).series(): value}

    def add(self) -> None:
        self.nodes.append(Node("small"))
        self.nodes[-1].state = "ready"
        self.worker.changed("0000000001")

    def after(self, seconds: float) -> list[str]:
        self.clock.pass_seconds(seconds)
        assert 0 <= self.worker.run_once() <= 1
        return self.server.drain()


@pytest.fixture
def stats() -> Iterator[Stats]:
    with StatsdServer() as server:
        made = Stats(server)
        yield made
        made.client.close()


def test_gauges_of_the_system(stats: Stats) -> None:
    """reference/metrics 1: at once, after changes but at most once a second, and once a minute. Zeros are sent once."""
    assert {"own:7|g", "limit:3|g", READY.format(0)} <= set(stats.after(0))
    assert stats.after(5) == ["limit:3|g"], "no change"
    stats.add()
    assert READY.format(1) in stats.after(5)
    stats.add()
    stats.add()
    assert stats.after(0.5) == []
    assert {READY.format(3), SMALL.format(3)} <= set(stats.after(0.5))
    stats.nodes.clear()
    for expected in (True, False):
        stats.worker.changed()
        assert (SMALL.format(0) in stats.after(1)) == expected
    stats.after(20)
    assert READY.format(0) in stats.after(60)
    stats.add()
    stats.worker.emit_once()
    assert READY.format(1) in stats.server.drain()


def test_gauges_of_the_launcher(stats: Stats) -> None:
    """reference/metrics 2, 5: limits about every second, internals every 10 s, leader or not."""
    stats.leader = False
    assert [stats.after(seconds) for seconds in (0, 0.5, 0.5, 9)] == [
        ["limit:3|g", "own:7|g"],
        [],
        ["limit:3|g"],
        ["limit:3|g", "own:7|g"],
    ]


def test_leadership(stats: Stats) -> None:
    """reference/metrics 1: who does not lead sends no gauges of nodes, and asks ZooKeeper every 10 s."""
    stats.leader = False
    for _ in range(10):
        stats.add()
        assert not [line for line in stats.after(0.9) if line.startswith("nodepool.nodes")]
    assert stats.asked == 1
    stats.leader = True
    assert READY.format(10) in stats.after(10), "it takes over"
    stats.leader = False
    stats.nodes.clear()
    stats.worker.changed()
    assert stats.after(5) == ["limit:3|g"]
    stats.leader = True
    assert SMALL.format(0) not in stats.after(10), "gauges of before are forgotten"


@pytest.mark.parametrize(("failing", "others"), [(LIMIT, "own:7|g"), (OWN, "limit:3|g")])
def test_each_group_is_on_its_own(stats: Stats, failing: Metric, others: str, caplog: pytest.LogCaptureFixture) -> None:
    """A mistake in one group of gauges, e.g. for a pool of a strange driver, must not end the others."""
    stats.failing.add(failing)
    assert {others, READY.format(0)} <= set(stats.after(0))
    assert "broken on purpose" in caplog.text
