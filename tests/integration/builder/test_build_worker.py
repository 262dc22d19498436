# SPDX-License-Identifier: Apache-2.0
"""Passes of build workers: what is built, and what is left to others."""

from __future__ import annotations

import dataclasses

import pytest

from nodepool.builder.build import SPACE_SECONDS, BuildQueue, BuildWorker
from nodepool.model.image import ImagesView
from tests.support.build_site import FAKE, BuildSite
from tests.support.image_site import IMAGE


def test_what_a_worker_knows(place: BuildSite) -> None:
    """B-3, B-11: nothing is built before all is known. A lock of others is not waited for. What was decided on old
    knowledge is decided again.
    """

    def run_with(view: ImagesView | None) -> float | None:
        shared = dataclasses.replace(place.site.shared, images=lambda: view)
        return BuildWorker(1, shared, BuildQueue()).run_once()

    assert run_with(None) is None
    place.site.sync()
    view = place.site.known()
    with place.site.store.build_lock(IMAGE):
        assert run_with(view) is None
    assert place.builds() == []
    place.site.build()
    assert run_with(view) is None
    assert place.states() == ["ready"]


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
