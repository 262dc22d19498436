# SPDX-License-Identifier: Apache-2.0
"""Uploads: what the workers of a builder do next, how far they are, and what metrics say."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from nodepool.builder import progress
from nodepool.builder.image_files import ImageFiles
from nodepool.builder.progress import BuilderOptions, Meter, Shared, UploadKey
from nodepool.builder.uploads import Outcome, UploadQueue, publish_uploads
from nodepool.config.objects import Config, DiskImage
from nodepool.metrics.catalog import CURRENT_UPLOADS, UPLOAD_STATE
from nodepool.metrics.registry import Registry
from nodepool.model.image import ImagesView
from tests.support.image_views import IMAGE, build, images, upload
from tests.support.manual_clock import monotonic_clock

B1, B2 = "1" * 32, "2" * 32


def section(name: str) -> Any:
    """Of a provider that wants the image."""
    uses = {IMAGE: SimpleNamespace(pause=False)}
    return SimpleNamespace(name=name, manage_images=True, image_type="qcow2", diskimages=uses)


def shared(site: Any, directory: Path, options: BuilderOptions) -> Shared:
    """What an `UploadQueue` or `publish_uploads` uses."""
    nothing: Any = None
    more: dict[str, Any] = {"registry": Registry()}
    files = ImageFiles(directory)
    return Shared(nothing, nothing, lambda: site.view, lambda: site.config, site, files, "id", options, **more)


class Site:
    """One image that each of some providers wants; two builds are on the disk."""

    def __init__(self, directory: Path, providers: str, workers: int) -> None:
        self.view: ImagesView | None = images(build(B1, "ready", 1.0))
        self.config = Config()
        self.config.diskimages[IMAGE] = DiskImage(IMAGE)
        self.config.providers = {name: section(name) for name in providers}
        self.running: dict[str, Any] = dict.fromkeys(providers, object())
        for build_id in (B1, B2):
            ImageFiles(directory).path(IMAGE, build_id, "qcow2").write_bytes(b"x")
        self.queue = UploadQueue(shared(self, directory, BuilderOptions(upload_workers=workers)))

    def take(self) -> tuple[str, str] | float | None:
        """Build and provider of the next job, or seconds to wait."""
        job, wait_seconds = self.queue.take()
        return wait_seconds if job is None else (job.build_id, job.provider)

    def ends(self, outcome: Outcome, upload_id: str | None = "0000000001") -> str:
        """The next job ends so; returns its build."""
        job, _ = self.queue.take()
        assert job is not None
        self.queue.ended(job, outcome, upload_id)
        return job.build_id


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, "ab", 4)


def test_what_is_next(site: Site) -> None:
    """U-1, U-15: one build goes to all clouds at once, the newest one only; nothing is begun twice, nor before all is
    known. Uploads to a provider that does not run wait, and hold up no others.
    """
    provider, view = site.running.pop("a"), site.view
    site.view = None
    assert site.take() is None
    site.view = view
    assert [site.take() for _ in range(2)] == [(B1, "b"), None]
    site.running["a"] = provider
    assert [site.take() for _ in range(2)] == [(B1, "a"), None]
    assert len(site.queue.running) == 2
    site.view = images(build(B1, "ready", 1.0), build(B2, "ready", 2.0, upload(1, provider="a")))
    assert [site.take() for _ in range(2)] == [(B2, "b"), None]


def test_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all the time. A call that is repeated begins with the first byte."""
    clock = monotonic_clock(monkeypatch, progress, now=100.0)
    meter = Meter(1000)
    assert meter.as_status() == {"percent": 0.0, "bytes_per_second": 0, "size": 1000}
    assert Meter(0).as_status()["percent"] == 0.0
    told = []
    for number in range(60):
        clock.now += 0.01
        told.append(meter.report(number, 1000))
    assert (sum(told), meter.as_status()["percent"]) == (1, 5.9), "not of each chunk"
    for second in range(1, 31):
        clock.now = 101.0 + second
        assert meter.report(60 + 23 * second, 1000)
    assert meter.as_status() == {"percent": 75.0, "bytes_per_second": 24, "size": 1000}
    for done, speed in ((0, 0), (20, 20)):
        clock.now += 1
        meter.report(done, 1000)
        assert meter.as_status() == {"percent": done / 10, "bytes_per_second": speed, "size": 1000}


KEY: Final = UploadKey(IMAGE, B1, "cloud", "0000000001")


def test_metrics(tmp_path: Path) -> None:
    """reference/metrics 6: an image that is not used any more has no gauge."""
    config = Config()
    config.diskimages[IMAGE] = DiskImage(IMAGE)
    config.providers["cloud"] = section("cloud")
    used = shared(SimpleNamespace(config=config, view=None), tmp_path, BuilderOptions())
    host = socket.getfqdn()

    def gauges() -> list[Any]:
        publish_uploads(used)
        values = used.registry.snapshot()
        return [values.get(name) for name in (UPLOAD_STATE.series(host, IMAGE, "cloud"), CURRENT_UPLOADS.series(host))]

    assert gauges() == [0, 0]
    with used.uploads.running(KEY, Meter(10)):
        assert gauges() == [2, 1]
    config.providers["cloud"].diskimages.clear()  # type: ignore[attr-defined]
    assert gauges() == [None, 0]
