# SPDX-License-Identifier: Apache-2.0
"""nodepool.builder.image_cleanup: which files go from the disk of a builder."""

from __future__ import annotations

import os

import pytest

from nodepool.builder import image_cleanup
from nodepool.builder.progress import BuilderOptions
from nodepool.clock import wall_time
from nodepool.plan.images import ORPHAN_AGE_SECONDS
from nodepool.zk import caches
from tests.support.image_site import IMAGE, ImageSite

NEVER = "f" * 32


def orphan(site: ImageSite, age_seconds: float) -> None:
    """A file of a build without a record."""
    path = site.files.path(IMAGE, NEVER, "qcow2")
    path.write_bytes(b"x")
    os.utime(path, times=(wall_time() - age_seconds,) * 2)


def test_files_without_a_record(site: ImageSite) -> None:
    """R-9, R-15: only old ones, and only when this builder has seen a record of its own."""
    orphan(site, ORPHAN_AGE_SECONDS + 60)
    site.clean()
    assert site.on_disk() == {NEVER}, "the records may be restored yet"
    build = site.build()
    site.clean()
    assert site.on_disk() == {build.key}
    orphan(site, ORPHAN_AGE_SECONDS - 60)
    site.clean()
    assert site.on_disk() == {build.key, NEVER}
    site.cleanup = site.make_cleanup(options=BuilderOptions(clean_orphans=True))
    site.clean()
    assert site.on_disk() == {build.key}


def test_records_that_vanish(site: ImageSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-15: somebody empties ZooKeeper while the builder runs. The records may be restored for an hour."""
    now = wall_time()
    monkeypatch.setattr(image_cleanup, "wall_time", lambda: now)
    builds = [site.build(), site.build()]
    old = (now - 2 * ORPHAN_AGE_SECONDS,) * 2
    for build in builds:
        for file in site.files.of_build(IMAGE, build.key):
            os.utime(file.path, times=old)
    site.clean()
    site.client.kazoo.delete(caches.image(IMAGE), recursive=True)
    site.clean()
    assert site.on_disk() == {build.key for build in builds}
    now += 2 * ORPHAN_AGE_SECONDS
    site.clean()
    assert site.on_disk() == {build.key for build in builds}, "no record of this builder is there at all"
    now -= ORPHAN_AGE_SECONDS + 1
    new = site.build()
    site.clean()
    assert site.on_disk() == {build.key for build in [*builds, new]}, "they were there a moment ago"
    now += 2
    site.clean()
    assert site.on_disk() == {new.key}
