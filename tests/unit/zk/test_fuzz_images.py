# SPDX-License-Identifier: Apache-2.0
"""Whatever stands in znodes of images: a view can be made of it, and every decision be taken on that view.

An error of another kind would end each pass of a worker, and one image would stop all others (R-17).
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodepool.model.image import ImageBuild, ImagesView, ImageUpload, ImageView
from nodepool.plan import images
from nodepool.plan.images import (
    DeleteUpload,
    LocalBuild,
    MarkBuild,
    RemoveBuild,
    WantedImage,
    WantedImages,
    WantedUpload,
    choose_rollback,
    judge_files,
    judge_images,
)
from nodepool.zk import caches, paths
from nodepool.zk.caches import ImageTree
from tests.support.odd_json import records

NOW = 1_800_000_000.0
GOOD_BUILD: dict[str, Any] = {**ImageBuild("debian", "1").to_dict(NOW), "state": "ready", "formats": "raw,qcow2"}
GOOD_UPLOAD: dict[str, Any] = {
    **ImageUpload("debian", "1", "cloud", "1").to_dict(NOW),
    "state": "ready",
    "external_id": "i",
}
BUILDS = ("b1", "b2", "b3")
WANTED = WantedImages(
    {"debian": WantedImage("debian", frozenset({"raw"}), delete_after_upload=True)},
    {"cloud": {"debian": WantedUpload("raw")}},
)
STAT = SimpleNamespace(version=0, mzxid=1, czxid=1, ctime=1000, mtime=1000)


@st.composite
def trees(draw: st.DrawFn) -> ImageTree:
    """An image with builds and uploads of which some are odd."""
    tree = ImageTree()
    for build_id in BUILDS:
        path = caches.build("debian", build_id)
        tree.add(path)
        tree.load(path, draw(records(GOOD_BUILD, ["builder", "builder_id", "duration"])), STAT)
        upload = caches.upload("debian", build_id, "cloud", "0000000001")
        if draw(st.booleans()):
            tree.add(upload)
            tree.load(upload, draw(records(GOOD_UPLOAD, ["rolled_back"])), STAT)
    return tree


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(trees())
def test_every_decision_can_be_taken(tree: ImageTree) -> None:
    """R-17"""
    image = tree.view("debian")
    assert image is not None
    assert sorted(image.builds) == sorted(BUILDS)
    view = ImagesView({"debian": image})
    for now in (0.0, NOW, 2 * NOW):
        build(image, now)
        upload(view, now)
        clean_up(view, now)
    choose_rollback(image, "cloud")


def build(image: ImageView, now: float) -> None:
    wanted = WANTED.images["debian"]
    history = images.observe_builds(images.BuildHistory(), image, wanted.settings, now)
    own = images.OwnBuilds("1", {})
    verdict = images.build_due(wanted, image, history, now, WANTED.users("debian"), own)
    assert verdict.reason.isprintable()


def upload(view: ImagesView, now: float) -> None:
    history = images.observe_uploads(images.UploadHistory(), view, now)
    due = images.uploads_due(WANTED, view, {("debian", number): ("raw",) for number in BUILDS}, history, now)
    images.next_upload(due.jobs, [], 2, 1)
    image = view.image("debian")
    for found in image.builds.values():
        images.overtaken(found, image, "cloud")


def clean_up(view: ImagesView, now: float) -> None:
    """What is written in the end can be written: it is JSON, and has the version that was read."""
    for verdict in judge_images(WANTED, view, now):
        assert isinstance(verdict, DeleteUpload | MarkBuild | RemoveBuild)
        record = None if isinstance(verdict, RemoveBuild) else verdict.record
        if record is not None:
            assert record.version == 0
            copied = record.copy()
            copied.state = "deleting"
            json.loads(paths.encode(copied.to_dict(now)))
    local = [LocalBuild("debian", build_id, frozenset({"raw"}), 0.0) for build_id in BUILDS]
    assert all(found.reason for found in judge_files(local, WANTED, view, now, knows_own_records=True))
