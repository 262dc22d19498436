# SPDX-License-Identifier: Apache-2.0
"""What a driver says of a request that it can never serve (rule A-13)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.model import reasons, states
from tests.support.scripted_driver import Stage


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"images": False, "limit": 0}, "images are not available"),
        ({"limit": 0}, "it would exceed quota"),
        (
            {"broken": ["small"], "images": False},
            "node type(s) [small] not available; small: the driver says that it can never work here",
        ),
    ],
)
def test_decline_reasons(stage: Stage, change: dict[str, Any], reason: str) -> None:
    """A-13, Q-14: the first that matches."""
    vars(stage.provider).update(change)
    handler = stage.begin("small")
    assert handler.decline_reasons == [reason]
    assert stage.request(handler).state == states.FAILED
    assert stage.nodes() == []


def test_why_there_is_no_room(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """E-1: also where a driver has no quota that could tell."""
    handler = stage.begin("small")
    assert handler.why_no_room("small") == reasons.NO_ROOM
    assert handler.why_too_large() == reasons.EXCEEDS_QUOTA
    assert handler.why_images_missing() == reasons.IMAGE_MISSING
    monkeypatch.setattr(type(stage.provider), "LAUNCHES", False)
    assert handler.why_no_room("small") == reasons.NO_READY_NODE


def test_disabled_pool() -> None:
    """A-13, A-21: before everything else."""
    stage = Stage(pool={"max-servers": 0})
    stage.provider.broken = ["small"]
    assert stage.begin("small").decline_reasons == ["the pool is disabled: max-servers is 0 or less"]


def test_unknown_label(stage: Stage) -> None:
    """A-13"""
    handler = stage.begin("small", "unknown", "other")
    assert handler.decline_reasons == ["node type(s) [other, unknown] not available"]
