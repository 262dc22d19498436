# SPDX-License-Identifier: Apache-2.0
"""nodepool.plan.images: which upload to go back to."""

from __future__ import annotations

from nodepool.plan.images import NoRollback, Rollback, choose_rollback
from tests.support.image_views import build, image, upload


def test_the_one_before_the_current_one() -> None:
    """R-18"""
    view = image(
        build("b1", "ready", 1.0, upload(1, time=10.0)),
        build("b2", "ready", 2.0, upload(1, time=20.0), upload(2, "failed", time=25.0)),
        build("b3", "ready", 3.0, upload(1, time=30.0), upload(2, time=99.0, provider="other")),
    )
    found = choose_rollback(view, "cloud")
    assert isinstance(found, Rollback)
    assert (found.to.build_id, found.current.build_id) == ("b2", "b3")


def test_not_to_what_somebody_went_back_from() -> None:
    """R-18: a second step leads further back."""
    view = image(
        build("b1", "ready", 1.0, upload(1, time=10.0)),
        build("b2", "ready", 2.0, upload(1, time=40.0)),
        build("b3", "ready", 3.0, upload(1, time=30.0, rolled_back=True)),
    )
    found = choose_rollback(view, "cloud")
    assert isinstance(found, Rollback)
    assert (found.to.build_id, found.current.build_id) == ("b1", "b2")


def test_nothing_to_go_back_to() -> None:
    only = image(build("b1", "ready", 1.0, upload(1, time=10.0)), build("b0", "deleting", 0.5, upload(1, time=5.0)))
    assert choose_rollback(only, "cloud") == NoRollback(
        "image debian has no ready upload in cloud before b1/0000000001"
    )
    assert choose_rollback(only, "other") == NoRollback("image debian has no ready upload in other")
