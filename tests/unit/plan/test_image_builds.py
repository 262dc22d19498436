# SPDX-License-Identifier: Apache-2.0
"""nodepool.plan.images: when an image is built."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodepool.model.image import ImageView
from nodepool.plan.images import (
    BuildHistory,
    Due,
    NotDue,
    OwnBuilds,
    WantedImage,
    WantedUpload,
    build_due,
    observe_builds,
)
from tests.support.image_views import build, image, upload

WANTED = WantedImage("debian", frozenset({"qcow2"}), rebuild_age_seconds=1000.0)
NEW = BuildHistory()


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        (image(), "there is no ready build"),
        (image(build("b1", "failed", 90.0), build("b2", None)), "there is no ready build"),
        (image(build("b1", "deleting", 90.0)), "there is no ready build"),
        (image(build("b1", "ready", 100.0)), "rebuild-age is 1000 s"),
        (image(build("b1", "ready", 500.0, formats=["raw"])), "has no qcow2"),
        (image(build("b1", "ready", 500.0), build_requested=900.0), "a build was requested"),
    ],
)
def test_due(view: ImageView, reason: str) -> None:
    """B-1, B-4"""
    found = build_due(WANTED, view, NEW, 1100.0)
    assert isinstance(found, Due)
    assert reason in found.reason


def test_young_build() -> None:
    """B-1: it is due when it is as old as rebuild-age. The newest counts, not an older one."""
    view = image(build("b1", "ready", 50.0), build("b2", "ready", 500.0))
    assert build_due(WANTED, view, NEW, 1499.0) == NotDue("the newest build is young enough", 1500.0)
    assert isinstance(build_due(WANTED, view, NEW, 1500.0), Due)


def test_formats() -> None:
    """B-2: every wanted format, also those of providers of which another builder takes care."""
    view = image(build("b1", "ready", 500.0, formats=["qcow2"]))
    wanted = replace(WANTED, formats=frozenset({"qcow2", "raw", "vhd"}))
    assert build_due(wanted, view, NEW, 600.0) == Due("the newest build has no raw, vhd")
    more = image(build("b1", "ready", 500.0, formats=["qcow2", "raw", "vhd", "vmdk"]))
    assert isinstance(build_due(wanted, more, NEW, 600.0), NotDue)
    assert isinstance(build_due(replace(WANTED, formats=frozenset()), image(), NEW, 600.0), NotDue)


def test_pauses() -> None:
    """P-1: neither a schedule nor a request builds what is paused. B-4: the request stays."""
    requested = image(build_requested=5.0)
    assert build_due(replace(WANTED, paused=True), requested, NEW, 600.0) == NotDue("paused in the configuration")
    assert build_due(WANTED, replace(requested, paused=True), NEW, 600.0) == NotDue("paused by image-pause")


def test_one_at_a_time() -> None:
    """B-11: nobody else begins while the lock is held."""
    assert build_due(WANTED, image(build_locked=True), NEW, 5.0) == NotDue("it is being built")


def failed(number: int, time: float) -> ImageView:
    return image(build(f"b{number}", "failed", time, created_zxid=number))


def test_back_off() -> None:
    """B-13: 1, 2, 4 minutes after 1, 2, 3 failures in a row, up to the rebuild age."""
    history, pauses = NEW, []
    for number in range(1, 8):
        history = observe_builds(history, failed(number, 1000.0), None, 1000.0)
        found = build_due(WANTED, failed(number, 1000.0), history, 1000.0)
        assert isinstance(found, NotDue)
        assert found.look_again_at is not None
        pauses.append(found.look_again_at - 1000.0)
        assert isinstance(build_due(WANTED, image(), history, found.look_again_at), Due)
    assert pauses == [60.0, 120.0, 240.0, 480.0, 960.0, 1000.0, 1000.0]


def test_failure_counts_once() -> None:
    history = observe_builds(NEW, failed(1, 100.0), None, 100.0)
    assert observe_builds(history, failed(1, 100.0), None, 200.0) == history
    gone = observe_builds(history, image(), None, 300.0)
    assert (gone.failures, gone.last_failure, gone.counted) == (1, 100.0, frozenset())


def test_ready_build_ends_the_row() -> None:
    """Of whichever builder; an older one does not."""
    history = observe_builds(NEW, failed(5, 100.0), None, 100.0)
    older = image(build("b1", "ready", 50.0, created_zxid=4))
    assert observe_builds(history, older, None, 200.0).failures == 1
    newer = image(build("b6", "ready", 50.0, created_zxid=6))
    assert observe_builds(history, newer, None, 200.0).failures == 0


def test_clock_of_another_builder_is_ahead() -> None:
    history = observe_builds(NEW, failed(1, 9999.0), None, 100.0)
    assert history.last_failure == 100.0


def test_changed_configuration_ends_the_back_off() -> None:
    """B-13"""
    history = observe_builds(NEW, failed(1, 100.0), "before", 100.0)
    assert isinstance(build_due(replace(WANTED, settings="before"), image(), history, 101.0), NotDue)
    assert isinstance(build_due(replace(WANTED, settings="after"), image(), history, 101.0), Due)
    again = observe_builds(history, failed(2, 102.0), "after", 102.0)
    assert isinstance(build_due(replace(WANTED, settings="after"), image(), again, 103.0), NotDue)


def test_request_ends_the_back_off_once() -> None:
    """B-13: one attempt at once for each request that came after the last attempt began."""
    history = observe_builds(NEW, failed(10, 100.0), None, 100.0)
    old = image(build_requested=90.0, request_zxid=9)
    found = build_due(WANTED, old, history, 101.0)
    assert found == NotDue("a build was requested, but 1 builds in a row have failed", 160.0)
    new = image(build_requested=90.0, request_zxid=11)
    assert build_due(WANTED, new, history, 101.0) == Due("a build was requested")
    after = observe_builds(history, image(build("b12", "failed", 105.0, created_zxid=12)), None, 105.0)
    assert build_due(WANTED, new, after, 106.0) == NotDue(
        "a build was requested, but 2 builds in a row have failed", 225.0
    )


def test_files_that_are_gone() -> None:
    """B-17: a build of ours that can be uploaded no more is made again, when a provider lacks it."""
    users = {
        "cloud": WantedUpload("qcow2"),
        "other": WantedUpload("qcow2"),
        "third": WantedUpload("qcow2", paused=True),
    }
    view = image(build("b1", "ready", 500.0, upload(1, provider="cloud")))
    lost = OwnBuilds("id-1", {})
    found = build_due(WANTED, view, NEW, 600.0, users, lost)
    assert found == Due("the files of the newest build are gone, and other has no upload of it")
    for own in (None, OwnBuilds("id-2", {}), OwnBuilds("id-1", {("debian", "b1"): {"qcow2"}})):
        assert isinstance(build_due(WANTED, view, NEW, 600.0, users, own), NotDue)
    shared = OwnBuilds("id-1", {("fedora", "b1"): {"qcow2"}})
    assert isinstance(build_due(WANTED, view, NEW, 600.0, users, shared), Due), "an id of two images"
    everywhere = image(build("b1", "ready", 500.0, upload(1, provider="cloud"), upload(2, provider="other")))
    assert isinstance(build_due(WANTED, everywhere, NEW, 600.0, users, lost), NotDue)
