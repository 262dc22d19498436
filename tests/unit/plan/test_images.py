# SPDX-License-Identifier: Apache-2.0
"""Images: when one is built, what is uploaded where, and which builds, uploads and files go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodepool.model.image import BuildView, ImagesView, ImageView
from nodepool.plan.images import (
    BACKOFF,
    REMEMBERED,
    BuildHistory,
    BuildWait,
    DeleteUpload,
    Due,
    End,
    LocalBuild,
    MarkBuild,
    NoRollback,
    NotDue,
    OwnBuilds,
    RemoveBuild,
    RemoveFiles,
    Rollback,
    UploadHistory,
    UploadJob,
    WantedImage,
    WantedImages,
    WantedUpload,
    build_due,
    choose_rollback,
    judge_files,
    judge_images,
    left_to_its_builder,
    next_upload,
    overtaken,
    provider_uploads,
    uploads_due,
    uploads_end,
)
from nodepool.plan.images import observe_builds as observe_builds
from nodepool.plan.images import observe_uploads as observe_uploads
from tests.support.image_views import bad_upload, build, image, images, upload

NOW = 10000.0
DEBIAN = WantedImage("debian", frozenset({"qcow2"}), rebuild_age_seconds=1000.0)
QCOW2, RAW = WantedUpload("qcow2"), WantedUpload("raw")


def wanted(*uses: tuple[str, WantedUpload], image: WantedImage | None = DEBIAN) -> WantedImages:
    images = {"debian": image} if image else {}
    return WantedImages(images, {name: {"debian": use} for name, use in uses})


def ready(number: int, *uploads: Any, **fields: Any) -> BuildView:
    return build(f"b{number}", "ready", float(number), *uploads, **fields)


# -- builds

LOST_FILES = "the files of the newest build are gone, and other has no upload of it"
USERS = {"cloud": QCOW2, "other": QCOW2, "third": WantedUpload("qcow2", paused=True)}


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (image(), Due("there is no ready build")),
        (image(build("b1", "failed", 90.0), build("b2", None)), Due("there is no ready build")),
        (image(build("b1", "deleting", 90.0)), Due("there is no ready build")),
        (image(build("b1", "ready", 100.0)), Due("the newest build is 1000 s old, rebuild-age is 1000 s")),
        (image(build("b1", "ready", 500.0, formats=["raw"])), Due("the newest build has no qcow2")),
        (image(build("b1", "ready", 500.0), build_requested=900.0), Due("a build was requested")),
        (image(ready(1), build("b2", "ready", 500.0)), NotDue("the newest build is young enough", 1500.0)),
        (image(build_locked=True), NotDue("it is being built")),
        (image(build_requested=5.0, paused=True), NotDue("paused by image-pause")),
    ],
)
def test_when_an_image_is_built(view: ImageView, expected: Due | NotDue) -> None:
    """B-1, B-4, B-11, P-1"""
    found = build_due(DEBIAN, view, BuildHistory(), 1100.0)
    assert found == expected or (isinstance(found, Due) and isinstance(expected, Due) and "1000 s" in found.reason)
    paused = NotDue("paused in the configuration")
    assert build_due(replace(DEBIAN, paused=True), view, BuildHistory(), 1100.0) == paused


def test_formats() -> None:
    """B-2: every wanted format, also those of providers of which another builder takes care."""
    more = replace(DEBIAN, formats=frozenset({"qcow2", "raw", "vhd"}))
    view = image(build("b1", "ready", 500.0, formats=["qcow2"]))
    assert build_due(more, view, BuildHistory(), 600.0) == Due("the newest build has no raw, vhd")
    view = image(build("b1", "ready", 500.0, formats=["qcow2", "raw", "vhd", "vmdk"]))
    assert isinstance(build_due(more, view, BuildHistory(), 600.0), NotDue)
    assert isinstance(build_due(replace(DEBIAN, formats=frozenset()), image(), BuildHistory(), 600.0), NotDue)


def failed(number: int, time: float) -> ImageView:
    return image(build(f"b{number}", "failed", time, created_zxid=number))


def test_back_off_of_builds() -> None:
    """B-13: 1, 2, 4 min after 1, 2, 3 failures in a row, up to the rebuild age; each counts once."""
    history, pauses = BuildHistory(), list[float]()
    for number in range(1, 8):
        history = observe_builds(history, failed(number, 9999.0), None, 1000.0)
        assert observe_builds(history, failed(number, 9999.0), None, 2000.0) == history
        found = build_due(DEBIAN, failed(number, 1000.0), history, 1000.0)
        assert isinstance(found, NotDue)
        pauses.append((found.look_again_at or 0) - 1000.0)
        assert isinstance(build_due(DEBIAN, image(), history, 1000.0 + pauses[-1]), Due)
    assert pauses == [60.0, 120.0, 240.0, 480.0, 960.0, 1000.0, 1000.0]
    later = observe_builds(history, image(), None, 3000.0)
    assert (later.failures, later.last_failure, later.counted) == (7, 1000.0, frozenset())
    for zxid, failures in ((4, 7), (9, 0)):
        other = image(build("b9", "ready", 50.0, created_zxid=zxid))
        assert observe_builds(history, other, None, 2000.0).failures == failures, "a newer build ends the row"


def test_what_ends_a_back_off() -> None:
    """B-13: a changed configuration; and one attempt at once for each request that came after the last attempt."""
    history = observe_builds(BuildHistory(), failed(10, 100.0), "before", 100.0)
    assert isinstance(build_due(replace(DEBIAN, settings="before"), image(), history, 101.0), NotDue)
    after = replace(DEBIAN, settings="after")
    assert isinstance(build_due(after, image(), history, 101.0), Due)
    again = observe_builds(history, failed(11, 102.0), "after", 102.0)
    assert isinstance(build_due(after, image(), again, 103.0), NotDue)
    history = observe_builds(BuildHistory(), failed(10, 100.0), None, 100.0)
    text = "a build was requested, but {} builds in a row have failed"
    old, new = (image(build_requested=90.0, request_zxid=zxid) for zxid in (9, 11))
    assert build_due(DEBIAN, old, history, 101.0) == NotDue(text.format(1), 160.0)
    assert build_due(DEBIAN, new, history, 101.0) == Due("a build was requested")
    later = observe_builds(history, image(build("b12", "failed", 105.0, created_zxid=12)), None, 105.0)
    assert build_due(DEBIAN, new, later, 106.0) == NotDue(text.format(2), 225.0)


def test_files_that_are_no_longer_there() -> None:
    """B-17: a build of ours that can be uploaded no more is made again, when a provider lacks it."""
    view = image(build("b1", "ready", 500.0, upload(1, provider="cloud")))
    everywhere = image(build("b1", "ready", 500.0, upload(1, provider="cloud"), upload(2, provider="other")))
    lost = OwnBuilds("id-1", {})
    shared = OwnBuilds("id-1", {("fedora", "b1"): {"qcow2"}})
    for seen, own, due in [
        *((view, lost, True), (view, shared, True), (everywhere, lost, False), (view, None, False)),
        *((view, OwnBuilds("id-2", {}), False), (view, OwnBuilds("id-1", {("debian", "b1"): {"qcow2"}}), False)),
    ]:
        found = build_due(DEBIAN, seen, BuildHistory(), 600.0, USERS, own)
        assert found == Due(LOST_FILES) if due else isinstance(found, NotDue)
    use = WantedImages({}, {"a": {"debian": QCOW2}, "b": {}, "c": {"debian": QCOW2, "fedora": QCOW2}})
    assert (use.users("debian"), use.users("other")) == ({"a": QCOW2, "c": QCOW2}, {})


# -- uploads

HERE = {(name, id): {"qcow2"} for name, id in (("debian", "b1"), ("debian", "b2"), ("fedora", "b1"))}
CLOUD = wanted(("cloud", QCOW2))
BOTH = wanted(("cloud", QCOW2), ("other", QCOW2))
ONE = [ready(1)]


@pytest.mark.parametrize(
    ("use", "builds", "expected"),
    [
        # U-1, U-12: the newest ready build, to each provider that does not have it yet.
        (BOTH, [ready(1), ready(2, upload(1, provider="other")), build("b3", "building", 3.0)], [("b2", "cloud")]),
        # U-6: what is not ready is no upload.
        *((CLOUD, [ready(1, upload(1, state, time=1.0))], [("b1", "cloud")]) for state in ("uploading", "failed")),
        (CLOUD, [ready(1, upload(1, "deleting", time=1.0))], [("b1", "cloud")]),
        # U-1, U-2: being uploaded or deleted already. U-10: files elsewhere; no older build is uploaded instead.
        (CLOUD, [ready(1, uploading=["cloud"])], []),
        (CLOUD, [ready(1, locked=True)], []),
        (CLOUD, [build("b1", "deleting", 1.0)], []),
        (CLOUD, [ready(3)], []),
        (CLOUD, [ready(1), ready(3)], []),
        # U-13: the format is not on disk. P-2: a paused provider. No such image.
        (wanted(("cloud", RAW)), ONE, []),
        (wanted(("cloud", WantedUpload("qcow2", paused=True)), ("other", QCOW2)), ONE, [("b1", "other")]),
        (wanted(("cloud", QCOW2), image=None), ONE, []),
    ],
)
def test_uploads_that_are_due(use: WantedImages, builds: list[BuildView], expected: list[tuple[str, str]]) -> None:
    """P-1, P-2, U-1, U-2, U-6, U-10, U-12, U-13: a paused image is uploaded all the same."""
    due = uploads_due(use, images(*builds, paused=True), HERE, UploadHistory(), 10.0)
    assert [(job.build_id, job.provider) for job in due.jobs] == expected
    assert all(
        (job.image, job.format, job.build_time) == ("debian", "qcow2", float(job.build_id[1])) for job in due.jobs
    )


def test_back_off_of_uploads() -> None:
    """U-6: failures of one provider make it wait longer and longer, and no other."""
    history, pauses = UploadHistory(), list[float]()
    for number in range(1, 8):
        view = images(ready(1, upload(number, "failed", time=9999.0)))
        history = observe_uploads(history, view, 100.0)
        assert observe_uploads(history, view, 200.0) == history, "a failure counts once"
        due = uploads_due(BOTH, view, HERE, history, 100.0)
        assert [job.provider for job in due.jobs] == ["other"]
        pauses.append((due.look_again_at or 0) - 100.0)
        later = uploads_due(BOTH, view, HERE, history, 100.0 + pauses[-1])
        assert [(job.provider, job.failures) for job in later.jobs] == [("cloud", number), ("other", 0)]
    assert pauses == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0, 60.0] == [BACKOFF.pause(number) for number in range(1, 8)]
    assert observe_uploads(history, images(), 300.0) == UploadHistory(), "of a build that was removed nothing is kept"


def test_provider_that_refuses_for_days() -> None:
    """U-6: all failures are counted, and few numbers are kept; records that stay count once."""
    history = UploadHistory()
    for last in range(1, 501):
        stay = [upload(one, "failed", time=float(one)) for one in range(max(1, last - REMEMBERED + 1), last + 1)]
        history = observe_uploads(history, images(ready(1, *stay)), 1000.0)
    found = history.of("debian", "b1", "cloud")
    assert (found.failures, found.last, len(found.counted)) == (500, 500.0, REMEMBERED)


def job(provider: str, time: float) -> UploadJob:
    return UploadJob("debian", f"b{time:g}", provider, "qcow2", time)


JOBS = [job("a", 3.0), job("a", 2.0), job("b", 1.0)]
SLOW = [job("slow", number) for number in (1.0, 2.0, 3.0)]


@pytest.mark.parametrize(
    ("jobs", "running", "workers", "providers", "expected"),
    [
        (JOBS, [], 4, 2, JOBS[0]),
        (JOBS, JOBS[:1], 4, 2, JOBS[2]),
        (JOBS, [JOBS[0], JOBS[2]], 4, 2, JOBS[1]),
        (JOBS, JOBS, 4, 2, None),
        # U-6: a worker is left for the other providers, if there are any.
        ([job("slow", 4.0)], SLOW, 4, 2, None),
        ([job("slow", 4.0), job("fast", 0.0)], SLOW, 4, 2, job("fast", 0.0)),
        ([job("slow", 4.0)], SLOW, 4, 1, job("slow", 4.0)),
        ([job("slow", 4.0)], [], 1, 2, job("slow", 4.0)),
    ],
)
def test_next_upload(
    jobs: list[UploadJob], running: list[UploadJob], workers: int, providers: int, expected: UploadJob | None
) -> None:
    """U-6: the newest build first; of several providers the one that has the least under way."""
    assert next_upload(jobs, running, workers, providers) == expected


def test_newest_build_of_all_images_first() -> None:
    """U-1"""
    view = ImagesView({name: image(build("b1", "ready", time)) for time, name in ((1.0, "debian"), (2.0, "fedora"))})
    names = ("debian", "fedora")
    use = WantedImages({name: WantedImage(name) for name in names}, {"cloud": dict.fromkeys(names, QCOW2)})
    due = uploads_due(use, view, HERE, UploadHistory(), 10.0)
    assert [job.build_time for job in due.jobs] == [2.0, 1.0]


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [
        (ready(1), [ready(2, upload(1))], "the newer build b2 is ready in cloud"),
        (ready(1), [ready(2)], None),
        (ready(1), [ready(2, upload(1, provider="other"))], None),
        (ready(2, upload(1)), [ready(1, upload(1))], None),
        (ready(1), [ready(2, upload(1, rolled_back=True))], None),
        (ready(1), [build("b2", "deleting", 2.0, upload(1))], None),
        (None, [], "the build is gone or being deleted"),
        (build("b1", "deleting", 1.0), [], "the build is gone or being deleted"),
    ],
)
def test_overtaken(own: BuildView | None, others: list[BuildView], expected: str | None) -> None:
    """U-2, U-12: only by a newer build that is ready there, and from which no operator went back."""
    assert overtaken(own, image(*others, *([own] if own else [])), "cloud") == expected


# -- records that go

USED = wanted(("cloud", QCOW2), ("other", QCOW2))
UNLISTED = WantedImages({"debian": DEBIAN}, {"cloud": {}, "other": {"debian": QCOW2}})
REMOVED = WantedImages({}, {"cloud": {}, "other": {}})
RESUMING = wanted(("cloud", WantedUpload("raw", resumes=True)))
READY = [ready(number, upload(1, time=float(number))) for number in range(1, 5)]
PAUSED = wanted(("cloud", WantedUpload("qcow2", paused=True)), image=replace(DEBIAN, paused=True))


def interrupted(*others: Any, state: str = "uploading", time: float = NOW) -> BuildView:
    return ready(1, upload(7, state, time=time), *others)


@pytest.mark.parametrize(
    ("use", "builds", "expected"),
    [
        # the two newest ready builds stay; of an older one the upload goes first, then the build.
        (USED, READY[:2], ""),
        (USED, READY, "b1/cloud/1 b2/cloud/1"),
        (USED, [ready(1), *READY[2:]], "b1"),
        (USED, [build("b5", "failed", 5.0), *READY[:2]], "b5"),
        # of each provider the two newest ready uploads, as long as no newer ones are there.
        (USED, [*READY[:2], ready(3), ready(4)], ""),
        (USED, [*READY[:2], ready(3), READY[3]], "b1/cloud/1"),
        (USED, [ready(1, upload(1, time=1.0, provider="other")), *READY[2:]], ""),
        (USED, [ready(2, *(upload(n, time=float(n)) for n in range(1, 5)))], ""),
        # what was marked goes with all uploads, and keeps no others away; image-delete: the upload alone.
        (USED, [*READY[:2], build("b9", "deleting", 9.0, upload(1, time=90.0), upload(2))], "b9/cloud/1 b9/cloud/2"),
        (USED, [ready(1, upload(1, "deleting"), upload(2, provider="other"))], "b1/cloud/1"),
        # a provider that does not use the image any more. R-12: an unknown one. P-3: paused ones.
        (UNLISTED, READY[2:], "b3/cloud/1 b4/cloud/1"),
        *(
            (use, [build("b1", state, 1.0, upload(1, provider="x"), upload(2, "failed", provider="x"))], "")
            for use in (USED, REMOVED)
            for state in ("ready", "failed", "deleting")
        ),
        (PAUSED, READY[:2], ""),
        # records of kept builds, but not while the lock is held (U-11: else its builder has ended).
        *(
            (USED, [ready(1, upload(7, state, time=1.0))], "b1/cloud/7")
            for state in ("failed", "deleting", "uploading")
        ),
        (USED, [ready(1, upload(7, "uploading", time=1.0), uploading=["cloud"])], ""),
        (USED, [ready(1, upload(7, "uploading", time=1.0), uploading=["other"])], "b1/cloud/7"),
        # an interrupted upload stays as long as another one goes on with it.
        (RESUMING, [interrupted(time=NOW - 80000.0)], ""),
        (RESUMING, [interrupted(state="failed")], "b1/cloud/7"),
        (RESUMING, [interrupted(upload(8, time=3.0))], "b1/cloud/7"),
        (RESUMING, [interrupted(time=NOW - 90000.0)], "b1/cloud/7"),
        (RESUMING, [interrupted(), ready(2)], "b1/cloud/7"),
        (wanted(("cloud", WantedUpload("raw", paused=True, resumes=True))), [interrupted()], "b1/cloud/7"),
        # abandoned and failed builds, when all uploads are marked; the record after the last upload.
        (USED, [build("b1", "building", 1.0)], "b1"),
        (USED, [build("b1", "failed", 1.0, upload(1, "failed"))], "b1/cloud/1"),
        (USED, [build("b1", "failed", 1.0, upload(1, "deleting"))], "b1/cloud/1 b1"),
        (USED, [build("b1", "deleting", 1.0, upload(1, "deleting"))], "b1/cloud/1"),
        (USED, [build("b1", "deleting", 1.0)], "-b1"),
        (USED, [build("b1", "deleting", 1.0, uploading=["cloud"])], ""),
        # an image that was removed.
        (REMOVED, READY[2:], "b3/cloud/1 b4/cloud/1"),
        (REMOVED, [ready(3, upload(1, "deleting")), ready(4)], "b3/cloud/1 b3 b4"),
        # What others have locked.
        (USED, [build("b1", "failed", 1.0, upload(1, "failed", locked=True), locked=True)], ""),
        (USED, [build("b1", "deleting", 1.0, locked=True)], ""),
        # unreadable records go when they have been so for a minute; the others are judged as ever.
        (USED, [build("b0", None, 1.0), build("b1", "failed", 1.0), ready(2, bad_upload(1))], "b0 b1 b2/cloud/1"),
        *((USED, [build("b0", None, at), ready(2, bad_upload(1, at))], "") for at in (0.0, NOW - 30.0, NOW + 30.0)),
        (USED, [ready(2, bad_upload(1), uploading=["cloud"])], ""),
        (USED, [ready(2, bad_upload(1, locked=True))], ""),
        (USED, [build("b1", "failed", 1.0, bad_upload(1))], "b1/cloud/1"),
    ],
)
def test_records_that_go(use: WantedImages, builds: list[BuildView], expected: str) -> None:
    """P-3, R-1, R-2, R-3, R-4, R-5, R-6, R-7, R-8, R-11, R-12, R-13, R-14, R-17, U-11: by build, provider, upload."""
    verdicts = judge_images(use, images(*builds), NOW, ("debian",))
    found = [
        f"{one.build_id}/{one.provider}/{int(one.upload_id)}"
        if isinstance(one, DeleteUpload)
        else f"{'-' if isinstance(one, RemoveBuild) else ''}{one.build_id}"
        for one in verdicts
    ]
    assert sorted(found) == sorted(expected.split())
    locked = judge_images(use, images(*builds, build_locked=True), NOW, ("debian",))
    work = ("building", None)
    assert not [one for one in locked if isinstance(one, MarkBuild) and one.record and one.record.state in work]


@pytest.mark.parametrize(
    ("state", "time", "fields", "seconds", "find"),
    [
        ("uploading", 1.0, {"external_name": "debian-1"}, 60.0, True),
        ("uploading", 1.0, {}, 60.0, True),
        ("deleting", NOW - 20.0, {"external_name": "debian-1"}, 40.0, True),
        ("deleting", NOW + 20.0, {"external_name": "debian-1"}, 60.0, True),
        ("deleting", NOW - 60.0, {"external_name": "debian-1"}, 0.0, True),
        ("deleting", NOW, {}, 0.0, True),
        ("deleting", NOW, {"external_name": "debian-1", "external_id": "i-1"}, 0.0, False),
        ("failed", NOW, {}, 0.0, True),
    ],
)
def test_how_long_a_record_stays(state: str, time: float, fields: dict[str, str], seconds: float, find: bool) -> None:
    """R-4, R-8: its maker may not know yet that it is not wanted; without an id the cloud is asked for it (D-3)."""
    view = upload(7, state, time=time)
    assert view.record is not None
    view.record.external_id = None
    for name, value in fields.items():
        setattr(view.record, name, value)
    (found,) = judge_images(USED, images(ready(1, view)), NOW, ("debian",))
    assert isinstance(found, DeleteUpload)
    assert (found.stays_seconds, found.find) == (seconds, find)


def test_what_is_logged_of_it() -> None:
    """R-3, R-14: an image that was never configured here is named with the other builder."""
    for builds, use, ever, warns in [
        *((ready(1), REMOVED, ("debian",), False), (ready(1), REMOVED, (), True)),
        *((build("b1", None, 1.0), REMOVED, (), False), (build("b1", "failed", 1.0), USED, (), False)),
    ]:
        (found,) = judge_images(use, images(builds), NOW, ever)
        assert isinstance(found, MarkBuild)
        assert ("made by builder.example.com" in (found.warning or "")) is warns
    unlisted, *_ = judge_images(UNLISTED, images(*READY[2:]), NOW)
    assert isinstance(unlisted, DeleteUpload)
    assert "does not use the image" in unlisted.reason


def test_record_is_left_to_its_builder() -> None:
    """R-6, R-17: who made the build removes its files first; a clock that is behind makes no other wait longer."""
    looks = [("id-1", 110.0), ("id-2", 110.0), ("id-2", 160.0), ("id-2", 0.0)]
    deleting = build("b1", "deleting", 100.0)
    assert [left_to_its_builder(deleting, *look) for look in looks] == [0.0, 50.0, 0.0, 60.0]
    assert left_to_its_builder(None, "id-1", 0.0) == 0
    assert left_to_its_builder(build("b1", None, 100.0), "id-1", 100.0) == 0


# -- local files

FILES = LocalBuild("debian", "b1", frozenset({"qcow2", "raw"}), newest=100.0)
ORPHAN = replace(FILES, orphan_since=NOW - 3601.0)
HAS_A = images(ready(1, upload(1, provider="a")))
HAS_AB = images(ready(1, upload(1, provider="a"), upload(1, provider="b")))
ALL = {"qcow2", "raw", "record"}
OTHERS = images(build("b2", "ready", 1.0))


def frugal(*keep: str, **uses: WantedUpload) -> WantedImages:
    image = WantedImage("debian", delete_after_upload=True, keep_formats=frozenset(keep))
    return wanted(*uses.items(), image=image)


@pytest.mark.parametrize(
    ("use", "view", "files", "fields", "expected"),
    [
        # files go when their record says so.
        *(
            (CLOUD, images(build("b1", state, 1.0)), FILES, {}, set())
            for state in ("building", "ready", "failed", None)
        ),
        (CLOUD, images(build("b1", "deleting", 1.0)), FILES, {}, ALL),
        (CLOUD, images(build("b1", "deleting", 1.0)), replace(FILES, running=True), {}, set()),
        (CLOUD, images(), replace(FILES, running=True), {"clean_orphans": True}, set()),
        # without a record: an hour old, and records of this builder are there at all.
        (CLOUD, images(), FILES, {}, ALL),
        (CLOUD, images(), FILES, {"now": 3700.0}, set()),
        (CLOUD, images(), FILES, {"knows_own_records": False}, set()),
        (CLOUD, images(), FILES, {"now": 101.0, "knows_own_records": False, "clean_orphans": True}, ALL),
        # others have built the image, and an hour has passed since the start of this builder.
        (CLOUD, OTHERS, ORPHAN, {"knows_own_records": False}, ALL),
        (CLOUD, OTHERS, replace(ORPHAN, orphan_since=NOW - 3599.0), {"knows_own_records": False}, set()),
        (CLOUD, OTHERS, replace(ORPHAN, newest=NOW - 3599.0), {"knows_own_records": False}, set()),
        (CLOUD, images(build("b2", "building", 1.0)), ORPHAN, {"knows_own_records": False}, set()),
        (CLOUD, images(), ORPHAN, {"knows_own_records": False}, set()),
        # a format goes when every provider that uses it has the image; a paused one keeps its own.
        (frugal(a=QCOW2, b=QCOW2, c=RAW), HAS_A, FILES, {}, set()),
        (frugal(a=QCOW2, b=QCOW2, c=RAW), HAS_AB, FILES, {}, {"qcow2"}),
        (CLOUD, HAS_AB, FILES, {}, set()),
        (frugal("qcow2", a=QCOW2, b=QCOW2, c=RAW), HAS_AB, FILES, {}, set()),
        (frugal(a=QCOW2), HAS_A, FILES, {}, {"qcow2", "raw"}),
        (frugal(a=QCOW2, b=WantedUpload("raw", paused=True)), HAS_A, FILES, {}, {"qcow2"}),
        (frugal(a=WantedUpload("qcow2", paused=True)), HAS_A, FILES, {}, {"raw"}),
        # nothing that is being uploaded or read; only of a ready build of a configured image.
        (frugal(a=QCOW2), images(ready(1, upload(1, provider="a"), uploading=["a"])), FILES, {}, {"raw"}),
        (frugal(a=QCOW2), HAS_A, replace(FILES, reading=frozenset({"raw"})), {}, {"qcow2"}),
        (frugal(a=QCOW2), images(build("b1", "building", 1.0, upload(1, provider="a"))), FILES, {}, set()),
        (WantedImages({}, {"a": {}}), HAS_A, FILES, {}, set()),
    ],
)
def test_files_that_go(
    use: WantedImages, view: ImagesView, files: LocalBuild, fields: dict[str, Any], expected: set[str]
) -> None:
    """R-9, R-10, R-15, R-16"""
    keywords = {"knows_own_records": True, "clean_orphans": False, **fields}
    found: list[RemoveFiles] = list(judge_files([files], use, view, keywords.pop("now", NOW), **keywords))
    assert all(one.reason for one in found)
    assert set().union(*(ALL if one.formats is None else one.formats for one in found)) == expected


# -- going back, and waiting


def test_roll_back() -> None:
    """R-18: to the one before the current one; a second step leads further back."""
    first, second = ready(1, upload(1, time=10.0)), ready(2, upload(1, time=20.0), upload(2, "failed", time=25.0))
    third = ready(3, upload(1, time=30.0), upload(2, time=99.0, provider="other"))
    left = ready(3, upload(1, time=30.0, rolled_back=True))
    again = ready(2, upload(1, time=40.0))
    for builds, to, current in [((first, second, third), "b2", "b3"), ((first, again, left), "b1", "b2")]:
        found = choose_rollback(image(*builds), "cloud")
        assert isinstance(found, Rollback)
        assert (found.to.build_id, found.current.build_id) == (to, current)
    only = image(first, build("b0", "deleting", 0.5, upload(1, time=5.0)))
    text = "image debian has no ready upload in"
    assert choose_rollback(only, "cloud") == NoRollback(f"{text} cloud before b1/0000000001")
    assert choose_rollback(only, "other") == NoRollback(f"{text} other")


@pytest.mark.parametrize(
    ("before", "looks", "end"),
    [
        ([ready(1)], [[ready(1)], [ready(1), build("b2", "building", 2.0)]], None),
        ([ready(1)], [[ready(1), ready(2)]], (True, "Build debian-b2 is ready")),
        # A build that was running counts: the request is being served while a build runs (zookeeper 6.3).
        ([build("b1", "building", 1.0)], [[ready(1)]], (True, "Build debian-b1 is ready")),
        ([], [[build("b1", "failed", 1.0)]], (False, "Build debian-b1 has failed; its log is on builder.example.com")),
        ([], [[build("b2", "failed", 2.0), ready(1)]], (True, "Build debian-b1 is ready")),
        # The record of a failed build may be removed before its state was seen.
        (
            [],
            [[build("b1", "building", 1.0)], []],
            (False, "Build debian-b1 was not finished: its record is gone"),
        ),
        ([], [[build("b1", "deleting", 1.0)]], (False, "Build debian-b1 is being deleted")),
        ([], [[build("b1", None)]], None),
    ],
)
def test_wait_for_a_build(before: list[BuildView], looks: list[list[BuildView]], end: tuple[bool, str] | None) -> None:
    """The first build that ends after the request."""
    wait = BuildWait(image(*before))
    *earlier, last = [wait.look(image(*look)) for look in looks]
    assert earlier == [None] * len(earlier)
    assert last == (None if end is None else End(*end))
    running = [one.id for one in wait.running(image(*looks[-1]))]
    assert running == [one.id for one in looks[-1] if one.state == "building"]


def test_wait_for_uploads() -> None:
    """In every provider, of the newest ready build."""
    old = ready(1, upload(1, provider="lab"))
    new = ready(2, upload(1, "uploading", provider="lab"), upload(1, provider="odd"), upload(2, "failed", provider="x"))
    assert uploads_end(image(old), ["lab"]) == End(True, "Build debian-b1 is ready in lab")
    for view, providers in ((image(), ["lab"]), (image(old, new), ["lab"]), (image(new), ["odd", "x"])):
        assert uploads_end(view, providers) is None
    assert uploads_end(image(new), ["odd"]) is not None
    found = provider_uploads(image(new), ["lab", "odd", "x", "none"])
    states = [(one.upload.state if one.upload else None, one.failures, one.ready) for one in found]
    assert states == [("uploading", 0, False), ("ready", 0, True), (None, 1, False), (None, 0, False)]
