# SPDX-License-Identifier: Apache-2.0
"""Labels that cannot be served, and why (Q-14)."""

from __future__ import annotations

from nodepool.driver.framework.broken_labels import BrokenLabels
from nodepool.model.pool_status import LabelStatus
from nodepool.model.reasons import ReasonCode


def test_cause_and_since() -> None:
    """Q-14: the cause is the last one that was said, the time that of the first."""
    labels = BrokenLabels()
    assert labels.add("gpu", ValueError("no flavor"))
    since = labels.causes()["gpu"].since
    assert not labels.add("gpu", ValueError("no flavor"))
    assert not labels.add("gpu", ValueError("no image"))
    assert labels.causes() == {"gpu": LabelStatus("label.broken", "no image", since)}


def test_works_again() -> None:
    """Q-14."""
    labels = BrokenLabels()
    labels.add("gpu", ValueError("no flavor"))
    assert (labels.discard("gpu"), labels.discard("gpu")) == (True, False)
    assert labels.causes() == {}


def test_another_code() -> None:
    """W-4: what is wrong with the labels is for who keeps them to say."""
    labels = BrokenLabels(ReasonCode.IMAGE_MISSING)
    labels.add("gpu", "no image")
    assert labels.causes()["gpu"].code == "image.missing"
