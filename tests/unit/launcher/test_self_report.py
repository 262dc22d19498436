# SPDX-License-Identifier: Apache-2.0
"""What a launcher tells of itself (W-1, W-7)."""

from __future__ import annotations

import os
import socket

from nodepool.launcher.status import EVENT_BYTES, SelfReport
from nodepool.model.event import Event
from nodepool.model.maintenance import Maintenance, Mode
from nodepool.model.record import as_json
from nodepool.model.status import AbsentProvider, ReloadStatus


def report(events: list[Event], reload: ReloadStatus | None = None, hold: Maintenance | None = None) -> SelfReport:
    return SelfReport(
        version="12.0.0",
        config_file="/etc/nodepool/nodepool.yaml",
        servers="zk1:2281,zk2:2281",
        digest=lambda: "0123456789ab",
        pools=lambda: ["b/main", "a/main"],
        absent=lambda: {"c": AbsentProvider("c", "openstack", "HTTP 401", 5.0)},
        reload=lambda: reload,
        tenant_limits=lambda: {"t1": {"cores": 8}},
        maintenance=lambda: hold,
        leads=lambda: True,
        events=lambda count: events[-count:],
    )


def test_maintenance() -> None:
    """W-1, MT-8."""
    running = report([]).make()
    assert (running.state, running.maintenance) == ("running", None)
    paused = report([], hold=Maintenance("launcher", "l1", Mode.PAUSE, "disk")).make()
    assert (paused.state, paused.maintenance) == ("running", "launcher l1 is paused: disk")
    assert report([], hold=Maintenance("launcher", "l1", Mode.DRAIN)).make().state == "draining"


def test_everything() -> None:
    """W-1"""
    event = Event(1.0, "l1", "launcher l1", "started")
    reload = ReloadStatus(2.0, False, "line 5: no")
    made = report([event], reload)
    status = made.make()
    assert made.name == f"{socket.gethostname()}-{os.getpid()}"
    assert (status.host, status.pid) == (socket.gethostname(), os.getpid())
    assert (status.version, status.config_file, status.config) == (
        "12.0.0",
        "/etc/nodepool/nodepool.yaml",
        "0123456789ab",
    )
    assert (status.servers, status.state) == ("zk1:2281,zk2:2281", "running")
    assert status.leader
    assert status.pools == ["a/main", "b/main"]
    assert [provider.name for provider in status.absent] == ["c"]
    assert status.tenant_limits == {"t1": {"cores": 8}}
    assert (status.reload, status.events, status.omitted) == (reload, [event], 0)
    assert status.since
    assert made.make() == status


def test_bounded() -> None:
    """W-7: the newest events that fit."""
    events = [
        Event(float(number), "l1", f"request 200-{number:010}", "declined", text="x" * 300) for number in range(200)
    ]
    status = report(events).make()
    assert status.events == events[status.omitted :]
    assert 0 < status.omitted < 200
    length = sum(len(as_json(event)) for event in status.events)
    assert EVENT_BYTES - 1000 < length <= EVENT_BYTES
