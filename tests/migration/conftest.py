# SPDX-License-Identifier: Apache-2.0
"""The cloud of launchers that a test starts itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.support.simulated_cloud import simulated_cloud
from simulators.openstack import SimulatorClient


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[SimulatorClient]:
    """A simulated OpenStack for all launchers of the test."""
    with simulated_cloud(tmp_path, {"boot_seconds": [0.1, 0.2], "delete_seconds": [0.1, 0.2]}) as client:
        yield client
