# SPDX-License-Identifier: Apache-2.0
"""Time passes when a test says so."""

from __future__ import annotations

import pytest

from tests.support.manual_clock import ManualClock


@pytest.fixture(autouse=True)
def clock() -> ManualClock:
    return ManualClock().rules()
