# SPDX-License-Identifier: Apache-2.0
"""``/health``: what a load balancer, systemd and an orchestrator are told."""

from __future__ import annotations

import dataclasses

from nodepool.clock import monotonic
from nodepool.web.site import STUCK_SECONDS
from tests.support.web_site import WebSite


def codes(site: WebSite) -> tuple[int, int]:
    """Of ``live`` and ``ready``."""
    return site.client.get("/health/live").status_code, site.client.get("/health/ready").status_code


def test_serves() -> None:
    assert codes(WebSite()) == (200, 200)


def test_starts() -> None:
    """It is not stuck, however long the start takes."""
    site = WebSite()
    site.daemon.ready.clear()
    site.daemon.last_loop = 0.0
    assert codes(site) == (200, 503)
    assert site.client.get("/health/status").json()["state"] == "initializing"


def test_main_loop_is_stuck() -> None:
    site = WebSite()
    site.daemon.last_loop = monotonic() - STUCK_SECONDS - 1
    assert codes(site) == (503, 200)


def test_without_zookeeper() -> None:
    """A restart would not help."""
    site = WebSite()
    site.daemon.connected = False
    assert codes(site) == (200, 503)


def test_caches_are_not_complete() -> None:
    site = WebSite()
    site.snapshots.snapshot = dataclasses.replace(site.snapshots.snapshot, complete=False)
    assert codes(site) == (200, 503)


def test_status() -> None:
    site = WebSite()
    site.daemon.reload_errors = ["line 5: no"]
    told = site.client.get("/health/status").json()
    assert told["loop_age_seconds"] < STUCK_SECONDS
    del told["loop_age_seconds"]
    assert told == {
        "kind": "launcher",
        "version": "1.2.3",
        "state": "running",
        "live": True,
        "ready": True,
        "connected": True,
        "reload_errors": ["line 5: no"],
    }
