# SPDX-License-Identifier: Apache-2.0
"""Spans of builds and uploads."""

from __future__ import annotations

import pytest

from nodepool.tracing import spans
from tests.unit.tracing.test_recorder import Kept


@pytest.fixture
def kept() -> Kept:
    return Kept()


def test_an_upload_belongs_to_its_build(kept: Kept) -> None:
    """TR-4: also when another builder uploads it."""
    spans.use(kept)
    try:
        spans.build_ended("debian", "b1", 10.0, "")
        spans.upload_ended("debian", "b1", "cloud", "0000000001", 5.0, "failed", "full")
        spans.build_ended("debian", "b2", 10.0, "no disk")
    finally:
        spans.stop_using(kept)
    build, upload, other = kept.spans
    assert (build.name, build.parent_id, build.error) == ("nodepool.build", 0, "")
    assert (upload.name, upload.parent_id, upload.error) == ("nodepool.upload", build.span_id, "full")
    assert upload.trace_id == build.trace_id != other.trace_id
    assert other.error == "no disk"
    assert build.end - build.begin == pytest.approx(10.0)
    assert {"nodepool.image": "debian", "nodepool.provider": "cloud", "nodepool.outcome": "failed"}.items() <= (
        upload.attributes.items()
    )


def test_off() -> None:
    """TR-1."""
    spans.build_ended("debian", "b1", 10.0, "")
    spans.upload_ended("debian", "b1", "cloud", "1", 5.0, "ready", "")
    assert not spans.enabled()
