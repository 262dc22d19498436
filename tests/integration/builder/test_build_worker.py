# SPDX-License-Identifier: Apache-2.0
"""Passes of build workers: what is built, and what is left to others."""

from __future__ import annotations

import pytest

from nodepool.builder.build import SPACE_SECONDS, BuildPlan
from nodepool.model import states
from tests.support.build_site import FAKE, BuildSite
from tests.support.image_site import IMAGE


def test_pass_builds_what_is_due(place: BuildSite) -> None:
    """B-1, B-2, B-3: the provider's format, in one run; then nothing is due before the build is old."""
    assert place.once() == 0.0
    (build,) = place.builds()
    assert (build.state, build.formats, build.builder) == ("ready", ["qcow2"], "builder.example.com")
    assert build.builder_id == place.site.builder_id
    assert build.extra["size"] == sum(place.site.files.sizes(IMAGE, build.key).values())
    assert build.extra["duration"] > 0
    wait = place.once()
    assert wait is not None
    assert 86000 < wait <= 86400
    assert len(place.builds()) == 1


def test_lock_of_others(place: BuildSite) -> None:
    """B-3, B-11: it is not waited for."""
    place.site.sync()
    view = place.site.known()
    with place.site.store.build_lock(IMAGE):
        place.worker._plan = BuildPlan(place.plan.services, lambda: view, place.plan.config)
        assert place.worker.run_once() is None
    assert place.builds() == []


def test_somebody_was_faster(place: BuildSite) -> None:
    """B-3: what was decided on old knowledge is decided again."""
    place.site.sync()
    view = place.site.known()
    place.site.build()
    place.worker._plan = BuildPlan(place.plan.services, lambda: view, place.plan.config)
    assert place.worker.run_once() is None
    assert place.states() == ["ready"]


def test_request_is_worth_one_attempt(place: BuildSite) -> None:
    """B-4, B-13: a request that came after the failure is served at once, once; it stays until a build is ready."""
    place.script("exit 4")
    place.once()
    place.site.store.request_build(IMAGE)
    assert place.once() == 0.0
    assert len(place.builds()) == 2
    assert place.once() != 0.0
    assert place.site.store.build_request(IMAGE) is not None
    # Who asks again while the first request still waits gets another attempt, too.
    place.site.store.request_build(IMAGE)
    assert place.once() == 0.0
    assert len(place.builds()) == 3
    assert place.once() != 0.0
    # The configuration has changed.
    place.command(FAKE)
    assert place.once() == 0.0
    assert place.site.store.build_request(IMAGE) is None


def test_no_room(place: BuildSite, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Twice the size of the last build must be free; why nothing is built is said, once. No record is made."""
    place.once()
    place.site.store.request_build(IMAGE)
    with monkeypatch.context() as patch:
        patch.setattr(place.site.files, "free_bytes", lambda: 0)
        assert place.once() == SPACE_SECONDS
        assert place.once() == SPACE_SECONDS
    assert len(place.builds()) == 1
    told = [record.getMessage() for record in caplog.records if "cannot be built" in record.getMessage()]
    assert len(told) == 1
    assert "2 times as much must be free" in told[0]
    assert place.once() == 0.0
    assert len(place.builds()) == 2


def test_stopped_worker_begins_nothing(place: BuildSite) -> None:
    place.worker.end_build("the builder stops")
    place.once()
    assert place.builds() == []


def test_who_asked_comes_first(place: BuildSite) -> None:
    """Requests before what is due anyway, the oldest first."""
    place.site.configure(["cloud"], [IMAGE, "second", "third"])
    for image in place.site.config.diskimages.values():
        image.dib_cmd = FAKE
    place.site.config.build_log_dir = str(place.directory / "logs")
    place.site.store.request_build("third")
    place.once()
    assert [len(place.builds(image)) for image in (IMAGE, "second", "third")] == [0, 0, 1]


def test_not_before_all_is_known(place: BuildSite) -> None:
    place.worker._plan = BuildPlan(place.plan.services, lambda: None, place.plan.config)
    assert place.worker.run_once() is None
    assert place.builds() == []


def test_paused_image(place: BuildSite) -> None:
    """P-1"""
    place.site.store.set_paused(IMAGE, True)
    assert place.once() is None
    assert place.builds() == []
    assert states.READY not in place.states()
