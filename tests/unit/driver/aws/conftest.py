# SPDX-License-Identifier: Apache-2.0
"""Time passes when a test says so."""

from __future__ import annotations

import pytest

from tests.support.manual_clock import ManualClock, package_clock


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    return package_clock(monkeypatch)
