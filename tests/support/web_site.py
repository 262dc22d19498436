# SPDX-License-Identifier: Apache-2.0
"""A web application with what a test puts into it, without ZooKeeper and without a daemon."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from starlette.applications import Starlette
from starlette.routing import BaseRoute
from starlette.testclient import TestClient

from nodepool.clock import monotonic
from nodepool.plan.observed import Observed
from nodepool.runtime.daemon import ConnectedDaemon
from nodepool.web import served
from nodepool.web.app import make_app
from nodepool.web.snapshot import RecordKind, SnapshotMaker, WebSnapshot


class GivenSnapshots(SnapshotMaker):
    """Snapshots of a test: `snapshot` may be replaced, `changed` filled."""

    def __init__(self, snapshot: WebSnapshot) -> None:
        self.snapshot = snapshot
        self.changed: dict[RecordKind, frozenset[str]] = {}
        self.life = lambda _kind, _id: None

    @property
    def complete(self) -> bool:
        return self.snapshot.complete

    def latest(self, lifetime: float = 0.0) -> WebSnapshot:
        return replace(self.snapshot, life=self.life)

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
        #: No connection to ZooKeeper was there yet.
        self.client = SimpleNamespace(latency=None)


class WebSite:
    """The application of ``nodepool-web`` and a client of it.

    :param snapshot: what it shows; None = nothing is there.
    :param settings: further arguments of `nodepool.web.app.make_app`.
    """

    def __init__(self, snapshot: WebSnapshot | None = None, **settings: Any) -> None:
        self.snapshots = GivenSnapshots(snapshot or WebSnapshot(0, Observed(1_000.0)))
        self.daemon = StillDaemon()
        self._settings = settings
        self.client = TestClient(self.make_app(), base_url="http://nodepool.example:8005", follow_redirects=False)

    def routes(self) -> list[BaseRoute]:
        """What each daemon serves."""
        daemon = cast("ConnectedDaemon", self.daemon)
        return [
            *served.health(daemon, "1.2.3", lambda: self.snapshots.complete),
            *served.listings(daemon, self.snapshots),
            served.metrics_route(daemon, "1.2.3", None, self.snapshots),
        ]

    def make_app(self) -> Starlette:
        return make_app(self.snapshots, "1.2.3", self.routes(), **self._settings)
