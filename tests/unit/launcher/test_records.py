# SPDX-License-Identifier: Apache-2.0
"""What a launcher tells of itself: records, events, hints and gauges, and what operators hold back in it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.launcher.shared import EventRing, MaintenanceState, RecordEvents, ReloadEvents, why_held
from nodepool.launcher.status import StatsWorker
from nodepool.metrics.registry import Registry, get_client
from nodepool.model.node import Node
from nodepool.model.status import Maintenance, Mode
from tests.support.manual_clock import ManualClock
from tests.support.statsd_server import StatsdServer
from tests.support.tables import rows
from tests.support.wait import present
from tests.unit.launcher.conftest import Records, home

# -- events


@rows(__file__, "holds")
def test_nodes_on_hold(fields: dict[str, Any], text: str) -> None:
    """OV-4: who did it, and why."""
    node = Node("small")
    node.load({"state": "hold", "type": ["small"], **fields})
    assert why_held(node) == text


@rows(__file__, "reloads")
def test_reload_events(ok: bool, texts: list[str], events: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """OV-4: each change is one; many of them do not push out other events."""
    monkeypatch.setattr(home(ReloadEvents), "wall_time", lambda: 5.0)
    ring = EventRing(100)
    reloads = ReloadEvents(ring, "/etc/np.yaml")
    reloads.ended(ok, texts)
    last = present(reloads.last)
    assert (last.at, last.ok, last.text.partition("; ")[0]) == (5.0, ok, texts[0] if texts else last.text)
    what = "reloaded" if ok else "reload failed"
    assert [(event.subject, event.what, event.text) for event in ring.last(100)] == [
        ("configuration np.yaml", what, text) for text in events
    ]


def test_maintenance_events() -> None:
    """OV-4: what is held back, each change of that but of its planned end, and its end."""
    records: Any = Records()
    records.snapshot = lambda: dict(records)
    ring = EventRing()
    cache: Any = SimpleNamespace(nodes=Records(), maintenance=records, images=Records())
    RecordEvents(cache, ring)
    begun = Maintenance("provider", "cloud", Mode.PAUSE, since=5.0, by="alice")
    events = []
    for record in (begun, replace(begun, until=500.0), replace(begun, mode=Mode.DRAIN)):
        records["provider", "cloud"] = record
        records.tell()
        events.append([event.text for event in ring.last(10)])
    paused, drained = (f"provider cloud is {done} by alice" for done in ("paused", "drained"))
    assert events == [[paused], [paused], [paused, drained]]
    records.clear()
    records.tell()
    assert [event.what for event in ring.last(10)] == ["maintenance began"] * 2 + ["maintenance ended"]


# -- what operators hold back


@rows(__file__, "drains")
def test_records_of_the_launcher(
    before: str | None, after: str | None, held: bool, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MT-8: a drained launcher ends, but not for a record that is older than its start: that was on purpose."""
    monkeypatch.setattr(home(MaintenanceState), "wall_time", lambda: 1000.0)
    for name in ("l1", "l1.example.com"):
        records: dict[tuple[str, str], Maintenance] = {}
        state = MaintenanceState(lambda: records, ["l1", "l1.example.com"])  # noqa: B023
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


# -- gauges


def test_gauges_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """reference/metrics 1: at once, after changes but at most once a second, and once a minute."""
    clock, nodes = ManualClock().rules(), list[Node]()
    cache: Any = SimpleNamespace(**{name: SimpleNamespace(values=list) for name in ("requests", "pools")})
    cache.nodes = SimpleNamespace(values=lambda: nodes)
    monkeypatch.setattr(home(StatsWorker), "Election", lambda *_: SimpleNamespace(is_leader=lambda: True))
    for gauges in ("_limits", "_internals"):
        monkeypatch.setattr(StatsWorker, gauges, lambda _: {})
    with StatsdServer() as server:
        client = present(get_client(server.environ))
        launcher: Any = SimpleNamespace(cache=cache, zk=SimpleNamespace(client=None))
        worker = StatsWorker(client, Registry(lambda: client), launcher)

        def sent(seconds: float, *, more: int = 0) -> list[str]:
            for _ in range(more):
                nodes.append(Node("small"))
                nodes[-1].state = "ready"
                worker.changed()
            clock.pass_seconds(seconds)
            assert 0 <= worker.run_once() <= 1
            return [line.split(":")[1] for line in server.drain() if line.startswith("nodepool.nodes.ready:")]

        assert (sent(0), sent(5), sent(5, more=1)) == (["0|g"], [], ["1|g"])
        assert (sent(0.5, more=2), sent(0.5), sent(30), sent(30)) == ([], ["3|g"], [], ["3|g"])
        client.close()
