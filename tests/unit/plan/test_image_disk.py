# SPDX-License-Identifier: Apache-2.0
"""nodepool.plan.images: which local files go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodepool.model.image import ImagesView
from nodepool.plan.images import LocalBuild, RemoveFiles, WantedImage, WantedImages, WantedUpload, judge_files
from tests.support.image_views import build, images, upload

FILES = LocalBuild("debian", "b1", frozenset({"qcow2", "raw"}), newest=100.0)
KEEP_ALL = WantedImages({"debian": WantedImage("debian")}, {"cloud": {"debian": WantedUpload("qcow2")}})
NOW = 10000.0


def judge(
    view: ImagesView,
    wanted: WantedImages = KEEP_ALL,
    files: LocalBuild = FILES,
    *,
    now: float = NOW,
    knows_own_records: bool = True,
    clean_orphans: bool = False,
) -> list[RemoveFiles]:
    found = judge_files([files], wanted, view, now, knows_own_records=knows_own_records, clean_orphans=clean_orphans)
    return list(found)


@pytest.mark.parametrize("state", ["building", "ready", "failed", None])
def test_files_with_a_record(state: str | None) -> None:
    """R-9: they go when the record says so, R-16: with the manifest of an interrupted build."""
    assert judge(images(build("b1", state, 1.0))) == []
    assert judge(images(build("b1", "deleting", 1.0))) == [RemoveFiles("debian", "b1", None, "it is being deleted")]


def test_running_build() -> None:
    """R-9: its record may be anything."""
    running = replace(FILES, running=True)
    for view in (images(), images(build("b1", "deleting", 1.0))):
        assert judge(view, files=running, clean_orphans=True) == []


def test_files_without_a_record() -> None:
    """R-9, R-15: an hour old, and records of this builder are there at all."""
    assert judge(images()) == [RemoveFiles("debian", "b1", None, "no record of it for 9900 s")]
    assert judge(images(), now=3700.0) == []
    assert judge(images(), knows_own_records=False) == []
    assert judge(images(), now=101.0, knows_own_records=False, clean_orphans=True) != []


def test_files_without_a_record_where_others_build() -> None:
    """R-15: this builder has no record at all, but the image has been built, and an hour has passed since its start."""
    orphan = replace(FILES, orphan_since=NOW - 3601.0)
    others = images(build("b2", "ready", 1.0))
    assert judge(others, files=orphan, knows_own_records=False) != []
    assert judge(others, files=replace(orphan, orphan_since=NOW - 3599.0), knows_own_records=False) == []
    assert judge(others, files=replace(orphan, newest=NOW - 3599.0), knows_own_records=False) == []
    assert judge(images(build("b2", "building", 1.0)), files=orphan, knows_own_records=False) == []
    assert judge(images(), files=orphan, knows_own_records=False) == []


def frugal(*keep: str, **providers: WantedUpload) -> WantedImages:
    wanted = WantedImage("debian", delete_after_upload=True, keep_formats=frozenset(keep))
    return WantedImages({"debian": wanted}, {name: {"debian": use} for name, use in providers.items()})


QCOW2, RAW = WantedUpload("qcow2"), WantedUpload("raw")


def formats(found: list[RemoveFiles]) -> set[str]:
    return set().union(*(verdict.formats or () for verdict in found))


def test_delete_after_upload() -> None:
    """R-10: a format goes when every provider that uses it has the image."""
    one = images(build("b1", "ready", 1.0, upload(1, provider="a")))
    wanted = frugal(a=QCOW2, b=QCOW2, c=RAW)
    assert judge(one, wanted) == []
    two = images(build("b1", "ready", 1.0, upload(1, provider="a"), upload(1, provider="b")))
    assert judge(two, wanted) == [
        RemoveFiles("debian", "b1", frozenset({"qcow2"}), "every provider that uses it has it")
    ]
    assert judge(two, KEEP_ALL) == []
    assert formats(judge(two, frugal("qcow2", a=QCOW2, b=QCOW2, c=RAW))) == set()


def test_formats_that_nobody_uses() -> None:
    """R-10: at the next clean-up; a paused provider keeps its own."""
    view = images(build("b1", "ready", 1.0, upload(1, provider="a")))
    assert formats(judge(view, frugal(a=QCOW2))) == {"qcow2", "raw"}
    assert formats(judge(view, frugal(a=QCOW2, b=WantedUpload("raw", paused=True)))) == {"qcow2"}
    assert formats(judge(view, frugal(a=WantedUpload("qcow2", paused=True)))) == {"raw"}


def test_files_in_use() -> None:
    """R-10: of uploads under way nothing goes."""
    busy = images(build("b1", "ready", 1.0, upload(1, provider="a"), uploading=["a"]))
    assert formats(judge(busy, frugal(a=QCOW2))) == {"raw"}
    view = images(build("b1", "ready", 1.0, upload(1, provider="a")))
    assert formats(judge(view, frugal(a=QCOW2), replace(FILES, reading=frozenset({"raw"})))) == {"qcow2"}


def test_delete_after_upload_of_other_builds() -> None:
    """R-10: only of a build that is ready, of an image that is configured."""
    view = images(build("b1", "building", 1.0, upload(1, provider="a")))
    assert judge(view, frugal(a=QCOW2)) == []
    ready = images(build("b1", "ready", 1.0, upload(1, provider="a")))
    assert judge(ready, WantedImages({}, {"a": {}})) == []
