# SPDX-License-Identifier: Apache-2.0
"""Images: when one is built, what is uploaded where, and which builds, uploads and files go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from nodepool.model.image import BuildView, ImageSource, ImagesView, ImageView, Promotion
from nodepool.plan import images as plan
from tests.support.image_views import build, build_of, image, images, upload
from tests.support.image_views import image as image_view
from tests.support.tables import rows

NOW = 10000.0
DEBIAN = plan.WantedImage("debian", frozenset({"qcow2"}), rebuild_age_seconds=1000.0)
QCOW2 = plan.WantedUpload("qcow2")


def wanted(uses: dict[str, Any], image: plan.WantedImage = DEBIAN) -> plan.WantedImages:
    """What is configured: provider -> format, ``paused`` and ``resumes``; null = it does not use the image.

    :param uses: ``image`` may be ``removed`` or ``paused``.
    """
    words = {name: str(use).split() for name, use in uses.items() if name != "image"}
    providers = {
        name: {"debian": plan.WantedUpload(first, "paused" in more, "resumes" in more)} if uses[name] else {}
        for name, (first, *more) in words.items()
    }
    image = replace(image, paused=image.paused or uses.get("image") == "paused")
    return plan.WantedImages({} if uses.get("image") == "removed" else {"debian": image}, providers)


def view_of(builds: list[dict[str, Any]], **fields: Any) -> ImagesView:
    return images(*map(build_of, builds), **fields)


def ready(number: int, *uploads: Any, **fields: Any) -> BuildView:
    return build(f"b{number}", "ready", float(number), *uploads, **fields)


# -- builds


@rows(__file__, "image_due")
def test_when_an_image_is_built(
    builds: list[dict[str, Any]], image: dict[str, Any], reason: str, look_again_at: float | None
) -> None:
    """B-1, B-2, B-4, B-11, P-1"""
    view = view_of(builds, **image).image("debian")
    found = plan.build_due(DEBIAN, view, plan.BuildHistory(), 1100.0)
    # The reason says whether it is due.
    assert (found.reason, getattr(found, "look_again_at", None)) == (reason, look_again_at)
    assert isinstance(found, plan.Due) is not reason.startswith(("it is", "paused", "the newest build is young"))
    # B-2: every wanted format, also those of providers of which another builder takes care.
    more, none = (replace(DEBIAN, formats=frozenset(formats)) for formats in (("qcow2", "raw", "vhd"), ()))
    ready_now = image_view(build("b1", "ready", 500.0))
    assert plan.build_due(more, ready_now, plan.BuildHistory(), 600.0) == plan.Due("the newest build has no raw, vhd")
    assert isinstance(plan.build_due(none, image_view(), plan.BuildHistory(), 600.0), plan.NotDue)
    paused = plan.NotDue("paused in the configuration")
    assert plan.build_due(replace(DEBIAN, paused=True), view, plan.BuildHistory(), 1100.0) == paused


def failed(number: int, time: float) -> ImageView:
    return image(build(f"b{number}", "failed", time, created_zxid=number))


def test_back_off_of_builds() -> None:
    """B-13: 1, 2, 4 min after 1, 2, 3 failures in a row, up to the rebuild age; each counts once."""
    history, pauses = plan.BuildHistory(), list[float]()
    for number in range(1, 8):
        history = plan.observe_builds(history, failed(number, 9999.0), None, 1000.0)
        assert plan.observe_builds(history, failed(number, 9999.0), None, 2000.0) == history
        found = plan.build_due(DEBIAN, failed(number, 1000.0), history, 1000.0)
        assert isinstance(found, plan.NotDue)
        pauses.append((found.look_again_at or 0) - 1000.0)
        assert isinstance(plan.build_due(DEBIAN, image(), history, 1000.0 + pauses[-1]), plan.Due)
    assert pauses == [60.0, 120.0, 240.0, 480.0, 960.0, 1000.0, 1000.0]
    later = plan.observe_builds(history, image(), None, 3000.0)
    assert (later.failures, later.last_failure, later.counted) == (7, 1000.0, frozenset())
    for zxid, failures in ((4, 7), (9, 0)):
        other = image(build("b9", "ready", 50.0, created_zxid=zxid))
        assert plan.observe_builds(history, other, None, 2000.0).failures == failures, "a newer build ends the row"


def test_what_ends_a_back_off() -> None:
    """B-13: a changed configuration; and one attempt at once for each request that came after the last attempt."""
    history = plan.observe_builds(plan.BuildHistory(), failed(10, 100.0), "before", 100.0)
    assert isinstance(plan.build_due(replace(DEBIAN, settings="before"), image(), history, 101.0), plan.NotDue)
    after = replace(DEBIAN, settings="after")
    assert isinstance(plan.build_due(after, image(), history, 101.0), plan.Due)
    again = plan.observe_builds(history, failed(11, 102.0), "after", 102.0)
    assert isinstance(plan.build_due(after, image(), again, 103.0), plan.NotDue)
    history = plan.observe_builds(plan.BuildHistory(), failed(10, 100.0), None, 100.0)
    text = "a build was requested, but {} builds in a row have failed"
    old, new = (image(build_requested=90.0, request_zxid=zxid) for zxid in (9, 11))
    assert plan.build_due(DEBIAN, old, history, 101.0) == plan.NotDue(text.format(1), 160.0)
    assert plan.build_due(DEBIAN, new, history, 101.0) == plan.Due("a build was requested")
    later = plan.observe_builds(history, image(build("b12", "failed", 105.0, created_zxid=12)), None, 105.0)
    assert plan.build_due(DEBIAN, new, later, 106.0) == plan.NotDue(text.format(2), 225.0)


def test_files_that_are_no_longer_there() -> None:
    """B-17: a build of ours that can be uploaded no more is made again, when a provider lacks it."""
    use = wanted({"cloud": "qcow2", "other": "qcow2", "third": "qcow2 paused"}).users("debian")
    view = image(build("b1", "ready", 500.0, upload(1, provider="cloud")))
    everywhere = image(build("b1", "ready", 500.0, upload(1, provider="cloud"), upload(2, provider="other")))
    lost = plan.OwnBuilds("id-1", {})
    shared = plan.OwnBuilds("id-1", {("fedora", "b1"): {"qcow2"}})
    text = "the files of the newest build do not exist any more, and other has no upload of it"
    for seen, own, due in [
        *((view, lost, True), (view, shared, True), (everywhere, lost, False), (view, None, False)),
        (view, plan.OwnBuilds("id-2", {}), False),
        (view, plan.OwnBuilds("id-1", {("debian", "b1"): {"qcow2"}}), False),
    ]:
        found = plan.build_due(DEBIAN, seen, plan.BuildHistory(), 600.0, use, own)
        assert found == plan.Due(text) if due else isinstance(found, plan.NotDue)
    assert wanted({"a": "qcow2", "b": None}).users("debian") == {"a": QCOW2}


# -- uploads

HERE = {(name, id): {"qcow2"} for name, id in (("debian", "b1"), ("debian", "b2"), ("fedora", "b1"))}


@rows(__file__, "uploads_due")
def test_uploads_that_are_due(use: dict[str, str], builds: list[dict[str, Any]], expected: list[str]) -> None:
    """P-1, P-2, U-1, U-2, U-6, U-10, U-12, U-13: a paused image is uploaded all the same."""
    due = plan.uploads_due(wanted(use), view_of(builds, paused=True), HERE, plan.UploadHistory(), 10.0)
    assert [f"{job.build_id} {job.provider}" for job in due.jobs] == expected
    assert all(job.build_time == float(job.build_id[1]) for job in due.jobs)
    removed = wanted({**use, "image": "removed"})
    assert plan.uploads_due(removed, view_of(builds), HERE, plan.UploadHistory(), 10.0).jobs == ()


def test_back_off_of_uploads() -> None:
    """U-6: failures of one provider make it wait longer and longer, and no other."""
    use, history, pauses = wanted({"cloud": "qcow2", "other": "qcow2"}), plan.UploadHistory(), list[float]()
    for number in range(1, 8):
        view = images(ready(1, upload(number, "failed", time=9999.0)))
        history = plan.observe_uploads(history, view, 100.0)
        assert plan.observe_uploads(history, view, 200.0) == history, "a failure counts once"
        due = plan.uploads_due(use, view, HERE, history, 100.0)
        assert [job.provider for job in due.jobs] == ["other"]
        pauses.append((due.look_again_at or 0) - 100.0)
        later = plan.uploads_due(use, view, HERE, history, 100.0 + pauses[-1])
        assert [(job.provider, job.failures) for job in later.jobs] == [("cloud", number), ("other", 0)]
    assert pauses == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0, 60.0] == [plan.BACKOFF.pause(number) for number in range(1, 8)]
    assert plan.observe_uploads(history, images(), 300.0) == plan.UploadHistory(), "of a build that was removed"


def job(text: str) -> plan.UploadJob:
    provider, time = text.split()
    return plan.UploadJob("debian", f"b{time}", provider, "qcow2", float(time))


@rows(__file__, "next_upload")
def test_next_upload(jobs: list[str], running: list[str], workers: int, providers: int, expected: str | None) -> None:
    """U-6: the newest build first; of several providers the one that has the least under way."""
    found = plan.next_upload(map(job, jobs), list(map(job, running)), workers, providers)
    assert found == (None if expected is None else job(expected))


@rows(__file__, "overtaken")
def test_overtaken(own: dict[str, Any] | None, other: dict[str, Any], expected: str | None) -> None:
    """U-2, U-12"""
    mine = None if own is None else build_of(own)
    assert plan.overtaken(mine, image(build_of(other), *([mine] if mine else [])), "cloud") == expected
    back = ready(2, upload(1, rolled_back=True))
    assert plan.overtaken(ready(1), image(back), "cloud") is None, "an operator went back from it"


# -- records that go


@rows(__file__, "records_that_go")
def test_records_that_go(use: dict[str, Any], builds: list[dict[str, Any]], expected: str) -> None:
    """P-3, R-1, R-2, R-3, R-4, R-5, R-6, R-7, R-8, R-11, R-12, R-13, R-14, R-17, U-11: by build, provider, upload."""
    verdicts = plan.judge_images(wanted(use), view_of(builds), NOW, ("debian",))
    found = [
        f"{one.build_id}/{one.provider}/{int(one.upload_id)}"
        if isinstance(one, plan.DeleteUpload)
        else f"{'-' if isinstance(one, plan.RemoveBuild) else ''}{one.build_id}"
        for one in verdicts
    ]
    assert sorted(found) == sorted(expected.split())
    locked = plan.judge_images(wanted(use), view_of(builds, build_locked=True), NOW, ("debian",))
    work = ("building", None)
    assert not [one for one in locked if isinstance(one, plan.MarkBuild) and one.record and one.record.state in work]


@rows(__file__, "how_long_a_record_stays")
def test_how_long_a_record_stays(state: str, time: float, fields: dict[str, Any], seconds: float, find: bool) -> None:
    """R-4, R-8"""
    view = upload(7, state, time=time, **{"external_id": cast(Any, None), **fields})
    (found,) = plan.judge_images(wanted({"cloud": "qcow2"}), images(ready(1, view)), NOW, ("debian",))
    assert isinstance(found, plan.DeleteUpload)
    assert (found.stays_seconds, found.find) == (seconds, find)


def test_record_is_left_to_its_builder() -> None:
    """R-6, R-17: who made the build removes its files first; a clock that is behind makes no other wait longer."""
    looks = [("id-1", 110.0), ("id-2", 110.0), ("id-2", 160.0), ("id-2", 0.0)]
    deleting = build("b1", "deleting", 100.0)
    assert [plan.left_to_its_builder(deleting, *look) for look in looks] == [0.0, 50.0, 0.0, 60.0]
    assert plan.left_to_its_builder(None, "id-1", 0.0) == 0
    assert plan.left_to_its_builder(build("b1", None, 100.0), "id-1", 100.0) == 0


# -- local files


def test_candidates_push_nothing_out() -> None:
    """CA-1, CA-8, CA-9: the two last good uploads stay, whatever was tried since; one can go back."""
    good = [ready(number, upload(1, time=10.0 * number)) for number in (1, 2, 3)]
    tried = [ready(number, upload(1, time=29.0 + number / 10, rolled_back=True)) for number in (4, 5, 6)]
    newest = ready(7, upload(1, time=29.999, candidate=Promotion()))
    view = image(*good, *tried, newest)
    current, candidate = view.current_upload("cloud"), view.candidate("cloud")
    assert (current.build_id, candidate.build_id) == ("b3", "b7")  # type: ignore[union-attr]
    verdicts = plan.judge_image(wanted({"cloud": "qcow2"}), view, NOW, ("debian",))
    # Those of the two newest builds stay, too: they would be uploaded again.
    assert {one.build_id for one in verdicts} == {"b1", "b4", "b5"}
    found = plan.choose_rollback(view, "cloud")
    assert [one.build_id for one in found if not isinstance(one, str)] == ["b2", "b3"]
    # An older candidate is tried first.
    older = ready(6, upload(1, time=29.998, candidate=Promotion()))
    assert image(*good, older, newest).candidate("cloud").build_id == "b6"  # type: ignore[union-attr]
    assert plan.overtaken(older, image(*good, older, newest), "cloud", by_candidates=False) is None
    # What was rolled back last is shown, and can be looked at, while newer ones are tried or wait.
    bad = ready(5, upload(1, time=29.5, rolled_back=True, verdict="20 of 20 nodes failed"))
    verdicts = plan.judge_image(wanted({"cloud": "qcow2"}), image(*good, bad, older, newest), NOW, ("debian",))
    assert {one.build_id for one in verdicts} == {"b1"}
    # Who deletes the upload in use has the candidate used.
    alone = image(newest)
    assert (alone.current_upload("cloud"), alone.candidate("cloud")) == (candidate, None)


@rows(__file__, "files_that_go")
def test_files_that_go(
    use: dict[str, Any],
    keep: list[str] | None,
    builds: list[dict[str, Any]],
    files: dict[str, Any],
    more: dict[str, Any],
    expected: str,
) -> None:
    """R-9, R-10, R-15, R-16"""
    config = replace(DEBIAN, delete_after_upload=keep is not None, keep_formats=frozenset(keep or ()))
    local = plan.LocalBuild(
        "debian",
        "b1",
        frozenset({"qcow2", "raw"}),
        **{"newest": 100.0, **files, "reading": frozenset(files.get("reading", ()))},
    )
    options = {"knows_own_records": True, "clean_orphans": False, **more}
    now = options.pop("now", NOW)
    found = [
        "all" if one.formats is None else " ".join(sorted(one.formats))
        for one in plan.judge_files([local], wanted(use, config), view_of(builds), now, **options)
        if one.reason
    ]
    assert found == ([expected] if expected else [])


# -- going back, and waiting


def test_roll_back() -> None:
    """R-18: to the one before the current one; a second step leads further back."""
    first, second = ready(1, upload(1, time=10.0)), ready(2, upload(1, time=20.0), upload(2, "failed", time=25.0))
    third = ready(3, upload(1, time=30.0), upload(2, time=99.0, provider="other"))
    left = ready(3, upload(1, time=30.0, rolled_back=True))
    again = ready(2, upload(1, time=40.0))
    for builds, to, current in [((first, second, third), "b2", "b3"), ((first, again, left), "b1", "b2")]:
        found = plan.choose_rollback(image(*builds), "cloud")
        assert not isinstance(found, str)
        assert [upload.build_id for upload in found] == [to, current]
    only = image(first, build("b0", "deleting", 0.5, upload(1, time=5.0)))
    text = "image debian has no ready upload in"
    assert plan.choose_rollback(only, "cloud") == f"{text} cloud before b1/0000000001"
    assert plan.choose_rollback(only, "other") == f"{text} other"


@rows(__file__, "wait_for_a_build")
def test_wait_for_a_build(
    before: list[Any], looks: list[list[Any]], last: list[Any], good: bool | None, text: str | None
) -> None:
    """The first build that ends after the request."""
    wait = plan.BuildWait(view_of(before).image("debian"))
    assert [wait.look(view_of(look).image("debian")) for look in looks] == [None] * len(looks)
    view = view_of(last).image("debian")
    assert wait.look(view) == (None if good is None else plan.End(good, text or ""))
    assert [one.id for one in wait.running(view)] == [one.id for one in view.builds_in("building")]


def test_wait_for_an_import() -> None:
    """I-2: what builders build meanwhile is not waited for."""
    wait, made = plan.BuildWait(image(build("b1", "building")), ImageSource("/a.qcow2")), build("b3", "failed", 3.0)
    assert made.record is not None
    made.record.set_source(ImageSource("/a.qcow2"))
    assert wait.look(image(build("b1", "ready", 1.0), build("b2", "ready", 2.0))) is None
    found = wait.look(image(build("b1", "ready", 1.0), build("b2", "ready", 2.0), made))
    assert found is not None
    assert "b3 has failed" in found.text


def test_provider_that_refuses_for_days() -> None:
    """U-6: all failures are counted, and few numbers are kept; records that stay count once."""
    history = plan.UploadHistory()
    for last in range(1, 501):
        stay = [upload(one, "failed", time=float(one)) for one in range(max(1, last - plan.REMEMBERED + 1), last + 1)]
        history = plan.observe_uploads(history, images(ready(1, *stay)), 1000.0)
    found = history["debian", "b1", "cloud"]
    assert (found.failures, found.last, len(found.counted)) == (500, 500.0, plan.REMEMBERED)
