# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the tests of the IBM VPC driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodepool.driver.ibmvpc.machines import IbmMachines
from tests.unit.driver.ibmvpc.support import Here, at_simulator, in_region


@pytest.fixture(autouse=True)
def _quick_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulated region boots instances at once, and its lists are not late unless a test says so."""
    monkeypatch.setattr(IbmMachines, "shortest_list_pause", 0.0)
    monkeypatch.setattr(IbmMachines, "lag_seconds", 0.0)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    with at_simulator(tmp_path, in_region()) as made:
        yield made
