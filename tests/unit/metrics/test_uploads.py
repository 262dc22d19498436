# SPDX-License-Identifier: Apache-2.0
"""nodepool.metrics.reports: gauges of a builder's uploads (reference/metrics 6)."""

from __future__ import annotations

from nodepool.metrics.reports import progress_gauges, upload_gauges
from nodepool.metrics.statsd import statsd_names


def test_gauges() -> None:
    """Every image that a provider uses has a state; one that is uploaded before its pause began is uploading."""
    paused = {("debian", "a"): False, ("debian", "b"): True, ("fedora", "a"): False, ("fedora", "b"): True}
    running = {("fedora", "a"): (50.0, 1000.0), ("fedora", "b"): (10.0, 1.0)}
    gauges = upload_gauges("nb01.example.com", paused, running, 4) | progress_gauges("nb01.example.com", running)
    assert {name: value for series, value in gauges.items() for name in statsd_names(series)} == {
        "nodepool.builder.nb01.example.com.image.debian.provider.a.upload.state": 0,
        "nodepool.builder.nb01.example.com.image.debian.provider.b.upload.state": 3,
        "nodepool.builder.nb01.example.com.image.fedora.provider.a.upload.state": 2,
        "nodepool.builder.nb01.example.com.image.fedora.provider.b.upload.state": 2,
        "nodepool.builder.nb01.example.com.image.fedora.provider.a.upload.progress": 50.0,
        "nodepool.builder.nb01.example.com.image.fedora.provider.a.upload.bytes_per_second": 1000.0,
        "nodepool.builder.nb01.example.com.image.fedora.provider.b.upload.progress": 10.0,
        "nodepool.builder.nb01.example.com.image.fedora.provider.b.upload.bytes_per_second": 1.0,
        "nodepool.builder.nb01.example.com.current_uploads": 2,
        "nodepool.builder.nb01.example.com.upload_workers": 4,
    }
