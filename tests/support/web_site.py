# SPDX-License-Identifier: Apache-2.0
"""A web application with what a test puts into it, without ZooKeeper and without a daemon."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from starlette.testclient import TestClient

from nodepool.clock import monotonic
from nodepool.plan.observed import Observed
from nodepool.web.app import make_app
from nodepool.web.site import Site
from nodepool.web.snapshot import RecordKind, SnapshotMaker, WebSnapshot


class GivenSnapshots(SnapshotMaker):
    """Snapshots of a test: `snapshot` may be replaced, `changed` filled."""

    def __init__(self, snapshot: WebSnapshot) -> None:
        self.snapshot = snapshot
        self.changed: dict[RecordKind, frozenset[str]] = {}

    @property
    def complete(self) -> bool:
        return self.snapshot.complete

    def latest(self, lifetime: float = 0.0) -> WebSnapshot:
        return self.snapshot

    def current(self) -> int | None:
        return self.snapshot.number

    def refresh(self) -> None:
        """Nothing is read later than it is known."""

    def take_changes(self) -> Mapping[RecordKind, frozenset[str]]:
        changed, self.changed = self.changed, {}
        return changed


class StillDaemon:
    """A daemon that serves; the attributes may be changed."""

    kind = "launcher"

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.ready.set()
        self.last_loop = monotonic()
        self.connected = True
        self.reload_errors: list[str] = []


class WebSite:
    """The application and a client of it.

    :param snapshot: what it shows; None = nothing is there.
    :param settings: further fields of `Site`.
    """

    def __init__(self, snapshot: WebSnapshot | None = None, **settings: Any) -> None:
        self.snapshots = GivenSnapshots(snapshot or WebSnapshot(0, Observed(1_000.0)))
        self.daemon = StillDaemon()
        self.site = Site(self.daemon, self.snapshots, "1.2.3", **settings)
        self.client = TestClient(make_app(self.site), base_url="http://nodepool.example:8005")
