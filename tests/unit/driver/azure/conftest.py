# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the tests of the Azure driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodepool.driver.azure.machines import AzureMachines
from nodepool.driver.framework.http.rest_calls import RestCalls
from nodepool.plan.retries import Backoff
from tests.unit.driver.azure.support import Here, at_simulator, section


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists follow each other at once, and calls are made again at once."""
    monkeypatch.setattr(AzureMachines, "shortest_list_pause", 0.0)
    monkeypatch.setattr(AzureMachines, "lag_seconds", 0.5)
    # A constant of the module, wherever that is.
    monkeypatch.setitem(RestCalls.call.__globals__, "READ_AGAIN", Backoff(0.0, 0.0))


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    with at_simulator(tmp_path, section()) as made:
        yield made
