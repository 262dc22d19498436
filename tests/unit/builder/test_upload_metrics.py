# SPDX-License-Identifier: Apache-2.0
"""nodepool.builder.uploads: gauges follow the configuration and what runs."""

from __future__ import annotations

import socket
from types import SimpleNamespace

from nodepool.builder.progress import RunningUploads, UploadKey
from nodepool.builder.uploads import UploadMetrics
from nodepool.config.objects import Config, DiskImage
from nodepool.metrics.catalog import CURRENT_UPLOADS, UPLOAD_PROGRESS, UPLOAD_STATE
from nodepool.metrics.registry import Registry


def test_publish() -> None:
    """reference/metrics 6: an image that is not used any more has no gauge."""
    registry, running, config = Registry(), RunningUploads(), Config()
    config.diskimages["debian"] = DiskImage("debian")
    images = {"debian": SimpleNamespace(pause=False)}
    section = SimpleNamespace(name="cloud", manage_images=True, image_type="raw", diskimages=images)
    config.providers["cloud"] = section  # type: ignore[assignment]
    metrics = UploadMetrics(registry, lambda: config, running, 4)
    state, current = UPLOAD_STATE.series(socket.getfqdn(), "debian", "cloud"), CURRENT_UPLOADS.series(socket.getfqdn())
    metrics.publish()
    assert (registry.snapshot()[state], registry.snapshot()[current]) == (0, 0)
    with running.running(UploadKey("debian", "b1", "cloud", "1"), 10):
        metrics.publish()
        assert (registry.snapshot()[state], registry.snapshot()[current]) == (2, 1)
    images.clear()
    metrics.publish()
    assert state not in registry.snapshot()


def test_progress() -> None:
    """Told every few seconds, and at the end: then there are no gauges of it any more."""
    registry, running = Registry(), RunningUploads()
    now = 100.0
    metrics = UploadMetrics(registry, Config, running, 4, lambda: now)
    running.on_change = metrics.progress
    series = UPLOAD_PROGRESS.series(socket.getfqdn(), "debian", "cloud")
    with running.running(UploadKey("debian", "b1", "cloud", "1"), 10) as meter:
        assert registry.snapshot()[series] == 0
        meter.report(5, 10)
        metrics.progress()
        assert registry.snapshot()[series] == 0
        now += 6
        metrics.progress()
        assert registry.snapshot()[series] == 50
    assert series not in registry.snapshot()
