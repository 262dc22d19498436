# SPDX-License-Identifier: Apache-2.0
"""Numbers with units."""

from __future__ import annotations

import pytest

from nodepool.listing import table


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (20 * 1024**3, "20.0 GiB"), (5 * 1024**5, "5120.0 TiB")],
)
def test_size(count: float, text: str) -> None:
    assert table.size(count) == text
    assert table.speed(count) == f"{text}/s"


@pytest.mark.parametrize(("value", "text"), [(0, "0%"), (99.9, "99%"), (100, "100%"), (-1, "0%"), (120, "100%")])
def test_percent(value: float, text: str) -> None:
    """100% only when nothing is left."""
    assert table.percent(value) == text
