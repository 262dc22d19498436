# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of what the drivers share."""

from __future__ import annotations

import pytest

from tests.support.scripted_driver import Stage


@pytest.fixture
def stage() -> Stage:
    """A pool with a driver that does as the test says."""
    return Stage()
