# SPDX-License-Identifier: Apache-2.0
"""nodepool.plan.images: what is uploaded where and when."""

from __future__ import annotations

import pytest

from nodepool.model.image import BuildView, ImagesView
from nodepool.plan.images import (
    BACKOFF,
    REMEMBERED,
    UploadHistory,
    UploadJob,
    UploadsDue,
    WantedImage,
    WantedImages,
    WantedUpload,
    next_upload,
    observe_uploads,
    overtaken,
    uploads_due,
)
from tests.support.image_views import build, image, images, upload

NEW = UploadHistory()
QCOW2 = WantedUpload("qcow2")
HERE = {("debian", "b1"): {"qcow2"}, ("debian", "b2"): {"qcow2"}}


def wanted(**providers: WantedUpload) -> WantedImages:
    return WantedImages({"debian": WantedImage("debian")}, {name: {"debian": use} for name, use in providers.items()})


def keys(due: UploadsDue) -> list[tuple[str, str]]:
    return [(job.build_id, job.provider) for job in due.jobs]


def test_newest_ready_build() -> None:
    """U-1: to each provider that does not have it yet. U-12: nothing older."""
    view = images(
        build("b1", "ready", 1.0),
        build("b2", "ready", 2.0, upload(1, provider="has")),
        build("b3", "building", 3.0),
    )
    due = uploads_due(wanted(has=QCOW2, lacks=QCOW2), view, HERE, NEW, 10.0)
    assert due == UploadsDue((UploadJob("debian", "b2", "lacks", "qcow2", 2.0),))


@pytest.mark.parametrize("state", ["uploading", "failed", "deleting"])
def test_uploads_that_are_not_ready(state: str) -> None:
    """U-6: after a failure there is a further upload; one without a worker does not stop it either."""
    view = images(build("b1", "ready", 1.0, upload(1, state, time=1.0)))
    assert keys(uploads_due(wanted(cloud=QCOW2), view, HERE, NEW, 10.0)) == [("b1", "cloud")]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (build("b1", "ready", 1.0, uploading=["cloud"]), "somebody uploads it"),
        (build("b1", "ready", 1.0, locked=True), "somebody deletes it"),
        (build("b1", "deleting", 1.0), "it is being deleted"),
        (build("b3", "ready", 1.0), "U-10: its files are on another builder"),
    ],
)
def test_left_alone(found: BuildView, why: str) -> None:
    """U-1, U-2, U-10"""
    assert uploads_due(wanted(cloud=QCOW2), images(found), HERE, NEW, 10.0) == UploadsDue(), why


def test_files_of_the_newest_build_are_elsewhere() -> None:
    """U-1, U-10: an older build of ours is not uploaded instead."""
    view = images(build("b1", "ready", 1.0), build("elsewhere", "ready", 2.0))
    assert uploads_due(wanted(cloud=QCOW2), view, HERE, NEW, 10.0) == UploadsDue()


def test_format_is_not_on_disk() -> None:
    """U-13: no upload is begun that can only fail."""
    view = images(build("b1", "ready", 1.0))
    assert uploads_due(wanted(cloud=WantedUpload("raw")), view, HERE, NEW, 10.0) == UploadsDue()


def test_paused_provider() -> None:
    """P-2: nothing is uploaded there. P-1: a paused image is uploaded to others all the same."""
    view = images(build("b1", "ready", 1.0), paused=True)
    due = uploads_due(wanted(cloud=WantedUpload("qcow2", paused=True), other=QCOW2), view, HERE, NEW, 10.0)
    assert keys(due) == [("b1", "other")]


def test_image_that_is_not_configured() -> None:
    unknown = WantedImages({}, {"cloud": {"debian": QCOW2}})
    assert uploads_due(unknown, images(build("b1", "ready", 1.0)), HERE, NEW, 10.0) == UploadsDue()


def test_back_off() -> None:
    """U-6: failures of one provider make it wait longer and longer, and no other."""
    history, use = NEW, wanted(cloud=QCOW2, other=QCOW2)
    pauses = []
    for number in range(1, 8):
        view = images(build("b1", "ready", 1.0, upload(number, "failed", time=100.0)))
        history = observe_uploads(history, view, 100.0)
        assert observe_uploads(history, view, 200.0) == history, "a failure counts once"
        due = uploads_due(use, view, HERE, history, 100.0)
        assert keys(due) == [("b1", "other")]
        assert due.look_again_at is not None
        pauses.append(due.look_again_at - 100.0)
        later = uploads_due(use, view, HERE, history, due.look_again_at)
        assert [(job.provider, job.failures) for job in later.jobs] == [("cloud", number), ("other", 0)]
    assert pauses == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0, 60.0]
    assert observe_uploads(history, images(), 300.0) == NEW, "of a build that is gone nothing is kept"


def test_provider_that_refuses_for_days() -> None:
    """All failures are counted, and few numbers are kept; records that stay count once."""
    history, present = NEW, REMEMBERED
    for number in range(1, 501):
        failed = [upload(one, "failed", time=float(one)) for one in range(max(1, number - present + 1), number + 1)]
        history = observe_uploads(history, images(build("b1", "ready", 1.0, *failed)), 1000.0)
    found = history.of("debian", "b1", "cloud")
    assert (found.failures, found.last, len(found.counted)) == (500, 500.0, REMEMBERED)


def test_clock_of_another_builder_is_ahead() -> None:
    view = images(build("b1", "ready", 1.0, upload(1, "failed", time=9999.0)))
    due = uploads_due(wanted(cloud=QCOW2), view, HERE, observe_uploads(NEW, view, 100.0), 100.0)
    assert due == UploadsDue((), 100.0 + BACKOFF.pause(1))


def test_newest_build_first() -> None:
    names = ("debian", "fedora")
    view = ImagesView(
        {name: image(build("b1", "ready", float(time))) for name, time in zip(names, (1, 2), strict=True)}
    )
    use = WantedImages({name: WantedImage(name) for name in names}, {"cloud": dict.fromkeys(names, QCOW2)})
    jobs = uploads_due(use, view, HERE, NEW, 10.0).jobs
    assert [job.build_time for job in jobs] == [2.0, 1.0]


def job(provider: str, time: float) -> UploadJob:
    return UploadJob("debian", f"b{time:g}", provider, "qcow2", time)


def test_next_upload() -> None:
    """The newest build first; of several providers the one that has the least under way."""
    jobs = [job("a", 3.0), job("a", 2.0), job("b", 1.0)]
    assert next_upload(jobs, [], 4, 2) == jobs[0]
    assert next_upload(jobs, [jobs[0]], 4, 2) == jobs[2]
    assert next_upload(jobs, [jobs[0], jobs[2]], 4, 2) == jobs[1]
    assert next_upload(jobs, jobs, 4, 2) is None
    assert next_upload([], [], 4, 2) is None


def test_slow_provider_does_not_get_all_workers() -> None:
    """U-6: a worker is left for the others."""
    running = [job("slow", 1.0), job("slow", 2.0), job("slow", 3.0)]
    waiting = [job("slow", 4.0)]
    assert next_upload(waiting, running, 4, 2) is None
    assert next_upload([*waiting, job("fast", 0.0)], running, 4, 2) == job("fast", 0.0)
    assert next_upload(waiting, running, 4, 1) == waiting[0], "there are no others"
    assert next_upload(waiting, [], 1, 2) == waiting[0]


def test_overtaken() -> None:
    """U-12: only by a newer build that is ready there."""
    older = build("b1", "ready", 1.0)
    newer = build("b2", "ready", 2.0)
    there = build("b2", "ready", 2.0, upload(1))
    assert overtaken(older, image(older, newer), "cloud") is None
    assert overtaken(older, image(older, there), "cloud") == "the newer build b2 is ready in cloud"
    assert overtaken(older, image(older, there), "other") is None
    assert overtaken(there, image(build("b1", "ready", 1.0, upload(1)), there), "cloud") is None
    back = build("b2", "ready", 2.0, upload(1, rolled_back=True))
    assert overtaken(older, image(older, back), "cloud") is None, "somebody went back from it"
    deleting = build("b2", "deleting", 2.0, upload(1))
    assert overtaken(older, image(older, deleting), "cloud") is None


@pytest.mark.parametrize("found", [None, build("b1", "deleting", 1.0)])
def test_build_is_gone(found: BuildView | None) -> None:
    """U-2"""
    assert overtaken(found, image(), "cloud") == "the build is gone or being deleted"
