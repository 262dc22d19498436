# SPDX-License-Identifier: Apache-2.0
"""nodepool.plan.images: which builds and uploads go."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from nodepool.model.image import BuildView, UploadView
from nodepool.plan.images import (
    DeleteUpload,
    MarkBuild,
    RemoveBuild,
    Verdict,
    WantedImage,
    WantedImages,
    WantedUpload,
    judge_images,
    left_to_its_builder,
)
from tests.support.image_views import bad_upload, build, images, upload

USE = {"debian": WantedUpload("qcow2")}
WANTED = WantedImages({"debian": WantedImage("debian")}, {"cloud": USE, "other": USE})
UNLISTED = WantedImages({"debian": WantedImage("debian")}, {"cloud": {}, "other": USE})
REMOVED = WantedImages({}, {"cloud": {}, "other": {}})
NOW = 10000.0


def verdicts(
    *builds: BuildView, wanted: WantedImages = WANTED, build_locked: bool = False, ever: Collection[str] = ("debian",)
) -> list[Verdict]:
    return judge_images(wanted, images(*builds, build_locked=build_locked), NOW, ever)


def uploads_of(found: list[Verdict]) -> list[tuple[str, str, int]]:
    """Those that are deleted: build, provider, number."""
    return [(v.build_id, v.provider, int(v.upload_id)) for v in found if isinstance(v, DeleteUpload)]


def marked(found: list[Verdict]) -> list[str]:
    return [v.build_id for v in found if isinstance(v, MarkBuild)]


def removed(found: list[Verdict]) -> list[str]:
    return [v.build_id for v in found if isinstance(v, RemoveBuild)]


READY = [build(f"b{n}", "ready", float(n), upload(1, time=float(n))) for n in range(1, 5)]


def test_two_newest_ready_builds_stay() -> None:
    """R-1. An upload of an older one goes first, then the build."""
    assert verdicts(*READY[:2]) == []
    found = verdicts(*READY)
    assert uploads_of(found) == [("b1", "cloud", 1), ("b2", "cloud", 1)]
    assert marked(found) == []
    without = [build("b1", "ready", 1.0), *READY[2:]]
    assert marked(verdicts(*without)) == ["b1"]


def test_builds_that_are_not_ready_do_not_count() -> None:
    """R-1"""
    assert marked(verdicts(build("b5", "building", 5.0), *READY[:2], build_locked=True)) == []
    assert marked(verdicts(build("b5", "failed", 5.0), *READY[:2])) == ["b5"]


def test_two_newest_ready_uploads_stay() -> None:
    """R-2: of each provider, with their builds, as long as no newer ones are there."""
    old, older = build("b2", "ready", 2.0, upload(1, time=2.0)), build("b1", "ready", 1.0, upload(1, time=1.0))
    assert verdicts(older, old, build("b3", "ready", 3.0), build("b4", "ready", 4.0)) == []
    with_one = [older, old, build("b3", "ready", 3.0), READY[3]]
    assert uploads_of(verdicts(*with_one)) == [("b1", "cloud", 1)]
    elsewhere = build("b1", "ready", 1.0, upload(1, time=1.0, provider="other"))
    assert verdicts(elsewhere, *READY[2:]) == [], "the other provider has nothing newer"


def test_all_ready_uploads_of_kept_builds_stay() -> None:
    """R-2: it is about unwanted builds."""
    several = build("b2", "ready", 2.0, *(upload(n, time=float(n)) for n in range(1, 5)))
    assert verdicts(several) == []


def test_uploads_of_a_deleted_build_do_not_keep_others_away() -> None:
    """R-2, R-13: what dib-image-delete marked goes with all uploads; two others stay."""
    doomed = build("b9", "deleting", 9.0, upload(1, time=90.0), upload(2, time=91.0))
    found = verdicts(build("b1", "ready", 1.0, upload(1, time=1.0)), *READY[2:], doomed)
    assert [v for v in uploads_of(found) if v[0] == "b9"] == [("b9", "cloud", 1), ("b9", "cloud", 2)]
    only = verdicts(*READY[:2], doomed)
    assert {v[0] for v in uploads_of(only)} == {"b9"}


def test_provider_that_does_not_use_the_image_any_more() -> None:
    """R-3: whatever the state of the build."""
    found = verdicts(*READY[2:], wanted=UNLISTED)
    assert uploads_of(found) == [("b3", "cloud", 1), ("b4", "cloud", 1)]
    assert marked(found) == []
    assert isinstance(found[0], DeleteUpload)
    assert "does not use the image" in found[0].reason


@pytest.mark.parametrize(("state", "find"), [("failed", True), ("deleting", False), ("uploading", True)])
def test_records_of_kept_builds(state: str, find: bool) -> None:
    """R-4: without an id of the image the cloud is asked for it (D-3)."""
    found = verdicts(build("b1", "ready", 1.0, upload(7, state, time=1.0)))
    assert [v for v in found if isinstance(v, DeleteUpload) and v.find is find] == found
    assert uploads_of(found) == [("b1", "cloud", 7)]


def test_upload_under_way_stays() -> None:
    """R-4: nobody has abandoned it while the lock is held. U-11: else its builder has ended."""
    running = build("b1", "ready", 1.0, upload(7, "uploading", time=1.0), uploading=["cloud"])
    assert verdicts(running) == []
    other = build("b1", "ready", 1.0, upload(7, "uploading", time=1.0), uploading=["other"])
    assert uploads_of(verdicts(other)) == [("b1", "cloud", 7)]


@pytest.mark.parametrize(
    ("state", "time", "fields", "seconds"),
    [
        ("uploading", 1.0, {"external_name": "debian-1"}, 60.0),
        ("uploading", 1.0, {}, 60.0),
        ("deleting", NOW - 20.0, {"external_name": "debian-1"}, 40.0),
        ("deleting", NOW + 20.0, {"external_name": "debian-1"}, 60.0),
        ("deleting", NOW - 60.0, {"external_name": "debian-1"}, 0.0),
        ("deleting", NOW, {}, 0.0),
        ("deleting", NOW, {"external_name": "debian-1", "external_id": "i-1"}, 0.0),
        ("failed", NOW, {}, 0.0),
    ],
)
def test_how_long_a_record_stays(state: str, time: float, fields: dict[str, str], seconds: float) -> None:
    """R-4: whoever was making an abandoned image may not know yet that nobody wants it."""
    view = upload(7, state, time=time)
    assert view.record is not None
    view.record.external_id = None
    for name, value in fields.items():
        setattr(view.record, name, value)
    (found,) = verdicts(build("b1", "ready", 1.0, view))
    assert isinstance(found, DeleteUpload)
    assert found.stays_seconds == seconds


RESUMING = WantedImages({"debian": WantedImage("debian")}, {"cloud": {"debian": WantedUpload("raw", resumes=True)}})


def test_interrupted_upload_that_another_goes_on_with() -> None:
    """R-4: its record stays as long as another upload of the build is due there; one that failed goes at once."""
    build1 = build("b1", "ready", 1.0, upload(7, "uploading", time=NOW - 80000.0))
    assert verdicts(build1, wanted=RESUMING) == []
    failed = build("b1", "ready", 1.0, upload(7, "failed", time=NOW))
    assert uploads_of(verdicts(failed, wanted=RESUMING)) == [("b1", "cloud", 7)]


@pytest.mark.parametrize(
    ("others", "use", "time"),
    [
        ([upload(8, time=3.0)], RESUMING.providers["cloud"]["debian"], NOW),
        ([], WantedUpload("raw", paused=True, resumes=True), NOW),
        ([], WantedUpload("raw", resumes=True), NOW - 90000.0),
    ],
)
def test_interrupted_upload_that_nobody_goes_on_with(others: list[UploadView], use: WantedUpload, time: float) -> None:
    """R-4: another one is ready, none is to come, or it is a day old."""
    wanted = WantedImages(RESUMING.images, {"cloud": {"debian": use}})
    found = verdicts(build("b1", "ready", 1.0, upload(7, "uploading", time=time), *others), wanted=wanted)
    assert uploads_of(found) == [("b1", "cloud", 7)]


def test_interrupted_upload_of_an_older_build() -> None:
    """R-4, U-1: only the newest build is uploaded."""
    older = build("b1", "ready", 1.0, upload(7, "uploading", time=NOW))
    assert uploads_of(verdicts(older, build("b2", "ready", 2.0), wanted=RESUMING)) == [("b1", "cloud", 7)]


def test_abandoned_and_failed_builds() -> None:
    """R-5"""
    assert marked(verdicts(build("b1", "building", 1.0))) == ["b1"]
    assert verdicts(build("b1", "building", 1.0), build_locked=True) == []
    assert marked(verdicts(build("b1", "failed", 1.0))) == ["b1"]
    assert marked(verdicts(build("b1", "failed", 1.0), build_locked=True)) == ["b1"]


def test_build_goes_after_its_uploads() -> None:
    """R-6: it is marked when all uploads are; its record goes after the last."""
    assert marked(verdicts(build("b1", "failed", 1.0, upload(1, "failed")))) == []
    assert marked(verdicts(build("b1", "failed", 1.0, upload(1, "deleting"), upload(2, "deleting")))) == ["b1"]
    assert removed(verdicts(build("b1", "deleting", 1.0, upload(1, "deleting")))) == []
    assert verdicts(build("b1", "deleting", 1.0)) == [RemoveBuild("debian", "b1")]


def test_cloud_that_refuses() -> None:
    """R-7: what is still there is still to be deleted."""
    record = build("b1", "ready", 1.0, upload(1, "deleting"))
    assert uploads_of(verdicts(record)) == uploads_of(verdicts(record)) == [("b1", "cloud", 1)]


def test_upload_without_an_id() -> None:
    """R-8, R-4: nothing can be deleted by its id; what carries its numbers is looked for."""
    (verdict,) = verdicts(build("b1", "ready", 1.0, upload(1, "deleting", external_id=None)))
    assert isinstance(verdict, DeleteUpload)
    assert verdict.find


def test_image_that_was_removed() -> None:
    """R-11, R-1, R-14: builds and uploads of every builder."""
    found = verdicts(*READY[2:], wanted=REMOVED)
    assert uploads_of(found) == [("b3", "cloud", 1), ("b4", "cloud", 1)]
    after = verdicts(build("b3", "ready", 3.0, upload(1, "deleting")), build("b4", "ready", 4.0), wanted=REMOVED)
    assert marked(after) == ["b3", "b4"]


def test_unknown_provider() -> None:
    """R-12: whatever becomes of the build."""
    for state in ("ready", "failed", "deleting"):
        record = build("b1", state, 1.0, upload(1, provider="unknown"), upload(2, "failed", provider="unknown"))
        assert verdicts(record) == []
        assert verdicts(record, wanted=REMOVED) == []


def test_warning_of_an_image_that_was_never_here() -> None:
    """R-14: with the name of the other builder."""
    record = build("b1", "ready", 1.0)
    (known,) = verdicts(record, wanted=REMOVED)
    (unknown,) = verdicts(record, wanted=REMOVED, ever=())
    assert isinstance(known, MarkBuild)
    assert known.warning is None
    assert isinstance(unknown, MarkBuild)
    assert "made by builder.example.com" in str(unknown.warning)
    (bad,) = verdicts(build("b1", None, 1.0), wanted=REMOVED, ever=())
    assert isinstance(bad, MarkBuild)
    assert bad.warning is None
    (again,) = verdicts(build("b1", "failed", 1.0), ever=())
    assert isinstance(again, MarkBuild)
    assert again.warning is None, "it is configured"


def test_what_others_have_locked() -> None:
    doomed = build("b1", "failed", 1.0, upload(1, "failed", locked=True), locked=True)
    assert verdicts(doomed) == []
    assert verdicts(build("b1", "deleting", 1.0, locked=True)) == []


def test_unreadable_records() -> None:
    """R-17: the others are judged as ever; the bad ones go, when they have been so for a minute."""
    found = verdicts(build("bad", None, 1.0), build("b1", "failed", 1.0), build("b2", "ready", 2.0, bad_upload(1)))
    assert marked(found) == ["bad", "b1"]
    assert uploads_of(found) == [("b2", "cloud", 1)]
    assert isinstance(found[-1], DeleteUpload)
    assert (found[-1].record, found[-1].find) == (None, True)


@pytest.mark.parametrize("changed", [0.0, NOW - 30.0, NOW + 30.0])
def test_unreadable_records_are_given_time(changed: float) -> None:
    """R-17: it is being restored, or was never read."""
    assert verdicts(build("bad", None, changed), build("b2", "ready", 2.0, bad_upload(1, changed))) == []


def test_unreadable_records_of_somebody_who_works() -> None:
    """R-17: what it is will be seen when he is ready."""
    assert verdicts(build("bad", None, 1.0), build_locked=True) == []
    assert verdicts(build("b2", "ready", 2.0, bad_upload(1), uploading=["cloud"])) == []
    assert verdicts(build("b2", "ready", 2.0, bad_upload(1, locked=True))) == []


def test_build_with_an_unreadable_upload_is_not_marked_yet() -> None:
    """R-6, R-17"""
    assert marked(verdicts(build("b1", "failed", 1.0, bad_upload(1)))) == []


def test_image_delete() -> None:
    """R-13: only the upload goes; the build is kept."""
    found = verdicts(build("b1", "ready", 1.0, upload(1, "deleting"), upload(2, provider="other")))
    assert uploads_of(found) == [("b1", "cloud", 1)]
    assert marked(found) == []


def test_paused_images_stay() -> None:
    """P-3"""
    paused = {"debian": WantedUpload("qcow2", paused=True)}
    wanted = WantedImages({"debian": WantedImage("debian", paused=True)}, {"cloud": paused, "other": paused})
    assert verdicts(*READY[:2], wanted=wanted) == []


@pytest.mark.parametrize(
    ("builder_id", "now", "seconds"),
    [("id-1", 110.0, 0.0), ("id-2", 110.0, 50.0), ("id-2", 160.0, 0.0), ("id-2", 0.0, 60.0)],
)
def test_record_is_left_to_its_builder(builder_id: str, now: float, seconds: float) -> None:
    """R-6: who made the build removes its files first; a clock that is behind makes nobody wait longer."""
    assert left_to_its_builder(build("b1", "deleting", 100.0), builder_id, now) == seconds


def test_record_of_nobody_is_left_to_nobody() -> None:
    """R-6, R-17."""
    assert left_to_its_builder(None, "id-1", 0.0) == 0
    assert left_to_its_builder(build("b1", None, 100.0), "id-1", 100.0) == 0


def test_build_with_a_lock_below_is_not_removed_yet() -> None:
    """R-6: whoever was about to upload it lets go, or its session ends; both are changes."""
    deleting = build("b1", "deleting", 1.0)
    assert removed(verdicts(deleting)) == ["b1"]
    assert verdicts(replace(deleting, uploading=frozenset({"cloud"}))) == []
