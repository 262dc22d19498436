# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the tests of the Azure driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodepool.driver.azure import images
from nodepool.driver.azure import machines as azure_machines
from nodepool.driver.azure.machines import AzureMachines
from nodepool.driver.statemachine import machines
from nodepool.plan.retries import Backoff
from tests.unit.driver.azure.support import Here, at_simulator, certificate_pem, section


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists follow each other at once, and what has no effect is sent again soon."""
    monkeypatch.setattr(AzureMachines, "shortest_list_pause", 0.0)
    monkeypatch.setattr(AzureMachines, "lag_seconds", 0.5)
    monkeypatch.setattr(azure_machines, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(images, "POLL_SECONDS", 0.2)
    monkeypatch.setattr(machines, "RESEND", Backoff(0.2, 60.0))
    monkeypatch.setattr(machines, "ABSENT_SECONDS", 0.5)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    with at_simulator(tmp_path, section()) as made:
        yield made


@pytest.fixture(scope="session")
def pem() -> bytes:
    """A certificate that signs itself, and its key."""
    return certificate_pem()
