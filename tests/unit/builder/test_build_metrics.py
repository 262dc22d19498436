# SPDX-License-Identifier: Apache-2.0
"""Gauges of builds."""

from __future__ import annotations

from nodepool.builder.build_metrics import BuildMetrics
from nodepool.builder.build_progress import BuildProgress
from nodepool.builder.running_builds import RunningBuilds
from nodepool.config.objects import Config, DiskImage
from nodepool.metrics import catalog
from nodepool.metrics.registry import Registry
from nodepool.model.image_view import NO_IMAGES


def test_gauges() -> None:
    """They follow what runs."""
    registry, running, config = Registry(), RunningBuilds(), Config()
    config.diskimages["debian"] = DiskImage("debian")
    metrics = BuildMetrics(registry, lambda: NO_IMAGES, lambda: config, running, 2)

    def values() -> dict[str, float]:
        metrics.publish()
        names = (catalog.CURRENT_BUILDS, catalog.BUILD_WORKERS, catalog.BUILD_STATE)
        found = registry.snapshot().items()
        return {series.metric.name: value for series, value in found if series.metric in names}  # type: ignore[misc]

    with running.running("debian", "0123", BuildProgress(100.0), None):
        assert list(values().values()) == [1, 2, 1]
    assert list(values().values()) == [0, 2, 0]


def test_how_far_builds_are() -> None:
    """How long a build has been running, and may take; nothing is left when it has ended."""
    registry, running = Registry(), RunningBuilds()
    metrics = BuildMetrics(registry, lambda: NO_IMAGES, Config, running, 2, clock=lambda: 130.0)

    def values() -> list[float]:
        metrics.publish()
        names = (catalog.BUILD_SECONDS, catalog.BUILD_ESTIMATE)
        return [value for series, value in registry.snapshot().items() if series.metric in names]  # type: ignore[misc]

    with running.running("debian", "0123", BuildProgress(100.0), 80.0):
        assert values() == [30.0, 80.0]
    assert values() == []
