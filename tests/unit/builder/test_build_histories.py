# SPDX-License-Identifier: Apache-2.0
"""Failed builds, counted once each, whether their records are seen or not."""

from __future__ import annotations

from nodepool.builder.build_histories import BuildHistories
from nodepool.model import states
from nodepool.model.image import ImageBuild
from nodepool.model.image_view import BuildView, ImageView

IMAGE = "debian"


def view(*failed: str) -> ImageView:
    builds = {}
    for build_id in failed:
        record = ImageBuild.from_dict({"state": states.FAILED, "state_time": 50.0}, IMAGE, build_id)
        builds[build_id] = BuildView(build_id, record, created_zxid=7)
    return ImageView(IMAGE, builds=builds)


def test_own_failure_whose_record_nobody_saw() -> None:
    """B-13: the clean-up may be faster than the next look."""
    histories = BuildHistories(lambda: 100.0)
    histories.failed(IMAGE, "a", 7, "settings")
    history = histories.look(view(), "settings")
    assert (history.failures, history.last_failure, history.last_begun_zxid) == (1, 100.0, 7)


def test_own_failure_is_counted_once() -> None:
    """B-13: seen before it was noted, after that, or both."""
    histories = BuildHistories(lambda: 100.0)
    histories.failed(IMAGE, "a", 7, "settings")
    assert histories.look(view("a"), "settings").failures == 1
    histories.look(view("a", "b"), "settings")
    histories.failed(IMAGE, "b", 8, "settings")
    assert histories.look(view("b"), "settings").failures == 2
    assert histories.look(view(), "settings").failures == 2
    assert histories.look(view("a"), "settings").failures == 2


def test_failures_of_others_count() -> None:
    """B-13"""
    histories = BuildHistories(lambda: 100.0)
    assert histories.look(view("a"), "settings").failures == 1
    assert histories.look(view("a"), "settings").failures == 1
