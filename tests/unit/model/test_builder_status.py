# SPDX-License-Identifier: Apache-2.0
"""What builders tell of their work."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.model.status import BuilderStatus, BuildStatus, UploadStatus


def test_records_of_all_builders() -> None:
    status = BuilderStatus.of_records(
        [
            {"builder": "a", "builds": {"deb/b1": {"step": "install", "since": 1, "estimate": 60}}},
            {"uploads": {"deb/b0/lab/1": {"percent": 12.5, "bytes_per_second": 7, "size": 100}}},
        ]
    )
    assert status.build("deb", "b1") == BuildStatus("install", 60)
    assert status.upload("deb", "b0", "lab", "1") == UploadStatus(12.5, 7, 100)
    assert status.providers == {}
    assert status.build("deb", "b0") == BuildStatus()
    assert status.upload("deb", "b0", "other", "1") == UploadStatus()


@pytest.mark.parametrize("record", [{}, {"builds": None, "uploads": []}, {"builds": {"a/b": 1}, "uploads": {"a": "b"}}])
def test_odd_records_tell_nothing(record: dict[str, Any]) -> None:
    assert BuilderStatus.of_records([record]) == BuilderStatus()


def test_providers_that_builders_look_after() -> None:
    """OV-8: those of two processes on a host are one builder's."""
    records: list[dict[str, Any]] = [
        {"host": "a", "providers": ["x"]},
        {"host": "a", "providers": ["y"]},
        {"host": "b"},
    ]
    assert BuilderStatus.of_records(records).providers == {"a": {"x", "y"}}


def test_odd_values_are_not_told() -> None:
    status = BuilderStatus.of_records([{"builds": {"a/b": {"step": 7, "estimate": "soon"}}}])
    assert status.build("a", "b") == BuildStatus()
