# SPDX-License-Identifier: Apache-2.0
"""Properties of the decisions about images: what is kept, what goes, what is uploaded, and that it comes to an end."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from nodepool.model import states
from nodepool.model.image import BuildView, ImageBuild, ImagesView, ImageUpload, ImageView, UploadView
from nodepool.plan import images
from tests.model.budget import budget

NOW = 10_000.0
PROVIDERS = ("one", "two")
WANTED, UNWANTED = "debian", "old"
USES = {"one": images.WantedUpload("qcow2"), "two": images.WantedUpload("raw")}
CONFIGURATION = images.WantedImages(
    {WANTED: images.WantedImage(WANTED, frozenset({"qcow2", "raw"}))},
    {name: {WANTED: use} for name, use in USES.items()},
)


@st.composite
def uploads(draw: st.DrawFn, image: str, build_id: str, provider: str) -> tuple[UploadView, ...]:
    found = []
    for number in range(draw(st.integers(0, 2))):
        key = f"{number + 1:010d}"
        state = draw(st.sampled_from((*states.UPLOAD_STATES, states.READY, None)))
        record = None
        if state is not None:
            data = {"state": state, "state_time": draw(st.integers(1, 9000)), "external_id": f"{build_id}-{key}"}
            record = ImageUpload.from_dict(data, image, build_id, provider, key)
        found.append(UploadView(key, record, locked=draw(st.sampled_from((False, False, True))), changed=1.0))
    return tuple(found)


@st.composite
def image_views(draw: st.DrawFn, name: str) -> ImageView:
    builds = {}
    for number in range(draw(st.integers(0, 5))):
        build_id = f"{number:032x}"
        state = draw(st.sampled_from((*states.BUILD_STATES, states.READY, states.READY, None)))
        record = None
        if state is not None:
            data = {"state": state, "state_time": draw(st.integers(1, 9000)), "formats": "qcow2,raw"}
            record = ImageBuild.from_dict(data, name, build_id)
        # Before a build is ready nobody uploads it.
        has_uploads = state not in (states.BUILDING, states.FAILED)
        builds[build_id] = BuildView(
            build_id,
            record,
            locked=draw(st.sampled_from((False, False, False, True))),
            uploads={provider: draw(uploads(name, build_id, provider)) for provider in PROVIDERS if has_uploads},
            uploading=draw(st.frozensets(st.sampled_from(PROVIDERS), max_size=1)),
            changed=1.0,
        )
    return ImageView(name, build_locked=draw(st.booleans()), builds=builds)


views = st.builds(
    lambda *found: ImagesView({image.name: image for image in found}), image_views(WANTED), image_views(UNWANTED)
)


def apply(view: ImagesView, verdict: images.Verdict) -> ImagesView:
    """What a clean-up worker makes of it."""
    image = view.image(verdict.image)
    builds = dict(image.builds)
    build = builds[verdict.build_id]
    if isinstance(verdict, images.RemoveBuild):
        del builds[verdict.build_id]
    elif isinstance(verdict, images.MarkBuild):
        data = {"state": states.DELETING, "state_time": NOW}
        record = ImageBuild.from_dict(data, verdict.image, verdict.build_id)
        builds[verdict.build_id] = dataclasses.replace(build, record=record)
    else:
        left = tuple(upload for upload in build.uploads[verdict.provider] if upload.id != verdict.upload_id)
        builds[verdict.build_id] = dataclasses.replace(build, uploads={**build.uploads, verdict.provider: left})
    return view.with_image(verdict.image, dataclasses.replace(image, builds=builds))


def idle(view: ImagesView) -> ImagesView:
    """The same when nobody works on anything."""
    return ImagesView({name: _idle(image) for name, image in view.images.items()})


def _idle(image: ImageView) -> ImageView:
    builds = {
        name: dataclasses.replace(
            build,
            locked=False,
            uploading=frozenset(),
            uploads={
                provider: tuple(dataclasses.replace(upload, locked=False) for upload in found)
                for provider, found in build.uploads.items()
            },
        )
        for name, build in image.builds.items()
    }
    return dataclasses.replace(image, build_locked=False, builds=builds)


def kept_builds(view: ImagesView) -> set[str]:
    """The two newest ready ones."""
    return {build.id for build in view.image(WANTED).ready_builds()[:2]}


def kept_uploads(view: ImagesView) -> set[tuple[str, str, str]]:
    """The two newest ready ones in each provider, of builds that nobody is deleting."""
    doomed = {build.id for build in view.image(WANTED).builds_in(states.DELETING)}
    found = set()
    for provider in PROVIDERS:
        ready = [upload for upload in view.image(WANTED).ready_uploads(provider) if upload.build_id not in doomed]
        found |= {(provider, upload.build_id, upload.key) for upload in ready[:2]}
    return found


@given(view=views)
@budget(80)
def test_what_is_wanted_stays(view: ImagesView) -> None:
    """R-1, R-2: and nothing that somebody works on is touched."""
    for verdict in images.judge_images(CONFIGURATION, view, NOW):
        build = view.image(verdict.image).builds[verdict.build_id]
        if isinstance(verdict, images.DeleteUpload):
            upload = next(found for found in build.uploads[verdict.provider] if found.id == verdict.upload_id)
            assert not upload.locked
            state = None if upload.record is None else upload.record.state
            assert not (state in (None, states.UPLOADING) and verdict.provider in build.uploading)
            if verdict.image == WANTED and state == states.READY and build.state != states.DELETING:
                assert (verdict.provider, verdict.build_id, verdict.upload_id) not in kept_uploads(view)
        else:
            assert not build.locked
            if verdict.image == WANTED:
                assert verdict.build_id not in kept_builds(view)
            if isinstance(verdict, images.RemoveBuild):
                assert not build.upload_count


@given(view=views, order=st.randoms(use_true_random=False))
@budget(80)
def test_clean_up_ends_with_exactly_what_is_wanted(view: ImagesView, order: Random) -> None:
    """R-1 to R-6, R-11, R-17: in whatever order verdicts are carried out, also old ones."""
    view = idle(view)
    builds, uploads = kept_builds(view), kept_uploads(view)
    for _ in range(100):
        verdicts = images.judge_images(CONFIGURATION, view, NOW)
        if not verdicts:
            break
        view = apply(view, order.choice(verdicts))
    assert not images.judge_images(CONFIGURATION, view, NOW)
    assert not view.image(UNWANTED).builds
    left = view.image(WANTED).builds
    # A record that nobody can read stays as long as there are uploads that are wanted.
    assert {build.state for build in left.values() if not build.upload_count} <= {states.READY}
    assert {build.state for build in left.values()} <= {states.READY, None}
    assert builds <= set(left)
    found = {(p, build.id, u.id) for build in left.values() for p, many in build.uploads.items() for u in many}
    assert uploads <= found
    for build in left.values():
        assert build.id in builds or build.upload_count
        assert all(upload.state == states.READY for upload in build.all_uploads())


@given(view=views, formats=st.dictionaries(st.integers(0, 4), st.frozensets(st.sampled_from(("qcow2", "raw")))))
@budget(80)
def test_only_the_newest_build_is_uploaded_and_only_by_who_has_it(
    view: ImagesView, formats: Mapping[int, frozenset[str]]
) -> None:
    """U-1, U-10, U-12, U-13."""
    disk = {(WANTED, f"{number:032x}"): found for number, found in formats.items()}
    newest = next(iter(view.image(WANTED).ready_builds()), None)
    jobs = images.uploads_due(CONFIGURATION, view, disk, images.UploadHistory(), NOW).jobs
    assert len({job.key for job in jobs}) == len(jobs)
    for job in jobs:
        assert newest is not None
        assert (job.image, job.build_id, job.format) == (WANTED, newest.id, USES[job.provider].format)
        assert job.format in disk[job.image, job.build_id]
        assert not newest.ready_uploads(job.provider)
        assert job.provider not in newest.uploading
        assert images.overtaken(newest, view.image(WANTED), job.provider) is None


@given(view=views, disk=st.frozensets(st.integers(0, 4)))
@budget(50)
def test_there_is_always_something_that_makes_an_image_ready(view: ImagesView, disk: frozenset[int]) -> None:
    """B-1, U-1: when nobody works on anything and all files of ready builds are where they were made."""
    view = idle(view)
    ready_builds = view.image(WANTED).ready_builds()
    own = {(WANTED, build.id): ("qcow2", "raw") for build in ready_builds if int(build.id, 16) in disk}
    for build in view.image(WANTED).ready_builds():
        assert build.record is not None
        build.record.builder_id = "me"
    mine = images.OwnBuilds("me", own)
    due = images.build_due(CONFIGURATION.images[WANTED], view.image(WANTED), images.BuildHistory(), NOW, USES, mine)
    jobs = images.uploads_due(CONFIGURATION, view, own, images.UploadHistory(), NOW).jobs
    newest = next(iter(view.image(WANTED).ready_builds()), None)
    for provider in PROVIDERS:
        ready = newest is not None and newest.ready_uploads(provider)
        is_uploaded = provider in [job.provider for job in jobs]
        assert ready or is_uploaded or isinstance(due, images.Due)


def test_modules_have_what_is_played() -> None:
    """Verdicts of another kind would need a part in `apply`."""
    assert images.Verdict == images.DeleteUpload | images.MarkBuild | images.RemoveBuild
    assert images.KEPT == 2
    assert images.BACKOFF.pause(0) == 0
