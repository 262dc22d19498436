# SPDX-License-Identifier: Apache-2.0
"""nodepool.builder.uploads: what the workers of a builder do next."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.builder.image_files import ImageFiles
from nodepool.builder.uploads import PUT_OFF_SECONDS, Outcome, UploadQueue
from nodepool.config.objects import Config, DiskImage
from nodepool.model.image import ImagesView
from nodepool.plan.images import BACKOFF
from tests.support.image_views import IMAGE, build, images, upload

B1, B2 = "1" * 32, "2" * 32


class Site:
    """One image that each of some providers wants; two builds are on the disk."""

    def __init__(self, directory: Path, providers: tuple[str, ...], workers: int) -> None:
        self.now = 1000.0
        self.view: ImagesView | None = images(build(B1, "ready", 1.0))
        self.config = Config()
        self.config.diskimages[IMAGE] = DiskImage(IMAGE)
        self.running: dict[str, Any] = {}
        for name in providers:
            section = SimpleNamespace(
                name=name, manage_images=True, image_type="qcow2", diskimages={IMAGE: SimpleNamespace(pause=False)}
            )
            self.config.providers[name] = section  # type: ignore[assignment]
            self.running[name] = object()
        files = ImageFiles(directory)
        for build_id in (B1, B2):
            files.path(IMAGE, build_id, "qcow2").write_bytes(b"x")
        self.queue = UploadQueue(
            lambda: self.view, lambda: self.config, lambda: self.running, files, workers, lambda: self.now
        )

    def take(self) -> tuple[str, str] | float | None:
        """Build and provider of the next job, or seconds to wait."""
        taken = self.queue.take()
        return taken.wait_seconds if taken.job is None else (taken.job.build_id, taken.job.provider)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, ("a", "b"), 4)


def test_side_by_side(site: Site) -> None:
    """U-15: one build goes to all clouds at once; nothing is begun twice."""
    assert [site.take() for _ in range(3)] == [(B1, "a"), (B1, "b"), None]
    assert len(site.queue.running) == 2


def test_newest_first(site: Site) -> None:
    """U-1, U-15: of the newest build nothing older is uploaded, to anybody."""
    site.view = images(build(B1, "ready", 1.0), build(B2, "ready", 2.0, upload(1, provider="a")))
    assert [site.take() for _ in range(2)] == [(B2, "b"), None]


def test_not_known_yet(site: Site) -> None:
    """Before everything was read nothing is begun."""
    site.view = None
    assert site.take() is None


def test_provider_that_does_not_run(site: Site) -> None:
    """Its uploads wait; those of others are not held up."""
    del site.running["a"]
    assert [site.take() for _ in range(2)] == [(B1, "b"), None]
    site.running["a"] = object()
    assert site.take() == (B1, "a")


def failed(site: Site, upload_id: str) -> None:
    job = site.queue.take().job
    assert job is not None
    site.queue.ended(job, Outcome.FAILED, upload_id)


def test_back_off(tmp_path: Path) -> None:
    """U-6, U-15: longer with each failure in a row, also when the records of failures are gone by then."""
    site = Site(tmp_path, ("a",), 1)
    for number in range(1, 8):
        failed(site, f"{number:010}")
        wait_seconds = site.queue.take().wait_seconds
        assert wait_seconds == pytest.approx(BACKOFF.pause(number))
        site.now += wait_seconds or 0.0


def test_back_off_ends(site: Site) -> None:
    """U-15: with a configuration, and with an upload to the same cloud that worked."""
    failed(site, "0000000001")
    site.queue.configuration_changed()
    assert site.take() == (B1, "a")


def test_cloud_that_works_again(tmp_path: Path) -> None:
    site = Site(tmp_path, ("a",), 2)
    failed(site, "0000000001")
    assert site.queue.take().job is None
    site.view = images(build(B1, "ready", 1.0), build(B2, "ready", 2.0))
    job = site.queue.take().job
    assert job is not None
    assert job.build_id == B2
    site.queue.ended(job, Outcome.READY, "0000000002")
    # The newer build is removed by somebody.
    site.view = images(build(B1, "ready", 1.0))
    assert site.take() == (B1, "a")


def test_somebody_else_makes_it(site: Site) -> None:
    """U-2: who did not get the lock does not ask again and again, and does not count it as a failure."""
    job = site.queue.take().job
    assert job is not None
    site.queue.ended(job, Outcome.NOT_DUE, None)
    assert site.take() == (B1, "b")
    assert site.take() == pytest.approx(PUT_OFF_SECONDS)
    site.now += PUT_OFF_SECONDS + 0.1
    assert site.take() == (B1, "a")


def test_given_up(site: Site) -> None:
    """U-12: that is no failure of the cloud."""
    job = site.queue.take().job
    assert job is not None
    site.queue.ended(job, Outcome.GIVEN_UP, "0000000001")
    assert site.take() == (B1, "a")
